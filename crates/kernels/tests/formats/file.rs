//! The golden files of formats, as `scripts/golden/format_files.py` describes them.

use std::path::PathBuf;

pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

/// The file of a format.
pub(crate) struct FormatFile {
    pub(crate) number: u32,
    /// Bytes of the scale at the start of a row.
    pub(crate) row_scale: usize,
    /// Blocks of a row.
    pub(crate) blocks: usize,
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
    /// Names of tensors, and the root mean square error of llama.cpp's quantiser.
    pub(crate) errors: Vec<(String, f64)>,
    /// Rows, and the floats that they decode to.
    pub(crate) rows: Vec<u8>,
    pub(crate) values: Vec<f32>,
}

impl FormatFile {
    pub(crate) fn read(name: &str) -> Self {
        let data = std::fs::read(path(&format!("formats/{name}.bin"))).unwrap_or_else(|e| panic!("{name}.bin: {e}"));
        let end = data.windows(2).position(|pair| pair == b"\n\n").expect("a header");
        let (header, data) = (str::from_utf8(&data[..end]).unwrap(), &data[end + 2..]);
        let (first, errors) = header.split_once('\n').unwrap_or((header, ""));
        let numbers: Vec<usize> = first.split(' ').map(|field| field.parse().unwrap()).collect();
        let [number, row_scale, blocks, elements, bytes] = numbers[..] else { panic!("{name}.bin: {first}") };
        let errors = errors.lines().map(|line| line.split_once(' ').unwrap());
        let row = row_scale + blocks * bytes;
        let count = data.len() / (row + 4 * blocks * elements);
        assert!(count >= 14 && count * (row + 4 * blocks * elements) == data.len(), "{name}.bin: {} bytes", data.len());
        let (rows, values) = data.split_at(count * row);
        FormatFile {
            number: number as u32,
            row_scale,
            blocks,
            elements,
            bytes,
            errors: errors.map(|(tensor, error)| (tensor.to_owned(), error.parse().unwrap())).collect(),
            rows: rows.to_vec(),
            values: values.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
        }
    }

    /// Compares what `decode` returns for all rows with the values.
    pub(crate) fn check(&self, name: &str, decode: impl Fn(&[u8], &mut [f32])) {
        let mut decoded = vec![0.0; self.values.len()];
        decode(&self.rows, &mut decoded);
        for (i, (got, want)) in decoded.iter().zip(&self.values).enumerate() {
            // The sign and payload of a NaN depend on the CPU.
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            let columns = self.blocks * self.elements;
            assert!(same, "{name}: row {}, element {}: {got:e}, expected {want:e}", i / columns, i % columns);
        }
    }
}
