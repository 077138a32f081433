//! The binary as people use it, on a tiny model that each run writes anew: what comes out where, and what is refused.

#[allow(dead_code)]
#[path = "../../../engine/tests/model/tiny.rs"]
mod tiny;

#[path = "../../../engine/tests/engine/speech.rs"]
mod speech;

mod bad_input;
mod commands;
mod convert;
#[cfg(target_os = "linux")]
mod cuda;
#[cfg(unix)]
mod interrupt;
mod positions;
mod sampling;
#[cfg(unix)]
mod terminal;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use gristmill_engine::gguf::{Array, Value};
use tiny::{Random, Tiny};

/// A folder with `model.gguf` (speaks), `endless.gguf` (has no token that ends an answer) and `mute.gguf` (no vocabulary).
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
    fs::create_dir_all(&folder).expect("a temporary folder");
    let mut random = Random::fresh();
    let mut tiny = Tiny::qwen3moe();
    fs::write(folder.join("mute.gguf"), tiny.bytes(&mut random)).expect("it is written");
    speech::teach(&mut tiny);
    fs::write(folder.join("model.gguf"), tiny.bytes(&mut random)).expect("it is written");
    tiny.unset("tokenizer.ggml.eos_token_id");
    for (_, value) in &mut tiny.pairs {
        match value {
            // What a name tells ends an answer as well.
            Value::Array(Array::String(tokens)) => {
                tokens.iter_mut().for_each(|token| *token = token.replace("im_end", "next"))
            }
            Value::String(template) => *template = template.replace("im_end", "next"),
            _ => {}
        }
    }
    fs::write(folder.join("endless.gguf"), tiny.bytes(&mut random)).expect("it is written");
    folder
});

/// A file of the folder.
fn path(name: &str) -> String {
    FOLDER.join(name).display().to_string()
}

/// Runs the binary with these arguments, of which `MODEL` is the tiny model, and this stdin.
fn gristmill(arguments: &[&str], stdin: &[u8]) -> Ended {
    gristmill_with(&[], arguments, stdin)
}

/// With further environment variables; without those that are empty.
fn gristmill_with(variables: &[(&str, &OsStr)], arguments: &[&str], stdin: &[u8]) -> Ended {
    let model = path("model.gguf");
    let arguments = arguments.iter().map(|&a| if a == "MODEL" { model.as_str() } else { a });
    let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
    // A home that cannot be read or written must not matter, so all tests run with one.
    command.args(arguments).env("HOME", "/dev/null/home").env_remove("XDG_DATA_HOME").env("RUST_BACKTRACE", "1");
    for (name, value) in variables {
        if value.is_empty() {
            command.env_remove(name)
        } else {
            command.env(name, value)
        };
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    // A child that does not read its input closes it early.
    let _ = child.stdin.take().expect("it is piped").write_all(stdin);
    Ended::new(child.wait_with_output().expect("it ends"))
}

/// How a run ended.
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn new(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// It succeeded; what it wrote to stdout.
    #[track_caller]
    fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    fn last_line(&self) -> &str {
        self.err.lines().last().unwrap_or_default()
    }
}
