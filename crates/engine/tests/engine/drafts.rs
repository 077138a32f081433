//! Draft tokens of prediction heads, and what the usage says of drafts.

use std::sync::Arc;

use gristmill_engine::{DraftSource, Drafting, Drafts};
use gristmill_engine::{
    Dry, Engine, EngineError, Grammar, Limits, LoadOptions, Model, Request, SamplingOptions, Usage,
};

use crate::results::{limits, varied, with_drafts};
use crate::tiny::{Random, Tiny};
use crate::{backend, pieces, random_tokens, request, speech};

/// A model with a prediction head, which is loaded or not.
fn predicting(mut tiny: Tiny, prediction_heads: bool) -> Arc<Model> {
    speech::teach(&mut tiny);
    tiny.predict();
    let options = LoadOptions { prediction_heads, ..LoadOptions::default() };
    let file = tiny.file(&mut Random::fresh());
    Arc::new(Model::with_backend(file, Arc::new(backend()), options).expect("a good model"))
}

fn start(model: &Arc<Model>, drafts: Drafts, limits: Limits) -> Engine {
    Engine::start_with_drafts(model.clone(), drafts, limits).expect("it fits")
}

fn usage(engine: &Engine, request: Request) -> Usage {
    pieces(engine, request).last().expect("a piece").finish.expect("it has ended").usage
}

/// With attention, a window, latent states of fixed size; planned and in each step.
#[test]
fn prediction_heads_change_no_text() {
    let mut random = Random::fresh();
    for (tiny, sequences, rows) in
        [(Tiny::llama(), 1, 4), (Tiny::qwen3moe(), 4, 12), (Tiny::gpt_oss(), 3, 40), (Tiny::qwen35(), 3, 12)]
    {
        let model = predicting(tiny, true);
        for drafts in [Drafts::always(DraftSource::Heads), DraftSource::Heads.into()] {
            let always = drafts.always;
            let engine = start(&model, drafts, limits(sequences, 32, Some(rows)));
            let mut requests = varied(&mut random);
            for request in requests.iter_mut().step_by(3) {
                // Rows of draft tokens count them.
                let sampling = request.sampling;
                request.sampling = SamplingOptions { repeat_penalty: 1.3, frequency_penalty: 0.4, ..sampling };
            }
            let (drafted, _) = with_drafts(&engine, sequences, requests);
            assert!(drafted > 0 || !always, "no draft tokens");
        }
    }
}

#[test]
fn a_replay_decides_what_is_accepted() {
    let model = predicting(Tiny::qwen3moe(), true);
    let mut random = Random::fresh();
    let limits = limits(1, 32, Some(4));
    let prompt = random_tokens(&mut random, 9);
    let request = Request { draft: 3, ..request(&prompt, 33, SamplingOptions::greedy()) };
    let engine = start(&model, Drafts::always(DraftSource::Replay(vec![1.0])), limits);
    let all = usage(&engine, request.clone());
    // The first token follows the prompt; then each step has 4. An asynchronous device has started the step after the
    // prompt before the host can draft for it.
    assert_eq!((all.drafting, all.drafts, all.accepted_tokens), (Some(Drafting::Heads), 8, all.drafted_tokens));
    assert!([23, 24].contains(&all.drafted_tokens), "{all:?}");
    assert_eq!(all.acceptance_by_place().collect::<Vec<_>>(), [1.0; 3]);
    let engine = start(&model, Drafts::always(DraftSource::Replay(vec![1.0, 0.0])), limits);
    let first = usage(&engine, request.clone());
    assert_eq!(first.acceptance_by_place().take(2).collect::<Vec<_>>(), [1.0, 0.0]);
    let engine = start(&model, Drafts::always(DraftSource::Replay(vec![0.0])), limits);
    let none = usage(&engine, request);
    assert_eq!((none.accepted_tokens, none.acceptance()), (0, Some(0.0)));
    assert!(none.drafts >= 30, "{none:?}");
}

#[test]
fn heads_that_are_not_loaded_are_refused() {
    let (without, with) = (predicting(Tiny::llama(), false), predicting(Tiny::llama(), true));
    assert_eq!((without.prediction_heads(), with.prediction_heads()), (0, 1));
    for source in [DraftSource::Heads, DraftSource::Replay(vec![0.5])] {
        let error = Engine::start_with_drafts(without.clone(), source, limits(1, 32, None)).err();
        assert!(matches!(error, Some(EngineError::NoPredictionHeads)), "{error:?}");
    }
    assert!(matches!(DraftSource::of(&with), DraftSource::Heads));
    assert!(matches!(DraftSource::of(&without), DraftSource::Lookup));
}

/// What turns drafts off for a request, and that the request has none then.
#[test]
fn the_usage_says_why_there_are_no_drafts() {
    let model = predicting(Tiny::llama(), true);
    let engine = start(&model, Drafts::always(DraftSource::Heads), limits(1, 32, Some(4)));
    let plain = Request { draft: 3, ..request(&random_tokens(&mut Random::fresh(), 9), 12, SamplingOptions::greedy()) };
    let penalised = SamplingOptions { repeat_penalty: 1.2, ..SamplingOptions::greedy() };
    let dry = Dry { multiplier: 0.8, sequence_breakers: Vec::new(), ..Dry::default() };
    let grammar = Grammar::Regex("[a-z ]*".to_owned());
    for (request, drafting) in [
        (plain.clone(), Some(Drafting::Heads)),
        (Request { draft: 0, ..plain.clone() }, None),
        (Request { sampling: penalised, ..plain.clone() }, Some(Drafting::Heads)),
        (Request { dry, ..plain.clone() }, Some(Drafting::Off("DRY"))),
        (Request { grammar: Some(grammar), ignore_end: false, ..plain.clone() }, Some(Drafting::Off("a grammar"))),
        (Request { banned_sequences: vec![vec![1, 2]], ..plain }, Some(Drafting::Off("banned sequences"))),
    ] {
        let usage = usage(&engine, request);
        assert_eq!(usage.drafting, drafting);
        assert_eq!(usage.drafted_tokens > 0, drafting == Some(Drafting::Heads), "{usage:?}");
    }
}
