//! A profile has every operation with its work, and the time of each thread.

use gristmill_cpu::{Cpu, Level, Profile};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Add, Matmul, PrepareActivations};
use gristmill_kernels::tensor::SharedBytes;
use gristmill_kernels::weight::{Role, TensorView};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn operations_are_counted_by_weight() {
    let profile = Arc::new(Profile::default());
    let cpu = Backend::new(Cpu::new(Level::best(), 2).unwrap().profiled(profile.clone()));
    let (rows, cols, tokens) = (48, 64, 3);
    let bytes = SharedBytes::from(vec![0; rows * cols / 32 * 18]);
    let view = TensorView { name: "w".into(), format: Format::Q4_0, experts: 1, rows, cols, bytes };
    let weight = cpu.prepare(&[view], Role::Matrix).unwrap();
    let x = cpu.alloc::<f32>(tokens * cols, "x").unwrap();
    let mut y = cpu.alloc::<f32>(tokens * rows, "y").unwrap();
    let mut act = cpu.alloc_act(Precision::Fast, tokens, cols).unwrap();
    let begun = Instant::now();
    cpu.run(PrepareActivations { x: x.view(tokens, cols).unwrap(), act: &mut act }).unwrap();
    for _ in 0..2 {
        cpu.run(Matmul::new(&weight, &act, y.view_mut(tokens, rows).unwrap())).unwrap();
    }
    let other = cpu.alloc::<f32>(tokens * rows, "other").unwrap();
    cpu.run(Add { x: other.view(tokens, rows).unwrap(), scale: 1.0, y: y.view_mut(tokens, rows).unwrap() }).unwrap();
    let elapsed = begun.elapsed();

    let records = profile.take();
    assert!(records.is_sorted_by(|a, b| a.time >= b.time));
    assert!(records.iter().map(|record| record.time).sum::<Duration>() <= elapsed);
    let record = |name: &str| records.iter().find(|record| record.operation == name).unwrap();
    assert_eq!(records.len(), 3);
    let product = record("matmul");
    assert_eq!((product.weight.as_str(), product.calls), ("Q4_0 48×64", 2));
    assert_eq!(product.work.operations, 2.0 * (2 * rows * cols * tokens) as f64);
    assert_eq!(product.work.bytes, 2.0 * (rows * cols / 32 * 18 + 4 * tokens * (rows + cols)) as f64);
    let sum = record("add");
    assert_eq!((sum.weight.as_str(), sum.calls, sum.work.operations), ("", 1, 0.0));
    assert_eq!(sum.work.bytes, (4 * 3 * tokens * rows) as f64);
    for record in &records {
        assert_eq!(record.working.len(), 2);
        // The caller's thread always works; no thread works longer than the operation takes.
        assert!(!record.working[0].is_zero() && record.working.iter().all(|&working| working <= record.time));
    }
    assert!(profile.take().is_empty());
}
