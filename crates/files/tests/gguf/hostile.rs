//! Files that lie: each gets a typed error with the place and the byte offset, in little time and memory.

use std::time::{Duration, Instant};

use gristmill_files::gguf::FormatErrorKind as Kind;
use gristmill_files::gguf::{FormatError, GgufError, GgufFile, Place};
use gristmill_kernels::format::rows::ScaledRows;

use crate::alloc::peak;
use crate::raw::Raw;

/// Memory allowed while reading `len` bytes. An empty string takes 8 bytes in a file and 24 in memory; nested lying
/// counts can hold four levels at once of 32 bytes for 12.
pub(crate) fn memory_bound(len: usize) -> usize {
    16 * len + 4096
}

fn read(bytes: &[u8]) -> Result<GgufFile, FormatError> {
    match GgufFile::from_bytes(bytes) {
        Ok(file) => Ok(file),
        Err(GgufError::Format { source, .. }) => Err(source),
        Err(other) => panic!("{other:?}"),
    }
}

/// Reads within bounds of time and memory.
fn read_bounded(bytes: &[u8]) -> Result<GgufFile, FormatError> {
    let start = Instant::now();
    let (result, peak) = peak(|| read(bytes));
    assert!(peak <= bytes.len() + memory_bound(bytes.len()), "{peak} bytes to read {}", bytes.len());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?} to read {}", start.elapsed(), bytes.len());
    result
}

#[track_caller]
fn refused(raw: Raw, at: Place, offset: u64, kind: Kind) {
    let error = read_bounded(&raw.0).expect_err("the file lies");
    assert_eq!((&error.at, error.offset, &error.kind), (&at, offset, &kind), "{error}");
}

fn key(name: &str) -> Place {
    Place::Key(name.to_owned())
}

fn tensor(name: &str) -> Place {
    Place::Tensor(name.to_owned())
}

const F32: u32 = 0;
const Q8_0: u32 = 8;
/// The offset of the first byte after the header.
const BODY: u64 = 24;

#[test]
fn headers() {
    refused(Raw(b"GGUX1234".to_vec()), Place::Header, 0, Kind::Magic(*b"GGUX"));
    let version = |v| Raw(b"GGUF".to_vec()).u32(v).u64(0).u64(0);
    refused(version(0), Place::Header, 4, Kind::Version(0));
    refused(version(1), Place::Header, 4, Kind::Version(1));
    refused(version(4), Place::Header, 4, Kind::Version(4));
    refused(version(3 << 24), Place::Header, 4, Kind::BigEndian);
    assert!(read(&version(2).0).is_ok());

    let whole = Raw::header(0, 0).0;
    assert!(read(&whole).is_ok());
    for (len, offset, needed) in [(3, 0, 4), (7, 4, 4), (15, 8, 8), (23, 16, 8)] {
        let remaining = len - offset;
        let raw = Raw(whole[..len as usize].to_vec());
        refused(raw, Place::Header, offset, Kind::Truncated { needed, remaining });
    }

    // Lying counts, which would be 2^60 allocations.
    let count = |count, most| Kind::Count { count, remaining: 100, most };
    refused(Raw::header(0, 1 << 60).bytes(&[0; 100]), Place::Header, 16, count(1 << 60, 7));
    refused(Raw::header(1 << 60, 0).bytes(&[0; 100]), Place::Header, 8, count(1 << 60, 3));
    refused(Raw::header(u64::MAX, u64::MAX).bytes(&[0; 100]), Place::Header, 16, count(u64::MAX, 7));
    refused(Raw::header(4, 0).bytes(&[0; 100]), Place::Header, 8, count(4, 3));
}

