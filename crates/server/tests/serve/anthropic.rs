//! `/v1/messages`.

use gristmill_engine::template::{Message, Role};
use gristmill_engine::{Chat, ConverseOptions, GenerationOptions, SamplingOptions};
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

const PATH: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";

fn body(tokens: usize) -> Value {
    json!({"model": "tiny", "max_tokens": tokens, "temperature": 0, "system": "be brief",
           "messages": [{"role": "user", "content": [
               {"type": "text", "text": "abc", "cache_control": {"type": "ephemeral"}}]}]})
}

#[test]
fn a_reply_whole_and_in_events() {
    let server = Running::usual();
    let whole = server.ask(PATH, &body(25));
    assert_eq!(
        (&whole["type"], &whole["role"], &whole["model"]),
        (&json!("message"), &json!("assistant"), &json!("tiny"))
    );
    let text = whole["content"][0]["text"].as_str().expect("text");
    // The same conversation through the other interface.
    let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "abc"}]);
    let chat = json!({"messages": messages, "max_tokens": 25, "temperature": 0});
    let other = server.ask("/v1/chat/completions", &chat);
    assert_eq!(other["choices"][0]["message"]["content"], text);
    let usage = &whole["usage"];
    let count = server.ask("/v1/messages/count_tokens", &{
        let mut body = body(1);
        body.as_object_mut().expect("an object").retain(|name, _| name != "max_tokens" && name != "temperature");
        body
    });
    assert_eq!(count["input_tokens"], other["usage"]["prompt_tokens"]);
    assert_eq!((&usage["input_tokens"], &usage["cache_read_input_tokens"]), (&count["input_tokens"], &json!(0)));

    let events = server.events(PATH, &body(25));
    let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(types[..2], ["message_start", "content_block_start"]);
    assert_eq!(types[types.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], count["input_tokens"]);
    let streamed: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(streamed, text);
    let delta = &events[events.len() - 2];
    assert_eq!(delta["delta"]["stop_reason"], whole["stop_reason"]);
    // The second time, what is computed already is not computed again.
    let read = delta["usage"]["cache_read_input_tokens"].as_u64().expect("a number");
    assert!(read >= 16 && read + delta["usage"]["input_tokens"].as_u64().expect("a number") == count["input_tokens"]);
}

/// The fields that Claude Code sends with its default model.
#[test]
fn a_request_of_claude_code_is_served() {
    let server = Running::usual();
    let cached = json!({"type": "ephemeral"});
    let tool = json!({"name": "Bash", "description": "Runs a command.", "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["command"],
        "properties": {"command": {"type": "string", "description": "The command"}}, "additionalProperties": false}});
    let body = json!({"model": "tiny", "max_tokens": 5, "stream": true, "metadata": {"user_id": "u"},
        "system": [{"type": "text", "text": "You are a program.", "cache_control": cached}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": cached}]}],
        "tools": [tool], "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}});
    let reply = server.post(PATH, &body);
    assert_eq!(
        (reply.status, reply.header("x-gristmill-ignored")),
        (200, Some("context_management")),
        "{}",
        reply.text
    );
    assert!(reply.text.contains("event: message_stop"), "{}", reply.text);
}

/// A conversation that ends with the assistant's words is continued, not answered.
#[test]
fn a_prefilled_reply_is_continued() {
    let model = model();
    let alone = engine(&model, 1);
    let server = Running::new(engine(&model, 1), options());
    let messages = vec![Message::new(Role::User, "abc"), Message::new(Role::Assistant, "de")];
    let chat = Chat { continues: true, ..Chat::new(messages) };
    let prompt = alone.converse(chat.clone(), ConverseOptions::default()).expect("a conversation").prompt().clone();
    let prompt = alone.tokens(&prompt).expect("tokens").len();
    let sampling = Some(SamplingOptions::greedy());
    let generation = GenerationOptions { sampling, max_tokens: Some(20), ..GenerationOptions::default() };
    let reply = alone.reply(chat, ConverseOptions::default(), generation).expect("good");
    let (expected, _) = reply.wait().expect("it runs");
    let messages = json!([{"role": "user", "content": "abc"}, {"role": "assistant", "content": "de"}]);
    let body = json!({"model": "tiny", "max_tokens": 20, "temperature": 0, "messages": messages});
    let reply = server.ask(PATH, &body);
    // A reply without text has no block.
    assert_eq!(reply["content"][0]["text"].as_str().unwrap_or_default(), expected.content);
    assert_eq!(reply["usage"]["input_tokens"], prompt);
    // Chats continue if they are asked to.
    let mut body = json!({"messages": messages, "max_tokens": 20, "temperature": 0});
    assert_ne!(server.ask(CHAT, &body)["usage"]["prompt_tokens"], prompt);
    (body["continue_final_message"], body["add_generation_prompt"]) = (json!(true), json!(false));
    let continued = server.ask(CHAT, &body);
    assert_eq!(continued["usage"]["prompt_tokens"], prompt);
    assert_eq!(continued["choices"][0]["message"]["content"], expected.content);
    let refused = |body: &Value| server.post(CHAT, body).json()["error"]["param"].clone();
    body["continue_final_message"] = json!(false);
    assert_eq!(refused(&body), "add_generation_prompt");
    body["continue_final_message"] = json!(true);
    body["messages"] = json!([{"role": "user", "content": "abc"}]);
    assert_eq!(refused(&body), "messages");
}

#[test]
fn names_of_events_precede_their_data() {
    let server = Running::usual();
    let mut streamed = body(3);
    streamed["stream"] = json!(true);
    let text = server.post(PATH, &streamed).text;
    let first: Vec<&str> = text.lines().take(2).collect();
    assert!(first[0] == "event: message_start" && first[1].starts_with("data: {"), "{first:?}");
}

#[test]
fn output_config_is_obeyed() {
    let server = Running::usual();
    let count = |config: Value| {
        let mut body = body(5);
        body["output_config"] = config;
        let reply = server.ask(PATH, &body);
        reply["usage"]["input_tokens"].as_u64().expect("a number")
            + reply["usage"]["cache_read_input_tokens"].as_u64().expect("a number")
    };
    assert_eq!(count(json!({"effort": "high"})), count(json!({})));
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]});
    let format = json!({"type": "json_schema", "schema": schema});
    for (field, value) in
        [("output_config", json!({"format": format, "effort": "max"})), ("output_format", format.clone())]
    {
        let mut body = body(200);
        body[field] = value;
        let reply = server.ask(PATH, &body);
        let text = reply["content"][0]["text"].as_str().expect("text");
        let found: Value = serde_json::from_str(text).expect("JSON");
        assert!(["x", "y"].map(Value::from).contains(&found["a"]), "{text}");
    }
}

