//! Fields of other servers: obeyed, refused by name, or harmless.

use gristmill_engine::{Dry, Request, SamplingOptions};
use serde_json::{Value, json};

use crate::server::{Running, changed_model, engine, model, options, sampling};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";

fn text(more: Value) -> Value {
    let mut body = json!({"prompt": "abc", "max_tokens": 3, "seed": 1});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn chat(more: Value) -> Value {
    let mut body = text(more);
    body.as_object_mut().expect("an object").remove("prompt");
    body["messages"] = json!([{"role": "user", "content": "abc"}]);
    body
}

#[test]
fn fields_that_change_the_result_are_refused() {
    let server = Running::usual();
    for (field, value) in [
        ("best_of", json!(2)),
        ("dynatemp_range", json!(0.5)),
        ("mirostat", json!(2)),
        ("prompt_logprobs", json!(1)),
        ("lora", json!([{"id": 0, "scale": 1.0}])),
        ("lora_path", json!("x")),
        ("stop_regex", json!("x")),
        ("t_max_predict_ms", json!(100)),
        ("top_n_sigma", json!(1.0)),
        ("truncate_prompt_tokens", json!(1)),
        ("typical_p", json!(0.9)),
        ("use_beam_search", json!(true)),
        ("xtc_probability", json!(0.5)),
    ] {
        for (path, mut body) in [(CHAT, chat(json!({}))), (TEXT, text(json!({})))] {
            body[field] = value.clone();
            let reply = server.post(path, &body);
            let error = &reply.json()["error"];
            assert_eq!((reply.status, &error["param"]), (400, &json!(field)), "{path} {field}: {}", reply.text);
            assert_eq!(error["code"], "unsupported");
        }
    }
}

#[test]
fn values_that_ask_for_what_happens_anyway_are_accepted() {
    let server = Running::usual();
    let neutral = json!({"best_of": 1, "typical_p": 1.0, "mirostat": 0, "mirostat_tau": 5.0, "xtc_probability": 0,
        "xtc_threshold": 0.1, "top_n_sigma": -1, "stop_token_ids": [], "skip_special_tokens": true,
        "cache_prompt": true,
        "lora": [], "t_max_predict_ms": -1, "grammar": "", "allowed_token_ids": [], "thinking_budget": -1,
        "use_beam_search": false, "include_stop_str_in_output": false, "dry_multiplier": 0, "bad_words": null});
    for (path, body) in [(CHAT, chat(neutral.clone())), (TEXT, text(neutral))] {
        let reply = server.post(path, &body);
        assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None), "{}", reply.text);
    }
    let mut predict = text(json!({"n_predict": 2, "ignore_eos": true}));
    predict.as_object_mut().expect("an object").remove("max_tokens");
    assert_eq!(server.ask(TEXT, &predict)["usage"]["completion_tokens"], 2);
}

#[test]
fn structured_outputs_are_enforced() {
    let server = Running::usual();
    let ask = |outputs: Value| {
        let body = text(json!({"structured_outputs": outputs, "max_tokens": 300}));
        server.ask(TEXT, &body)["choices"][0]["text"].as_str().expect("text").to_owned()
    };
    assert_eq!(ask(json!({"regex": "(ab){3}"})), "ababab");
    assert_eq!(ask(json!({"grammar": "start: \"x\" \"yz\""})), "xyz");
    assert_eq!(ask(json!({"grammar": "root ::= \"x\" y\ny ::= \"y\"{2}"})), "xyy");
    assert!(["a.b", "(c"].contains(&&*ask(json!({"choice": ["a.b", "(c"]}))));
    let schema = json!({"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"]});
    for schema in [schema.clone(), json!(schema.to_string())] {
        let text = ask(json!({"json": schema}));
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), json!({"a": 7}), "{text}");
    }
}

