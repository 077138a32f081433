//! Folders as transformers saves them from other classes than that of the language model, named templates, and missing
//! files of prediction heads.

use std::collections::BTreeSet;
use std::fs;

use gristmill_files::gguf::{Array, GgufFile, Value};
use serde_json::{Value as Json, json};

use super::converted;
use super::direct::same;
use super::folder::Folder;
use gristmill_conformance::golden::folders;

/// Renames the tensors of all files; a name without a result is left out.
fn rename(folder: &Folder, rename: impl Fn(&str) -> Option<String>) {
    for entry in fs::read_dir(&folder.0).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".safetensors") {
            let file = fs::read(folder.path(&name)).unwrap();
            let (length, rest) = file.split_first_chunk().unwrap();
            let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
            let header: serde_json::Map<String, Json> = serde_json::from_slice(header).unwrap();
            let mut renamed = serde_json::Map::new();
            let mut kept = Vec::new();
            for (tensor, mut record) in header.into_iter().filter(|(tensor, _)| tensor != "__metadata__") {
                let place = |index: usize| record["data_offsets"][index].as_u64().unwrap() as usize;
                let bytes = &data[place(0)..place(1)];
                let Some(tensor) = rename(&tensor) else { continue };
                record["data_offsets"] = json!([kept.len(), kept.len() + bytes.len()]);
                kept.extend_from_slice(bytes);
                renamed.insert(tensor, record);
            }
            let header = Json::Object(renamed).to_string();
            folder.write(&name, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &kept].concat());
        }
        if name.ends_with(".safetensors.index.json") {
            folder.json(&name, |index| {
                let map = index["weight_map"].as_object().unwrap().clone();
                let renamed = map.into_iter().filter_map(|(tensor, file)| Some((rename(&tensor)?, file)));
                index["weight_map"] = Json::Object(renamed.collect());
            });
        }
    }
}

/// The name in a folder that a base class saved.
fn of_base_class(name: &str) -> String {
    let bare = ["model.", "transformer."].iter().find_map(|prefix| name.strip_prefix(prefix));
    bare.unwrap_or(name).to_owned()
}

#[test]
fn a_base_class_saves_the_same_model() {
    let mut renamed = 0;
    for name in folders() {
        let folder = Folder::copy(name, "base");
        rename(&folder, |tensor| Some(of_base_class(tensor)));
        let found = folder.open().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found.notes().iter().all(|note| !note.contains("output matrix")), "{name}");
        same(name, &folder.convert(), &converted("base", name, None));
        renamed += 1;
    }
    assert!(renamed > 50, "{renamed} folders");
}

#[test]
fn without_an_output_matrix_a_model_embeds() {
    let folder = Folder::copy("qwen3moe", "headless");
    rename(&folder, |tensor| (tensor != "lm_head.weight").then(|| of_base_class(tensor)));
    folder.set("tie_word_embeddings", json!(false));
    let found = folder.open().unwrap();
    assert!(found.notes().iter().any(|note| note.contains("output matrix")), "{:?}", found.notes());
    assert!(folder.convert().tensor("output.weight").is_none());
    // A language model must have it.
    let folder = Folder::copy("qwen3moe", "incomplete");
    rename(&folder, |tensor| (tensor != "lm_head.weight").then(|| tensor.to_owned()));
    folder.set("tie_word_embeddings", json!(false));
    folder.refused(&["lm_head.weight"]);
}

/// Template keys of a converted folder.
fn templates(folder: &Folder) -> Vec<(String, String)> {
    let file: GgufFile = folder.convert();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(Array::String(texts)) => texts.join(","),
        other => panic!("{other:?}"),
    };
    let pairs = file.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer.chat_template"));
    pairs.map(|(key, value)| (key.to_owned(), text(value))).collect()
}

