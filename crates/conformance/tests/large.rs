//! Weights past 2 GiB, of which few bytes are looked at, and very many rows.

#![cfg(all(unix, target_arch = "x86_64"))]

use gristmill_conformance::simulated::Simulator;
use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvFormat, KvSpec, Placement};
use gristmill_kernels::ops::*;
use gristmill_kernels::tensor::{Buffer, View};
use gristmill_kernels::weight::{Role, TensorView};
use gristmill_suite::rng::Rng;
use gristmill_suite::testing;
use gristmill_suite::weights::tensor;

/// The products of one token with expert `id`.
fn products(b: &Backend, tensor: TensorView, id: u32, x: &[f32]) -> Vec<f32> {
    let (experts, rows, cols) = (tensor.experts, tensor.rows, tensor.cols);
    let weight = b.prepare(&[tensor], Role::Matrix).expect("prepare");
    let upload = |values: &[f32]| {
        let mut buffer = b.alloc::<f32>(values.len(), "a test").expect("alloc");
        b.upload(values, &mut buffer).expect("upload");
        buffer
    };
    let mut act = b.alloc_act(Precision::Fast, 1, cols).expect("alloc");
    b.run(PrepareActivations { x: upload(x).view(1, cols).expect("inside"), act: &mut act })
        .expect("prepare_activations");
    let mut ids = b.alloc::<u32>(1, "a test").expect("alloc");
    b.upload(&[id], &mut ids).expect("upload");
    let mut groups = b.alloc_groups(experts, 1).expect("alloc");
    b.run(GroupByExpert { ids: ids.view(1, 1).expect("inside"), groups: &mut groups }).expect("group_by_expert");
    let mut out = upload(&vec![f32::NAN; rows]);
    b.run(MoeMatmul {
        weight: &weight,
        x: &act,
        groups: &groups,
        top_k: 1,
        bias: None,
        out: out.view_mut(1, rows).expect("inside"),
    })
    .expect("moe_matmul");
    let mut values = vec![0.0; rows];
    b.download(out.view(1, rows).expect("inside"), &mut values).expect("download");
    values
}

/// An expert whose matrix starts past 2 GiB has the same result as in a small weight.
fn past_two_gibibytes(backend: &Backend) {
    let seed = testing::seed();
    let rng = &mut Rng::new(seed);
    // Enough experts to keep a device busy, on which the order of a sum may depend.
    let (experts, few, rows, cols) = (1000, 32, 1000, 4096);
    let one = tensor(rng, Format::Q4_K, 1, rows, cols);
    let x = rng.normals(cols);
    // The last of zeros, which the system does not keep.
    let among = |experts: usize| {
        let bytes = one.bytes.as_slice();
        let mut all = vec![0; experts * bytes.len()];
        all[(experts - 1) * bytes.len()..].copy_from_slice(bytes);
        TensorView { experts, bytes: all.into(), ..one.clone() }
    };
    let large = among(experts);
    assert!((experts - 1) * one.bytes.as_slice().len() > 2 << 30);
    let found = products(backend, large, experts as u32 - 1, &x);
    let expected = products(backend, among(few), few as u32 - 1, &x);
    assert!(
        found == expected && found.iter().any(|&y| y != 0.0),
        "seed {seed}: {:?} {:?}",
        &found[..4],
        &expected[..4]
    );
}

#[test]
fn an_expert_past_two_gibibytes() {
    past_two_gibibytes(&Simulator::cuda(1, gpu_sim::Mode::Fast).expect("a simulator"));
}

#[test]
fn an_expert_past_two_gibibytes_on_metal() {
    past_two_gibibytes(&Simulator::metal(1, gpu_sim::Mode::Fast).expect("a simulator"));
}