#[test]
fn dry_is_that_of_the_engine() {
    let model = model();
    let alone = engine(&model, 1);
    let server = Running::new(engine(&model, 2), options());
    let prompt = "abc abc abc abc abc abc";
    let generated = |dry: Dry| {
        let mut request = Request::new(prompt);
        request.sampling = SamplingOptions { temperature: 0.0, ..sampling() };
        (request.max_tokens, request.ignore_end, request.dry) = (Some(40), true, dry);
        let pieces = alone.generate(request).expect("good");
        pieces.map(|piece| piece.expect("it runs").text).collect::<String>()
    };
    let served = |more: Value| {
        let mut body = json!({"prompt": prompt, "max_tokens": 40, "ignore_eos": true, "temperature": 0});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.ask(TEXT, &body)["choices"][0]["text"].as_str().expect("text").to_owned()
    };
    let dry = Dry {
        multiplier: 50.0,
        base: 1.5,
        allowed_length: 1,
        penalty_last_n: Some(500),
        sequence_breakers: vec!["zzz".to_owned()],
    };
    let fields = json!({"dry_multiplier": 50, "dry_base": 1.5, "dry_allowed_length": 1, "dry_penalty_last_n": 500,
                        "dry_sequence_breakers": ["zzz"]});
    let (with, without) = (generated(dry), generated(Dry::default()));
    assert_eq!((served(fields), served(json!({}))), (with.clone(), without.clone()));
    // Greedy random weights repeat themselves, which a penalty of 50 forbids.
    assert_ne!(with, without);
}

#[test]
fn allowed_tools_are_those_that_are_called() {
    let server = Running::usual();
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tools: Vec<Value> = ["f", "g", "h"]
        .map(|name| json!({"type": "function", "function": {"name": name, "parameters": nothing}}))
        .to_vec();
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    for seed in 0..5 {
        let allowed = json!({"mode": "required", "tools": [named("g"), named("h")]});
        let choice = json!({"type": "allowed_tools", "allowed_tools": allowed});
        let body = chat(json!({"tools": tools, "tool_choice": choice, "max_tokens": 500, "seed": seed}));
        let reply = server.ask(CHAT, &body);
        let name = &reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"];
        assert!(["g", "h"].map(Value::from).contains(name), "{reply}");
    }
    let tools: Vec<Value> = tools.iter().map(|tool| tool["function"].clone()).collect();
    let flat = tools.into_iter().map(|mut tool| {
        tool["type"] = json!("function");
        tool
    });
    let choice = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "h"}]});
    let body =
        json!({"input": "abc", "tools": flat.collect::<Vec<_>>(), "tool_choice": choice, "max_output_tokens": 500});
    assert_eq!(server.ask("/v1/responses", &body)["output"][0]["name"], "h");
}

fn message(more: Value) -> Value {
    let mut body = chat(more);
    body["model"] = json!("tiny");
    body
}

#[test]
fn messages_are_sampled_as_chats_are() {
    let server = Running::usual();
    let settings = json!({"temperature": 1.5, "seed": 7, "min_p": 0.01, "repetition_penalty": 1.2,
        "dry_multiplier": 0.5, "logit_bias": {"97": 2}, "max_tokens": 20});
    let reply = server.ask(CHAT, &chat(settings.clone()));
    let same = server.ask(MESSAGES, &message(settings.clone()));
    assert_eq!(same["content"][0]["text"], reply["choices"][0]["message"]["content"]);
    let mut other = settings;
    other["seed"] = json!(8);
    assert_ne!(server.ask(MESSAGES, &message(other))["content"], same["content"]);
    let wrong = server.post(MESSAGES, &message(json!({"repeat_penalty": -1}))).json();
    assert!(wrong["error"]["message"].as_str().expect("a text").starts_with("repeat_penalty: "), "{wrong}");
}

#[test]
fn messages_and_responses_refuse_fields_of_other_interfaces() {
    let server = Running::usual();
    for (field, value) in [
        ("guided_regex", json!("a")),
        ("n", json!(2)),
        ("response_format", json!({"type": "json_object"})),
        ("stop", json!("x")),
        ("structured_outputs", json!({"regex": "a"})),
        ("typical_p", json!(0.9)),
    ] {
        let reply = server.post(MESSAGES, &message(json!({ field: value })));
        let error = &reply.json()["error"]["message"];
        assert!(reply.status == 400 && error.as_str().is_some_and(|text| text.starts_with(field)), "{}", reply.text);
    }
    let neutral = json!({"n": 1, "response_format": {"type": "text"}, "typical_p": 1, "stop": []});
    let reply = server.post(MESSAGES, &message(neutral));
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None), "{}", reply.text);
    for (field, value) in [("extra_body", json!({"seed": 1})), ("continue_final_message", json!(true))] {
        let reply = server.post("/v1/responses", &json!({"input": "abc", "max_output_tokens": 1, field: value}));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(field)), "{}", reply.text);
    }
}

