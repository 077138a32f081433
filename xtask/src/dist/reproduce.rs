//! `dist reproduce`: a second clone in another folder makes the same bytes; with `--no-build` only the packages of what was
//! built are made twice.

use std::env;
use std::fs;
use std::path::Path;

use super::artifacts::ARTIFACTS;
use super::build::Built;
use super::product::Release;
use super::targets::{TARGETS, Target};
use super::{Wanted, make, make_in, out, run, sh_in, sums};
use crate::root;

/// Artifacts that a compiler makes, not a packager.
const COMPILED: [&str; 2] = ["wheel", "kernels"];

pub(super) fn reproduce(wanted: &Wanted) -> Result<(), String> {
    if !wanted.targets.is_empty() || (!wanted.only.is_empty() && !wanted.packages_only) {
        return Err("dist reproduce: takes no --target, and --only together with --no-build".to_owned());
    }
    let target = TARGETS.into_iter().find(|&target| Built::new(target).runs_here());
    let target = target.ok_or("dist reproduce: this machine is none of the targets")?;
    if wanted.packages_only { packages(target, &wanted.only) } else { whole(target) }
}

/// Builds the artifacts of this machine in a second clone, and compares all bytes.
fn whole(target: Target) -> Result<(), String> {
    let release = Release::current()?;
    make(&Wanted { targets: vec![target.triple], only: Vec::new(), packages_only: false })?;
    // The length of its path differs, too.
    let clone = env::temp_dir().join("gristmill-second-clone");
    let _ = fs::remove_dir_all(&clone);
    let clone_name = clone.display().to_string();
    run("git", &["clone", "--quiet", &root().display().to_string(), &clone_name])?;
    let tools = clone.join("target");
    fs::create_dir_all(&tools).map_err(|error| format!("{}: {error}", tools.display()))?;
    run("ln", &["-s", &super::tools::folder().display().to_string(), &tools.join("tools").display().to_string()])?;
    sh_in(&clone, &format!("cargo xtask dist --target {}", target.triple))?;
    let compared = compare(&out()?, &clone.join("target/dist").join(&release.version));
    fs::remove_dir_all(&clone).map_err(|error| format!("{clone_name}: {error}"))?;
    compared
}

/// Packages what was built for this machine twice, all artifacts or only these, in folders of different lengths, and compares
/// all bytes.
fn packages(target: Target, only: &[&str]) -> Result<(), String> {
    let packaged = |name: &&str| !COMPILED.contains(name) && (only.is_empty() || only.contains(name));
    let only = ARTIFACTS.iter().map(|artifact| artifact.name).filter(packaged).collect();
    let wanted = Wanted { targets: vec![target.triple], only, packages_only: true };
    let folder = root().join("target/dist/reproduce");
    let [first, second] = ["first", "the-second"].map(|name| folder.join(name));
    let _ = fs::remove_dir_all(&folder);
    for to in [&first, &second] {
        make_in(&wanted, &to.join("out"), &to.join("stage"))?;
    }
    let compared = compare(&first.join("out"), &second.join("out"));
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    compared
}

fn compare(first: &Path, second: &Path) -> Result<(), String> {
    let (of_first, of_second) = (sums::all(first)?, sums::all(second)?);
    match &differing(&of_first, &of_second)[..] {
        [] => {
            println!("{} files have the same bytes in both folders", of_second.len());
            Ok(())
        }
        names => Err(format!("{}: differ between {} and {}", names.join(", "), first.display(), second.display())),
    }
}

/// Files of the second list that the first has with other sums, or lacks.
pub(super) fn differing(first: &[(String, String)], second: &[(String, String)]) -> Vec<String> {
    second.iter().filter(|file| !first.contains(file)).map(|(name, _)| name.clone()).collect()
}
