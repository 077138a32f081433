//! Opens GGUF files: one file or all parts of a split model, mapped or from memory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_kernels::format::Format;
use gristmill_kernels::format::rows::ScaledRows;

use super::error::{FormatError, GgufError};
use super::made::TensorSource;
use super::metadata::{FromValue, Metadata};
use super::parse::{Parsed, parse};
use super::reader::{FileReader, Stamp};
use super::source::Bytes;
use super::split::PartName;
use super::{MAGIC, sniff};

const SPLIT_NO: &str = "split.no";
const SPLIT_COUNT: &str = "split.count";
const SPLIT_TENSORS: &str = "split.tensors.count";

/// A tensor record.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name, unique in the model.
    pub name: String,
    /// The encoding of the elements, once they are loaded.
    pub format: Format,
    /// The type in the file, if its rows start with a scale. [`GgufFile::load`] makes blocks of `format` of them.
    pub rows: Option<ScaledRows>,
    /// 1 to 4 dimensions in GGUF order: the innermost (contiguous) first. A weight of a matrix product is
    /// `[inputs, outputs]`, a stack of experts `[inputs, outputs, experts]`. None is zero.
    pub shape: Vec<u64>,
    /// Where the data starts, in bytes from the start of its file.
    pub offset: u64,
    /// The size of the data in bytes, in its file.
    pub bytes: u64,
    /// The file that holds the data: 0, or the part of a split model counted from 0.
    pub part: usize,
}

impl TensorInfo {
    /// The number of elements. It fits: files with a shape that overflows are refused.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |n, &dim| n.saturating_mul(dim))
    }

    /// The name of the type in the file.
    pub fn type_name(&self) -> &'static str {
        self.rows.map_or(self.format.name(), ScaledRows::name)
    }
}

/// An open GGUF model. Clones share the same bytes, which stay until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct GgufFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    parts: Vec<Bytes>,
    paths: Vec<PathBuf>,
    /// What tells whether these files have changed.
    stamps: Vec<Stamp>,
    /// Bytes of the header of each part.
    headers: Vec<usize>,
    version: u32,
    alignment: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    /// Where the data is, if not in the parts.
    source: Option<Arc<dyn TensorSource>>,
}

/// One file of a model, parsed.
struct ParsedFile {
    path: Option<PathBuf>,
    stamp: Option<Stamp>,
    bytes: Bytes,
    parsed: Parsed,
}

