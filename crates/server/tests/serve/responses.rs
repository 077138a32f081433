//! `/v1/responses`.

use std::time::{Duration, Instant};

use gristmill_server::Options;
use serde_json::{Value, json};

use crate::server::{CONTEXT, Running, changed_model, engine, model, options};

const PATH: &str = "/v1/responses";
const CHAT: &str = "/v1/chat/completions";

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// A request whose reply has this number of tokens.
fn asked(tokens: usize, more: Value) -> Value {
    with(json!({"input": "abc", "seed": 5, "max_output_tokens": tokens, "ignore_eos": true}), more)
}

fn schema() -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["kind"],
           "properties": {"kind": {"enum": ["red", "green"]}}})
}

fn tools() -> Value {
    json!([{"type": "function", "name": "pick", "parameters": schema(), "strict": true}, {"type": "web_search"}])
}

/// The types of events, of which repeated ones are told once.
fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    types.dedup();
    types
}

/// The deltas of this kind of text.
fn joined(events: &[Value], kind: &str) -> String {
    let kind = format!("response.{kind}.delta");
    events.iter().filter(|event| event["type"] == *kind).filter_map(|event| event["delta"].as_str()).collect()
}

/// A reply without names and times.
fn plain(mut reply: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields
                    .retain(|name, _| !["id", "call_id", "created_at", "completed_at", "gristmill"].contains(&&**name));
                fields.values_mut().for_each(strip);
            }
            Value::Array(values) => values.iter_mut().for_each(strip),
            _ => {}
        }
    }
    reply["usage"]["input_tokens_details"] = Value::Null;
    strip(&mut reply);
    reply
}

#[test]
fn a_reply_whole_and_in_events() {
    let server = Running::usual();
    let more = json!({"instructions": "be brief", "metadata": {"a": "b"}, "user": "me", "store": true, "top_p": 0.5});
    let body = asked(25, more);
    let reply = server.post(PATH, &body);
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None), "{}", reply.text);
    let whole = reply.json();
    let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "abc"}]);
    let chat = json!({"messages": messages, "max_tokens": 25, "seed": 5, "ignore_eos": true, "top_p": 0.5});
    let chat = server.ask(CHAT, &chat);
    let text = chat["choices"][0]["message"]["content"].as_str().expect("text");
    let item = &whole["output"][0];
    assert_eq!(item["content"], json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]));
    assert_eq!(
        (&item["type"], &item["role"], &item["status"]),
        (&json!("message"), &json!("assistant"), &json!("incomplete"))
    );
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(whole["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!((&whole["store"], &whole["metadata"], &whole["user"]), (&json!(true), &json!({"a": "b"}), &json!("me")));
    assert_eq!(
        (&whole["instructions"], &whole["top_p"], &whole["model"]),
        (&json!("be brief"), &json!(0.5), &json!("tiny"))
    );
    let usage = &whole["usage"];
    assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!((&usage["output_tokens"], &usage["output_tokens_details"]["reasoning_tokens"]), (&json!(25), &json!(0)));
    assert_eq!(usage["total_tokens"], chat["usage"]["total_tokens"]);
    assert_eq!(usage["gristmill"]["choices"][0]["seed"], 5);

    let events = server.events(PATH, &body);
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ];
    assert_eq!(types(&events), expected);
    assert_eq!(joined(&events, "output_text"), text);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let [created, _, item, part, .., text_done, part_done, item_done, last] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&created["response"]["status"], &created["response"]["output"]), (&json!("in_progress"), &json!([])));
    assert_eq!((&item["item"]["content"], &item["item"]["status"]), (&json!([]), &json!("in_progress")));
    assert_eq!((&part["part"]["text"], &part["item_id"]), (&json!(""), &item["item"]["id"]));
    assert_eq!((&text_done["text"], &part_done["part"]["text"]), (&json!(text), &json!(text)));
    assert_eq!(last["response"]["output"][0], item_done["item"]);
    assert_eq!(plain(last["response"].clone()), plain(whole));
    assert!(usage_is_cached(&last["response"]));
    // Each event has its type as its name.
    let raw = server.post(PATH, &with(body, json!({"stream": true}))).text;
    let names: Vec<&str> = raw.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, events.iter().filter_map(|event| event["type"].as_str()).collect::<Vec<_>>());
    assert!(!raw.contains("[DONE]"));
}

