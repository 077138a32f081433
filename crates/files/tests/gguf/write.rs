//! The writer's refusals, typed getters, and files written atomically.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_files::gguf::{
    Array, FormatErrorKind, GgufError, GgufFile, GgufWriter, Metadata, MetadataError, TensorSource, Value, WriteError,
    write_atomically,
};
use gristmill_kernels::format::Format;

#[test]
fn plans_are_checked() {
    let mut plan = GgufWriter::new();
    plan.set("a", 1u32).unwrap();
    assert!(matches!(plan.set("a", 2u32), Err(WriteError::Duplicate(k)) if k == "a"));
    assert!(matches!(plan.set("", 2u32), Err(WriteError::NameLength { bytes: 0, .. })));
    assert!(matches!(plan.set(&"k".repeat(65_536), 2u32), Err(WriteError::NameLength { .. })));
    assert!(matches!(plan.set("general.alignment", 64u32), Err(WriteError::AlignmentKey)));
    assert!(matches!(GgufWriter::with_alignment(48), Err(WriteError::Alignment(48))));
    let deep = (0..4).fold(Array::U8(vec![1]), |inner, _| Array::Array(vec![inner]));
    assert!(matches!(plan.set("deep", deep), Err(WriteError::ArrayDepth(k)) if k == "deep"));

    plan.tensor("t", Format::F32, &[1]).unwrap();
    assert!(matches!(plan.tensor("t", Format::F32, &[1]), Err(WriteError::Duplicate(t)) if t == "t"));
    assert!(matches!(plan.tensor(&"t".repeat(64), Format::F32, &[1]), Err(WriteError::NameLength { limit: 63, .. })));
    let shapes: [(&[u64], FormatErrorKind); 5] = [
        (&[], FormatErrorKind::Dims(0)),
        (&[1; 5], FormatErrorKind::Dims(5)),
        (&[1, 0], FormatErrorKind::ZeroDim(1)),
        (&[33], FormatErrorKind::PartialBlock { row: 33, block: 32, format: "Q8_0" }),
        (&[1 << 32, 1 << 32], FormatErrorKind::ShapeOverflow(vec![1 << 32, 1 << 32])),
    ];
    for (shape, expected) in shapes {
        match plan.tensor("u", Format::Q8_0, shape) {
            Err(WriteError::Shape { name, reason }) => assert_eq!((name.as_str(), reason), ("u", expected)),
            other => panic!("{shape:?}: {other:?}"),
        }
    }
    // Two tensors that fit 64 bits each, but not together.
    plan.tensor("big", Format::F32, &[1 << 61]).unwrap();
    let error = plan.tensor("bigger", Format::F32, &[1 << 61]);
    assert!(matches!(error, Err(WriteError::Shape { reason: FormatErrorKind::ShapeOverflow(_), .. })));
}

#[test]
fn data_is_checked() {
    let mut plan = GgufWriter::new();
    plan.tensor("a", Format::F32, &[2]).unwrap().tensor("b", Format::F32, &[1]).unwrap();
    let mut data = plan.begin(Vec::new()).unwrap();
    let wrong = |e: Result<(), WriteError>| match e {
        Err(WriteError::ByteCount { name, given, expected }) => (name, given, expected),
        other => panic!("{other:?}"),
    };
    assert_eq!(wrong(data.write_tensor("a", &[0; 7])), ("a".into(), 7, 8));
    assert_eq!(wrong(data.write_tensor("a", &[0; 9])), ("a".into(), 9, 8));
    assert!(matches!(data.write_tensor("b", &[0; 4]), Err(WriteError::Order { .. })));
    data.write_chunk(&[1; 5]).unwrap();
    assert_eq!(wrong(data.write_chunk(&[2; 4])), ("a".into(), 9, 8));
    data.write_chunk(&[2; 3]).unwrap();
    data.write_tensor("b", &[3; 4]).unwrap();
    assert!(matches!(data.write_chunk(&[0]), Err(WriteError::NoTensor)));
    assert!(matches!(data.write_tensor("c", &[0]), Err(WriteError::NoTensor)));
    let file = GgufFile::from_bytes(data.finish().unwrap()).unwrap();
    assert_eq!(file.data(&file.tensors()[0]), [1, 1, 1, 1, 1, 2, 2, 2]);
    assert_eq!(file.data(&file.tensors()[1]), [3; 4]);

    let mut plan = GgufWriter::new();
    plan.tensor("a", Format::F32, &[2]).unwrap();
    let mut data = plan.begin(Vec::new()).unwrap();
    data.write_chunk(&[1; 5]).unwrap();
    assert_eq!(wrong(data.finish().map(|_| ())), ("a".into(), 5, 8));
}

#[test]
fn a_tensor_of_another_file_has_no_data() {
    let file = |n: u64| {
        let mut plan = GgufWriter::new();
        plan.tensor("a", Format::F32, &[n]).unwrap();
        let mut data = plan.begin(Vec::new()).unwrap();
        data.write_tensor("a", &vec![0; 4 * n as usize]).unwrap();
        GgufFile::from_bytes(data.finish().unwrap()).unwrap()
    };
    let (small, large) = (file(1), file(1000));
    assert!(small.data(&large.tensors()[0]).is_empty());
    small.advise_done(&large.tensors()[0]);
}

