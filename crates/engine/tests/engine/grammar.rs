//! Requests with a grammar: what they generate, alone and in shared batches, and how they end.

use gristmill_engine::{Engine, EngineError, Grammar, Limits, Request, SamplingOptions};
use gristmill_engine::{FinishReason, Piece};
use serde_json::{Value, json};

use super::{engine, model, pieces, random_tokens, request, speech, text, tokens};
use crate::tiny::Random;

/// Objects that take less than 100 tokens without white space.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "kind": {"enum": ["ab", "b\n"]},
            "n": {"type": "integer", "minimum": -20, "maximum": 300},
            "list": {"type": "array", "items": {"type": ["null", "boolean"]}, "maxItems": 3}
        },
        "required": ["name", "n"],
        "additionalProperties": false
    })
}

fn is_valid(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    object.contains_key("name")
        && object.contains_key("n")
        && object.iter().all(|(name, value)| match name.as_str() {
            "name" => value.as_str().is_some_and(|text| text.chars().count() <= 6),
            "kind" => value == "ab" || value == "b\n",
            "n" => value.as_f64().is_some_and(|n| n.fract() == 0.0 && (-20.0..=300.0).contains(&n)),
            "list" => value.as_array().is_some_and(|l| l.len() <= 3 && l.iter().all(|v| v.is_null() || v.is_boolean())),
            _ => false,
        })
}

/// A request that ends by its grammar alone, and seldom writes white space.
fn asked(random: &mut Random, grammar: Grammar, sampling: SamplingOptions) -> Request {
    let space = [9, 10, 13, 32].map(|token| (token, -1e6)).to_vec();
    let prompt = random_tokens(random, 5);
    Request { grammar: Some(grammar), logit_bias: space, ignore_end: false, ..request(&prompt, 90, sampling) }
}

fn hot(random: &mut Random) -> SamplingOptions {
    SamplingOptions {
        temperature: 8.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: Some(random.next()),
        ..Default::default()
    }
}

fn reason(pieces: &[Piece]) -> FinishReason {
    pieces.last().unwrap().finish.unwrap().reason
}

#[test]
fn texts_are_valid_for_their_schema() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 4, 64);
    let mut ended = 0;
    for round in 0..30 {
        let sampling = if round % 5 == 0 { SamplingOptions::greedy() } else { hot(&mut random) };
        let asked = asked(&mut random, Grammar::JsonSchema(schema()), sampling);
        let found = pieces(&engine, asked.clone());
        let whole = text(&found);
        match reason(&found) {
            FinishReason::End => {
                ended += 1;
                assert!(is_valid(&serde_json::from_str(&whole).expect(&whole)), "{whole}");
                // Nothing may follow, so the last token is the brace, and no end-of-generation token.
                assert_ne!(found.last().unwrap().token, speech::END);
            }
            _ => assert!(serde_json::from_str::<Value>(&whole).unwrap_err().is_eof(), "{whole}"),
        }
        // Cut earlier, the text is a start.
        let cut = pieces(&engine, Request { max_tokens: Some(7), ..asked });
        assert_eq!((tokens(&cut), reason(&cut)), (tokens(&found)[..7].to_vec(), FinishReason::Length));
        assert!(serde_json::from_str::<Value>(&text(&cut)).unwrap_err().is_eof());
    }
    assert!(ended > 10, "{ended} of 30");
}

#[test]
fn any_object() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    for _ in 0..10 {
        let sampling = hot(&mut random);
        let found = pieces(&engine, asked(&mut random, Grammar::Json, sampling));
        assert!(text(&found).starts_with('{'));
        if reason(&found) == FinishReason::End {
            let whole = text(&found);
            serde_json::from_str::<serde::de::IgnoredAny>(&whole).expect(&whole);
        }
    }
}

#[test]
fn company_changes_nothing() {
    let model = model();
    let mut random = Random::fresh();
    let grammars = [
        Some(Grammar::JsonSchema(schema())),
        None,
        Some(Grammar::Regex("(a|bc)+é{1,3}".to_owned())),
        Some(Grammar::Lark("start: \"x\" (/[0-9]/ start)?".to_owned())),
    ];
    let requests: Vec<Request> = (0..12)
        .map(|i| {
            let sampling = hot(&mut random);
            let asked = asked(&mut random, Grammar::Json, sampling);
            Request { grammar: grammars[i % 4].clone(), logprobs: Some(2), prompt_logprobs: Some(1), ..asked }
        })
        .collect();
    let alone: Vec<Vec<Piece>> = requests.iter().map(|r| pieces(&engine(&model, 1, 64), r.clone())).collect();
    let engine = engine(&model, 5, 16);
    let running: Vec<_> = requests.iter().map(|r| engine.generate(r.clone()).unwrap()).collect();
    for (generation, alone) in running.into_iter().zip(alone) {
        let together: Vec<Piece> = generation.collect::<Result<_, _>>().unwrap();
        let pairs = together.iter().zip(&alone);
        assert!(pairs.clone().all(|(a, b)| (a.token, &a.text, &a.logprob) == (b.token, &b.text, &b.logprob)));
        assert_eq!(together.len(), alone.len());
        assert_eq!(together[0].prompt_logprobs, alone[0].prompt_logprobs);
    }
    // Log-probabilities of the prompt do not depend on the grammar.
    let without = Request { grammar: None, ..requests[0].clone() };
    let [with, without] = [requests[0].clone(), without].map(|r| pieces(&engine, r));
    assert_eq!(with[0].prompt_logprobs, without[0].prompt_logprobs);
}

