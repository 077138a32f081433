//! From the bytes of one file to metadata and tensor records, all checked.

use std::collections::HashMap;

use gristmill_kernels::format::Format;
use gristmill_kernels::format::rows::ScaledRows;

use super::cursor::{Cursor, Fault};
use super::error::{FormatError, FormatErrorKind as Kind, Place};
use super::file::TensorInfo;
use super::metadata::Metadata;
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS};

/// A key-value pair takes at least the length of its key, its type and one byte.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;
/// A tensor record takes at least the length of its name, its dimension count, one dimension, its type and its offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// All of a file but its tensor data.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) version: u32,
    pub(super) alignment: u64,
    /// Bytes of the header: all before the padding and the tensor data.
    pub(super) header: usize,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

impl Fault {
    fn at(self, at: Place) -> FormatError {
        FormatError { at, offset: self.offset, kind: self.kind }
    }
}

/// Parses all bytes of a file.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, FormatError> {
    let mut cursor = Cursor::new(bytes);
    let header = header(&mut cursor).map_err(|fault| fault.at(Place::Header))?;
    let metadata = metadata(&mut cursor, header.pairs)?;
    let alignment = alignment(&metadata)?;
    let records = (0..header.tensors as u64)
        .map(|number| {
            let name = cursor.name().map_err(|fault| fault.at(Place::TensorNumber(number)))?;
            record(&mut cursor, &name).map_err(|fault| fault.at(Place::Tensor(name)))
        })
        .collect::<Result<Vec<Record>, FormatError>>()?;
    check_names(&records)?;
    let tensors = place(records, &cursor, alignment)?;
    let read = bytes.len() - cursor.remaining() as usize;
    Ok(Parsed { version: header.version, alignment, header: read, metadata, tensors })
}

struct Header {
    version: u32,
    tensors: usize,
    pairs: usize,
}

fn header(cursor: &mut Cursor) -> Result<Header, Fault> {
    let magic = cursor.array()?;
    if magic != MAGIC {
        return Err(Fault { offset: 0, kind: Kind::Magic(magic) });
    }
    let at = cursor.offset();
    let version = match cursor.u32()? {
        version @ (2 | 3) => version,
        // Real versions are small, so a version whose low half is zero was written in the other byte order.
        version if version != 0 && version & 0xffff == 0 => return Err(Fault { offset: at, kind: Kind::BigEndian }),
        version => return Err(Fault { offset: at, kind: Kind::Version(version) }),
    };
    let at = cursor.offset();
    let tensors = cursor.u64()?;
    let pairs = cursor.count(MIN_PAIR_BYTES)?;
    let tensors = cursor.check_count(tensors, MIN_TENSOR_BYTES, at)?;
    Ok(Header { version, tensors, pairs })
}

fn metadata(cursor: &mut Cursor, pairs: usize) -> Result<Metadata, FormatError> {
    let mut metadata = Metadata::default();
    for number in 0..pairs as u64 {
        let key_offset = cursor.offset();
        let key = cursor.name().map_err(|fault| fault.at(Place::KeyNumber(number)))?;
        if let Some(first) = metadata.offset(&key) {
            return Err(FormatError { at: Place::Key(key), offset: key_offset, kind: Kind::Duplicate(first) });
        }
        let offset = cursor.offset();
        match cursor.value() {
            Ok(value) => metadata.push(key, value, offset),
            Err(fault) => return Err(fault.at(Place::Key(key))),
        }
    }
    Ok(metadata)
}