/// Tensor 0 lies somewhere, tensor 1 is made, tensor 2 cannot be made.
#[derive(Debug)]
struct Three;

impl TensorSource for Three {
    fn mapped(&self, tensor: usize) -> Option<&[u8]> {
        (tensor == 0).then_some(&[1; 4])
    }
    fn make(&self, tensor: usize) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        if tensor == 1 { Ok(vec![2; 36]) } else { Err("no values".into()) }
    }
    fn done(&self, _tensor: usize) {}
    fn paths(&self) -> Vec<PathBuf> {
        vec!["a".into(), "b".into()]
    }
    fn file_bytes(&self) -> u64 {
        7
    }
    fn sample(&self, take: &mut dyn FnMut(&[u8])) {
        take(b"weights");
    }
}

#[test]
fn data_may_have_another_source() {
    let mut plan = GgufWriter::new();
    plan.set("key", 1u32).unwrap();
    for (name, format, elements) in [("a", Format::F32, 1), ("b", Format::AFFINE4_64, 64), ("c", Format::F32, 1)] {
        plan.tensor(name, format, &[elements]).unwrap();
    }
    let refused = plan.clone().begin(Vec::new()).err();
    assert!(matches!(refused, Some(WriteError::NoNumber { name, format: Format::AFFINE4_64 }) if name == "b"));
    let file = plan.clone().with_source(Arc::new(Three));
    let [a, b, c] = file.tensors() else { panic!("three tensors") };
    assert_eq!([a, b, c].map(|tensor| file.is_made(tensor)), [false, true, true]);
    assert_eq!((file.data(a), file.data(b)), (&[1; 4][..], &[][..]));
    assert_eq!(file.load(a).unwrap().as_slice(), [1; 4]);
    assert_eq!(file.load(b).unwrap().as_slice(), [2; 36]);
    let error = file.load(c).unwrap_err();
    assert!(matches!(&error, GgufError::Make { tensor, .. } if tensor == "c"));
    assert_eq!(error.to_string(), "tensor `c`: no values");
    assert_eq!((file.is_gguf(), file.parts(), file.file_bytes()), (false, 2, 7));
    assert_eq!(file.metadata().required::<u32>("key").unwrap(), 1);
    plan.set("key2", 1u32).unwrap();
    assert_ne!(file.fingerprint(), plan.with_source(Arc::new(Three)).fingerprint());
}

fn metadata(pairs: Vec<(&str, Value)>) -> Metadata {
    let mut plan = GgufWriter::new();
    for (key, value) in pairs {
        plan.set(key, value).unwrap();
    }
    let bytes = plan.begin(Vec::new()).unwrap().finish().unwrap();
    GgufFile::from_bytes(bytes).unwrap().metadata().clone()
}

