//! Histories that another server has written are answered: what is words is in the prompt.

use serde_json::{Value, json};

use crate::agents::prompt;
use crate::server::{Running, engine, model, options};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

#[test]
fn blocks_of_anthropic() {
    let server = Running::usual();
    let page =
        json!({"type": "web_search_result", "title": "Rye", "url": "https://a.example", "encrypted_content": "x"});
    let body = json!({"model": "tiny", "messages": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rye"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [page]},
            {"type": "text", "text": "It is a grain."}]},
        {"role": "user", "content": "and?"}]});
    let found = prompt(&server, MESSAGES, body.clone());
    let parts = ["\"name\": \"web_search\"", "\"query\": \"rye\"", "Rye\nhttps://a.example", "It is a grain.", "and?"];
    let places: Vec<usize> =
        parts.iter().map(|part| found.find(part).unwrap_or_else(|| panic!("{part}: {found}"))).collect();
    assert!(places.is_sorted(), "{found}");
    assert!(server.ask("/v1/messages/count_tokens", &body)["input_tokens"].is_u64());
    let mut unknown = body;
    unknown["max_tokens"] = json!(2);
    unknown["messages"][1]["content"][0]["type"] = json!("hologram_use");
    let refused = server.post(MESSAGES, &unknown);
    assert!(refused.status == 400 && refused.text.contains("hologram_use"), "{}", refused.text);
}

#[test]
fn items_of_openai() {
    let server = Running::usual();
    let input = json!([
        {"role": "user", "content": "look"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rye"}},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "item_reference", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "c1", "output": "quern"}]);
    let body = json!({"input": input});
    let found = prompt(&server, RESPONSES, body.clone());
    for part in ["\"query\": \"rye\"", "[results: not shown", "[summary of the conversation", "[item: not", "quern"] {
        assert!(found.contains(part), "{part}: {found}");
    }
    let mut short = body;
    short["max_output_tokens"] = json!(2);
    let reply = server.post(RESPONSES, &short);
    let ignored = reply.header("x-gristmill-ignored");
    assert_eq!((reply.status, ignored), (200, Some("input[2].compaction, input[3].item_reference")));
    let strict = Running::new(engine(&model(), 1), gristmill_server::Options { strict: true, ..options() });
    assert_eq!(strict.post(RESPONSES, &short).json()["error"]["param"], "input[2].compaction");
}

/// Codex sends its tools as an item, again in each request, and its MCP servers as namespaces of it.
#[test]
fn tools_in_an_item() {
    let server = Running::usual();
    let schema =
        |kinds: &[&str]| json!({"type": "object", "properties": {"kind": {"enum": kinds}}, "required": ["kind"]});
    let function = |name: &str, kinds: &[&str]| json!({"type": "function", "name": name, "parameters": schema(kinds)});
    let item = |kinds: &[&str]| {
        json!({"type": "additional_tools", "role": "developer", "tools": [function("pick", kinds), {"type": "custom", "name": "x"},
               {"type": "namespace", "name": "mcp__mill", "tools": [function("word", kinds)]}]})
    };
    let input = json!([item(&["old"]), {"role": "user", "content": "look"}, item(&["new"])]);
    let body = json!({"input": input, "tools": [function("stop", &["now"])], "max_output_tokens": 800});
    let found = prompt(&server, RESPONSES, body.clone());
    for (part, times) in
        [("\"name\":\"pick\"", 1), ("mcp__mill__word", 1), ("\"stop\"", 1), ("\"old\"", 0), ("\"new\"", 2)]
    {
        assert_eq!(found.matches(part).count(), times, "{part}: {found}");
    }
    for (name, namespace) in [("pick", Value::Null), ("word", json!("mcp__mill"))] {
        let mut named = body.clone();
        named["tool_choice"] = json!({"type": "function", "name": name});
        let reply = server.post(RESPONSES, &named);
        let ignored = "input[0].tools[1].custom, input[2].tools[1].custom";
        assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, Some(ignored)), "{}", reply.text);
        let call = reply.json()["output"][0].clone();
        assert_eq!((&call["name"], &call["namespace"]), (&json!(name), &namespace));
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().expect("a text")).expect("JSON");
        assert_eq!(arguments, json!({"kind": "new"}));
    }
}

