//! The dependencies of the program and of the C library with their licences, by cargo-cyclonedx. The programs also contain the
//! list of their dependencies (`cargo auditable`), which `cargo audit bin` reads.

use std::fs;

use super::artifacts::Inputs;
use super::run_with;
use crate::root;

/// A crate, and the name of its file.
const CRATES: [(&str, &str); 2] = [("crates/cli", "gristmill"), ("crates/c", "libgristmill")];

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    let time = inputs.release.time.to_string();
    for (folder, name) in CRATES {
        let manifest = root().join(folder).join("Cargo.toml").display().to_string();
        let arguments = ["cyclonedx", "--format", "json", "--spec-version", "1.5", "--manifest-path", &manifest];
        let environment = [("SOURCE_DATE_EPOCH", time.as_str())];
        run_with(&environment, "cargo", &[&arguments[..], &["--override-filename", "sbom"]].concat())?;
        // The tool writes one file for each crate of the workspace that it visits.
        let made = root().join(folder).join("sbom.json");
        let text = fs::read_to_string(&made).map_err(|error| format!("{}: {error}", made.display()))?;
        let text = without_places(&text);
        super::sums::write(&inputs.out.join(format!("{name}-{}.cdx.json", inputs.release.version)), &text)?;
    }
    clean()
}

/// The text without what differs between folders and runs: the path of the checkout and the number of the document.
fn without_places(text: &str) -> String {
    let text = text.replace(&root().display().to_string(), "");
    text.lines()
        .filter(|line| !line.trim_start().starts_with("\"serialNumber\""))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Deletes what the tool wrote beside the manifests.
fn clean() -> Result<(), String> {
    let folders = fs::read_dir(root().join("crates")).map_err(|error| format!("crates: {error}"))?;
    for folder in folders.flatten().map(|entry| entry.path()).chain([root().join("xtask")]) {
        let file = folder.join("sbom.json");
        if file.is_file() {
            fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sbom_names_no_folder_of_this_machine() {
        let text = format!(
            "{{\n  \"serialNumber\": \"urn:1\",\n  \"ref\": \"path+file://{}/crates/cli\"\n}}",
            root().display()
        );
        assert_eq!(without_places(&text), "{\n  \"ref\": \"path+file:///crates/cli\"\n}\n");
    }
}
