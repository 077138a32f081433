//! Writes GGUF version 3 from front to back: metadata and tensor records first, then tensor data in order.
//!
//! ```
//! use gristmill_files::gguf::{GgufFile, GgufWriter};
//! use gristmill_kernels::format::Format;
//!
//! let mut plan = GgufWriter::new();
//! plan.set("general.architecture", "llama")?;
//! plan.tensor("output_norm.weight", Format::F32, &[2])?;
//! let mut data = plan.begin(Vec::new())?;
//! data.write_tensor("output_norm.weight", bytemuck::cast_slice(&[1.0f32, 2.0]))?;
//! let file = GgufFile::from_bytes(data.finish()?)?;
//! assert_eq!(file.tensors()[0].shape, [2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_kernels::format::Format;
use thiserror::Error;

use super::codec::Codec;
use super::error::{FormatErrorKind, Name};
use super::file::{GgufFile, TensorInfo};
use super::made::TensorSource;
use super::metadata::Metadata;
use super::parse::byte_count;
use super::value::Value;
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_ARRAY_DEPTH, MAX_DIMS, MAX_NAME_BYTES};

/// The version that is written.
const VERSION: u32 = 3;
/// llama.cpp reads tensor names of at most this many bytes (`GGML_MAX_NAME` less the final zero).
const MAX_TENSOR_NAME_BYTES: usize = 63;

/// Why a file could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The operating system refused.
    #[error("cannot write: {}{}", .0, remedy(.0))]
    Io(io::Error),
    /// The operating system refused to create, write or rename a file.
    #[error("{path}: cannot write: {source}{}", remedy(.source))]
    Path {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The temporary file of an earlier process, which was killed, has the name that this one needs.
    #[error("{}: a partial file of another run is in the way; remove it", .0.display())]
    InTheWay(PathBuf),
    /// The key or tensor name already exists.
    #[error("{} already exists", Name(.0))]
    Duplicate(String),
    /// The key or tensor name is empty or too long.
    #[error("name {} has {bytes} bytes; 1 to {limit} are allowed", Name(.name))]
    NameLength {
        /// The name.
        name: String,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Only [`GgufWriter::with_alignment`] sets the alignment.
    #[error("`{ALIGNMENT_KEY}` is written by the writer itself; call `with_alignment`")]
    AlignmentKey,
    /// The alignment is not a power of two.
    #[error("the alignment must be a power of two, found {0}")]
    Alignment(u32),
    /// An array nests deeper than readers accept.
    #[error("key {}: arrays nest deeper than {MAX_ARRAY_DEPTH}", Name(.0))]
    ArrayDepth(String),
    /// The shape is not one that a GGUF tensor can have.
    #[error("tensor {}: {reason}", Name(.name))]
    Shape {
        /// The tensor.
        name: String,
        /// Why its shape is refused.
        reason: FormatErrorKind,
    },
    /// GGUF files are not written with this format: they have no number for it, or gristmill only reads it.
    #[error("tensor {}: gristmill writes no GGUF files with the format {format}; choose another format", Name(.name))]
    NoNumber {
        /// The tensor.
        name: String,
        /// Its format.
        format: Format,
    },
    /// The data is for another tensor than the next in order.
    #[error("the data is for tensor {}, but {} is next", Name(.given), Name(.next))]
    Order {
        /// The tensor of the data.
        given: String,
        /// The next tensor.
        next: String,
    },
    /// There is data after the last tensor.
    #[error("there is data after the last tensor")]
    NoTensor,
    /// A tensor has the wrong number of bytes.
    #[error("tensor {}: the data has {given} bytes, its shape and format need {expected}", Name(.name))]
    ByteCount {
        /// The tensor.
        name: String,
        /// The bytes so far.
        given: u64,
        /// The bytes needed.
        expected: u64,
    },
}

/// Also recovers an error that passed through [`io::Write`], such as an error of a [`NewFile`](super::NewFile).
impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        error.downcast().unwrap_or_else(WriteError::Io)
    }
}

/// The remedy for the operating system's reason, as far as it is plain.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space, or name another place",
        io::ErrorKind::FileTooLarge => "; the file system or a limit allows no larger file, name another place",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "; name a place that you may write to",
        io::ErrorKind::NotFound => "; name a folder that exists",
        _ => "",
    }
}

