//! The header of a safetensors file: which tensor lies where.
//!
//! The format is specified at <https://github.com/huggingface/safetensors#format>: the length of the header as a 64-bit
//! number, the header as JSON, the data.
//!
//! ```text
//! n:u64 | {"NAME":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},…,"__metadata__":{…}} | data
//! ```
//!
//! Files are untrusted: all data returned is within the file and does not overlap. (The `safetensors` crate, as of
//! 0.8, adds the offsets of a hostile header without a check for overflow.)

mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::gguf::Name;
use crate::json::json_problem;

pub use write::{NewTensor, header};

/// More dimensions are refused: no weights have them.
const MAX_DIMS: usize = 8;

/// Longer headers are refused, as by the reference implementation.
const MAX_HEADER: u64 = 100_000_000;

/// The reasons to refuse a safetensors file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The file ends after this many bytes, within its header.
    #[error("it ends after {0} bytes, within its header; it is incomplete, fetch it again")]
    Truncated(u64),
    /// The length of the header exceeds the limit.
    #[error(
        "its header has {0} bytes, at most {MAX_HEADER} are allowed; it is not a safetensors file, or it is damaged"
    )]
    HeaderLength(u64),
    /// The header is not valid JSON, or has the wrong structure.
    #[error("its header is not valid: {}; it is damaged, fetch it again", json_problem(.0))]
    Header(serde_json::Error),
    /// A tensor's record is not valid.
    #[error("tensor {}: {problem}; the file is damaged, fetch it again", Name(.name))]
    Tensor {
        /// The tensor.
        name: String,
        /// The problem.
        problem: String,
    },
    /// The data section is not exactly the tensors' data.
    #[error(
        "its tensors have {expected} bytes of data, but {found} follow the header; it is incomplete or damaged, fetch \
         it again"
    )]
    DataLength {
        /// Where the last tensor ends.
        expected: u64,
        /// The bytes after the header.
        found: u64,
    },
}

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// The name, unique in the file.
    pub name: String,
    /// The type of the elements, as `BF16`.
    pub dtype: String,
    /// The dimensions, outermost first. Empty for a single number.
    pub shape: Vec<u64>,
    /// The data within the file.
    pub data: Range<usize>,
}

/// How a tensor is in the header.
#[derive(Deserialize)]
#[serde(expecting = "an object with dtype, shape and data_offsets")]
struct Record {
    dtype: String,
    shape: Dims,
    data_offsets: [u64; 2],
}

/// At most [`MAX_DIMS`] dimensions.
struct Dims(Vec<u64>);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Dims;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "at most {MAX_DIMS} dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut dims: A) -> Result<Dims, A::Error> {
                let mut shape = Vec::new();
                while let Some(dim) = dims.next_element()? {
                    if shape.len() == MAX_DIMS {
                        return Err(A::Error::invalid_length(MAX_DIMS + 1, &self));
                    }
                    shape.push(dim);
                }
                Ok(Dims(shape))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// All records by name. What stands under `__metadata__` is skipped.
struct Records(BTreeMap<String, Record>);

