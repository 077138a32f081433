//! The end of an engine: what runs continues, and what only waits is refused.

use std::mem;
use std::sync::mpsc::{self, Receiver};

use gristmill_engine::Piece;
use gristmill_engine::{EngineError, SamplingOptions};

use crate::tiny::Random;
use crate::{engine, model, pieces, random_tokens, request, tokens};

type Events = Receiver<Result<Piece, EngineError>>;

/// The tokens of a request, and how many of its choices were refused.
fn outcome(events: &Events) -> (Vec<u32>, usize) {
    let mut tokens = Vec::new();
    let mut refused = 0;
    for event in events {
        match event {
            Ok(piece) => tokens.push(piece.token),
            Err(EngineError::Draining) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (tokens, refused)
}

#[test]
fn what_only_waits_is_refused() {
    let model = model();
    let mut random = Random::fresh();
    let engine = engine(&model, 1, 64);
    let request = request(&random_tokens(&mut random, 5), 20, SamplingOptions::greedy());
    let expected = tokens(&pieces(&engine, request.clone()));
    // The first token of the first request holds the engine's thread, so that others wait.
    let (go, held) = mpsc::channel::<()>();
    let (events, running) = mpsc::channel();
    let mut holds = true;
    let deliver = move |event| {
        if mem::take(&mut holds) {
            held.recv().unwrap();
        }
        events.send(event).is_ok()
    };
    engine.deliver(request.clone(), deliver).unwrap();
    let start = |is_promised: bool| -> Events {
        let (events, received) = mpsc::channel();
        let mut places = engine.reserve(0, 2).unwrap();
        if is_promised {
            places.pledge().give();
        }
        let deliver = |_| {
            let events = events.clone();
            move |event| events.send(event).is_ok()
        };
        engine.deliver_choices(request.clone(), &mut places, (0..2).map(deliver)).unwrap();
        received
    };
    let (waiting, promised) = (start(false), start(true));
    engine.drain();
    assert!(matches!(engine.generate(request.clone()), Err(EngineError::Draining)));
    go.send(()).unwrap();
    assert_eq!(outcome(&waiting), (Vec::new(), 2));
    assert_eq!(outcome(&running), (expected.clone(), 0));
    let (tokens, refused) = outcome(&promised);
    assert_eq!((tokens.len(), refused), (2 * expected.len(), 0));
    assert!(engine.health().is_ok());
}
