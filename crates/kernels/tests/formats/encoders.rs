//! The error of every encoder against that of llama.cpp's quantiser (without an importance matrix) on the same weights:
//! a ratio of at most 1.005 in the mean, and 1.05 for any tensor. `scripts/golden/encoders.py` wrote the weights, and
//! `formats.py` the errors.

use crate::file::{FormatFile, path};
use gristmill_kernels::format::{Format, nvfp4};

/// Elements of a tensor.
const COUNT: usize = 4096;

/// The tensors in the order of the file.
fn values() -> Vec<Vec<f32>> {
    let bytes = std::fs::read(path("encoders/values.bin")).unwrap();
    let values: Vec<f32> =
        bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes(b.try_into().unwrap()).to_f32()).collect();
    values.chunks_exact(COUNT).map(<[f32]>::to_vec).collect()
}

fn root_mean_square_error(format: Format, values: &[f32]) -> f64 {
    let mut blocks = vec![0; format.row_bytes(values.len()).unwrap()];
    let mut decoded = vec![0.0; values.len()];
    format.encode(values, &mut blocks).unwrap();
    format.decode(&blocks, &mut decoded).unwrap();
    let squares = values.iter().zip(&decoded).map(|(v, d)| (f64::from(*v) - f64::from(*d)).powi(2));
    (squares.sum::<f64>() / values.len() as f64).sqrt()
}

#[test]
fn errors_are_not_above_those_of_llama_cpp() {
    let values = values();
    // The errors of NVFP4 are in a file of their own, with scales of tensors.
    let quantised_to = |f: &Format| !f.is_float() && !f.is_read_only() && *f != Format::NVFP4;
    for format in Format::numbered().filter(quantised_to) {
        let errors = FormatFile::read(format.name()).errors;
        assert_eq!(errors.len(), values.len(), "{format}");
        let mut ratios = Vec::new();
        for ((name, theirs), values) in errors.iter().zip(&values) {
            let ours = root_mean_square_error(format, values);
            let ratio = ours / theirs;
            assert!(ratio <= 1.05, "{format}, {name}: RMSE {ours:.3e}, llama.cpp has {theirs:.3e}: {ratio:.4}");
            ratios.push(ratio);
        }
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        println!("{format:7} RMSE ratio {mean:.4} in the mean, {worst:.4} at worst");
        assert!(mean <= 1.005, "{format}: {mean}");
    }
}

/// With the scale of its tensor, NVFP4 has the least error that any scales of groups give, which `nvfp4.py` found by
/// trying all. The scales that map the largest value of a group to 6 have 1.04 to 1.4 times this error.
#[test]
fn nvfp4_errors_are_the_least() {
    let text = std::fs::read_to_string(path("encoders/nvfp4.txt")).unwrap();
    let tensors = values();
    assert_eq!(text.lines().count(), tensors.len());
    let mut ratios = Vec::new();
    for (line, mut values) in text.lines().zip(tensors) {
        let field: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| field[i].parse::<f64>().unwrap();
        let scale = nvfp4::outer_scale(values.iter().fold(0.0, |largest, value| value.abs().max(largest)));
        assert!((f64::from(scale) / number(1) - 1.0).abs() < 1e-6, "{line}: scale {scale:e}");
        values.iter_mut().for_each(|value| *value /= scale);
        let error = f64::from(scale) * root_mean_square_error(Format::NVFP4, &values);
        let ratio = error / number(2);
        println!("{:28} {ratio:.5} of the least error, of 6 for the largest {:.3}", field[0], number(3) / number(2));
        assert!(ratio <= 1.0005, "{line}: RMSE {error:.6e}, {ratio}");
        ratios.push(ratio);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean <= 1.0001, "{mean}");
}
