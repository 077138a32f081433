//! `/v1/completions`.

use gristmill_engine::Request;
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

const PATH: &str = "/v1/completions";

#[test]
fn prompts_of_all_forms() {
    let server = Running::usual();
    let body = |prompt: Value| json!({"prompt": prompt, "seed": 5, "max_tokens": 8, "ignore_eos": true});
    let texts = |reply: Value| {
        let choices = reply["choices"].as_array().expect("a list").clone();
        choices.into_iter().map(|choice| choice["text"].clone()).collect::<Vec<_>>()
    };
    let one = |prompt: Value| texts(server.ask(PATH, &body(prompt)))[0].clone();
    let tokens = |text: &str| server.ask("/tokenize", &json!({"prompt": text}))["tokens"].clone();
    let (a, b) = (one(json!("hello")), one(json!("good day")));
    assert_ne!(a, b);
    assert_eq!(one(tokens("hello")), a);
    assert_eq!(texts(server.ask(PATH, &body(json!(["hello", "good day"])))), [a.clone(), b.clone()]);
    let lists = json!([tokens("good day"), tokens("hello")]);
    let both = server.ask(PATH, &body(lists));
    assert_eq!(both["usage"]["prompt_tokens"], 6 + 9);
    assert_eq!(texts(both), [b.clone(), a.clone()]);
    let mut many = body(json!(["hello", "good day"]));
    many["n"] = json!(2);
    let many = texts(server.ask(PATH, &many));
    assert_eq!((&many[0], &many[2], many.len()), (&a, &b, 4));
    // 16 tokens unless told otherwise.
    let usual = server.ask(PATH, &json!({"prompt": "x", "ignore_eos": true}));
    assert_eq!(usual["usage"]["completion_tokens"], 16);
}

/// A prompt in the form of a chat has one token for each mark, as the chat itself.
#[test]
fn control_tokens_of_a_raw_prompt() {
    let server = Running::usual();
    let prompt = "<|im_start|>user\nc?<|im_end|>\n<|im_start|>assistant\n";
    let count = |more: Value| {
        let mut body = json!({"prompt": prompt, "max_tokens": 1});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.ask(PATH, &body)["usage"]["prompt_tokens"].as_u64().expect("a number")
    };
    let chat = json!({"messages": [{"role": "user", "content": "c?"}], "max_tokens": 1});
    let of_chat = server.ask("/v1/chat/completions", &chat)["usage"]["prompt_tokens"].as_u64();
    assert_eq!(Some(count(json!({"add_special_tokens": false}))), of_chat);
    assert_eq!(count(json!({})), count(json!({"add_special_tokens": false})) + 1);
    // Each mark is a token less for each of its characters but one.
    let marks = 2 * ("<|im_start|>".len() - 1) + "<|im_end|>".len() - 1;
    assert_eq!(count(json!({"parse_special": false})), count(json!({"parse_special": true})) + marks as u64);
}

