//! `prove synthetic`: llama.cpp runs every model that `gristmill bench --synthetic` writes, so that both can be
//! measured on one file.

use std::fmt::{self, Display, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::date::date_and_commit;
use super::report;
use crate::{build, root, sh};

/// llama.cpp as a Python package, which is published only as source.
const PACKAGE: &str = "llama-cpp-python";
const VERSION: &str = "0.3.36";
/// Enough for layers that differ (one in four has attention in some models), and small enough for any disk.
const LAYERS: &str = "4";

/// Opens the file, runs some tokens, and prints the model's name and the spread of its logits.
const SCRIPT: &str = "\
import sys
from llama_cpp import Llama
model = Llama(model_path=sys.argv[1], n_ctx=64, n_gpu_layers=0, logits_all=True, verbose=True)
model.eval([1, 2, 3, 4])
scores = model.scores[:4]
assert (scores == scores).all(), 'a logit is NaN'
print(f'opened {model.n_vocab()} {scores.std():.4f}')
";

/// The outcome for one model.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// llama.cpp ran it.
    Ran {
        bytes: u64,
        /// Tokens in the vocabulary.
        vocabulary: u32,
        /// Standard deviation of the logits.
        spread: f64,
    },
    /// gristmill did not write it.
    NotWritten(String),
    /// llama.cpp did not run it.
    NotRun(String),
}

impl Outcome {
    fn is_good(&self) -> bool {
        // Random weights of these scales give logits that differ.
        matches!(self, Outcome::Ran { spread, .. } if (0.1..10.0).contains(spread))
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Outcome::Ran { bytes, vocabulary, spread } => {
                write!(f, "runs: {vocabulary} tokens, logits spread {spread:.2}, {:.1} MB", *bytes as f64 / 1e6)
            }
            Outcome::NotWritten(reason) => write!(f, "NOT WRITTEN: {reason}"),
            Outcome::NotRun(reason) => write!(f, "NOT RUN: {reason}"),
        }
    }
}

/// Writes every synthetic model, and fails unless llama.cpp runs each.
pub(super) fn synthetic(words: &[&str]) -> Result<(), String> {
    report::no_options("synthetic", words)?;
    let python = python()?;
    let gristmill = build("bin", "gristmill")?;
    let folder = root().join("target/prove/synthetic");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let mut page = format!("# Synthetic models in llama.cpp, {}\n\n", date_and_commit());
    page += "`cargo xtask prove synthetic`: each model of `gristmill bench --synthetic`, with four layers and in the \
             mix in which it is\n";
    let _ = writeln!(
        page,
        "published, opened and run by llama.cpp ({PACKAGE} {VERSION}, CPU).\n\n| model | outcome |\n| --- | --- |"
    );
    let mut failed = Vec::new();
    for name in names(&gristmill)? {
        let path = folder.join(format!("{name}.gguf"));
        let outcome = try_one(&gristmill, &python, &name, &path)?;
        // The largest have more than a gigabyte.
        let _ = fs::remove_file(&path);
        eprintln!("{name:<16} {outcome}");
        let _ = writeln!(page, "| {name} | {outcome} |");
        if !outcome.is_good() {
            failed.push(format!("{name}: {outcome}"));
        }
    }
    report::write("synthetic", &page)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("llama.cpp does not run {} synthetic models:\n{}", failed.len(), failed.join("\n"))),
    }
}

/// A Python with llama.cpp, which is built if it is missing.
fn python() -> Result<PathBuf, String> {
    let venv = root().join("target/llama-cpp");
    let python = venv.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let check = format!("import llama_cpp; assert llama_cpp.__version__ == '{VERSION}'");
    if python.is_file() && Command::new(&python).args(["-c", &check]).output().is_ok_and(|done| done.status.success()) {
        return Ok(python);
    }
    eprintln!("building {PACKAGE} {VERSION}: about 10 minutes on two cores");
    let [venv, program] = [&venv, &python].map(|path| path.display().to_string());
    sh("python3", &["-m", "venv", &venv])
        .and_then(|()| sh(&program, &["-m", "pip", "install", "--quiet", &format!("{PACKAGE}=={VERSION}")]))
        .map_err(|error| format!("{error}\nllama.cpp takes python3 with venv, a C++ compiler, and a network"))?;
    Ok(python)
}

/// The models, as the program lists them when another is requested.
fn names(gristmill: &Path) -> Result<Vec<String>, String> {
    let (_, said) = run(Command::new(gristmill).args(["bench", "--synthetic", "?"]))?;
    let known = said.trim().split_once("known are ").map(|(_, names)| names.split(", ").map(str::to_owned).collect());
    known.ok_or_else(|| format!("gristmill does not list its synthetic models, it says: {said}"))
}

fn try_one(gristmill: &Path, python: &Path, name: &str, path: &Path) -> Result<Outcome, String> {
    let mut write = Command::new(gristmill);
    write.args(["bench", "--synthetic", name, "--layers", LAYERS, "-p", "0", "-n", "0", "-o"]).arg(path);
    let (written, said) = run(&mut write)?;
    if !written {
        return Ok(Outcome::NotWritten(last_line(&said)));
    }
    let bytes = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.len();
    let (_, said) = run(Command::new(python).args(["-c", SCRIPT]).arg(path))?;
    Ok(outcome(&said, bytes))
}

/// Reads what llama.cpp and [`SCRIPT`] have printed.
fn outcome(said: &str, bytes: u64) -> Outcome {
    let opened = said.lines().find_map(|line| {
        let (vocabulary, spread) = line.strip_prefix("opened ")?.split_once(' ')?;
        Some(Outcome::Ran { bytes, vocabulary: vocabulary.parse().ok()?, spread: spread.parse().ok()? })
    });
    let reason = || {
        // llama.cpp says first what is wrong, Python only that something is.
        let error = said.lines().find_map(|line| line.split_once("error loading model: "));
        error.map_or_else(|| last_line(said), |(_, reason)| reason.to_owned())
    };
    opened.unwrap_or_else(|| Outcome::NotRun(reason()))
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or("it says nothing").trim().to_owned()
}

/// Whether a command succeeded, and what it printed.
fn run(command: &mut Command) -> Result<(bool, String), String> {
    let done = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let text = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((done.status.success(), text))
}

#[cfg(test)]
mod tests {
    use super::{Outcome, outcome};

    #[test]
    fn what_llama_cpp_says_is_read() {
        let ran = outcome("llama_model_loader: …\nopened 4096 1.0719\n", 7);
        assert_eq!(ran, Outcome::Ran { bytes: 7, vocabulary: 4096, spread: 1.0719 });
        assert!(ran.is_good());
        let missing = "llama_model_load: error loading model: error loading model hyperparameters: key not found in \
                       model: x\nTraceback\nValueError: Failed to load model from file: m.gguf\n";
        let reason = "error loading model hyperparameters: key not found in model: x".to_owned();
        assert_eq!(outcome(missing, 7), Outcome::NotRun(reason));
        assert_eq!(
            outcome("AssertionError: a logit is NaN\n", 7),
            Outcome::NotRun("AssertionError: a logit is NaN".into())
        );
        for bad in ["opened 4096 0.0", "opened 4096 nan", "opened"] {
            assert!(!outcome(bad, 7).is_good(), "{bad}");
        }
    }
}
