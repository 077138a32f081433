//! Fingerprints: what they see of a file, and what they do not.

use gristmill_files::gguf::GgufFile;

use crate::golden::golden;
use crate::raw::Raw;

/// Bytes of the only tensor: three times what is read at each end.
const BYTES: usize = 3 * 4096;

/// A file with one tensor of this name, and the offset of its data.
fn file(name: &str) -> (Vec<u8>, usize) {
    let header = Raw::header(1, 1).string("key").u32(8).string("value").tensor(name, &[BYTES as u64 / 4], 0, 0);
    let data = header.0.len().next_multiple_of(32);
    (header.data(BYTES).0, data)
}

fn fingerprint(bytes: &[u8]) -> String {
    GgufFile::from_bytes(bytes).expect("a good file").fingerprint()
}

#[test]
fn header_and_ends_of_tensors_count() {
    let (bytes, data) = file("a");
    let first = fingerprint(&bytes);
    assert!(first.len() == 64 && first.bytes().all(|digit| digit.is_ascii_hexdigit()), "{first}");
    assert_eq!(fingerprint(&bytes), first);
    assert_ne!(fingerprint(&file("b").0), first);
    let changed = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        fingerprint(&bytes)
    };
    let value = bytes.windows(5).position(|window| window == b"value").expect("it is there");
    for at in [value, data, data + 4095, data + BYTES - 4096, data + BYTES - 1] {
        assert_ne!(changed(at), first, "byte {at}");
    }
    // The middle of a large tensor is not read.
    assert_eq!(changed(data + BYTES / 2), first);
    // Nor is what no tensor has.
    assert_eq!(fingerprint(&[&bytes[..], b"more"].concat()), first);
}

/// All parts count, whichever is named.
#[test]
fn of_a_split_model() {
    let part =
        |number: usize| GgufFile::open(golden(&format!("split-0000{number}-of-00003.gguf"))).expect("a good file");
    let first = part(1).fingerprint();
    assert_eq!(part(2).fingerprint(), first);
    assert_eq!(part(3).fingerprint(), first);
}
