//! `prove kernels`: every CUDA kernel through NVRTC, for all architectures and formats. CI compiles a selection.

use super::date::date_and_commit;
use super::report;
use crate::{example, root};

/// Compiles all kernels, or those of the given sources, and writes what they need.
pub(super) fn all(words: &[&str]) -> Result<(), String> {
    let sources = match words {
        [] => &[][..],
        ["--source", sources @ ..] if !sources.is_empty() => sources,
        [other, ..] => return Err(format!("prove kernels: unknown option {other}; see cargo xtask")),
    };
    let table = root().join("target/prove/kernels.table");
    let path = table.display().to_string();
    example("kernels", &[&["report", &path], sources].concat())?;
    let table = std::fs::read_to_string(&table).map_err(|error| format!("cannot read {path}: {error}"))?;
    report::write("kernels", &format!("# CUDA kernels, {}\n\n{table}", date_and_commit()))
}

/// The selection of CI.
pub(crate) fn few() -> Result<(), String> {
    example("kernels", &["few"])
}

/// The kernels of one compute capability and some formats.
pub(crate) fn only(words: &[&str]) -> Result<(), String> {
    example("kernels", &[&["only"], words].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        assert!(all(&["--sources", "x"]).is_err_and(|error| error.contains("--sources")));
    }
}
