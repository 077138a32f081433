//! A bare root of Debian for `dist check`: an artifact is installed and runs there, or in an emulator of another architecture.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::archive;
use super::targets::Target;
use super::{run, sh_in};
use crate::root;

/// The distribution.
const SUITE: &str = "bookworm";
/// README's first command.
pub(super) const COMMAND: &str = "gristmill run \"Once upon a time\"";
/// What the wheel must run: a stream of events.
const STREAM: &str = "from gristmill import LLM
with LLM('builtin', ctx=512) as llm:
    for event in llm.stream_text('Once upon a time', max_tokens=60):
        print(event, end='', flush=True)
";
/// What the kernels' package must run. Without a GPU, only this command reads them.
const DOCTOR: &str = "gristmill doctor | grep 'kernels compiled ahead'";

/// A way to install artifacts on a bare root.
pub(super) struct Installation {
    /// The artifact that it checks, and others that it needs.
    pub(super) artifacts: Vec<String>,
    /// Packages of Debian that the root has besides the essential ones, separated by commas.
    pub(super) packages: &'static str,
    /// Lines of a shell on the root, where `/artifacts` has the artifacts.
    pub(super) line: String,
    pub(super) proof: Proof,
}

/// What an installed artifact must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// README's first command prints a story.
    Story,
    /// So does the command of the Python package, and a program in Python prints one as it is generated.
    Python,
    /// `doctor` finds the kernels of all architectures.
    Kernels,
}

impl Proof {
    /// The lines of a shell.
    fn command(self) -> String {
        match self {
            Proof::Story => COMMAND.to_owned(),
            Proof::Python => format!("/venv/bin/{COMMAND} && /venv/bin/python3 -c \"{STREAM}\""),
            Proof::Kernels => DOCTOR.to_owned(),
        }
    }

    /// Whether the output is as it must be.
    pub(super) fn holds(self, text: &str) -> bool {
        match self {
            // Stories have at least this number of bytes.
            Proof::Story => text.len() >= 100,
            Proof::Python => text.len() >= 200,
            Proof::Kernels => text.starts_with("ok ") && text.contains("sm_75") && text.contains("sm_120"),
        }
    }
}

/// Installs an artifact on a new root and runs it there.
pub(super) fn installed(installation: &Installation, out: &Path) -> Result<String, String> {
    let bare = bare_root(env::consts::ARCH, installation.packages)?;
    let result = (|| {
        let artifacts = bare.join("artifacts");
        fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
        for name in &installation.artifacts {
            fs::copy(out.join(name), artifacts.join(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        let command = installation.proof.command();
        let line = format!("! command -v cc gcc clang rustc && {{ {}; }} >&2 && {command}", installation.line);
        let mut chroot = Command::new("chroot");
        chroot.arg(&bare).args(["sh", "-euc", &line]).env_clear().env("HOME", "/root");
        chroot.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        let output = chroot.output().map_err(|error| format!("chroot: cannot be started: {error}"))?;
        printed(&installation.artifacts[0], installation.proof, &output)
    })();
    fs::remove_dir_all(&bare).map_err(|error| format!("{}: {error}", bare.display()))?;
    result
}

/// Unpacks an artifact of another architecture into a root of it, and runs it in an emulator.
pub(super) fn emulated(target: Target, installation: &Installation, out: &Path) -> Result<String, String> {
    let name = &installation.artifacts[0];
    let packages = if installation.proof == Proof::Python { "python3" } else { "" };
    let bare = bare_root(target.image, packages)?;
    let result = (|| {
        let artifact = out.join(name);
        let quoted = archive::quoted(&artifact);
        let packaged = bare.join("usr/bin/gristmill");
        let mut emulator = Command::new(format!("qemu-{}-static", target.uname.1));
        emulator.arg("-L").arg(&bare);
        match name.rsplit('.').next() {
            Some("deb") => {
                run("dpkg-deb", &["--extract", &artifact.display().to_string(), &bare.display().to_string()])?;
                emulator.arg(packaged)
            }
            Some("rpm") => {
                sh_in(&bare, &format!("rpm2cpio {quoted} | cpio --extract --make-directories --quiet"))?;
                emulator.arg(packaged)
            }
            Some("whl") => {
                sh_in(&bare, &format!("python3 -m zipfile --extract {quoted} wheel"))?;
                emulator.env("PYTHONHOME", bare.join("usr")).env("PYTHONPATH", bare.join("wheel"));
                emulator.arg(bare.join("usr/bin/python3")).args(["-m", "gristmill"])
            }
            _ => {
                archive::unpack(&artifact, &bare)?;
                emulator.arg(bare.join(name.trim_end_matches(".tar.gz")).join(target.program()))
            }
        };
        let output = emulator.args(["run", "Once upon a time"]).output();
        let output =
            output.map_err(|error| format!("{emulator:?}: cannot be started: {error}; install qemu-user-static"))?;
        printed(name, Proof::Story, &output)
    })();
    fs::remove_dir_all(&bare).map_err(|error| format!("{}: {error}", bare.display()))?;
    result
}

/// What an artifact printed, if it is as it must be.
fn printed(artifact: &str, proof: Proof, output: &Output) -> Result<String, String> {
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() && proof.holds(&text) {
        true => Ok(text),
        false => Err(format!(
            "{artifact}: `{}` failed, {}, and printed {text:?}\n{}",
            proof.command(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// A new root with Debian's essential packages of an architecture, from the sources of this system's apt.
fn bare_root(architecture: &str, packages: &str) -> Result<PathBuf, String> {
    let bare = root().join("target/dist/root");
    if bare.exists() {
        fs::remove_dir_all(&bare).map_err(|error| format!("{}: {error}", bare.display()))?;
    }
    let debian = match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let is_own = architecture == env::consts::ARCH;
    // Packages of another architecture cannot be configured here: their files are unpacked.
    let variant = if is_own { "--variant=essential" } else { "--variant=extract" };
    let packages = match (packages, is_own) {
        ("", true) => String::new(),
        ("", false) => "--include=libc6".to_owned(),
        (packages, _) => format!("--include={packages}"),
    };
    let sources = "$(find /etc/apt -name '*.list' -o -name '*.sources')";
    let line = format!(
        "mmdebstrap --quiet --mode=root {variant} --architectures={debian} {packages} {SUITE} {} {sources}",
        archive::quoted(&bare)
    );
    sh_in(root(), &line)?;
    Ok(bare)
}
