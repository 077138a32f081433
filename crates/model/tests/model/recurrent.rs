//! Models with layers whose state has a fixed size: what is read from their files, and what is refused.

use std::sync::Arc;

use gristmill_kernels::ops::HeadMap;
use gristmill_kernels::reference::Reference;
use gristmill_model::gguf::{Array, Value};
use gristmill_model::spec::{DeltaProjections, Mixer, MlpSpec};
use gristmill_model::{Batch, Error, Limits, LoadOptions, Model, ModelInfo, Outputs, Plan, Precision, Runner};

use crate::tiny::{Random, Tiny};

fn read(tiny: &Tiny) -> Result<ModelInfo, Error> {
    ModelInfo::read(&tiny.file(&mut Random(3)))
}

fn numbers(values: &[u32]) -> Value {
    Value::Array(Array::U32(values.to_vec()))
}

#[test]
fn layers_are_of_several_kinds() {
    let kinds = |tiny: &Tiny| {
        let kind = |mixer: &Mixer| match mixer {
            Mixer::Attention(attention) => format!("attention, gate {}", attention.gate.is_some()),
            Mixer::Convolution(convolution) => format!("convolution of {}", convolution.taps),
            Mixer::Delta(delta) => format!("{:?}, {:?}", delta.heads.map, delta.projections),
            Mixer::Scan(scan) => format!("scan of {}, norm {}", scan.heads.heads, scan.norm),
            Mixer::Sum(parts) => parts.iter().map(|part| part.fixed_state(32).len().to_string()).collect(),
            _ => "another".to_owned(),
        };
        read(tiny).expect("a good model").spec.layers.iter().map(|layer| kind(&layer.mixer)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&Tiny::lfm2()), ["convolution of 3", "attention, gate false"]);
    let delta = format!("{:?}, {:?}", HeadMap::Tiled, DeltaProjections::Apart);
    assert_eq!(kinds(&Tiny::qwen35()), [delta.as_str(), "attention, gate true"]);
    assert_eq!(kinds(&Tiny::mamba2()), ["scan of 4, norm true"; 2]);
    assert_eq!(kinds(&Tiny::jamba()), ["scan of 64, norm false", "attention, gate false"]);
    // Attention, which has no state of fixed size, and a scan, which has two.
    assert_eq!(kinds(&Tiny::falcon_h1()), ["02"; 2]);
    let mut flags = Tiny::qwen35();
    flags.set("qwen35.attention.recurrent_layers", Value::Array(Array::Bool(vec![true, false])));
    assert_eq!(kinds(&flags), kinds(&Tiny::qwen35()));
}

