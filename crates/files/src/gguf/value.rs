//! Metadata values: the 13 types of the specification, arrays typed and compact.

use std::fmt;

use super::codec::Codec;
use super::cursor::{Cursor, Fault};

/// The properties of each type: Rust's type, the number in a file, the name in the specification of GGUF, which
/// messages use, and the fewest bytes of a value in a file.
macro_rules! value_types {
    ($($variant:ident: $t:ty, $id:literal, $name:literal, $min_bytes:literal;)*) => {
        /// The type of a metadata value. The numbers are those of the file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[allow(missing_docs)]
        pub enum ValueType {
            $($variant = $id,)*
        }

        impl ValueType {
            /// Every type, in the order of the file's numbers.
            pub const ALL: [ValueType; 13] = [$(ValueType::$variant),*];

            /// The name in the specification of GGUF, as messages use it.
            pub fn name(self) -> &'static str {
                match self {
                    $(ValueType::$variant => $name,)*
                }
            }

            /// The fewest bytes that one value of this type takes in a file.
            pub(super) fn min_bytes(self) -> u64 {
                match self {
                    $(ValueType::$variant => $min_bytes,)*
                }
            }
        }

        /// A metadata value.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Value {
            $($variant($t),)*
        }

        impl Value {
            /// The type of this value.
            pub fn value_type(&self) -> ValueType {
                match self {
                    $(Value::$variant(_) => ValueType::$variant,)*
                }
            }

            /// The value of any integer type.
            pub fn as_integer(&self) -> Option<i128> {
                match self {
                    $(Value::$variant(v) => v.integer(),)*
                }
            }

            pub(super) fn read(kind: ValueType, cursor: &mut Cursor) -> Result<Value, Fault> {
                Ok(match kind {
                    $(ValueType::$variant => Value::$variant(Codec::read(cursor, 0)?),)*
                })
            }

            pub(super) fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Value::$variant(v) => v.write(out),)*
                }
            }
        }

        /// An array of one element type, stored as a vector of that type. Arrays within an array may have different
        /// element types.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Array {
            $($variant(Vec<$t>),)*
        }

        impl Array {
            /// The type of the elements.
            pub fn element_type(&self) -> ValueType {
                match self {
                    $(Array::$variant(_) => ValueType::$variant,)*
                }
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$variant(v) => v.len(),)*
                }
            }

            /// The elements of an array of any integer type, or `None`.
            pub fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
                use ValueType as T;
                if let T::F32 | T::F64 | T::Bool | T::String | T::Array = self.element_type() {
                    return None;
                }
                Some(match self {
                    $(Array::$variant(v) => Box::new(v.iter().filter_map(Codec::integer)),)*
                })
            }

            /// Reads `count` elements within arrays that nest `depth` deep.
            pub(super) fn read_elements(
                kind: ValueType, count: usize, cursor: &mut Cursor, depth: usize,
            ) -> Result<Array, Fault> {
                Ok(match kind {
                    $(ValueType::$variant => {
                        let mut elements = Vec::with_capacity(count);
                        for _ in 0..count {
                            elements.push(Codec::read(cursor, depth)?);
                        }
                        Array::$variant(elements)
                    })*
                })
            }

            pub(super) fn write_elements(&self, out: &mut Vec<u8>) {
                match self {
                    $(Array::$variant(v) => v.iter().for_each(|element| element.write(out)),)*
                }
            }
        }

        $(
            impl From<$t> for Value {
                fn from(v: $t) -> Value {
                    Value::$variant(v)
                }
            }

            impl From<Vec<$t>> for Value {
                fn from(v: Vec<$t>) -> Value {
                    Value::Array(Array::$variant(v))
                }
            }
        )*
    };
}

// A string has at least its length, an array the type and the number of its elements.
value_types! {
    U8: u8, 0, "uint8", 1;
    I8: i8, 1, "int8", 1;
    U16: u16, 2, "uint16", 2;
    I16: i16, 3, "int16", 2;
    U32: u32, 4, "uint32", 4;
    I32: i32, 5, "int32", 4;
    F32: f32, 6, "float32", 4;
    Bool: bool, 7, "bool", 1;
    String: String, 8, "string", 8;
    Array: Array, 9, "array", 12;
    U64: u64, 10, "uint64", 8;
    I64: i64, 11, "int64", 8;
    F64: f64, 12, "float64", 8;
}

impl ValueType {
    /// The type with this number in a file.
    pub fn from_id(id: u32) -> Option<ValueType> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The number of this type in a file.
    pub fn id(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Value {
    /// The type for messages; an array with that of its elements.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Array(a) => format!("array of {} {}", a.len(), a.element_type()),
            v => v.value_type().name().to_owned(),
        }
    }
}

impl Array {
    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How deep arrays nest: 1 for a flat array.
    pub(super) fn depth(&self) -> usize {
        match self {
            Array::Array(v) => 1 + v.iter().map(Array::depth).max().unwrap_or(0),
            _ => 1,
        }
    }
}

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::String(v.to_owned())
    }
}

impl From<Vec<&str>> for Value {
    fn from(v: Vec<&str>) -> Value {
        Value::Array(Array::String(v.into_iter().map(str::to_owned).collect()))
    }
}
