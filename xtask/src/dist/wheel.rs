//! The Python package, by maturin with zig. Its sources are in `crates/python`.

use super::artifacts::Inputs;
use super::product::{NAME, Release};
use super::targets::{GLIBC, System, Target};
use super::{build, run_with};
use crate::root;

/// The file for a target.
pub(super) fn name(release: &Release, target: Target) -> String {
    format!("{NAME}-{}-cp310-abi3-{}_{}.whl", release.version, platform(), target.uname.1)
}

/// The platform of the wheels in Python's terms.
fn platform() -> String {
    format!("manylinux_{}", GLIBC.replace('.', "_"))
}

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    let manifest = root().join("crates/python/Cargo.toml");
    if !manifest.is_file() {
        println!("wheel: SKIPPED, there is no crates/python");
        return Ok(());
    }
    let platform = platform();
    for built in inputs.built.iter().filter(|built| built.target.system == System::Linux) {
        let environment = build::environment(inputs.release, built.target)?;
        let environment: Vec<(&str, &str)> = environment.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let (manifest, out) = (manifest.display().to_string(), inputs.out.display().to_string());
        let arguments = ["build", "--release", "--locked", "--zig", "--compatibility", &platform, "--target"];
        let arguments = [&arguments[..], &[built.target.triple, "--manifest-path", &manifest, "--out", &out]].concat();
        run_with(&environment, "maturin", &arguments)?;
        let made = inputs.out.join(name(inputs.release, built.target));
        if !made.is_file() {
            return Err(format!("{}: maturin has not made it; does its name differ?", made.display()));
        }
    }
    Ok(())
}
