//! Errors of GGUF files, each with its place.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::MAX_ARRAY_DEPTH;
use super::tensor_type::refusal;

/// Why a GGUF file could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GgufError {
    /// There is no file at this path.
    #[error("{0}: no such file; check the path, or download the model first")]
    NotFound(PathBuf),
    /// The path is a directory.
    #[error("{path}: is a directory; {hint}")]
    Directory {
        /// The path as given.
        path: PathBuf,
        /// The contents of the directory and the remedy.
        hint: String,
    },
    /// The file at this path has no bytes.
    #[error("{0}: is empty; download it again")]
    Empty(PathBuf),
    /// The file has another known format.
    #[error("{path}: is {what}, not a GGUF file; {remedy}")]
    OtherFile {
        /// The path as given.
        path: PathBuf,
        /// The kind of the file.
        what: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// The operating system refused.
    #[error("{path}: cannot be read: {source}")]
    Io {
        /// The path as given.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file has changed since it was opened.
    #[error("{path}: {what} while it was in use; load the model again, and replace files only by renaming others")]
    Changed {
        /// The file.
        path: PathBuf,
        /// What has changed.
        what: String,
    },
    /// The data of tensors is not in GGUF files on a disk.
    #[error("the model is not in GGUF files, so its experts cannot be read while it runs; convert it to GGUF first")]
    NotOnDisk,
    /// The data of a tensor that is computed on demand cannot be computed.
    #[error("tensor {}: {source}", Name(.tensor))]
    Make {
        /// The tensor.
        tensor: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The bytes break the format. `path` is `None` for bytes in memory.
    #[error("{}{source}", path.as_ref().map(|p| format!("{}: ", p.display())).unwrap_or_default())]
    Format {
        /// The file at fault.
        path: Option<PathBuf>,
        /// The reason and its place.
        source: FormatError,
    },
    /// A metadata key that the reader itself needs is missing or has the wrong type.
    #[error("{}{source}", path.as_ref().map(|p| format!("{}: ", p.display())).unwrap_or_default())]
    Metadata {
        /// The file at fault.
        path: Option<PathBuf>,
        /// The key and what is wrong with it.
        source: MetadataError,
    },
    /// A part of a split model is missing in the folder.
    #[error("{path}: part {part} of {count} is missing; download it too, and put all parts into one folder")]
    MissingPart {
        /// Where the part was expected.
        path: PathBuf,
        /// The part's number, from 1.
        part: u16,
        /// The number of parts.
        count: u16,
    },
    /// The file is a part of a split model, but its name has no part number, so the other parts cannot be found.
    #[error(
        "{path}: is part {part} of {count} of a split model, but is not named `…-{part:05}-of-{count:05}.gguf`; \
         give the parts their names back"
    )]
    PartName {
        /// The path as given.
        path: PathBuf,
        /// The part's number in its metadata, from 1.
        part: u32,
        /// The number of parts in its metadata.
        count: u16,
    },
    /// Parts of a split model are in one file, one after another, but not all of them or not whole.
    #[error(
        "{path}: contains parts of a split model one after another (found {found}, expected {count} whole parts); keep each \
         part as a file of its own, or merge them with `llama-gguf-split`"
    )]
    JoinedParts {
        /// The path as given.
        path: PathBuf,
        /// The number of whole parts.
        found: usize,
        /// The number of parts in its metadata.
        count: u16,
    },
    /// Bytes in memory are only one of this number of parts of a split model.
    #[error("the bytes are one part of a model split into {0}; pass a whole file, or open the parts by path")]
    PartInMemory(u16),
    /// Two parts of a split model contain a tensor of the same name.
    #[error("{path}: tensor {} is already in an earlier part; the parts are not of one model", Name(.tensor))]
    PartDuplicate {
        /// The later part.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// The parts of a split model contradict each other.
    #[error("{path}: `{key}` is {found}, but {expected} was expected; the parts are not of one model")]
    PartMismatch {
        /// The part with the wrong value.
        path: PathBuf,
        /// The key that disagrees.
        key: &'static str,
        /// Its value.
        found: u64,
        /// The value that agrees with the other parts.
        expected: u64,
    },
}

/// A violation of the format, with its place.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{at} (byte {offset}): {kind}")]
#[non_exhaustive]
pub struct FormatError {
    /// The part of the file, with the name of the key or tensor.
    pub at: Place,
    /// The byte offset of the invalid field in the file.
    pub offset: u64,
    /// The kind of the violation.
    pub kind: FormatErrorKind,
}

/// A part of a GGUF file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Magic, version and counts.
    Header,
    /// A metadata key whose name could not be read; counted from 0.
    KeyNumber(u64),
    /// The metadata value of this key.
    Key(String),
    /// A tensor whose name could not be read; counted from 0.
    TensorNumber(u64),
    /// The record or data of this tensor.
    Tensor(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => f.write_str("GGUF header"),
            Place::KeyNumber(n) => write!(f, "metadata key number {n}"),
            Place::Key(name) => write!(f, "key {}", Name(name)),
            Place::TensorNumber(n) => write!(f, "tensor number {n}"),
            Place::Tensor(name) => write!(f, "tensor {}", Name(name)),
        }
    }
}