impl GgufFile {
    /// Opens a file by mapping it into memory. For a split model give any part: all are opened, and the metadata is
    /// that of the first.
    ///
    /// The file must not change while it is open, because tensor data is read from the mapping at any later time.
    /// Replacing the file by renaming another is safe.
    ///
    /// # Errors
    /// [`GgufError`] names the file, the key or tensor, the byte offset and a remedy.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile, GgufError> {
        let path = path.as_ref();
        let part = ParsedFile::open(path)?;
        match part.split_count()? {
            0 | 1 => Self::join(vec![part]),
            count if part.is_followed_by_another() => Self::join(vec![joined_parts(part, path, count)?]),
            count => Self::join(open_parts(part, path, count)?),
        }
    }

    /// Reads a model linked into the program, for example with `include_bytes!`.
    ///
    /// # Errors
    /// [`GgufError::Format`] names the key or tensor and the byte offset.
    pub fn from_static(bytes: &'static [u8]) -> Result<GgufFile, GgufError> {
        Self::from_source(Bytes::Static(bytes))
    }

    /// Reads a model from bytes in memory.
    ///
    /// # Errors
    /// [`GgufError::Format`] names the key or tensor and the byte offset.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<GgufFile, GgufError> {
        Self::from_source(Bytes::Owned(bytes.into()))
    }

    fn from_source(bytes: Bytes) -> Result<GgufFile, GgufError> {
        let parsed = parse(&bytes).map_err(|source| GgufError::Format { path: None, source })?;
        let part = ParsedFile { path: None, stamp: None, bytes, parsed };
        match part.split_count()? {
            0 | 1 => Self::join(vec![part]),
            count => Err(GgufError::PartInMemory(count)),
        }
    }

    /// Metadata and tensor records, with data from `source`; without one, all data is empty. `header` stands for the
    /// header of a file in the fingerprint.
    pub(super) fn without_data(
        metadata: Metadata,
        tensors: Vec<TensorInfo>,
        header: Vec<u8>,
        source: Option<Arc<dyn TensorSource>>,
    ) -> GgufFile {
        let index = tensors.iter().enumerate().map(|(i, tensor)| (tensor.name.clone(), i)).collect();
        let headers = vec![header.len()];
        let parts = vec![Bytes::Owned(header.into())];
        GgufFile {
            inner: Arc::new(Inner {
                parts,
                paths: source.as_ref().map(|source| source.paths()).unwrap_or_default(),
                stamps: Vec::new(),
                headers,
                version: 3,
                alignment: 1,
                metadata,
                tensors,
                index,
                source,
            }),
        }
    }

    /// Joins the parts of a model, of which there is at least one.
    fn join(parts: Vec<ParsedFile>) -> Result<GgufFile, GgufError> {
        let mut metadata = None;
        let mut sources = vec![];
        let mut headers = vec![];
        let mut tensors = vec![];
        let mut index = HashMap::new();
        let paths = parts.iter().filter_map(|part| part.path.clone()).collect();
        let stamps = parts.iter().filter_map(|part| part.stamp).collect();
        let (mut version, mut alignment) = (u32::MAX, u64::MAX);
        for (number, part) in parts.into_iter().enumerate() {
            for mut tensor in part.parsed.tensors {
                tensor.part = number;
                if index.insert(tensor.name.clone(), tensors.len()).is_some() {
                    let path = part.path.unwrap_or_default();
                    return Err(GgufError::PartDuplicate { path, tensor: tensor.name });
                }
                tensors.push(tensor);
            }
            metadata.get_or_insert(part.parsed.metadata);
            version = version.min(part.parsed.version);
            alignment = alignment.min(part.parsed.alignment);
            headers.push(part.parsed.header);
            sources.push(part.bytes);
        }
        let parts = sources;
        let metadata = metadata.unwrap_or_default();
        let inner = Inner { parts, paths, stamps, headers, version, alignment, metadata, tensors, index, source: None };
        Ok(GgufFile { inner: Arc::new(inner) })
    }

    /// The key-value pairs (of the first part).
    pub fn metadata(&self) -> &Metadata {
        &self.inner.metadata
    }

    /// All tensors in file order, those of the first part first.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.inner.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.inner.tensors.get(*self.inner.index.get(name)?)
    }

    /// The data of a tensor of this file, without a copy. It starts at a multiple of [`alignment`](Self::alignment)
    /// from the start of the file; a mapped file starts on a page.
    ///
    /// Empty for a [`TensorInfo`] of another file that points outside this one, and where [`is_made`](Self::is_made);
    /// otherwise a tensor's own data is never empty.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        if let Some((source, index)) = self.source(tensor) {
            return source.mapped(index).unwrap_or_default();
        }
        if tensor.rows.is_some() { &[] } else { self.stored(tensor) }
    }

    /// The data of a tensor as it is in the file.
    pub(super) fn stored(&self, tensor: &TensorInfo) -> &[u8] {
        self.range(tensor).map_or(&[], |(bytes, offset, len)| bytes.get(offset..offset + len).unwrap_or(&[]))
    }

    /// Advises the system that the data of this tensor will not be read soon, so that its pages are unmapped. They can
    /// still be read. Has no effect for bytes in memory.
    pub fn advise_done(&self, tensor: &TensorInfo) {
        if let Some((source, index)) = self.source(tensor) {
            return source.done(index);
        }
        if let Some((bytes, offset, len)) = self.range(tensor) {
            bytes.release(offset, len);
        }
    }

    /// The source of the data, and the tensor's number there.
    pub(super) fn source(&self, tensor: &TensorInfo) -> Option<(&dyn TensorSource, usize)> {
        let source = self.inner.source.as_deref()?;
        self.inner.index.get(&tensor.name).map(|&index| (source, index))
    }

    /// Passes on what tells the weights of a source from others'.
    pub(super) fn sample(&self, take: &mut dyn FnMut(&[u8])) {
        if let Some(source) = &self.inner.source {
            source.sample(take);
        }
    }

    /// The model that this one is apart from further tensors ([`with_tensors_of`](Self::with_tensors_of)).
    pub(super) fn base(&self) -> Option<&GgufFile> {
        self.inner.source.as_ref()?.base()
    }

    /// The bytes of the tensor's file, and offset and length of its data within.
    fn range(&self, tensor: &TensorInfo) -> Option<(&Bytes, usize, usize)> {
        let bytes = self.inner.parts.get(tensor.part)?;
        let (offset, len) = (usize::try_from(tensor.offset).ok()?, usize::try_from(tensor.bytes).ok()?);
        (offset.checked_add(len)? <= bytes.len()).then_some((bytes, offset, len))
    }

    /// The size of the file in bytes, all parts together.
    pub fn file_bytes(&self) -> u64 {
        if let Some(source) = &self.inner.source {
            return source.file_bytes();
        }
        self.inner.parts.iter().map(|bytes| bytes.len() as u64).sum()
    }

    /// The number of files: 1 if the model is not split.
    pub fn parts(&self) -> usize {
        self.inner.parts.len().max(self.inner.paths.len())
    }

    /// Whether this is a GGUF file; otherwise the data has another source ([`GgufWriter::with_source`]).
    ///
    /// [`GgufWriter::with_source`]: super::GgufWriter::with_source
    pub fn is_gguf(&self) -> bool {
        self.base().map_or(self.inner.source.is_none(), GgufFile::is_gguf)
    }

    /// The paths of the files, in the order of the parts; none for bytes in memory.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.inner.paths.iter().map(PathBuf::as_path)
    }

    /// Whether [`readers`](Self::readers) can read the tensors: they are in GGUF files on a disk.
    pub fn is_readable(&self) -> bool {
        let Inner { paths, stamps, source, .. } = &*self.inner;
        source.is_none() && !paths.is_empty() && paths.len() == stamps.len()
    }

    /// Opens the files for reads while the model runs, in the order of the parts ([`TensorInfo::part`]).
    ///
    /// # Errors
    /// [`GgufError::NotOnDisk`] for a model that is not in GGUF files, [`GgufError::Changed`] if one is not the file that this model
    /// was opened from, and [`GgufError::Io`].
    pub fn readers(&self) -> Result<Vec<Arc<FileReader>>, GgufError> {
        if !self.is_readable() {
            return Err(GgufError::NotOnDisk);
        }
        let Inner { paths, stamps, .. } = &*self.inner;
        paths.iter().zip(stamps).map(|(path, &stamp)| FileReader::open(path, stamp).map(Arc::new)).collect()
    }

    /// The header of each part: metadata and tensor table, as they are in the file.
    pub(super) fn headers(&self) -> impl Iterator<Item = &[u8]> {
        self.inner.parts.iter().zip(&self.inner.headers).map(|(bytes, &header)| bytes.get(..header).unwrap_or(&[]))
    }

    /// The GGUF version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.inner.version
    }

    /// The alignment of tensor data in bytes, a power of two; the least of all parts.
    pub fn alignment(&self) -> u64 {
        self.inner.alignment
    }
}

