//! Kernels that were compiled ahead: their folders, architectures and compilers, and whether all files are intact.

use std::io;
use std::path::{Path, PathBuf};

use gristmill_cuda::ahead::Folder;

use super::finding::{Findings, Verdict};
use crate::console;
use crate::failure::Failure;

/// Checks the folders that devices read.
pub(super) fn check(folders: &[PathBuf], findings: &mut Findings) -> Result<(), Failure> {
    const WHAT: &str = "kernels compiled ahead";
    if folders.is_empty() {
        return findings.add(Verdict::Absent, WHAT, "none; the first start of a model compiles its kernels");
    }
    for folder in folders {
        let found = contents(folder).map_err(|reason| format!("{}: {reason}", super::cuda::abbreviated(folder)));
        findings.result(WHAT, found)?;
    }
    Ok(())
}

/// What a folder contains, or why kernels there are not used.
fn contents(folder: &Path) -> Result<String, String> {
    let kernels = Folder::all(folder);
    let Some(newest) = kernels.first().map(Folder::compiler) else {
        return Err("has no kernels; write them with gristmill kernels".to_owned());
    };
    let (files, bytes, damaged) = sums(&kernels).map_err(|error| error.to_string())?;
    if damaged > 0 {
        return Err(format!(
            "{damaged} of {files} files are damaged, and are not used; delete the folder and install or write it again"
        ));
    }
    let architectures = kernels.iter().map(|of| {
        let (major, minor) = of.compiler();
        let by = if of.compiler() == newest { String::new() } else { format!(" (NVRTC {major}.{minor})") };
        format!("{}{by}", of.architecture())
    });
    let architectures = architectures.collect::<Vec<_>>().join(", ");
    let (folder, (major, minor)) = (super::cuda::abbreviated(folder), newest);
    Ok(format!("{folder}, by NVRTC {major}.{minor}, {files} files, {}: {architectures}", console::bytes(bytes)))
}

/// Files, their bytes, and the number of damaged files.
fn sums(kernels: &[Folder]) -> io::Result<(usize, u64, usize)> {
    let (mut all_files, mut all_bytes, mut damaged) = (0, 0, 0);
    for folder in kernels {
        let (files, bytes) = folder.files().usage()?;
        (all_files, all_bytes, damaged) = (all_files + files, all_bytes + bytes, damaged + folder.files().damaged()?);
    }
    Ok((all_files, all_bytes, damaged))
}