/// An array has a value for each layer, or also for each layer that predicts further tokens; none more, none fewer.
#[test]
fn arrays_of_layers_have_their_length() {
    type Of = (&'static str, Value, &'static str);
    let heads = |counts: &[u32]| -> Of { ("attention.head_count_kv", numbers(counts), "numbers") };
    let flags =
        |flags: &[bool]| -> Of { ("attention.recurrent_layers", Value::Array(Array::Bool(flags.to_vec())), "flags") };
    let read_with = |tiny: &Tiny, arch: &str, (key, value, _): &Of| {
        let mut tiny = tiny.clone();
        tiny.set(&format!("{arch}.{key}"), value.clone());
        read(&tiny)
    };
    for (arch, tiny, good, bad) in [
        ("lfm2", Tiny::lfm2(), heads(&[0, 2]), [heads(&[]), heads(&[0]), heads(&[0, 2, 2])]),
        ("qwen35", Tiny::qwen35(), heads(&[1, 1]), [heads(&[]), heads(&[1]), heads(&[1, 1, 1])]),
        ("qwen35", Tiny::qwen35(), flags(&[true, false]), [flags(&[]), flags(&[true]), flags(&[true, false, true])]),
    ] {
        assert_eq!(read_with(&tiny, arch, &good).expect("a good model").spec.layers.len(), 2);
        for (bad, found) in bad.iter().zip([0, 1, 3]) {
            let message = read_with(&tiny, arch, bad).expect_err("a bad length").to_string();
            let (key, _, noun) = bad;
            let says = format!("`{arch}.{key}`: {found} {noun} are not the 2 layers");
            assert!(message.contains(&says), "{message}, not {says}");
        }
    }
    // A third layer, which predicts further tokens.
    let mut predicting = Tiny::qwen35();
    predicting.set("qwen35.block_count", 3_u32);
    predicting.set("qwen35.nextn_predict_layers", 1_u32);
    for (part, shape) in [("eh_proj", &[64, 32][..]), ("enorm", &[32]), ("hnorm", &[32])] {
        predicting.tensor(&format!("blk.2.nextn.{part}.weight"), shape);
    }
    for good in [heads(&[1, 1]), heads(&[1, 1, 1]), flags(&[true, false]), flags(&[true, false, false])] {
        let spec = read_with(&predicting, "qwen35", &good).expect("a good model").spec;
        assert_eq!((spec.layers.len(), spec.prediction_layers), (2, 1));
    }
    for bad in [heads(&[1; 4]), flags(&[true; 4])] {
        let message = read_with(&predicting, "qwen35", &bad).expect_err("a bad length").to_string();
        assert!(message.contains("are not the 2 layers"), "{message}");
    }
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    type Change = fn(&mut Tiny);
    let cases: [(Tiny, Change, &str); 29] = [
        (
            Tiny::lfm2(),
            |t| t.set("lfm2.attention.head_count_kv", numbers(&[0, 2, 2])),
            "3 numbers are not the 2 layers",
        ),
        (Tiny::lfm2(), |t| t.set("lfm2.attention.head_count_kv", numbers(&[0, 3])), "is not a multiple of the 3 KV"),
        (Tiny::lfm2(), |t| t.set("lfm2.shortconv.l_cache", 5_u32), "`lfm2.shortconv.l_cache`: `5` is not supported"),
        (Tiny::lfm2(), |t| t.unset("lfm2.shortconv.l_cache"), "`lfm2.shortconv.l_cache`"),
        (Tiny::lfm2(), |t| t.without("blk.0.shortconv.conv.weight"), "`blk.0.shortconv.conv.weight`"),
        (Tiny::lfm2(), |t| t.tensor("blk.0.attn_q.weight", &[32, 32]), "`blk.0.attn_q.weight` is not a weight"),
        (Tiny::qwen35(), |t| t.set("qwen35.ssm.state_size", 48_u32), "`qwen35.ssm.state_size`: `48` is not supported"),
        (Tiny::qwen35(), |t| t.set("qwen35.ssm.inner_size", 60_u32), "`qwen35.ssm.inner_size`"),
        (Tiny::qwen35(), |t| t.set("qwen35.ssm.time_step_rank", 3_u32), "is not a multiple of the 2 key heads"),
        (Tiny::qwen35(), |t| t.set("qwen35.ssm.conv_kernel", 9_u32), "`qwen35.ssm.conv_kernel`: `9` is not supported"),
        (
            Tiny::qwen35(),
            |t| t.set("qwen35.attention.recurrent_layers", Value::Array(Array::Bool(vec![true]))),
            "1 flags are not the 2 layers",
        ),
        (Tiny::qwen35(), |t| t.unset("qwen35.rope.dimension_sections"), "`qwen35.rope.dimension_sections`"),
        (
            Tiny::qwen35(),
            |t| t.set("qwen35.rope.dimension_sections", numbers(&[1, 0, 0, 0])),
            "`[1, 0, 0, 0]` is not supported",
        ),
        (Tiny::qwen35(), |t| t.set("qwen35.rope.dimension_sections", numbers(&[1])), "`[1]` is not supported"),
        (Tiny::qwen35(), |t| t.set("qwen35.feed_forward_length", numbers(&[48, 40])), "one number for all layers"),
        (Tiny::qwen35(), |t| t.tensor("blk.0.ssm_a", &[5]), "`blk.0.ssm_a`"),
        (Tiny::mamba2(), |t| t.set("mamba2.ssm.state_size", 48_u32), "`mamba2.ssm.state_size`: `48` is not supported"),
        (Tiny::mamba2(), |t| t.set("mamba2.ssm.inner_size", 60_u32), "`mamba2.ssm.inner_size`"),
        (Tiny::mamba2(), |t| t.set("mamba2.ssm.time_step_rank", 3_u32), "is not a multiple of the 2 groups"),
        (Tiny::mamba2(), |t| t.set("mamba2.ssm.group_count", 0_u32), "`mamba2.ssm.group_count`: 0 must be at least 1"),
        (
            Tiny::mamba2(),
            |t| t.set("mamba2.attention.head_count", 2_u32),
            "`2` is not supported; known: 0 (no attention)",
        ),
        (Tiny::mamba2(), |t| t.tensor("blk.1.ssm_norm.weight", &[64, 2]), "`blk.1.ssm_norm.weight`"),
        (Tiny::mamba2(), |t| t.without("blk.1.ssm_d"), "`blk.1.ssm_d`"),
        (Tiny::jamba(), |t| t.set("jamba.ssm.state_size", 32_u32), "`jamba.ssm.state_size`: `32` is not supported"),
        (
            Tiny::jamba(),
            |t| t.set("jamba.ssm.inner_size", 48_u32),
            "`jamba.ssm.inner_size`: 48 is not a multiple of 32",
        ),
        (Tiny::jamba(), |t| t.set("jamba.ssm.time_step_rank", 9_u32), "`blk.0.ssm_dt_norm.weight`"),
        (Tiny::jamba(), |t| t.without("blk.0.ssm_dt_norm.weight"), "`blk.0.ssm_dt_norm.weight`"),
        (Tiny::jamba(), |t| t.set("jamba.expert_used_count", 5_u32), "is more than the 4 experts"),
        // The embeddings have another factor than the output matrix.
        (Tiny::falcon_h1(), |t| t.without("output.weight"), "`output.weight`"),
    ];
    for (mut tiny, change, says) in cases {
        change(&mut tiny);
        let message = read(&tiny).expect_err(says).to_string();
        assert!(message.contains(says), "{message}, not {says}");
    }
}

