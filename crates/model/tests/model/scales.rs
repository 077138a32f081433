//! NVFP4 weights with scales of tensors and of experts.

use gristmill_cpu::Level;
use gristmill_kernels::format::Format;
use gristmill_kernels::reference::Reference;
use gristmill_model::gguf::{GgufFile, GgufWriter};
use gristmill_model::{Batch, Error, LoadOptions, Model, ModelInfo, Outputs, Precision};
use std::sync::Arc;

use crate::tiny::{Random, Tiny};
use crate::{cpu, reference, runner};

/// A model of experts whose weights with rows of 64 columns are NVFP4 with scales: one, or one for each of five experts.
pub(crate) fn scaled() -> Tiny {
    let mut tiny = Tiny::qwen3moe();
    tiny.format(Format::NVFP4);
    let weights: Vec<_> = tiny.tensors.iter().filter(|(_, format, _)| *format == Format::NVFP4).cloned().collect();
    for (name, _, shape) in &weights {
        let name = name.strip_suffix(".weight").expect("a weight");
        tiny.tensor(&format!("{name}.scale"), &[shape.get(2).copied().unwrap_or(1)]);
        tiny.tensor(&format!("{name}.input_scale"), &[1]);
    }
    assert_eq!(weights.len(), 1 + 2 * 6, "embedding; queries, keys, values, router, gate and up");
    tiny
}

fn values(file: &GgufFile, name: &str) -> Option<Vec<f32>> {
    let tensor = file.tensor(name)?;
    let mut values = vec![0.0; tensor.elements() as usize];
    tensor.format.decode(file.data(tensor), &mut values)?;
    Some(values)
}

/// The file with powers of two, of both signs, as scales of its weights.
fn with_powers_of_two(mut bytes: Vec<u8>, random: &mut Random) -> GgufFile {
    let file = GgufFile::from_bytes(bytes.clone()).expect("a good file");
    for scales in file.tensors().iter().filter(|tensor| tensor.name.ends_with(".scale")) {
        for at in (0..scales.elements() as usize).map(|i| scales.offset as usize + 4 * i) {
            let size = [0.25_f32, 0.5, 2.0, 4.0][random.below(4)];
            let scale = if random.below(2) == 0 { size } else { -size };
            bytes[at..at + 4].copy_from_slice(&scale.to_le_bytes());
        }
    }
    GgufFile::from_bytes(bytes).expect("a good file")
}

/// The same model in F32, with products of weights and scales, or without the scales.
fn in_f32(file: &GgufFile, with_scales: bool) -> GgufFile {
    let mut plan = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        plan.set(key, value.clone()).expect("a good key");
    }
    let kept = || file.tensors().iter().filter(|tensor| !tensor.name.ends_with("scale"));
    for tensor in kept() {
        plan.tensor(&tensor.name, Format::F32, &tensor.shape).expect("a good tensor");
    }
    let mut data = plan.begin(Vec::new()).expect("memory takes all");
    for tensor in kept() {
        let mut weights = values(file, &tensor.name).expect("a tensor");
        let scales = tensor.name.strip_suffix(".weight").and_then(|name| values(file, &format!("{name}.scale")));
        if let Some(scales) = scales.filter(|_| with_scales) {
            let of_expert = weights.len() / scales.len();
            for (weights, scale) in weights.chunks_exact_mut(of_expert).zip(scales) {
                weights.iter_mut().for_each(|weight| *weight *= scale);
            }
        }
        let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        data.write_tensor(&tensor.name, &bytes).expect("the size is right");
    }
    GgufFile::from_bytes(data.finish().expect("all tensors are written")).expect("a good file")
}

fn logits(model: &Arc<Model>, tokens: &[u32]) -> Vec<f32> {
    let mut runner = runner(model);
    let sequence = runner.open_sequence().expect("one is free");
    let mut batch = Batch::new();
    batch.push(sequence, tokens, Outputs::All);
    runner.forward(&batch).expect("it runs").to_vec().expect("host memory")
}

