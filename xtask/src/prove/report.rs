//! The report of a proof: what ran and what came out. Results of runs are not committed; `docs/proofs.md` has a summary.

use std::fs;

use crate::root;

/// Prints a report, and writes it to `target/prove/NAME.md`.
pub(super) fn write(name: &str, text: &str) -> Result<(), String> {
    println!("{text}");
    let folder = root().join("target/prove");
    let file = folder.join(format!("{name}.md"));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, text));
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Refuses options of a proof that has none.
pub(super) fn no_options(name: &str, words: &[&str]) -> Result<(), String> {
    words.first().map_or(Ok(()), |word| Err(format!("prove {name}: unknown option {word}; see cargo xtask")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_there_are_refused() {
        assert_eq!(no_options("hub", &[]), Ok(()));
        assert!(no_options("hub", &["-o"]).is_err_and(|error| error.contains("prove hub: unknown option -o")));
    }
}
