//! How a metadata value is in a file: little-endian, a string after its length, an array after type and number of
//! its elements.

use super::MAX_ARRAY_DEPTH;
use super::cursor::{Cursor, Fault};
use super::error::FormatErrorKind as Kind;
use super::value::Array;

/// A Rust type of metadata values.
pub(super) trait Codec: Sized {
    /// Reads a value that is within arrays nesting `depth` deep.
    fn read(cursor: &mut Cursor, depth: usize) -> Result<Self, Fault>;

    fn write(&self, out: &mut Vec<u8>);

    /// The value, if the type is an integer.
    fn integer(&self) -> Option<i128> {
        None
    }
}

macro_rules! numbers {
    ($($t:ty $(as $wide:ty)?),*) => {$(
        impl Codec for $t {
            fn read(cursor: &mut Cursor, _: usize) -> Result<Self, Fault> {
                Ok(<$t>::from_le_bytes(cursor.array()?))
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            $(fn integer(&self) -> Option<$wide> {
                Some((*self).into())
            })?
        }
    )*};
}

numbers! {
    u8 as i128, i8 as i128, u16 as i128, i16 as i128, u32 as i128, i32 as i128, u64 as i128, i64 as i128, f32, f64
}

impl Codec for bool {
    fn read(cursor: &mut Cursor, depth: usize) -> Result<Self, Fault> {
        let offset = cursor.offset();
        match u8::read(cursor, depth)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Fault { offset, kind: Kind::Bool(other) }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
}

impl Codec for String {
    fn read(cursor: &mut Cursor, _: usize) -> Result<Self, Fault> {
        let bytes = cursor.u64()?;
        cursor.utf8(bytes)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        out.extend(self.as_bytes());
    }
}

impl Codec for Array {
    fn read(cursor: &mut Cursor, depth: usize) -> Result<Self, Fault> {
        if depth == MAX_ARRAY_DEPTH {
            return Err(cursor.fault(Kind::ArrayDepth));
        }
        let element = cursor.value_type()?;
        let count = cursor.count(element.min_bytes())?;
        Array::read_elements(element, count, cursor, depth + 1)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.element_type().id().write(out);
        (self.len() as u64).write(out);
        self.write_elements(out);
    }
}
