//! What is packaged: its name, version and texts.

use std::fs;
use std::process::Command;

use crate::root;

pub(super) const NAME: &str = "gristmill";
pub(super) const SUMMARY: &str = "Run quantised mixture-of-experts language models";
pub(super) const DESCRIPTION: &str = "Runs language models from GGUF files and from folders of Hugging Face and MLX: in a \
                                      terminal, on a web page, and behind the interfaces of OpenAI and Anthropic.";
pub(super) const LICENCE: &str = "MIT OR Apache-2.0";
/// Where the project is published, once it is.
pub(super) const REPOSITORY: &str = "https://github.com/gristmill-ai/gristmill";
pub(super) const MAINTAINER: &str = "The gristmill authors <gristmill-ai@users.noreply.github.com>";

/// A version, and the time of its last commit in seconds, which all files of packages have.
#[derive(Debug, Clone)]
pub(super) struct Release {
    pub(super) version: String,
    pub(super) time: u64,
}

impl Release {
    /// The version in `Cargo.toml`.
    pub(super) fn current() -> Result<Release, String> {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).map_err(|error| format!("Cargo.toml: {error}"))?;
        let git = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()).output();
        let git = git.map_err(|error| format!("git: cannot be started: {error}"))?;
        let time = String::from_utf8_lossy(&git.stdout).trim().parse();
        let time = time.map_err(|_| "git log: prints no time; run it in a clone with a commit".to_owned())?;
        Ok(Release { version: version(&manifest)?.to_owned(), time })
    }

    /// Where the files of this version are published.
    pub(super) fn address(&self) -> String {
        format!("{REPOSITORY}/releases/download/v{}", self.version)
    }
}

/// The version of the workspace.
pub(crate) fn version(manifest: &str) -> Result<&str, String> {
    let package = manifest.split("[workspace.package]").nth(1).unwrap_or_default();
    let version = package.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.ok_or_else(|| "Cargo.toml: [workspace.package] has no version".to_owned())
}
