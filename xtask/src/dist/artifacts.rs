//! The artifacts, as a table: the name of each file, what it is made for, and who makes it.

use std::path::Path;

use super::build::Built;
use super::product::Release;
use super::{archive, container, deb, formula, install, kernels, rpm, sbom, source, wheel};

/// What an artifact is made of.
pub(super) struct Inputs<'a> {
    pub(super) release: &'a Release,
    /// The targets that were built.
    pub(super) built: &'a [Built],
    /// The folder of the artifacts. Those earlier in the table are there.
    pub(super) out: &'a Path,
    /// A folder for files in between.
    pub(super) stage: &'a Path,
}

/// A kind of artifact, and the function that makes all of its files.
pub(super) struct Artifact {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) make: fn(&Inputs) -> Result<(), String>,
    /// Whether it is made unless artifacts are named.
    pub(super) is_default: bool,
}

const fn artifact(name: &'static str, about: &'static str, make: fn(&Inputs) -> Result<(), String>) -> Artifact {
    Artifact { name, about, make, is_default: true }
}

/// In order: the sums and what names them follow the files.
pub(super) const ARTIFACTS: [Artifact; 13] = [
    artifact("source", "the sources of the commit, .tar.gz", source::make),
    artifact("archive", "the program with its manual, .tar.gz or .zip", archive::programs),
    artifact("library", "libgristmill with its header, .tar.gz or .zip", archive::libraries),
    artifact("deb", "a package for Debian and Ubuntu", deb::make),
    artifact("rpm", "a package for Fedora, RHEL and openSUSE", rpm::make),
    artifact("wheel", "a Python package, if the sources have one", wheel::make),
    // It compiles for most of an hour.
    Artifact {
        is_default: false,
        ..artifact("kernels", "CUDA kernels of common models, compiled ahead, .tar.gz and .deb", kernels::make)
    },
    artifact("container", "a Containerfile with its context, .tar.gz", container::make),
    artifact("sbom", "dependencies with licences, CycloneDX", sbom::make),
    artifact("sums", "SHA256SUMS of all files above", super::sums::make),
    artifact("install", "a script that fetches, verifies and installs an archive", install::make),
    artifact("homebrew", "a formula", formula::homebrew),
    artifact("windows", "manifests of winget and Scoop", formula::windows),
];