fn alignment(metadata: &Metadata) -> Result<u64, FormatError> {
    let Some(value) = metadata.value(ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let found = value.as_integer();
    match found.and_then(|v| u32::try_from(v).ok()).filter(|v| v.is_power_of_two()) {
        Some(v) => Ok(v.into()),
        None => Err(FormatError {
            at: Place::Key(ALIGNMENT_KEY.to_owned()),
            offset: metadata.offset(ALIGNMENT_KEY).unwrap_or(0),
            kind: Kind::Alignment(found.map_or_else(|| value.describe(), |v| v.to_string())),
        }),
    }
}

/// A tensor record, and where parts of it are in the file. The tensor's offset counts from the start of the data
/// section until [`place`] has found that.
struct Record {
    tensor: TensorInfo,
    /// Offset of the field after the name.
    record_offset: u64,
    /// Offset of the field with the tensor's offset.
    field_offset: u64,
}

/// Reads a tensor record after its name.
fn record(cursor: &mut Cursor, name: &str) -> Result<Record, Fault> {
    let record_offset = cursor.offset();
    let dims = cursor.u32()?;
    let rank = usize::try_from(dims).ok().filter(|rank| (1..=MAX_DIMS).contains(rank));
    let rank = rank.ok_or(Fault { offset: record_offset, kind: Kind::Dims(dims) })?;
    let shape_offset = cursor.offset();
    let mut shape = Vec::with_capacity(rank);
    for dim in 0..rank {
        let offset = cursor.offset();
        match cursor.u64()? {
            0 => return Err(Fault { offset, kind: Kind::ZeroDim(dim) }),
            n => shape.push(n),
        }
    }
    let type_offset = cursor.offset();
    let id = cursor.u32()?;
    let rows = ScaledRows::from_ggml_type(id);
    let format = rows.map(ScaledRows::format).or_else(|| Format::from_ggml_type(id));
    let format = format.ok_or(Fault { offset: type_offset, kind: Kind::TensorType(id) })?;
    let bytes = byte_count(format, rows, &shape).map_err(|kind| Fault { offset: shape_offset, kind })?;
    let field_offset = cursor.offset();
    let tensor = TensorInfo { name: name.to_owned(), format, rows, shape, offset: cursor.u64()?, bytes, part: 0 };
    Ok(Record { tensor, record_offset, field_offset })
}

/// The bytes of a tensor in the file, where its rows may start with a scale; also its number of elements fits 64 bits.
pub(super) fn byte_count(format: Format, rows: Option<ScaledRows>, shape: &[u64]) -> Result<u64, Kind> {
    let block = format.block_len() as u64;
    let row = shape.first().copied().unwrap_or(1);
    if row % block != 0 {
        let format = rows.map_or(format.name(), ScaledRows::name);
        return Err(Kind::PartialBlock { row, block, format });
    }
    let product = |first: u64| shape.iter().skip(1).try_fold(first, |n, &dim| n.checked_mul(dim));
    let row_bytes = match rows {
        Some(rows) => usize::try_from(row).ok().and_then(|row| rows.row_bytes(row)).map(|bytes| bytes as u64),
        None => (row / block).checked_mul(format.block_bytes() as u64),
    };
    let bytes = row_bytes.and_then(product);
    product(row).and(bytes).ok_or_else(|| Kind::ShapeOverflow(shape.to_vec()))
}

fn check_names(records: &[Record]) -> Result<(), FormatError> {
    let mut seen = HashMap::with_capacity(records.len());
    for record in records {
        if let Some(first) = seen.insert(record.tensor.name.as_str(), record.record_offset) {
            return Err(record.error(record.record_offset, Kind::Duplicate(first)));
        }
    }
    Ok(())
}

impl Record {
    fn error(&self, offset: u64, kind: Kind) -> FormatError {
        FormatError { at: Place::Tensor(self.tensor.name.clone()), offset, kind }
    }
}

/// Finds each tensor's bytes in the file; `cursor` is after the last record.
fn place(mut records: Vec<Record>, cursor: &Cursor, alignment: u64) -> Result<Vec<TensorInfo>, FormatError> {
    let len = cursor.offset().saturating_add(cursor.remaining());
    // A file's length fits 63 bits and the alignment 32, so this does not overflow.
    let data_start = cursor.offset().next_multiple_of(alignment);
    // The first record whose data end after the file, and the end of all data.
    let mut outside: Option<(usize, u64)> = None;
    for (index, record) in records.iter_mut().enumerate() {
        let error = |kind| Err(record.error(record.field_offset, kind));
        let TensorInfo { offset, bytes, .. } = record.tensor;
        if offset % alignment != 0 {
            return error(Kind::Misaligned { offset, alignment });
        }
        let start = data_start.checked_add(offset);
        let (Some(start), Some(end)) = (start, start.and_then(|s| s.checked_add(bytes))) else {
            return error(Kind::OffsetOverflow(offset));
        };
        if end > len {
            let (first, last) = outside.unwrap_or((index, end));
            outside = Some((first, last.max(end)));
        }
        record.tensor.offset = start;
    }
    if let Some((record, end)) = outside.and_then(|(first, end)| Some((records.get(first)?, end))) {
        return Err(record.error(record.field_offset, Kind::OutOfBounds { end, len }));
    }

    // No tensor is empty, so if any two overlap, then so do two that are neighbours in order of their starts.
    let mut order: Vec<&Record> = records.iter().collect();
    order.sort_by_key(|record| record.tensor.offset);
    for (earlier, later) in order.iter().zip(order.iter().skip(1)) {
        if earlier.tensor.offset + earlier.tensor.bytes > later.tensor.offset {
            return Err(later.error(later.field_offset, Kind::Overlap(earlier.tensor.name.clone())));
        }
    }
    Ok(records.into_iter().map(|record| record.tensor).collect())
}
