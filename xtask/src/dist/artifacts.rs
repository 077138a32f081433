//! The artifacts, as a table: the name of each file, what it is made for, and who makes it.

use std::path::Path;

use super::build::Built;
use super::product::Release;
use super::{archive, container, deb, formula, install, rpm, sbom, source, wheel};

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
}

/// In order: the sums and what names them follow the files.
pub(super) const ARTIFACTS: [Artifact; 12] = [
    Artifact { name: "source", about: "the sources of the commit, .tar.gz", make: source::make },
    Artifact { name: "archive", about: "the program with its manual, .tar.gz or .zip", make: archive::programs },
    Artifact { name: "library", about: "libgristmill with its header, .tar.gz or .zip", make: archive::libraries },
    Artifact { name: "deb", about: "a package for Debian and Ubuntu", make: deb::make },
    Artifact { name: "rpm", about: "a package for Fedora, RHEL and openSUSE", make: rpm::make },
    Artifact { name: "wheel", about: "a Python package, if the sources have one", make: wheel::make },
    Artifact { name: "container", about: "a Containerfile with its context, .tar.gz", make: container::make },
    Artifact { name: "sbom", about: "dependencies with licences, CycloneDX", make: sbom::make },
    Artifact { name: "sums", about: "SHA256SUMS of all files above", make: super::sums::make },
    Artifact { name: "install", about: "a script that fetches, verifies and installs an archive", make: install::make },
    Artifact { name: "homebrew", about: "a formula", make: formula::homebrew },
    Artifact { name: "windows", about: "manifests of winget and Scoop", make: formula::windows },
];
