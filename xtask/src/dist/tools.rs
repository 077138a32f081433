//! The tools, with fixed versions. Those of Python's and Rust's registries are installed into `target/tools`, which is first in
//! the path of all commands of `dist`; those of the system by apt, as root on Debian.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use super::run;
use crate::root;

/// Packages of PyPI: a linker with the libraries of every glibc, its cargo command, and the builder of wheels.
const PYTHON: [&str; 3] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1", "maturin==1.16.0"];
/// NVRTC, only for kernels that are compiled ahead. Drivers for CUDA 12 and 13 load what version 12 compiles.
const NVRTC: &str = "nvidia-cuda-nvrtc-cu12==12.9.86";
/// Its name in folders of kernels.
pub(super) const OF_NVRTC: &str = "-nvrtc12.9";
/// Commands, and the packages and versions of crates.io.
const RUST: [(&str, &str, &str); 2] =
    [("cargo-auditable", "cargo-auditable", "0.7.7"), ("cargo-cyclonedx", "cargo-cyclonedx", "0.5.9")];
/// Commands, and the packages of Debian.
const SYSTEM: [(&str, &str); 6] = [
    ("rpmbuild", "rpm"),
    ("cpio", "cpio"),
    ("dpkg-deb", "dpkg"),
    ("zip", "zip"),
    ("xz", "xz-utils"),
    ("mmdebstrap", "mmdebstrap"),
];

pub(super) fn folder() -> PathBuf {
    root().join("target/tools")
}

/// The virtual environment of Python's packages.
pub(super) fn python() -> PathBuf {
    folder().join("python")
}

/// The path of commands, with the tools first.
pub(super) fn path() -> String {
    let [rust, python] = ["bin", "python/bin"].map(|name| folder().join(name).display().to_string());
    format!("{rust}:{python}:{}", env::var("PATH").unwrap_or_default())
}

/// Installs what is missing.
pub(super) fn install() -> Result<(), String> {
    let python = python();
    if !python.join("bin/cargo-zigbuild").is_file() {
        run("python3", &["-m", "venv", &python.display().to_string()])?;
        pip(&PYTHON)?;
    }
    for (command, package, version) in RUST {
        if !folder().join("bin").join(command).is_file() {
            let (to, build) = (folder().display().to_string(), folder().join("build").display().to_string());
            // Unoptimised: it runs for seconds, and compiles in half the time.
            let package = format!("{package}@{version}");
            let arguments =
                ["install", "--quiet", "--locked", "--debug", "--root", &to, "--target-dir", &build, &package];
            run("cargo", &arguments)?;
        }
    }
    let missing: Vec<&str> =
        SYSTEM.iter().filter(|(command, _)| !is_there(command)).map(|&(_, package)| package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run("apt-get", &["update", "-qq"])?;
    run("apt-get", &[&["install", "-y", "-qq", "--no-install-recommends"], &missing[..]].concat())
}

/// Installs packages of PyPI. The command `pip` would not work in a folder that was moved.
fn pip(packages: &[&str]) -> Result<(), String> {
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(&python().join("bin/python3").display().to_string(), &[&install, packages].concat())
}

/// Installs NVRTC if it is missing.
pub(super) fn install_nvrtc() -> Result<(), String> {
    pip(&[NVRTC])
}

fn is_there(command: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {command}")]).output();
    found.is_ok_and(|output| output.status.success())
}
