//! The libraries name no option of the command line: an application that embeds them has none.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates that applications embed without the command line.
const LIBRARIES: [&str; 12] =
    ["kernels", "cpu", "gpu", "cuda", "metal", "transcode", "files", "hub", "text", "model", "engine", "convert"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        match entry.is_dir() {
            true => sources(&entry, found),
            false => found.extend(Some(entry).filter(|path| path.extension().is_some_and(|end| end == "rs"))),
        }
    }
}

/// Whether a line of code names an option within a text. A text that starts with an option is an argument of another
/// program, such as a compiler.
fn names_an_option(line: &str) -> bool {
    let code = line.trim_start();
    let is_word = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
    let marks = [" --", "(--", "`--", "'--"];
    !code.starts_with("//") && marks.iter().any(|mark| code.split(mark).skip(1).any(is_word))
}

#[test]
fn errors_of_libraries_name_no_option() {
    assert!(names_an_option("\"try again with --connections 1\"") && names_an_option("#[error(\"x (--pre)\")]"));
    assert!(!names_an_option("\"--std=c++17\"") && !names_an_option("/// Not `--keep`."));
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    LIBRARIES.iter().for_each(|name| sources(&crates.join(name).join("src"), &mut files));
    assert!(files.len() > 300, "{} files", files.len());
    let mut named = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("UTF-8");
        let lines = text.lines().enumerate().filter(|(_, line)| names_an_option(line));
        named.extend(lines.map(|(index, line)| format!("{}:{}: {}", file.display(), index + 1, line.trim())));
    }
    assert!(named.is_empty(), "{}", named.join("\n"));
}
