//! The example of a mixture-of-experts layer: on the tensors of a file, the CPU agrees with the reference.

#[allow(dead_code, unreachable_pub)]
#[path = "../examples/experts.rs"]
mod example;

use example::{Layer, numbers};
use gristmill_cpu::{Cpu, Level};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::act::Precision;
use gristmill_kernels::error::Error;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Matmul, PrepareActivations};
use gristmill_kernels::reference::Reference;
use gristmill_kernels::tensor::{SharedBytes, View, ViewMut};
use gristmill_kernels::weight::{Role, TensorView};

/// Σ (a − b)² / Σ b².
fn nmse(a: &[f32], b: &[f32]) -> f64 {
    let sum = |of: &dyn Fn(f32, f32) -> f32| a.iter().zip(b).map(|(&a, &b)| f64::from(of(a, b)).powi(2)).sum::<f64>();
    sum(&|a, b| a - b) / sum(&|_, b| b)
}

#[test]
fn a_layer_of_a_file_agrees_with_the_reference() {
    for (name, tokens) in [("qwen3moe-q8_0", 1), ("qwen3moe-q8_0", 33), ("qwen3moe-q4_k_m", 5)] {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/");
        let file = GgufFile::open(format!("{golden}{name}.gguf")).unwrap();
        let [cpu, reference] = [Cpu::backend(Level::best(), 2).unwrap(), Reference::backend()].map(|backend| {
            let layer = Layer::read(&backend, &file, 0).unwrap();
            let rows = numbers(tokens * layer.hidden());
            layer.run(&backend, Precision::Exact, &rows).unwrap()
        });
        // f32 sums of at most a few hundred terms, two in a row: each rounds by up to 2^-24 of its terms' size.
        let error = nmse(&cpu, &reference);
        assert!(error < 1e-10, "{name}, {tokens} tokens: NMSE {error:.1e}");
    }
}

#[test]
fn an_error_names_the_block_of_the_columns() {
    let cpu = Cpu::backend(Level::best(), 1).unwrap();
    let tensor = TensorView::new("w", Format::Q4_K, [1, 2, 100], vec![0; 288]);
    let error = cpu.prepare(&[tensor], Role::Matrix).unwrap_err().to_string();
    let expected = "w: the columns of a tensor in Q4_K must be a multiple of 256 (found 100); use another format";
    assert_eq!(error, expected);
}

/// Bytes of every owner are read in place.
#[test]
fn weights_are_views_of_host_memory() {
    static BYTES: [u8; 34] = [0; 34];
    let shared: std::sync::Arc<[u8]> = vec![0_u8; 34].into();
    let cpu = Cpu::backend(Level::best(), 1).unwrap();
    for (bytes, address) in
        [(SharedBytes::from(&BYTES[..]), BYTES.as_ptr()), (SharedBytes::from(shared.clone()), shared.as_ptr())]
    {
        assert_eq!(bytes.as_slice().as_ptr(), address);
        let tensor = TensorView::new("w", Format::Q8_0, [1, 1, 32], bytes);
        assert_eq!(cpu.prepare(&[tensor], Role::Matrix).unwrap().cols(), 32);
    }
    cpu.synchronize().unwrap();
}

/// Rows in slices of the caller are read and written in place, with the bits of own buffers.
#[test]
fn rows_are_views_of_slices() {
    let (rows, cols, outputs) = (3, 64, 16);
    let weights: Vec<u8> = numbers(outputs * cols).iter().flat_map(|number| number.to_le_bytes()).collect();
    let tensor = TensorView::new("w", Format::F32, [1, outputs, cols], weights);
    let cpu = Cpu::backend(Level::best(), 2).unwrap();
    let weight = cpu.prepare(&[tensor], Role::Matrix).unwrap();
    let x = numbers(rows * cols);
    let mut act = cpu.alloc_act(Precision::Exact, rows, cols).unwrap();

    let mut own = (cpu.alloc::<f32>(x.len(), "x").unwrap(), cpu.alloc::<f32>(rows * outputs, "y").unwrap());
    cpu.upload(&x, &mut own.0).unwrap();
    cpu.run(PrepareActivations { x: own.0.view(rows, cols).unwrap(), act: &mut act }).unwrap();
    cpu.run(Matmul::new(&weight, &act, own.1.view_mut(rows, outputs).unwrap())).unwrap();

    // The outputs are the middle columns of wider rows.
    let wide = outputs + 2;
    let mut y = vec![f32::NAN; rows * wide];
    cpu.run(PrepareActivations { x: View::of_host(&x, rows, cols).unwrap(), act: &mut act }).unwrap();
    let middle = ViewMut::of_host(&mut y, rows, wide).unwrap().columns(1..1 + outputs).unwrap();
    cpu.run(Matmul::new(&weight, &act, middle)).unwrap();
    for (found, expected) in y.chunks(wide).zip(own.1.as_host().unwrap().chunks(outputs)) {
        assert_eq!(&found[1..=outputs], expected);
        assert!(found[0].is_nan() && found[wide - 1].is_nan());
    }
    assert!(matches!(View::of_host(&x, rows + 1, cols), Err(Error::View { .. })));
}
