//! A row of logits that is not finite ends its own request.

use std::sync::Arc;

use gristmill_engine::{Engine, EngineError, Error, LoadOptions, Model, SamplingOptions, Stage};
use gristmill_kernels::reference::Reference;

use super::damaged::{self, BAD};
use super::{engine, request, tokens};

fn model() -> Arc<Model> {
    let backend = Arc::new(Reference::backend());
    Arc::new(Model::with_backend(damaged::file(), backend, LoadOptions::default()).unwrap())
}

#[test]
fn the_other_requests_go_on() {
    let model = model();
    let good = |engine: &Engine, prompt: &[u32]| {
        let mut request = request(prompt, 9, SamplingOptions::greedy());
        request.logit_bias = vec![(BAD, -1e30)];
        engine.generate(request).unwrap()
    };
    let alone = tokens(&good(&engine(&model, 1, 64), &[1, 2, 3]).collect::<Result<Vec<_>, _>>().unwrap());

    let engine = engine(&model, 3, 64);
    let other = good(&engine, &[1, 2, 3]);
    for _ in 0..3 {
        let bad = good(&engine, &[1, 2, BAD]).next().unwrap();
        let Err(EngineError::Step(error)) = bad else { panic!("{bad:?}") };
        assert!(matches!(*error, Error::NotFinite { stage: Stage::Embedding, position: 2 }), "{error}");
        assert!(error.to_string().contains("`token_embd.weight`"), "{error}");
    }
    // Nothing of the failed requests is reused.
    assert_eq!(tokens(&other.collect::<Result<Vec<_>, _>>().unwrap()), alone);
    assert_eq!(tokens(&good(&engine, &[1, 2, 3]).collect::<Result<Vec<_>, _>>().unwrap()), alone);
}