/// Rows past the 65,535 blocks that some devices' grids have, by dot products and by tiles: as of a few of them alone.
#[test]
fn seventy_thousand_rows_on_metal() {
    let seed = testing::seed();
    let rng = &mut Rng::new(seed);
    let (rows, cols, outputs) = (70_000, 32, 3);
    let backend = Simulator::metal(2, gpu_sim::Mode::Fast).expect("a simulator");
    let weight = backend.prepare(&[tensor(rng, Format::Q8_0, 1, outputs, cols)], Role::Matrix).expect("prepare");
    let x = rng.normals(rows * cols);
    for precision in [Precision::Exact, Precision::Fast] {
        let run = |x: &[f32]| {
            let rows = x.len() / cols;
            let mut buffer = backend.alloc::<f32>(x.len(), "a test").expect("alloc");
            backend.upload(x, &mut buffer).expect("upload");
            let mut act = backend.alloc_act(precision, rows, cols).expect("alloc");
            backend
                .run(PrepareActivations { x: buffer.view(rows, cols).expect("inside"), act: &mut act })
                .expect("prepare_activations");
            let mut y = backend.alloc::<f32>(rows * outputs, "a test").expect("alloc");
            backend.run(Matmul::new(&weight, &act, y.view_mut(rows, outputs).expect("inside"))).expect("matmul");
            let mut values = vec![0.0; rows * outputs];
            backend.download(y.view(rows, outputs).expect("inside"), &mut values).expect("download");
            values
        };
        let all = run(&x);
        for first in [0, 34_991, 65_520, 69_950] {
            let some = run(&x[first * cols..(first + 50) * cols]);
            assert!(
                some == all[first * outputs..(first + 50) * outputs],
                "seed {seed}: rows from {first} on, {precision:?}"
            );
        }
    }
}

/// Results of more rows than some devices' grids have blocks: of the operations of a layer with experts, and of
/// attention of one token to all of them.
fn seventy_thousand_tokens(b: &Backend, seed: u64) -> (Vec<f32>, Vec<u32>) {
    let rng = &mut Rng::new(seed);
    let (tokens, cols, experts, top_k, width) = (70_000, 32, 8, 2, 16);
    let pairs = tokens * top_k;
    let floats = |len| b.alloc::<f32>(len, "a test").expect("alloc");
    let words = |values: &[u32]| {
        let mut buffer = b.alloc::<u32>(values.len(), "a test").expect("alloc");
        b.upload(values, &mut buffer).expect("upload");
        buffer
    };
    let uploaded = |values: &[f32]| {
        let mut buffer = floats(values.len());
        b.upload(values, &mut buffer).expect("upload");
        buffer
    };
    let weight = |tensors: &[TensorView], role| b.prepare(tensors, role).expect("prepare");
    let table = weight(&[tensor(rng, Format::Q8_0, 1, 200, cols)], Role::Table);
    let router = weight(&[tensor(rng, Format::F32, 1, experts, cols)], Role::Matrix);
    let both = [tensor(rng, Format::Q4_0, experts, cols, cols), tensor(rng, Format::Q4_0, experts, cols, cols)];
    let gate_up = weight(&both, Role::GateUp);
    let down = weight(&[tensor(rng, Format::Q8_0, experts, cols, cols)], Role::Matrix);
    let norm = uploaded(&rng.normals(cols));
    let ids: Vec<u32> = (0..tokens).map(|_| rng.below(200) as u32).collect();
    let ids = words(&ids);

    let (mut x, mut normed, mut logits) = (floats(tokens * cols), floats(tokens * cols), floats(tokens * experts));
    b.run(Embed {
        table: &table,
        rows: view_of(&ids, tokens),
        scale: 1.0,
        out: x.view_mut(tokens, cols).expect("inside"),
    })
    .expect("embed");
    b.run(RmsNorm {
        x: view_of(&x, tokens),
        weight: &norm,
        eps: 1e-5,
        out: normed.view_mut(tokens, cols).expect("inside"),
    })
    .expect("rms_norm");
    b.run(Add { x: view_of(&x, tokens), scale: 0.5, y: normed.view_mut(tokens, cols).expect("inside") }).expect("add");
    let mut act = b.alloc_act(Precision::Exact, tokens, cols).expect("alloc");
    b.run(PrepareActivations { x: view_of(&normed, tokens), act: &mut act }).expect("prepare_activations");
    b.run(Matmul::new(&router, &act, logits.view_mut(tokens, experts).expect("inside"))).expect("matmul");

    let mut chosen = b.alloc::<u32>(pairs, "a test").expect("alloc");
    let mut shares = floats(pairs);
    let mut groups = b.alloc_groups(experts, pairs).expect("alloc");
    let routing = Routing::softmax(top_k, true);
    let route = Route {
        logits: view_of(&logits, tokens),
        routing: &routing,
        selection_bias: None,
        expert_scales: None,
        tokens: None,
        ids: chosen.view_mut(tokens, top_k).expect("inside"),
        weights: shares.view_mut(tokens, top_k).expect("inside"),
    };
    b.run(RouteAndGroup { route, groups: &mut groups }).expect("route_and_group");
    let (mut h, mut out, mut y) = (floats(pairs * cols), floats(pairs * cols), floats(tokens * cols));
    let to = h.view_mut(pairs, cols).expect("inside");
    b.run(MoeGateUp {
        weight: &gate_up,
        x: &act,
        groups: &groups,
        top_k,
        bias: None,
        activation: Activation::SwiGlu,
        h: to,
    })
    .expect("moe_gate_up");
    let mut inner = b.alloc_act(Precision::Exact, pairs, cols).expect("alloc");
    b.run(PrepareActivations { x: view_of(&h, pairs), act: &mut inner }).expect("prepare_activations");
    let to = out.view_mut(pairs, cols).expect("inside");
    b.run(MoeMatmul { weight: &down, x: &inner, groups: &groups, top_k, bias: None, out: to }).expect("moe_matmul");
    let to = y.view_mut(tokens, cols).expect("inside");
    b.run(MoeCombine {
        out: view_of(&out, pairs),
        weights: view_of(&shares, tokens),
        epilogue: Epilogue::Store,
        y: to,
    })
    .expect("moe_combine");
    let mut best = b.alloc::<u32>(tokens, "a test").expect("alloc");
    b.run(Argmax { x: view_of(&y, tokens), out: best.view_mut(tokens, 1).expect("inside") }).expect("argmax");

    let spec = KvSpec { heads: 1, key_width: width, value_width: width, format: KvFormat::F16, values_in_keys: false };
    let blocks = tokens.div_ceil(KV_BLOCK);
    let place = |positions: &[u32]| Placement {
        slots: words(&vec![0; positions.len()]),
        positions: words(positions),
        table: words(&(0..blocks as u32).collect::<Vec<_>>()),
        table_rows: 1,
        table_cols: blocks,
        context_columns: blocks,
        runs: BatchRuns::of(&vec![0; positions.len()], positions),
    };
    let all: Vec<u32> = (0..tokens as u32).collect();
    let mut cache = b.alloc_kv(spec, blocks).expect("alloc");
    let keys = y.view(tokens, cols).and_then(|y| y.columns(0..width)).expect("inside");
    let values = y.view(tokens, cols).and_then(|y| y.columns(width..2 * width)).expect("inside");
    b.run(KvWrite { cache: &mut cache, k: keys, v: Some(values), placement: &place(&all) }).expect("kv_write");
    let q = uploaded(&rng.normals(2 * width));
    let mut attended = floats(2 * width);
    let precision = Precision::Exact;
    let options = AttentionOptions {
        heads: 2,
        scale: 0.2,
        temperature: None,
        window: None,
        first: 0,
        ends: None,
        sinks: None,
        softcap: None,
        precision,
    };
    let last = place(&all[tokens - 1..]);
    let to = attended.view_mut(1, 2 * width).expect("inside");
    b.run(Attention { q: view_of(&q, 1), cache: &cache, placement: &last, options, out: to }).expect("attention");

    let mut results = [vec![0.0; tokens * cols], vec![0.0; 2 * width]];
    b.download(view_of(&y, tokens), &mut results[0]).expect("download");
    b.download(view_of(&attended, 1), &mut results[1]).expect("download");
    let mut numbers = [vec![0; pairs], vec![0; tokens]];
    b.download(view_of(&chosen, tokens), &mut numbers[0]).expect("download");
    b.download(view_of(&best, tokens), &mut numbers[1]).expect("download");
    (results.concat(), numbers.concat())
}

