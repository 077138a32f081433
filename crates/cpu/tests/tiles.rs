//! Products by tiles (level `amx`): every quantised format within the error of bfloat16, and few rows as at `avx512`.

use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Activation, GateUp, Matmul, PrepareActivations};
use gristmill_kernels::reference::Reference;
use gristmill_kernels::weight::{Role, TensorView};
use gristmill_kernels::{Backend, Error};
use gristmill_suite::rng::Rng;
use gristmill_suite::testing::{seed_of_test, skipped};

/// Rounding weights and activations to 8 bits each has an error of 4e-6 to 7e-6.
const NMSE: f64 = 1.5e-5;

const OUTPUTS: usize = 16 * 9 + 3;

/// The backend of the level, if this CPU has it.
fn amx() -> Option<Backend> {
    match Level::NAMES.iter().find(|name| **name == "amx").map(|name| Cpu::backend(Level::named(name)?, 2)) {
        Some(Ok(backend)) => Some(backend),
        Some(Err(Error::Level(_))) | None => {
            skipped(format_args!("tiles: no level amx on this machine"));
            None
        }
        Some(Err(error)) => panic!("{error}"),
    }
}

/// Blocks of a format, few, because some encoders search, which takes seconds on an emulated CPU.
struct Blocks {
    format: Format,
    bytes: Vec<u8>,
}

impl Blocks {
    const COUNT: usize = 12;

    fn new(rng: &mut Rng, format: Format) -> Self {
        let count = Self::COUNT * format.block_len();
        // Runs differ in scale and offset.
        let runs = (0..count / 16).map(|_| (0.05 * rng.uniform(-1.0, 1.0).exp2(), rng.uniform(-0.02, 0.02)));
        let runs: Vec<(f64, f64)> = runs.collect();
        let values: Vec<f32> = (0..count).map(|i| (runs[i / 16].0 * rng.normal() + runs[i / 16].1) as f32).collect();
        let mut bytes = vec![0; Self::COUNT * format.block_bytes()];
        format.encode(&values, &mut bytes).unwrap();
        Self { format, bytes }
    }

    /// Rows of so many blocks, drawn.
    fn tensor(&self, rng: &mut Rng, blocks: usize) -> TensorView {
        let size = self.format.block_bytes();
        let bytes: Vec<u8> = (0..OUTPUTS * blocks)
            .flat_map(|_| self.bytes[size * rng.below(Self::COUNT)..][..size].iter().copied())
            .collect();
        let shape = [1, OUTPUTS, blocks * self.format.block_len()];
        TensorView::new(format!("{} × {blocks}", self.format), self.format, shape, bytes)
    }
}

fn product(b: &Backend, tensors: &[TensorView], role: Role, x: &[f32]) -> Vec<f32> {
    let (cols, weight) = (tensors[0].cols, b.prepare(tensors, role).unwrap());
    let rows = x.len() / cols;
    let mut act = b.alloc_act(Precision::Fast, rows, cols).unwrap();
    let mut own = b.alloc::<f32>(x.len(), "x").unwrap();
    b.upload(x, &mut own).unwrap();
    b.run(PrepareActivations::new(own.view(rows, cols).unwrap(), &mut act)).unwrap();
    let mut y = b.alloc::<f32>(rows * OUTPUTS, "y").unwrap();
    let out = y.view_mut(rows, OUTPUTS).unwrap();
    match role {
        Role::GateUp => {
            let activation = Activation::SwiGlu;
            b.run(GateUp { weight: &weight, x: &act, bias: None, activation, h: out }).unwrap();
        }
        _ => b.run(Matmul::new(&weight, &act, out)).unwrap(),
    }
    b.into_host(y).unwrap()
}

fn nmse(got: &[f32], expected: &[f32]) -> f64 {
    let pairs = got.iter().zip(expected).map(|(&got, &expected)| (f64::from(got), f64::from(expected)));
    let (error, power) = pairs.fold((0.0, 0.0), |(error, power), (got, x)| (error + (got - x).powi(2), power + x * x));
    error / power
}

