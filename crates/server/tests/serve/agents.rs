//! What agents send, and the words by which they go on: prompts that are too long, results of tools that are no text,
//! paths without their prefix, halves of surrogates, names of thinking, functions in namespaces.

use gristmill_engine::Prompt;
use gristmill_engine::receipt::Receipt;
use serde_json::{Value, json};

use crate::server::{CONTEXT, Running};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// The prompt of a good request, after the template.
pub(crate) fn prompt(server: &Running, path: &str, mut body: Value) -> String {
    body["receipt"] = json!(true);
    body[if path == RESPONSES { "max_output_tokens" } else { "max_tokens" }] = json!(1);
    let usage = &server.ask(path, &body)["usage"]["gristmill"]["receipt"];
    let receipt = Receipt::read(usage).expect("a receipt");
    match receipt.requests().next().expect("a request").prompt {
        Prompt::Rendered { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_prompt_that_is_too_long_is_recognised() {
    let server = Running::usual();
    for length in [CONTEXT + 100, 5 * CONTEXT] {
        let long = "x".repeat(length);
        for stream in [false, true] {
            let body = json!({"model": "tiny", "max_tokens": 5, "stream": stream,
                              "messages": [{"role": "user", "content": long}]});
            let reply = server.post(MESSAGES, &body);
            let error = &reply.json()["error"];
            assert_eq!((reply.status, &error["type"]), (400, &json!("invalid_request_error")));
            // The pattern of Claude Code.
            let message = error["message"].as_str().expect("a text");
            let numbers = message.strip_prefix("prompt is too long: ").expect("its words").replace("at least ", "");
            let (tokens, context) = numbers.split_once(" tokens > ").expect("two numbers");
            assert_eq!(context, format!("{CONTEXT} maximum"));
            assert!(tokens.parse::<usize>().expect("a number") > CONTEXT, "{message}");
            for (path, body, param) in [
                (CHAT, body.clone(), "messages"),
                (RESPONSES, json!({"input": long, "stream": stream}), "input"),
                ("/v1/completions", json!({"prompt": long, "stream": stream}), "prompt"),
                ("/v1/embeddings", json!({"input": long}), "input"),
            ] {
                let reply = server.post(path, &body);
                let error = &reply.json()["error"];
                assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{path}: {}", reply.text);
                assert_eq!(error["code"], "context_length_exceeded");
                let message = error["message"].as_str().expect("a text");
                assert!(message.starts_with("This model's maximum context length is 1500 tokens"), "{message}");
                assert!(message.contains(&format!("reduce the length of the {param}")), "{message}");
            }
        }
    }
}

/// A reply that fills the context is told from one that `max_tokens` ends: a larger `max_tokens` would not help.
#[test]
fn a_full_context_is_named() {
    let server = Running::usual();
    let body = |tokens: usize| {
        json!({"model": "tiny", "max_tokens": tokens, "ignore_eos": true,
               "messages": [{"role": "user", "content": "x".repeat(CONTEXT - 100)}]})
    };
    for (tokens, reason) in [(10, "max_tokens"), (CONTEXT, "model_context_window_exceeded")] {
        let reply = server.ask(MESSAGES, &body(tokens));
        assert_eq!(reply["stop_reason"], reason);
        let events = server.events(MESSAGES, &body(tokens));
        assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], reason);
    }
    assert_eq!(server.ask(CHAT, &body(CONTEXT))["choices"][0]["finish_reason"], "length");
}

#[test]
fn results_of_tools_that_are_no_text() {
    let server = Running::usual();
    let line = "[image (image/png): not shown, because this model cannot read it]";
    let data = "data:image/png;base64,iVBORw0KGgo=";
    let source = json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="});
    let image = json!({"type": "image", "source": source});
    let messages = json!([
        {"role": "user", "content": "look at a.png"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"p": "a.png"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [image]}]}]);
    let tools = json!([{"name": "Read", "input_schema": {"type": "object"}}]);
    let body = json!({"model": "tiny", "messages": messages, "tools": tools});
    assert!(prompt(&server, MESSAGES, body.clone()).contains(line));
    let mut failed = body;
    failed["messages"][2]["content"][0] =
        json!({"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": "no such file"});
    assert!(prompt(&server, MESSAGES, failed).contains("Error: no such file"));

    let call = json!({"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}});
    let parts = json!([{"type": "text", "text": "a.png:"}, {"type": "image_url", "image_url": {"url": data}}]);
    let messages = json!([{"role": "user", "content": "look"}, {"role": "assistant", "tool_calls": [call]},
                          {"role": "tool", "tool_call_id": "c1", "content": parts}]);
    assert!(prompt(&server, CHAT, json!({"messages": messages})).contains(&format!("a.png:\n{line}")));

    let file = json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"});
    let input = json!([
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "view_image", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1",
         "output": [{"type": "input_image", "image_url": data}, file]}]);
    let found = prompt(&server, RESPONSES, json!({"input": input}));
    let file = "[file (a.pdf, application/pdf): not shown, because this model cannot read it]";
    assert!(found.contains(&format!("{line}\n{file}")), "{found}");

    // What the user sends is refused.
    for (path, body, param) in [
        (CHAT, json!({"messages": [{"role": "user", "content": parts}]}), "messages[0].content[1].image_url.url"),
        (
            RESPONSES,
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": data}]}]}),
            "input[0].content[0].image_url",
        ),
    ] {
        let reply = server.post(path, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.text);
    }
}

