//! Steps that a device is given before the host has the tokens of the step before: texts are the same.

use std::sync::Arc;

use gristmill_engine::Piece;
use gristmill_engine::gguf::GgufFile;
use gristmill_engine::{Engine, EngineError, Error, Limits, LoadOptions, Model, Request, SamplingOptions, Stage};
use gristmill_kernels::reference::Reference;

use super::damaged::{self, BAD};
use super::tiny::{Random, Tiny};
use super::{engine, failing, pieces, random_tokens, request, sampling, speech, tokens};

/// A model on the reference, and on an asynchronous one.
fn both(file: &GgufFile) -> [Arc<Model>; 2] {
    [Reference::backend(), failing::behind()].map(|backend| {
        Arc::new(Model::with_backend(file.clone(), Arc::new(backend), LoadOptions::default()).expect("a good model"))
    })
}

fn file(mut tiny: Tiny) -> GgufFile {
    speech::teach(&mut tiny);
    tiny.file(&mut Random::fresh())
}

/// A request with whatever may end its text, or keep it from being ahead.
fn any_request(random: &mut Random, prompt: &[u32]) -> Request {
    let plain = SamplingOptions { temperature: 1.2, seed: Some(random.next()), ..SamplingOptions::default() };
    let options = [SamplingOptions::greedy(), plain, sampling(random)][random.below(3)];
    let n = 1 + random.below(30);
    let mut request = request(prompt, n, options);
    request.ignore_end = random.below(2) == 0;
    request.min_tokens = if random.below(4) == 0 { n.min(5) } else { 0 };
    request.draft = if random.below(4) == 0 { 3 } else { 0 };
    request.logprobs = (random.below(4) == 0).then_some(2);
    if random.below(3) == 0 {
        request.stop = vec!["a".to_owned(), "the".to_owned()];
    }
    request
}

fn ends(found: &[Piece]) -> (Vec<u32>, String) {
    (tokens(found), format!("{:?}", found.last().and_then(|piece| piece.finish).map(|finish| finish.reason)))
}

#[test]
fn texts_and_what_is_reused_are_the_same() {
    for tiny in [Tiny::llama(), Tiny::gpt_oss(), Tiny::lfm2(), Tiny::qwen35()] {
        let [waits, behind] = both(&file(tiny));
        let mut random = Random::fresh();
        let engines = [&waits, &behind].map(|model| engine(model, 3, 24));
        let system = random_tokens(&mut random, 20);
        for _ in 0..4 {
            let requests: Vec<Request> = (0..7)
                .map(|_| {
                    let own = 1 + random.below(8);
                    let prompt = [&system[..random.below(21)], &random_tokens(&mut random, own)].concat();
                    any_request(&mut random, &prompt)
                })
                .collect();
            let running: Vec<_> =
                requests.iter().map(|request| engines[1].generate(request.clone()).unwrap()).collect();
            for (request, running) in requests.iter().zip(running) {
                let found = running.collect::<Result<Vec<_>, _>>().expect("it runs");
                assert_eq!(ends(&found), ends(&pieces(&engines[0], request.clone())));
            }
        }
        let plain = request(&system, 20, SamplingOptions::greedy());
        let ahead = || engines.each_ref().map(|engine| engine.stats().overlapped_steps);
        let before = ahead();
        let [cold, again] = [(); 2].map(|()| engines.each_ref().map(|engine| pieces(engine, plain.clone())));
        for [one, other] in [cold, again] {
            assert_eq!(ends(&one), ends(&other));
        }
        // A single text has an in-flight step after each step but its last.
        assert_eq!(ahead(), [0, before[1] + 2 * 19]);
        // A text that is dropped while its next token is under way leaves its place.
        for _ in 0..5 {
            let mut dropped = engines[1].generate(request(&system, 60, SamplingOptions::greedy())).unwrap();
            assert!(dropped.next().unwrap().is_ok());
        }
        // So does one whose prompt is in the step in flight.
        let running = engines[1].generate(request(&system, 60, SamplingOptions::greedy())).unwrap();
        for _ in 0..8 {
            let prompt = random_tokens(&mut random, 70);
            drop(engines[1].generate(request(&prompt, 9, SamplingOptions::greedy())).unwrap());
            assert_eq!(pieces(&engines[1], request(&prompt[..3], 2, SamplingOptions::greedy())).len(), 2);
        }
        let found = running.collect::<Result<Vec<_>, _>>().expect("it runs");
        assert_eq!(ends(&found), ends(&pieces(&engines[0], request(&system, 60, SamplingOptions::greedy()))));
        assert_eq!(ends(&pieces(&engines[1], plain.clone())), ends(&pieces(&engines[0], plain)));
        // What a text leaves in the prefix cache does not depend on how its last steps ran.
        let kept = engines.each_ref().map(|engine| {
            let fresh = request(&random_tokens(&mut Random(7), 33), 9, SamplingOptions::greedy());
            let first = pieces(engine, fresh.clone());
            let turn = [&random_tokens(&mut Random(7), 33)[..], &tokens(&first), &[1, 2, 3]].concat();
            pieces(engine, request(&turn, 3, SamplingOptions::greedy()))
                .last()
                .unwrap()
                .finish
                .unwrap()
                .usage
                .reused_tokens
        });
        assert!(kept[0] == kept[1] && kept[0] >= 33, "{kept:?}");
    }
}

