//! Deferred tools: the prompt does not list them, a search by the client's tool shows them, and they can be called.

use std::sync::Arc;

use gristmill_engine::Script;
use serde_json::{Value, json};

use crate::agents::prompt;
use crate::server::{CONTEXT, Running, engine, model, options};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// The line with the definition of the deferred tool, as JSON in the prompt.
const DEFINITION: &str = "You can call this tool now: {\"name\":\"mcp__mill__word_of\",\"description\":\"Returns a word.\",\
                          \"parameters\":{\"type\":\"object\",\"properties\":{\"day\":{\"enum\":[\"today\"]}},\
                          \"required\":[\"day\"]}}";

/// Searches for the tool, and calls it when the prompt has its definition.
#[derive(Debug)]
struct Turns;

impl Script for Turns {
    fn completion(&self, prompt: &str) -> Option<String> {
        let call = match prompt.contains(DEFINITION) {
            true => json!({"name": "mcp__mill__word_of", "arguments": {"day": "today"}}),
            false => json!({"name": "ToolSearch", "arguments": {"query": "word"}}),
        };
        Some(format!("<tool_call>\n{call}\n</tool_call>"))
    }
}

fn server() -> Running {
    Running::new(engine(&model(), 2).with_script(Arc::new(Turns)), options())
}

fn body() -> Value {
    let any = json!({"type": "object", "properties": {"query": {"type": "string"}}});
    let day = json!({"type": "object", "properties": {"day": {"enum": ["today"]}}, "required": ["day"]});
    json!({"model": "tiny", "max_tokens": 200, "messages": [{"role": "user", "content": "Which word?"}], "tools": [
        {"name": "ToolSearch", "input_schema": any},
        {"name": "mcp__mill__word_of", "description": "Returns a word.", "defer_loading": true, "input_schema": day}]})
}

/// What Claude Code sends.
#[test]
fn a_search_shows_a_deferred_tool() {
    let (server, mut body) = (server(), body());
    let before = prompt(&server, MESSAGES, body.clone());
    assert!(before.contains("ToolSearch") && !before.contains("word_of"), "{before}");
    let content = server.ask(MESSAGES, &body)["content"].clone();
    assert_eq!(content[0]["name"], "ToolSearch");

    let found =
        ["mcp__mill__word_of", "mcp__mill__gone"].map(|name| json!({"type": "tool_reference", "tool_name": name}));
    let result = json!({"type": "tool_result", "tool_use_id": content[0]["id"], "content": found});
    let messages = body["messages"].as_array_mut().expect("a list");
    messages.extend([json!({"role": "assistant", "content": content}), json!({"role": "user", "content": [result]})]);
    let after = prompt(&server, MESSAGES, body.clone());
    // The list of tools is the same, so the prefix cache has the start.
    let more = after.strip_prefix(&before).expect("the same beginning");
    assert!(more.contains(&format!("{DEFINITION}\nThere is no tool \"mcp__mill__gone\".")), "{more}");

    for choice in
        [json!({"type": "auto"}), json!({"type": "any"}), json!({"type": "tool", "name": "mcp__mill__word_of"})]
    {
        body["tool_choice"] = choice;
        let reply = server.ask(MESSAGES, &body);
        assert_eq!(reply["stop_reason"], "tool_use");
        let call = &reply["content"][0];
        assert_eq!((&call["name"], &call["input"]), (&json!("mcp__mill__word_of"), &json!({"day": "today"})));
    }
}

#[test]
fn prompts_list_the_other_tools() {
    let (server, mut body) = (server(), body());
    body["tools"][0]["defer_loading"] = json!(true);
    let none = prompt(&server, MESSAGES, body.clone());
    assert!(!none.contains("<tools>") && !none.contains("word_of"), "{none}");
    // Its length does not count.
    let mut long = body.clone();
    long["tools"][1]["description"] = json!("x".repeat(5 * CONTEXT));
    assert_eq!(prompt(&server, MESSAGES, long), none);
    // Only the provider could find them.
    let tools = body["tools"].as_array_mut().expect("a list");
    tools.push(json!({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}));
    let all = prompt(&server, MESSAGES, body.clone());
    assert!(all.contains("\"ToolSearch\"") && all.contains("\"mcp__mill__word_of\""), "{all}");
    assert_eq!(server.post(MESSAGES, &body).header("x-gristmill-ignored"), Some("tools[2]"));
}

/// OpenAI's search is the provider's too.
#[test]
fn responses_list_all_functions() {
    let server = server();
    let function =
        json!({"type": "function", "name": "word_of", "defer_loading": true, "parameters": {"type": "object"}});
    let tools = json!([{"type": "tool_search"}, function, {"type": "namespace", "name": "mill", "tools": [function]}]);
    let input = json!([
        {"role": "user", "content": "Which word?"},
        {"type": "tool_search_call", "call_id": null, "execution": "server", "arguments": {"paths": ["mill"]}},
        {"type": "tool_search_output", "call_id": null, "execution": "server", "tools": [function]}]);
    let body = json!({"input": input, "tools": tools});
    let listed = prompt(&server, RESPONSES, body.clone());
    assert!(listed.contains("\"word_of\"") && listed.contains("\"mill__word_of\""), "{listed}");
    let reply = server.post(RESPONSES, &body);
    let ignored = "tools[0].tool_search, tools[1].defer_loading, tools[2].tools[0].defer_loading, \
                   input[1].tool_search_call, input[2].tool_search_output";
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, Some(ignored)), "{}", reply.text);
}