#[test]
fn a_stop_sequence_is_named() {
    let server = Running::new(engine(&model(), 1), options());
    // A random model may end its reply before it has a stop sequence to name.
    let mut with = body(40);
    with["ignore_eos"] = json!(true);
    let whole = server.ask(PATH, &with);
    let text = whole["content"][0]["text"].as_str().expect("text");
    let stop: String = text.chars().skip(5).take(2).collect();
    with["stop_sequences"] = json!(["\u{1}\u{2}\u{3}", stop]);
    let stopped = server.ask(PATH, &with);
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    // Random text may start with it; a reply without text has no block.
    let before = stopped["content"][0]["text"].as_str().unwrap_or_default();
    assert_eq!(before, &text[..text.find(&stop).expect("it is in there")]);
}

#[test]
fn refusals_have_its_form() {
    let server = Running::usual();
    let error = |change: &dyn Fn(&mut Value)| {
        let mut body = body(5);
        change(&mut body);
        let reply = server.post(PATH, &body);
        let found = reply.json();
        assert_eq!(found["type"], "error");
        (reply.status, found["error"]["type"].clone(), found["error"]["message"].as_str().expect("text").to_owned())
    };
    let (status, kind, message) = error(&|body| body["max_tokens"] = json!(0));
    assert_eq!((status, kind), (400, json!("invalid_request_error")));
    assert!(message.contains("max_tokens"), "{message}");
    let (status, _, message) = error(&|body| body["model"] = json!("other"));
    assert!(status == 404 && !message.contains("leave model out"), "{message}");
    assert!(error(&|body| body["output_config"] = json!({"effort": "huge"})).2.contains("output_config.effort"));
    let format = json!({"type": "json_schema", "schema": {"properties": {"a": {"unevaluatedItems": 1}}}});
    let (.., message) = error(&|body| body["output_config"] = json!({"format": format}));
    assert!(message.starts_with("output_config.format.schema.properties.a.unevaluatedItems: "), "{message}");
    assert!(error(&|body| body["tools"] = json!([{"name": "f"}, {"name": "f"}])).2.starts_with("tools[1].name: "));
    assert!(error(&|body| body["tools"] = json!([{}])).2.contains("tools[0].name"));
    assert!(error(&|body| body["tool_choice"] = json!({"type": "any"})).2.contains("tool_choice"));
    assert!(error(&|body| body["mcp_servers"] = json!([{"url": "x"}])).2.contains("mcp_servers"));
    assert!(error(&|body| body["messages"][0]["content"] = json!([{"type": "image"}])).2.contains("image"));
    assert!(error(&|body| body["thinking"] = json!({"type": "maybe"})).2.contains("thinking.type"));
    assert_eq!(error(&|body| drop(body.as_object_mut().expect("an object").remove("max_tokens"))).0, 400);
    let reply = server.post_text(PATH, "{", &[]);
    assert_eq!((reply.status, reply.json()["type"].clone()), (400, json!("error")));
}

/// Anthropic's tool runner requests a conversation that the server keeps, and sends the whole of it if it reads this.
#[test]
fn a_thread_is_refused_as_clients_expect() {
    let server = Running::usual();
    let mut body = body(5);
    body["thread"] = json!({"type": "new"});
    let reply = server.post(PATH, &body);
    let error = &reply.json()["error"];
    assert_eq!(reply.status, 400, "{error}");
    let expected = json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]});
    assert_eq!((&error["type"], &error["details"]), (&json!("invalid_request_error"), &expected));
    body["thread"] = Value::Null;
    body["max_tokens"] = json!(0);
    assert!(server.post(PATH, &body).json()["error"].get("details").is_none());
}

/// A message of the assistant at the end is continued: nothing closes it, and the reply has only what follows.
#[test]
fn the_last_message_is_continued() {
    let server = Running::usual();
    let ask = |path: &str, messages: Value| {
        server.ask(path, &json!({"model": "tiny", "max_tokens": 5, "messages": messages}))
    };
    let user = json!({"role": "user", "content": "abc"});
    let count =
        |messages: Value| ask("/v1/messages/count_tokens", messages)["input_tokens"].as_u64().expect("a number");
    let started = json!([user, {"role": "assistant", "content": "ab"}]);
    // The template's marks of a reply without reasoning, and a pair of letters, which is a token.
    assert_eq!(count(started.clone()), count(json!([user])) + "<think></think>".len() as u64 + 1);
    assert_eq!(ask("/v1/messages", started)["role"], "assistant");
}
