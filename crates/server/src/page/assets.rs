//! The files of the page.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use gristmill_engine::SETTINGS;
use sha2::{Digest, Sha256};

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    /// Its path below the folder.
    pub(super) name: &'static str,
    /// Its media type.
    pub(super) kind: &'static str,
    pub(super) bytes: Bytes,
}

/// The contents of a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bytes {
    Plain(&'static [u8]),
    /// Of a file of the folder, which `build.rs` has compressed.
    Gzip(&'static [u8]),
}

impl Asset {
    /// The entity tag: the start of the SHA-256, in quotes.
    pub(super) fn tag(&self) -> &'static str {
        TAGS.get(self.name).map_or("", String::as_str)
    }
}

impl Bytes {
    fn stored(self) -> &'static [u8] {
        match self {
            Bytes::Plain(bytes) | Bytes::Gzip(bytes) => bytes,
        }
    }

    /// The contents as they are in the folder.
    ///
    /// # Errors
    /// None, because `build.rs` wrote the compressed bytes.
    pub(super) fn read(self) -> io::Result<Vec<u8>> {
        match self {
            Bytes::Plain(bytes) => Ok(bytes.to_vec()),
            Bytes::Gzip(bytes) => {
                let mut plain = Vec::new();
                GzDecoder::new(bytes).read_to_end(&mut plain)?;
                Ok(plain)
            }
        }
    }
}

/// The tags of all files, made once.
static TAGS: LazyLock<HashMap<&'static str, String>> =
    LazyLock::new(|| all().map(|asset| (asset.name, tag(asset.bytes.stored()))).collect());

fn tag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let digits = digest.iter().take(16).fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"));
    format!("\"{digits}\"")
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const FONT: &str = "font/woff2";

macro_rules! assets {
    ($($name:literal: $kind:ident,)*) => {
        &[$(Asset {
            name: $name,
            kind: $kind,
            bytes: Bytes::Gzip(include_bytes!(concat!(env!("OUT_DIR"), "/page/", $name, ".gz"))),
        }),*]
    };
}

/// All files.
pub(super) fn all() -> impl Iterator<Item = &'static Asset> {
    ASSETS.iter().chain([&*RANGES])
}

/// The ranges of the sampler's settings, as a module: `RANGES.top_p` is `[least, most]`.
static RANGES: LazyLock<Asset> = LazyLock::new(|| {
    let lines = SETTINGS.iter().map(|it| format!("  {}: [{:e}, {:e}],\n", it.name, it.least, it.most));
    let module = format!("export const RANGES = {{\n{}}};\n", lines.collect::<String>());
    // Made once and kept as long as the program runs.
    Asset { name: "ranges.js", kind: SCRIPT, bytes: Bytes::Plain(module.leak().as_bytes()) }
});

/// The files in the folder.
pub(super) const ASSETS: &[Asset] = assets! {
    "index.html": HTML,
    "icon.svg": IMAGE,
    "style/base.css": STYLE,
    "style/chat.css": STYLE,
    "style/dialogs.css": STYLE,
    "style/experts.css": STYLE,
    "style/layout.css": STYLE,
    "style/prose.css": STYLE,
    "style/sidebar.css": STYLE,
    "address.js": SCRIPT,
    "api.js": SCRIPT,
    "blank.js": SCRIPT,
    "call.js": SCRIPT,
    "chat.js": SCRIPT,
    "colours.js": SCRIPT,
    "composer.js": SCRIPT,
    "context.js": SCRIPT,
    "conversation.js": SCRIPT,
    "detail.js": SCRIPT,
    "dom.js": SCRIPT,
    "experts.js": SCRIPT,
    "failure.js": SCRIPT,
    "folded.js": SCRIPT,
    "footnotes.js": SCRIPT,
    "form.js": SCRIPT,
    "generate.js": SCRIPT,
    "heat.js": SCRIPT,
    "images.js": SCRIPT,
    "keys.js": SCRIPT,
    "main.js": SCRIPT,
    "maps.js": SCRIPT,
    "markdown.js": SCRIPT,
    "math.js": SCRIPT,
    "mcp.js": SCRIPT,
    "models.js": SCRIPT,
    "numbers.js": SCRIPT,
    "pdf.js": SCRIPT,
    "presets.js": SCRIPT,
    "progress.js": SCRIPT,
    "runs.js": SCRIPT,
    "search.js": SCRIPT,
    "servers.js": SCRIPT,
    "settings.js": SCRIPT,
    "setup.js": SCRIPT,
    "shape.js": SCRIPT,
    "shortcuts.js": SCRIPT,
    "sidebar.js": SCRIPT,
    "speed.js": SCRIPT,
    "store.js": SCRIPT,
    "summary.js": SCRIPT,
    "theme.js": SCRIPT,
    "tokens.js": SCRIPT,
    "tools.js": SCRIPT,
    "trace.js": SCRIPT,
    "transfer.js": SCRIPT,
    "turn.js": SCRIPT,
    "turns.js": SCRIPT,
    "words.js": SCRIPT,
    "vendor/highlight.min.js": SCRIPT,
    "vendor/katex.min.js": SCRIPT,
    "vendor/marked.esm.js": SCRIPT,
    "vendor/pdf.min.js": SCRIPT,
    "vendor/pdf.worker.min.js": SCRIPT,
    "vendor/purify.es.js": SCRIPT,
    "vendor/math.woff2": FONT,
    "vendor/highlight.LICENSE.txt": TEXT,
    "vendor/katex.LICENSE.txt": TEXT,
    "vendor/marked.LICENSE.txt": TEXT,
    "vendor/math.LICENSE.txt": TEXT,
    "vendor/pdf.LICENSE.txt": TEXT,
    "vendor/purify.LICENSE.txt": TEXT,
};
