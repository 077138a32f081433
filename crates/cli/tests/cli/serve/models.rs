//! Several models.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Serving, rest};
use crate::{gristmill, path};

/// A folder with two models, one of them in a folder of its own, and files that are no models.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("split")).expect("a folder");
    let model = path("endless.gguf");
    for name in ["a.gguf", "split/part-00001-of-00002.gguf"] {
        fs::copy(&model, folder.join(name)).expect("a copy");
    }
    for name in ["split/part-00002-of-00002.gguf", "mmproj-a.gguf", "readme.txt"] {
        fs::write(folder.join(name), "no model").expect("a file");
    }
    folder
}

fn ask(server: &Serving, model: &str) -> String {
    rest(server.post("", &format!(r#"{{"model": "{model}", "prompt": "ab", "max_tokens": 3}}"#)))
}

#[test]
fn models_of_a_folder_are_loaded_on_demand() {
    let folder = folder("models");
    let options = ["--alias", "gpt=split", "--alias", "first", "--pin", "split", "--idle", "1"];
    let server = Serving::of(&folder.display().to_string(), None, "200", &options);
    let status = || {
        let models = server.get("/v1/models");
        let body = models.split_once("\r\n\r\n").expect("a body").1.to_owned();
        let models: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        let entry = |entry: &serde_json::Value| format!("{} {}", text(&entry["id"]), text(&entry["status"]["value"]));
        models["data"].as_array().expect("a list").iter().map(entry).collect::<Vec<_>>()
    };
    assert_eq!(status(), ["a unloaded", "first unloaded", "split loaded", "gpt loaded"]);
    for (asked, name) in [("gpt", "split"), ("a", "a"), ("first", "a")] {
        let reply = ask(&server, asked);
        assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(&format!(r#""model":"{name}""#)), "{reply}");
    }
    let unknown = ask(&server, "b");
    assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains(r#"one of \"a\", \"split\""#), "{unknown}");
    let start = std::time::Instant::now();
    while status() != ["a unloaded", "first unloaded", "split loaded", "gpt loaded"] {
        assert!(start.elapsed().as_secs() < 30, "{:?}", status());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// A model needs 3.6 MB. The limit is for all, so the idle one is unloaded for the other.
#[test]
fn the_memory_of_all_models_is_limited() {
    let folder = folder("limited").display().to_string();
    for (most, loaded) in [("6MB", 1), ("12MB", 2)] {
        let server = Serving::of(&folder, None, "200", &["--cpu-memory", most, "--parallel", "8"]);
        for model in ["a", "split", "a"] {
            let reply = ask(&server, model);
            assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        }
        let models = server.get("/v1/models");
        assert_eq!(models.matches(r#""value":"loaded""#).count(), loaded, "{most}: {models}");
    }
}

#[test]
fn options_about_one_model_are_refused_with_several() {
    let folder = folder("several").display().to_string();
    let one = path("endless.gguf");
    let empty = Path::new(&folder).join("none");
    fs::create_dir_all(&empty).expect("a folder");
    let empty = empty.display().to_string();
    for (arguments, words) in [
        (vec!["--name", "x"], "--name is for one model, and 2 are served"),
        (vec!["--draft-model", one.as_str()], "--draft-model is for one model"),
        (vec!["--pin", "x"], "--pin x: there is no model of this name; use one of a, split"),
        (vec!["--alias", "x=y"], "--alias y: there is no model"),
        (vec!["-m", one.as_str()], "name the model"),
        (vec![one.as_str(), one.as_str()], "two models have the name endless"),
        (vec![empty.as_str()], "the folder contains no models"),
        (vec!["/no/such/model.gguf"], "/no/such/model.gguf"),
    ] {
        let arguments = [vec!["serve", folder.as_str(), "--port", "0", "--ctx", "64"], arguments].concat();
        let ended = gristmill(&arguments, b"");
        assert!(ended.code == Some(1) && ended.err.contains(words), "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn an_idle_model_is_unloaded() {
    let server = Serving::new(&["--idle", "1"]);
    assert!(ask(&server, "endless").starts_with("HTTP/1.1 200"));
    let start = std::time::Instant::now();
    while !server.get("/v1/models").contains(r#""value":"unloaded""#) {
        assert!(start.elapsed().as_secs() < 30, "{}", server.get("/v1/models"));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(ask(&server, "endless").starts_with("HTTP/1.1 200"));
}

#[test]
fn sockets_of_events_are_refused_before_a_model_is_loaded() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("tcp://{}", taken.local_addr().expect("an address"));
    let refused = gristmill(&["serve", "MODEL", "--port", "0", "--kv-events", &address], b"");
    assert!(refused.code == Some(1) && refused.err.contains(&address), "{}", refused.err);
    let replay = gristmill(&["serve", "MODEL", "--port", "0", "--kv-events-replay", &address], b"");
    assert!(replay.code == Some(2) && replay.err.contains("--kv-events"), "{}", replay.err);
}

/// What is no language model is a line and no model, also as the model of requests without a name.
#[test]
fn files_next_to_a_model_are_not_served() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("companions");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let companions = [("a-draft.gguf", "gemma4-assistant"), ("imatrix_a.gguf", "imatrix"), ("b.gguf", "bert")];
    for (name, architecture) in companions {
        fs::write(folder.join(name), crate::header(architecture)).expect("a file");
    }
    // A small language model whose name suggests a draft model comes last.
    for name in ["m-draft-Q8_0.gguf", "z.gguf"] {
        fs::copy(path("endless.gguf"), folder.join(name)).expect("a copy");
    }
    let server = Serving::of(&folder.display().to_string(), None, "200", &[]);
    let models = server.get("/v1/models");
    let is_listed = |name: &str| models.contains(&format!(r#""id":"{}""#, name.replace(".gguf", "")));
    assert!(is_listed("z.gguf") && !companions.iter().any(|(name, _)| is_listed(name)), "{models}");
    let reply = rest(server.post("", r#"{"prompt": "ab", "max_tokens": 3}"#));
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(r#""model":"z""#), "{reply}");
}
