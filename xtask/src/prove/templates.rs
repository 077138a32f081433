//! `prove templates`: renders published chat templates and random expressions with jinja2 and with gristmill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients::{Page, python, versions};
use super::date::date_and_commit;
use super::report;
use crate::{build, root, sh};

/// The package whose sources have the templates, which are read from there and are not in this repository. Its hash is
/// in `scripts/templates/published.txt`.
const PACKAGE: &str = "llama_cpp_python-0.3.36";
const TEMPLATES: &str = "vendor/llama.cpp/models/templates";

/// One conversation in this many is rendered: with `--quick`, and without.
const EVERY: [&str; 2] = ["16", "1"];

/// Number of random expressions: with `--quick`, and without.
const EXPRESSIONS: [&str; 2] = ["500", "20000"];

/// Renders, compares, and writes the report. With `--quick` only some conversations, in seconds.
pub(super) fn templates(words: &[&str]) -> Result<(), String> {
    let is_quick = match words {
        [] => false,
        ["--quick"] => true,
        [other, ..] => return Err(format!("prove templates: unknown option {other}; see cargo xtask")),
    };
    let (folder, scripts) = (root().join("target/prove"), root().join("scripts/templates"));
    let packages = folder.join("templates");
    fs::create_dir_all(&packages).map_err(|error| format!("cannot make {}: {error}", packages.display()))?;
    let python = python(&packages, &scripts, "packages")?;
    let published = published(&packages, &scripts, &python)?;
    let renderer = build("example", "render")?;
    let of = |values: [&'static str; 2]| values[usize::from(!is_quick)];
    let mut text = format!("# Chat templates, {}\n\n", date_and_commit());
    text += "`cargo xtask prove templates`: rendered by jinja2 as transformers sets it up, and by gristmill with the same \
             variables,\nand compared byte for byte. Where one of them refuses, both must.\n\n";
    text += &versions(&python, &["jinja2"])?;
    let mut page = Page { text, failed: Vec::new() };
    let script = |name: &str| {
        let mut script = Command::new(&python);
        script.arg(scripts.join(name)).arg(&renderer);
        script
    };
    let intro = format!(
        "The templates in the sources of {PACKAGE}, in the conversations of `scripts/templates/conversations.py`: how \
         many\nprompts are equal, how many conversations both refuse, and how many differ.\n\n"
    );
    page.add("Published templates", &intro, row, script("published.py").arg(&published).arg(of(EVERY)))?;
    let reader = build("example", "calls")?;
    let intro = format!(
        "How gristmill treats tools with the templates of {PACKAGE}. A prompt with tools, calls of earlier turns and \
         results must be as\njinja2 writes it, and a call that jinja2 has written must be read, in pieces of each length.\n\n"
    );
    let mut calls = Command::new(&python);
    page.add("Calls of tools", &intro, row, calls.arg(scripts.join("calls.py")).arg(&reader).arg(&published))?;
    let intro =
        "Filters, tests, operators and methods of `scripts/templates/expressions.py`, nested in each other.\n\n";
    let mut random = script("random_expressions.py");
    page.add("Random expressions", intro, row, random.args(["51", of(EXPRESSIONS)]))?;
    report::write("templates", &page.text)?;
    if page.failed.is_empty() { Ok(()) } else { Err(page.failed.join("\n")) }
}

/// The rows of tables and lists.
fn row(line: &str) -> Option<String> {
    line.starts_with(['|', '-']).then(|| line.to_owned())
}

/// The folder with the templates: the package's sources, which are downloaded if they are missing.
fn published(folder: &Path, scripts: &Path, python: &Path) -> Result<PathBuf, String> {
    let templates = folder.join(PACKAGE).join(TEMPLATES);
    if templates.is_dir() {
        return Ok(templates);
    }
    let [program, wanted, to] = [python, &scripts.join("published.txt"), folder].map(|path| path.display().to_string());
    let archive = format!("{to}/{PACKAGE}.tar.gz");
    if !Path::new(&archive).is_file() {
        let download = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"];
        let what = ["--no-binary", "llama-cpp-python", "--require-hashes", "--dest", &to, "--requirement", &wanted];
        sh(&program, &[&download[..], &what[..]].concat())
            .map_err(|error| format!("{error}\nthe templates take PyPI, once"))?;
    }
    sh("tar", &["-xzf", &archive, "-C", &to, &format!("{PACKAGE}/{TEMPLATES}")])?;
    Ok(templates)
}
