//! The part of a tensor that a rank loads.

use std::ops::Range;

use gristmill_kernels::tensor::SharedBytes;
use gristmill_kernels::weight::TensorView;

use crate::error::Result;
use crate::program::tensors::Cut;

/// These bytes, which are not copied.
pub(super) fn part(bytes: SharedBytes, range: Range<usize>) -> SharedBytes {
    if range == (0..bytes.as_slice().len()) {
        return bytes;
    }
    bytes.slice(range).unwrap_or_else(|| Vec::new().into())
}

/// The rows and columns of the matrices that are loaded. Rows of one matrix are not copied.
pub(super) fn cut(view: TensorView, cut: &Cut) -> Result<TensorView> {
    let Cut { rows, columns, .. } = cut;
    if rows.is_none() && columns.is_none() {
        return Ok(view);
    }
    view.check()?;
    let TensorView { name, format, experts, rows: all, cols, bytes } = view;
    let (block, block_bytes) = (format.block_len(), format.block_bytes());
    let row_bytes = cols / block * block_bytes;
    let rows = rows.clone().unwrap_or(0..all);
    let columns = columns.clone().unwrap_or(0..cols);
    let own = columns.start / block * block_bytes..columns.end / block * block_bytes;
    let bytes = match (experts, own.len() == row_bytes) {
        (1, true) => part(bytes, rows.start * row_bytes..rows.end * row_bytes),
        _ => {
            let all_rows = bytes.as_slice().chunks_exact(row_bytes.max(1));
            let is_own = |(at, _): &(usize, &[u8])| rows.contains(&(at % all.max(1)));
            let parts = all_rows.enumerate().filter(is_own).flat_map(|(_, row)| &row[own.clone()]);
            parts.copied().collect::<Vec<_>>().into()
        }
    };
    Ok(TensorView { name, format, experts, rows: rows.len(), cols: columns.len(), bytes })
}
