//! A bounded little-endian cursor: no read passes the end, no allocation exceeds what the remaining bytes can fill.

use super::MAX_NAME_BYTES;
use super::error::FormatErrorKind as Kind;
use super::value::{Value, ValueType};

/// The violation and its byte; the parser adds the key or tensor.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: u64,
    pub(super) kind: Kind,
}

pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    len: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes, len: bytes.len() as u64 }
    }

    /// The offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.len - self.remaining()
    }

    pub(super) fn remaining(&self) -> u64 {
        self.rest.len() as u64
    }

    /// An error at the next byte.
    pub(super) fn fault(&self, kind: Kind) -> Fault {
        Fault { offset: self.offset(), kind }
    }

    fn truncated(&self, needed: u64) -> Fault {
        self.fault(Kind::Truncated { needed, remaining: self.remaining() })
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.truncated(N as u64))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A 64-bit count of entries that take at least `min_bytes` each.
    pub(super) fn count(&mut self, min_bytes: u64) -> Result<usize, Fault> {
        let offset = self.offset();
        let count = self.u64()?;
        self.check_count(count, min_bytes, offset)
    }

    /// Checks a count that stood at `offset` against the bytes that remain.
    pub(super) fn check_count(&self, count: u64, min_bytes: u64, offset: u64) -> Result<usize, Fault> {
        let remaining = self.remaining();
        let most = remaining / min_bytes;
        let fits = usize::try_from(count).ok().filter(|_| count <= most);
        fits.ok_or(Fault { offset, kind: Kind::Count { count, remaining, most } })
    }

    /// A key or tensor name, of bounded length.
    pub(super) fn name(&mut self) -> Result<String, Fault> {
        let offset = self.offset();
        let bytes = self.u64()?;
        if bytes > MAX_NAME_BYTES {
            return Err(Fault { offset, kind: Kind::NameLength { bytes, limit: MAX_NAME_BYTES } });
        }
        self.utf8(bytes)
    }

    /// Text of this many bytes.
    pub(super) fn utf8(&mut self, bytes: u64) -> Result<String, Fault> {
        let offset = self.offset();
        let split = usize::try_from(bytes).ok().and_then(|n| self.rest.split_at_checked(n));
        let (text, rest) = split.ok_or_else(|| self.truncated(bytes))?;
        self.rest = rest;
        match std::str::from_utf8(text) {
            Ok(s) => Ok(s.to_owned()),
            Err(e) => Err(Fault { offset: offset.saturating_add(e.valid_up_to() as u64), kind: Kind::Utf8 }),
        }
    }

    pub(super) fn value_type(&mut self) -> Result<ValueType, Fault> {
        let offset = self.offset();
        let id = self.u32()?;
        ValueType::from_id(id).ok_or(Fault { offset, kind: Kind::ValueType(id) })
    }

    /// A metadata value: its type, then its bytes.
    pub(super) fn value(&mut self) -> Result<Value, Fault> {
        let kind = self.value_type()?;
        Value::read(kind, self)
    }
}
