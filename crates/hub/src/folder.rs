//! A repository that is a model as a folder: `config.json`, tokenizer, templates and safetensors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;
use crate::listing::RemoteFile;

/// The file that makes a folder a model.
pub(crate) const CONFIG: &str = "config.json";
/// The list of the files of weights, with the file of each tensor.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// The weights in one file.
const SINGLE: &str = "model.safetensors";

/// Endings of files with settings, vocabularies and chat templates. Publishers keep code, pictures and other formats of
/// the weights beside them.
const SMALL: [&str; 4] = [".json", ".jinja", ".model", ".txt"];
/// The longest index, larger than that of any model.
const LONGEST_INDEX: u64 = 256 << 20;
/// Chat templates with a name.
const TEMPLATES: &str = "additional_chat_templates/";
/// A folder with one of these has a tokenizer.
const TOKENIZERS: [&str; 5] = ["tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model", "tekken.json"];

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The small files of a folder with a model, `config.json` first; `None` if there is no `config.json`, or there are no
/// weights that its name or its index shows.
pub(crate) fn small(files: &[RemoteFile]) -> Option<Vec<&RemoteFile>> {
    let weights = [INDEX, SINGLE].iter().find(|name| named(files, name).is_some())?;
    let config = named(files, CONFIG)?;
    let is_small = |file: &&RemoteFile| {
        let name = file.path.strip_prefix(TEMPLATES).unwrap_or(&file.path);
        let is_index = name.ends_with(".index.json") && name != *weights;
        !name.contains('/') && name != CONFIG && !is_index && SMALL.iter().any(|ending| name.ends_with(ending))
    };
    Some([config].into_iter().chain(files.iter().filter(is_small)).collect())
}

/// The files of weights: those that the index in the folder `snapshot` names, or the only one. Files that the index names
/// and the repository lacks are left out; opening the model reports them.
///
/// # Errors
/// If the index cannot be read.
pub(crate) fn weights<'a>(files: &'a [RemoteFile], snapshot: &Path) -> Result<Vec<&'a RemoteFile>, Error> {
    if named(files, INDEX).is_none() {
        return Ok(named(files, SINGLE).into_iter().collect());
    }
    let path = snapshot.join(INDEX);
    let io = Error::io(&path);
    let invalid = |reason: String| Error::Index { path: path.clone(), reason };
    match fs::metadata(&path) {
        Err(error) => return Err(io(error)),
        Ok(data) if data.len() > LONGEST_INDEX => return Err(invalid("it is longer than 256 MiB".to_owned())),
        Ok(_) => {}
    }
    let text = fs::read(&path).map_err(Error::io(&path))?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
    let names: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    Ok(files.iter().filter(|file| names.contains(file.path.as_str())).collect())
}

/// The files of a model in a snapshot of the cache, `config.json` first; `None` if a file of weights or the tokenizer is
/// missing. Other programs fetch some files of a repository only.
pub(crate) fn whole(files: &[RemoteFile], snapshot: &Path) -> Option<Vec<PathBuf>> {
    let small = small(files)?;
    let weights = weights(files, snapshot).ok()?;
    if weights.is_empty() || !TOKENIZERS.iter().any(|name| named(files, name).is_some()) {
        return None;
    }
    if named(files, INDEX).is_some() {
        let text = fs::read(snapshot.join(INDEX)).ok()?;
        let index: Index = serde_json::from_slice(&text).ok()?;
        index.weight_map.values().all(|name| named(files, name).is_some()).then_some(())?;
    }
    Some(small.into_iter().chain(weights).map(|file| snapshot.join(&file.path)).collect())
}

fn named<'a>(files: &'a [RemoteFile], name: &str) -> Option<&'a RemoteFile> {
    files.iter().find(|file| file.path == name)
}

/// What opens a model: the first file, or the folder of a model that is one.
pub fn model_path(files: &[PathBuf]) -> Option<&Path> {
    let first = files.first()?;
    if is_folder(files) { first.parent() } else { Some(first) }
}

/// Whether the files are those of a folder.
pub(crate) fn is_folder(files: &[PathBuf]) -> bool {
    files.first().and_then(|path| path.file_name()).is_some_and(|name| name == CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<RemoteFile> {
        paths.iter().map(|path| RemoteFile { path: path.to_string(), size: 1, sum: None }).collect()
    }

    #[test]
    fn settings_come_without_other_weights_and_code() {
        let all = files(&[
            ".gitattributes",
            "README.md",
            "additional_chat_templates/tool_use.jinja",
            "config.json",
            "consolidated.safetensors",
            "consolidated.safetensors.index.json",
            "generation_config.json",
            "merges.txt",
            "model-00001-of-00002.safetensors",
            "model.safetensors.index.json",
            "modeling.py",
            "onnx/config.json",
            "pytorch_model.bin.index.json",
            "tokenizer.model",
            "training_args.bin",
        ]);
        let small: Vec<&str> = small(&all).expect("a folder").iter().map(|file| file.path.as_str()).collect();
        let expected = [
            "config.json",
            "additional_chat_templates/tool_use.jinja",
            "generation_config.json",
            "merges.txt",
            "model.safetensors.index.json",
            "tokenizer.model",
        ];
        assert_eq!(small, expected);
    }

    #[test]
    fn a_folder_has_settings_and_weights() {
        assert!(small(&files(&["config.json", "pytorch_model.bin"])).is_none());
        assert!(small(&files(&["model.safetensors", "a/config.json"])).is_none());
        assert!(small(&files(&["model.safetensors", "config.json"])).is_some());
    }
}