#[test]
fn grammars_of_other_servers_are_enforced() {
    let server = Running::usual();
    let grammar = "root ::= \"(\" root \")\" | [xy]";
    for field in ["grammar", "ebnf", "guided_grammar"] {
        for (path, mut body) in [(TEXT, text(json!({"max_tokens": 90}))), (CHAT, chat(json!({"max_tokens": 90})))] {
            body[field] = json!(grammar);
            let reply = server.ask(path, &body);
            let choice = &reply["choices"][0];
            let text = choice["text"].as_str().or(choice["message"]["content"].as_str()).expect("text");
            let core = text.trim_start_matches('(').trim_end_matches(')');
            let is_started = text.bytes().all(|byte| byte == b'(');
            let [open, closed] = ['(', ')'].map(|mark| text.matches(mark).count());
            let is_truncated = choice["finish_reason"] == "length" && closed <= open;
            let is_balanced = closed == open || is_truncated;
            assert!(is_started || ["x", "y"].contains(&core) && is_balanced, "{field}: {text}");
            body[field] = json!("root ::= \"a\"\nx ::= [");
            let reply = server.post(path, &body);
            let error = &reply.json()["error"];
            assert_eq!((reply.status, &error["param"]), (400, &json!(field)), "{}", reply.text);
            assert!(error["message"].as_str().is_some_and(|message| message.contains("line 2")), "{}", reply.text);
        }
    }
}

#[test]
fn tokens_are_named_by_their_ids() {
    let server = Running::usual();
    let ask = |path: &str, more: Value| {
        let mut body = if path == TEXT { text(more) } else { message(more) };
        body["max_tokens"] = json!(30);
        server.ask(path, &body)
    };
    let of_reply = |reply: &Value| {
        let text = reply["choices"][0]["text"].as_str().or(reply["content"][0]["text"].as_str());
        text.unwrap_or_default().to_owned()
    };
    for path in [TEXT, MESSAGES] {
        let allowed = of_reply(&ask(path, json!({"allowed_token_ids": [97, 98, 99], "ignore_eos": true})));
        assert!(allowed.len() == 30 && allowed.bytes().all(|byte| (97..100).contains(&byte)), "{path}: {allowed}");
        let stopping = json!({"allowed_token_ids": [97, 98, 99], "stop_token_ids": [99], "ignore_eos": true});
        let stopped = ask(path, stopping.clone());
        assert!(!of_reply(&stopped).contains('c'), "{stopped}");
        let mut kept = stopping;
        kept["include_stop_str_in_output"] = json!(true);
        let kept = of_reply(&ask(path, kept));
        assert_eq!(kept, of_reply(&stopped) + if kept.len() < 30 { "c" } else { "" });
        let banned = json!({"allowed_token_ids": [97, 98, 99, 32], "bad_words": ["c", "ba"], "ignore_eos": true});
        let banned = of_reply(&ask(path, banned));
        assert!(!banned.contains('c') && !banned.contains("ba"), "{path}: {banned}");
    }
    for (field, value) in [("stop_token_ids", json!([99_999])), ("allowed_token_ids", json!([99_999]))] {
        let reply = server.post(TEXT, &text(json!({ field: value })));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(field)), "{}", reply.text);
    }
}

