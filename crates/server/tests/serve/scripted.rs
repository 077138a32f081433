//! A script chooses the completions ([`Engine::with_script`]).

use std::sync::Arc;

use gristmill_engine::engine::Script;
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

/// The path of the chat interface.
const CHAT: &str = "/v1/chat/completions";

/// Asks for a tool, and answers when the prompt has its result.
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
