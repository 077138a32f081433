//! Texts that become vectors: of which hidden states, in any batch, and what ends them early.
//!
//! On the reference backend and on a CPU a row's result does not depend on its batch, so vectors are compared bit by
//! bit.

use std::sync::Arc;
use std::sync::mpsc;

use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{
    Batch, EmbeddingRequest, Engine, EngineError, Error, Limits, LoadOptions, Model, Outputs, Prompt, Runner,
    SamplingOptions, Stage,
};
use gristmill_kernels::reference::Reference;

use super::damaged::{self, BAD};
use super::tiny::{Random, Tiny};
use super::{CONTEXT, engine, failing, model, pieces, random_tokens, request, speaking_on, speech, tokens};

/// A model whose file has this `pooling_type`, on a CPU.
fn pooled(pooling: Option<u32>) -> Arc<Model> {
    let mut tiny = Tiny::llama();
    pooling.into_iter().for_each(|kind| tiny.set("llama.pooling_type", kind));
    speaking_on(Cpu::backend(Level::best(), 2).unwrap(), tiny)
}

fn embedding(texts: &[Vec<u32>]) -> EmbeddingRequest {
    EmbeddingRequest::new(texts.iter().cloned().map(Prompt::from).collect())
}

fn vectors(engine: &Engine, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    engine.embed(embedding(texts)).expect("good texts").vectors
}

/// Texts of these lengths.
fn texts(random: &mut Random, lengths: &[usize]) -> Vec<Vec<u32>> {
    lengths.iter().map(|&length| random_tokens(random, length)).collect()
}

/// The hidden states of a text that is computed in one batch.
fn hidden(model: &Arc<Model>, text: &[u32]) -> Vec<Vec<f32>> {
    let limits = Limits { context: Some(CONTEXT), batch_tokens: CONTEXT, ..Limits::default() };
    let mut runner = Runner::new(model.clone(), limits).unwrap();
    let id = runner.open_sequence().unwrap();
    let rows = runner.forward(Batch::new().push(id, text, Outputs::AllHidden)).unwrap().hidden().unwrap();
    rows.chunks(model.spec().hidden).map(<[f32]>::to_vec).collect()
}

fn normalised(sum: &[f64]) -> Vec<f32> {
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    sum.iter().map(|x| (x * length.recip()) as f32).collect()
}

#[test]
fn vectors_are_pooled_as_the_file_says() {
    let mut random = Random::fresh();
    for pooling in [None, Some(1), Some(2), Some(3)] {
        let model = pooled(pooling);
        let texts = texts(&mut random, &[1, 2, 17, CONTEXT, 40]);
        // Split into chunks, next to each other.
        let found = vectors(&engine(&model, 3, 7), &texts);
        for (text, found) in texts.iter().zip(found) {
            let rows = hidden(&model, text);
            let pool = match pooling {
                Some(1) => &rows[..],
                Some(2) => &rows[..1],
                _ => &rows[rows.len() - 1..],
            };
            let mut sum = vec![0.0; model.spec().hidden];
            pool.iter().for_each(|row| sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x)));
            assert_eq!(found, normalised(&sum), "pooling {pooling:?}, {} tokens", text.len());
            let length: f64 = found.iter().map(|&x| f64::from(x).powi(2)).sum();
            assert!((length - 1.0).abs() < 1e-6, "{length}");
        }
    }
}

