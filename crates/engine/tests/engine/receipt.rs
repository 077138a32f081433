//! Receipts: each field of a request survives, hostile receipts are refused by field, and a replay gives the same text.

use gristmill_engine::receipt::{self, Receipt, ReceiptError, Recorder};
use gristmill_engine::tokenizer::EncodeOptions;
use gristmill_engine::{Dry, Engine, Grammar, Prompt, Request, SamplingOptions};
use gristmill_engine::{FinishReason, ReasoningLimit, SETTINGS};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::tiny::Random;
use super::{engine, model, pieces, random_tokens, request, sampling, text};

fn number() -> impl Strategy<Value = f32> {
    any::<f32>().prop_filter("JSON has finite numbers", |x| x.is_finite())
}

fn any_json() -> impl Strategy<Value = Value> {
    let float = any::<f64>().prop_filter("JSON has finite numbers", |x| x.is_finite());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        float.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        let fields = vec((any::<String>(), inner.clone()), 0..5);
        prop_oneof![
            vec(inner, 0..5).prop_map(Value::from),
            fields.prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_prompt() -> impl Strategy<Value = Prompt> {
    prop_oneof![
        vec(any::<u32>(), 0..9).prop_map(Prompt::Tokens),
        any::<(String, bool, bool)>().prop_map(|(text, add_special, parse_special)| Prompt::Text {
            text,
            options: EncodeOptions { add_special, parse_special },
        }),
        any::<(String, Vec<usize>, bool)>().prop_map(|(text, plain, is_started)| Prompt::Rendered {
            text,
            plain,
            is_started,
            images: Vec::new(),
        }),
    ]
}

fn any_grammar() -> impl Strategy<Value = Grammar> {
    prop_oneof![
        Just(Grammar::Json),
        any_json().prop_map(Grammar::JsonSchema),
        any::<String>().prop_map(Grammar::Lark),
        any::<String>().prop_map(Grammar::Gbnf),
        any::<String>().prop_map(Grammar::Regex),
    ]
}

prop_compose! {
    fn any_sampling()(
        floats in vec(number(), SETTINGS.len()),
        whole in any::<u32>(),
        seed in any::<Option<u64>>(),
    ) -> SamplingOptions {
        let mut options = SamplingOptions { seed, ..SamplingOptions::default() };
        for (setting, float) in SETTINGS.iter().zip(floats) {
            (setting.set)(&mut options, if setting.whole { whole.into() } else { float.into() });
        }
        options
    }
}

prop_compose! {
    fn any_dry()(
        multiplier in number(),
        base in number(),
        allowed_length in any::<usize>(),
        penalty_last_n in any::<Option<usize>>(),
        sequence_breakers in vec(any::<String>(), 0..3),
    ) -> Dry {
        Dry { multiplier, base, allowed_length, penalty_last_n, sequence_breakers }
    }
}

prop_compose! {
    fn any_reasoning()(
        (tokens, is_started, repeats) in any::<(usize, bool, bool)>(),
        (open, close) in any::<(String, String)>(),
        ending in vec(any::<u32>(), 0..3),
    ) -> ReasoningLimit {
        ReasoningLimit { tokens, is_started, repeats, open, close, ending }
    }
}

prop_compose! {
    /// Every field is drawn: one that is added later does not compile here.
    fn any_request()(
        (prompt, sampling, dry) in (any_prompt(), any_sampling(), any_dry()),
        logit_bias in vec((any::<u32>(), number()), 0..4),
        (max_tokens, min_tokens, draft) in (any::<Option<usize>>(), any::<usize>(), any::<usize>()),
        (stop, stop_tokens) in (vec(any::<String>(), 0..3), vec(any::<u32>(), 0..3)),
        (allowed_tokens, banned_sequences) in (option::of(vec(any::<u32>(), 0..3)), vec(vec(any::<u32>(), 0..3), 0..3)),
        reasoning in option::of(any_reasoning()),
        (ignore_end, control_tokens, keeps_stop) in any::<(bool, bool, bool)>(),
        grammar in option::of(any_grammar()),
        (logprobs, prompt_logprobs) in any::<(Option<usize>, Option<usize>)>(),
    ) -> Request {
        Request {
            pictures: Default::default(),
            prompt, sampling, logit_bias, dry, max_tokens, min_tokens, stop, ignore_end, grammar, logprobs,
            prompt_logprobs, routing: false, draft, control_tokens, tenant: 0, cache_key: None, stop_tokens, keeps_stop,
            allowed_tokens, banned_sequences, reasoning,
        }
    }
}

/// The receipt of these requests, and their texts.
fn generate(engine: &Engine, requests: &[Request]) -> (Receipt, Vec<String>) {
    let mut recorder = Recorder::new(engine, requests);
    let mut texts = Vec::new();
    for (choice, request) in requests.iter().enumerate() {
        let found = pieces(engine, request.clone());
        found.iter().for_each(|piece| recorder.push(choice, piece));
        texts.push(text(&found));
    }
    (recorder.finish().expect("all have ended"), texts)
}

/// The receipt of two choices of one prompt, and a third of another, as JSON.
fn sample() -> Value {
    let engine = engine(&model(), 1, 64);
    let mut random = Random::fresh();
    let mut first = request(&random_tokens(&mut random, 9), 5, sampling(&mut random));
    first.sampling.seed = Some(u64::MAX);
    let mut second = first.clone();
    second.sampling.seed = Some(0);
    let third = Request { tenant: 7, ..request(&random_tokens(&mut random, 4), 3, SamplingOptions::greedy()) };
    serde_json::to_value(generate(&engine, &[first, second, third]).0).expect("JSON")
}

#[test]
fn a_replay_gives_the_same_texts() {
    let model = model();
    let mut random = Random::fresh();
    let mut requests = vec![request(&random_tokens(&mut random, 20), 12, sampling(&mut random))];
    requests.push(Request {
        max_tokens: Some(9),
        ..Request::new(Prompt::rendered("<|im_start|>user\nabc<|im_end|>\n".to_owned(), vec![1, 20]))
    });
    requests.push(Request { grammar: Some(Grammar::Regex("(ab|c){3,5}".to_owned())), ..requests[1].clone() });
    let (receipt, texts) = generate(&engine(&model, 2, 64), &requests);
    assert_eq!((&receipt.build, &*receipt.model), (&receipt::build(), model.fingerprint()));
    let text = serde_json::to_string(&receipt).expect("JSON");
    let read = Receipt::read(&serde_json::from_str(&text).expect("JSON")).expect("a good receipt");
    assert_eq!(read, receipt);
    let again: Vec<Request> = read.requests().collect();
    // Another batch size: the reference backend does not depend on it.
    let replay = generate(&engine(&model, 1, 7), &again);
    assert_eq!((&replay.0.choices, &replay.1), (&receipt.choices, &texts));
    // A text that has not ended has no receipt.
    assert_eq!(Recorder::new(&engine(&model, 1, 64), &requests).finish(), None);
}

#[test]
fn choices_share_requests() {
    let json = sample();
    assert_eq!(json["requests"].as_array().map(Vec::len), Some(2));
    let of = |field: &str| json["choices"].as_array().expect("a list").iter().map(|c| c[field].clone()).collect();
    let (requests, seeds): (Vec<Value>, Vec<Value>) = (of("request"), of("seed"));
    assert_eq!(requests, [0, 0, 1]);
    // In quotes, so that a reader with doubles keeps them.
    assert_eq!(seeds[..2], [json!("18446744073709551615"), json!("0")]);
    let receipt = Receipt::read(&json).expect("a good receipt");
    assert_eq!(receipt.choices[2].finish_reason, FinishReason::Length);
    let seeds: Vec<Option<u64>> = receipt.requests().map(|request| request.sampling.seed).collect();
    assert_eq!(seeds[..2], [Some(u64::MAX), Some(0)]);
    // The tenant is not part of a receipt.
    assert!(!json.to_string().contains("tenant"));
    assert_eq!(json["conditions"]["arithmetic"], json!(["reference"]));
}

#[test]
fn what_is_wrong_is_named() {
    let good = sample();
    for (place, wrong, name) in [
        ("/format", json!("1"), "format"),
        ("/build", json!(1), "build"),
        ("/conditions/precision", json!("rough"), "conditions.precision"),
        ("/conditions/kv_format", json!("f8"), "conditions.kv_format"),
        ("/conditions/experts_on", json!("gpu"), "conditions.experts_on"),
        ("/conditions/context", json!(-1), "conditions.context"),
        ("/requests/1/sampling/top_k", json!(0.5), "requests[1].sampling.top_k"),
        ("/requests/0/sampling/seed", json!("0x1"), "requests[0].sampling.seed"),
        ("/requests/0/sampling/min_p", Value::Null, "requests[0].sampling.min_p"),
        ("/requests/0/sampling", json!({"temperature": 1}), "requests[0].sampling"),
        ("/requests/0/sampling", json!({"heat": 1}), "requests[0].sampling"),
        ("/requests/0/prompt", json!({"file": "/etc/passwd"}), "requests[0].prompt"),
        ("/requests/0/grammar", json!({"json_schema": "{"}), "requests[0].grammar"),
        ("/requests/0/max_tokens", json!(1e30), "requests[0].max_tokens"),
        ("/choices/1/seed", json!("18446744073709551616"), "choices[1].seed"),
        ("/choices/2/request", json!(2), "choices[2].request"),
        ("/choices/2/finish_reason", json!("tired"), "choices[2].finish_reason"),
        ("/choices", json!([]), "choices"),
        ("/requests/1/tenant", json!(7), "requests[1].tenant"),
        ("/model", Value::Null, "model"),
    ] {
        let mut bad = good.clone();
        match bad.pointer_mut(place) {
            Some(value) => *value = wrong,
            None => {
                let (object, field) = place.rsplit_once('/').expect("a path");
                bad.pointer_mut(object).expect("an object")[field] = wrong;
            }
        }
        match Receipt::read(&bad) {
            Err(ReceiptError::Field { field, .. }) => assert!(field.starts_with(name), "{place}: {field}"),
            other => panic!("{place}: {other:?}"),
        }
    }
    let without = |field: &str| {
        let mut bad = good.clone();
        bad.as_object_mut().expect("an object").shift_remove(field);
        Receipt::read(&bad).expect_err("incomplete").to_string()
    };
    for field in ["format", "build", "model", "conditions", "requests", "choices"] {
        assert!(without(field).starts_with(&format!("the receipt's field {field}: ")), "{}", without(field));
    }
    let mut newer = good.clone();
    newer["format"] = json!(receipt::FORMAT + 1);
    assert_eq!(Receipt::read(&newer), Err(ReceiptError::Format(receipt::FORMAT + 1)));
}

/// Replaces a part of a value.
fn replace(json: &mut Value, path: &[Index], wrong: Value) {
    match (json, path.split_first()) {
        (Value::Object(fields), Some((first, rest))) if !fields.is_empty() => {
            let index = first.index(fields.len());
            replace(fields.values_mut().nth(index).expect("within"), rest, wrong);
        }
        (Value::Array(values), Some((first, rest))) if !values.is_empty() => {
            replace(first.get_mut(values), rest, wrong);
        }
        (part, _) => *part = wrong,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_survive(request in any_request()) {
        let text = serde_json::to_string(&request).expect("JSON");
        let read: Request = serde_json::from_str(&text).expect("what was written can be read");
        prop_assert_eq!(&read, &request);
        // By way of a value, as a receipt within a reply is read.
        let value: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert_eq!(serde_json::from_value::<Request>(value).expect("it can be read"), request);
    }

    #[test]
    fn hostile_receipts_are_read_or_refused(path in vec(any::<Index>(), 1..6), wrong in any_json()) {
        thread_local!(static GOOD: Value = sample());
        let mut bad = GOOD.with(Value::clone);
        replace(&mut bad, &path, wrong);
        if let Err(ReceiptError::Field { field, problem }) = Receipt::read(&bad) {
            prop_assert!(!field.is_empty() && !problem.is_empty());
        }
        prop_assert!(Receipt::read(&json!([bad])).is_err());
    }
}
