//! Decoding against PyPI's gguf 0.19, and of ik_llama.cpp's formats against its own decoders, bit by bit. The files are written
//! by `scripts/golden/formats.py` and `ik_formats.py`.

mod encoders;
mod file;

use file::{FormatFile, path};
use gristmill_kernels::format::rows::ScaledRows;
use gristmill_kernels::format::{Format, affine, e4m3, nvfp4, nvfp4_scaled};

#[test]
fn numbers_sizes_and_values_are_those_of_gguf_and_ik_llama() {
    for format in Format::numbered() {
        let file = FormatFile::read(format.name());
        let number = format.ggml_type().unwrap();
        assert_eq!(Format::from_ggml_type(number), Some(format));
        let sizes = (format.block_len(), format.block_bytes());
        assert_eq!((number, 0, sizes), (file.number, file.row_scale, (file.elements, file.bytes)), "{format}");
        file.check(format.name(), |blocks, out| format.decode(blocks, out).unwrap());
    }
}

#[test]
fn rows_with_a_scale_are_those_of_ik_llama() {
    for rows in ScaledRows::all() {
        let file = FormatFile::read(rows.name());
        let columns = file.blocks * file.elements;
        let row_bytes = file.row_scale + file.blocks * file.bytes;
        assert_eq!((rows.ggml_type(), rows.row_bytes(columns)), (file.number, Some(row_bytes)), "{}", rows.name());
        assert_eq!(Format::from_ggml_type(file.number), None, "{}", rows.name());
        file.check(rows.name(), |bytes, out| {
            rows.format().decode(&rows.blocks(bytes, columns).unwrap(), out).unwrap();
        });
    }
}

/// Blocks with the scale of their tensor: a power of two, so that the order of the products does not matter.
#[test]
fn a_scale_of_the_tensor_multiplies_the_values_of_gguf() {
    FormatFile::read("NVFP4").check("NVFP4", |blocks, out| {
        let mut scaled = Vec::new();
        nvfp4_scaled::put_blocks(blocks, 0.25, &mut scaled);
        Format::NVFP4_SCALED.decode(&scaled, out).unwrap();
        out.iter_mut().for_each(|value| *value *= 4.0);
    });
}

/// The codes of an LSB-first stream of `bits` bits each.
fn stream(bits: usize, bytes: &[u8]) -> Vec<u8> {
    let bit = |i: usize| bytes[i / 8] >> (i % 8) & 1;
    (0..bytes.len() * 8 / bits).map(|i| (0..bits).fold(0, |code, b| code | bit(i * bits + b) << b)).collect()
}

/// Each file of `affine.py`: rows of 256 elements, their codes as MLX packs them, scales and biases in f32, and the floats
/// that `mlx.core.dequantize` makes of them.
#[test]
fn decoding_affine_codes_is_that_of_mlx() {
    const COLUMNS: usize = 256;
    for bits in [2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            let name = format!("affine{bits}_{group}");
            let data = std::fs::read(path(&format!("formats/mlx/{name}.bin"))).unwrap();
            let groups = COLUMNS / group;
            let row = COLUMNS * bits / 8 + 4 * (2 * groups + COLUMNS);
            assert!(data.len().is_multiple_of(row) && data.len() / row >= 12, "{name}: {} bytes", data.len());
            let mut compared = [0; 2];
            for (r, row) in data.chunks_exact(row).enumerate() {
                let (codes, floats) = row.split_at(COLUMNS * bits / 8);
                let floats: Vec<f32> = floats.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
                let (scales, rest) = floats.split_at(groups);
                let (biases, want) = rest.split_at(groups);
                let codes = stream(bits, codes);
                for single in [false, true] {
                    let half = |x: f32| half::f16::from_f32(x).to_f32() == x;
                    if !single && (group == 32 || !scales.iter().chain(biases).all(|&x| half(x))) {
                        continue;
                    }
                    let format = Format::affine(bits, single).unwrap();
                    for (b, codes) in codes.as_chunks::<64>().0.iter().enumerate() {
                        let head = |i: usize| [scales[(64 * b + 32 * i) / group], biases[(64 * b + 32 * i) / group]];
                        let mut block = vec![0xaa; format.block_bytes()];
                        affine::put_block(format, [head(0), head(1)], codes, &mut block).unwrap();
                        let mut got = [0.0; 64];
                        format.decode(&block, &mut got).unwrap();
                        for (i, (got, want)) in got.iter().zip(&want[64 * b..]).enumerate() {
                            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                            assert!(same, "{name} as {format}: row {r}, element {}: {got:e}, MLX {want:e}", 64 * b + i);
                        }
                        compared[usize::from(single)] += 1;
                    }
                }
            }
            assert!(compared[1] > 0 && (compared[0] > 0 || group == 32), "{name}: {compared:?} blocks");
        }
    }
}

