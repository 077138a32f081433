//! All tensors of a folder, from one safetensors file or several.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use gristmill_files::gguf::{Bytes, Name, file_names, is_lfs_pointer};
use gristmill_files::json::cut;
use gristmill_files::safetensors::{self, Tensor};
use serde::Deserialize;
use serde_json::Value;

use super::error::ConvertError;
use super::files::{INDEX, read_json};
use super::packed;

const SINGLE: &str = "model.safetensors";
/// The settings of an adapter, as peft and GPTQModel write them. transformers loads it with the model.
const ADAPTER: &str = "adapter_config.json";
const RANKS: &str = "tp_size";

/// The tensors of a model as published.
#[derive(Debug)]
pub(super) struct Checkpoint {
    shards: Vec<Shard>,
    tensors: BTreeMap<String, (usize, Tensor)>,
    /// `metadata.tp_size` of the index, and the path of the index.
    ranks: Option<(PathBuf, Value)>,
    /// Tensors whose file is missing, with its path.
    lacking: BTreeMap<String, PathBuf>,
    /// Whether a base class saved it, so that names were completed.
    pub(super) is_of_base_class: bool,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with weight_map")]
struct Index {
    weight_map: BTreeMap<String, String>,
    #[serde(default)]
    metadata: Value,
}

impl Checkpoint {
    /// Opens `model.safetensors`, or the files that `model.safetensors.index.json` names.
    pub(super) fn open(folder: &Path) -> Result<Checkpoint, ConvertError> {
        let adapter = folder.join(ADAPTER);
        if adapter.is_file() {
            let problem = "adapters (LoRA, EoRA) are not read; merge it into the model, or take the folder without it";
            return Err(wrong(&adapter, problem.to_owned()));
        }
        let index = folder.join(INDEX);
        if index.exists() {
            let Index { weight_map: map, metadata } = read_json(&index)?;
            let names: BTreeSet<&str> = map.values().map(String::as_str).collect();
            let mut checkpoint = Self::read(folder, &names.into_iter().collect::<Vec<_>>(), &index)?;
            checkpoint.check_index(folder, &index, &map)?;
            checkpoint.ranks = metadata.get(RANKS).map(|ranks| (index, ranks.clone()));
            return Ok(checkpoint);
        }
        if folder.join(SINGLE).is_file() {
            return Self::read(folder, &[SINGLE], &folder.join(SINGLE));
        }
        Err(ConvertError::NoWeights { folder: folder.to_owned(), hint: hint(folder) })
    }

    /// Maps the files with these names, those that are there; `named_by` is the file that lists them.
    fn read(folder: &Path, names: &[&str], named_by: &Path) -> Result<Checkpoint, ConvertError> {
        let mut checkpoint = Checkpoint {
            shards: Vec::new(),
            tensors: BTreeMap::new(),
            ranks: None,
            lacking: BTreeMap::new(),
            is_of_base_class: false,
        };
        for &name in names {
            // A name with a path in it could lead anywhere.
            if Path::new(name).file_name().is_none_or(|file| file != name) {
                return Err(wrong(named_by, format!("{} is not a file name in its folder", Name(name))));
            }
            let path = folder.join(name);
            let io = |source| ConvertError::Read { path: path.clone(), source };
            if !path.is_file() {
                continue;
            }
            let file = File::open(&path).map_err(io)?;
            // An empty file cannot be mapped.
            let empty = file.metadata().map_err(io)?.len() == 0;
            let bytes = if empty { Bytes::Static(&[]) } else { Bytes::map(&file).map_err(io)? };
            if is_lfs_pointer(&bytes) {
                return Err(wrong(&path, "is a Git LFS pointer; fetch the file itself with `git lfs pull`".to_owned()));
            }
            let tensors =
                safetensors::read(&bytes).map_err(|source| ConvertError::Safetensors { path: path.clone(), source })?;
            for tensor in tensors {
                let name = tensor.name.clone();
                if checkpoint.tensors.insert(name.clone(), (checkpoint.shards.len(), tensor)).is_some() {
                    let name = Name(&name);
                    return Err(wrong(
                        &path,
                        format!("tensor {name} is in another file as well; the folder mixes two models"),
                    ));
                }
            }
            checkpoint.shards.push(Shard { path, bytes });
        }
        Ok(checkpoint)
    }

    /// The index and the files must name the same tensors, except for those of missing files.
    fn check_index(&mut self, folder: &Path, index: &Path, map: &BTreeMap<String, String>) -> Result<(), ConvertError> {
        for (tensor, shard) in map {
            let path = folder.join(shard);
            if !path.is_file() {
                self.lacking.insert(tensor.clone(), path);
                continue;
            }
            let found = self.tensors.get(tensor).and_then(|&(number, _)| self.shards[number].path.file_name());
            if found.is_none_or(|found| found != shard.as_str()) {
                let tensor = Name(tensor);
                return Err(wrong(
                    index,
                    format!("names tensor {tensor}, which {shard} does not have; fetch both again"),
                ));
            }
        }
        match self.tensors.iter().find(|(tensor, _)| !map.contains_key(*tensor)) {
            Some((tensor, &(number, _))) => {
                let tensor = Name(tensor);
                let index = index.display();
                let problem = format!("has tensor {tensor}, which {index} does not name; fetch both again");
                Err(wrong(&self.shards[number].path, problem))
            }
            None => Ok(()),
        }
    }

