//! A bounded little-endian cursor: no read passes the end, no allocation exceeds what the remaining bytes can fill.

use super::error::FormatErrorKind as Kind;
use super::value::{Array, Value, ValueType};
use super::{MAX_ARRAY_DEPTH, MAX_NAME_BYTES};

/// What is wrong and at which byte; the parser adds the key or tensor.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: u64,
    pub(super) kind: Kind,
}

pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    len: u64,
}

macro_rules! number {
    ($($name:ident: $t:ty),*) => {$(
        pub(super) fn $name(&mut self) -> Result<$t, Fault> {
            Ok(<$t>::from_le_bytes(self.array()?))
        }
    )*};
}

/// Reads `count` fixed-size elements, of which the cursor has already checked that they are there.
macro_rules! numbers {
    ($self:ident, $count:ident, $variant:ident, $read:ident) => {{
        let mut v = Vec::with_capacity($count);
        for _ in 0..$count {
            v.push($self.$read()?);
        }
        Array::$variant(v)
    }};
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

    fn take(&mut self, needed: u64) -> Result<&'a [u8], Fault> {
        let split = usize::try_from(needed).ok().and_then(|n| self.rest.split_at_checked(n));
        let Some((taken, rest)) = split else {
            return Err(self.fault(Kind::Truncated { needed, remaining: self.remaining() }));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            return Err(self.fault(Kind::Truncated { needed: N as u64, remaining: self.remaining() }));
        };
        self.rest = rest;
        Ok(*taken)
    }

    number! { u8: u8, i8: i8, u16: u16, i16: i16, u32: u32, i32: i32, f32: f32, u64: u64, i64: i64, f64: f64 }

    fn bool(&mut self) -> Result<bool, Fault> {
        let offset = self.offset();
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Fault { offset, kind: Kind::Bool(other) }),
        }
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

    /// A string: its length in bytes, then UTF-8.
    fn string(&mut self) -> Result<String, Fault> {
        let needed = self.u64()?;
        self.utf8(needed)
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

    fn utf8(&mut self, bytes: u64) -> Result<String, Fault> {
        let offset = self.offset();
        let text = self.take(bytes)?;
        match std::str::from_utf8(text) {
            Ok(s) => Ok(s.to_owned()),
            Err(e) => Err(Fault { offset: offset.saturating_add(e.valid_up_to() as u64), kind: Kind::Utf8 }),
        }
    }

    fn value_type(&mut self) -> Result<ValueType, Fault> {
        let offset = self.offset();
        let id = self.u32()?;
        ValueType::from_id(id).ok_or(Fault { offset, kind: Kind::ValueType(id) })
    }

    /// A metadata value: its type, then its bytes.
    pub(super) fn value(&mut self) -> Result<Value, Fault> {
        Ok(match self.value_type()? {
            ValueType::U8 => Value::U8(self.u8()?),
            ValueType::I8 => Value::I8(self.i8()?),
            ValueType::U16 => Value::U16(self.u16()?),
            ValueType::I16 => Value::I16(self.i16()?),
            ValueType::U32 => Value::U32(self.u32()?),
            ValueType::I32 => Value::I32(self.i32()?),
            ValueType::F32 => Value::F32(self.f32()?),
            ValueType::Bool => Value::Bool(self.bool()?),
            ValueType::String => Value::String(self.string()?),
            ValueType::Array => Value::Array(self.elements(1)?),
            ValueType::U64 => Value::U64(self.u64()?),
            ValueType::I64 => Value::I64(self.i64()?),
            ValueType::F64 => Value::F64(self.f64()?),
        })
    }

    /// The inside of an array at nesting `depth` (1 is the outermost): element type, count, elements.
    fn elements(&mut self, depth: usize) -> Result<Array, Fault> {
        if depth > MAX_ARRAY_DEPTH {
            return Err(self.fault(Kind::ArrayDepth { limit: MAX_ARRAY_DEPTH }));
        }
        let element = self.value_type()?;
        let count = self.count(element.min_bytes())?;
        Ok(match element {
            ValueType::U8 => Array::U8(self.take(count as u64)?.to_vec()),
            ValueType::I8 => numbers!(self, count, I8, i8),
            ValueType::U16 => numbers!(self, count, U16, u16),
            ValueType::I16 => numbers!(self, count, I16, i16),
            ValueType::U32 => numbers!(self, count, U32, u32),
            ValueType::I32 => numbers!(self, count, I32, i32),
            ValueType::F32 => numbers!(self, count, F32, f32),
            ValueType::Bool => numbers!(self, count, Bool, bool),
            ValueType::String => numbers!(self, count, String, string),
            ValueType::U64 => numbers!(self, count, U64, u64),
            ValueType::I64 => numbers!(self, count, I64, i64),
            ValueType::F64 => numbers!(self, count, F64, f64),
            ValueType::Array => {
                let mut v = Vec::with_capacity(count);
                for _ in 0..count {
                    v.push(self.elements(depth + 1)?);
                }
                Array::Array(v)
            }
        })
    }
}