/// Opens the other parts of a split model next to `opened`, which is at `path`.
fn open_parts(opened: ParsedFile, path: &Path, count: u16) -> Result<Vec<ParsedFile>, GgufError> {
    let number = opened.required::<u16>(SPLIT_NO)?;
    let name = PartName::parse(path).filter(|name| name.count == count && name.number - 1 == number);
    let Some(name) = name else {
        return Err(GgufError::PartName { path: path.to_owned(), part: u32::from(number) + 1, count });
    };

    let mut opened = Some(opened);
    let mut parts = Vec::new();
    for i in 1..=count {
        let part = match opened.take_if(|_| i == name.number) {
            Some(part) => part,
            None => ParsedFile::open(&name.sibling(i)).map_err(|error| match error {
                GgufError::NotFound(path) => GgufError::MissingPart { path, part: i, count },
                other => other,
            })?,
        };
        part.expect(SPLIT_NO, u64::from(i) - 1)?;
        part.expect(SPLIT_COUNT, count.into())?;
        parts.push(part);
    }
    let total = parts.iter().map(|part| part.parsed.tensors.len() as u64).sum();
    for part in &parts {
        part.expect(SPLIT_TENSORS, total)?;
    }
    Ok(parts)
}

/// Parts of a split model that `cat` has joined, as one file.
fn joined_parts(mut first: ParsedFile, path: &Path, count: u16) -> Result<ParsedFile, GgufError> {
    let mut start = 0;
    for number in 1..count {
        let wrong = || GgufError::JoinedParts { path: path.to_owned(), found: number.into(), count };
        // Offsets of earlier parts count from the start of the file already.
        start = first.next_part(start).ok_or_else(wrong)?;
        let bytes = first.bytes.get(start as usize..).unwrap_or_default();
        let parsed = parse(bytes).map_err(|_| wrong())?;
        let is = |key: &str, value: u64| parsed.metadata.optional::<u64>(key).is_ok_and(|found| found == Some(value));
        if !is(SPLIT_NO, number.into()) || !is(SPLIT_COUNT, count.into()) || start % parsed.alignment != 0 {
            return Err(wrong());
        }
        first.parsed.alignment = first.parsed.alignment.min(parsed.alignment);
        first.parsed.tensors.extend(parsed.tensors.into_iter().map(|mut tensor| {
            tensor.offset += start;
            tensor
        }));
    }
    let total = first.parsed.tensors.len() as u64;
    first.expect(SPLIT_NO, 0)?;
    first.expect(SPLIT_TENSORS, total)?;
    Ok(first)
}

