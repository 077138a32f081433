//! Any bytes as a GGUF file: no panic, and what reads can be written and read again, to the same bytes. Its beginning shows its
//! kind.
#![no_main]

use std::convert::Infallible;

use gristmill_files::gguf::{FileKind, GgufFile, GgufWriter, WriteError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let beginning = |length: u64| Ok::<_, Infallible>(bytes[..bytes.len().min(length as usize)].to_vec());
    let Ok(kind) = FileKind::of_beginning("m-draft.gguf", bytes.len() as u64, beginning);
    match GgufFile::from_bytes(bytes) {
        Ok(file) => {
            assert!(kind.is_some(), "a whole file has a kind");
            if let Some(once) = rewrite(&file) {
                let again = GgufFile::from_bytes(once.as_slice()).expect("a written file can be read");
                assert!(rewrite(&again).expect("and written again") == once);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

/// `None` for what only the reader accepts: empty names, tensor names too long for llama.cpp, and rows that start with a
/// scale.
fn rewrite(file: &GgufFile) -> Option<Vec<u8>> {
    let alignment = u32::try_from(file.alignment()).expect("alignment fits");
    if alignment > 1 << 16 {
        return None; // padding alone would fill the memory
    }
    let mut plan = GgufWriter::with_alignment(alignment).expect("a power of two");
    for (key, value) in file.metadata().iter().filter(|(key, _)| *key != "general.alignment") {
        unless_name(plan.set(key, value.clone()))?;
    }
    if file.tensors().iter().any(|tensor| tensor.rows.is_some()) {
        return None;
    }
    for tensor in file.tensors() {
        unless_name(plan.tensor(&tensor.name, tensor.format, &tensor.shape))?;
    }
    let mut data = plan.begin(Vec::new()).expect("memory takes all");
    for tensor in file.tensors() {
        data.write_tensor(&tensor.name, file.data(tensor)).expect("the size is right");
    }
    Some(data.finish().expect("all tensors are written"))
}

fn unless_name<T>(result: Result<T, WriteError>) -> Option<()> {
    match result {
        Ok(_) => Some(()),
        Err(WriteError::NameLength { .. }) => None,
        Err(other) => panic!("what was read can be written: {other}"),
    }
}
