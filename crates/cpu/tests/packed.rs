//! Products with float weights of many rows and many outputs, whose activations are copied: each row has the bits that it has
//! alone, at every level.

use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Activation, GateUp, Matmul, PrepareActivations};
use gristmill_kernels::weight::{Role, TensorView, Weight};
use gristmill_kernels::{Backend, Error};
use gristmill_suite::rng::Rng;
use gristmill_suite::testing::seed;
use gristmill_suite::weights::tensor;

/// Of a product in one thread, all groups of 16 outputs, an odd number, are one or two chunks, and the last block of rows is small.
const OUTPUTS: usize = 16 * 44 + 3;
const ROWS: usize = 2 * 64 + 21;

/// The outputs of some rows.
fn product(b: &Backend, weight: &Weight, x: &[f32], precision: Precision, role: Role, outputs: usize) -> Vec<u32> {
    let (cols, rows) = (weight.cols(), x.len() / weight.cols());
    let mut act = b.alloc_act(precision, rows, cols).unwrap();
    let mut own = b.alloc::<f32>(x.len(), "x").unwrap();
    b.upload(x, &mut own).unwrap();
    b.run(PrepareActivations { x: own.view(rows, cols).unwrap(), act: &mut act }).unwrap();
    let mut y = b.alloc::<f32>(rows * outputs, "y").unwrap();
    let out = y.view_mut(rows, outputs).unwrap();
    match role {
        Role::GateUp => {
            let activation = Activation::SwiGlu;
            b.run(GateUp { weight, x: &act, bias: None, activation, h: out }).unwrap();
        }
        _ => b.run(Matmul::new(weight, &act, out)).unwrap(),
    }
    y.as_host().unwrap().iter().map(|value| value.to_bits()).collect()
}

fn check(b: &Backend, tensors: &[TensorView], role: Role, precision: Precision, rng: &mut Rng, case: &str) {
    let outputs = if role == Role::GateUp { tensors[0].rows } else { tensors.iter().map(|tensor| tensor.rows).sum() };
    let cols = tensors[0].cols;
    let weight = b.prepare(tensors, role).unwrap();
    let x = rng.normals(ROWS * cols);
    let all = product(b, &weight, &x, precision, role, outputs);
    for row in [0, 7, 63, 64, 127, 128, ROWS - 1] {
        let alone = product(b, &weight, &x[row * cols..(row + 1) * cols], precision, role, outputs);
        assert!(all[row * outputs..(row + 1) * outputs] == alone, "{case}, row {row}");
    }
}

#[test]
fn rows_have_the_bits_that_they_have_alone() {
    let seed = seed();
    for level in Level::NAMES {
        let b = match Level::named(level).and_then(|level| Cpu::backend(level, 1)) {
            Err(Error::Level(_)) => continue,
            backend => backend.unwrap(),
        };
        let mut rng = Rng::new(seed);
        for &format in Format::ALL.iter().filter(|format| format.is_float()) {
            // Whole panels, an end in the first half of one, and in the second half.
            for cols in [64, 64 + 17, 3 * 64 + 45].map(|cols: usize| cols.next_multiple_of(format.block_len())) {
                for precision in [Precision::Exact, Precision::Fast] {
                    let case = format!("{level}, {format}, {cols} columns, {precision:?}, seed {seed}");
                    let one = tensor(&mut rng, format, 1, OUTPUTS, cols);
                    let other = tensor(&mut rng, format, 1, OUTPUTS, cols);
                    check(&b, &[one.clone(), other.clone()], Role::Matrix, precision, &mut rng, &case);
                    check(&b, &[one, other], Role::GateUp, precision, &mut rng, &format!("{case}, gated"));
                }
            }
        }
    }
}
