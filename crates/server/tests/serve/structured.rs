//! Replies of a given form: JSON, choices, calls of tools. Random weights write nothing of this by chance.

use gristmill_server::Options;
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

const CHAT: &str = "/v1/chat/completions";

fn chat(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "abc"}], "seed": 5, "max_tokens": 800});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn schema() -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["kind", "count"], "properties": {
        "kind": {"enum": ["red", "green"]}, "count": {"type": "integer", "minimum": 3, "maximum": 12}}})
}

fn is_valid(value: &Value) -> bool {
    let count = value["count"].as_i64().is_some_and(|count| (3..=12).contains(&count));
    value.as_object().is_some_and(|fields| fields.len() == 2)
        && ["red", "green"].map(Value::from).contains(&value["kind"])
        && count
}

fn tools() -> Value {
    // Without parameters any object is one, and random weights may write one without end.
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    json!([{"type": "function", "function": {"name": "pick", "parameters": schema()}},
           {"type": "function", "function": {"name": "stop", "description": "ends it", "parameters": nothing}},
           {"type": "web_search"}])
}

#[test]
fn json_of_a_schema() {
    let server = Running::usual();
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema()}});
    for seed in 0..10 {
        let body = chat(json!({"response_format": format, "seed": seed}));
        let reply = server.ask(CHAT, &body);
        let text = reply["choices"][0]["message"]["content"].as_str().expect("text");
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
        assert!(is_valid(&serde_json::from_str(text).expect("JSON")), "{text}");
        let events = server.events(CHAT, &body);
        let joined: String =
            events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(joined, text);
        let guided = server.ask(CHAT, &chat(json!({"guided_json": schema(), "seed": seed})));
        assert_eq!(guided["choices"][0]["message"]["content"], text);
    }
    let text = |more: Value| {
        let mut body = json!({"prompt": "abc", "max_tokens": 300, "seed": 1});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.ask("/v1/completions", &body)["choices"][0]["text"].as_str().expect("text").to_owned()
    };
    assert!(["a.b", "(c", "<d>"].contains(&&*text(json!({"guided_choice": ["a.b", "(c", "<d>"]}))));
    assert_eq!(text(json!({"guided_regex": "(ab){3}"})), "ababab");
    assert_eq!(text(json!({"guided_grammar": "start: \"x\" \"yz\""})), "xyz");
}

#[test]
fn schemas_in_the_fields_of_other_servers() {
    let server = Running::usual();
    for (format, schema_at) in [
        (json!({"response_format": {"type": "json_object", "schema": schema()}}), "response_format.schema"),
        (json!({"response_format": {"type": "json_schema", "schema": schema()}}), "response_format.schema"),
        (json!({"json_schema": schema()}), "json_schema"),
        (json!({"json_schema": schema().to_string()}), "json_schema"),
    ] {
        let reply = server.ask(CHAT, &chat(format.clone()));
        let text = reply["choices"][0]["message"]["content"].as_str().expect("text");
        assert!(is_valid(&serde_json::from_str(text).expect("JSON")), "{text}");
        let bad = json!({"type": "object", "contains": {}});
        let mut body = chat(format);
        match body["response_format"].is_null() {
            true => body["json_schema"] = bad,
            false => body["response_format"]["schema"] = bad,
        }
        let reply = server.post(CHAT, &body);
        let expected = json!(format!("{schema_at}.contains"));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &expected), "{}", reply.text);
    }
    let twice = json!({"type": "json_schema", "json_schema": {"schema": schema()}, "schema": schema()});
    let reply = server.post(CHAT, &chat(json!({"response_format": twice})));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("response_format.schema")));
    let text = server.ask(CHAT, &chat(json!({"regex": "(ab){3}"})))["choices"][0]["message"]["content"].clone();
    assert_eq!(text, "ababab");
    let body = json!({"input": "abc", "text": {"format": {"type": "json_object", "schema": schema()}}, "seed": 5});
    let text = server.ask("/v1/responses", &body)["output"][0]["content"][0]["text"].clone();
    assert!(is_valid(&serde_json::from_str(text.as_str().expect("text")).expect("JSON")), "{text}");
}