/// What clients of other servers leave in the messages of a chat: calls without arguments, results without a text,
/// calls in their older form, and reasoning as parts.
#[test]
fn messages_of_other_clients() {
    let server = Running::usual();
    let asked = json!({"role": "user", "content": "look"});
    for arguments in [json!("null"), json!(" "), json!({}), Value::Null] {
        for content in [json!({"content": null}), json!({"content": ""}), json!({})] {
            let mut result = content;
            result["role"] = json!("tool");
            result["tool_call_id"] = json!("c1");
            let call = json!({"id": "c1", "type": "function", "function": {"name": "rye", "arguments": arguments}});
            let body = json!({"messages": [asked, {"role": "assistant", "tool_calls": [call]}, result]});
            let found = prompt(&server, CHAT, body);
            assert!(found.contains(r#""name": "rye""#) && found.contains(r#""arguments": {}"#), "{arguments}: {found}");
        }
    }
    // A call that a model did not finish, and one that is no object: templates print the text.
    for (arguments, printed) in [("{\"mill\": ", r#""arguments": "{\"mill\": ""#), ("[7]", r#""arguments": "[7]""#)] {
        let call = json!({"id": "c1", "type": "function", "function": {"name": "rye", "arguments": arguments}});
        let result = json!({"role": "tool", "tool_call_id": "c1", "content": "no JSON object"});
        let body = json!({"messages": [asked, {"role": "assistant", "tool_calls": [call]}, result]});
        let found = prompt(&server, CHAT, body);
        assert!(found.contains(printed), "{printed}: {found}");
        let item = json!({"type": "function_call", "call_id": "c1", "name": "rye", "arguments": arguments});
        let output = json!({"type": "function_call_output", "call_id": "c1", "output": "no JSON object"});
        let found = prompt(&server, RESPONSES, json!({"input": [asked, item, output]}));
        assert!(found.contains(printed), "{printed}: {found}");
    }
    let call = json!({"name": "rye", "arguments": "{\"mill\": 7}"});
    let body = json!({"messages": [asked, {"role": "assistant", "content": null, "function_call": call},
                                   {"role": "function", "name": "rye", "content": "quern"}]});
    let found = prompt(&server, CHAT, body);
    for part in [r#""name": "rye""#, r#""mill": 7"#, "quern"] {
        assert!(found.contains(part), "{part}: {found}");
    }
    for thinking in [json!("husk"), json!([{"type": "text", "text": "husk"}])] {
        let parts = json!([{"type": "thinking", "thinking": thinking}, {"type": "text", "text": "It is a grain."}]);
        let said = json!({"role": "assistant", "content": parts});
        let found = prompt(&server, CHAT, json!({"messages": [asked, said, asked]}));
        assert!(found.contains("It is a grain."), "{found}");
        // The reasoning is not a part of the text.
        let plain = json!({"role": "assistant", "content": "It is a grain.", "reasoning_content": "husk"});
        assert_eq!(found, prompt(&server, CHAT, json!({"messages": [asked, plain, asked]})));
        let refused = server.post(CHAT, &json!({"messages": [{"role": "user", "content": parts}]}));
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("messages[0].content[0].type")));
    }
}

/// The field by which other servers continue a message.
#[test]
fn a_message_that_is_a_prefix() {
    let server = Running::usual();
    let messages = |more: Value| {
        let mut last = json!({"role": "assistant", "content": "It is"});
        last.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!([{"role": "user", "content": "look"}, last])
    };
    let continued = prompt(&server, CHAT, json!({"messages": messages(json!({})), "continue_final_message": true}));
    assert!(continued.ends_with("It is"), "{continued}");
    for field in ["prefix", "partial"] {
        assert_eq!(prompt(&server, CHAT, json!({"messages": messages(json!({field: true}))})), continued);
        assert_ne!(prompt(&server, CHAT, json!({"messages": messages(json!({field: false}))})), continued);
        // A continued message stays marked in the messages of later requests.
        let mut later = messages(json!({field: true}));
        later.as_array_mut().expect("a list").push(json!({"role": "user", "content": "and?"}));
        assert!(!prompt(&server, CHAT, json!({"messages": later})).ends_with("and?"));
    }
}
