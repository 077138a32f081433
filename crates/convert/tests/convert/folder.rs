//! Copies of golden folders, to be damaged.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use gristmill_conformance::golden;
use gristmill_convert::{ConvertError, ConvertOptions, Converter};
use gristmill_files::gguf::GgufFile;
use serde_json::{Value, json};

/// A copy of a golden folder that may be damaged, gone when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn copy(name: &str, case: &str) -> Folder {
        let golden = golden::models_folder().join("convert").join(name);
        // Two tests may name their cases alike.
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let copy = format!("{}-{}-{case}", std::process::id(), COPIES.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(copy);
        fs::create_dir_all(&folder).unwrap();
        for entry in fs::read_dir(golden).unwrap() {
            let path = entry.unwrap().path();
            fs::write(folder.join(path.file_name().unwrap()), fs::read(&path).unwrap()).unwrap();
        }
        Folder(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Changes bytes of a file.
    pub(crate) fn bytes(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path(name)).unwrap();
        change(&mut bytes);
        self.write(name, bytes);
    }

    /// Replaces text in the header of a safetensors file by text of the same length.
    pub(crate) fn header(&self, name: &str, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        self.bytes(name, |bytes| {
            let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).expect("it is there");
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        });
    }

    /// Changes name, shape and data of the tensors of a safetensors file.
    pub(crate) fn tensors(&self, name: &str, mut change: impl FnMut(&str, &mut Vec<usize>, &mut Vec<u8>)) {
        let file = fs::read(self.path(name)).unwrap();
        let (length, rest) = file.split_first_chunk().unwrap();
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let mut header: Value = serde_json::from_slice(header).unwrap();
        let mut changed = Vec::new();
        for (name, record) in header.as_object_mut().unwrap().iter_mut().filter(|(name, _)| *name != "__metadata__") {
            let numbers =
                |value: &Value| value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
            let (mut shape, place): (Vec<usize>, Vec<usize>) =
                (numbers(&record["shape"]), numbers(&record["data_offsets"]));
            let mut bytes = data[place[0]..place[1]].to_vec();
            change(name, &mut shape, &mut bytes);
            record["shape"] = json!(shape);
            record["data_offsets"] = json!([changed.len(), changed.len() + bytes.len()]);
            changed.extend(bytes);
        }
        let header = header.to_string();
        self.write(name, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &changed].concat());
    }

    /// Changes a JSON file.
    pub(crate) fn json(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut value: Value = serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap();
        change(&mut value);
        self.write(name, value.to_string());
    }

    pub(crate) fn set(&self, key: &str, value: Value) {
        self.json("config.json", |config| config[key] = value);
    }

    /// The converted model.
    pub(crate) fn convert(&self) -> GgufFile {
        let path = self.path("out.gguf");
        self.open().unwrap().write(&path, 1, &mut |_| ControlFlow::Continue(())).unwrap();
        GgufFile::open(&path).unwrap()
    }

    pub(crate) fn open(&self) -> Result<Converter, ConvertError> {
        Converter::new(&self.0, &ConvertOptions { without_heads: true, ..ConvertOptions::default() })
    }

    #[track_caller]
    pub(crate) fn refused(&self, says: &[&str]) {
        let error = self.open().err().expect("it is refused").to_string();
        for text in says {
            assert!(error.contains(text), "{text:?} is not in: {error}");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) const FIRST: &str = "model-00001-of-00003.safetensors";
pub(crate) const SECOND: &str = "model-00002-of-00003.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Runs a case on a fresh copy of the sharded `qwen3moe`.
#[track_caller]
pub(crate) fn case(name: &str, change: impl FnOnce(&Folder), says: &[&str]) {
    let folder = Folder::copy("qwen3moe", name);
    change(&folder);
    folder.refused(says);
}
