//! A row of logits that is not finite ends its own request.

use std::sync::Arc;

use gristmill_engine::gguf::GgufFile;
use gristmill_engine::{Engine, EngineError, Error, LoadOptions, Model, SamplingOptions, Stage};
use gristmill_kernels::reference::Reference;

use super::speech::{WORDS, teach};
use super::{engine, request, tokens};
use crate::tiny::{Random, Tiny};

/// The embedding of this token is not finite.
const BAD: u32 = 7;

fn model() -> Arc<Model> {
    let mut tiny = Tiny::qwen3();
    teach(&mut tiny);
    let hidden = tiny.tensors[0].2[0];
    tiny.tensor("output.weight", &[hidden, WORDS]);
    let mut bytes = tiny.bytes(&mut Random::fresh());
    let file = GgufFile::from_bytes(bytes.clone()).unwrap();
    let table = file.tensor("token_embd.weight").unwrap();
    let at = table.offset as usize + table.format.row_bytes(table.shape[0] as usize).unwrap() * BAD as usize;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let file = GgufFile::from_bytes(bytes).unwrap();
    Arc::new(Model::with_backend(file, Arc::new(Reference::backend()), LoadOptions::default()).unwrap())
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