/// A system message in the middle, as Claude Code sends it, and a developer's.
#[test]
fn messages_of_the_system_anywhere() {
    let server = Running::usual();
    let later = |role: &str| json!([{"role": "user", "content": "hi"}, {"role": role, "content": "Agents: none."}]);
    for (path, body) in [
        (MESSAGES, json!({"model": "tiny", "system": "You are an agent.", "messages": later("system")})),
        (CHAT, json!({"messages": later("developer")})),
        (RESPONSES, json!({"input": later("developer")})),
    ] {
        let found = prompt(&server, path, body);
        assert!(found.find("hi").is_some_and(|hi| found.find("Agents: none.") > Some(hi)), "{path}: {found}");
    }
}

#[test]
fn fields_that_ask_for_nothing() {
    let server = Running::usual();
    let body = json!({"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]});
    for (path, field, value) in [
        (MESSAGES, "mcp_servers", json!([])),
        (MESSAGES, "container", json!({})),
        (MESSAGES, "grammar", json!("")),
        (CHAT, "functions", json!([])),
        (CHAT, "web_search_options", json!({})),
        (CHAT, "audio", json!(false)),
        (CHAT, "suffix", json!("")),
    ] {
        let mut body = body.clone();
        body[field] = value;
        let reply = server.post(path, &body);
        assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None), "{field}: {}", reply.text);
    }
    let mut body = body;
    body["mcp_servers"] = json!([{"type": "url", "url": "https://a.example"}]);
    assert_eq!(server.post(MESSAGES, &body).status, 400);
    body["mcp_servers"] = json!([]);
    // Without special tokens is not how a text is returned anyway.
    body["skip_special_tokens"] = json!(false);
    assert_eq!(server.post(MESSAGES, &body).status, 400);
}

/// Base addresses without `/v1`, or with one too many.
#[test]
fn paths_without_their_prefix() {
    let server = Running::usual();
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "tiny", "max_tokens": 2, "seed": 1, "messages": messages});
    for (path, body) in [
        ("/chat/completions", body.clone()),
        ("/messages", body.clone()),
        ("/completions", json!({"prompt": "hi", "max_tokens": 2})),
        ("/responses", json!({"input": "hi", "max_output_tokens": 2})),
        ("/embeddings", json!({"input": "hi"})),
    ] {
        for prefix in ["", "/v1", "/v1/v1"] {
            server.ask(&format!("{prefix}{path}"), &body);
        }
    }
    let count = json!({"model": "tiny", "messages": messages});
    assert!(server.ask("/messages/count_tokens", &count)["input_tokens"].is_u64());
    assert_eq!(server.get("/models").json(), server.get("/v1/models").json());
    assert_eq!(server.get("/models/tiny").status, 200);
    let refused = server.post("/messages", &json!({}));
    assert_eq!((refused.status, &refused.json()["type"]), (400, &json!("error")));
    assert_eq!(server.get("/v2/models").status, 404);
}

/// Programs cut texts at 16-bit units.
#[test]
fn halves_of_surrogates() {
    let server = Running::usual();
    let body = r#"{"messages": [{"role": "user", "content": "a \ud83d b \ud83d\ude00 \\ud83d"}], "max_tokens": 2}"#;
    let reply = server.post_text(CHAT, body, &[]);
    assert_eq!(reply.status, 200, "{}", reply.text);
    let body = body.replace("max_tokens", "ignored");
    let written = server.post_text("/apply-template", &body, &[]).json()["prompt"].clone();
    assert!(written.as_str().is_some_and(|prompt| prompt.contains("a \u{fffd} b 😀 \\ud83d")), "{written}");
    let arguments = json!({"text": "x"}).to_string().replace('x', "\\ud83d");
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let messages = json!([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]},
                          {"role": "tool", "tool_call_id": "c", "content": "1"}]);
    assert!(prompt(&server, CHAT, json!({"messages": messages})).contains('\u{fffd}'));
}

