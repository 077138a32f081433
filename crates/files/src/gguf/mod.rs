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
mod layout;
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
pub use error::{FormatError, FormatErrorKind, GgufError, MetadataError, Name, Place};
pub use file::{GgufFile, TensorInfo};
pub use kind::FileKind;
pub use layout::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_ARRAY_DEPTH, MAX_DIMS, MAX_NAME_BYTES};
pub use made::TensorSource;
pub use metadata::{FromValue, Metadata, Unfit};
pub use reader::FileReader;
pub use sniff::{file_names, is_lfs_pointer};
pub use source::Bytes;
pub use value::{Array, Value, ValueType};
pub use writer::{DataWriter, GgufWriter, WriteError};
