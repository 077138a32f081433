//! Folders as transformers saves them, which `scripts/golden/saved.py` wrote: they are the models of the published folders.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_conformance::golden;
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{LoadOptions, Model, Precision};
use gristmill_files::gguf::GgufFile;
use serde_json::Value;

use super::direct::open;
use super::folder::Folder;
use super::mlx::{WEIGHTS, with_weights};
use super::nmse;
use gristmill_conformance::golden::folders_folder;

fn saved(name: &str) -> PathBuf {
    golden::models_folder().join("saved").join(name)
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(saved("")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A copy of the published folder with what transformers has saved.
fn folder(name: &str) -> Folder {
    let weights = saved(name).join(WEIGHTS);
    let folder = if weights.exists() { with_weights(name, "saved", &weights) } else { Folder::copy(name, "saved") };
    folder.write("config.json", fs::read(saved(name).join("config.json")).unwrap());
    folder
}

#[test]
fn saved_folders_are_the_published_models() {
    let backend = Arc::new(Cpu::backend(Level::best(), 2).unwrap());
    let mut wrong = Vec::new();
    for name in names() {
        let logits = GgufFile::open(folders_folder().join(format!("{name}.logits.gguf"))).unwrap();
        let folder = folder(&name);
        if let Err(error) = folder.open() {
            wrong.push(format!("{name}: {error}"));
            continue;
        }
        let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
        let model = Model::with_backend(open(&folder.0), backend.clone(), options).unwrap();
        let error = nmse(&Arc::new(model), &logits);
        if error.is_nan() || error > 1e-6 {
            wrong.push(format!("{name}: NMSE {error:.1e}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// transformers writes every setting, also those without a value; none of these may be dropped from the golden folders.
#[test]
fn saved_folders_have_settings_without_a_value() {
    let nulls = |name: &str| {
        let config: Value = serde_json::from_slice(&fs::read(saved(name).join("config.json")).unwrap()).unwrap();
        config.as_object().unwrap().values().filter(|value| value.is_null()).count()
    };
    let names = names();
    assert!(names.len() > 45, "{}", names.len());
    assert!(names.iter().all(|name| nulls(name) > 0));
}
