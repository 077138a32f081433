//! `/v1/chat/completions`.

use gristmill_engine::template::{Message, Role};
use gristmill_engine::{Chat, ConverseOptions, GenerationOptions, SamplingOptions};
use serde_json::{Value, json};

use crate::server::{Running, engine, model, model_of, options, sampling};
use crate::tiny::Tiny;

const PATH: &str = "/v1/chat/completions";

fn conversation(seed: i64, tokens: usize) -> Value {
    json!({"messages": [{"role": "user", "content": "abc"}], "seed": seed, "max_tokens": tokens, "ignore_eos": true})
}

/// The text of choice `index` of events.
fn joined(events: &[Value], index: usize) -> String {
    let choices = events.iter().filter_map(|event| event["choices"].as_array()).flatten();
    choices.filter(|choice| choice["index"] == index).filter_map(|choice| choice["delta"]["content"].as_str()).collect()
}

#[test]
fn a_reply_is_what_the_engine_gives() {
    let model = model();
    let alone = engine(&model, 1);
    let server = Running::new(engine(&model, 4), options());
    for seed in 0..5 {
        let chat = Chat::new(vec![Message::new(Role::User, "abc")]);
        let asked = alone.converse(chat, ConverseOptions::default()).expect("a good conversation");
        let mut request = asked.request(GenerationOptions::default());
        request.sampling = SamplingOptions { seed: Some(seed), ..sampling() };
        (request.max_tokens, request.ignore_end) = (Some(30), true);
        let pieces: Vec<_> = alone.generate(request).expect("good").collect::<Result<_, _>>().expect("it runs");
        let expected: String = pieces.iter().map(|piece| piece.text.as_str()).collect();

        let mut body = conversation(seed as i64, 30);
        let whole = server.ask(PATH, &body);
        assert_eq!(whole["choices"][0]["message"], json!({"role": "assistant", "content": expected, "refusal": null}));
        assert_eq!(whole["choices"][0]["finish_reason"], "length");
        assert_eq!(whole["object"], "chat.completion");
        assert_eq!(whole["usage"]["completion_tokens"], 30);
        assert_eq!(whole["usage"]["gristmill"]["choices"][0]["seed"], seed);
        let prompt = whole["usage"]["prompt_tokens"].as_u64().expect("a number");
        assert_eq!(whole["usage"]["total_tokens"], prompt + 30);

        body["stream_options"] = json!({"include_usage": true});
        let events = server.events(PATH, &body);
        assert_eq!(joined(&events, 0), expected);
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        let [.., end, usage, done] = &events[..] else { panic!("{events:?}") };
        assert_eq!(end["choices"][0]["finish_reason"], "length");
        assert_eq!((&usage["choices"], &usage["usage"]["prompt_tokens"]), (&json!([]), &json!(prompt)));
        assert_eq!(done, "[DONE]");
        assert!(events[..events.len() - 1].iter().all(|event| event["id"] == events[0]["id"]));
    }
}

#[test]
fn choices_have_seeds_of_their_own() {
    let server = Running::usual();
    let mut body = conversation(7, 20);
    body["n"] = json!(5);
    let whole = server.ask(PATH, &body);
    let events = server.events(PATH, &body);
    assert_eq!(whole["choices"].as_array().map(Vec::len), Some(5));
    assert_eq!(whole["usage"]["completion_tokens"], 100);
    for i in 0..5 {
        let one = server.ask(PATH, &conversation(7 + i as i64, 20));
        let text = &one["choices"][0]["message"]["content"];
        assert_eq!(&whole["choices"][i]["message"]["content"], text);
        assert_eq!(whole["choices"][i]["index"], i);
        assert_eq!(joined(&events, i), text.as_str().expect("text"));
        assert_eq!(whole["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"]);
    }
    // A seed that is drawn can be used again.
    body.as_object_mut().expect("an object").retain(|name, _| name != "seed" && name != "n");
    let drawn = server.ask(PATH, &body);
    body["seed"] = drawn["usage"]["gristmill"]["choices"][0]["seed"].clone();
    assert_eq!(server.ask(PATH, &body)["choices"], drawn["choices"]);
    // Negative seeds are seeds, but for -1, with which one is chosen.
    assert_eq!(server.ask(PATH, &conversation(-2, 5))["usage"]["gristmill"]["choices"][0]["seed"], u64::MAX - 1);
    let chosen = || server.ask(PATH, &conversation(-1, 5))["usage"]["gristmill"]["choices"][0]["seed"].clone();
    assert_ne!(chosen(), chosen());
}

