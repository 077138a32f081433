//! The install script: `deploy/release/install.sh` with the version and the sums of its archives.

use std::fs;

use super::archive::file_stem;
use super::artifacts::Inputs;
use super::product::{NAME, Release};
use super::sums::{sum, write};
use super::targets::{System, TARGETS};
use crate::root;

pub(super) const SCRIPT: &str = "install.sh";

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    let mut archives = Vec::new();
    for target in TARGETS.into_iter().filter(|target| target.system == System::Linux) {
        let name = format!("{}.tar.gz", file_stem(NAME, inputs.release, target.triple));
        let path = inputs.out.join(&name);
        if path.is_file() {
            let (system, machine) = target.uname;
            archives.push(format!("{system} {machine} {} {name}", sum(&path)?));
        }
    }
    write(&inputs.out.join(SCRIPT), &script(inputs.release, &archives)?)
}

/// The script for archives: system, machine, SHA-256 and file of each.
pub(super) fn script(release: &Release, archives: &[String]) -> Result<String, String> {
    let path = root().join("deploy/release").join(SCRIPT);
    let template = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let script = template.replace("@VERSION@", &release.version).replace("@ADDRESS@", &release.address());
    Ok(script.replace("@ARCHIVES@", &archives.join("\n")))
}
