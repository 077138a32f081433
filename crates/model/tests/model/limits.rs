//! Mistakes of a caller.

use std::sync::Arc;

use gristmill_kernels::ops::SamplingOptions;
use gristmill_model::{
    Batch, Error, Limits, LoadOptions, MAX_CONTEXT, Model, Notice, Outputs, Plan, Precision, Runner, Sampling,
};

use crate::tiny::{Random, Tiny, VOCAB};
use crate::{reference, runner};

#[test]
fn limits_of_a_batch() {
    let mut random = Random::fresh();
    let model = reference(&Tiny::llama().file(&mut random));
    let limits = Limits { context: Some(50), sequences: 1, batch_tokens: 8, output_rows: Some(2), ..Limits::default() };
    let mut runner = Runner::new(model, limits).expect("it fits");
    let id = runner.open_sequence().expect("one is free");
    let mut forward = |tokens: &[u32], outputs| {
        let mut batch = Batch::new();
        batch.push(id, tokens, outputs);
        runner.forward(&batch).map(|logits| logits.rows())
    };
    assert_eq!(forward(&[1; 8], Outputs::Last).expect("it fits"), 1);
    assert_eq!(forward(&[], Outputs::All).expect("nothing to do"), 0);
    assert_eq!(forward(&[1; 8], Outputs::None).expect("it fits"), 0);
    let error = forward(&[1; 9], Outputs::Last).expect_err("too many");
    assert!(matches!(error, Error::BatchTooLarge { what: "tokens", found: 9, limit: 8 }), "{error}");
    let error = forward(&[1; 3], Outputs::All).expect_err("too many");
    assert!(matches!(error, Error::BatchTooLarge { what: "output rows", found: 3, limit: 2 }), "{error}");
    let error = forward(&[0, VOCAB as u32], Outputs::None).expect_err("no such token");
    assert!(matches!(error, Error::Token { id, index: 1, vocab } if id as usize == vocab), "{error}");
    assert_eq!(runner.sequence_len(id).expect("it is open"), 16);
}

#[test]
fn sequences_open_and_close() {
    let mut random = Random::fresh();
    let model = reference(&Tiny::llama().file(&mut random));
    let (mut runner, mut other) = (runner(&model), runner(&model));
    let ids = [(); 3].map(|()| runner.open_sequence().expect("one is free"));
    assert!(matches!(runner.open_sequence(), Err(Error::OutOfSequences(3))));
    assert!(matches!(runner.fork_sequence(ids[0]), Err(Error::OutOfSequences(3))));
    runner.close_sequence(ids[1]).expect("it is open");
    assert!(matches!(runner.close_sequence(ids[1]), Err(Error::UnknownSequence)));
    let again = runner.open_sequence().expect("one is free");
    assert!(matches!(runner.sequence_len(ids[1]), Err(Error::UnknownSequence)), "an old id is not the new sequence");
    assert_eq!(runner.sequence_len(again).expect("it is open"), 0);
    let mut batch = Batch::new();
    batch.push(ids[1], &[1], Outputs::Last);
    assert!(matches!(runner.forward(&batch), Err(Error::UnknownSequence)));
    assert!(matches!(other.forward(&batch), Err(Error::UnknownSequence)));
}

#[test]
fn limits_of_a_runner() {
    let mut random = Random::fresh();
    let model = reference(&Tiny::llama().file(&mut random));
    let good = Limits { sequences: 2, ..Limits::default() };
    assert_eq!(Runner::new(model.clone(), good).expect("it fits").context(), 100, "what it was trained on");
    for (bad, message) in [
        (Limits { context: Some(0), ..good }, "the context length is 0; it must be at least 1"),
        (Limits { sequences: 0, ..good }, "the number of sequences is 0; it must be at least 1"),
        (Limits { batch_tokens: 0, ..good }, "the number of tokens in a batch is 0; it must be at least 1"),
        (Limits { kv_tokens: Some(0), ..good }, "the number of tokens of the KV cache is 0; it must be at least 1"),
        (
            Limits { kv_tokens: Some(49), context: Some(50), ..good },
            "the number of tokens of the KV cache is 49; it must be at least the context length, 50; raise it or \
             shorten the context",
        ),
        (Limits { output_rows: Some(0), ..good }, "the number of output rows is 0; it must be at least 1"),
        (
            Limits { context: Some(MAX_CONTEXT + 1), ..good },
            "the context length is 2147483649; gristmill supports at most 2147483648",
        ),
    ] {
        assert_eq!(Runner::new(model.clone(), bad).expect_err("a bad limit").to_string(), message);
    }
    for huge in [
        Limits { sequences: usize::MAX, ..good },
        Limits { kv_tokens: Some(usize::MAX), ..good },
        Limits { batch_tokens: usize::MAX, ..good },
        Limits { output_rows: Some(usize::MAX), ..good },
    ] {
        let error = Runner::new(model.clone(), huge).expect_err("it does not fit");
        assert!(matches!(error, Error::Memory { needed, free, .. } if needed > free), "{error}");
    }
}

