//! `replay`: the same bytes from receipts of `run` and of a server, and what is told of others.

use std::fs;

use serde_json::{Value, json};

use super::serve::{Serving, rest};
use super::{gristmill, path};

/// A receipt that `run` writes with these arguments, and what `run` prints.
fn receipt(name: &str, arguments: &[&str]) -> (Value, String) {
    let file = path(name);
    let hot = ["run", "-m", "MODEL", "--temp", "3", "--top-k", "0", "-n", "20", "-t", "2", "--receipt", &file];
    let out = gristmill(&[&hot[..], arguments].concat(), b"").success();
    let text = fs::read_to_string(&file).expect("a written receipt");
    (serde_json::from_str(&text).expect("JSON"), out)
}

fn replay(receipt: &Value, arguments: &[&str]) -> crate::Ended {
    gristmill(&[&["replay", "-", "-m", "MODEL"], arguments].concat(), receipt.to_string().as_bytes())
}

#[test]
fn a_run_is_replayed() {
    let (json, out) = receipt("raw.json", &["--raw", "hello"]);
    let ended = gristmill(&["replay", &path("raw.json"), "-m", "MODEL", "-t", "1"], b"");
    assert!(ended.err.contains("choice 0: the same, ") && !ended.err.contains("warning"), "{}", ended.err);
    assert_eq!(ended.success(), out);
    let shown = gristmill(&["inspect", "MODEL"], b"").success();
    assert!(shown.contains(json["model"].as_str().expect("text")), "{shown}");

    // All conditions of a text are taken from the receipt: settings of all kinds.
    let settings =
        ["--kv", "q8_0", "--precision", "exact", "--ctx", "90", "--stop", "\u{1}\u{2}", "--dry-multiplier", "0.5"];
    let more =
        ["--logit-bias", "97=1.5", "--repeat-penalty", "1.2", "--draft-tokens", "2", "--seed", "18446744073709551615"];
    let (json, _) = receipt("settings.json", &[&settings[..], &more, &["hello"]].concat());
    assert_eq!(json["conditions"]["kv_format"], "q8_0");
    let ended = replay(&json, &["--json"]);
    assert!(!ended.err.contains("warning"), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.success()).expect("JSON");
    assert_eq!((&report["equal"], &report["choices"][0]["equal"]), (&json!(true), &json!(true)));
    assert_eq!(report["choices"][0]["now"]["seed"], "18446744073709551615");

    let (json, out) = receipt("grammar.json", &["--regex", "a{3}b", "hello"]);
    assert_eq!((replay(&json, &["-q"]).success(), out), ("aaab\n".to_owned(), "aaab\n".to_owned()));
}

#[test]
fn a_changed_receipt_is_told() {
    let (good, _) = receipt("good.json", &["--raw", "--seed", "5", "hello"]);
    let with = |place: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(place).unwrap_or_else(|| panic!("{place}")) = value;
        replay(&changed, &[])
    };
    let hash = "0".repeat(64);
    for (place, value) in [
        ("/choices/0/seed", json!("6")),
        ("/choices/0/text_sha256", json!(hash)),
        ("/choices/0/tokens", json!(0)),
        ("/choices/0/finish_reason", json!("stop")),
        ("/requests/0/sampling/temperature", json!(0)),
    ] {
        let ended = with(place, value);
        assert!(ended.code == Some(1) && ended.err.contains("choice 0: another text"), "{place}: {}", ended.err);
        assert_eq!(ended.last_line(), "error: 1 of 1 texts differ from the receipt");
        assert!(!ended.out.is_empty());
    }
    for (place, value, what) in [
        ("/build", json!("0.0.1 (x86_64, linux)"), "warning: the build is"),
        ("/conditions/arithmetic", json!(["sse9"]), "but sse9 in the receipt"),
        ("/conditions/context", json!(60), ""),
    ] {
        let ended = with(place, value);
        assert!(ended.code == Some(0) && ended.err.contains(what), "{place}: {}", ended.err);
    }
    let options = json!({"add_special": false, "parse_special": true});
    let shorter = replay(&good, &["--ctx", "50"]);
    assert!(shorter.err.contains("the context is 50 tokens, but 100 tokens in the receipt"), "{}", shorter.err);
    for (place, value, what) in [
        ("/model", json!(hash), &hash[..]),
        ("/model", json!(hash), good["model"].as_str().expect("text")),
        ("/format", json!(1), "format 1"),
        ("/choices/0/request", json!(1), "choices[0].request"),
        ("/requests/0/sampling/top_p", json!(7), "choice 0 cannot be replayed: top_p is 7"),
        ("/requests/0/prompt", json!({"text": {"text": "", "options": options}}), "the prompt is empty"),
        ("/conditions/context", json!(1u64 << 40), "the context length"),
    ] {
        let ended = with(place, value);
        assert!(ended.code == Some(1) && ended.last_line().contains(what), "{place}: {}", ended.err);
        assert_eq!(ended.out, "");
    }
    let refused = |stdin: &[u8], what: &str| {
        let ended = gristmill(&["replay", "-", "-m", "MODEL"], stdin);
        assert!(ended.code == Some(1) && ended.last_line().contains(what), "{}", ended.err);
    };
    refused(b"", "not valid JSON");
    refused(b"{\"usage\": {}}", "this contains no receipt");
    refused(b"{\"format\": 1}", "build");
    refused(b"[1]", "this contains no receipt");
}

/// Whole bodies, and events.
#[test]
fn replies_of_a_server_are_replayed() {
    let server = Serving::new(&["--parallel", "3"]);
    let model = path("endless.gguf");
    let replay = |body: &str| gristmill(&["replay", "-", "-m", &model, "-t", "2"], body.as_bytes());
    let body =
        r#"{"prompt": ["ab", "cd"], "n": 2, "max_tokens": 12, "receipt": true, "temperature": 2, "stop": "\u0007"}"#;
    let reply = rest(server.post("", body));
    let (_, reply) = reply.split_once("\r\n\r\n").expect("a body");
    let json: Value = serde_json::from_str(reply).expect("JSON");
    let ended = replay(reply);
    assert_eq!(ended.err.matches(": the same, ").count(), 4, "{}", ended.err);
    let texts = json["choices"].as_array().expect("a list").iter().map(|choice| choice["text"].as_str().expect("text"));
    let lines = texts.map(|text| format!("{text}{}", if text.ends_with('\n') { "" } else { "\n" }));
    assert_eq!(ended.success(), lines.collect::<String>());

    let events = format!("event: x\ndata: {{\"choices\": []}}\n\ndata: {json}\n\ndata: [DONE]\n");
    assert_eq!(replay(&events).err.matches(": the same, ").count(), 4);
    let response = json!({"type": "response.completed", "response": {"usage": json["usage"]}});
    assert_eq!(replay(&response.to_string()).err.matches(": the same, ").count(), 4);
}
