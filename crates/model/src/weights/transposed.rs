//! Matrices whose rows become columns when they are loaded.

use gristmill_kernels::format::Format;
use gristmill_kernels::weight::TensorView;

/// The matrices of a tensor, each transposed, in a format whose blocks are single numbers. The bytes of `view` have been
/// checked.
pub(super) fn transposed(view: &TensorView, format: Format) -> Vec<u8> {
    let TensorView { experts, rows, cols, .. } = *view;
    let mut values = vec![0.0; experts * rows * cols];
    view.format.decode(view.bytes.as_slice(), &mut values);
    let mut turned = Vec::with_capacity(values.len());
    for matrix in values.chunks_exact((rows * cols).max(1)) {
        for col in 0..cols {
            turned.extend(matrix.iter().skip(col).step_by(cols).copied());
        }
    }
    let mut bytes = vec![0; turned.len() * format.block_bytes()];
    format.encode(&turned, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_matrix_is_transposed() {
        let values: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        let view =
            TensorView { name: String::new(), format: Format::F32, experts: 2, rows: 2, cols: 3, bytes: values.into() };
        let mut found = vec![0.0; 12];
        Format::F16.decode(&transposed(&view, Format::F16), &mut found);
        assert_eq!(found, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 7.0, 10.0, 8.0, 11.0, 9.0, 12.0]);
    }
}