fn usage_is_cached(reply: &Value) -> bool {
    reply["usage"]["input_tokens_details"]["cached_tokens"].as_u64().is_some_and(|cached| cached > 0)
}

#[test]
fn calls_and_their_outputs() {
    let server = Running::usual();
    for choice in [json!("required"), json!({"type": "function", "name": "pick"})] {
        let body = json!({"input": "abc", "seed": 1, "tools": tools(), "tool_choice": choice});
        let reply = server.post(PATH, &body);
        assert_eq!(
            (reply.status, reply.header("x-gristmill-ignored")),
            (200, Some("tools[1].web_search")),
            "{}",
            reply.text
        );
        let whole = reply.json();
        assert_eq!((&whole["status"], &whole["incomplete_details"]), (&json!("completed"), &Value::Null));
        assert!(whole["completed_at"].is_u64() && whole["tools"].as_array().map(Vec::len) == Some(1));
        assert_eq!((whole["output"].as_array().map(Vec::len), &whole["tool_choice"]), (Some(1), &choice));
        let call = whole["output"][0].clone();
        assert_eq!(
            (&call["type"], &call["name"], &call["status"]),
            (&json!("function_call"), &json!("pick"), &json!("completed"))
        );
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().expect("text")).expect("JSON");
        assert!(["red", "green"].map(Value::from).contains(&arguments["kind"]));

        let events = server.events(PATH, &body);
        let expected = [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ];
        assert_eq!(types(&events), expected);
        assert_eq!((&events[2]["item"]["arguments"], &events[2]["item"]["name"]), (&json!(""), &json!("pick")));
        assert_eq!(joined(&events, "function_call_arguments"), call["arguments"].as_str().expect("text"));
        assert_eq!(plain(events[6]["response"].clone()), plain(whole.clone()));

        // The reply is a part of the next request, as the same conversation is in a chat.
        let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "42"});
        let next = asked(10, json!({"input": [{"role": "user", "content": "abc"}, call, output]}));
        let function = json!({"name": "pick", "arguments": call["arguments"]});
        let chat = json!({"seed": 5, "max_tokens": 10, "ignore_eos": true, "messages": [
            {"role": "user", "content": "abc"},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c", "content": "42"}]});
        let text = &server.ask(CHAT, &chat)["choices"][0]["message"]["content"];
        assert_eq!(&server.ask(PATH, &next)["output"][0]["content"][0]["text"], text);
    }
    let none = server.ask(PATH, &asked(5, json!({"tools": tools(), "tool_choice": "none"})));
    assert_eq!(none["output"][0]["type"], "message");
    // A call that the model chooses may differ from the schema.
    let auto = server.post(PATH, &asked(5, json!({"tools": tools()})));
    assert_eq!(auto.header("x-gristmill-ignored"), Some("tools[1].web_search, tools[0].strict"));
    // A call that is cut is text.
    let cut = asked(4, json!({"tools": tools(), "tool_choice": "required", "ignore_eos": false}));
    let cut = server.ask(PATH, &cut);
    assert_eq!((&cut["status"], &cut["output"][0]["type"]), (&json!("incomplete"), &json!("message")));
}

#[test]
fn formats_of_the_text() {
    let server = Running::usual();
    let text = |more: Value| {
        let reply = server.ask(PATH, &with(json!({"input": "abc", "seed": 3, "max_output_tokens": 800}), more));
        assert_eq!(reply["status"], "completed");
        let part = reply["output"][0]["content"][0]["text"].as_str().expect("text").to_owned();
        (part, reply["text"]["format"].clone())
    };
    let format = json!({"type": "json_schema", "name": "x", "strict": true, "schema": schema()});
    let (json, told) = text(json!({"text": {"format": format}}));
    assert!(["red", "green"].map(Value::from).contains(&serde_json::from_str::<Value>(&json).expect("JSON")["kind"]));
    assert_eq!(told, format);
    assert_eq!(text(json!({"guided_regex": "(ab){3}", "text": {"format": {"type": "text"}}})).0, "ababab");
    assert_eq!(text(json!({"guided_grammar": "start: \"x\" \"yz\""})), ("xyz".to_owned(), json!({"type": "text"})));
    let object = server.ask(PATH, &asked(20, json!({"text": {"format": {"type": "json_object"}}})));
    let text = object["output"][0]["content"][0]["text"].as_str().expect("text").trim_start();
    assert!(text.is_empty() || text.starts_with('{'), "{text}");
}

#[test]
fn log_probabilities() {
    let server = Running::usual();
    let more = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 3});
    let body = asked(10, more);
    let part = server.ask(PATH, &body)["output"][0]["content"][0].clone();
    let tokens = part["logprobs"].as_array().expect("a list");
    let bytes: Vec<u8> = tokens
        .iter()
        .flat_map(|token| token["bytes"].as_array().expect("a list"))
        .map(|byte| byte.as_u64().expect("a byte") as u8)
        .collect();
    // Control tokens are no part of the text.
    let all = String::from_utf8_lossy(&bytes).into_owned();
    assert!(part["text"] == all || all.contains("<|"), "{all:?} and {part}");
    assert!(!tokens.is_empty() && tokens.len() <= 10);
    for token in tokens {
        assert_eq!(token["top_logprobs"].as_array().map(Vec::len), Some(3));
        let of = |token: &Value| token["logprob"].as_f64().expect("a number");
        assert!(of(&token["top_logprobs"][0]) >= of(token) && of(token) <= 0.0);
    }
    let events = server.events(PATH, &body);
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    let streamed: Vec<&Value> = deltas.filter_map(|event| event["logprobs"].as_array()).flatten().collect();
    assert_eq!(streamed, tokens.iter().collect::<Vec<_>>());
}