#[test]
fn calls_that_are_asked_for() {
    let server = Running::usual();
    let ask = |choice: Value, seed: u64| chat(json!({"tools": tools(), "tool_choice": choice, "seed": seed}));
    let named = json!({"type": "function", "function": {"name": "pick"}});
    for seed in 0..6 {
        let body = ask(named.clone(), seed);
        let reply = server.post(CHAT, &body);
        assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, Some("tools[2]")), "{}", reply.text);
        let choice = reply.json()["choices"][0].clone();
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
        let call = &choice["message"]["tool_calls"][0];
        assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("pick")));
        assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_")) && call["index"].is_null());
        let arguments = call["function"]["arguments"].as_str().expect("text");
        assert!(is_valid(&serde_json::from_str(arguments).expect("JSON")), "{arguments}");

        let events = server.events(CHAT, &body);
        let calls: Vec<&Value> = events
            .iter()
            .map(|event| &event["choices"][0]["delta"]["tool_calls"][0])
            .filter(|call| !call.is_null())
            .collect();
        assert_eq!((calls.len(), &calls[0]["index"]), (1, &json!(0)));
        assert_eq!(calls[0]["function"], call["function"]);
        let end = &events[events.len() - 2];
        assert_eq!(end["choices"][0]["finish_reason"], "tool_calls");
    }
    let any = server.ask(CHAT, &ask(json!("required"), 1))["choices"][0]["message"]["tool_calls"].clone();
    assert_eq!(any.as_array().map(Vec::len), Some(1));
    // Without a call: the tools are not even in the prompt of a template that writes them.
    let mut none = ask(json!("none"), 1);
    none["tools"][1] = json!({"type": "function", "function": {"name": "stop"}});
    let none = server.ask(CHAT, &none);
    assert!(none["choices"][0]["message"]["tool_calls"].is_null());
    // A call that is cut is left out.
    let mut cut = ask(named, 1);
    cut["max_tokens"] = json!(12);
    let cut = server.ask(CHAT, &cut)["choices"][0].clone();
    assert!(cut["message"]["tool_calls"].is_null());
    assert_eq!((&cut["finish_reason"], &cut["message"]["content"]), (&json!("length"), &json!("")));
}

