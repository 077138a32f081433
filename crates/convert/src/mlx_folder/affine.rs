//! Affine codes as `mlx.core.quantize` makes them: value ≈ scale · code + bias. Checked with mlx 0.32.4, bit by bit.

use gristmill_kernels::format::Format;

use crate::mlx::Widths;

/// The smallest scale of a group before its end is put on a code.
const LEAST: f32 = 1e-7;

/// Rows in codes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Coded {
    pub(super) codes: Vec<u8>,
    /// One number for each group.
    pub(super) scales: Vec<u8>,
    pub(super) biases: Vec<u8>,
}

impl Coded {
    /// Appends whole groups of values; scales and biases are written in `numbers`, a float format.
    pub(super) fn push(&mut self, values: &[f32], widths: Widths, numbers: Format) {
        for group in values.chunks_exact(widths.group) {
            let line = Line::of(group, widths.bits);
            // Eight codes take whole bytes.
            for eight in group.chunks_exact(8) {
                let word = eight.iter().zip(0..).fold(0_u64, |word, (&x, i)| word | line.code(x) << (i * widths.bits));
                self.codes.extend_from_slice(&word.to_le_bytes()[..widths.bits]);
            }
            for (out, number) in [(&mut self.scales, line.scale), (&mut self.biases, line.bias)] {
                let start = out.len();
                out.resize(start + numbers.block_bytes(), 0);
                let written = numbers.encode(&[number], &mut out[start..]);
                debug_assert!(written.is_some(), "one element is a block of a float format");
            }
        }
    }
}

/// The line of a group.
struct Line {
    scale: f32,
    bias: f32,
    largest: f32,
}

impl Line {
    /// The end with the larger magnitude is the bias, and 0 has a code if it is within the group.
    fn of(group: &[f32], bits: usize) -> Line {
        let largest = ((1 << bits) - 1) as f32;
        let low = group.iter().copied().fold(f32::INFINITY, f32::min);
        let high = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scale = ((high - low) / largest).max(LEAST);
        let (scale, end) = if low.abs() > high.abs() { (scale, low) } else { (-scale, high) };
        let steps = (end / scale).round_ties_even();
        match steps == 0.0 {
            true => Line { scale, bias: 0.0, largest },
            false => Line { scale: end / steps, bias: end, largest },
        }
    }

    fn code(&self, x: f32) -> u64 {
        ((x - self.bias) / self.scale).round_ties_even().clamp(0.0, self.largest) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scripts/golden/mlx_quantise.py`: for each type, width and group the codes, scales and biases of the same rows.
    #[test]
    fn codes_are_those_of_mlx() {
        let golden = include_bytes!("../../tests/golden/mlx_quantise.bin").as_slice();
        let (rows, mut rest) = golden.split_at(ROWS * COLUMNS * 4);
        for numbers in [Format::F32, Format::F16, Format::BF16] {
            let mut values = vec![0.0; ROWS * COLUMNS];
            Format::F32.decode(rows, &mut values).unwrap();
            // What the type holds of them.
            let mut rounded = vec![0; numbers.row_bytes(values.len()).unwrap()];
            numbers.encode(&values, &mut rounded).unwrap();
            numbers.decode(&rounded, &mut values).unwrap();
            for bits in [2, 3, 4, 5, 6, 8] {
                for group in [32, 64, 128] {
                    let mut found = Coded::default();
                    found.push(&values, Widths { bits, group }, numbers);
                    for (what, found) in [("codes", found.codes), ("scales", found.scales), ("biases", found.biases)] {
                        let wanted;
                        (wanted, rest) = rest.split_at(found.len());
                        assert!(found == wanted, "{what} of {bits} bits, groups of {group}, {numbers}");
                    }
                }
            }
        }
        assert!(rest.is_empty());
    }

    const ROWS: usize = 8;
    const COLUMNS: usize = 128;
}