#[test]
fn echo_tells_log_probabilities_of_the_prompt() {
    let model = model();
    let alone = engine(&model, 1);
    let server = Running::new(engine(&model, 2), options());
    let prompt = "abcabc hello";
    let mut request = Request::new(prompt);
    (request.max_tokens, request.logprobs, request.prompt_logprobs) = (Some(1), Some(2), Some(2));
    let pieces: Vec<_> = alone.generate(request).expect("good").collect::<Result<_, _>>().expect("it runs");
    let expected: Vec<f32> = pieces[0].prompt_logprobs.iter().map(|logprob| logprob.logprob).collect();

    let body = json!({"prompt": prompt, "max_tokens": 0, "echo": true, "logprobs": 2});
    let reply = server.ask(PATH, &body);
    let choice = reply["choices"][0].clone();
    assert_eq!(choice["text"], prompt);
    assert_eq!((&choice["finish_reason"], &reply["usage"]["completion_tokens"]), (&json!("length"), &json!(0)));
    assert_eq!(reply["usage"]["total_tokens"], reply["usage"]["prompt_tokens"]);
    let logprobs = &choice["logprobs"];
    let found = logprobs["token_logprobs"].as_array().expect("a list");
    assert_eq!(found.len(), expected.len() + 1);
    assert!(found[0].is_null() && logprobs["top_logprobs"][0].is_null());
    for (found, expected) in found[1..].iter().zip(&expected) {
        assert_eq!(found.as_f64().expect("a number") as f32, *expected);
    }
    let texts: Vec<&str> = logprobs["tokens"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(texts.concat(), format!("<|begin|>{prompt}"));
    let offsets = logprobs["text_offset"].as_array().expect("a list");
    // The control token has no characters in the text.
    let mut end = 0;
    for (text, offset) in texts.iter().zip(offsets) {
        assert_eq!(offset, end);
        end += if *text == "<|begin|>" { 0 } else { text.chars().count() };
    }
    // With a completion, the lists continue.
    let body = json!({"prompt": prompt, "max_tokens": 3, "echo": true, "logprobs": 0, "ignore_eos": true});
    let choice = server.ask(PATH, &body)["choices"][0].clone();
    assert_eq!(choice["logprobs"]["tokens"].as_array().map(Vec::len), Some(found.len() + 3));
    assert!(choice["text"].as_str().is_some_and(|text| text.starts_with(prompt)));
    assert_eq!(server.ask(PATH, &json!({"prompt": "a", "max_tokens": 1}))["choices"][0]["logprobs"], Value::Null);
}

/// The tiny model's tokens are bytes, so each character beyond ASCII has several.
#[test]
fn offsets_are_those_of_characters() {
    let server = Running::usual();
    let prompt = "Say 🎉é now";
    let body = json!({"prompt": prompt, "max_tokens": 3, "echo": true, "logprobs": 0, "ignore_eos": true,
                      "allowed_token_ids": [97, 98]});
    let choice = server.ask(PATH, &body)["choices"][0].clone();
    let offsets: Vec<usize> = serde_json::from_value(choice["logprobs"]["text_offset"].clone()).expect("numbers");
    let of_prompt = prompt.chars().enumerate().flat_map(|(at, character)| vec![at; character.len_utf8()]);
    let expected: Vec<usize> = std::iter::once(0).chain(of_prompt).chain(10..13).collect();
    assert_eq!(offsets, expected, "{choice}");
    assert!(choice["text"].as_str().is_some_and(|text| text.chars().count() == 13));
}

#[test]
fn events_are_the_whole_reply() {
    let server = Running::usual();
    let body = json!({"prompt": ["ab", "xyz"], "seed": 1, "max_tokens": 12, "n": 2, "logprobs": 1, "ignore_eos": true,
                      "stream_options": {"include_usage": true}});
    let whole = server.ask(PATH, &body);
    let events = server.events(PATH, &body);
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    let usage = &events[events.len() - 2]["usage"];
    for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(usage[field], whole["usage"][field], "{field}");
    }
    for index in 0..4 {
        let choices = events.iter().filter_map(|event| event["choices"].as_array()).flatten();
        let of_choice: Vec<&Value> = choices.filter(|choice| choice["index"] == index).collect();
        let text: String = of_choice.iter().filter_map(|choice| choice["text"].as_str()).collect();
        assert_eq!(text, whole["choices"][index]["text"].as_str().expect("text"));
        assert_eq!(of_choice.last().expect("one")["finish_reason"], "length");
        let lists = |name: &str| {
            let lists = of_choice.iter().filter_map(|choice| choice["logprobs"][name].as_array());
            lists.flatten().cloned().collect::<Vec<_>>()
        };
        for name in ["tokens", "token_logprobs", "text_offset"] {
            assert_eq!(json!(lists(name)), whole["choices"][index]["logprobs"][name], "{name}");
        }
    }
}
