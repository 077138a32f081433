//! A device that fails in the middle of a step ends all requests and the engine, not the program.

use std::sync::Arc;

use gristmill_engine::{Engine, EngineError, LoadOptions, Model, SamplingOptions};

use super::{CONTEXT, engine, failing, pieces, request, speech, tokens};
use crate::tiny::{Random, Tiny};

/// The last item of a request that a failure of the device ended.
fn is_of_device(error: Option<EngineError>) -> bool {
    matches!(&error, Some(EngineError::Device(_))) && error.is_some_and(|error| error.to_string().contains("is gone"))
}

#[test]
fn a_device_that_fails_ends_all_requests() {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    let (backend, device) = failing::backend();
    let file = tiny.file(&mut Random::fresh());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).unwrap());
    let ask = |n: usize| request(&[1, 2, 3], n, SamplingOptions::greedy());
    let alone = |engine: &Engine| tokens(&pieces(engine, ask(9)));
    let expected = alone(&engine(&model, 1, 64));

    // The start, the middle and the end of a step with 2 layers.
    for operations in [0, 11, 23] {
        let engine = engine(&model, 2, 64);
        assert!(engine.health().is_ok());
        // Two run, the others wait.
        let mut requests: Vec<_> = (0..5).map(|_| engine.generate(ask(CONTEXT - 3)).unwrap()).collect();
        assert!(requests[0].next().unwrap().is_ok());
        device.fail_after(operations);
        for request in requests {
            assert!(is_of_device(request.last().unwrap().err()));
        }
        assert!(is_of_device(engine.health().err()));
        assert!(is_of_device(engine.generate(ask(1)).err()));
        assert!(is_of_device(engine.generate(ask(1)).err()), "each time");
        drop(engine);
        device.repair();
        assert_eq!(alone(&super::engine(&model, 1, 64)), expected, "a new engine starts from nothing");
    }
}