#[test]
fn a_state_larger_than_memory_is_refused_before_it_is_taken() {
    let info = read(&Tiny::qwen35()).expect("a good model");
    let limits = |sequences| Limits { context: Some(1), sequences, batch_tokens: 1, ..Limits::default() };
    let backend = Reference::backend();
    let state = |sequences| Plan::new(&info, &limits(sequences), Precision::Exact, &backend).expect("a plan").state;
    // Slots of a convolution's 3 inputs of 128 channels and of 4 matrices, two of each sequence and some of the prefix
    // cache; a block of keys and values of each sequence.
    let (slot, block) = (4 * (3 * 128 + 4 * 16 * 16), 16 * 2 * 16 * 2);
    assert_eq!(state(1), (2 + 4) * slot + block);
    assert_eq!(state(1 << 30), ((2 << 30) + 16) * slot + (block << 30));
    let plan = Plan::new(&info, &limits(1 << 40), Precision::Exact, &backend).expect("a plan");
    assert!(matches!(plan.check(), Err(Error::Memory { .. })));
    // A runner allocates nothing before: even the list of this number of sequences would end the process.
    let file = Tiny::qwen35().file(&mut Random(3));
    let model = Arc::new(Model::with_backend(file, backend.into(), LoadOptions::default()).expect("a good model"));
    for sequences in [1 << 40, usize::MAX] {
        let error = Runner::new(model.clone(), limits(sequences)).expect_err("it does not fit");
        assert!(matches!(error, Error::Memory { needed, free, .. } if needed > free), "{error}");
    }
}

#[test]
fn sequences_go_back_to_a_checkpoint() {
    for tiny in [Tiny::lfm2(), Tiny::qwen35(), Tiny::falcon_h1(), Tiny::mamba2(), Tiny::jamba()] {
        let file = tiny.file(&mut Random(3));
        let model = Arc::new(Model::with_backend(file, Reference::backend().into(), LoadOptions::default()).unwrap());
        let limits = Limits { sequences: 2, context: Some(20), output_rows: Some(20), ..Limits::default() };
        let mut runner = Runner::new(model, limits).expect("a runner");
        let (one, other) = (runner.open_sequence().unwrap(), runner.open_sequence().unwrap());
        let run = |runner: &mut Runner, tokens: &[u32]| {
            runner.forward(Batch::new().push(one, tokens, Outputs::All)).unwrap().to_vec().unwrap()
        };
        run(&mut runner, &[1, 2, 3]);
        let expected = run(&mut runner, &[4, 5, 6]);
        assert_eq!([2, 3, 5, 6, 9].map(|len| runner.checkpoint(one, len).unwrap()), [0, 3, 3, 6, 6]);
        assert!(matches!(runner.truncate(one, 5), Err(Error::NoCheckpoint { len: 5, nearest: 3 })));
        runner.truncate(one, 3).unwrap();
        assert_eq!(run(&mut runner, &[4, 5, 6]), expected);
        let mut batch = Batch::new();
        batch.push(one, &[7], Outputs::None).push(other, &[7], Outputs::None).push(one, &[8], Outputs::None);
        assert!(matches!(runner.forward(&batch), Err(Error::SplitSequence)));
        batch.clear();
        batch.push(one, &[7], Outputs::None).push(one, &[8], Outputs::Last).push(other, &[7], Outputs::None);
        assert_eq!(runner.forward(&batch).unwrap().to_vec().unwrap().len(), 61);
        assert_eq!(runner.checkpoint(one, 7).unwrap(), 6);
    }
}

/// A file without routers says that it has one expert, which its layers do not have.
#[test]
fn one_expert_without_a_router_is_none() {
    let mut tiny = Tiny::jamba();
    tiny.set("jamba.expert_count", 1_u32);
    for part in ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"] {
        tiny.without(&format!("blk.1.{part}.weight"));
    }
    for (part, shape) in [("ffn_gate", [32, 48]), ("ffn_up", [32, 48]), ("ffn_down", [48, 32])] {
        tiny.tensor(&format!("blk.1.{part}.weight"), &shape);
    }
    let spec = read(&tiny).expect("a good model").spec;
    assert!(spec.layers.iter().all(|layer| matches!(layer.mlp, Some(MlpSpec::Dense { .. }))));
}