#[test]
fn reasoning() {
    // The template opens the reasoning, and random weights do not close it.
    let template = "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}{{ m.content }}{% endfor %}<think>\n";
    let server =
        Running::new(engine(&changed_model(|tiny| tiny.set("tokenizer.chat_template", template)), 2), options());
    let body = asked(20, json!({"reasoning": {"effort": "high"}}));
    let whole = server.ask(PATH, &body);
    let item = &whole["output"][0];
    assert_eq!(
        (&item["type"], &item["summary"], &item["status"]),
        (&json!("reasoning"), &json!([]), &json!("incomplete"))
    );
    assert_eq!(whole["output"].as_array().map(Vec::len), Some(1));
    assert_eq!(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 20);
    assert_eq!(whole["reasoning"]["effort"], "high");
    let events = server.events(PATH, &body);
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ];
    assert_eq!(types(&events), expected);
    assert_eq!(item["content"], json!([{"type": "reasoning_text", "text": joined(&events, "reasoning_text")}]));
    // The text of reasoning returns to the template.
    let tokens = |input: Value| server.ask(PATH, &asked(1, json!({"input": input})))["usage"]["input_tokens"].as_u64();
    let part = json!({"type": "reasoning_text", "text": "12345"});
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "content": [part]});
    let [user, said] = ["user", "assistant"].map(|role| json!({"role": role, "content": "x"}));
    let without = tokens(json!([user, said])).expect("a number");
    assert_eq!(tokens(json!([user, thought, said])), Some(without + 5));
}

