//! Recognises other kinds of files by their first bytes, so that the error can say what they are and what to do.

use std::fs;
use std::path::Path;

use super::kind::FileKind;

const NEED_GGUF: &str = "gristmill reads GGUF: look for a GGUF version of the model, or convert it";
const CONVERT: &str = "use the folder that contains it, or convert that folder to a GGUF file with `gristmill convert`";
const DOWNLOAD: &str = "download the file itself";

/// Names a file that is not GGUF by its first bytes, with the remedy.
pub(super) fn recognise(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let begins = |prefix: &[u8]| bytes.starts_with(prefix);
    if is_lfs_pointer(bytes) {
        return Some(("a Git LFS pointer", "fetch the file itself with `git lfs pull`"));
    }
    // A pickle of protocol 2 starts with the number of the protocol; old checkpoints have a magic number first.
    if begins(b"PK\x03\x04") || begins(b"\x80\x02") {
        return Some(("a zip archive or PyTorch checkpoint", NEED_GGUF));
    }
    if begins(b"\x1f\x8b") || begins(b"\x28\xb5\x2f\xfd") || begins(b"\xfd7zXZ") {
        return Some(("a compressed archive", "unpack it first"));
    }
    if begins(b"lmgg") || begins(b"fmgg") || begins(b"tjgg") || begins(b"algg") {
        return Some(("a ggml file of the time before GGUF", NEED_GGUF));
    }
    if is_safetensors(bytes) {
        return Some(("a safetensors file", CONVERT));
    }
    let text = bytes.get(..64).unwrap_or(bytes).trim_ascii_start().to_ascii_lowercase();
    if text.starts_with(b"<!doctype html") || text.starts_with(b"<html") || text.starts_with(b"<?xml") {
        return Some(("a web page", DOWNLOAD));
    }
    if text.starts_with(b"{") {
        return Some(("a JSON file", NEED_GGUF));
    }
    // Servers send refusals as a line of text, which a download then saves.
    let printable = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if text.len() > 4 && text.iter().all(printable) && !text.starts_with(b"gguf") {
        return Some(("a text, perhaps the refusal of a server", DOWNLOAD));
    }
    None
}

/// A safetensors file starts with the 64-bit length of a JSON object, then that object.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_first_chunk() else { return false };
    u64::from_le_bytes(*len) <= rest.len() as u64 && rest.starts_with(b"{")
}

/// Whether these are the bytes of a placeholder of Git LFS.
pub fn is_lfs_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(b"version https://git-lfs.github.com/")
}

/// The names in a folder: enough for any model's, and bounded in any other.
pub fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(10_000).flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The contents of a directory given instead of a file, and the remedy.
pub(super) fn directory_hint(path: &Path) -> String {
    let mut names = file_names(path);
    names.sort();
    let ending = |suffix: &str| names.iter().find(|name| name.ends_with(suffix));
    let is_model = |name: &&String| FileKind::of_name(name) == FileKind::LanguageModel;
    let models = names.iter().filter(|name| name.ends_with(".gguf"));
    if let Some(gguf) = models.clone().find(is_model).or_else(|| models.clone().next()) {
        format!("use the file in it, for example {}", path.join(gguf).display())
    } else if names.iter().any(|name| name == "config.json") {
        convert_hint(path)
    } else if ending(".safetensors").is_some() {
        format!("it contains safetensors without config.json; {NEED_GGUF}")
    } else {
        "name a GGUF file".to_owned()
    }
}

/// The command that converts a model's folder, to be typed as it stands.
fn convert_hint(folder: &Path) -> String {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("model");
    let output = format!("{name}.gguf");
    let command = format!("gristmill convert {} -o {}", quoted(&folder.display().to_string()), quoted(&output));
    format!("it holds a model as Hugging Face publishes it; convert it with `{command}` and give that file")
}

/// A word of a command line, in quotes if a shell would split or expand it.
fn quoted(word: &str) -> String {
    match !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "/\\:._-".contains(c)) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for (word, typed) in [
            ("models/Qwen3-0.6B", "models/Qwen3-0.6B"),
            ("my model", "'my model'"),
            ("$(x)", "'$(x)'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), typed);
        }
    }
}
