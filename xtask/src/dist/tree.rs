//! A folder of files for a package. All files have the time of the release, and modes that do not depend on the umask.

use std::fs;
use std::path::{Path, PathBuf};

use super::product::Release;
use super::run;

/// A file of a package.
pub(super) struct Item {
    /// Its path in the package.
    pub(super) to: String,
    pub(super) from: From,
    pub(super) mode: u32,
}

/// The contents of a file.
pub(super) enum From {
    File(PathBuf),
    Text(String),
}

impl Item {
    pub(super) fn file(to: impl Into<String>, from: PathBuf) -> Item {
        Item { to: to.into(), from: From::File(from), mode: 0o644 }
    }

    pub(super) fn text(to: impl Into<String>, text: impl Into<String>) -> Item {
        Item { to: to.into(), from: From::Text(text.into()), mode: 0o644 }
    }

    pub(super) fn executable(self) -> Item {
        Item { mode: 0o755, ..self }
    }
}

/// Writes the files into an empty folder.
pub(super) fn write(folder: &Path, items: &[Item], release: &Release) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    for item in items {
        let to = folder.join(&item.to);
        let failed = |error: std::io::Error| format!("{}: {error}", to.display());
        fs::create_dir_all(to.parent().unwrap_or(folder)).map_err(failed)?;
        match &item.from {
            From::File(from) => {
                fs::copy(from, &to).map(drop).map_err(|error| format!("{}: {error}", from.display()))?
            }
            From::Text(text) => fs::write(&to, text).map_err(failed)?,
        }
        run("chmod", &[&format!("{:o}", item.mode), &to.display().to_string()])?;
    }
    let folder = folder.display().to_string();
    run("find", &[&folder, "-type", "d", "-exec", "chmod", "755", "{}", "+"])?;
    run("find", &[&folder, "-exec", "touch", "--no-dereference", &format!("--date=@{}", release.time), "{}", "+"])
}
