//! Weights past 2 GiB, of which few bytes are looked at, and very many rows.

#![cfg(all(unix, target_arch = "x86_64"))]

use gristmill_conformance::simulated::Simulator;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::Backend;
use gristmill_kernels::weight::{Role, TensorView};
use gristmill_suite::rng::Rng;
use gristmill_suite::weights::tensor;

/// The products of one token with expert `id`.
fn products(b: &dyn Backend, tensor: TensorView, id: u32, x: &[f32]) -> Vec<f32> {
    let (experts, rows, cols) = (tensor.experts, tensor.rows, tensor.cols);
    let weight = b.prepare(&[tensor], Role::Matrix).expect("prepare");
    let upload = |values: &[f32]| {
        let mut buffer = b.alloc_f32(values.len(), "a test").expect("alloc");
        b.upload_f32(values, &mut buffer).expect("upload");
        buffer
    };
    let mut act = b.alloc_act(Precision::Fast, 1, cols).expect("alloc");
    b.prepare_activations(upload(x).view(1, cols).expect("inside"), &mut act).expect("prepare_activations");
    let mut ids = b.alloc_u32(1, "a test").expect("alloc");
    b.upload_u32(&[id], &mut ids).expect("upload");
    let mut groups = b.alloc_groups(experts, 1).expect("alloc");
    b.group_by_expert(ids.view(1, 1).expect("inside"), experts, &mut groups).expect("group_by_expert");
    let mut out = upload(&vec![f32::NAN; rows]);
    b.moe_matmul(&weight, &act, &groups, 1, None, out.view_mut(1, rows).expect("inside")).expect("moe_matmul");
    let mut values = vec![0.0; rows];
    b.download_f32(out.view(1, rows).expect("inside"), &mut values).expect("download");
    values
}

/// An expert whose matrix begins past 2 GiB gives what it gives in a small weight.
fn past_two_gibibytes(backend: &dyn Backend) {
    let seed = Rng::fresh_seed();
    let rng = &mut Rng::new(seed);
    // As many as keep a device busy, on which the order of a sum may depend.
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
    past_two_gibibytes(&Simulator::backend(1, gpu_sim::Mode::Fast).expect("a simulator"));
}

#[test]
fn an_expert_past_two_gibibytes_on_metal() {
    past_two_gibibytes(&Simulator::metal(1, gpu_sim::Mode::Fast).expect("a simulator"));
}

/// Rows past the 65,535 blocks that some devices' grids have, by dot products and by tiles: as of a few of them alone.
#[test]
fn seventy_thousand_rows_on_metal() {
    let seed = Rng::fresh_seed();
    let rng = &mut Rng::new(seed);
    let (rows, cols, outputs) = (70_000, 32, 3);
    let backend = Simulator::metal(2, gpu_sim::Mode::Fast).expect("a simulator");
    let weight = backend.prepare(&[tensor(rng, Format::Q8_0, 1, outputs, cols)], Role::Matrix).expect("prepare");
    let x = rng.normals(rows * cols);
    for precision in [Precision::Exact, Precision::Fast] {
        let run = |x: &[f32]| {
            let rows = x.len() / cols;
            let mut buffer = backend.alloc_f32(x.len(), "a test").expect("alloc");
            backend.upload_f32(x, &mut buffer).expect("upload");
            let mut act = backend.alloc_act(precision, rows, cols).expect("alloc");
            backend
                .prepare_activations(buffer.view(rows, cols).expect("inside"), &mut act)
                .expect("prepare_activations");
            let mut y = backend.alloc_f32(rows * outputs, "a test").expect("alloc");
            backend.matmul(&weight, &act, None, y.view_mut(rows, outputs).expect("inside")).expect("matmul");
            let mut values = vec![0.0; rows * outputs];
            backend.download_f32(y.view(rows, outputs).expect("inside"), &mut values).expect("download");
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