#[test]
fn log_probabilities() {
    let server = Running::usual();
    let mut body = conversation(3, 10);
    (body["logprobs"], body["top_logprobs"], body["temperature"]) = (json!(true), json!(4), json!(0));
    let whole = server.ask(PATH, &body);
    let tokens = whole["choices"][0]["logprobs"]["content"].as_array().expect("a list").clone();
    assert_eq!(tokens.len(), 10);
    let mut bytes = Vec::new();
    for token in &tokens {
        let top = token["top_logprobs"].as_array().expect("a list");
        assert_eq!(top.len(), 4);
        // Greedy: the token is the most likely.
        assert_eq!((&top[0]["logprob"], &top[0]["bytes"]), (&token["logprob"], &token["bytes"]));
        assert!(token["logprob"].as_f64().expect("a number") <= 0.0);
        bytes
            .extend(token["bytes"].as_array().expect("a list").iter().map(|byte| byte.as_u64().expect("a byte") as u8));
    }
    let text = whole["choices"][0]["message"]["content"].as_str().expect("text");
    // Control tokens are no part of the text.
    let all = String::from_utf8_lossy(&bytes).into_owned();
    assert!(all == text || all.contains("<|"), "{all:?} and {text:?}");
    let events = server.events(PATH, &body);
    let streamed = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array()).flatten();
    assert_eq!(streamed.cloned().collect::<Vec<_>>(), tokens);
}

#[test]
fn stop_strings_and_prompts_that_repeat() {
    let server = Running::usual();
    let whole = server.ask(PATH, &conversation(1, 40));
    let text = whole["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    let stop: String = text.chars().skip(10).take(2).collect();
    let mut body = conversation(1, 40);
    body["stop"] = json!(stop);
    let stopped = server.ask(PATH, &body);
    let before = text.find(&stop).expect("it is in there");
    assert_eq!(stopped["choices"][0]["message"]["content"], text[..before]);
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    body["stop"] = json!(["\u{0}never", stop]);
    assert_eq!(server.ask(PATH, &body)["choices"], stopped["choices"]);
    let cached = |reply: &Value| reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number");
    assert_eq!((cached(&whole), cached(&stopped) > 0), (0, true));
}

/// A model whose layers have states of fixed size continues from where a state was kept: after the reply if the next
/// turn repeats it, near the end of the first prompt if the next turn has another reply.
#[test]
fn the_next_turn_reuses_states_of_fixed_size() {
    for tiny in [Tiny::lfm2(), Tiny::qwen35()] {
        let server = Running::new(engine(&model_of(tiny), 2), options());
        let system = json!({"role": "system", "content": "You are a miller. ".repeat(12)});
        let first = json!({"role": "user", "content": "abc"});
        // The bias leaves one token, the letter x.
        let ask = |messages: Value| {
            let body = json!({"messages": messages, "max_tokens": 9, "logit_bias": {"120": 100}, "temperature": 0});
            let reply = server.ask(PATH, &body);
            let text = reply["choices"][0]["message"]["content"].clone();
            let (usage, own) = (&reply["usage"], &reply["usage"]["gristmill"]["choices"][0]);
            let number = |value: &Value| value.as_u64().expect("a number");
            let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]);
            assert_eq!(number(&own["reused_tokens"]), cached);
            assert!(own.get("cache_miss").is_none_or(Value::is_null), "{own}");
            (text, cached, number(&usage["prompt_tokens"]))
        };
        let (reply, cached, prompt) = ask(json!([system, first]));
        assert_eq!((&reply, cached), (&json!("x".repeat(9)), 0));
        let second = json!({"role": "user", "content": "and?"});
        let turn = |reply: Value| json!([system, first, {"role": "assistant", "content": reply}, second]);
        // The reply's last token was not computed.
        assert_eq!(ask(turn(reply)).1, prompt + 8);
        // The last whole block that is 8 tokens or more before the end of the first prompt.
        assert_eq!(ask(turn(json!("no"))).1, (prompt - 8) / 16 * 16);
    }
}

#[test]
fn parts_and_roles() {
    let server = Running::usual();
    let text = |messages: Value| server.ask("/apply-template", &json!({"messages": messages}))["prompt"].clone();
    let plain = text(json!([{"role": "system", "content": "a\nb"}, {"role": "user", "content": "c"}]));
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(text(json!([{"role": "developer", "content": parts}, {"role": "user", "content": "c"}])), plain);
    let off = |more: Value| {
        let mut body = conversation(1, 1);
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.ask(PATH, &body)["usage"]["prompt_tokens"].as_u64().expect("a number")
    };
    // The template writes `<think></think>` then, in 15 tokens.
    let without = off(json!({}));
    assert_eq!(off(json!({"chat_template_kwargs": {"enable_thinking": false}})), without + 15);
    assert_eq!(off(json!({"reasoning_effort": "none"})), without + 15);
    assert_eq!(off(json!({"reasoning_effort": "high"})), without);
}