#[test]
fn company_changes_nothing() {
    let mut random = Random::fresh();
    for pooling in [None, Some(1)] {
        let model = pooled(pooling);
        let begin = random_tokens(&mut random, 30);
        let texts: Vec<Vec<u32>> = (0..40)
            .map(|number| {
                let own = 1 + random.below(60);
                let own = random_tokens(&mut random, own);
                if number % 3 == 0 { [&begin[..], &own].concat() } else { own }
            })
            .collect();
        let alone: Vec<Vec<f32>> =
            texts.iter().flat_map(|text| vectors(&engine(&model, 1, 64), std::slice::from_ref(text))).collect();
        let engine = engine(&model, 4, 24);
        let running: Vec<_> = (0..3)
            .map(|seed| engine.generate(request(&[1, 2, seed], 80, SamplingOptions::greedy())).unwrap())
            .collect();
        for _ in ["cold", "warm"] {
            let found = engine.embed(embedding(&texts)).unwrap();
            assert_eq!(found.vectors, alone, "pooling {pooling:?}");
            assert_eq!(found.usage.prompt_tokens, texts.iter().map(Vec::len).sum::<usize>());
            // The mean needs each token; the last needs itself.
            assert_eq!(found.usage.reused_tokens > 0, pooling.is_none(), "{:?}", found.usage);
            assert!(found.usage.reused_tokens <= found.usage.prompt_tokens - texts.len());
        }
        running.into_iter().for_each(|generation| assert_eq!(generation.count(), 80));
    }
}

/// A step reads one token of the text and one of the generation, which has all blocks in the end.
#[test]
fn a_preempted_text_is_computed_again() {
    let mut random = Random::fresh();
    for pooling in [None, Some(1), Some(2)] {
        let model = pooled(pooling);
        let text = texts(&mut random, &[50]);
        let alone = vectors(&engine(&model, 1, 64), &text);
        let context = Some(CONTEXT);
        let limits = Limits { context, sequences: 2, kv_tokens: context, batch_tokens: 2, ..Limits::default() };
        let engine = Engine::start(model, limits).unwrap();
        // The generation waits at its first piece until the text is there.
        let (there, is_there) = mpsc::channel::<()>();
        let (send, generated) = mpsc::channel();
        let deliver = move |piece: Result<_, _>| {
            let _ = is_there.recv();
            send.send(piece.is_ok()).is_ok()
        };
        engine.deliver(request(&[1; 10], 90, SamplingOptions::greedy()), deliver).unwrap();
        let (send, found) = mpsc::channel();
        engine.deliver_embeddings(embedding(&text), move |result| send.send(result).unwrap()).unwrap();
        drop(there);
        let found = found.recv().unwrap().unwrap();
        assert_eq!((found.vectors, found.usage.preemptions), (alone, 1), "pooling {pooling:?}");
        assert_eq!(generated.iter().filter(|good| *good).count(), 90);
    }
}

#[test]
fn what_is_refused() {
    let engine_of = |model: &Arc<Model>| engine(model, 1, 64);
    let engine = engine_of(&pooled(None));
    let refusal = |texts: &[Vec<u32>]| engine.embed(embedding(texts)).expect_err("it is refused");
    assert!(matches!(refusal(&[]), EngineError::NoInputs));
    assert!(matches!(refusal(&[vec![1], vec![]]), EngineError::EmptyPrompt));
    let error = refusal(&[vec![1], vec![7; CONTEXT + 1]]);
    assert!(matches!(error, EngineError::PromptTooLong { tokens: 101, exact: true, context: CONTEXT }), "{error}");
    let error = refusal(&[vec![1, 260, 2]]);
    assert!(matches!(error, EngineError::Token { id: 260, index: 1, vocabulary: 260 }), "{error}");
    for kind in [0, 4] {
        let model = pooled(Some(kind));
        let engine = engine_of(&model);
        let error = engine.embed(embedding(&[vec![1]])).expect_err("it is refused");
        assert!(matches!(error, EngineError::NoPooling) && error.to_string().contains("pooling_type"), "{error}");
        assert_eq!(pieces(&engine, request(&[1], 3, SamplingOptions::greedy())).len(), 3, "it generates");
    }
    for (key, value) in [("llama.pooling_type", 5_u32.into()), ("llama.attention.causal", false.into())] {
        let mut tiny = Tiny::llama();
        let value: gristmill_engine::gguf::Value = value;
        tiny.set(key, value);
        let file = tiny.file(&mut Random::fresh());
        let error = Model::with_backend(file, Arc::new(Reference::backend()), LoadOptions::default()).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}

/// However many texts it has, a request takes one place; its texts run next to each other.
#[test]
fn a_request_uses_one_place() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64).with_queue(0);
    let many = texts(&mut random, &[3; 50]);
    assert_eq!(vectors(&engine, &many).len(), 50);
    let mut generation = engine.generate(request(&[1, 2], 90, SamplingOptions::greedy())).unwrap();
    generation.next().unwrap().unwrap();
    assert!(matches!(engine.embed(embedding(&many)), Err(EngineError::Busy { asked: 1, places: 1 })));
    drop(generation);
    let wide = super::engine(&model, 8, 64);
    let usage = wide.embed(embedding(&many)).unwrap().usage;
    assert!(usage.mean_batch().unwrap() > 4.0, "{usage:?}");
}

