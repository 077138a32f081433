//! `prove python`: published libraries use the Python package, unchanged.

use std::fs;
use std::process::Command;

use super::clients::{Page, checked, python as with_packages, versions};
use super::date::date_and_commit;
use super::report;
use crate::{model, root, sh};

/// It depends on llama-cpp-python, whose calls the package has itself.
const WITHOUT_DEPENDENCIES: &str = "llama-index-llms-llama-cpp==0.7.0";
/// Packages that are named in the report.
const PACKAGES: [&str; 10] = [
    "langchain-community",
    "langchain-openai",
    "llama-index-core",
    "llama-index-llms-llama-cpp",
    "llama-index-llms-openai-like",
    "outlines",
    "instructor",
    "haystack-ai",
    "dspy",
    "openai",
];

/// Builds the package, runs the script, and writes the report.
pub(super) fn python(words: &[&str]) -> Result<(), String> {
    report::no_options("python", words)?;
    let (folder, scripts) = (root().join("target/prove/python"), root().join("scripts/python"));
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    sh("scripts/python/test.sh", &["--build-only"])?;
    let model = model::fetch()?;
    let python = with_packages(&folder, &scripts, "integrations")?;
    sh(&python.display().to_string(), &["-m", "pip", "install", "--quiet", "--no-deps", WITHOUT_DEPENDENCIES])?;
    let mut text = format!("# The Python package, {}\n\n", date_and_commit());
    text += "`cargo xtask prove python`: libraries that use llama-cpp-python get `gristmill.llama_cpp` in its place, those that \
             use\nthe package openai get its client without a port.\n\n";
    text += &versions(&python, &PACKAGES)?;
    let mut page = Page { text, failed: Vec::new() };
    let mut script = Command::new(&python);
    script.arg(scripts.join("integrations.py")).arg(model).env("PYTHONPATH", root().join("target/python"));
    page.add("Libraries", "", checked, &mut script)?;
    report::write("python", &page.text)?;
    if page.failed.is_empty() { Ok(()) } else { Err(page.failed.join("\n")) }
}