#[test]
fn a_reply_that_fails() {
    let server = Running::usual();
    // An end-of-generation token ends the text, so nothing can follow it.
    let body = asked(20, json!({"guided_grammar": "start: \"ab\" <|im_end|> \"c\""}));
    assert_eq!(server.post(PATH, &body).status, 422);
    let events = server.events(PATH, &body);
    let [.., error, failed] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("server_error")));
    assert_eq!((&failed["type"], &failed["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    let response = &failed["response"];
    assert_eq!(
        (&response["error"]["code"], &response["error"]["message"]),
        (&json!("server_error"), &error["message"])
    );
    assert_eq!(response["output"][0]["content"][0]["text"], joined(&events, "output_text"));
    assert_eq!((&response["output"][0]["status"], &response["usage"]), (&json!("incomplete"), &Value::Null));
    assert_eq!(server.ended("error"), 2.0);
}

#[test]
fn what_changes_nothing_is_named() {
    let more = json!({"text": {"verbosity": "low"}, "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"], "truncation": "auto", "store": false, "background": false,
        "previous_response_id": null, "max_tool_calls": 3, "prompt_cache_key": "x", "service_tier": "auto",
        "stream_options": {"include_obfuscation": false},
        "input": [{"role": "user", "content": "x"}, {"type": "reasoning", "summary": [], "encrypted_content": "y"}]});
    let reply = Running::usual().post(PATH, &asked(1, more.clone()));
    let named = "text.verbosity, reasoning.summary, truncation, include[0].reasoning.encrypted_content, \
                 input[1].encrypted_content";
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, Some(named)), "{}", reply.text);
    let strict = Running::new(engine(&model(), 1), Options { strict: true, ..options() });
    for (more, param) in [
        (json!({"text": {"verbosity": "low"}}), "text.verbosity"),
        (json!({"tools": tools(), "tool_choice": "none"}), "tools[1].web_search"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"colour": "red"}), "colour"),
    ] {
        let reply = strict.post(PATH, &asked(1, more));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)));
    }
    assert_eq!(strict.post(PATH, &asked(1, json!({"store": true}))).status, 200);
}

#[test]
fn what_is_refused() {
    let server = Running::usual();
    let picture = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]);
    let long = "x".repeat(CONTEXT + 1);
    for (more, param) in [
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": long}), "input"),
        (json!({"input": picture}), "input[0].content[0].image_url"),
        (json!({"input": [{"type": "hologram_call", "id": "h_1"}]}), "input[0].type"),
        (json!({"input": [{"type": "additional_tools", "tools": [{"name": "f"}]}]}), "input[0].tools[0].type"),
        (json!({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}), "input[0].call_id"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"prompt": {"id": "pmpt_1"}}), "prompt"),
        (json!({"background": true}), "background"),
        (json!({"truncation": "middle"}), "truncation"),
        (json!({"messages": [{"role": "user", "content": "x"}]}), "messages"),
        (json!({"max_tokens": 5}), "max_tokens"),
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
        (json!({"instructions": 5}), "instructions"),
        (json!({"metadata": {"a": 1}}), "metadata.a"),
        (json!({"n": 2}), "n"),
        (json!({"temperature": -1}), "temperature"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"max_output_tokens": -2}), "max_output_tokens"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"top_logprobs": 21, "include": ["message.output_text.logprobs"]}), "top_logprobs"),
        (json!({"include": "x"}), "include"),
        (json!({"text": "x"}), "text"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format.type"),
        (
            json!({"text": {"format": {"type": "json_schema", "json_schema": {"schema": {}}}}}),
            "text.format.json_schema",
        ),
        (json!({"text": {"format": {"type": "json_schema"}}}), "text.format.schema"),
        (json!({"text": {"format": {"type": "json_object"}}, "guided_regex": "a"}), "text.format"),
        (
            json!({"text": {"format": {"type": "json_schema", "schema": {"unevaluatedItems": false}}}}),
            "text.format.schema.unevaluatedItems",
        ),
        (json!({"tools": [{}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function", "function": {"name": "f"}}]}), "tools[0].function"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"tool_choice": "maybe"}), "tool_choice"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": {"type": "web_search"}, "tools": tools()}), "tool_choice"),
        (json!({"tool_choice": {"type": "function", "name": "other"}, "tools": tools()}), "tool_choice"),
    ] {
        for stream in [false, true] {
            let start = Instant::now();
            let reply = server.post(PATH, &asked(2, with(more.clone(), json!({"stream": stream}))));
            let error = &reply.json()["error"];
            assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{more}: {}", reply.text);
            assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{}", reply.text);
            assert!(start.elapsed() < Duration::from_millis(500), "{more} took {:?}", start.elapsed());
        }
    }
    let long = server.post(PATH, &asked(2, json!({"input": long}))).json();
    assert_eq!(long["error"]["code"], "context_length_exceeded");
    assert_eq!(server.post(PATH, &json!({})).json()["error"]["param"], "input");
    assert_eq!(server.post(PATH, &asked(2, json!({"model": "other"}))).status, 404);
    assert_eq!(server.metric("gristmill_generated_tokens_total"), 0.0);
}