/// A file of `mlx_floats.py`, row by row of 256 elements: codes, scales and floats.
fn rows_of_floats(mode: &str, bits: usize, group: usize) -> Vec<(Vec<u8>, Vec<u8>, Vec<f32>)> {
    const COLUMNS: usize = 256;
    let data = std::fs::read(path(&format!("formats/mlx/{mode}.bin"))).unwrap();
    let codes = COLUMNS * bits / 8;
    let groups = COLUMNS / group;
    let row = codes + groups + 4 * COLUMNS;
    assert!(data.len().is_multiple_of(row) && data.len() / row > 254 / groups, "{mode}: {} bytes", data.len());
    let floats = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let split = |row: &[u8]| {
        let (codes, rest) = row.split_at(codes);
        let (scales, values) = rest.split_at(groups);
        (stream(bits, codes), scales.to_vec(), floats(values))
    };
    data.chunks_exact(row).map(split).collect()
}

/// Bit by bit, but for the sign of zeros: the codes of ±0 are the same integer.
#[track_caller]
fn same_bits(what: &str, got: &[f32], want: &[f32]) {
    let bits = |values: &[f32]| values.iter().map(|value| (value + 0.0).to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(got), bits(want), "{what}");
}

#[test]
fn decoding_codes_of_four_bit_floats_is_that_of_mlx() {
    for (codes, scales, want) in rows_of_floats("nvfp4", 4, 16) {
        for (b, codes) in codes.as_chunks::<64>().0.iter().enumerate() {
            let mut block = vec![0xaa; Format::NVFP4.block_bytes()];
            nvfp4::put_block(std::array::from_fn(|g| scales[4 * b + g]), codes, &mut block).unwrap();
            let mut got = [0.0; 64];
            Format::NVFP4.decode(&block, &mut got).unwrap();
            same_bits("NVFP4", &got, &want[64 * b..][..64]);
        }
    }
    for (codes, scales, want) in rows_of_floats("mxfp4", 4, 32) {
        for (b, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
            let block: Vec<u8> =
                [scales[b]].into_iter().chain((0..16).map(|i| codes[i] | codes[i + 16] << 4)).collect();
            let mut got = [0.0; 32];
            Format::MXFP4.decode(&block, &mut got).unwrap();
            same_bits("MXFP4", &got, &want[32 * b..][..32]);
        }
    }
}

#[test]
fn e4m3_is_that_of_mlx() {
    let mut seen = [false; 256];
    for (codes, scales, want) in rows_of_floats("mxfp8", 8, 32) {
        // A scale's bits are an exponent.
        for (i, &code) in codes.iter().enumerate().filter(|(i, _)| (3..=245).contains(&scales[i / 32])) {
            let scale = f64::from(scales[i / 32]) - 127.0;
            let value = (f64::from(e4m3::decode(code)) * scale.exp2()) as f32;
            same_bits("E4M3", &[value], &want[i..][..1]);
            seen[usize::from(code)] = true;
        }
    }
    assert_eq!(seen.iter().filter(|&&seen| seen).count(), 254);
}

#[test]
fn wrong_affine_blocks_are_refused() {
    for bits in [0, 9, 16] {
        assert_eq!(Format::affine(bits, false), None);
    }
    assert_eq!(affine::put_block(Format::Q4_1, [[0.0; 2]; 2], &[0; 64], &mut [0; 40]), None);
    assert_eq!(affine::put_block(Format::AFFINE4_64, [[0.0; 2]; 2], &[0; 64], &mut [0; 37]), None);
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
