//! Constants of the format.

/// The first four bytes of every GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// Tensor data is aligned to this many bytes unless `general.alignment` says otherwise.
pub const DEFAULT_ALIGNMENT: u64 = 32;
/// The key that changes the alignment of tensor data.
pub const ALIGNMENT_KEY: &str = "general.alignment";
/// The most dimensions that a tensor may have.
pub const MAX_DIMS: usize = 4;
/// The deepest nesting of arrays; a flat array has depth 1. The specification sets no bound; llama.cpp writes depth 1.
pub const MAX_ARRAY_DEPTH: usize = 4;
/// The specification bounds keys at 65,535 bytes. Tensor names get the same bound when read: the specification says 64
/// bytes, but other writers do not check.
pub const MAX_NAME_BYTES: u64 = 65_535;