#[test]
fn calls_for_anthropic() {
    let server = Running::usual();
    let body = json!({"model": "tiny", "max_tokens": 800, "messages": [{"role": "user", "content": "abc"}],
        "tools": [{"name": "pick", "input_schema": schema()}, {"type": "bash_20250124", "name": "bash"}],
        "tool_choice": {"type": "tool", "name": "pick"}, "temperature": 0});
    let reply = server.post("/v1/messages", &body);
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, Some("tools[1]")), "{}", reply.text);
    let reply = reply.json();
    assert_eq!(reply["stop_reason"], "tool_use");
    let block = &reply["content"][0];
    assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!("pick")));
    assert!(is_valid(&block["input"]), "{block}");
    let events = server.events("/v1/messages", &body);
    let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(types, expected);
    assert_eq!(events[1]["content_block"]["input"], json!({}));
    let partial = events[2]["delta"]["partial_json"].as_str().expect("text");
    assert_eq!(serde_json::from_str::<Value>(partial).expect("JSON"), block["input"]);
    let conversation = json!({"model": "tiny", "max_tokens": 3, "tools": body["tools"], "messages": [
        {"role": "user", "content": "abc"}, {"role": "assistant", "content": reply["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block["id"], "content": "42"}]}]});
    server.ask("/v1/messages", &conversation);
}

/// With tools and a form, the reply is a call, or a text in that form; both happen. A required call wins.
#[test]
fn a_call_or_a_text_in_a_form() {
    let server = Running::usual();
    let format = json!({"type": "json_schema", "schema": schema()});
    let nested = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}});
    let flat: Vec<Value> =
        ["pick", "stop"].map(|name| json!({"type": "function", "name": name, "parameters": schema()})).to_vec();
    let custom: Vec<Value> = ["pick", "stop"].map(|name| json!({"name": name, "input_schema": schema()})).to_vec();
    let texts_and_calls = |path: &str, body: &Value| {
        let (mut texts, mut calls) = (0, 0);
        for seed in 0..16 {
            let mut body = body.clone();
            (body["seed"], body["temperature"]) = (json!(seed), json!(2));
            let reply = server.ask(path, &body);
            let (text, arguments) = match path {
                CHAT => {
                    let message = &reply["choices"][0]["message"];
                    (message["content"].clone(), message["tool_calls"][0]["function"]["arguments"].clone())
                }
                "/v1/responses" => {
                    let item = &reply["output"][0];
                    (item["content"][0]["text"].clone(), item["arguments"].clone())
                }
                _ => {
                    let block = &reply["content"][0];
                    (block["text"].clone(), block.get("input").map_or(Value::Null, |input| json!(input.to_string())))
                }
            };
            let (found, count) = match (text.as_str(), arguments.as_str()) {
                (Some(text), None) => (text, &mut texts),
                (None, Some(arguments)) => (arguments, &mut calls),
                _ => panic!("{reply}"),
            };
            assert!(is_valid(&serde_json::from_str(found).expect("JSON")), "{path}: {found}");
            *count += 1;
        }
        (texts, calls)
    };
    let messages = json!([{"role": "user", "content": "abc"}]);
    let mut tools = tools();
    tools[1]["function"]["parameters"] = schema();
    for (path, body) in [
        (CHAT, chat(json!({"tools": tools, "response_format": nested}))),
        ("/v1/responses", json!({"input": "abc", "max_output_tokens": 800, "tools": flat, "text": {"format": format}})),
        (
            "/v1/messages",
            json!({"model": "tiny", "max_tokens": 800, "messages": messages, "tools": custom,
                   "output_config": {"format": format}}),
        ),
    ] {
        let (texts, calls) = texts_and_calls(path, &body);
        assert!(texts > 0 && calls > 0, "{path}: {texts} texts, {calls} calls");
        let mut required = body;
        required["tool_choice"] = match path {
            "/v1/messages" => json!({"type": "any"}),
            _ => json!("required"),
        };
        assert_eq!(texts_and_calls(path, &required), (0, 16), "{path}");
    }
}

/// A schema that cannot be enforced is named, and the other tools are held to theirs.
#[test]
fn one_schema_that_cannot_be_enforced() {
    let server = Running::usual();
    let bad = json!({"type": "object", "properties": {"to": {"type": "string", "pattern": "^a(?!x)"}}});
    let mut tools = tools();
    tools[1]["function"] = json!({"name": "send", "parameters": bad});
    let body = chat(json!({"tools": tools, "tool_choice": "required", "max_tokens": 400}));
    let mut names = Vec::new();
    for seed in 0..30 {
        if names.len() > 3 && names.contains(&json!("pick")) {
            break;
        }
        let mut body = body.clone();
        (body["seed"], body["temperature"]) = (json!(seed), json!(2));
        let reply = server.post(CHAT, &body);
        let ignored = reply.header("x-gristmill-ignored");
        let expected = "tools[2], tools[1].function.parameters.properties.to.pattern";
        assert_eq!((reply.status, ignored), (200, Some(expected)), "{}", reply.text);
        let call = reply.json()["choices"][0]["message"]["tool_calls"][0]["function"].clone();
        // Any object may be one without end, which is then left out.
        let Some(arguments) = call["arguments"].as_str() else { continue };
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        assert!(if call["name"] == "pick" { is_valid(&arguments) } else { arguments.is_object() }, "{call}");
        names.push(call["name"].clone());
    }
    assert!(names.contains(&json!("pick")), "{names:?}");
    let mut named = body;
    named["tool_choice"] = json!({"type": "function", "function": {"name": "pick"}});
    assert_eq!(server.post(CHAT, &named).header("x-gristmill-ignored"), Some("tools[2]"));
    let strict = Running::new(engine(&model(), 1), Options { strict: true, ..options() });
    named["tools"] = json!([tools[1]]);
    named["tool_choice"] = json!("required");
    let refused = strict.post(CHAT, &named);
    let param = "tools[0].function.parameters.properties.to.pattern";
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{}", refused.text);
}

/// A schema that only compiling refuses: whether a text of such a length follows the pattern takes too long to find out.
fn uncompiled() -> Value {
    let to = json!({"type": "string", "pattern": "(a|b)*a(a|b){500}", "minLength": 10_000, "maxLength": 20_000});
    json!({"type": "object", "properties": {"to": to}, "required": ["to"]})
}

/// The same of a schema that only compiling refuses, on each interface: whether a call is required, or the model may
/// answer in a form.
#[test]
fn one_schema_that_does_not_compile() {
    let server = Running::usual();
    let bad = uncompiled();
    let messages = json!([{"role": "user", "content": "abc"}]);
    let (pick, format) = (schema(), json!({"type": "json_schema", "schema": schema()}));
    let nested =
        |name: &str, schema: &Value| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    let flat = |name: &str, schema: &Value| json!({"type": "function", "name": name, "parameters": schema});
    let custom = |name: &str, schema: &Value| json!({"name": name, "input_schema": schema});
    let all = |tool: &dyn Fn(&str, &Value) -> Value| json!([tool("pick", &pick), tool("send", &bad)]);
    for (path, mut body, form, [required, named], strict, schema) in [
        (
            CHAT,
            chat(json!({"tools": all(&nested)})),
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": pick}}}),
            [json!("required"), json!({"type": "function", "function": {"name": "send"}})],
            "/tools/1/function",
            "tools[1].function.parameters",
        ),
        (
            "/v1/responses",
            json!({"input": "abc", "max_output_tokens": 60, "tools": all(&flat)}),
            json!({"text": {"format": format}}),
            [json!("required"), json!({"type": "function", "name": "send"})],
            "/tools/1",
            "tools[1].parameters",
        ),
        (
            "/v1/messages",
            json!({"model": "tiny", "max_tokens": 60, "messages": messages, "tools": all(&custom)}),
            json!({"output_config": {"format": format}}),
            [json!({"type": "any"}), json!({"type": "tool", "name": "send"})],
            "/tools/1",
            "tools[1].input_schema",
        ),
    ] {
        body["seed"] = json!(1);
        let with = |more: &Value| {
            let mut body = body.clone();
            body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            body
        };
        for more in [json!({"tool_choice": required}), form] {
            for stream in [false, true] {
                let mut body = with(&more);
                body["stream"] = json!(stream);
                let reply = server.post(path, &body);
                let ignored = reply.header("x-gristmill-ignored");
                assert_eq!((reply.status, ignored), (200, Some(schema)), "{path} {more}: {}", reply.text);
            }
            let mut strictly = with(&more);
            strictly.pointer_mut(strict).expect("a tool")["strict"] = json!(true);
            let reply = server.post(path, &strictly);
            assert!(reply.status == 400 && reply.text.contains(schema), "{path} {more}: {}", reply.text);
        }
        let reply = server.post(path, &with(&json!({"tool_choice": named})));
        assert!(reply.status == 400 && reply.text.contains(schema), "{path}: {}", reply.text);
        // Without a grammar nothing is compiled.
        let reply = server.post(path, &body);
        assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None), "{path}: {}", reply.text);
    }
}

