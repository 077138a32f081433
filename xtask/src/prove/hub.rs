//! `prove hub`: one cache for gristmill and huggingface_hub, and layouts of repositories, with a mock of the hub.

use std::fs;
use std::process::Command;

use super::clients::{Page, checked, python, versions};
use super::date::date_and_commit;
use super::report;
use crate::{build, root};

/// The model that the mock serves.
const MODEL: &str = "crates/cli/model/gristmill-stories.gguf";

/// Runs the script, and writes the report.
pub(super) fn hub(words: &[&str]) -> Result<(), String> {
    report::no_options("hub", words)?;
    let (folder, scripts) = (root().join("target/prove"), root().join("scripts/hub"));
    let packages = folder.join("hub");
    fs::create_dir_all(&packages).map_err(|error| format!("cannot make {}: {error}", packages.display()))?;
    let python = python(&packages, &scripts, "packages")?;
    let (gristmill, standin) = (build("bin", "gristmill")?, build("example", "standin")?);
    let mut text = format!("# The hub's cache, {}\n\n", date_and_commit());
    text += "`cargo xtask prove hub`: huggingface_hub and gristmill share a cache, with a stand-in of the hub on two \
             loopback ports\n(`crates/hub/examples/standin.rs`). Faults of the hub are in `crates/hub/tests`.\n\n";
    text += &versions(&python, &["huggingface_hub"])?;
    let mut page = Page { text, failed: Vec::new() };
    let mut script = Command::new(&python);
    let programs = [gristmill, standin, root().join(MODEL)];
    script.arg(scripts.join("both_ways.py")).args(&programs).arg(packages.join("work"));
    page.add("Both ways", "", checked, &mut script)?;
    let mut script = Command::new(&python);
    script.arg(scripts.join("layouts.py")).args(&programs).arg(packages.join("layouts"));
    page.add("Layouts of repositories", "", checked, &mut script)?;
    report::write("hub", &page.text)?;
    if page.failed.is_empty() { Ok(()) } else { Err(page.failed.join("\n")) }
}
