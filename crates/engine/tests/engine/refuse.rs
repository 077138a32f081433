//! Requests that are refused, before anything runs.

use gristmill_engine::template::{Message, Role};
use gristmill_engine::{
    Chat, ConverseOptions, Dry, Engine, EngineError, Error, ErrorKind, Limits, Request, SamplingOptions,
};

use super::{CONTEXT, engine, model, pieces, request};
use crate::tiny::{Random, Tiny};

fn refusal(engine: &Engine, request: Request) -> EngineError {
    engine.generate(request).expect_err("it is refused")
}

#[test]
fn prompts() {
    let engine = engine(&model(), 1, 64);
    assert!(matches!(refusal(&engine, Request::new("")), EngineError::EmptyPrompt));
    assert!(matches!(refusal(&engine, Request::new(Vec::new())), EngineError::EmptyPrompt));
    let error = refusal(&engine, Request::new("x".repeat(CONTEXT)));
    assert!(matches!(error, EngineError::PromptTooLong { tokens: 101, exact: true, context: CONTEXT }), "{error}");
    let error = refusal(&engine, Request::new(vec![1, 260, 2]));
    assert!(matches!(error, EngineError::Token { id: 260, index: 1, vocabulary: 260 }), "{error}");
    // The longest that fits has one answer: what follows its last token.
    let greedy = SamplingOptions::greedy();
    assert_eq!(pieces(&engine, request(&[7; CONTEXT], 5, greedy)).len(), 1);
}

#[test]
fn options() {
    let engine = engine(&model(), 1, 64);
    let error = refusal(&engine, Request { max_tokens: Some(0), ..Request::new("x") });
    assert!(matches!(error, EngineError::NoTokens));
    for (logprobs, prompt_logprobs) in [(Some(261), None), (Some(3), Some(261))] {
        let error = refusal(&engine, Request { logprobs, prompt_logprobs, ..Request::new("x") });
        assert!(matches!(error, EngineError::Logprobs { asked: 261, vocabulary: 260 }), "{error}");
    }
    let sampling = SamplingOptions { top_p: f32::NAN, ..SamplingOptions::default() };
    let error = refusal(&engine, Request { sampling, ..Request::new("x") });
    assert!(matches!(error, EngineError::Sampling { what: "top_p", .. }), "{error}");
}

#[test]
fn logit_bias_and_dry() {
    let engine = engine(&model(), 1, 64);
    let bias = |logit_bias: &[(u32, f32)]| Request { logit_bias: logit_bias.to_vec(), ..Request::new("x") };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = refusal(&engine, bias(&[(1, 0.0), (7, bad)]));
        assert!(matches!(error, EngineError::LogitBias { token: 7, .. }), "{error}");
    }
    let error = refusal(&engine, bias(&[(260, 1.0)]));
    assert!(matches!(error, EngineError::LogitBiasToken { token: 260, vocabulary: 260 }), "{error}");
    let error = refusal(&engine, bias(&[(3, 1.0), (4, 1.0), (3, -1.0)]));
    assert!(matches!(error, EngineError::LogitBiasTwice(3)), "{error}");
    let dry = |dry: Dry| refusal(&engine, Request { dry, ..Request::new("x") });
    let error = dry(Dry { multiplier: -1.0, ..Dry::default() });
    assert!(matches!(error, EngineError::Sampling { what: "dry_multiplier", .. }), "{error}");
    let error = dry(Dry { sequence_breakers: vec![String::new()], ..Dry::default() });
    assert!(matches!(error, EngineError::EmptyBreaker), "{error}");
}

#[test]
fn kinds() {
    let engine = engine(&model(), 1, 64).with_queue(0);
    let kind = |request: Request| refusal(&engine, request).kind();
    let sampling = SamplingOptions { temperature: -1.0, ..SamplingOptions::default() };
    for wrong in [Request::new(""), Request::new("x".repeat(CONTEXT)), Request { sampling, ..Request::new("x") }] {
        assert_eq!(kind(wrong), ErrorKind::BadRequest);
    }
    let reserved = engine.reserve(0, 1).expect("a place");
    assert_eq!(kind(Request::new("x")), ErrorKind::Busy);
    drop(reserved);
    engine.drain();
    assert_eq!(kind(Request::new("x")), ErrorKind::Unavailable);
    let broken = super::converse::running("{% if x %}");
    let error = broken.render(&Chat::new(vec![Message::new(Role::User, "x")])).expect_err("it is broken");
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn a_model_that_cannot_speak() {
    let file = Tiny::llama().file(&mut Random::fresh());
    let backend = std::sync::Arc::new(gristmill_kernels::reference::Reference::backend());
    let model = gristmill_engine::Model::with_backend(file, backend, Default::default()).unwrap();
    let engine = engine(&model.into(), 1, 64);
    assert!(matches!(refusal(&engine, Request::new("x")), EngineError::Model(Error::NoTokenizer)));
    let chat = Chat::new(vec![Message::new(Role::User, "x")]);
    assert!(matches!(engine.converse(chat, ConverseOptions::default()), Err(EngineError::NoTemplate)));
    let dry = Dry { multiplier: 1.0, ..Dry::default() };
    let error = refusal(&engine, Request { dry, ..Request::new(vec![1, 2]) });
    assert!(matches!(error, EngineError::BreakersWithoutText), "{error}");
    let mut request = Request::new(vec![1, 2]);
    request.dry = Dry { multiplier: 1.0, sequence_breakers: vec![], ..Dry::default() };
    request.max_tokens = Some(4);
    let pieces = pieces(&engine, request);
    assert!(pieces.len() == 4 && pieces.iter().all(|piece| piece.text.is_empty()));
}

#[test]
fn limits() {
    let start = |limits| Engine::start(model(), limits).expect_err("it is refused");
    let limits = Limits::default();
    let error = start(Limits { sequences: 65, batch_tokens: 64, ..limits });
    assert!(matches!(error, EngineError::BatchTooSmall { batch_tokens: 64, sequences: 65 }), "{error}");
    assert!(matches!(start(Limits { sequences: 0, ..limits }), EngineError::Model(Error::Limit { .. })));
    let context = Some(gristmill_engine::MAX_CONTEXT + 1);
    assert!(matches!(start(Limits { context, ..limits }), EngineError::Model(Error::Limit { .. })));
}
