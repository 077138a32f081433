//! Tests of the binary, on tiny random models that each run writes: output, exit codes and errors.

#[allow(dead_code)]
#[path = "../../../model/tests/model/tiny.rs"]
mod tiny;

#[path = "../../../engine/tests/engine/speech.rs"]
mod speech;

#[path = "../../../engine/tests/engine/damaged.rs"]
mod damaged;

mod bad_input;
mod commands;
mod config;
mod convert;
#[cfg(target_os = "linux")]
mod cuda;
mod embed;
mod folders;
mod generate;
mod guides;
mod heads;
mod hub;
mod images;
#[cfg(unix)]
mod interrupt;
mod library_errors;
mod measure;
mod positions;
#[cfg(target_os = "linux")]
mod ranks;
#[cfg(unix)]
mod replay;
mod sampling;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod terminal;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use gristmill_files::gguf::{Array, Value};
use tiny::{Random, Tiny};

/// A folder with `model.gguf`, `endless.gguf` (without end-of-generation tokens) and `mute.gguf` (without vocabulary).
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
    fs::create_dir_all(&folder).expect("a temporary folder");
    let mut random = Random::fresh();
    let mut tiny = Tiny::qwen3moe();
    fs::write(folder.join("mute.gguf"), tiny.bytes(&mut random)).expect("a written model");
    speech::teach(&mut tiny);
    fs::write(folder.join("model.gguf"), tiny.bytes(&mut random)).expect("a written model");
    tiny.unset("tokenizer.ggml.eos_token_id");
    for (_, value) in &mut tiny.pairs {
        match value {
            // The name `<|im_end|>` makes a token end the generation.
            Value::Array(Array::String(tokens)) => {
                tokens.iter_mut().for_each(|token| *token = token.replace("im_end", "next"))
            }
            Value::String(template) => *template = template.replace("im_end", "next"),
            _ => {}
        }
    }
    fs::write(folder.join("endless.gguf"), tiny.bytes(&mut random)).expect("a written model");
    folder
});

/// A GGUF file with an architecture and a tensor, which is no model.
fn header(architecture: &str) -> Vec<u8> {
    let mut writer = gristmill_files::gguf::GgufWriter::new();
    writer.set("general.architecture", architecture).expect("a key");
    writer.tensor("blk.0.x", gristmill_kernels::format::Format::F32, &[8]).expect("a tensor");
    let mut out = writer.begin(Vec::new()).expect("a header");
    out.write_tensor("blk.0.x", &[0; 32]).expect("data");
    out.finish().expect("it is whole")
}

/// A file of the folder.
fn path(name: &str) -> String {
    FOLDER.join(name).display().to_string()
}

/// Runs the binary with these arguments and this stdin. `MODEL` stands for the path of `model.gguf`.
fn gristmill(arguments: &[&str], stdin: &[u8]) -> Ended {
    gristmill_with(&[], arguments, stdin)
}

/// The same as [`gristmill`], with environment variables; an empty value removes a variable.
fn gristmill_with(variables: &[(&str, &OsStr)], arguments: &[&str], stdin: &[u8]) -> Ended {
    let model = path("model.gguf");
    let arguments = arguments.iter().map(|&a| if a == "MODEL" { model.as_str() } else { a });
    let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
    // All tests run with a home folder that cannot be read or written.
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
    // Fails if the child ends without reading its input.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin);
    Ended::new(child.wait_with_output().expect("an exit status"))
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

    /// Fails unless the exit code is 0; returns stdout.
    #[track_caller]
    fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    fn last_line(&self) -> &str {
        self.err.lines().last().unwrap_or_default()
    }
}