#[test]
fn thinking_has_a_budget() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>assistant\n<think>\n";
    let server =
        Running::new(engine(&changed_model(|tiny| tiny.set("tokenizer.chat_template", template)), 2), options());
    for name in ["thinking_budget", "reasoning_budget", "thinking_token_budget", "thinking_budget_tokens"] {
        for budget in [0, 1, 9] {
            let body = json!({ name: budget, "max_tokens": 40, "ignore_eos": true });
            let reply = server.ask(CHAT, &chat(body));
            let message = &reply["choices"][0]["message"];
            let thought = message["reasoning_content"].as_str().unwrap_or_default();
            // The text that ends it starts with a line break.
            assert!(thought.trim_end_matches('\n').chars().count() <= budget, "{name}: {reply}");
            assert!(message["content"].as_str().is_some_and(|content| !content.is_empty()), "{name}: {reply}");
        }
    }
    let unlimited = server.ask(CHAT, &chat(json!({"thinking_budget": -1, "max_tokens": 40, "ignore_eos": true})));
    assert!(unlimited["choices"][0]["message"]["content"].as_str().is_none_or(str::is_empty), "{unlimited}");
    let thinking = json!({"type": "enabled", "budget_tokens": 9});
    let reply = server.ask(MESSAGES, &message(json!({"thinking": thinking, "max_tokens": 40, "ignore_eos": true})));
    assert_eq!((&reply["content"][0]["type"], &reply["content"][1]["type"]), (&json!("thinking"), &json!("text")));
    let more = json!({"thinking": {"type": "enabled", "display": "omitted"}, "output_config": {"colour": 1}});
    let reply = server.post(MESSAGES, &message(more));
    assert_eq!(reply.header("x-gristmill-ignored"), Some("output_config.colour, thinking.display"), "{}", reply.text);
    let input = json!({"input": "abc", "thinking_budget": 9, "max_output_tokens": 40, "ignore_eos": true});
    assert_eq!(server.ask("/v1/responses", &input)["output"][1]["type"], "message");
    let task = json!({"output_config": {"task_budget": {"type": "tokens", "total": 20_000}}});
    let error = server.post(MESSAGES, &message(task)).json();
    assert!(error["error"]["message"].as_str().is_some_and(|text| text.starts_with("output_config.task_budget")));
}

#[test]
fn salts_separate_what_is_cached() {
    let server = Running::usual();
    let cached = |salt: Option<&str>| {
        let prompt = "A prompt of some length, of which several blocks are kept. ".repeat(3);
        let reply = server.ask(TEXT, &text(json!({"prompt": prompt, "cache_salt": salt})));
        reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
    };
    for salt in [None, Some("a"), Some("b"), Some("")] {
        assert_eq!(cached(salt), 0, "{salt:?}");
        assert!(cached(salt) > 0, "{salt:?}");
    }
}

#[test]
fn events_may_have_the_usage_so_far() {
    let server = Running::usual();
    for (path, body) in [(TEXT, text(json!({}))), (CHAT, chat(json!({})))] {
        let mut body = body;
        body["allowed_token_ids"] = json!([97, 98]);
        body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true, "colour": 1});
        let events = server.events(path, &body);
        let tokens: Vec<u64> = events.iter().filter_map(|event| event["usage"]["completion_tokens"].as_u64()).collect();
        assert_eq!((tokens.len() + 1, tokens.last()), (events.len(), Some(&3)), "{events:?}");
        assert!(tokens.is_sorted() && tokens.contains(&1) && tokens.contains(&2), "{tokens:?}");
        let reply = server.post(path, &body);
        assert_eq!(reply.header("x-gristmill-ignored"), Some("stream_options.colour"), "{}", reply.text);
    }
}

/// 16.0 is a whole number by JSON Schema, and a field that is sent by two of its names with one value is sent once.
#[test]
fn whole_numbers_and_names_that_agree() {
    let server = Running::usual();
    let tokens = |fields: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "x"}], "seed": 7, "ignore_eos": true});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let reply = server.post("/v1/chat/completions", &body);
        (reply.status, reply.json()["usage"]["completion_tokens"].clone())
    };
    for fields in [
        json!({"max_tokens": 3.0}),
        json!({"max_tokens": 3, "seed": 7.0, "n": 1.0, "top_k": 40.0, "min_tokens": 0.0}),
        json!({"max_tokens": 3, "max_completion_tokens": 3}),
        json!({"max_tokens": 3.0, "max_completion_tokens": 3, "n_predict": 3}),
        json!({"max_tokens": 3, "repetition_penalty": 1.1, "repeat_penalty": 1.1}),
    ] {
        assert_eq!(tokens(fields.clone()), (200, json!(3)), "{fields}");
    }
    for fields in [
        json!({"max_tokens": 3.5}),
        json!({"max_tokens": 3, "max_completion_tokens": 4}),
        json!({"max_tokens": 3, "repetition_penalty": 1.1, "repeat_penalty": 1.2}),
        json!({"max_tokens": 3, "seed": 1e300}),
    ] {
        assert_eq!(tokens(fields.clone()).0, 400, "{fields}");
    }
}
