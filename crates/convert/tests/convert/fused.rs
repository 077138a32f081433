//! Folders of MiMo V2.5, which `scripts/golden/fused_folders.py` wrote: queries, keys and values are in one matrix, laid
//! out for ranks of tensor parallelism.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_conformance::golden;
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{LoadOptions, Model, Precision};
use gristmill_files::gguf::GgufFile;
use gristmill_files::safetensors;
use serde_json::{Map, Value, json};

use super::direct::open;
use super::folder::{Folder, INDEX};
use super::mlx::{WEIGHTS, quantised, with_weights};
use super::nmse;

const ATTENTION: &str = "attention.safetensors";
const QKV: &str = "model.layers.0.self_attn.qkv_proj.weight";

fn golden(file: &str) -> PathBuf {
    golden::models_folder().join("fused").join(file)
}

/// The folder whose attention is in this form. `ranks`: the number in the index.
fn folder(form: &str, ranks: Option<Value>) -> Folder {
    let folder = with_weights("mimo2", form, &golden("others.safetensors"));
    folder.write(ATTENTION, fs::read(golden(&format!("{form}.safetensors"))).unwrap());
    folder.write("config.json", fs::read(golden("config.json")).unwrap());
    if form == "fp8" {
        let settings = json!({"fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [20, 20]});
        folder.set("quantization_config", settings);
    }
    let mut map = Map::new();
    for file in [WEIGHTS, ATTENTION] {
        let tensors = safetensors::read(&fs::read(folder.path(file)).unwrap()).unwrap();
        map.extend(tensors.into_iter().map(|tensor| (tensor.name, file.into())));
    }
    let metadata = ranks.map_or(json!({}), |ranks| json!({ "tp_size": ranks }));
    folder.write(INDEX, json!({"metadata": metadata, "weight_map": map}).to_string());
    folder
}

/// All forms with the ranks that their index has.
fn forms() -> [Folder; 5] {
    [("split", None), ("plain", None), ("ranked", Some(4)), ("fp8", None), ("fp8", Some(4))]
        .map(|(form, ranks)| folder(form, ranks.map(Value::from)))
}

#[test]
fn all_forms_are_the_same_model() {
    let [split, fused @ ..] = forms();
    let wanted = split.convert();
    for folder in fused {
        let converted = folder.convert();
        let opened = open(&folder.0);
        assert_eq!(converted.tensors().len(), wanted.tensors().len());
        for tensor in wanted.tensors() {
            let found = converted.tensor(&tensor.name).unwrap();
            assert_eq!((found.format, &found.shape), (tensor.format, &tensor.shape), "{}", tensor.name);
            assert!(converted.data(found) == wanted.data(tensor), "{}: {}", folder.0.display(), tensor.name);
            let loaded = opened.load(opened.tensor(&tensor.name).unwrap()).unwrap();
            assert!(loaded.as_slice() == wanted.data(tensor), "{}: {}", folder.0.display(), tensor.name);
        }
    }
}

#[test]
fn ranks_matter() {
    let query = |folder: Folder| {
        let file = folder.convert();
        file.data(file.tensor("blk.0.attn_q.weight").unwrap()).to_vec()
    };
    let wanted = query(folder("split", None));
    for (form, ranks) in [("ranked", None), ("ranked", Some(2)), ("plain", Some(4))] {
        assert!(query(folder(form, ranks.map(Value::from))) != wanted, "{form} {ranks:?}");
    }
}

#[test]
fn logits_are_those_of_transformers() {
    let logits = GgufFile::open(golden("logits.gguf")).unwrap();
    let backend = Arc::new(Cpu::backend(Level::best(), 2).unwrap());
    for folder in forms() {
        let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
        let model = Model::with_backend(open(&folder.0), backend.clone(), options).unwrap();
        let error = nmse(&Arc::new(model), &logits);
        // Also false for NaN.
        assert!(error <= 1e-6, "{}: NMSE {error:.1e}", folder.0.display());
    }
}

#[test]
fn towers_are_left_out_by_name() {
    let said = folder("fp8", None).open().unwrap().notes().join("\n");
    let wanted = ["3 tensors, audio_encoder.", "belong to towers for images and sound; they are left out"];
    assert!(wanted.iter().all(|text| said.contains(text)), "{said}");
}

#[test]
fn folders_of_mlx_have_a_matrix_each() {
    let folder = quantised("mimo2-8bit", "mimo2", "v2");
    let wanted = folder.convert();
    folder.set("model_type", json!("mimo_v2"));
    folder.set("attention_projection_layout", json!("fused_qkv"));
    let found = folder.convert();
    assert_eq!(found.tensors().len(), wanted.tensors().len());
    for tensor in wanted.tensors() {
        assert!(found.data(found.tensor(&tensor.name).unwrap()) == wanted.data(tensor), "{}", tensor.name);
    }
    // Codes in one matrix are those of an unknown order.
    folder.remove(INDEX);
    folder.bytes(WEIGHTS, |bytes| {
        let (length, rest) = bytes.split_first_chunk().unwrap();
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let header =
            String::from_utf8(header.to_vec()).unwrap().replace("0.self_attn.q_proj.", "0.self_attn.qkv_proj.");
        *bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
    });
    folder.refused(&[QKV, "in codes whose rows have an unknown order; take the published model"]);
}

#[test]
fn layouts_that_are_not_known_are_refused() {
    let refused = |form: &str, ranks: Option<Value>, change: fn(&Folder), says: &[&str]| {
        let folder = folder(form, ranks);
        change(&folder);
        folder.refused(says);
    };
    let none = |_: &Folder| ();
    refused(
        "fp8",
        Some(json!(2)),
        none,
        &["`num_key_value_heads` is 4", "2, the `tp_size` in model.safetensors.index"],
    );
    // As many scales as of rows without ranks.
    let one = |folder: &Folder| {
        folder.tensors(ATTENTION, |name, shape, bytes| {
            if name == format!("{QKV}_scale_inv") {
                shape[0] = 18;
                bytes.truncate(18 * 2 * 4);
            }
        });
    };
    refused("fp8", None, one, &[QKV, "[18, 2]", "352 × 32 codes of 4 ranks are in blocks of 20 × 20"]);
    for ranks in [json!("4"), json!(0), json!(1.5), Value::Null] {
        refused("ranked", Some(ranks), none, &[INDEX, "`metadata.tp_size` is", "a whole number above 0"]);
    }
    refused("ranked", Some(json!(3)), none, &[QKV, "8 query heads and 4 KV heads are not those of 3 equal ranks"]);
    let wider = |folder: &Folder| ["head_dim", "swa_head_dim"].iter().for_each(|key| folder.set(key, json!(64)));
    refused("plain", None, wider, &[QKV, "8 queries of 64 rows with keys and values"]);
    let layout = |folder: &Folder| folder.set("attention_projection_layout", json!("interleaved"));
    refused("plain", None, layout, &["`attention_projection_layout` is \"interleaved\"", "fused_qkv"]);
}
