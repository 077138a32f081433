//! Weights and values that are not finite, on every backend: the first part of the model with such an output is named.

use std::path::Path;
use std::sync::Arc;

use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{
    Batch, Error, Limits, LoadOptions, Model, Outputs, Precision, Runner, Sampling, SamplingOptions, Stage,
};
use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::Backend;
use gristmill_kernels::reference::Reference;

/// Two layers with experts, an output matrix of its own, F32.
const MODEL: &str = "qwen3moe-f32";
/// The same in Q8_0: a block's scale is not finite.
const QUANTISED: &str = "qwen3moe-q8_0";

const TOKENS: [u32; 5] = [3, 14, 15, 9, 2];

const GREEDY: Sampling = Sampling {
    mask: None,
    bias: &[],
    counts: &[],
    options: SamplingOptions { seed: Some(1), ..SamplingOptions::NONE },
    position: 0,
};

/// The reference, every level of this CPU, and both GPUs in the simulator.
fn backends() -> Vec<Arc<Backend>> {
    let levels = Level::available();
    let mut backends: Vec<Backend> = levels.map(|level| Cpu::backend(level, 2).unwrap()).collect();
    backends.push(Reference::backend());
    #[cfg(all(target_arch = "x86_64", unix))]
    {
        use gpu_sim::Mode;
        use gristmill_conformance::simulated::Simulator;
        backends.push(Simulator::cuda(1, Mode::Fast).unwrap());
        backends.push(Simulator::metal(1, Mode::Fast).unwrap());
    }
    backends.into_iter().map(Arc::new).collect()
}

/// A golden model in which an element of a tensor is not finite; of a quantised tensor, every block's scale.
fn damaged(model: &str, tensor: &str, element: usize, value: f32) -> GgufFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{model}.gguf"));
    let mut bytes = std::fs::read(&path).unwrap();
    let file = GgufFile::open(path).unwrap();
    let TensorInfo { offset, bytes: size, format, .. } = file.tensor(tensor).unwrap();
    let data = &mut bytes[*offset as usize..][..*size as usize];
    match format.is_float() {
        true => data[4 * element..][..4].copy_from_slice(&value.to_le_bytes()),
        // A NaN of binary16.
        false => data.chunks_mut(format.block_bytes()).for_each(|block| block[..2].copy_from_slice(&[0x00, 0x7e])),
    }
    GgufFile::from_bytes(bytes).unwrap()
}

fn stage_of(result: Result<impl std::fmt::Debug, Error>) -> Stage {
    match result {
        Err(Error::NotFinite { stage, .. }) => stage,
        other => panic!("{other:?}"),
    }
}

fn check(file: GgufFile, backend: &Arc<Backend>, expected: Stage, case: &str) {
    let options = LoadOptions { precision: Precision::Fast, ..LoadOptions::default() };
    let model = Arc::new(Model::with_backend(file, backend.clone(), options).unwrap());
    let limits = Limits { context: Some(32), sequences: 2, batch_tokens: 16, ..Limits::default() };
    let mut runner = Runner::new(model, limits).unwrap();
    let case = format!("{case} on {}", backend.name());
    let options = SamplingOptions { temperature: 0.8, top_k: 40, top_p: 0.9, ..GREEDY.options };
    let random = Sampling { bias: &[(5, 100.0)], mask: Some(&[0b1100; 9]), options, ..GREEDY };
    for round in 0..4 {
        let id = runner.open_sequence().unwrap();
        let mut batch = Batch::new();
        batch.push(id, &TOKENS, Outputs::Last);
        let mut logits = runner.forward(&batch).unwrap();
        let result = match round {
            0 => logits.to_vec().map(drop),
            1 => logits.argmax().map(drop),
            2 => logits.sample(&[GREEDY]).map(drop),
            _ => logits.sample(&[random]).map(drop),
        };
        assert_eq!(stage_of(result), expected, "{case}, round {round}");
        runner.close_sequence(id).unwrap();
    }
    if expected != Stage::Output {
        let id = runner.open_sequence().unwrap();
        runner.count_experts(true);
        let result = runner.forward(Batch::new().push(id, &TOKENS, Outputs::None)).map(drop);
        assert_eq!(stage_of(result), expected, "{case}, experts counted");
        assert_eq!(runner.sequence_len(id).unwrap(), 0);
    }
}

#[test]
fn the_first_stage_that_is_not_finite_is_named() {
    let one = [
        ("token_embd.weight", Stage::Embedding),
        ("blk.0.attn_v.weight", Stage::Layer(0)),
        ("blk.1.attn_q.weight", Stage::Layer(1)),
        ("blk.1.ffn_norm.weight", Stage::Layer(1)),
        ("output_norm.weight", Stage::Output),
        ("output.weight", Stage::Output),
    ];
    for backend in backends() {
        for (tensor, stage) in one {
            // The embedding of a token of the text.
            let first = if stage == Stage::Embedding { 14 * 64 } else { 0 };
            check(damaged(MODEL, tensor, first, f32::NAN), &backend, stage, tensor);
        }
        // The router chooses no expert by such logits.
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let file = damaged(MODEL, "blk.1.ffn_gate_inp.weight", 5, value);
            check(file, &backend, Stage::Layer(1), &format!("a router with {value}"));
        }
        for tensor in ["blk.1.attn_output.weight", "blk.1.ffn_down_exps.weight"] {
            check(damaged(QUANTISED, tensor, 0, f32::NAN), &backend, Stage::Layer(1), &format!("{tensor} of Q8_0"));
        }
    }
}
