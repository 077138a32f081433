//! Weights past 2 GiB, of which few bytes are looked at.

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
#[test]
fn an_expert_past_two_gibibytes() {
    let seed = Rng::fresh_seed();
    let rng = &mut Rng::new(seed);
    // As many as keep a device busy, on which the order of a sum may depend.
    let (experts, few, rows, cols) = (1000, 32, 1000, 4096);
    let backend = Simulator::backend(1, gpu_sim::Mode::Fast).expect("a simulator");
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
    let found = products(&backend, large, experts as u32 - 1, &x);
    let expected = products(&backend, among(few), few as u32 - 1, &x);
    assert!(
        found == expected && found.iter().any(|&y| y != 0.0),
        "seed {seed}: {:?} {:?}",
        &found[..4],
        &expected[..4]
    );
}