impl<'de> Deserialize<'de> for Records {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Records;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Records, A::Error> {
                let mut records = BTreeMap::new();
                while let Some(name) = entries.next_key::<String>()? {
                    if name == "__metadata__" {
                        entries.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let record: Record = entries.next_value().map_err(|error| in_tensor(&name, error))?;
                    if records.contains_key(&name) {
                        return Err(in_tensor(&name, "it occurs twice"));
                    }
                    records.insert(name, record);
                }
                Ok(Records(records))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A problem of the record of a tensor.
fn in_tensor<E: serde::de::Error>(name: &str, problem: impl fmt::Display) -> E {
    E::custom(format_args!("tensor {}: {problem}", Name(name)))
}

/// Bits of one element of every dtype that the format knows, but for those below one byte.
const DTYPES: &[(u64, &[&str])] = &[
    (8, &["BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"]),
    (16, &["I16", "U16", "F16", "BF16"]),
    (32, &["I32", "U32", "F32"]),
    (64, &["C64", "F64", "I64", "U64"]),
];

/// Reads the header of a whole file.
///
/// # Errors
/// If the file is truncated, the header is not valid, or tensors overlap, have gaps, or exceed the file.
pub fn read(file: &[u8]) -> Result<Vec<Tensor>, SafetensorsError> {
    let truncated = || SafetensorsError::Truncated(file.len() as u64);
    let (length, rest) = file.split_first_chunk().ok_or_else(truncated)?;
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(SafetensorsError::HeaderLength(length));
    }
    let header = rest.get(..length as usize).ok_or_else(truncated)?;
    let Records(records) = serde_json::from_slice(header).map_err(SafetensorsError::Header)?;

    let start = size_of::<u64>() + length as usize;
    let available = (file.len() - start) as u64;
    let read = |(name, record)| tensor(name, record, start, available);
    let mut tensors = records.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    tensors.sort_by_key(|tensor| (tensor.data.start, tensor.data.end));
    let mut end = start;
    for tensor in &tensors {
        if tensor.data.start != end {
            let from = tensor.data.start - start;
            let to = end - start;
            let problem = format!("its data starts at byte {from}, but the data before it ends at {to}");
            return Err(SafetensorsError::Tensor { name: tensor.name.clone(), problem });
        }
        end = tensor.data.end;
    }
    let expected = (end - start) as u64;
    if expected != available {
        return Err(SafetensorsError::DataLength { expected, found: available });
    }
    Ok(tensors)
}

fn tensor(name: String, record: Record, start: usize, available: u64) -> Result<Tensor, SafetensorsError> {
    let wrong = |problem: String| SafetensorsError::Tensor { name: name.clone(), problem };
    let Record { dtype, shape: Dims(shape), data_offsets: [from, to] } = record;
    let bits = DTYPES.iter().find(|(_, names)| names.contains(&dtype.as_str()));
    let (bits, _) = bits.ok_or_else(|| wrong(format!("its dtype is {}, which is not known", Name(&dtype))))?;
    let bytes = shape.iter().try_fold(bits / 8, |n, &dim| n.checked_mul(dim));
    if from > to {
        return Err(wrong(format!("its data is at bytes {from} to {to} of {available}")));
    }
    if to > available {
        return Err(SafetensorsError::DataLength { expected: to, found: available });
    }
    if bytes != Some(to - from) {
        return Err(wrong(format!("shape {shape:?} of {dtype} does not match its {} bytes", to - from)));
    }
    // Within the file, which is in memory or mapped: the sums fit.
    let data = start + from as usize..start + to as usize;
    Ok(Tensor { name, dtype, shape, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.resize(file.len() + data, 7);
        file
    }

    fn refused(header: &str, data: usize) -> String {
        read(&file(header, data)).expect_err("it is refused").to_string()
    }

    const GOOD: &str = r#"{"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},"__metadata__":{"format":"pt"},
        "a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;

    #[test]
    fn tensors_in_order_of_their_data() {
        let tensors = read(&file(GOOD, 16)).expect("it is good");
        let start = 8 + GOOD.len();
        assert_eq!(tensors.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((tensors[0].data.clone(), tensors[1].data.clone()), (start..start + 12, start + 12..start + 16));
        assert_eq!((tensors[0].shape.as_slice(), tensors[1].shape.len()), ([2, 3].as_slice(), 0));
        assert!(read(&file("{}", 0)).expect("empty is allowed").is_empty());
    }

    #[test]
    fn every_cut_is_refused() {
        let whole = file(GOOD, 16);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
        assert!(refused(GOOD, 17).contains("16 bytes of data, but 17 follow"));
    }

    #[test]
    fn lies_are_refused() {
        let one = |dtype: &str, shape: &str, offsets: &str| {
            refused(&format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#), 16)
        };
        for (offsets, message) in [
            ("[0,32]", "32 bytes of data"),
            ("[16,0]", "is at bytes 16 to 0"),
            ("[0,18446744073709551615]", "18446744073709551615 bytes"),
            ("[0,15]", "does not match its 15 bytes"),
            ("[-1,16]", "header is not valid"),
            ("[0]", "header is not valid"),
        ] {
            assert!(one("F32", "[4]", offsets).contains(message), "{offsets}: {}", one("F32", "[4]", offsets));
        }
        assert!(one("F99", "[4]", "[0,16]").contains("`F99`"));
        assert!(one("F32", "[1,1,1,1,1,1,1,4,1]", "[0,16]").contains("at most 8 dimensions"));
        read(&file(r#"{"x":{"dtype":"F32","shape":[1,1,1,1,1,1,1,4],"data_offsets":[0,16]}}"#, 16))
            .expect("8 are allowed");
        let twice = refused(&GOOD.replace("\"b\":{", "\"a\":{"), 16);
        assert!(twice.contains("tensor `a`: it occurs twice"), "{twice}");
        assert!(one("F32", "[4,18446744073709551615,18446744073709551615]", "[0,16]").contains("does not match"));
        let two = |a: &str, b: &str| {
            let record = |offsets| format!(r#"{{"dtype":"U8","shape":[8],"data_offsets":{offsets}}}"#);
            refused(&format!(r#"{{"a":{},"b":{}}}"#, record(a), record(b)), 16)
        };
        assert!(two("[0,8]", "[0,8]").contains("starts at byte 0, but the data before it ends at 8"));
        assert!(two("[0,8]", "[4,12]").contains("starts at byte 4"));
        assert!(two("[1,9]", "[9,17]").contains("17 bytes of data, but 16"));
        assert!(refused("[1]", 0).contains("header is not"));
        assert!(refused(r#"{"x":3}"#, 0).contains("tensor `x`: invalid type: integer `3`"));
        let long = refused(&format!(r#"{{"x":"{}"}}"#, "y".repeat(100_000)), 0);
        assert!(long.len() < 1000 && long.contains("at line 1 column"), "{long}");
        let mut huge = file(GOOD, 16);
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(read(&huge), Err(SafetensorsError::HeaderLength(u64::MAX))));
    }
}
