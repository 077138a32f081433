//! The tensor of a file for an entry of a program.

use gristmill_files::gguf::{GgufFile, TensorInfo};

use crate::error::{Error, Result};
use crate::program::tensors::TensorSpec;

/// The tensor, if it has the needed shape.
pub(super) fn find<'a>(file: &'a GgufFile, needed: &TensorSpec) -> Result<&'a TensorInfo> {
    let Some(tensor) = file.tensor(&needed.name) else {
        return Err(Error::MissingTensor { name: needed.name.clone(), shape: needed.shape.clone() });
    };
    // Dimensions of 1 change no byte: one expert can be stored as a matrix, and a vector as a column.
    let without_ones = |shape: &[u64]| shape.iter().copied().filter(|&n| n != 1).collect::<Vec<_>>();
    if without_ones(&tensor.shape) != without_ones(&needed.shape) {
        return Err(Error::TensorShape {
            name: needed.name.clone(),
            offset: tensor.offset,
            found: tensor.shape.clone(),
            expected: needed.shape.clone(),
        });
    }
    Ok(tensor)
}
