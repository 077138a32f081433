//! The header of a safetensors file to be written.

use std::collections::BTreeMap;

use serde::Serialize;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTensor {
    /// The name, unique in the file.
    pub name: String,
    /// The type of the elements, as `BF16`.
    pub dtype: String,
    /// The dimensions, outermost first.
    pub shape: Vec<u64>,
    /// The size of the data.
    pub bytes: u64,
}

/// How a tensor is in the header.
#[derive(Serialize)]
struct Record<'a> {
    dtype: &'a str,
    shape: &'a [u64],
    data_offsets: [u64; 2],
}

/// An entry of the header.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Tensor(Record<'a>),
    Metadata(BTreeMap<&'a str, &'a str>),
}

/// What a file of these tensors starts with; their data follow, in the same order, without gaps.
pub fn header<'a>(tensors: &'a [NewTensor], metadata: &[(&'a str, &'a str)]) -> Vec<u8> {
    let mut entries = BTreeMap::from([("__metadata__", Entry::Metadata(metadata.iter().copied().collect()))]);
    let mut end = 0_u64;
    for tensor in tensors {
        let start = end;
        end = end.saturating_add(tensor.bytes);
        let record = Record { dtype: &tensor.dtype, shape: &tensor.shape, data_offsets: [start, end] };
        entries.insert(&tensor.name, Entry::Tensor(record));
    }
    // Maps with keys that are text can be written.
    let mut json = serde_json::to_vec(&entries).unwrap_or_default();
    // Data start at a multiple of 8 bytes.
    json.resize(json.len().next_multiple_of(8), b' ');
    [&(json.len() as u64).to_le_bytes(), json.as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let tensor = |name: &str, dtype: &str, shape: &[u64], bytes| NewTensor {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            bytes,
        };
        let tensors = [tensor("b", "BF16", &[2, 3], 12), tensor("a\"", "U32", &[1], 4)];
        let mut file = header(&tensors, &[("format", "mlx")]);
        assert!(file.len().is_multiple_of(8) && String::from_utf8_lossy(&file).contains(r#"{"format":"mlx"}"#));
        let start = file.len();
        file.resize(start + 16, 1);
        let found = read(&file).expect("it is good");
        for (found, tensor) in found.iter().zip(&tensors) {
            assert_eq!((&found.name, &found.dtype, &found.shape), (&tensor.name, &tensor.dtype, &tensor.shape));
        }
        assert_eq!((found[0].data.clone(), found[1].data.clone()), (start..start + 12, start + 12..start + 16));
    }
}