/// While a text is generated, all others start, read their prompts and end without a step that the device waits for.
#[test]
fn requests_start_in_overlapped_steps() {
    for tiny in [Tiny::llama(), Tiny::lfm2(), Tiny::qwen35()] {
        let [_, behind] = both(&file(tiny));
        let mut random = Random::fresh();
        let engine = engine(&behind, 3, 24);
        let long = engine.generate(request(&[1, 2, 3], 80, SamplingOptions::greedy())).unwrap();
        let others = (0..6).map(|_| request(&random_tokens(&mut random, 30), 4, SamplingOptions::greedy()));
        let others: Vec<_> = others.map(|request| engine.generate(request).unwrap()).collect();
        for text in [long].into_iter().chain(others) {
            text.collect::<Result<Vec<_>, _>>().expect("it runs");
        }
        let stats = engine.stats();
        assert!(stats.step_requests.count() < 90, "the others run beside the first: {stats:?}");
        assert_eq!(stats.step_requests.count() - stats.overlapped_steps, 1, "{stats:?}");
    }
}

/// Two texts that take all of a small cache, so that one is preempted.
#[test]
fn a_full_cache_preempts_as_without_overlap() {
    let models = both(&file(Tiny::llama()));
    let found = models.each_ref().map(|model| {
        let limits = Limits { context: Some(64), sequences: 2, kv_tokens: Some(80), ..Limits::default() };
        let engine = Engine::start(model.clone(), limits).expect("it fits");
        let ask = |n: u32| engine.generate(request(&[n, 2, 3], 50, SamplingOptions::greedy())).unwrap();
        [ask(1), ask(4)].map(|text| tokens(&text.collect::<Result<Vec<_>, _>>().expect("it runs")))
    });
    assert_eq!(found[0], found[1]);
}

/// A text fails at its own token, and the others keep theirs.
#[test]
fn a_row_that_is_not_finite_ends_its_own_text() {
    let [waits, behind] = both(&damaged::file());
    let good = |engine: &Engine, n| {
        let mut request = request(&[1, 2, 3], n, SamplingOptions::greedy());
        request.logit_bias = vec![(BAD, -1e30)];
        engine.generate(request).unwrap()
    };
    let of = |text: gristmill_engine::Generation| tokens(&text.collect::<Result<Vec<_>, _>>().unwrap());
    let alone = of(good(&engine(&waits, 1, 64), 40));
    let engine = engine(&behind, 3, 64);
    let mut other = good(&engine, 40);
    let first = other.next().unwrap().unwrap().token;
    for drawn in [0, 3] {
        // The token is in the prompt, or drawn in its place.
        let prompt = if drawn == 0 { vec![1, 2, BAD] } else { vec![1, 2, 9] };
        let mut bad = request(&prompt, 9, SamplingOptions::greedy());
        bad.logit_bias = vec![(BAD, if drawn == 0 { -1e30 } else { 1e30 })];
        let mut found: Vec<_> = engine.generate(bad).unwrap().collect();
        let Some(Err(EngineError::Step(error))) = found.pop() else { panic!("an error expected") };
        let position = if drawn == 0 { 2 } else { 3 };
        assert!(
            matches!(&*error, Error::NotFinite { stage: Stage::Embedding, position: at } if *at == position),
            "{error}"
        );
        assert_eq!(found.len(), usize::from(drawn > 0));
    }
    assert_eq!([&[first][..], &of(other)].concat(), alone);
    assert_eq!(of(good(&engine, 40)), alone, "nothing of the failed texts is reused");
}
