//! GGUF files: golden files of the reference implementation, round trips, hostile files, paths and parts.

mod alloc;
mod fingerprint;
mod golden;
mod hostile;
mod mutate;
mod open;
mod raw;
mod write;

use gristmill_files::gguf::{GgufFile, GgufWriter};

/// Reads every tensor's data and writes the file again (as version 3, tensors packed in order).
fn rewrite(file: &GgufFile) -> Vec<u8> {
    let alignment = u32::try_from(file.alignment()).expect("alignment fits");
    let mut plan = GgufWriter::with_alignment(alignment).expect("a power of two");
    for (key, value) in file.metadata().iter().filter(|(key, _)| *key != "general.alignment") {
        plan.set(key, value.clone()).expect("a key that was read can be written");
    }
    for tensor in file.tensors() {
        plan.tensor(&tensor.name, tensor.format, &tensor.shape).expect("a tensor that was read can be written");
    }
    let bytes = plan.file_bytes();
    let mut data = plan.begin(Vec::new()).expect("memory takes all");
    for tensor in file.tensors() {
        assert_eq!(file.data(tensor).len() as u64, tensor.bytes, "{}", tensor.name);
        assert_eq!(tensor.offset % file.alignment(), 0, "{}", tensor.name);
        data.write_tensor(&tensor.name, file.data(tensor)).expect("the size is right");
    }
    let out = data.finish().expect("all tensors are written");
    assert_eq!(out.len() as u64, bytes, "file_bytes() tells the size beforehand");
    out
}