/// A receipt has the request that runs, and the other tool's calls follow its schema.
#[test]
fn calls_with_a_schema_that_does_not_compile() {
    let server = Running::usual();
    let mut tools = tools();
    tools[1]["function"] = json!({"name": "send", "parameters": uncompiled()});
    let body = chat(json!({"tools": tools, "tool_choice": "required", "max_tokens": 400, "receipt": true}));
    let mut picked = 0;
    for seed in 0..30 {
        let mut body = body.clone();
        (body["seed"], body["temperature"]) = (json!(seed), json!(2));
        let reply = server.ask(CHAT, &body);
        assert_eq!(reply["usage"]["gristmill"]["receipt"]["requests"].as_array().map(Vec::len), Some(1));
        let call = &reply["choices"][0]["message"]["tool_calls"][0]["function"];
        if call["name"] == "pick" {
            let arguments = call["arguments"].as_str().expect("a text");
            assert!(is_valid(&serde_json::from_str(arguments).expect("JSON")), "{call}");
            picked += 1;
        }
        if picked == 2 {
            return;
        }
    }
    panic!("{picked} calls of 30");
}

/// As pydantic writes it: the union is enforced, and the other object of the schema has no further properties.
#[test]
fn a_discriminated_union_beside_an_object() {
    let server = Running::usual();
    let variant = |name: &str, other: &str, kind: &str| {
        json!({"type": "object", "properties": {"vehicle": {"const": name, "type": "string"}, other: {"type": kind}},
            "required": ["vehicle", other]})
    };
    let owner = json!({"type": "object", "properties": {"age": {"type": "boolean"}}, "required": ["age"]});
    let union = json!({"oneOf": [{"$ref": "#/$defs/Car"}, {"$ref": "#/$defs/Bike"}],
        "discriminator": {"propertyName": "vehicle", "mapping": {"Car": "#/$defs/Car", "Bike": "#/$defs/Bike"}}});
    let schema = json!({"type": "object", "properties": {"owner": owner, "v": union}, "required": ["owner", "v"],
        "$defs": {"Car": variant("Car", "new", "boolean"), "Bike": variant("Bike", "gears", "null")}});
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}});
    let mut kinds = Vec::new();
    for seed in 0..12 {
        let mut body = chat(format.clone());
        (body["seed"], body["max_tokens"], body["temperature"]) = (json!(seed), json!(600), json!(1));
        let choice = server.ask(CHAT, &body)["choices"][0].clone();
        if choice["finish_reason"] != "stop" {
            continue;
        }
        let text = choice["message"]["content"].as_str().expect("text");
        let value: Value = serde_json::from_str(text).expect("JSON");
        let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        assert_eq!((names(&value), names(&value["owner"])), (vec!["owner".into(), "v".into()], vec!["age".into()]));
        let other = if value["v"]["vehicle"] == "Car" { "new" } else { "gears" };
        assert_eq!(names(&value["v"]), ["vehicle", other], "{text}");
        kinds.push(other);
    }
    assert!(kinds.len() > 3, "{kinds:?}");
}