/// Beyond the 100 tokens that the model was trained on a context is allowed, and a notice says so.
#[test]
fn a_context_beyond_the_training() {
    let mut random = Random::fresh();
    let model = reference(&Tiny::llama().file(&mut random));
    let limits = |context| Limits { context, sequences: 1, batch_tokens: 200, ..Limits::default() };
    for (context, notice) in [
        (None, None),
        (Some(100), None),
        (Some(101), Some(Notice::LongContext { context: 101, trained: 100 })),
        (Some(150), Some(Notice::LongContext { context: 150, trained: 100 })),
    ] {
        let mut runner = Runner::new(model.clone(), limits(context)).expect("it fits");
        assert_eq!((runner.context(), runner.plan().notice()), (context.unwrap_or(100), notice));
        let id = runner.open_sequence().expect("one is free");
        let mut batch = Batch::new();
        batch.push(id, &random.tokens(runner.context()), Outputs::Last);
        let logits = runner.forward(&batch).expect("it runs").to_vec().expect("host memory");
        assert!(logits.iter().all(|x| x.is_finite()));
    }
    let text = Notice::LongContext { context: 150, trained: 100 }.to_string();
    assert!(text.contains("150") && text.contains("100 that the model was trained on"), "{text}");
}

#[test]
fn a_plan_counts_what_is_taken() {
    let mut random = Random::fresh();
    let file = Tiny::qwen3moe().file(&mut random);
    let info = gristmill_model::ModelInfo::read(&file).expect("a good model");
    let limits =
        Limits { context: Some(33), sequences: 2, batch_tokens: 10, output_rows: Some(3), ..Limits::default() };
    let backend = Arc::new(gristmill_cpu::Cpu::backend(gristmill_cpu::Level::best(), 1).expect("one"));
    let plan = Plan::new(&info, &limits, Precision::Fast, &backend).expect("good limits");
    // 3 blocks of 16 tokens for each of 2 sequences; 2 layers of 2 heads of 48 + 48 numbers in f16.
    assert_eq!((plan.context, plan.state), (33, 3 * 2 * 16 * 2 * 2 * 96 * 2));
    assert_eq!(plan.mapped, 64 * VOCAB * 4);
    // Weights in rows of a multiple of 16: the vocabulary's 61 become 64, the router's 5 become 16.
    let layer = 64 * (96 * 3 + 96) + 16 * 64 + 5 * 3 * 32 * 64 + 2 * 64 + 2 * 48;
    assert_eq!(plan.weights, 4 * (64 * 64 + 64 + 2 * layer));
    assert!(plan.scratch > 4 * (3 * VOCAB + 10 * 3 * 64));
    let model = Model::with_backend(file, backend, LoadOptions::default()).expect("a good model");
    let vectors = 4 * (64 + 2 * (2 * 64 + 2 * 48));
    assert_eq!(model.prepared_bytes(), plan.weights - vectors);
}

/// A context that is not given is no longer than the KV cache, whose size does not depend on it.
#[test]
fn a_plan_knows_the_size_of_the_cache() {
    let model = reference(&Tiny::llama().file(&mut Random::fresh()));
    let plan = |context, kv_tokens| {
        Runner::new(model.clone(), Limits { context, sequences: 8, kv_tokens, ..Limits::default() }).unwrap().plan()
    };
    // 2 layers with 2 heads of 8 + 8 numbers in f16.
    let bytes = |blocks: u64| blocks * 16 * 2 * 2 * 16 * 2;
    for (context, kv_tokens, expected) in [
        (None, None, (100, 800, bytes(8 * 7))),
        (None, Some(200), (100, 200, bytes(13))),
        (None, Some(60), (60, 60, bytes(4))),
        (Some(40), Some(60), (40, 60, bytes(4))),
        (Some(40), Some(1000), (40, 1000, bytes(63))),
    ] {
        let plan = plan(context, kv_tokens);
        assert_eq!((plan.context, plan.kv_tokens, plan.state), expected);
    }
}

#[test]
fn options_that_are_not_there() {
    let open = |change: fn(&mut LoadOptions)| {
        let mut options = LoadOptions::default();
        change(&mut options);
        Model::from_file(Tiny::llama().file(&mut Random(1)), options).expect_err("a bad option").to_string()
    };
    assert_eq!(
        open(|o| o.device = "cpu:1".to_owned()),
        "device \"cpu:1\" is unknown; devices: auto, cpu, cuda, cuda:N, metal, metal:N (N counts from 0); several with \
         commas, as cuda:0,1 or cpu:0,1"
    );
    assert!(open(|o| o.level = Some("sse9".to_owned())).starts_with("CPU level \"sse9\" is unknown; levels: portable"));
    assert!(open(|o| o.threads = Some(0)).contains("0 threads"));
    assert!(open(|o| o.threads = Some(10_000)).contains("10000 threads"));
}

#[test]
fn sampling_is_that_of_the_logits() {
    let mut random = Random::fresh();
    let mut runner = runner(&reference(&Tiny::llama().file(&mut random)));
    let id = runner.open_sequence().expect("one is free");
    let mut batch = Batch::new();
    batch.push(id, &random.tokens(9), Outputs::All);
    let mut logits = runner.forward(&batch).expect("it runs");
    let values = logits.to_vec().expect("host memory");
    let best = |row: &[f32]| (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("not empty") as u32;
    let expected: Vec<u32> = values.chunks(VOCAB as usize).map(best).collect();
    assert_eq!(logits.argmax().expect("it runs"), expected);
    let greedy = Sampling { mask: None, bias: &[], counts: &[], options: SamplingOptions::NONE, position: 1 };
    assert_eq!(logits.sample(&[greedy; 9]).expect("it runs"), expected);
    assert!(logits.sample(&[greedy; 8]).is_err(), "one set of parameters for each row");
}
