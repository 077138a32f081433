//! What a server logs: requests without their text, and its own failures.

use std::fs;
use std::sync::LazyLock;

use serde_json::Value;

use super::{Serving, rest};
use crate::{damaged, path};

/// A model whose token `BAD` has no finite embedding.
static MODEL: LazyLock<String> = LazyLock::new(|| {
    let model = path("damaged.gguf");
    fs::write(&model, damaged::bytes()).expect("a written model");
    model
});

/// The lines of a server of that model, which fails on a secret prompt with that token.
fn lines_of_a_failure(arguments: &[&str]) -> Vec<String> {
    let mut server = Serving::of(&MODEL, None, "200", arguments);
    let body = r#"{"prompt": "secret\u0007", "max_tokens": 5}"#;
    let reply = rest(server.post("x-request-id: of-the-client\r\n", body));
    assert!(reply.starts_with("HTTP/1.1 500") && reply.contains("x-request-id: of-the-client\r\n"), "{reply}");
    server.lines()
}

#[test]
fn failures_are_logged() {
    for arguments in [&[][..], &["--quiet"]] {
        let lines = lines_of_a_failure(arguments);
        let errors: Vec<&String> = lines.iter().filter(|line| line.contains("Z ERROR ")).collect();
        assert_eq!(errors.len(), 2, "{lines:?}");
        assert!(errors[0].contains("step failed") && errors[0].contains("not finite"), "{errors:?}");
        let request = ["a request failed", "POST", "/v1/completions", "500", "of-the-client"];
        assert!(request.iter().all(|word| errors[1].contains(word)), "{errors:?}");
        assert!(!lines.iter().any(|line| line.contains("secret")), "{lines:?}");
    }
}

#[test]
fn failures_are_logged_as_json() {
    let lines = lines_of_a_failure(&["--log-format", "json", "--verbose"]);
    let objects: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("only JSON")).collect();
    assert!(objects.iter().any(|object| object["message"].as_str().is_some_and(|text| text.starts_with("ready;"))));
    let errors: Vec<Value> = objects.into_iter().filter(|object| object["level"] == "ERROR").collect();
    assert_eq!(errors.len(), 2, "{lines:?}");
    assert_eq!((&errors[1]["path"], &errors[1]["status"]), (&"/v1/completions".into(), &500.into()), "{lines:?}");
    assert_eq!(errors[1]["request_id"], "of-the-client", "{lines:?}");
    assert!(errors.iter().all(|error| error["timestamp"].as_str().is_some_and(|time| time.ends_with('Z'))));
}

/// A log that was renamed is written to its name again.
#[test]
fn a_hangup_opens_the_access_log_again() {
    let [file, renamed] = ["rotated.log", "rotated.log.1"].map(path);
    [&file, &renamed].into_iter().for_each(|file| drop(fs::remove_file(file)));
    let mut server = Serving::new(&["--access-log", &file]);
    let ask = |id: &str| rest(server.post(&format!("x-request-id: {id}\r\n"), r#"{"prompt": "a", "max_tokens": 1}"#));
    ask("one");
    fs::rename(&file, &renamed).expect("a renamed file");
    ask("two");
    server.hang_up();
    let start = std::time::Instant::now();
    while !fs::exists(&file).expect("a folder") {
        assert!(start.elapsed().as_secs() < 20, "the log is not opened again");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    ask("three");
    server.lines();
    let ids = |file: &str| {
        let log = fs::read_to_string(file).expect("a log");
        log.lines().map(|line| line.rsplit_once(", id ").expect("an id").1.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((ids(&renamed), ids(&file)), (vec!["one".to_owned(), "two".to_owned()], vec!["three".to_owned()]));
}

/// The id of a reply is the one in the log.
#[test]
fn ids_are_made_and_logged() {
    let file = path("ids.log");
    let _ = fs::remove_file(&file);
    let mut server = Serving::new(&["--access-log", &file, "--log-format", "json"]);
    let ids: Vec<String> = ["", "x-request-id: mine\r\n", "x-request-id: two words\r\n"]
        .iter()
        .map(|header| {
            let reply = rest(server.post(header, r#"{"prompt": "a", "max_tokens": 1}"#));
            let id = reply.lines().find_map(|line| line.strip_prefix("x-request-id: "));
            id.unwrap_or_else(|| panic!("no id in {reply}")).to_owned()
        })
        .collect();
    server.lines();
    let log = fs::read_to_string(&file).expect("a log");
    let logged: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(logged.iter().map(|line| line["request_id"].as_str().expect("an id")).eq(ids.iter()), "{log}");
    assert!(ids[1] == "mine" && ids[0] != ids[2] && [&ids[0], &ids[2]].iter().all(|id| id.len() == 32), "{ids:?}");
}