/// Shows an untrusted name: in backquotes, escaped, truncated to 100 characters.
pub struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 100;
        f.write_str("`")?;
        for c in self.0.chars().take(SHOWN) {
            match c {
                '`' => f.write_str("\\`")?,
                c if c.is_control() => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str(if self.0.chars().nth(SHOWN).is_some() { "…`" } else { "`" })
    }
}

/// The kinds of violations of the format.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// The first four bytes are not `GGUF`.
    #[error("begins with the bytes {0:02x?} instead of `GGUF`; this is not a GGUF file")]
    Magic([u8; 4]),
    /// The file is for big-endian machines.
    #[error(
        "the file is big-endian; convert it to little-endian, for example with `gguf-convert-endian` of PyPI's gguf"
    )]
    BigEndian,
    /// The version is neither 2 nor 3.
    #[error("GGUF version {0} is not supported (2 and 3 are); convert the model again")]
    Version(u32),
    /// The file ends inside a field.
    #[error(
        "the file ends here: {needed} bytes needed, {remaining} remain; the download is incomplete, download it again"
    )]
    Truncated {
        /// The bytes that the field needs.
        needed: u64,
        /// The bytes left in the file.
        remaining: u64,
    },
    /// A count exceeds what the rest of the file can contain.
    #[error("a count of {count} is impossible: the remaining {remaining} bytes contain at most {most}")]
    Count {
        /// The count in the file.
        count: u64,
        /// The bytes left in the file.
        remaining: u64,
        /// The maximum number of entries in these bytes.
        most: u64,
    },
    /// A string is not UTF-8.
    #[error("the string is not valid UTF-8")]
    Utf8,
    /// A key or tensor name is too long.
    #[error("a name of {bytes} bytes exceeds the limit of {limit}")]
    NameLength {
        /// The length in the file.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A metadata value has a type that the specification does not define.
    #[error("unknown metadata value type {0}")]
    ValueType(u32),
    /// A boolean is neither 0 nor 1.
    #[error("a boolean must be 0 or 1, found {0}")]
    Bool(u8),
    /// Arrays nest deeper than [`MAX_ARRAY_DEPTH`].
    #[error("arrays nest deeper than {MAX_ARRAY_DEPTH}")]
    ArrayDepth,
    /// The same key or tensor name was used before, at this byte offset.
    #[error("the name is already used at byte {0}")]
    Duplicate(u64),
    /// `general.alignment` is not a power of two, or not an integer in range.
    #[error("the alignment must be an integer power of two, found {0}")]
    Alignment(String),
    /// A tensor has no dimension, or more than four.
    #[error("{0} dimensions; a tensor has 1 to 4")]
    Dims(u32),
    /// This dimension, counted from 0 and innermost first, is zero.
    #[error("dimension {0} is zero")]
    ZeroDim(usize),
    /// gristmill cannot read the tensor type.
    #[error("tensor type {}; use a quantisation that gristmill lists as supported", refusal(*.0))]
    TensorType(u32),
    /// The number of elements or bytes does not fit 64 bits.
    #[error("the shape {0:?} overflows 64 bits")]
    ShapeOverflow(Vec<u64>),
    /// A row does not consist of whole blocks.
    #[error("a row of {row} elements is not a multiple of the {block} elements of a {format} block")]
    PartialBlock {
        /// The innermost dimension.
        row: u64,
        /// Elements per block.
        block: u64,
        /// The format's name.
        format: &'static str,
    },
    /// The data offset is not a multiple of the alignment.
    #[error("the data offset {offset} is not a multiple of the alignment {alignment}")]
    Misaligned {
        /// The offset in the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// The data offset overflows 64 bits.
    #[error("the data offset {0} overflows 64 bits")]
    OffsetOverflow(u64),
    /// The data ends after the end of the file.
    #[error(
        "{} bytes are missing: the file has {len}, but its data ends at byte {end}; the download is incomplete or \
         damaged, download it again", .end.saturating_sub(*.len)
    )]
    OutOfBounds {
        /// One past the last byte of the data of all tensors.
        end: u64,
        /// The file's length.
        len: u64,
    },
    /// The tensor's data overlaps the data of this tensor, which starts earlier.
    #[error("the data overlaps the data of tensor {}", Name(.0))]
    Overlap(String),
}

/// A metadata value that a caller requested is missing or unfit.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The key is not in the file.
    #[error("key {} is missing; expected: {expected}", Name(.key))]
    Missing {
        /// The key.
        key: String,
        /// The type that was requested, in words.
        expected: &'static str,
    },
    /// The value has another type.
    #[error("key {} (byte {offset}) has the type {found}; expected: {expected}", Name(.key))]
    Type {
        /// The key.
        key: String,
        /// The byte offset of the value in its file.
        offset: u64,
        /// The type that was requested, in words.
        expected: &'static str,
        /// The type in the file.
        found: String,
    },
    /// The value is a number that the type requested cannot hold.
    #[error("key {} (byte {offset}): {found} is out of range; expected: {expected}", Name(.key))]
    Range {
        /// The key.
        key: String,
        /// The byte offset of the value in its file.
        offset: u64,
        /// The type that was requested, in words.
        expected: &'static str,
        /// The value in the file.
        found: String,
    },
}