#[test]
fn metadata() {
    let one = || Raw::header(0, 1);
    let pad = [0; 16];

    let raw = one().u64(1 << 40).bytes(&pad);
    refused(raw, Place::KeyNumber(0), BODY, Kind::NameLength { bytes: 1 << 40, limit: 65_535 });
    let raw = one().u64(1000).bytes(&pad);
    refused(raw, Place::KeyNumber(0), BODY + 8, Kind::Truncated { needed: 1000, remaining: 16 });
    refused(one().u64(3).bytes(b"ab\xff").bytes(&pad), Place::KeyNumber(0), BODY + 10, Kind::Utf8);

    // Key `k`: its value's type is at `at`, its value at `at + 4`.
    let k = || one().string("k");
    let at = BODY + 9;
    refused(k().u32(13).bytes(&pad), key("k"), at, Kind::ValueType(13));
    refused(k().u32(u32::MAX).bytes(&pad), key("k"), at, Kind::ValueType(u32::MAX));
    refused(k().u32(10).bytes(&[0; 7]), key("k"), at + 4, Kind::Truncated { needed: 8, remaining: 7 });
    refused(k().u32(7).bytes(&[2]), key("k"), at + 4, Kind::Bool(2));
    let truncated = Kind::Truncated { needed: u64::MAX, remaining: 0 };
    refused(k().u32(8).u64(u64::MAX), key("k"), at + 12, truncated);
    refused(k().u32(8).u64(3).bytes(b"a\xc3("), key("k"), at + 13, Kind::Utf8);

    // Arrays: element type at `at + 4`, count at `at + 8`.
    let array = |element, count| k().u32(9).u32(element).u64(count);
    refused(array(77, 0), key("k"), at + 4, Kind::ValueType(77));
    for (element, size) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (8, 8), (9, 12), (10, 8)] {
        let most = 96 / size;
        for count in [most + 1, 1 << 60, u64::MAX] {
            let kind = Kind::Count { count, remaining: 96, most };
            refused(array(element, count).bytes(&[0; 96]), key("k"), at + 8, kind);
        }
    }
    refused(array(7, 3).bytes(&[1, 0, 9]), key("k"), at + 18, Kind::Bool(9));
    let second = at + 16 + 8 + 1 + 8;
    refused(array(8, 2).string("a").u64(1).bytes(b"\xff"), key("k"), second, Kind::Utf8);
    // The count fits at the least size, the strings do not.
    let raw = array(8, 2).string("abcdefgh").bytes(&[0; 3]);
    refused(raw, key("k"), at + 32, Kind::Truncated { needed: 8, remaining: 3 });

    let duplicate = Raw::header(0, 2).string("k").u32(0).bytes(&[1]);
    let second = duplicate.here();
    refused(duplicate.string("k").u32(0).bytes(&[2]), key("k"), second, Kind::Duplicate(at));
}

#[test]
fn nested_arrays() {
    let nested = |depth: usize| {
        let open = |raw: Raw, _| raw.u32(9).u64(1);
        let outer = (1..depth).fold(Raw::header(0, 1).string("k").u32(9), open);
        outer.u32(0).u64(1).bytes(&[5])
    };
    assert!(read(&nested(4).0).is_ok());
    let too_deep = BODY + 9 + 4 + 4 * 12;
    refused(nested(5), key("k"), too_deep, Kind::ArrayDepth);
    // A recursion without a bound would overflow the stack here.
    refused(nested(1_000_000), key("k"), too_deep, Kind::ArrayDepth);
    // Each level claims all of the rest.
    let mut raw = Raw::header(0, 1).string("k").u32(9);
    let len = 1 << 20;
    for _ in 0..3 {
        raw = raw.u32(9).u64((len - 100) / 12);
    }
    raw = raw.u32(8).u64((len - 100) / 8);
    raw.0.resize(len as usize + 24, 0);
    read_bounded(&raw.0).unwrap_err();
}

#[test]
fn huge_arrays_are_read_in_time_and_memory() {
    let n = 500_000;
    // Empty strings, and empty arrays: the smallest entries.
    let mut strings = Raw::header(0, 1).string("k").u32(9).u32(8).u64(n);
    strings.0.resize(strings.0.len() + 8 * n as usize, 0);
    read_bounded(&strings.0).unwrap();
    let mut arrays = Raw::header(0, 1).string("k").u32(9).u32(9).u64(n);
    arrays.0.resize(arrays.0.len() + 12 * n as usize, 0);
    read_bounded(&arrays.0).unwrap();
}

#[test]
fn many_names_are_read_in_time_and_memory() {
    let n = 100_000;
    let keys = (0..n).fold(Raw::header(0, n), |raw, i| raw.string(&format!("{i}")).u32(0).bytes(&[1]));
    assert_eq!(read_bounded(&keys.0).unwrap().metadata().len() as u64, n);
    let tensors = (0..n).fold(Raw::header(n, 0), |raw, i| raw.tensor(&format!("{i}"), &[1], F32, 32 * i));
    assert_eq!(read_bounded(&tensors.data(32 * n as usize).0).unwrap().tensors().len() as u64, n);
}

#[test]
fn alignments() {
    let at = BODY + 8 + "general.alignment".len() as u64;
    let file = |ty: u32, bytes: &[u8]| Raw::header(0, 1).string("general.alignment").u32(ty).bytes(bytes);
    let refuse = |raw, found: &str| refused(raw, key("general.alignment"), at, Kind::Alignment(found.to_owned()));
    refuse(file(4, &0u32.to_le_bytes()), "0");
    refuse(file(4, &48u32.to_le_bytes()), "48");
    refuse(file(5, &(-32i32).to_le_bytes()), "-32");
    refuse(file(10, &(1u64 << 32).to_le_bytes()), "4294967296");
    refuse(file(6, &32f32.to_le_bytes()), "float32");
    refuse(file(8, &[0; 8]), "string");
    for alignment in [1u32, 2, 4096, 1 << 31] {
        let file = read(&file(4, &alignment.to_le_bytes()).0).unwrap();
        assert_eq!(file.alignment(), u64::from(alignment));
    }
}

