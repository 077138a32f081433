//! A script chooses the completions ([`Engine::with_script`]).

use std::sync::Arc;

use gristmill_engine::Script;
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

/// The path of the chat interface.
const CHAT: &str = "/v1/chat/completions";

/// Requests a tool, and answers when the prompt has its result.
#[derive(Debug)]
struct Turns;

impl Script for Turns {
    fn completion(&self, prompt: &str) -> Option<String> {
        let asks = prompt
            .contains("Which word?")
            .then_some("<tool_call>\n{\"name\": \"word\", \"arguments\": {}}\n</tool_call>");
        match prompt.contains("quern") {
            true => Some("It is quern.".to_owned()),
            false => asks.map(str::to_owned),
        }
    }
}

fn server() -> Running {
    Running::new(engine(&model(), 2).with_script(Arc::new(Turns)), options())
}

fn ask() -> Value {
    json!({"messages": [{"role": "user", "content": "Which word?"}], "tools": [{"type": "function", "function": {
        "name": "word", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}]})
}

#[test]
fn a_script_plays_a_call_and_an_answer() {
    let (server, mut body) = (server(), ask());
    let message = server.ask(CHAT, &body)["choices"][0]["message"].clone();
    assert_eq!(message["tool_calls"][0]["function"], json!({"name": "word", "arguments": "{}"}));
    let id = message["tool_calls"][0]["id"].clone();
    let messages = body["messages"].as_array_mut().expect("a list");
    messages.extend([message, json!({"role": "tool", "tool_call_id": id, "content": "quern"})]);
    let choice = server.ask(CHAT, &body)["choices"][0].clone();
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("It is quern."), &json!("stop")));
}

#[test]
fn a_script_follows_the_grammar_of_a_request() {
    let (server, mut body) = (server(), ask());
    body["tool_choice"] = json!("required");
    assert_eq!(server.ask(CHAT, &body)["choices"][0]["finish_reason"], "tool_calls");
    body["messages"][0]["content"] = json!("quern");
    let refused = server.post(CHAT, &body);
    assert_eq!(refused.status, 500, "{}", refused.text);
    assert!(refused.text.contains("the script's token"), "{}", refused.text);
}

#[test]
fn the_model_completes_what_a_script_does_not() {
    let server = server();
    let body = json!({"messages": [{"role": "user", "content": "abc"}], "max_tokens": 5, "ignore_eos": true});
    assert_eq!(server.ask(CHAT, &body)["usage"]["completion_tokens"], 5);
}

