//! Callbacks of the caller: one that panics, one that drops the engine, one that waits for the engine.

use std::sync::mpsc;
use std::time::Duration;

use gristmill_engine::{EmbeddingRequest, EngineError, SamplingOptions};

use super::tiny::Random;
use super::{Arc, engine, model, pieces, random_tokens, request, tokens};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_panic_ends_its_own_request() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 2, 64);
    let prompt = random_tokens(&mut random, 9);
    let expected = tokens(&pieces(&engine, request(&prompt, 20, SamplingOptions::greedy())));
    let other = engine.generate(request(&prompt, 20, SamplingOptions::greedy())).expect("a good request");
    let (seen, calls) = mpsc::channel();
    let panics = move |_| -> bool {
        seen.send(()).expect("the test waits");
        panic!("a fault of the caller")
    };
    engine.deliver(request(&prompt, 20, SamplingOptions::greedy()), panics).expect("a good request");
    let found = other.map(|piece| piece.expect("it runs").token).collect::<Vec<_>>();
    assert_eq!(found, expected);
    // It was called once, then dropped.
    assert_eq!(calls.recv_timeout(PATIENCE), Ok(()));
    assert_eq!(calls.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
    let embedding = EmbeddingRequest::new(vec![prompt.clone().into()]);
    engine.deliver_embeddings(embedding, |_| panic!("a fault of the caller")).expect("a good request");
    assert_eq!(tokens(&pieces(&engine, request(&prompt, 20, SamplingOptions::greedy()))), expected);
}

#[test]
fn the_last_engine_is_dropped_in_a_callback() {
    let model = model();
    let mut random = Random::fresh();
    let engine = Arc::new(engine(&model, 1, 64));
    let (done, finished) = mpsc::channel();
    let mut held = Some(engine.clone());
    let deliver = move |_| {
        let Some(engine) = held.take() else { return true };
        // Until the test has dropped its own.
        while Arc::strong_count(&engine) > 1 {
            std::thread::yield_now();
        }
        drop(engine);
        done.send(()).expect("the test waits");
        true
    };
    let prompt = random_tokens(&mut random, 5);
    engine.deliver(request(&prompt, 50, SamplingOptions::greedy()), deliver).expect("a good request");
    drop(engine);
    assert_eq!(finished.recv_timeout(PATIENCE), Ok(()));
    // The thread has ended and dropped the callback.
    assert_eq!(finished.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_callback_cannot_wait_for_its_engine() {
    let model = model();
    let mut random = Random::fresh();
    let engine = Arc::new(engine(&model, 1, 64));
    let (found, results) = mpsc::channel();
    let inner = Arc::downgrade(&engine);
    let prompt = random_tokens(&mut random, 5);
    let again = request(&prompt, 3, SamplingOptions::greedy());
    let text = prompt.clone();
    let deliver = move |_| {
        let Some(engine) = inner.upgrade() else { return false };
        let items: Vec<_> = engine.generate(again.clone()).expect("a good request").collect();
        let embedded = engine.embed(EmbeddingRequest::new(vec![text.clone().into()]));
        found.send((items.len(), items.into_iter().next(), embedded.err())).expect("the test waits");
        false
    };
    engine.deliver(request(&prompt, 3, SamplingOptions::greedy()), deliver).expect("a good request");
    let (count, first, embedded) = results.recv_timeout(PATIENCE).expect("no hang");
    assert!(count == 1 && matches!(first, Some(Err(EngineError::InCallback))), "{first:?}");
    assert!(matches!(embedded, Some(EngineError::InCallback)), "{embedded:?}");
}
