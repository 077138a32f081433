//! `prove settings`: changed settings of the golden folders, run with transformers and with gristmill.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::clients::{python, versions};
use super::date::date_and_commit;
use super::report;
use crate::{build, root};

/// Runs both on every change, and writes the report.
pub(super) fn settings(words: &[&str]) -> Result<(), String> {
    report::no_options("settings", words)?;
    let (folder, scripts) = (root().join("target/prove"), root().join("scripts/settings"));
    let packages = folder.join("settings");
    fs::create_dir_all(&packages).map_err(|error| format!("cannot make {}: {error}", packages.display()))?;
    let python = python(&packages, &scripts, "packages")?;
    let [theirs, ours] = ["theirs.jsonl", "ours.jsonl"].map(|name| packages.join(name));
    let script = |name: &str| {
        let mut command = Command::new(&python);
        command.arg(scripts.join(name));
        command
    };
    run(&mut script("classes.py"))?;
    run(script("theirs.py").arg(&theirs))?;
    run(Command::new(build("example", "settings")?).args([&theirs, &ours]))?;
    let compared = script("compare.py").args([&theirs, &ours]).output();
    let compared = compared.map_err(|error| format!("{}: {error}", python.display()))?;

    let mut text = format!("# Settings of published folders, {}\n\n", date_and_commit());
    text += "`cargo xtask prove settings`: one key of a golden folder's `config.json` is removed, changed or added at a \
             time, and\ntransformers and gristmill run the folder on the CPU; the scripts are in \
             `scripts/settings`. A folder whose weights no\nlonger fit, or whose losses are not finite, counts as \
             refused.\n\n";
    text += &versions(&python, &["transformers", "torch"])?;
    text += &format!("\n{}", String::from_utf8_lossy(&compared.stdout));
    report::write("settings", &text)?;
    match compared.status.success() {
        true => Ok(()),
        false => Err("some differences have no reason".to_owned()),
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