/// Each name under which clients turn thinking off, on each interface.
#[test]
fn thinking_is_turned_off_by_any_name() {
    let server = Running::usual();
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        (CHAT, json!({"messages": messages})),
        (MESSAGES, json!({"model": "tiny", "messages": messages})),
        (RESPONSES, json!({"input": "hi"})),
    ] {
        for (field, value) in [
            ("enable_thinking", json!(false)),
            ("think", json!(false)),
            ("thinking", json!({"type": "disabled"})),
            ("reasoning", json!({"effort": "none"})),
            ("reasoning", json!({"enabled": false})),
            ("reasoning_effort", json!("none")),
            ("reasoning_effort", json!("minimal")),
            ("chat_template_kwargs", json!({"enable_thinking": false})),
            ("chat_template_kwargs", json!({"thinking": false})),
        ] {
            let mut body = body.clone();
            body[field] = value;
            assert!(prompt(&server, path, body).ends_with("<think></think>"), "{path} {field}");
        }
        let mut own = body.clone();
        own["max_tokens"] = if path == MESSAGES { json!(1) } else { Value::Null };
        own["chat_template_kwargs"] = json!({"messages": [{"role": "user", "content": "other"}]});
        let reply = server.post(path, &own);
        assert!(reply.status == 400 && reply.text.contains("chat_template_kwargs.messages"), "{}", reply.text);
        assert!(!prompt(&server, path, body).contains("<think>"));
    }
}

/// The functions of a namespace are called, and the call has both names, as Codex wants it.
#[test]
fn functions_in_namespaces() {
    let server = Running::usual();
    let schema = json!({"type": "object", "properties": {"path": {"enum": ["a", "b"]}}, "required": ["path"]});
    let function = |name: &str| json!({"type": "function", "name": name, "description": "lists", "parameters": schema});
    let inner = json!([function("list_dir"), {"type": "custom", "name": "grep"}, function("read")]);
    let tools = json!([{"type": "namespace", "name": "mcp__files", "description": "the files", "tools": inner},
                       {"type": "web_search"}, function("stop")]);
    let body = json!({"input": "list my files", "tools": tools});
    let told = prompt(&server, RESPONSES, body.clone());
    for words in ["mcp__files__list_dir", "mcp__files__read", "(Namespace mcp__files: the files)", "\"stop\""] {
        assert_eq!(told.matches(words).count(), 1, "{words} in {told}");
    }
    for (name, choice) in [
        ("list_dir", json!({"type": "function", "name": "list_dir"})),
        ("read", json!({"type": "function", "name": "read", "namespace": "mcp__files"})),
        ("read", json!({"type": "function", "name": "mcp__files__read"})),
        ("read", json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "read"}]})),
    ] {
        let mut body = body.clone();
        (body["tool_choice"], body["seed"]) = (choice, json!(1));
        let reply = server.post(RESPONSES, &body);
        let ignored = reply.header("x-gristmill-ignored");
        assert_eq!((reply.status, ignored), (200, Some("tools[0].tools[1].custom, tools[1].web_search")));
        let whole = reply.json();
        let call = &whole["output"][0];
        assert_eq!((&call["name"], &call["namespace"]), (&json!(name), &json!("mcp__files")), "{call}");
        assert_eq!(whole["tools"].as_array().map(Vec::len), Some(2));
        let events = server.events(RESPONSES, &body);
        let added = events.iter().find(|event| event["type"] == "response.output_item.added").expect("an item");
        assert_eq!((&added["item"]["name"], &added["item"]["namespace"]), (&json!(name), &json!("mcp__files")));
        // The reply's items can be sent as they are.
        let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"});
        let input = json!([{"role": "user", "content": "list my files"}, call, output]);
        let told = prompt(&server, RESPONSES, json!({"input": input, "tools": body["tools"]}));
        assert!(told.contains(&format!("\"name\": \"mcp__files__{name}\", \"arguments\"")), "{told}");
    }
    let twice = json!([{"type": "namespace", "name": "a", "tools": [function("f")]}, function("a__f")]);
    for (tools, param) in [
        (twice, "tools[1].name"),
        (json!([{"type": "namespace", "tools": [function("f")]}]), "tools[0].name"),
        (json!([{"type": "namespace", "name": "a", "tools": [{"type": "function"}]}]), "tools[0].tools[0].name"),
    ] {
        let reply = server.post(RESPONSES, &json!({"input": "x", "tools": tools}));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.text);
    }
}