/// Always the same completion.
#[derive(Debug)]
struct Always(&'static str);

impl Script for Always {
    fn completion(&self, _: &str) -> Option<String> {
        Some(self.0.to_owned())
    }
}

fn always(completion: &'static str) -> Running {
    Running::new(engine(&model(), 2).with_script(Arc::new(Always(completion))), options())
}

/// The texts of deltas of this kind, as `text` finds them.
fn joined(events: &[Value], text: impl Fn(&Value) -> Option<&str>) -> String {
    events.iter().filter_map(text).collect()
}

#[test]
fn words_around_a_call_stay_apart() {
    let call = "<tool_call>\n{\"name\": \"word\", \"arguments\": {}}\n</tool_call>";
    let server = always(Box::leak(format!("I look.\n\n{call}\nDone.").into_boxed_str()));
    let body = ask();
    assert_eq!(server.ask(CHAT, &body)["choices"][0]["message"]["content"], "I look.\nDone.");
    let streamed = server.events(CHAT, &body);
    assert_eq!(joined(&streamed, |event| event["choices"][0]["delta"]["content"].as_str()), "I look.\nDone.");

    // Where each text is a part of its own, nothing separates them.
    let tool = json!({"name": "word", "input_schema": {"type": "object"}});
    let body = json!({"model": "tiny", "messages": body["messages"], "tools": [tool], "max_tokens": 200});
    let texts = |content: &Value| -> Vec<String> {
        let blocks = content.as_array().expect("blocks").iter();
        blocks.filter_map(|block| block["text"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(texts(&server.ask("/v1/messages", &body)["content"]), ["I look.", "Done."]);
    let streamed = server.events("/v1/messages", &body);
    assert_eq!(joined(&streamed, |event| event["delta"]["text"].as_str()), "I look.Done.");

    let tool = json!({"type": "function", "name": "word", "parameters": {"type": "object"}});
    let body = json!({"model": "tiny", "input": "Which word?", "tools": [tool]});
    let output = server.ask("/v1/responses", &body)["output"].clone();
    let contents: Vec<String> = output
        .as_array()
        .expect("items")
        .iter()
        .filter(|item| item["type"] == "message")
        .flat_map(|item| texts(&item["content"]))
        .collect();
    assert_eq!(contents, ["I look.", "Done."]);
    let streamed = server.events("/v1/responses", &body);
    let delta = |event: &Value| event["type"].as_str() == Some("response.output_text.delta");
    assert_eq!(joined(&streamed, |event| event["delta"].as_str().filter(|_| delta(event))), "I look.Done.");
}

/// Without parallel calls the completion ends after the first one, and nothing of the rest is generated or returned.
#[test]
fn a_single_call_ends_the_reply() {
    let call = "<tool_call>\n{\"name\": \"word\", \"arguments\": {}}\n</tool_call>";
    let server = always(Box::leak(format!("I look.\n\n{call}\n{call}\nDone.").into_boxed_str()));
    // The tiny model's tokens are bytes. The one after the call ends the completion.
    let first = "I look.\n\n".len() + call.len() + 1;
    let mut body = ask();
    let calls = |choice: &Value| choice["message"]["tool_calls"].as_array().map_or(0, Vec::len);
    let both = server.ask(CHAT, &body);
    assert_eq!(calls(&both["choices"][0]), 2);
    assert!(both["usage"]["completion_tokens"].as_u64() > Some(first as u64 + 20));
    body["parallel_tool_calls"] = json!(false);
    for n in [1, 2] {
        body["n"] = json!(n);
        let reply = server.ask(CHAT, &body);
        assert_eq!(reply["usage"]["completion_tokens"], n * first, "{reply}");
        for choice in reply["choices"].as_array().expect("a list") {
            assert_eq!((calls(choice), &choice["message"]["content"]), (1, &json!("I look.")), "{reply}");
            assert_eq!(choice["finish_reason"], "tool_calls");
        }
    }
    body["n"] = json!(1);
    let streamed = server.events(CHAT, &body);
    assert_eq!(joined(&streamed, |event| event["choices"][0]["delta"]["content"].as_str()), "I look.");

    let tool = json!({"name": "word", "input_schema": {"type": "object"}});
    let body = json!({"model": "tiny", "messages": body["messages"], "tools": [tool], "max_tokens": 200,
                      "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
    let reply = server.ask("/v1/messages", &body);
    assert_eq!(
        (&reply["usage"]["output_tokens"], &reply["stop_reason"]),
        (&json!(first), &json!("tool_use")),
        "{reply}"
    );

    let tool = json!({"type": "function", "name": "word", "parameters": {"type": "object"}});
    let body = json!({"model": "tiny", "input": "Which word?", "tools": [tool], "parallel_tool_calls": false});
    let reply = server.ask("/v1/responses", &body);
    assert_eq!((&reply["usage"]["output_tokens"], &reply["status"]), (&json!(first), &json!("completed")), "{reply}");
}

#[test]
fn call_marks_within_an_answer_in_json_are_text() {
    let answer = r#"{"text": "<tool_call><function=word></function></tool_call>"}"#;
    let server = always(answer);
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
                        "additionalProperties": false});
    let mut body = ask();
    body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    for _ in ["with tools", "without"] {
        let message = server.ask(CHAT, &body)["choices"][0]["message"].clone();
        assert_eq!(message["content"], answer);
        assert!(message["tool_calls"].is_null());
        body.as_object_mut().expect("an object").remove("tools");
    }
}