/// Offsets in the record of the first tensor, `t`, of a file without metadata.
const DIMS: u64 = BODY + 9;
const SHAPE: u64 = DIMS + 4;

#[test]
fn tensor_records() {
    let t = |shape: &[u64], ty| Raw::header(1, 0).tensor("t", shape, ty, 0).data(1024);
    assert!(read(&t(&[1, 2, 3, 4], F32).0).is_ok());
    refused(t(&[], F32), tensor("t"), DIMS, Kind::Dims(0));
    refused(t(&[1; 5], F32), tensor("t"), DIMS, Kind::Dims(5));
    let many = Raw::header(1, 0).string("t").u32(u32::MAX).bytes(&[0; 64]);
    refused(many, tensor("t"), DIMS, Kind::Dims(u32::MAX));
    refused(t(&[0], F32), tensor("t"), SHAPE, Kind::ZeroDim(0));
    refused(t(&[1, 2, 0, 4], F32), tensor("t"), SHAPE + 16, Kind::ZeroDim(2));
    for ty in [4, 5, 15, 26, 141, 216, 1000, u32::MAX] {
        refused(t(&[256], ty), tensor("t"), SHAPE + 8, Kind::TensorType(ty));
    }
    let partial = Kind::PartialBlock { row: 33, block: 32, format: "Q8_0" };
    refused(t(&[33, 32], Q8_0), tensor("t"), SHAPE, partial);

    for shape in [
        vec![u64::MAX],                 // bytes overflow
        vec![1 << 62],                  // 2^64 bytes
        vec![1 << 32, 1 << 32],         // 2^64 elements
        vec![1 << 16; 4],               // 2^64 elements
        vec![1 << 63, 2, 1, 1],         // 2^64 elements
        vec![3, 1 << 40, 1 << 40],      // far more
        vec![u64::MAX, u64::MAX, 1, 1], // wraps to 1
    ] {
        refused(t(&shape, F32), tensor("t"), SHAPE, Kind::ShapeOverflow(shape));
    }
    // Q8_0 takes 34 bytes for 32 elements: its bytes overflow though its elements do not.
    let shape = vec![1 << 59, 31];
    refused(t(&shape, Q8_0), tensor("t"), SHAPE, Kind::ShapeOverflow(shape));

    let raw = Raw::header(1, 0).u64(70_000).bytes(&[b'n'; 70_000]);
    refused(raw, Place::TensorNumber(0), BODY, Kind::NameLength { bytes: 70_000, limit: 65_535 });
    let raw = Raw::header(1, 0).u64(2).bytes(b"\xff\xff").bytes(&[0; 64]);
    refused(raw, Place::TensorNumber(0), BODY + 8, Kind::Utf8);

    let first = Raw::header(2, 0).tensor("t", &[1], F32, 0);
    let second = first.here();
    let kind = Kind::Duplicate(DIMS);
    refused(first.tensor("t", &[1], F32, 32).data(64), tensor("t"), second + 9, kind);
}

/// Rows that start with a scale: the sizes of files that lack the scales, and scales that are not numbers.
#[test]
fn rows_with_a_scale() {
    for rows in ScaledRows::all() {
        let name = rows.name();
        let ty = rows.ggml_type();
        let row = rows.row_bytes(512).unwrap();
        let field = SHAPE + 3 * 8 + 4;
        let one = |shape: [u64; 3], data| Raw::header(1, 0).tensor("t", &shape, ty, 0).data(data);
        for columns in [255, 384] {
            let partial = Kind::PartialBlock { row: columns, block: 256, format: name };
            refused(one([columns, 3, 2], 0), tensor("t"), SHAPE, partial);
        }
        let shape = [1 << 60, 1 << 10, 1];
        refused(one(shape, 0), tensor("t"), SHAPE, Kind::ShapeOverflow(shape.to_vec()));

        let start = 96; // 24 bytes of header, 49 of record, padded
        let end = start + 6 * row as u64;
        let whole = 6 * row;
        for data in [whole - 1, whole - 6 * rows.scale_bytes(), whole - row] {
            let len = start + data as u64;
            refused(one([512, 3, 2], data), tensor("t"), field, Kind::OutOfBounds { end, len });
        }
        // The next tensor starts where this one would end without the scales.
        let overlapping = Raw::header(2, 0).tensor("t", &[512, 32], ty, 0);
        let without = 32 * (row - rows.scale_bytes()) as u64;
        let second = overlapping.here() + 9 + 4 + 8 + 4;
        let raw = overlapping.tensor("u", &[1], F32, without).data(32 * row + 64);
        refused(raw, tensor("u"), second, Kind::Overlap("t".to_owned()));

        let raw = one([512, 3, 2], whole);
        let file = GgufFile::from_bytes(raw.0.clone()).unwrap();
        let info = &file.tensors()[0];
        assert_eq!((info.type_name(), info.format, info.bytes), (name, rows.format(), whole as u64));
        assert!(file.is_made(info) && file.data(info).is_empty());
        assert_eq!(file.load(info).unwrap().as_slice().len(), 12 * rows.format().block_bytes());
        // The upper half of the last row's scale.
        let mut bytes = raw.0;
        let at = start as usize + 5 * row + rows.scale_bytes() - 2;
        bytes[at..at + 2].fill(0xff);
        let file = GgufFile::from_bytes(bytes).unwrap();
        let error = file.load(&file.tensors()[0]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("tensor `t`: the {name} scale of row 5 is NaN")), "{error}");
    }
}

