//! Files written by PyPI's gguf 0.19 (`scripts/golden/gguf_files.py`).

use std::path::PathBuf;

use gristmill_files::gguf::{Array, FormatErrorKind, GgufError, GgufFile, GgufWriter, Value};

use crate::rewrite;

pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gguf").join(name)
}

fn pairs() -> Vec<(&'static str, Value)> {
    let nested = vec![
        Array::I32(vec![1, 2]),
        Array::String(vec!["x".into()]),
        Array::Array(vec![Array::Bool(vec![true]), Array::F32(vec![0.5])]),
    ];
    vec![
        ("general.architecture", "test".into()),
        ("t.u8", u8::MAX.into()),
        ("t.i8", i8::MIN.into()),
        ("t.u16", u16::MAX.into()),
        ("t.i16", i16::MIN.into()),
        ("t.u32", u32::MAX.into()),
        ("t.i32", i32::MIN.into()),
        ("t.f32", (-1.5f32).into()),
        ("t.bool", true.into()),
        ("t.string", "grist, мука, 粉, 🌾".into()),
        ("t.u64", u64::MAX.into()),
        ("t.i64", i64::MIN.into()),
        ("t.f64", 1e300f64.into()),
        ("a.uint8", vec![0u8, 1, 255].into()),
        ("a.int8", vec![-128i8, 127].into()),
        ("a.uint16", vec![0u16, 65535].into()),
        ("a.int16", vec![-32768i16, 32767].into()),
        ("a.uint32", vec![0, u32::MAX].into()),
        ("a.int32", vec![i32::MIN, i32::MAX].into()),
        ("a.float32", vec![0.0f32, -0.25].into()),
        ("a.bool", vec![true, false].into()),
        ("a.string", vec!["a", "", "ü"].into()),
        ("a.uint64", vec![u64::MAX].into()),
        ("a.int64", vec![i64::MIN].into()),
        ("a.float64", vec![1e-300f64, 2.0].into()),
        ("a.array", nested.into()),
    ]
}

fn halves(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32 / 2.0).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

fn sevens(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 % 256) as u8).collect()
}

fn tensors() -> Vec<(&'static str, u32, Vec<u64>, Vec<u8>)> {
    let f32s = |n| halves(n).iter().flat_map(|x| x.to_le_bytes()).collect();
    let f16s = halves(10).iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect();
    vec![
        ("norm.weight", 0, vec![3], f32s(3)),
        ("half.weight", 1, vec![5, 2], f16s),
        ("q8.weight", 8, vec![64, 2], sevens(136)),
        ("experts.weight", 12, vec![256, 3, 2], sevens(864)),
        ("four.weight", 0, vec![5, 4, 3, 2], f32s(120)),
        ("brain.weight", 30, vec![3, 2], sevens(12)),
    ]
}

#[test]
fn every_value_type_and_tensor() {
    let path = golden("all_types.gguf");
    let file = GgufFile::open(&path).unwrap();
    assert_eq!((file.version(), file.alignment(), file.parts()), (3, 32, 1));
    assert_eq!(file.file_bytes(), path.metadata().unwrap().len());

    let expected = pairs();
    assert_eq!(file.metadata().len(), expected.len());
    for (found, (key, value)) in file.metadata().iter().zip(&expected) {
        assert_eq!(found, (*key, value));
    }
    assert_eq!(file.tensors().len(), tensors().len());
    for (info, (name, ty, shape, data)) in file.tensors().iter().zip(tensors()) {
        assert_eq!((info.name.as_str(), info.format.ggml_type(), &info.shape), (name, Some(ty), &shape));
        assert_eq!(file.data(info), data, "{name}");
        assert_eq!(file.tensor(name), Some(info));
        assert_eq!(info.elements(), shape.iter().product::<u64>());
        // Released pages are read again from the file.
        file.advise_done(info);
        assert_eq!(file.data(info), data, "{name} after its pages were released");
    }
    assert_eq!(file.tensor("absent"), None);
}

#[test]
fn writes_the_bytes_of_the_reference() {
    let reference = std::fs::read(golden("all_types.gguf")).unwrap();
    let mut plan = GgufWriter::new();
    for (key, value) in pairs() {
        plan.set(key, value).unwrap();
    }
    for (name, ty, shape, _) in tensors() {
        let format = gristmill_kernels::format::Format::from_ggml_type(ty).unwrap();
        plan.tensor(name, format, &shape).unwrap();
    }
    assert_eq!(plan.file_bytes(), reference.len() as u64);
    let mut data = plan.begin(Vec::new()).unwrap();
    for (name, _, _, bytes) in tensors() {
        assert_eq!(data.due().map(|(n, _, len)| (n, len)), Some((name, bytes.len() as u64)));
        for chunk in bytes.chunks(100) {
            data.write_chunk(chunk).unwrap();
        }
    }
    assert_eq!(data.due(), None);
    assert!(data.finish().unwrap() == reference);
}

#[test]
fn alignment_and_version_2() {
    for (name, version) in [("aligned.gguf", 3), ("version2.gguf", 2)] {
        let file = GgufFile::open(golden(name)).unwrap();
        assert_eq!((file.version(), file.alignment()), (version, 128), "{name}");
        let b = file.tensor("b").unwrap();
        assert_eq!(b.offset % 128, 0);
        let values = floats(file.data(b));
        assert_eq!(values, halves(33), "{name}");
    }
}

#[test]
fn big_endian_is_refused_by_name() {
    let error = GgufFile::open(golden("big_endian.gguf")).unwrap_err();
    let GgufError::Format { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!((source.offset, &source.kind), (4, &FormatErrorKind::BigEndian));
    assert!(error.to_string().contains("big-endian"), "{error}");
}

#[test]
fn memory_and_map_read_alike() {
    static BYTES: &[u8] = include_bytes!("../golden/gguf/all_types.gguf");
    let mapped = rewrite(&GgufFile::open(golden("all_types.gguf")).unwrap());
    assert_eq!(rewrite(&GgufFile::from_static(BYTES).unwrap()), mapped);
    assert_eq!(rewrite(&GgufFile::from_bytes(BYTES).unwrap()), mapped);
}

#[test]
fn any_part_opens_the_whole_model() {
    for part in 1..=3 {
        let file = GgufFile::open(golden(&format!("split-0000{part}-of-00003.gguf"))).unwrap();
        assert_eq!((file.parts(), file.tensors().len(), file.file_bytes()), (3, 5, 448 + 352 + 224));
        assert_eq!(file.metadata().required::<&str>("general.name"), Ok("split"));
        for (i, info) in file.tensors().iter().enumerate() {
            assert_eq!((info.name.as_str(), info.part), (format!("blk.{i}.weight").as_str(), i / 2));
            let values = floats(file.data(info));
            let expected: Vec<f32> = halves(12).iter().map(|x| x + i as f32).collect();
            assert_eq!(values, expected);
        }
    }
}
