//! Files of a folder that are no files, or never end.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use super::folder::{Folder, INDEX, case};

/// Every file that is read whole.
const SMALL: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// A folder that reads this file.
fn with(name: &str, case: &str) -> Folder {
    let golden = if matches!(name, "tokenizer.model" | "added_tokens.json") { "llama-spm" } else { "qwen3moe" };
    let folder = Folder::copy(golden, &format!("{case}-{name}"));
    if name == "chat_template.json" {
        // It is read where nothing else has a template.
        let _ = std::fs::remove_file(folder.path("chat_template.jinja"));
    }
    let _ = std::fs::remove_file(folder.path(name));
    folder
}

#[test]
fn what_is_longer_than_any_such_file_is_refused() {
    for name in SMALL {
        let folder = with(name, "endless");
        // It has no blocks on the disk.
        File::create(folder.path(name)).unwrap().set_len(1 << 40).unwrap();
        folder.refused(&[name, "more than 268435456 bytes"]);
    }
}

#[cfg(unix)]
#[test]
fn pipes_devices_and_folders_are_refused_and_not_waited_for() {
    for name in SMALL {
        let folder = with(name, "pipe");
        assert!(Command::new("mkfifo").arg(folder.path(name)).status().unwrap().success());
        folder.refused(&[name, "not a file"]);
        let folder = with(name, "device");
        std::os::unix::fs::symlink("/dev/zero", folder.path(name)).unwrap();
        folder.refused(&[name, "not a file"]);
        let folder = with(name, "folder");
        std::fs::create_dir(folder.path(name)).unwrap();
        folder.refused(&[name, "not a file"]);
    }
    let pipe = |f: &Folder| {
        f.remove(INDEX);
        assert!(Command::new("mkfifo").arg(f.path(INDEX)).status().unwrap().success());
    };
    case("pipe-index", pipe, &[INDEX, "not a file"]);
}

/// What is read must not be what is written, whatever `--force` says.
#[test]
fn all_files_that_are_read_are_told() {
    for golden in ["qwen3moe", "llama-spm"] {
        let folder = Folder::copy(golden, &format!("told-{golden}"));
        folder.write("added_tokens.json", "{}");
        folder.write("generation_config.json", "{}");
        let converter = folder.open().unwrap();
        let told: Vec<&Path> = converter.files().collect();
        for entry in std::fs::read_dir(&folder.0).unwrap() {
            let path = entry.unwrap().path();
            assert!(told.contains(&path.as_path()), "{}", path.display());
        }
    }
}