/// The plan of a file: its metadata and tensor records. [`begin`](Self::begin) writes them and takes the data.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    alignment: u32,
    pairs: Vec<(String, Value)>,
    /// Offsets count from the start of the data section.
    tensors: Vec<TensorInfo>,
    names: HashSet<String>,
    keys: HashSet<String>,
    /// The size of the data section so far, the last tensor padded.
    data_bytes: u64,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// An empty plan with an alignment of 32 bytes.
    pub fn new() -> GgufWriter {
        GgufWriter {
            alignment: DEFAULT_ALIGNMENT as u32,
            pairs: Vec::new(),
            tensors: Vec::new(),
            names: HashSet::new(),
            keys: HashSet::new(),
            data_bytes: 0,
        }
    }

    /// An empty plan with another alignment, which the file states as `general.alignment`, its first key.
    ///
    /// # Errors
    /// [`WriteError::Alignment`] if it is not a power of two.
    pub fn with_alignment(alignment: u32) -> Result<GgufWriter, WriteError> {
        if !alignment.is_power_of_two() {
            return Err(WriteError::Alignment(alignment));
        }
        let pairs = vec![(ALIGNMENT_KEY.to_owned(), Value::U32(alignment))];
        Ok(GgufWriter { alignment, pairs, ..Self::new() })
    }

    /// Adds a key. Keys are written in this order.
    ///
    /// # Errors
    /// If the key is already there, empty or longer than 65,535 bytes, is `general.alignment`, or the value nests too
    /// deep.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut Self, WriteError> {
        check_name(key, MAX_NAME_BYTES as usize)?;
        if key == ALIGNMENT_KEY {
            return Err(WriteError::AlignmentKey);
        }
        let value = value.into();
        if matches!(&value, Value::Array(a) if a.depth() > MAX_ARRAY_DEPTH) {
            return Err(WriteError::ArrayDepth(key.to_owned()));
        }
        if !self.keys.insert(key.to_owned()) {
            return Err(WriteError::Duplicate(key.to_owned()));
        }
        self.pairs.push((key.to_owned(), value));
        Ok(self)
    }

    /// Adds a tensor. `shape` is in GGUF order, the innermost dimension first. Data is written in this order.
    ///
    /// # Errors
    /// If the name already exists, is empty or longer than 63 bytes (llama.cpp's limit), or the shape does not have 1
    /// to 4 dimensions, none zero, with whole blocks in a row and a size that fits 64 bits.
    pub fn tensor(&mut self, name: &str, format: Format, shape: &[u64]) -> Result<&mut Self, WriteError> {
        check_name(name, MAX_TENSOR_NAME_BYTES)?;
        let wrong = |reason| WriteError::Shape { name: name.to_owned(), reason };
        if shape.is_empty() || shape.len() > MAX_DIMS {
            return Err(wrong(FormatErrorKind::Dims(u32::try_from(shape.len()).unwrap_or(u32::MAX))));
        }
        if let Some(dim) = shape.iter().position(|&n| n == 0) {
            return Err(wrong(FormatErrorKind::ZeroDim(dim)));
        }
        let bytes = byte_count(format, None, shape).map_err(wrong)?;
        let offset = self.data_bytes;
        let end = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(self.alignment.into()));
        let end = end.ok_or_else(|| wrong(FormatErrorKind::ShapeOverflow(shape.to_vec())))?;
        if !self.names.insert(name.to_owned()) {
            return Err(WriteError::Duplicate(name.to_owned()));
        }
        self.data_bytes = end;
        let shape = shape.to_vec();
        self.tensors.push(TensorInfo { name: name.to_owned(), format, rows: None, shape, offset, bytes, part: 0 });
        Ok(self)
    }

    /// The size of the finished file in bytes.
    pub fn file_bytes(&self) -> u64 {
        (self.header().len() as u64).saturating_add(self.data_bytes)
    }

    /// The planned file as it will be read, without data, to be checked before it is written.
    pub fn preview(&self) -> GgufFile {
        GgufFile::without_data(self.metadata(), self.tensors.clone(), Vec::new(), None)
    }

    /// The planned file as an open model, with the data of its tensors from `source`, which counts them in the order in
    /// which they were added. Nothing is written, so tensors may have any format.
    pub fn with_source(self, source: Arc<dyn TensorSource>) -> GgufFile {
        let mut header = self.header();
        // The header has no number for some formats.
        self.tensors.iter().for_each(|tensor| header.extend(tensor.format.name().bytes()));
        GgufFile::without_data(self.metadata(), self.tensors, header, Some(source))
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::default();
        for (key, value) in &self.pairs {
            metadata.push(key.clone(), value.clone(), 0);
        }
        metadata
    }

    /// Everything before the data section, padded.
    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        VERSION.write(&mut out);
        (self.tensors.len() as u64).write(&mut out);
        (self.pairs.len() as u64).write(&mut out);
        for (key, value) in &self.pairs {
            key.write(&mut out);
            value.value_type().id().write(&mut out);
            value.write(&mut out);
        }
        for tensor in &self.tensors {
            tensor.name.write(&mut out);
            (tensor.shape.len() as u32).write(&mut out);
            tensor.shape.iter().for_each(|dim| dim.write(&mut out));
            // `begin` refuses a format without a number.
            tensor.format.ggml_type().unwrap_or(u32::MAX).write(&mut out);
            tensor.offset.write(&mut out);
        }
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out
    }

    /// Writes everything before the tensor data. `out` should be buffered.
    ///
    /// # Errors
    /// [`WriteError::Io`]; [`WriteError::NoNumber`] for a tensor in a format that GGUF files do not have.
    pub fn begin<W: Write>(self, mut out: W) -> Result<DataWriter<W>, WriteError> {
        if let Some(tensor) = self.tensors.iter().find(|tensor| tensor.format.ggml_type().is_none()) {
            return Err(WriteError::NoNumber { name: tensor.name.clone(), format: tensor.format });
        }
        out.write_all(&self.header())?;
        Ok(DataWriter { out, alignment: self.alignment.into(), tensors: self.tensors, next: 0, given: 0 })
    }
}

