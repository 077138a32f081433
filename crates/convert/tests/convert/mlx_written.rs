//! Folders that gristmill quantised as MLX does, and that mlx-lm opened and ran: `scripts/golden/mlx_written.py` wrote
//! its logits, and hashes of the files that it read.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gristmill_engine::{LoadOptions, Model, Precision};
use gristmill_files::gguf::GgufFile;
use serde_json::Value;

use super::direct::open;
use super::folder::Folder;
use super::mlx::{WEIGHTS, golden, with_weights};
use super::mlx_folder::write;
use super::{fnv1a, nmse};

/// A golden folder, or the one that is wide enough for groups of 64.
fn source(name: &str) -> Folder {
    let weights = golden(name).join(WEIGHTS);
    if !weights.exists() {
        return Folder::copy(name, "written");
    }
    let folder = with_weights("qwen3moe", "written", &weights);
    folder.write("config.json", fs::read(golden(name).join("config.json")).unwrap());
    folder
}

/// Whether the engine has the logits that mlx-lm computed for this folder.
pub(crate) fn same_logits(name: &str, folder: &Path, logits: &str) -> bool {
    let logits = GgufFile::open(golden(&format!("{logits}.logits.gguf"))).unwrap();
    let options = LoadOptions { precision: Precision::Exact, threads: Some(2), ..LoadOptions::default() };
    let error = nmse(&Arc::new(Model::from_file(open(folder), options).unwrap()), &logits);
    println!("{name:20} NMSE {error:.1e}");
    // Also false for NaN.
    error <= 1e-6
}

#[test]
fn mlx_lm_computes_the_same_logits_of_written_folders() {
    let cases: Value = serde_json::from_slice(&fs::read(golden("written.json")).unwrap()).unwrap();
    let cases = cases.as_object().unwrap();
    assert!(cases.len() > 5);
    let mut others = Vec::new();
    for (name, case) in cases {
        let source = source(case["source"].as_str().unwrap());
        let written = write(&source, case["widths"].as_str().unwrap()).unwrap();
        for (file, hash) in case["files"].as_object().unwrap() {
            let found = fnv1a(&fs::read(written.path(file)).unwrap());
            assert_eq!(found, hash.as_str().unwrap(), "{name}: {file} is not what mlx-lm read");
        }
        if !same_logits(name, &written.0, &format!("written/{name}")) {
            others.push(name);
        }
    }
    assert!(others.is_empty(), "not the logits of mlx-lm: {others:?}");
}