/// Σ (a − b)² / Σ b².
fn nmse(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 = a.iter().zip(b).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    error / b.iter().map(|&b| square(b.into())).sum::<f64>()
}

/// A model with scales, and the same in F32, that do not magnify rounding: with some random weights a norm of values that
/// nearly cancel makes the last bits of sums visible, whatever the format.
fn well_conditioned(random: &mut Random, tokens: &[u32]) -> (GgufFile, GgufFile) {
    let level = Level::best().name();
    for _ in 0..100 {
        let file = with_powers_of_two(scaled().bytes(random), random);
        let same = in_f32(&file, true);
        let on_cpu = cpu(&same, level, Precision::Exact).expect("a good model");
        if nmse(&logits(&on_cpu, tokens), &logits(&reference(&same), tokens)) < 1e-12 {
            return (file, same);
        }
    }
    panic!("no model of a hundred is well-conditioned")
}

#[test]
fn scales_multiply_products() {
    let mut random = Random::fresh();
    let tokens = random.tokens(20);
    let (file, same) = well_conditioned(&mut random, &tokens);
    let want = logits(&reference(&same), &tokens);
    assert!(nmse(&logits(&reference(&in_f32(&file, false)), &tokens), &want) > 1e-2, "scales matter");
    // Products with powers of two are exact, so the weights are the same numbers.
    assert_eq!(nmse(&logits(&reference(&file), &tokens), &want), 0.0, "the reference");
    let model = cpu(&file, Level::best().name(), Precision::Exact).expect("a good model");
    let got = nmse(&logits(&model, &tokens), &want);
    assert!(got < 1e-9, "the CPU: {got:e}");
}

#[test]
fn bad_scales_are_named() {
    let refusal = |change: &dyn Fn(&mut Tiny)| {
        let mut tiny = scaled();
        change(&mut tiny);
        ModelInfo::read(&tiny.file(&mut Random(3))).expect_err("a bad model").to_string()
    };
    for (name, shape, says) in [
        ("blk.0.attn_q.scale", &[2][..], "tensor `blk.0.attn_q.scale`"),
        ("blk.1.ffn_up_exps.scale", &[1], "has shape [1], but the metadata requires [5]"),
        ("blk.1.ffn_up_exps.scale", &[6], "has shape [6], but the metadata requires [5]"),
        // Next to a weight of another format it is no scale.
        ("blk.0.attn_output.scale", &[1], "tensor `blk.0.attn_output.scale` is not a weight of this qwen3moe model"),
        ("blk.0.attn_q_norm.scale", &[1], "tensor `blk.0.attn_q_norm.scale` is not a weight"),
    ] {
        let message = refusal(&|tiny| tiny.tensor(name, shape));
        assert!(message.contains(says), "{message}");
    }
    // Without a scale it is 1.
    let mut tiny = scaled();
    tiny.without("blk.0.attn_q.scale");
    ModelInfo::read(&tiny.file(&mut Random(3))).expect("a good model");
}

#[test]
fn scales_that_are_not_finite_are_named() {
    let good = scaled().bytes(&mut Random(3));
    let file = GgufFile::from_bytes(good.clone()).expect("a good file");
    let scale = file.tensor("blk.1.ffn_gate_exps.scale").expect("a scale");
    for value in [f32::NAN, f32::INFINITY] {
        let mut bytes = good.clone();
        let at = scale.offset as usize + 4 * 3;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let file = GgufFile::from_bytes(bytes).expect("a good file");
        let backend = Arc::new(Reference::backend());
        match Model::with_backend(file, backend, LoadOptions::default()) {
            Err(Error::ScaleNotFinite { name, element: 3, .. }) => assert_eq!(name, "blk.1.ffn_gate_exps.scale"),
            other => panic!("{other:?}"),
        }
    }
}
