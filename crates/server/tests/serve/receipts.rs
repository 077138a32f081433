//! Receipts of all interfaces, and what usage tells of each reply.

use std::sync::Arc;

use gristmill_engine::receipt::{Receipt, Recorder};
use gristmill_engine::{Model, Request};
use gristmill_server::{Access, LoadedModel, OfferedModel, Options};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::server::{Running, engine, model, options, sampling};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// A short request to an interface, with a receipt.
fn asked(path: &str, tokens: usize) -> Value {
    let messages = json!([{"role": "user", "content": "Why does the mill turn?"}]);
    let settings = json!({"seed": 3, "ignore_eos": true, "receipt": true});
    match path {
        CHAT => with(settings, json!({"messages": messages, "max_tokens": tokens})),
        COMPLETIONS => with(settings, json!({"prompt": "The mill turns", "max_tokens": tokens})),
        RESPONSES => with(settings, json!({"input": "Why does the mill turn?", "max_output_tokens": tokens})),
        _ => json!({"model": "tiny", "messages": messages, "max_tokens": tokens, "receipt": true}),
    }
}

/// The usage in a whole reply, or at the end of events.
fn details(reply: &[Value]) -> Value {
    let usage = |part: &Value| {
        let usage = if part["response"].is_object() { &part["response"]["usage"] } else { &part["usage"] };
        usage.get("gristmill").cloned()
    };
    reply.iter().rev().find_map(usage).expect("usage")
}

fn receipt(reply: &[Value]) -> Receipt {
    Receipt::read(&details(reply)["receipt"]).expect("a good receipt")
}

/// Generates the texts of a receipt again, alone and on a cold cache. They must be the same.
fn replay(model: &Arc<Model>, receipt: &Receipt) -> Vec<String> {
    assert_eq!(receipt.model, model.fingerprint());
    let engine = engine(model, 1);
    assert_eq!(receipt.conditions, engine.conditions());
    let requests: Vec<Request> = receipt.requests().collect();
    let mut recorder = Recorder::new(&engine, &requests);
    let mut texts = Vec::new();
    for (choice, request) in requests.into_iter().enumerate() {
        let mut text = String::new();
        for piece in engine.generate(Request { draft: 0, ..request }).expect("a good request") {
            let piece = piece.expect("it runs");
            recorder.push(choice, &piece);
            text += &piece.text;
        }
        texts.push(text);
    }
    assert_eq!(recorder.finish().expect("all have ended").choices, receipt.choices);
    texts
}

#[test]
fn each_interface_gives_receipts() {
    let model = model();
    let server = Running::new(engine(&model, 4), options());
    for path in [CHAT, COMPLETIONS, RESPONSES, MESSAGES] {
        let body = asked(path, 20);
        let whole = server.ask(path, &body);
        let cold = receipt(std::slice::from_ref(&whole));
        let [text] = &replay(&model, &cold)[..] else { panic!("{cold:?}") };
        let told = ["/choices/0/message/content", "/choices/0/text", "/output/0/content/0/text", "/content/0/text"];
        assert_eq!(told.iter().find_map(|place| whole.pointer(place)), Some(&json!(text)), "{path}");
        assert_eq!(cold.choices[0].text_sha256, format!("{:x}", Sha256::digest(text)));

        // In events, and on a warm cache. Anthropic's interface has no seed, and its default temperature draws another.
        let events = server.events(path, &body);
        let warm = receipt(&events);
        replay(&model, &warm);
        assert!(details(&events)["choices"][0]["reused_tokens"].as_u64().is_some_and(|reused| reused > 0), "{path}");
        assert_eq!(warm.requests, cold.requests);
        if path != MESSAGES {
            assert_eq!(warm.choices, cold.choices);
        }
        let [known, found] = [details(&[whole]), details(&events)];
        assert_eq!((&known["build"], &known["model"]), (&found["build"], &json!(model.fingerprint())));
        assert!(known["build"].as_str().is_some_and(|build| build.starts_with(env!("CARGO_PKG_VERSION"))));

        // Without the field there is none, and without it events have usage only where it is requested.
        let plain = with(body, json!({"receipt": null}));
        assert!(details(&[server.ask(path, &plain)]).get("receipt").is_none());
        let events = server.events(path, &plain);
        let has_usage = events.iter().any(|event| event["usage"]["gristmill"].is_object());
        assert!(!has_usage || path == MESSAGES, "{path}");
        assert_eq!(server.post(path, &with(plain, json!({"receipt": "yes"}))).status, 400);
    }
}