/// All of a buffer as this number of rows.
fn view_of<T: Copy>(of: &Buffer<T>, rows: usize) -> View<'_, T> {
    of.view(rows, of.len() / rows).expect("inside")
}

fn as_on_the_cpu(backend: &Backend) {
    let seed = testing::seed();
    let cpu = Cpu::backend(Level::best(), 2).expect("a CPU");
    let (expected, numbers) = seventy_thousand_tokens(&cpu, seed);
    let (found, words) = seventy_thousand_tokens(backend, seed);
    assert!(numbers == words, "seed {seed}");
    let square = |x: f32| f64::from(x).powi(2);
    let error: f64 = found.iter().zip(&expected).map(|(a, b)| square(a - b)).sum();
    let nmse = error / expected.iter().map(|&x| square(x)).sum::<f64>();
    assert!(nmse <= 1e-11, "seed {seed}: NMSE {nmse:.1e}");
}

#[test]
#[ignore = "twenty seconds"]
fn seventy_thousand_tokens_with_experts_on_metal() {
    as_on_the_cpu(&Simulator::metal(2, gpu_sim::Mode::Fast).expect("a simulator"));
}

#[test]
#[ignore = "twenty seconds"]
fn seventy_thousand_tokens_with_experts_on_cuda() {
    as_on_the_cpu(&Simulator::cuda(2, gpu_sim::Mode::Fast).expect("a simulator"));
}
