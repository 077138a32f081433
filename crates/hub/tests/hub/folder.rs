//! Repositories that are a model as a folder.

use std::fs;

use gristmill_hub::{Cache, Error, Options, model_path};

use crate::standin::{COMMIT, Faults, git_sha1, sha256};
use crate::{Case, noise, reference};

const INDEX: &str = r#"{"metadata":{"total_size":2},"weight_map":{"a":"model-00001-of-00002.safetensors",
    "b":"model-00002-of-00002.safetensors"}}"#;

/// A mock that also has a folder, as publishers lay it out.
fn case() -> Case {
    let case = Case::new();
    let text = |text: &str| text.as_bytes().to_vec();
    case.hub.add(
        "org/m",
        vec![
            (".gitattributes", text("*")),
            ("README.md", text("# m")),
            ("chat_template.jinja", text("{{ messages }}")),
            ("config.json", text("{}")),
            ("consolidated.safetensors", noise(90_001)),
            ("generation_config.json", text("{\"top_k\": 1}")),
            ("model-00001-of-00002.safetensors", noise(SHARD)),
            ("model-00002-of-00002.safetensors", noise(50_003)),
            ("model.safetensors.index.json", text(INDEX)),
            ("modeling_m.py", text("import os")),
            ("original/model.safetensors", noise(40_001)),
            ("tokenizer.json", text("{\"version\": \"1.0\"}")),
            ("tokenizer.model", noise(2_001)),
        ],
    );
    case
}

const SHARD: usize = 1_200_007;

/// What is downloaded.
const FILES: [&str; 8] = [
    "config.json",
    "chat_template.jinja",
    "generation_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer.model",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

#[test]
fn a_folder_is_pulled_found_listed_and_removed() {
    let case = case();
    let files = case.pull("org/m").expect("a folder");
    let snapshot = case.cache.0.join("models--org--m/snapshots").join(COMMIT);
    assert_eq!(files, FILES.map(|name| snapshot.join(name)));
    assert_eq!(model_path(&files), Some(&*snapshot));
    assert_eq!(fs::read(&files[6]).expect("a shard"), noise(SHARD));
    let blobs = case.cache.0.join("models--org--m/blobs");
    // The names that huggingface_hub gives them.
    for digits in [git_sha1(INDEX.as_bytes()), sha256(&noise(SHARD))] {
        assert!(blobs.join(&digits).is_file(), "{digits}");
    }
    assert_eq!(fs::read_dir(&blobs).expect("blobs").count(), FILES.len(), "nothing else");
    case.hub.take();
    assert_eq!(case.pull("org/m").expect("again"), files);
    assert_eq!(case.hub.take().bytes, 0, "downloaded once");
    let offline = Options { offline: true, ..case.options() };
    assert_eq!(case.pull_with("org/m", offline.clone()).expect("offline"), files);
    assert_eq!(case.fetch("org/m").expect("without asking"), files);
    assert!(case.hub.take().hub.is_empty());

    let cache = Cache::new(&case.cache.0);
    let models = cache.models().expect("one");
    let [model] = &models[..] else { panic!("{models:?}") };
    assert_eq!((model.reference.to_string(), &model.files), ("org/m".to_owned(), &files));
    assert!(matches!(case.pull("org/m:Q8_0"), Err(Error::NoModels { .. })), "a folder has no quantisation in its name");

    // What other programs fetch may be a part of the folder.
    fs::remove_file(&files[7]).expect("removed");
    assert!(cache.models().expect("none").is_empty());
    assert!(matches!(case.pull_with("org/m", offline), Err(Error::Offline { .. })));
    assert_eq!(case.fetch("org/m").expect("completed"), files);
    cache.remove(&reference("org/m")).expect("removed");
    assert!(!case.cache.0.join("models--org--m").exists());
}

#[test]
fn faults_of_each_file_are_found() {
    // A flipped bit of a shard, and of a file in Git.
    for at in [700_000, 5] {
        let case = case();
        case.hub.set(Faults { flip: Some((at, 1)), ..Faults::default() });
        let failed = case.pull("org/m").expect_err("another content");
        let Error::Checksum { found, listed, .. } = &failed else { panic!("{failed}") };
        let method = if at == 5 { "SHA-1 of Git " } else { "SHA-256 " };
        assert!(found.starts_with(method) && listed.starts_with(method) && found != listed, "{failed}");
        assert!(Cache::new(&case.cache.0).models().expect("none").is_empty());
        case.pull("org/m").expect("the second time");
    }
    // A connection that ends: the same pull continues.
    let case = case();
    case.hub.set(Faults { cut: Some((0.5, 3)), ..Faults::default() });
    case.pull("org/m").expect("resumed");
    // A download that stopped: the next pull has the rest.
    let case = self::case();
    case.hub.set(Faults { cut: Some((0.9, 1_000)), ..Faults::default() });
    case.pull("org/m").expect_err("each reply is cut");
    case.hub.set(Faults::default());
    let sent = case.hub.take().bytes;
    case.pull("org/m").expect("the rest");
    assert!(sent > 0 && case.hub.take().bytes < 1_300_000, "{sent} bytes were there");
}

#[test]
fn folders_without_weights_or_settings_are_refused() {
    let case = case();
    let file = |name: &'static str, text: &str| (name, text.as_bytes().to_vec());
    for (repo, files) in [
        ("org/torch", vec![file("config.json", "{}"), file("pytorch_model.bin", "x")]),
        ("org/bare", vec![file("model.safetensors", "x")]),
    ] {
        case.hub.add(repo, files);
        let failed = case.pull(repo).expect_err(repo);
        assert!(matches!(failed, Error::NoModels { .. }), "{failed}");
    }
    for index in ["{", "[]", "{\"weight_map\": 1}"] {
        case.hub.add("org/index", vec![file("config.json", "{}"), file("model.safetensors.index.json", index)]);
        let failed = case.pull("org/index").expect_err(index);
        assert!(matches!(failed, Error::Index { .. }), "{failed}");
    }
    // The index names no file outside of the listing.
    let index = r#"{"weight_map": {"a": "../../x", "b": "/etc/passwd", "c": "model-1.safetensors"}}"#;
    let files = ["config.json", "tokenizer.json", "model-1.safetensors"].map(|name| file(name, "{}"));
    case.hub.add("org/far", files.into_iter().chain([file("model.safetensors.index.json", index)]).collect());
    assert_eq!(case.pull("org/far").expect("what there is").len(), 4);
}