fn check_name(name: &str, limit: usize) -> Result<(), WriteError> {
    match name.len() {
        bytes if bytes == 0 || bytes > limit => Err(WriteError::NameLength { name: name.to_owned(), bytes, limit }),
        _ => Ok(()),
    }
}

/// Takes the tensor data in order, whole or in chunks.
#[derive(Debug)]
pub struct DataWriter<W> {
    out: W,
    alignment: u64,
    tensors: Vec<TensorInfo>,
    /// The tensor whose data is due, and how many of its bytes were given.
    next: usize,
    given: u64,
}

impl<W: Write> DataWriter<W> {
    /// Name, format and size in bytes of the tensor whose data is due; `None` after the last.
    pub fn due(&self) -> Option<(&str, Format, u64)> {
        self.tensors.get(self.next).map(|t| (t.name.as_str(), t.format, t.bytes))
    }

    /// Bytes that were given of the tensor whose data is due.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Writes all data of the next tensor.
    ///
    /// # Errors
    /// If another tensor is due, or `data` has not exactly its bytes. Nothing is written then.
    pub fn write_tensor(&mut self, name: &str, data: &[u8]) -> Result<(), WriteError> {
        let tensor = self.tensors.get(self.next).ok_or(WriteError::NoTensor)?;
        if tensor.name != name {
            return Err(WriteError::Order { given: name.to_owned(), next: tensor.name.clone() });
        }
        let given = self.given.saturating_add(data.len() as u64);
        if given != tensor.bytes {
            return Err(WriteError::ByteCount { name: name.to_owned(), given, expected: tensor.bytes });
        }
        self.write_chunk(data)
    }

    /// Writes the next bytes of the tensor that is due. When it is complete, the next one is due.
    ///
    /// # Errors
    /// If `data` has more bytes than are left of the tensor. Nothing is written then.
    pub fn write_chunk(&mut self, data: &[u8]) -> Result<(), WriteError> {
        if data.is_empty() {
            return Ok(());
        }
        let tensor = self.tensors.get(self.next).ok_or(WriteError::NoTensor)?;
        let given = self.given.saturating_add(data.len() as u64);
        if given > tensor.bytes {
            let name = tensor.name.clone();
            return Err(WriteError::ByteCount { name, given, expected: tensor.bytes });
        }
        self.out.write_all(data)?;
        self.given = given;
        if given == tensor.bytes {
            let padding = given.next_multiple_of(self.alignment) - given;
            io::copy(&mut io::Read::take(io::repeat(0), padding), &mut self.out)?;
            self.next += 1;
            self.given = 0;
        }
        Ok(())
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// [`WriteError::ByteCount`] if a tensor's data is missing.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some(tensor) = self.tensors.get(self.next) {
            let name = tensor.name.clone();
            return Err(WriteError::ByteCount { name, given: self.given, expected: tensor.bytes });
        }
        self.out.flush()?;
        Ok(self.out)
    }
}
