//! GGUF files: reading versions 2 and 3 without copying tensor data, and writing version 3.
//!
//! The format is specified at <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. A file is a header, the
//! metadata (typed key-value pairs), one record per tensor, padding, and the tensor data:
//!
//! ```text
//! "GGUF" version:u32 tensors:u64 pairs:u64 | key type value … | name dims shape type offset … | pad | data
//! ```
//!
//! - [`GgufFile`] opens a path (all parts of a split model), or reads bytes already in memory.
//! - [`GgufWriter::with_source`] makes a model whose tensors' data is not in a GGUF file.
//! - [`Metadata`] holds the key-value pairs; its getters name the key, the expected and the found type.
//! - [`FileKind`] tells language models from the files next to them.
//! - [`GgufWriter`] writes a file from front to back without holding tensor data.
//!
//! Files are untrusted. Every count is checked against the bytes that remain before anything is allocated, so reading
//! takes time and memory proportional to the header's own size; every [`FormatError`] names the key or tensor and the
//! byte offset.

mod atomic;
mod codec;
mod cursor;
mod error;
mod file;
mod fingerprint;
mod joined;
mod kind;
mod made;
mod metadata;
mod parse;
mod reader;
mod sniff;
mod source;
mod split;
mod tensor_type;
mod value;
mod writer;

pub use atomic::{NewFile, write_atomically};
pub use error::{FormatError, FormatErrorKind, GgufError, Name, Place};
pub use file::{GgufFile, TensorInfo};
pub use kind::FileKind;
pub use made::TensorSource;
pub use metadata::{FromValue, Metadata, MetadataError, Unfit};
pub use reader::FileReader;
pub use sniff::{file_names, is_lfs_pointer};
pub use source::Bytes;
pub use value::{Array, Value, ValueType};
pub use writer::{DataWriter, GgufWriter, WriteError};

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
