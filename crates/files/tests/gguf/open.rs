//! Paths that people pass by mistake, and split models that are not whole.

use std::fs;
use std::path::{Path, PathBuf};

use gristmill_files::gguf::{GgufError, GgufFile, MetadataError};

use crate::golden::golden;
use crate::raw::Raw;

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gristmill-gguf-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The error's text, which must start with the path.
fn text(path: &Path) -> String {
    let error = GgufFile::open(path).unwrap_err().to_string();
    let rest = error.strip_prefix(&path.display().to_string());
    rest.unwrap_or_else(|| panic!("`{error}` does not begin with {}", path.display())).to_owned()
}

#[test]
fn other_files_are_named() {
    let folder = Folder::new("other");
    let safetensors = [&40u64.to_le_bytes()[..], b"{\"__metadata__\":{}}                           "].concat();
    let cases: [(&str, &[u8], &str); 10] = [
        ("model.safetensors", &safetensors, "is a safetensors file, not a GGUF file"),
        ("lfs.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "`git lfs pull`"),
        ("page.gguf", b"\n<!DOCTYPE html><html></html>", "is a web page"),
        ("page2.gguf", b"<HTML>", "is a web page"),
        ("index.json", b"{\"weight_map\": {}}", "is a JSON file"),
        ("model.bin", b"PK\x03\x04 and more", "PyTorch checkpoint"),
        ("old.bin", b"tjgg\x03\0\0\0", "before GGUF"),
        ("empty.gguf", b"", "is empty"),
        ("noise.gguf", b"\x01\x02\x03\x04\x05", "GGUF header (byte 0): begins with the bytes [01, 02, 03, 04]"),
        ("short.gguf", b"GG", "GGUF header (byte 0): the file ends here: 4 bytes needed, 2 remain"),
    ];
    for (name, bytes, expected) in cases {
        let text = text(&folder.file(name, bytes));
        assert!(text.contains(expected), "{name}: {text}");
    }
}

#[test]
fn a_gguf_file_is_never_taken_for_another() {
    // Magic and version read as a length of 14 GB, a count of 123 as `{`.
    let bytes = Raw::header(u64::from(b'{'), 0).0;
    let error = GgufFile::open(Folder::new("magic").file("x.gguf", bytes)).unwrap_err();
    assert!(matches!(error, GgufError::Format { .. }), "{error}");
}

#[test]
fn directories_say_what_is_in_them() {
    let folder = Folder::new("directory");
    assert!(text(&folder.0).contains("is a directory; name a GGUF file"));
    folder.file("model.safetensors", "");
    assert!(text(&folder.0).contains("it contains safetensors"));
    folder.file("config.json", "{}");
    let path = folder.0.display();
    let name = folder.0.file_name().unwrap().to_str().unwrap();
    assert!(text(&folder.0).contains(&format!("`gristmill convert {path} -o {name}.gguf`")), "{}", text(&folder.0));
    let gguf = folder.file("model.gguf", "");
    assert!(text(&folder.0).contains(&format!("for example {}", gguf.display())));
    assert!(text(&folder.0.join("absent.gguf")).contains("no such file"));
}

#[test]
#[cfg(unix)]
fn a_device_is_refused_at_once() {
    assert!(text(Path::new("/dev/zero")).contains("device or pipe"));
}

/// The three golden parts, copied.
fn parts(name: &str) -> (Folder, [PathBuf; 3]) {
    let folder = Folder::new(name);
    let paths = [1, 2, 3].map(|i| {
        let name = format!("split-0000{i}-of-00003.gguf");
        folder.file(&name, fs::read(golden(&name)).unwrap())
    });
    (folder, paths)
}

#[test]
fn a_missing_part_is_named() {
    let (_folder, paths) = parts("missing");
    fs::remove_file(&paths[1]).unwrap();
    for open in [&paths[0], &paths[2]] {
        let error = GgufFile::open(open).unwrap_err();
        let GgufError::MissingPart { path, part: 2, count: 3 } = &error else { panic!("{error:?}") };
        assert_eq!(path, &paths[1]);
    }
}

#[test]
fn parts_must_keep_their_names() {
    let (folder, paths) = parts("renamed");
    let renamed = folder.0.join("model.gguf");
    fs::rename(&paths[1], &renamed).unwrap();
    let error = GgufFile::open(&renamed).unwrap_err();
    assert!(matches!(&error, GgufError::PartName { part: 2, count: 3, .. }), "{error:?}");
    assert!(error.to_string().contains("`…-00002-of-00003.gguf`"), "{error}");
}

/// `cat` of all parts is the model; anything else says what to do.
#[test]
fn parts_that_cat_joined_are_one_model() {
    let (folder, paths) = parts("joined");
    let whole = GgufFile::open(&paths[0]).unwrap();
    let bytes = |path: &PathBuf| {
        let mut bytes = fs::read(path).unwrap();
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes
    };
    let all: Vec<Vec<u8>> = paths.iter().map(bytes).collect();
    let joined = GgufFile::open(folder.file("model.gguf", all.concat())).unwrap();
    assert_eq!(joined.tensors().len(), whole.tensors().len());
    for tensor in whole.tensors() {
        let same = joined.tensor(&tensor.name).expect(&tensor.name);
        assert_eq!((joined.data(same), &same.shape), (whole.data(tensor), &tensor.shape), "{}", tensor.name);
    }
    for (name, parts) in [("two", &[0, 1][..]), ("order", &[0, 2, 1]), ("twice", &[0, 1, 1])] {
        let path = folder.file(&format!("{name}.gguf"), parts.iter().flat_map(|&i| all[i].clone()).collect::<Vec<_>>());
        let error = GgufFile::open(path).unwrap_err();
        assert!(matches!(error, GgufError::JoinedParts { count: 3, .. }), "{name}: {error:?}");
        assert!(error.to_string().contains("llama-gguf-split"), "{error}");
    }
}

#[test]
fn parts_must_agree() {
    // Part 3 in the place of part 2.
    let (_folder, paths) = parts("order");
    fs::copy(&paths[2], &paths[1]).unwrap();
    let error = GgufFile::open(&paths[0]).unwrap_err();
    let GgufError::PartMismatch { path, key: "split.no", found: 2, expected: 1 } = &error else { panic!("{error:?}") };
    assert_eq!(path, &paths[1]);

    // A part of another model: another total.
    let (_folder, paths) = parts("total");
    fs::write(&paths[1], part(1, 3, Some(9), "blk.2.weight")).unwrap();
    let error = GgufFile::open(&paths[0]).unwrap_err();
    let expected = 4; // this part holds one tensor less
    let GgufError::PartMismatch { key: "split.tensors.count", found: 5, expected: e, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*e, expected);

    // The same tensor twice: blk.0 is in part 1.
    let (folder, _) = parts("twice");
    let first = folder.file("m-00001-of-00002.gguf", part(0, 2, Some(2), "blk.0.weight"));
    let second = folder.file("m-00002-of-00002.gguf", part(1, 2, Some(2), "blk.0.weight"));
    let error = GgufFile::open(first).unwrap_err();
    let GgufError::PartDuplicate { path, tensor } = &error else { panic!("{error:?}") };
    assert_eq!((path, tensor.as_str()), (&second, "blk.0.weight"));

    // No total at all.
    folder.file("m-00001-of-00002.gguf", part(0, 2, None, "a"));
    folder.file("m-00002-of-00002.gguf", part(1, 2, None, "b"));
    let error = GgufFile::open(&second).unwrap_err();
    let GgufError::Metadata { source: MetadataError::Missing { key, .. }, .. } = &error else { panic!("{error:?}") };
    assert_eq!(key, "split.tensors.count");
}

/// A part with one tensor of one element.
fn part(no: u32, count: u32, total: Option<u32>, tensor: &str) -> Vec<u8> {
    let mut raw = Raw::header(1, if total.is_some() { 3 } else { 2 });
    for (key, value) in [("split.no", Some(no)), ("split.count", Some(count)), ("split.tensors.count", total)] {
        if let Some(value) = value {
            raw = raw.string(key).u32(4).u32(value);
        }
    }
    raw.tensor(tensor, &[1], 0, 0).data(32).0
}

#[test]
fn a_part_in_memory_is_refused() {
    let error = GgufFile::from_bytes(fs::read(golden("split-00001-of-00003.gguf")).unwrap()).unwrap_err();
    assert!(matches!(error, GgufError::PartInMemory(3)), "{error:?}");
}

#[test]
fn a_file_merely_named_like_a_part_opens() {
    let (folder, _) = parts("named");
    let path = folder.file("m-00002-of-00007.gguf", fs::read(golden("aligned.gguf")).unwrap());
    assert_eq!(GgufFile::open(path).unwrap().parts(), 1);
}

#[test]
fn send_and_sync() {
    fn check<T: Send + Sync + Clone + 'static>() {}
    check::<GgufFile>();
}
