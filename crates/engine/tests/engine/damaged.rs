//! A model of which one token has no finite embedding.

use gristmill_engine::gguf::GgufFile;

use super::speech::{WORDS, teach};
use super::tiny::{Random, Tiny};

/// The embedding of this token is not finite.
pub(crate) const BAD: u32 = 7;

/// Its output is a weight of its own, so other texts are not affected.
pub(crate) fn bytes() -> Vec<u8> {
    let mut tiny = Tiny::qwen3();
    teach(&mut tiny);
    let hidden = tiny.tensors[0].2[0];
    tiny.tensor("output.weight", &[hidden, WORDS]);
    let mut bytes = tiny.bytes(&mut Random::fresh());
    let file = GgufFile::from_bytes(bytes.clone()).expect("a good file");
    let table = file.tensor("token_embd.weight").expect("a table");
    let row = table.format.row_bytes(table.shape[0] as usize).expect("whole blocks");
    let at = table.offset as usize + row * BAD as usize;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes
}

/// The model in memory.
#[allow(dead_code)]
pub(crate) fn file() -> GgufFile {
    GgufFile::from_bytes(bytes()).expect("a good file")
}
