//! CUDA kernels of common models, compiled ahead: an archive, and a package for Debian and Ubuntu. They are data of GPUs, equal
//! for programs of all platforms.

use std::fs;
use std::path::{Path, PathBuf};

use super::archive::tar_gz;
use super::artifacts::Inputs;
use super::build::Built;
use super::product::{MAINTAINER, NAME, REPOSITORY};
use super::tree::{self, Item};
use super::{run_with, tools};

/// The shapes of the models whose kernels are in the package, as `gristmill kernels --synthetic` names them.
pub(super) const MODELS: [&str; 2] = ["qwen3-30b-a3b:Q4_K_M", "gpt-oss-20b"];

/// Where programs look for kernels, below the folder of their prefix.
const FOLDER: &str = "share/gristmill/kernels";

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    let program = inputs.built.iter().find(|built| built.runs_here()).map(Built::program);
    let program = program.ok_or("kernels: no target of this machine was built, which compiles them")?;
    tools::install_nvrtc()?;
    // Only the hash of a file's inputs is its name, so files of earlier builds would stay.
    let compiled = inputs.stage.join("kernels/compiled");
    let _ = fs::remove_dir_all(&compiled);
    let to = compiled.display().to_string();
    let models = MODELS.iter().flat_map(|model| ["--synthetic", model]);
    let words: Vec<&str> = ["kernels", "--output", &to].into_iter().chain(models).collect();
    let environment = tools::python().display().to_string();
    run_with(&[("VIRTUAL_ENV", &environment)], &program.display().to_string(), &words)?;
    let files = files(&compiled)?;
    archive(inputs, &files)?;
    deb(inputs, &files)
}

/// The kernels' files, and their paths below [`FOLDER`].
fn files(compiled: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", compiled.display());
    let mut files = Vec::new();
    for folder in fs::read_dir(compiled).map_err(failed)? {
        let folder = folder.map_err(failed)?.path();
        let name = folder.display().to_string();
        if !name.ends_with(tools::OF_NVRTC) {
            let expected = tools::OF_NVRTC;
            return Err(format!(
                "{name}: is by another NVRTC (expected {expected}); hide the CUDA toolkit of this machine"
            ));
        }
        for file in fs::read_dir(&folder).map_err(failed)? {
            let file = file.map_err(failed)?.path();
            let below = file.strip_prefix(compiled).map_err(|error| error.to_string())?;
            files.push((below.display().to_string(), file));
        }
    }
    files.sort();
    Ok(files)
}

fn items(files: &[(String, PathBuf)], prefix: &str) -> Vec<Item> {
    files.iter().map(|(below, file)| Item::file(format!("{prefix}{FOLDER}/{below}"), file.clone())).collect()
}

/// Unpacked into the folder of a program, or of its `bin`, the program finds them.
fn archive(inputs: &Inputs, files: &[(String, PathBuf)]) -> Result<(), String> {
    let stage = inputs.stage.join("kernels/archive");
    tree::write(&stage, &items(files, ""), inputs.release)?;
    tar_gz(&stage, &inputs.out.join(format!("{NAME}-kernels-{}.tar.gz", inputs.release.version)), inputs.release)
}

fn deb(inputs: &Inputs, files: &[(String, PathBuf)]) -> Result<(), String> {
    let version = &inputs.release.version;
    let bytes: u64 = files.iter().filter_map(|(_, file)| fs::metadata(file).ok()).map(|file| file.len()).sum();
    let control = format!(
        "Package: {NAME}-kernels\nVersion: {version}\nArchitecture: all\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {}\nEnhances: {NAME}\nSection: science\nPriority: optional\nHomepage: {REPOSITORY}\n\
         Description: CUDA kernels of common models for {NAME}\n The first start of these models compiles nothing: {}.\n",
        bytes / 1024,
        MODELS.join(", "),
    );
    let mut all = items(files, "usr/");
    all.push(Item::text("DEBIAN/control", control));
    let stage = inputs.stage.join("kernels/deb");
    tree::write(&stage, &all, inputs.release)?;
    let to = inputs.out.join(format!("{NAME}-kernels_{version}_all.deb")).display().to_string();
    let (stage, time) = (stage.display().to_string(), inputs.release.time.to_string());
    run_with(&[("SOURCE_DATE_EPOCH", &time)], "dpkg-deb", &["--root-owner-group", "-Zxz", "--build", &stage, &to])
}
