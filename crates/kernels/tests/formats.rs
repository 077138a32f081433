//! Decoding against PyPI's gguf 0.19, bit by bit. The files are written by `scripts/golden/formats.py`.

use gristmill_kernels::format::Format;
use std::path::PathBuf;

fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/formats").join(file)
}

/// Name, type number, elements and bytes of a block of every format, as gguf has them.
fn table() -> Vec<(String, u32, usize, usize)> {
    let text = std::fs::read_to_string(golden("formats.txt")).unwrap();
    let line = |line: &str| {
        let field: Vec<&str> = line.split(' ').collect();
        (field[0].to_owned(), field[1].parse().unwrap(), field[2].parse().unwrap(), field[3].parse().unwrap())
    };
    text.lines().map(line).collect()
}

#[test]
fn names_numbers_and_sizes_are_those_of_gguf() {
    let table = table();
    assert_eq!(table.len(), Format::ALL.len());
    for (name, number, elements, bytes) in &table {
        let format = Format::from_ggml_type(*number).unwrap_or_else(|| panic!("{name} is not known"));
        assert_eq!((format.name(), format.to_string()), (name.as_str(), name.clone()));
        assert_eq!(
            (format.ggml_type(), format.block_len(), format.block_bytes()),
            (*number, *elements, *bytes),
            "{name}"
        );
    }
    for number in (0..256).chain([u32::MAX]) {
        assert_eq!(Format::from_ggml_type(number).is_some(), table.iter().any(|t| t.1 == number), "type {number}");
    }
}

#[test]
fn decoding_is_that_of_gguf() {
    for (name, number, elements, bytes) in table() {
        let format = Format::from_ggml_type(number).unwrap();
        let data = std::fs::read(golden(&format!("{name}.bin"))).unwrap();
        let count = data.len() / (bytes + 4 * elements);
        assert!(count >= 15 && count * (bytes + 4 * elements) == data.len(), "{name}: {} bytes", data.len());
        let (blocks, want) = data.split_at(count * bytes);
        let mut got = vec![0.0; count * elements];
        format.decode(blocks, &mut got).unwrap();
        for (i, (got, want)) in got.iter().zip(want.chunks_exact(4)).enumerate() {
            let want = f32::from_le_bytes(want.try_into().unwrap());
            // The sign and payload of a NaN depend on the CPU.
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{name}: block {}, element {}: {got:e}, gguf has {want:e}", i / elements, i % elements);
        }
    }
}

#[test]
fn wrong_lengths_are_refused() {
    for &format in Format::ALL {
        let (elements, bytes) = (format.block_len(), format.block_bytes());
        for (values, size) in
            [(2 * elements, bytes), (elements, 2 * bytes), (elements, bytes - 1), (elements + 1, bytes)]
        {
            assert_eq!(format.decode(&vec![0; size], &mut vec![0.0; values]), None, "{format}: {values} of {size}");
            assert_eq!(format.encode(&vec![0.0; values], &mut vec![0; size]), None, "{format}: {values} of {size}");
        }
        assert_eq!(format.row_bytes(0), Some(0));
        assert_eq!(format.row_bytes(3 * elements), Some(3 * bytes));
        if bytes > elements {
            assert_eq!(format.row_bytes(usize::MAX / elements * elements), None, "{format}: must not overflow");
        }
    }
}