impl ParsedFile {
    /// Maps and parses a file.
    fn open(path: &Path) -> Result<ParsedFile, GgufError> {
        let owned = || path.to_owned();
        let io_error = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => GgufError::NotFound(owned()),
            _ => GgufError::Io { path: owned(), source },
        };
        let kind = fs::metadata(path).map_err(io_error)?;
        if kind.is_dir() {
            return Err(GgufError::Directory { path: owned(), hint: sniff::directory_hint(path) });
        }
        if !kind.is_file() {
            let (what, remedy) = ("a device or pipe", "save it as a file first");
            return Err(GgufError::OtherFile { path: owned(), what, remedy });
        }
        if kind.len() == 0 {
            return Err(GgufError::Empty(owned()));
        }
        let file = File::open(path).map_err(io_error)?;
        let stamp = Some(Stamp::of(&file.metadata().map_err(io_error)?));
        let bytes = Bytes::map(&file).map_err(io_error)?;
        if let Some((what, remedy)) = sniff::recognise(&bytes).filter(|_| !bytes.starts_with(&MAGIC)) {
            return Err(GgufError::OtherFile { path: owned(), what, remedy });
        }
        let parsed = parse(&bytes).map_err(|source: FormatError| GgufError::Format { path: Some(owned()), source })?;
        Ok(ParsedFile { path: Some(owned()), stamp, bytes, parsed })
    }

    /// The number of files of the model; 0 or 1 if it is not split.
    fn split_count(&self) -> Result<u16, GgufError> {
        let count = self.parsed.metadata.optional(SPLIT_COUNT);
        Ok(count.map_err(|source| GgufError::Metadata { path: self.path.clone(), source })?.unwrap_or(0))
    }

    /// Whether another part is in the same file, after the data.
    fn is_followed_by_another(&self) -> bool {
        self.next_part(0).is_some()
    }

    /// Where the part begins that follows the data, if one does after `start`.
    fn next_part(&self, start: u64) -> Option<u64> {
        let Parsed { header, alignment, tensors, .. } = &self.parsed;
        let ends = tensors.iter().map(|tensor| tensor.offset.saturating_add(tensor.bytes));
        let end = ends.max().unwrap_or(*header as u64);
        // Writers may pad the last tensor.
        let begins = |at: &u64| {
            let rest = usize::try_from(*at).ok().and_then(|at| self.bytes.get(at..));
            *at > start && rest.is_some_and(|rest| rest.starts_with(&MAGIC))
        };
        [end, end.checked_next_multiple_of(*alignment)?].into_iter().find(begins)
    }

    fn required<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        let value = self.parsed.metadata.required(key);
        value.map_err(|source| GgufError::Metadata { path: self.path.clone(), source })
    }

    fn expect(&self, key: &'static str, expected: u64) -> Result<(), GgufError> {
        match self.required(key)? {
            found if found == expected => Ok(()),
            found => Err(GgufError::PartMismatch { path: self.path.clone().unwrap_or_default(), key, found, expected }),
        }
    }
}