#[test]
fn tensor_data() {
    // The offset's own offset, in a record of one dimension.
    let field = SHAPE + 8 + 4;
    let one = |shape: &[u64], offset| Raw::header(1, 0).tensor("t", shape, F32, offset);
    let start = 64; // 24 bytes of header, 33 of record, padded
    assert!(read(&one(&[8], 32).data(64).0).is_ok());

    let misaligned = Kind::Misaligned { offset: 4, alignment: 32 };
    refused(one(&[1], 4).data(64), tensor("t"), field, misaligned);
    let offset = u64::MAX - 31;
    refused(one(&[1], offset).data(64), tensor("t"), field, Kind::OffsetOverflow(offset));
    // Offset and start fit, with the size they do not.
    let offset = u64::MAX - 31 - start - 32;
    refused(one(&[64], offset).data(64), tensor("t"), field, Kind::OffsetOverflow(offset));

    let outside = |end, len| Kind::OutOfBounds { end, len };
    refused(one(&[1], 0), tensor("t"), field, outside(start + 4, 57));
    refused(one(&[9], 32).data(67), tensor("t"), field, outside(start + 68, start + 67));
    refused(one(&[1 << 50], 0).data(64), tensor("t"), field, outside(start + (1 << 52), start + 64));

    let two = |a: (u64, u64), b: (u64, u64)| {
        let raw = Raw::header(2, 0).tensor("t", &[a.0], F32, a.1).tensor("u", &[b.0], F32, b.1);
        raw.data(256)
    };
    let later = field + 33;
    let overlap = |other: &str| Kind::Overlap(other.to_owned());
    refused(two((9, 0), (8, 32)), tensor("u"), later, overlap("t"));
    refused(two((8, 32), (9, 0)), tensor("t"), field, overlap("u"));
    refused(two((8, 32), (8, 32)), tensor("u"), later, overlap("t"));
    refused(two((32, 0), (1, 64)), tensor("u"), later, overlap("t"));
    // Any order and gaps are fine.
    assert!(read(&two((8, 64), (8, 0)).0).is_ok());
}

#[test]
fn every_truncation_of_a_file_is_an_error() {
    let bytes = std::fs::read(crate::golden::golden("all_types.gguf")).unwrap();
    let file = read(&bytes).unwrap();
    let end = file.tensors().iter().map(|t| t.offset + t.bytes).max().unwrap();
    for len in 0..end as usize {
        let error = read_bounded(&bytes[..len]).unwrap_err();
        assert!(error.offset <= len as u64, "{len}: {error}");
        assert!(
            matches!(error.kind, Kind::Truncated { .. } | Kind::Count { .. } | Kind::OutOfBounds { .. }),
            "{len}: {error}"
        );
    }
    // The padding after the last tensor may be missing.
    for len in end as usize..bytes.len() {
        assert!(read(&bytes[..len]).is_ok());
    }
}

#[test]
fn messages_name_and_bound_what_they_quote() {
    let long = "x\n`".repeat(10_000);
    let error = read(&Raw::header(0, 1).string(&long).u32(99).bytes(&[0; 8]).0).unwrap_err();
    let text = error.to_string();
    assert!(text.len() < 500, "{}", text.len());
    assert!(text.starts_with("key `x\\n\\`x"), "{text}");
    assert!(text.contains("(byte 30032): unknown metadata value type 99"), "{text}");

    let error = read(&Raw::header(1, 0).tensor("blk.0.w", &[256], 141, 0).data(99).0).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("tensor `blk.0.w` (byte 51): tensor type IQ6_K (number 141), a format of ik_llama.cpp"),
        "{text}"
    );
}
