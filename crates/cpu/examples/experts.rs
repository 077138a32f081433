//! One mixture-of-experts layer on random weights, with nothing but the kernels:
//! `cargo run --release --example experts`.
//!
//! route → group → gate and up of each token's experts → down → weighted sum.

use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{
    Activation, Epilogue, GroupByExpert, Matmul, MoeCombine, MoeGateUp, MoeMatmul, PrepareActivations, Route, Routing,
};
use gristmill_kernels::tensor::{Buffer, SharedBytes};
use gristmill_kernels::weight::{Role, TensorView, Weight};

const TOKENS: usize = 3;
const HIDDEN: usize = 512;
const INNER: usize = 256;
const EXPERTS: usize = 16;
const TOP_K: usize = 4;

fn main() -> gristmill_kernels::Result<()> {
    let cpu = Cpu::backend(Level::best(), 2)?;
    println!("{}", cpu.name());
    let router = cpu.prepare(&[random(Format::F32, 1, EXPERTS, HIDDEN)], Role::Matrix)?;
    let pair = [random(Format::Q4_K, EXPERTS, INNER, HIDDEN), random(Format::Q4_K, EXPERTS, INNER, HIDDEN)];
    let gate_up = cpu.prepare(&pair, Role::GateUp)?;
    let down = cpu.prepare(&[random(Format::Q6_K, EXPERTS, HIDDEN, INNER)], Role::Matrix)?;

    let mut x = cpu.alloc::<f32>(TOKENS * HIDDEN, "x")?;
    cpu.upload(&numbers(TOKENS * HIDDEN), &mut x)?;
    let y = layer(&cpu, &x, &router, &gate_up, &down)?;
    let mut values = vec![0.0; TOKENS * HIDDEN];
    cpu.download(y.view(TOKENS, HIDDEN)?, &mut values)?;
    for (token, row) in values.chunks_exact(HIDDEN).enumerate() {
        println!("token {token}: {:?} …", &row[..4]);
    }
    Ok(())
}

/// The layer's output, TOKENS × HIDDEN.
fn layer(
    b: &Backend,
    x: &Buffer<f32>,
    router: &Weight,
    gate_up: &Weight,
    down: &Weight,
) -> gristmill_kernels::Result<Buffer<f32>> {
    let pairs = TOKENS * TOP_K;
    let mut act = b.alloc_act(Precision::Fast, TOKENS, HIDDEN)?;
    b.run(PrepareActivations { x: x.view(TOKENS, HIDDEN)?, act: &mut act })?;

    let mut logits = b.alloc::<f32>(TOKENS * EXPERTS, "logits")?;
    b.run(Matmul::new(router, &act, logits.view_mut(TOKENS, EXPERTS)?))?;
    let mut ids = b.alloc::<u32>(pairs, "ids")?;
    let mut weights = b.alloc::<f32>(pairs, "weights")?;
    let routing = Routing::softmax(TOP_K, true);
    let (to, shares) = (ids.view_mut(TOKENS, TOP_K)?, weights.view_mut(TOKENS, TOP_K)?);
    b.run(Route {
        logits: logits.view(TOKENS, EXPERTS)?,
        routing: &routing,
        selection_bias: None,
        expert_scales: None,
        tokens: None,
        ids: to,
        weights: shares,
    })?;
    let mut chosen = vec![0; pairs];
    b.download(ids.view(TOKENS, TOP_K)?, &mut chosen)?;
    println!("experts of each token: {:?}", chosen.chunks_exact(TOP_K).collect::<Vec<_>>());

    let mut groups = b.alloc_groups(EXPERTS, pairs)?;
    b.run(GroupByExpert { ids: ids.view(TOKENS, TOP_K)?, groups: &mut groups })?;
    let mut inner = b.alloc::<f32>(pairs * INNER, "inner")?;
    b.run(MoeGateUp {
        weight: gate_up,
        x: &act,
        groups: &groups,
        top_k: TOP_K,
        bias: None,
        activation: Activation::SwiGlu,
        h: inner.view_mut(pairs, INNER)?,
    })?;
    let mut inner_act = b.alloc_act(Precision::Fast, pairs, INNER)?;
    b.run(PrepareActivations { x: inner.view(pairs, INNER)?, act: &mut inner_act })?;
    let mut out = b.alloc::<f32>(pairs * HIDDEN, "out")?;
    b.run(MoeMatmul {
        weight: down,
        x: &inner_act,
        groups: &groups,
        top_k: TOP_K,
        bias: None,
        out: out.view_mut(pairs, HIDDEN)?,
    })?;
    let mut y = b.alloc::<f32>(TOKENS * HIDDEN, "y")?;
    b.run(MoeCombine {
        out: out.view(pairs, HIDDEN)?,
        weights: weights.view(TOKENS, TOP_K)?,
        epilogue: Epilogue::Store,
        y: y.view_mut(TOKENS, HIDDEN)?,
    })?;
    Ok(y)
}

/// Experts of random weights in a format.
fn random(format: Format, experts: usize, rows: usize, cols: usize) -> TensorView {
    let values: Vec<f32> = numbers(experts * rows * cols).iter().map(|x| x / (cols as f32).sqrt()).collect();
    let mut bytes = vec![0; format.row_bytes(cols).unwrap_or(0) * rows * experts];
    format.encode(&values, &mut bytes);
    TensorView { name: "random".into(), format, experts, rows, cols, bytes: SharedBytes::from(bytes) }
}

/// Numbers between −1 and 1.
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ count as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