#[test]
fn receipts_of_all_settings() {
    let model = model();
    let drafting = LoadedModel { draft: 3, sampling: sampling(), ..LoadedModel::from(engine(&model, 3)) };
    let server = Running::of(vec![OfferedModel::loaded("tiny", drafting)], options());
    let ask = |path: &str, more: Value| {
        let reply = server.ask(path, &with(asked(path, 30), more));
        let receipt = receipt(std::slice::from_ref(&reply));
        (replay(&model, &receipt), receipt, reply)
    };
    // Choices share a request; prompts have their own.
    let prompts = json!({"prompt": ["ab ab ab", "cd"], "n": 2, "logprobs": 2, "echo": true});
    let (_, receipt, _) = ask(COMPLETIONS, prompts);
    let requests: Vec<usize> = receipt.choices.iter().map(|choice| choice.request).collect();
    assert_eq!((receipt.requests.len(), &requests[..]), (2, &[0, 0, 1, 1][..]));
    assert_eq!((receipt.requests[0].draft, receipt.requests[0].prompt_logprobs), (3, Some(2)));

    let (texts, ..) = ask(CHAT, json!({}));
    let stop: String = texts[0].chars().skip(8).take(2).collect();
    let settings = json!({"stop": ["\u{1}", stop], "n": 2, "temperature": 1.5, "top_k": 50, "top_p": 0.9, "min_p": 0.01,
        "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.2, "min_tokens": 3,
        "logit_bias": {"97": 2.5, "98": -1}, "seed": -2});
    let (_, receipt, reply) = ask(CHAT, settings);
    assert_eq!((receipt.choices[0].seed, receipt.choices[1].seed), (u64::MAX - 1, u64::MAX));
    // Seeds are texts: JavaScript rounds such numbers.
    assert_eq!(reply["usage"]["gristmill"]["receipt"]["choices"][1]["seed"], "18446744073709551615");

    let schema = json!({"type": "object", "additionalProperties": false, "required": ["2", "1"],
        "properties": {"2": {"enum": ["red", "green"]}, "1": {"const": 0.1}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let (texts, ..) = ask(CHAT, json!({"response_format": format, "max_tokens": 300}));
    assert!(texts[0].starts_with('{'), "{texts:?}");
    let (texts, ..) = ask(COMPLETIONS, json!({"guided_grammar": "start: \"x\" \"yz\""}));
    assert_eq!(texts, ["xyz"]);
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tools = json!([{"name": "stop", "input_schema": nothing}]);
    let call = json!({"tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 300});
    let (texts, _, reply) = ask(MESSAGES, call);
    assert!(texts[0].contains("\"stop\""), "{texts:?}");
    assert_eq!(reply["stop_reason"], "tool_use");
}

#[test]
fn a_receipt_has_no_key_and_no_text_of_others() {
    let keys = vec!["first-key".into(), "second-key".into()];
    let access = Access { keys, ..Access::default() };
    let server = Running::new(engine(&model(), 2), Options { access, ..options() });
    let ask = |key: &str, prompt: &str| {
        let body = with(asked(COMPLETIONS, 5), json!({"prompt": prompt}));
        server.post_text(COMPLETIONS, &body.to_string(), &[("x-api-key", key)]).json()
    };
    let beginning = "All prompts begin with these words, and then ";
    let _ = ask("first-key", &format!("{beginning}one has a SECRET in it"));
    let reply = ask("second-key", &format!("{beginning}another asks"));
    let text = reply.to_string();
    assert!(!text.contains("SECRET") && !text.contains("-key") && !text.contains("tenant"), "{text}");
    assert!(details(std::slice::from_ref(&reply))["choices"][0].get("cache_miss").is_none());
    assert_eq!(receipt(&[reply]).requests[0].tenant, 0);
}

#[test]
fn where_the_cache_stopped_is_told() {
    let server = Running::usual();
    let system = |time: &str| {
        let text = format!("You are a miller. It is {time}. Answer in one word.");
        let body =
            json!({"model": "tiny", "max_tokens": 3, "system": text, "messages": [{"role": "user", "content": "?"}]});
        let choice = details(&[server.ask(MESSAGES, &body)])["choices"][0].clone();
        (choice["reused_tokens"].clone(), choice["cache_miss"].clone())
    };
    assert_eq!(system("10:31"), (json!(0), Value::Null));
    let (reused, miss) = system("10:47");
    // `<|im_start|>`, `system\n`, and the text up to the minutes.
    assert_eq!((reused, miss), (json!(1 + 7 + 27), json!("47. Answer in one word.<|im_end|>\n<|im_s")));
    assert_eq!(system("10:47").1, Value::Null);
}