#[test]
fn every_quantised_format_has_the_error_of_bfloat16() {
    let Some(b) = amx() else { return };
    let (mut rng, reference) = (Rng::new(seed_of_test()), Reference::backend());
    for &format in Format::ALL.iter().filter(|format| !format.is_float()) {
        let blocks = Blocks::new(&mut rng, format);
        // The pipeline runs past the end of a group: several groups with few tiles, and one with many.
        for (rows, length) in [(8, 1), (16, 2), (17, 3), (40, 5), (63, 1), (64, 3), (65, 1), (80, 2)] {
            let weight = [blocks.tensor(&mut rng, length)];
            let cols = weight[0].cols;
            let x = rng.normals(rows * cols);
            let got = product(&b, &weight, Role::Matrix, &x);
            let error = nmse(&got, &product(&reference, &weight, Role::Matrix, &x));
            println!("{format} {rows} rows × {cols}: {error:.1e}");
            assert!(error <= NMSE, "{format}, {rows} rows × {cols} columns: NMSE {error:.1e} exceeds {NMSE:.1e}");
        }
    }
}

#[test]
fn magnitudes_of_rows_and_weights_do_not_matter() {
    let Some(b) = amx() else { return };
    let (mut rng, reference) = (Rng::new(seed_of_test()), Reference::backend());
    for format in [Format::Q4_K, Format::Q8_0, Format::MXFP4] {
        let weight = [Blocks::new(&mut rng, format).tensor(&mut rng, 256 / format.block_len())];
        let mut x = rng.normals(20 * 256);
        for (row, x) in x.chunks_mut(256).enumerate() {
            let scale = [1.0, 1e30, 1e-30, 0.0][row % 4];
            x.iter_mut().for_each(|x| *x *= scale);
        }
        let (got, expected) = (product(&b, &weight, Role::Matrix, &x), product(&reference, &weight, Role::Matrix, &x));
        // Rows of one magnitude together: one row alone may be unlucky.
        for kind in 0..4 {
            let of_kind = |y: &[f32]| y.chunks(OUTPUTS).skip(kind).step_by(4).flatten().copied().collect::<Vec<f32>>();
            let (got, expected) = (of_kind(&got), of_kind(&expected));
            if kind == 3 {
                assert!(got.iter().all(|y| *y == 0.0), "{format}, rows of zeros: {got:?}");
                continue;
            }
            let error = nmse(&got, &expected);
            assert!(error <= NMSE, "{format}, magnitude {kind}: NMSE {error:.1e} exceeds {NMSE:.1e}");
        }
    }
}

#[test]
fn few_rows_have_the_bits_of_avx512_and_so_has_the_deterministic_level() {
    let Some(b) = amx() else { return };
    let mut rng = Rng::new(seed_of_test());
    let deterministic = Level::named("amx").unwrap().deterministic();
    assert_eq!(deterministic.name(), "avx512");
    let avx512 = Cpu::backend(deterministic, 2).unwrap();
    assert!(!b.deterministic() && avx512.deterministic());
    for (format, role) in [(Format::Q4_K, Role::Matrix), (Format::Q6_K, Role::GateUp)] {
        let blocks = Blocks::new(&mut rng, format);
        let count = if role == Role::GateUp { 2 } else { 1 };
        let weights: Vec<_> = (0..count).map(|_| blocks.tensor(&mut rng, 2)).collect();
        for rows in [1, 7, 8] {
            let x = rng.normals(rows * 512);
            let same = product(&b, &weights, role, &x) == product(&avx512, &weights, role, &x);
            assert_eq!(same, rows < 8, "{format} {role:?}, {rows} rows");
        }
    }
}

#[test]
fn the_best_level_was_measured() {
    assert!(!Level::UNMEASURED.contains(&Level::best().name()));
    assert!(Level::available().all(|level| !Level::UNMEASURED.contains(&level.name())));
}

#[test]
fn the_level_is_reported_as_not_chosen() {
    let reported = Level::not_chosen().map(|found| (found.refused, found.to_string()));
    match amx() {
        Some(_) => assert_eq!(reported, Some((false, "amx: found, not chosen: never measured".to_owned()))),
        None => assert!(reported.is_none_or(|(refused, text)| refused && text.contains("refused by the system"))),
    }
}