#[test]
fn where_a_text_ends() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    let mut ask = |regex: &str, bias: f32, change: &dyn Fn(&mut Request)| {
        let mut asked = asked(&mut random, Grammar::Regex(regex.to_owned()), SamplingOptions::greedy());
        asked.logit_bias.push((speech::END, bias));
        change(&mut asked);
        let found = pieces(&engine, asked);
        (text(&found), reason(&found), found.len())
    };
    // The model would end at once, and may as soon as the grammar is complete.
    assert_eq!(ask("aaa*", 1e6, &|_| {}), ("aa".to_owned(), FinishReason::End, 3));
    // It may not before it has the least tokens.
    assert_eq!(ask("aaa*", 1e6, &|r| r.min_tokens = 5), ("aaaaa".to_owned(), FinishReason::End, 6));
    assert_eq!(
        ask("aaa*", 1e6, &|r| (r.ignore_end, r.max_tokens) = (true, Some(8))),
        ("a".repeat(8), FinishReason::Length, 8)
    );
    // Where nothing may follow, the text ends whatever the model or the request would like.
    assert_eq!(ask("aaa", -1e6, &|_| {}), ("aaa".to_owned(), FinishReason::End, 3));
    assert_eq!(
        ask("aaa", -1e6, &|r| (r.ignore_end, r.min_tokens) = (true, 9)),
        ("aaa".to_owned(), FinishReason::End, 3)
    );
    assert_eq!(ask("(aaa)?", 1e6, &|_| {}), (String::new(), FinishReason::End, 1));
    // The last token of all is also the last that the text needs.
    assert_eq!(ask("aaa", 0.0, &|r| r.max_tokens = Some(3)), ("aaa".to_owned(), FinishReason::End, 3));
    // A stop string comes first.
    assert_eq!(ask("ccc", 0.0, &|r| r.stop = vec!["cc".to_owned()]), (String::new(), FinishReason::Stop, 2));
    // A bias chooses among what the grammar allows, and forces nothing else.
    assert_eq!(
        ask("[cd]", 0.0, &|r| r.logit_bias.extend([(100, 1e5), (120, 1e6)])),
        ("d".to_owned(), FinishReason::End, 1)
    );
}

#[test]
fn a_text_that_cannot_go_on_ends_alone() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 3, 64);
    let sampling = hot(&mut random);
    let other = asked(&mut random, Grammar::JsonSchema(schema()), sampling);
    let alone = tokens(&pieces(&engine, other.clone()));
    // An end-of-generation token ends the text, so nothing can follow it.
    let stuck = Grammar::Lark("start: \"ab\" <|im_end|> \"c\"".to_owned());
    let running = engine.generate(other).unwrap();
    for _ in 0..3 {
        let asked = asked(&mut random, stuck.clone(), SamplingOptions::greedy());
        let items: Vec<_> = engine.generate(asked).unwrap().collect();
        let (last, others) = items.split_last().unwrap();
        assert!(matches!(last, Err(EngineError::GrammarStuck)), "{last:?}");
        assert!(others.iter().all(Result::is_ok) && !others.is_empty());
    }
    assert_eq!(tokens(&running.collect::<Result<Vec<_>, _>>().unwrap()), alone);
}

#[test]
fn grammars_are_refused_before_anything_runs() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64).with_queue(0);
    let mut refusal = |grammar| {
        let asked = asked(&mut random, grammar, SamplingOptions::greedy());
        engine.generate(asked).expect_err("it is refused")
    };
    let error = refusal(Grammar::JsonSchema(json!({"items": {"uniqueItems": true}})));
    let words = "the JSON schema at \"/items/uniqueItems\": it is enforced only for items of at most 4 values";
    assert!(error.to_string().starts_with(words), "{error}");
    assert!(matches!(refusal(Grammar::Regex("(".to_owned())), EngineError::Grammar(_)));
    assert!(matches!(refusal(Grammar::Lark("begin: \"a\"".to_owned())), EngineError::Grammar(_)));
    // A refused request keeps no place.
    let good = asked(&mut random, Grammar::Regex("a".to_owned()), SamplingOptions::greedy());
    assert_eq!(text(&pieces(&engine, good)), "a");
}

#[test]
fn a_model_without_text_has_no_grammar() {
    let file = crate::tiny::Tiny::llama().file(&mut Random::fresh());
    let backend = std::sync::Arc::new(gristmill_kernels::reference::Reference::backend());
    let model = gristmill_engine::Model::with_backend(file, backend, Default::default()).unwrap();
    let engine = Engine::start(model.into(), Limits { context: Some(50), sequences: 1, ..Limits::default() }).unwrap();
    let asked = Request { grammar: Some(Grammar::Json), ..Request::new(vec![1, 2]) };
    assert!(matches!(engine.generate(asked), Err(EngineError::Model(gristmill_engine::Error::NoTokenizer))));
}

#[test]
fn a_cancelled_request_frees_its_sequence() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64).with_queue(1);
    let long = Request { max_tokens: None, ..asked(&mut random, Grammar::Regex("a*".to_owned()), hot(&mut Random(3))) };
    for _ in 0..20 {
        let mut running = engine.generate(Request { ignore_end: true, ..long.clone() }).unwrap();
        assert_eq!(running.next().unwrap().unwrap().text, "a");
    }
    let short = asked(&mut random, Grammar::Regex("b".to_owned()), SamplingOptions::greedy());
    let queued = loop {
        // The place of a dropped request is free after its step.
        match engine.generate(short.clone()) {
            Err(EngineError::Busy { .. }) => std::thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    assert_eq!(text(&queued.collect::<Result<Vec<_>, _>>().unwrap()), "b");
}