    /// Gives every tensor the name that `rename` makes of its own.
    pub(super) fn rename(&mut self, rename: impl Fn(&str) -> String) {
        let renamed = |(name, (shard, tensor)): (String, (usize, Tensor))| {
            let name = rename(&name);
            (name.clone(), (shard, Tensor { name, ..tensor }))
        };
        self.tensors = std::mem::take(&mut self.tensors).into_iter().map(renamed).collect();
        let lacking = std::mem::take(&mut self.lacking).into_iter();
        self.lacking = lacking.map(|(name, path)| (rename(&name), path)).collect();
    }

    /// A note for each missing file, of which the model needs no tensor.
    ///
    /// # Errors
    /// If it needs one.
    pub(super) fn left_out(&self, is_unneeded: impl Fn(&str) -> bool) -> Result<Vec<String>, ConvertError> {
        if let Some((_, path)) = self.lacking.iter().find(|(tensor, _)| !is_unneeded(tensor)) {
            return Err(missing(path));
        }
        let paths: BTreeSet<&PathBuf> = self.lacking.values().collect();
        let note = |path: &&PathBuf| format!("{} is missing; the model runs without its tensors", path.display());
        Ok(paths.iter().map(note).collect())
    }

    /// The same error, or that the file is missing in which the tensor should be.
    pub(super) fn explain(&self, error: ConvertError) -> ConvertError {
        match &error {
            ConvertError::MissingTensor(tensor) => {
                let quantised = || quantised_names(tensor).find_map(|name| self.lacking.get(&name));
                self.lacking.get(tensor).or_else(quantised).map(|path| missing(path)).unwrap_or(error)
            }
            _ => error,
        }
    }

    /// The number of ranks of tensor parallelism that fused matrices are laid out for, if the index has it.
    ///
    /// # Errors
    /// If it is not a whole number.
    pub(super) fn ranks(&self) -> Result<Option<usize>, ConvertError> {
        let Some((index, ranks)) = &self.ranks else { return Ok(None) };
        let number = ranks.as_u64().and_then(|ranks| usize::try_from(ranks).ok()).filter(|&ranks| ranks > 0);
        let problem = || format!("`metadata.{RANKS}` is {}, expected a whole number above 0", cut(ranks, 80));
        number.map(Some).ok_or_else(|| wrong(index, problem()))
    }

    /// A tensor; of a weight that other programs have quantised, its codes, whose name ends otherwise.
    pub(super) fn tensor(&self, name: &str) -> Option<&Tensor> {
        let quantised = || quantised_names(name).find_map(|name| self.tensors.get(&name));
        self.tensors.get(name).or_else(quantised).map(|(_, tensor)| tensor)
    }

    /// The names of all tensors, also of those in missing files.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().chain(self.lacking.keys()).map(String::as_str)
    }

    /// All tensors in order of their names.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.values().map(|(_, tensor)| tensor)
    }

    /// The data of a tensor of this checkpoint; empty for any other.
    pub(super) fn data(&self, tensor: &Tensor) -> &[u8] {
        let found = self.tensors.get(&tensor.name);
        found.and_then(|(shard, _)| self.shards[*shard].bytes.get(tensor.data.clone())).unwrap_or_default()
    }

    /// Frees the pages of a tensor, whose data will not be read again.
    pub(super) fn done(&self, tensor: &Tensor) {
        if let Some((shard, _)) = self.tensors.get(&tensor.name) {
            self.shards[*shard].bytes.release(tensor.data.start, tensor.data.len());
        }
    }

    /// The size of all files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes.len() as u64).sum()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }
}

/// The names of the codes of this weight.
fn quantised_names(name: &str) -> impl Iterator<Item = String> {
    let module = name.strip_suffix("weight").filter(|module| module.ends_with('.'));
    packed::WEIGHTS.iter().filter_map(move |end| Some(format!("{}{end}", module?)))
}

fn missing(path: &Path) -> ConvertError {
    wrong(path, format!("is missing, but {INDEX} names it; fetch it too"))
}

fn wrong(path: &Path, problem: String) -> ConvertError {
    ConvertError::Checkpoint { path: path.to_owned(), problem }
}

/// The contents of a folder without weights in safetensors, and the remedy.
fn hint(folder: &Path) -> &'static str {
    let names = file_names(folder);
    let ending = |suffix: &str| names.iter().any(|name| name.ends_with(suffix));
    if ending(".safetensors") {
        "its safetensors files have no index; fetch it too"
    } else if ending(".bin") || ending(".pth") || ending(".pt") {
        "PyTorch checkpoints are programs and are not read; save the model as safetensors with transformers"
    } else if ending(".gguf") {
        "it contains GGUF files; use one of them as the model"
    } else {
        "use a folder of Hugging Face"
    }
}
