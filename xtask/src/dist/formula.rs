//! Descriptions for package managers, which name the archives and their sums: Homebrew, winget and Scoop.

use std::fs;
use std::path::Path;

use super::archive::file_stem;
use super::artifacts::Inputs;
use super::product::{DESCRIPTION, NAME, REPOSITORY, Release, SUMMARY};
use super::sums::{sum, write};
use super::{sh_in, source};
use crate::root;

/// Files of `deploy/release/windows`: the template, and the folder of its manager.
const WINDOWS: [(&str, &str); 4] = [
    ("scoop.json", "scoop/gristmill.json"),
    ("winget.yaml", "winget/gristmill.yaml"),
    ("winget.installer.yaml", "winget/gristmill.installer.yaml"),
    ("winget.locale.en-US.yaml", "winget/gristmill.locale.en-US.yaml"),
];

/// The file of the formula.
pub(super) const FORMULA: &str = "gristmill.rb";

/// The file of the manifests.
pub(super) fn manifests(release: &Release) -> String {
    format!("{NAME}-{}-windows-manifests.tar.gz", release.version)
}

/// `gristmill.rb`: the programs on Linux; on macOS it compiles the sources.
pub(super) fn homebrew(inputs: &Inputs) -> Result<(), String> {
    let mut text = filled(inputs, &root().join("deploy/release/gristmill.rb"))?;
    text = with_sum(inputs, text, "SOURCE", &source::name(inputs.release))?;
    for (key, triple) in [("X86_64", "x86_64-unknown-linux-gnu"), ("AARCH64", "aarch64-unknown-linux-gnu")] {
        text = with_sum(inputs, text, key, &format!("{}.tar.gz", file_stem(NAME, inputs.release, triple)))?;
    }
    write(&inputs.out.join(FORMULA), &text)
}

/// The manifests of winget and Scoop, in an archive.
pub(super) fn windows(inputs: &Inputs) -> Result<(), String> {
    let archive = format!("{}.zip", file_stem(NAME, inputs.release, "x86_64-pc-windows-gnu"));
    let stage = inputs.stage.join("windows");
    let _ = fs::remove_dir_all(&stage);
    for (template, to) in WINDOWS {
        let text = filled(inputs, &root().join("deploy/release/windows").join(template))?;
        let to = stage.join(to);
        fs::create_dir_all(to.parent().unwrap_or(&stage)).map_err(|error| format!("{}: {error}", to.display()))?;
        write(&to, &with_sum(inputs, text, "WINDOWS", &archive)?)?;
    }
    let to = inputs.out.join(manifests(inputs.release));
    sh_in(&stage, &format!("find . -exec touch --date=@{} {{}} +", inputs.release.time))?;
    super::archive::tar_gz(&stage, &to, inputs.release)
}

fn filled(inputs: &Inputs, template: &Path) -> Result<String, String> {
    let text = fs::read_to_string(template).map_err(|error| format!("{}: {error}", template.display()))?;
    let values = [
        ("@VERSION@", inputs.release.version.as_str()),
        ("@ADDRESS@", &inputs.release.address()),
        ("@REPOSITORY@", REPOSITORY),
        ("@SUMMARY@", SUMMARY),
        ("@DESCRIPTION@", DESCRIPTION),
    ];
    Ok(values.into_iter().fold(text, |text, (key, value)| text.replace(key, value)))
}

/// The text with the sum and the name of a file. Without the file, the sum says so: a manager refuses it.
fn with_sum(inputs: &Inputs, text: String, key: &str, name: &str) -> Result<String, String> {
    let path = inputs.out.join(name);
    let found = if path.is_file() { sum(&path)? } else { "not-built".to_owned() };
    Ok(text.replace(&format!("@{key}_SHA256@"), &found).replace(&format!("@{key}@"), name))
}