#[test]
fn templates_have_names_wherever_transformers_saves_them() {
    let key = |name: &str, text: &str| (format!("tokenizer.chat_template{name}"), text.to_owned());
    let both = vec![key("", "a"), key(".tool_use", "b"), key("s", "tool_use")];

    let plain = Folder::copy("qwen3", "template");
    let _ = fs::remove_file(plain.path("chat_template.jinja"));
    plain.json("tokenizer_config.json", |config| config["chat_template"] = json!("a"));
    assert_eq!(templates(&plain), both[..1]);

    let list = json!([{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"},
                      {"name": "default", "template": "again"}]);
    plain.json("tokenizer_config.json", |config| config["chat_template"] = list);
    assert_eq!(templates(&plain), both);

    // Files come before the setting.
    plain.write("chat_template.jinja", "a");
    fs::create_dir(plain.path("additional_chat_templates")).unwrap();
    plain.write("additional_chat_templates/tool_use.jinja", "b");
    plain.write("additional_chat_templates/notes.txt", "none");
    plain.json("tokenizer_config.json", |config| config["chat_template"] = json!("c"));
    assert_eq!(templates(&plain), both);
    let told = plain.open().unwrap();
    assert!(told.files().any(|path| path.ends_with("additional_chat_templates/tool_use.jinja")));
}

#[test]
fn a_missing_file_of_prediction_heads_is_left_out() {
    let index = "model.safetensors.index.json";
    let heads = "model-prediction.safetensors";
    let folder = Folder::copy("glm4moe", "no-heads");
    let whole = folder.convert();
    folder.remove(heads);
    let notes = folder.open().unwrap().notes().join("\n");
    assert!(notes.contains(heads) && notes.contains("is missing"), "{notes}");
    same("glm4moe without the file of its head", &folder.convert(), &whole);
    // A file of the model itself must be there, also if its tensors are optional.
    for needed in ["model.layers.0.self_attn.q_norm.weight", "model.layers.0.input_layernorm.weight", "model.x"] {
        let damaged = Folder::copy("glm4moe", "no-file");
        rename(&damaged, |tensor| (tensor != needed).then(|| tensor.to_owned()));
        damaged.json(index, |index| index["weight_map"][needed] = json!("gone.safetensors"));
        damaged.refused(&["gone.safetensors", "is missing", index, "fetch it too"]);
    }
}

/// Of a model within another one, too, the missing file of the first tensor is named.
#[test]
fn a_folder_without_its_weights_names_their_file() {
    for name in ["qwen35moe", "mistral3", "glm4moe"] {
        let folder = Folder::copy(name, "no-weights");
        let index: Json =
            serde_json::from_slice(&fs::read(folder.path("model.safetensors.index.json")).unwrap()).unwrap();
        let files: BTreeSet<&str> =
            index["weight_map"].as_object().unwrap().values().map(|file| file.as_str().unwrap()).collect();
        files.iter().for_each(|file| folder.remove(file));
        folder.refused(&["-of-0000", "is missing", "model.safetensors.index.json", "fetch it too"]);
    }
}

#[test]
fn vectors_may_be_columns() {
    for name in ["qwen3moe", "gemma4", "deepseek2", "qwen35"] {
        let folder = Folder::copy(name, "columns");
        for entry in fs::read_dir(&folder.0).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            if file.ends_with(".safetensors") {
                folder.tensors(&file, |_, shape, _| {
                    if shape.len() == 1 {
                        shape.push(1)
                    }
                });
            }
        }
        if let Err(error) = folder.open() {
            panic!("{name}: {error}");
        }
    }
}

/// Nemotron's models for images have the text model's settings in `llm_config`.
#[test]
fn a_text_model_within_a_model_for_images() {
    for name in ["nemotron_h", "nemotron_h_moe"] {
        let folder = Folder::copy(name, "within");
        rename(&folder, |tensor| Some(format!("language_model.{tensor}")));
        folder.json("config.json", |config| {
            let settings = config.take();
            *config = json!({"model_type": "NemotronH_Nano_VL_V2", "vision_config": {}, "llm_config": settings});
        });
        same(name, &folder.convert(), &converted("within", name, None));
    }
}
