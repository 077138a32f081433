//! The Python package, by maturin with zig. Its sources are in `crates/python`.

use super::artifacts::Inputs;
use super::targets::{GLIBC, System};
use super::{build, run_with};
use crate::root;

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    let manifest = root().join("crates/python/Cargo.toml");
    if !manifest.is_file() {
        println!("wheel: SKIPPED, there is no crates/python");
        return Ok(());
    }
    let platform = format!("manylinux_{}", GLIBC.replace('.', "_"));
    for built in inputs.built.iter().filter(|built| built.target.system == System::Linux) {
        let environment = build::environment(inputs.release, built.target)?;
        let environment: Vec<(&str, &str)> = environment.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let (manifest, out) = (manifest.display().to_string(), inputs.out.display().to_string());
        let arguments = ["build", "--release", "--locked", "--zig", "--compatibility", &platform, "--target"];
        let arguments = [&arguments[..], &[built.target.triple, "--manifest-path", &manifest, "--out", &out]].concat();
        run_with(&environment, "maturin", &arguments)?;
    }
    Ok(())
}