#[test]
fn getters_convert_and_explain() {
    let m = metadata(vec![
        ("i8", 7i8.into()),
        ("u64", u64::MAX.into()),
        ("neg", (-1i32).into()),
        ("f32", 0.5f32.into()),
        ("f64", 1e39f64.into()),
        ("text", "x".into()),
        ("strings", vec!["x", "y"].into()),
        ("floats", vec![1.0f32].into()),
        ("ints", vec![1i64, -1].into()),
        ("empty", Vec::<i32>::new().into()),
        ("flag", true.into()),
    ]);
    assert_eq!(m.required::<u32>("i8"), Ok(7));
    assert_eq!(m.required::<usize>("i8"), Ok(7));
    assert_eq!(m.required::<u64>("u64"), Ok(u64::MAX));
    assert_eq!(m.required::<f32>("f32"), Ok(0.5));
    assert_eq!(m.required::<f64>("f32"), Ok(0.5));
    assert_eq!(m.required::<&str>("text"), Ok("x"));
    assert_eq!(m.required::<bool>("flag"), Ok(true));
    assert_eq!(m.required::<&[String]>("strings").unwrap(), ["x", "y"]);
    assert_eq!(m.required::<&[f32]>("floats").unwrap(), [1.0]);
    assert_eq!(m.required::<Vec<i32>>("ints").unwrap(), [1, -1]);
    assert_eq!(m.required::<&[f32]>("empty").unwrap(), [0.0f32; 0]);
    assert_eq!(m.optional::<u32>("absent"), Ok(None));

    let missing = MetadataError::Missing { key: "absent".into(), expected: "an integer from 0 to 4294967295" };
    assert_eq!(m.required::<u32>("absent"), Err(missing));
    // The first value is after the header, the key's length and its name.
    let text = m.required::<f32>("i8").unwrap_err().to_string();
    assert_eq!(text, "key `i8` (byte 34) has the type int8; expected: a float that 32 bits hold");
    let range = |e: Result<(), MetadataError>| match e {
        Err(MetadataError::Range { key, found, .. }) => format!("{key}: {found}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(range(m.required::<u32>("u64").map(drop)), format!("u64: {}", u64::MAX));
    assert_eq!(range(m.required::<u32>("neg").map(drop)), "neg: -1");
    let text = m.required::<usize>("neg").unwrap_err().to_string();
    assert!(text.ends_with("): -1 is out of range; expected: an integer of at least 0"), "{text}");
    assert_eq!(range(m.required::<Vec<u32>>("ints").map(drop)), "ints: -1 (element 1)");
    assert!(matches!(m.required::<f32>("f64"), Err(MetadataError::Range { .. })));
    for error in [
        m.required::<u32>("text").map(drop),
        m.required::<u32>("flag").map(drop),
        m.required::<u32>("f32").map(drop),
        m.required::<bool>("i8").map(drop),
        m.required::<&str>("strings").map(drop),
        m.required::<&[String]>("text").map(drop),
        m.required::<&[String]>("ints").map(drop),
        m.required::<&[f32]>("ints").map(drop),
        m.required::<Vec<u32>>("floats").map(drop),
    ] {
        assert!(matches!(error, Err(MetadataError::Type { .. })), "{error:?}");
    }
}

#[test]
fn files_appear_whole_or_not_at_all() {
    let folder = std::env::temp_dir().join(format!("gristmill-gguf-{}-atomic", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("m.gguf");
    let entries = || fs::read_dir(&folder).unwrap().count();

    write_atomically::<WriteError>(&path, |out| {
        assert!(!path.exists());
        Ok(out.write_all(b"first")?)
    })
    .unwrap();
    assert_eq!((fs::read(&path).unwrap().as_slice(), entries()), (&b"first"[..], 1));

    let failed = write_atomically::<WriteError>(&path, |out| {
        out.write_all(b"second")?;
        Err(WriteError::NoTensor)
    });
    assert!(matches!(failed, Err(WriteError::NoTensor)));
    assert_eq!((fs::read(&path).unwrap().as_slice(), entries()), (&b"first"[..], 1));

    let error = write_atomically::<WriteError>(&folder.join("absent/m.gguf"), |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("absent/m.gguf"), "{error}");
    // The error names the file that is in the way.
    let partial = folder.join(format!("m.gguf.{}.partial", std::process::id()));
    fs::write(&partial, "left over").unwrap();
    let error = write_atomically::<WriteError>(&path, |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains(&partial.display().to_string()), "{error}");
    assert_eq!(
        (fs::read(&partial).unwrap().as_slice(), fs::read(&path).unwrap().as_slice()),
        (&b"left over"[..], &b"first"[..])
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_model_can_have_tensors_of_another() {
    let file = |pairs: &[(&str, u32)], tensors: &[(&str, u8)]| {
        let mut plan = GgufWriter::new();
        for (key, value) in pairs {
            plan.set(key, *value).unwrap();
        }
        for (name, _) in tensors {
            plan.tensor(name, Format::F32, &[1]).unwrap();
        }
        let mut data = plan.begin(Vec::new()).unwrap();
        tensors.iter().for_each(|(name, byte)| data.write_tensor(name, &[*byte; 4]).unwrap());
        GgufFile::from_bytes(data.finish().unwrap()).unwrap()
    };
    let own = file(&[("layers", 1), ("width", 3)], &[("a", 1), ("b", 2)]);
    let other = file(&[("width", 9)], &[("b", 7), ("c", 8), ("d", 9)]);
    let pairs = [("layers".to_owned(), Value::U32(2)), ("heads".to_owned(), Value::U32(1))];
    let joined = own.with_tensors_of(&other, |name| name != "d", &pairs);
    let found: Vec<_> = joined.tensors().iter().map(|tensor| (&tensor.name[..], joined.data(tensor)[0])).collect();
    // `b` is its own.
    assert_eq!(found, [("a", 1), ("b", 2), ("c", 8)]);
    let keys = ["layers", "width", "heads"].map(|key| joined.metadata().required::<u32>(key).unwrap());
    assert_eq!((keys, joined.metadata().len()), ([2, 3, 1], 3));
    assert_eq!((joined.fingerprint(), joined.is_gguf()), (own.fingerprint(), true));
    assert_eq!(joined.file_bytes(), own.file_bytes() + other.file_bytes());
    assert_eq!(joined.load(&joined.tensors()[2]).unwrap().as_slice(), [8; 4]);
    // A folder's tensors are made.
    let mut plan = GgufWriter::new();
    plan.tensor("c", Format::F32, &[1]).unwrap();
    let made = own.with_tensors_of(&plan.with_source(Arc::new(Made)), |_| true, &[]);
    assert!(made.is_made(&made.tensors()[2]) && made.data(&made.tensors()[2]).is_empty());
    assert_eq!(made.load(&made.tensors()[2]).unwrap().as_slice(), [5; 4]);
}

/// A source that makes every tensor.
#[derive(Debug)]
struct Made;

impl TensorSource for Made {
    fn mapped(&self, _: usize) -> Option<&[u8]> {
        None
    }

    fn make(&self, _: usize) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(vec![5; 4])
    }

    fn done(&self, _: usize) {}

    fn paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn file_bytes(&self) -> u64 {
        4
    }

    fn sample(&self, _: &mut dyn FnMut(&[u8])) {}
}
