//! Prediction heads: of the built-in model, of synthetic models, and in a file of their own.

use std::fs;

use gristmill_files::gguf::{GgufFile, GgufWriter, Value};

use super::{gristmill, path};

fn number_of(json: &serde_json::Value, key: &str) -> f64 {
    json[key].as_f64().unwrap()
}

/// Writes the tensors of a file that `keeps` admits, with other counts of blocks and heads if there are some.
fn write_part(file: &GgufFile, name: &str, keeps: impl Fn(&str) -> bool, counts: Option<[u32; 2]>) -> String {
    let mut plan = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        let suffixes = [".block_count", ".nextn_predict_layers"];
        let count = counts.and_then(|counts| Some(counts[suffixes.iter().position(|end| key.ends_with(end))?]));
        plan.set(key, count.map_or(value.clone(), Value::U32)).unwrap();
    }
    let tensors: Vec<_> = file.tensors().iter().filter(|tensor| keeps(&tensor.name)).collect();
    for tensor in &tensors {
        plan.tensor(&tensor.name, tensor.format, &tensor.shape).unwrap();
    }
    let mut data = plan.begin(Vec::new()).unwrap();
    tensors.iter().for_each(|tensor| data.write_tensor(&tensor.name, file.data(tensor)).unwrap());
    let path = path(name);
    fs::write(&path, data.finish().unwrap()).unwrap();
    path
}

/// The built-in model as two files: the text is the same, and the heads draft.
#[test]
fn heads_in_a_file_of_their_own() {
    let stories = GgufFile::open(concat!(env!("CARGO_MANIFEST_DIR"), "/model/gristmill-stories.gguf")).unwrap();
    let architecture: &str = stories.metadata().required("general.architecture").unwrap();
    let blocks: u32 = stories.metadata().required(&format!("{architecture}.block_count")).unwrap();
    let start = format!("blk.{}.", blocks - 1);
    let of_head = |name: &str| name.starts_with(&start);
    let trunk = write_part(&stories, "trunk.gguf", |name| !of_head(name), Some([blocks - 1, 0]));
    let of_file = |name: &str| of_head(name) || !name.starts_with("blk.");
    let heads = write_part(&stories, "mtp-stories.gguf", of_file, None);

    let run = |more: &[&str]| {
        let common = ["run", "-m", &trunk, "-n", "60", "--temp", "0", "--device", "cpu", "A cat and a dog"];
        let ended = gristmill(&[&common[..], more].concat(), b"");
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        (ended.out, ended.err)
    };
    let (plain, status) = run(&["-v"]);
    assert!(!status.contains("drafts by"), "{status}");
    let (drafted, status) = run(&["-v", "--draft-model", &heads]);
    assert_eq!(drafted, plain);
    assert!(status.contains("drafts by mtp"), "{status}");

    // The heads of another model, and heads where there are some already.
    let refused = |model: &[&str], words: &[&str]| {
        let arguments = [&["run", "--draft-model", &heads, "-n", "2"], model, &["A"]].concat();
        let ended = gristmill(&arguments, b"");
        let named = words.iter().all(|word| ended.err.contains(word));
        assert!(ended.code == Some(1) && named, "{} lacks one of {words:?}", ended.err);
    };
    refused(&["-m", "MODEL"], &["--draft-model ", "the model has ", "the file of prediction heads "]);
    refused(&["--device", "cpu"], &["--draft-model ", "prediction heads in its own file"]);
}

/// The built-in model has a trained head. A replay accepts its draft tokens by place.
#[test]
fn bench_replays_an_acceptance() {
    let run = |accept: &str| -> serde_json::Value {
        let arguments = ["bench", "--mtp-accept", accept, "--draft-tokens", "2", "-p", "8", "-n", "200", "--json"];
        let requests = ["--requests", "3", "--device", "cpu"];
        serde_json::from_str(&gristmill(&[&arguments[..], &requests].concat(), b"").success()).unwrap()
    };
    // On a busy machine drafting does not pay, and few tokens are drafted: then the replay is repeated.
    let all = (0..8).map(|_| run("1,0")).find(|all| number_of(all, "drafts") > 10.0).expect("a replay with drafts");
    assert_eq!((number_of(&all, "requests"), number_of(&all, "generated_tokens")), (3.0, 600.0), "{all}");
    let drafts = number_of(&all, "drafts");
    let places = all["acceptance_by_place"].as_array().unwrap();
    // The second place is always rejected, if it is drafted at all.
    assert!(places[0] == 1.0 && places.get(1).is_none_or(|place| *place == 0.0), "{all}");
    let accepted = number_of(&all, "accepted_tokens");
    assert!(accepted > 0.9 * drafts && accepted <= number_of(&all, "drafted_tokens"), "{all}");
    assert_eq!(number_of(&run("0"), "accepted_tokens"), 0.0);
    let readable =
        || gristmill(&["bench", "--mtp-accept", "1", "-p", "8", "-n", "200", "--requests", "3"], b"").success();
    let drafted = |text: &String| !text.contains("drafts by mtp: 0");
    let readable = (0..8).map(|_| readable()).find(drafted).expect("a replay with drafts");
    assert!(readable.contains("drafts by mtp: ") && readable.contains("accepted 100 %"), "{readable}");
    let without = gristmill(&["bench", "-m", "MODEL", "--mtp-accept", "1", "-p", "2", "-n", "2"], b"");
    assert!(without.code == Some(1) && without.err.contains("--mtp-accept: "), "{}", without.err);
}

/// The suffix adds a head to a synthetic model, whatever the case of its name.
#[test]
fn synthetic_models_have_heads() {
    for name in ["mini-moe-mtp:Q8_0", "Mini-Oss-mtp"] {
        let output = path(&format!("synthetic {}", name.replace(':', "-")));
        let model = ["bench", "--synthetic", name, "--layers", "1", "-o", &output];
        let bench = ["--mtp-accept", "0.9", "-p", "4", "-n", "120", "--requests", "2", "--json", "--device", "cpu"];
        let json: serde_json::Value =
            serde_json::from_str(&gristmill(&[&model[..], &bench].concat(), b"").success()).unwrap();
        assert_eq!(number_of(&json, "generated_tokens"), 240.0, "{json}");
        // The same file, without its head.
        let plain = gristmill(&[&model[..], &["-p", "4", "-n", "2", "-r", "1", "--json"]].concat(), b"").success();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&plain).unwrap()["layers"], 1);
        let inspected = gristmill(&["inspect", &output], b"").success();
        assert!(inspected.contains("predicts further tokens"), "{inspected}");
        fs::remove_file(&output).unwrap();
    }
}
