//! Which tensors the folder will have, and what each is made of.

use std::collections::BTreeMap;

use gristmill_files::safetensors::{NewTensor, Tensor};
use gristmill_kernels::format::Format;

use crate::checkpoint::Checkpoint;
use crate::error::ConvertError;
use crate::family::{Family, stacked_names};
use crate::inputs::{float, wrong_shape};
use crate::mlx::Widths;
use crate::tensors::is_ignored;

/// Tensors of the output that are made together: one that stays as it is, or codes, scales and biases.
pub(super) struct Made {
    pub(super) tensors: Vec<NewTensor>,
    /// The matrices that are stacked, or the only tensor.
    pub(super) parts: Vec<Tensor>,
    pub(super) numbers: Format,
}

impl Made {
    pub(super) fn is_coded(&self) -> bool {
        self.tensors.len() > 1
    }
}

/// Plans all tensors in order of their names.
pub(super) fn plan(family: &Family, checkpoint: &Checkpoint, widths: Widths) -> Result<Vec<Made>, ConvertError> {
    // The matrices of each tensor of the output, by the number of the expert.
    let mut outputs: BTreeMap<String, BTreeMap<usize, Tensor>> = BTreeMap::new();
    for tensor in checkpoint.tensors().filter(|tensor| !is_ignored(&tensor.name)) {
        let stacked = stacked_names(&tensor.name).map(|([name, _], expert)| (name, expert));
        let (name, expert) = stacked.unwrap_or_else(|| (tensor.name.clone(), 0));
        outputs.entry(name).or_default().insert(expert, tensor.clone());
    }
    let made = |(name, parts): (String, BTreeMap<usize, Tensor>)| {
        let stacked = parts.values().next().is_some_and(|part| part.name != name);
        made(family, &name, parts.into_values().collect(), stacked, widths)
    };
    outputs.into_iter().map(made).collect()
}

fn made(family: &Family, name: &str, parts: Vec<Tensor>, stacked: bool, widths: Widths) -> Result<Made, ConvertError> {
    let Some(first) = parts.first() else { return Err(ConvertError::MissingTensor(name.to_owned())) };
    let numbers = float(first)?;
    if let Some(other) = parts.iter().find(|part| part.shape != first.shape || part.dtype != first.dtype) {
        let expected = format!("dtype {}, but expert 0 has {:?}, {}", other.dtype, first.shape, first.dtype);
        return Err(wrong_shape(&other.name, &other.shape, expected));
    }
    let mut shape = first.shape.clone();
    let columns = shape.last().copied().unwrap_or_default();
    let is_matrix = shape.len() == 2 && columns > 0 && columns.is_multiple_of(widths.group as u64);
    let module = name.strip_suffix(".weight").filter(|_| is_matrix && !family.is_router(name));
    if stacked {
        shape.insert(0, parts.len() as u64);
    }
    let tensor = |name: String, dtype: &str, columns: Option<u64>, bytes_of_one: u64| {
        let mut shape = shape.clone();
        if let (Some(last), Some(columns)) = (shape.last_mut(), columns) {
            *last = columns;
        }
        let bytes = shape.iter().product::<u64>() * bytes_of_one;
        NewTensor { name, dtype: dtype.to_owned(), shape, bytes }
    };
    let of_number = numbers.block_bytes() as u64;
    let tensors = match module {
        None => vec![tensor(name.to_owned(), &first.dtype, None, of_number)],
        Some(module) => {
            let groups = Some(columns / widths.group as u64);
            vec![
                tensor(name.to_owned(), "U32", Some(columns * widths.bits as u64 / 32), 4),
                tensor(format!("{module}.scales"), &first.dtype, groups, of_number),
                tensor(format!("{module}.biases"), &first.dtype, groups, of_number),
            ]
        }
    };
    Ok(Made { tensors, parts, numbers })
}