/// Texts that wait start between others: a short request does not wait for a long list.
#[test]
fn other_requests_start_between_the_texts() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    let (send, ends) = mpsc::channel();
    let list = {
        let send = send.clone();
        let many = embedding(&texts(&mut random, &[60; 200]));
        engine.deliver_embeddings(many, move |result| send.send(("list", result.is_ok())).unwrap()).unwrap()
    };
    let one = embedding(&texts(&mut random, &[5]));
    engine.deliver_embeddings(one, move |result| send.send(("one", result.is_ok())).unwrap()).unwrap();
    assert_eq!(ends.iter().collect::<Vec<_>>(), [("one", true), ("list", true)]);
    drop(list);
}

#[test]
fn cancelling_makes_room() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 2, 8).with_queue(0);
    let (send, never) = mpsc::channel();
    let many = embedding(&texts(&mut random, &[90; 500]));
    let canceller = engine.deliver_embeddings(many, move |result| send.send(result.is_ok()).unwrap()).unwrap();
    while engine.stats().running == 0 {
        std::thread::yield_now();
    }
    canceller.cancel();
    assert_eq!(never.iter().count(), 0, "what delivers is dropped");
    assert_eq!(vectors(&engine, &texts(&mut random, &[3; 5])).len(), 5);
}

#[test]
fn a_device_that_fails_ends_all_texts() {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    let (backend, device) = failing::backend();
    let file = tiny.file(&mut Random::fresh());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).unwrap());
    let engine = engine(&model, 3, 8);
    let mut random = Random::fresh();
    let (send, ends) = mpsc::channel();
    for _ in 0..3 {
        let send = send.clone();
        let many = embedding(&texts(&mut random, &[90; 20]));
        engine.deliver_embeddings(many, move |result| send.send(result).unwrap()).unwrap();
    }
    drop(send);
    device.fail_after(50);
    let ends: Vec<_> = ends.iter().collect();
    assert_eq!(ends.len(), 3);
    assert!(ends.iter().all(|end| matches!(end, Err(EngineError::Device(_)))), "{ends:?}");
    assert!(matches!(engine.embed(embedding(&[vec![1]])), Err(EngineError::Device(_))));
    let stats = engine.stats();
    assert_eq!((stats.waiting, stats.running), (0, 0));
}

/// One of several inputs fails: its request ends, others continue.
#[test]
fn hidden_states_that_are_not_finite_end_their_request() {
    let backend = Arc::new(Reference::backend());
    let model = Arc::new(Model::with_backend(damaged::file(), backend, LoadOptions::default()).unwrap());
    let engine = engine(&model, 3, 16);
    let good = vec![vec![1, 2, 3], vec![5; 40]];
    let alone = vectors(&engine, &good);
    let greedy = request(&[1, 2, 3], 30, SamplingOptions { seed: Some(1), ..SamplingOptions::greedy() });
    let greedy = gristmill_engine::Request { logit_bias: vec![(BAD, -1e30)], ..greedy };
    let generation = engine.generate(greedy).unwrap();
    let bad = [good[0].clone(), [&[4; 30][..], &[BAD, 2]].concat(), good[1].clone()];
    match engine.embed(embedding(&bad)) {
        Err(EngineError::Step(error)) => {
            assert!(matches!(*error, Error::NotFinite { stage: Stage::Embedding, position: 30 }), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(tokens(&generation.collect::<Result<Vec<_>, _>>().unwrap()).len(), 30);
    assert_eq!(vectors(&engine, &good), alone);
}
