//! The tensors of a checkpoint that tensors of the file are made of, and what their layouts ask for.

use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::Format;

use super::error::ConvertError;
use super::family::{Layout, Rule};
use super::mlx::Affine;
use super::rows::Stored;
use super::tensors::Planner;

/// The suffix of the name of a matrix in MXFP4.
pub(super) const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";

/// An input of an output tensor; its shape has the outermost dimension first.
pub(super) struct Input {
    pub(super) stored: Stored,
    pub(super) format: Format,
    pub(super) shape: Vec<u64>,
}

impl<'a> Planner<'a, '_> {
    /// A tensor of the checkpoint, marked as used.
    fn tensor(&mut self, name: &str) -> Option<&'a Tensor> {
        let tensor = self.checkpoint.tensor(name)?;
        self.used.insert(&tensor.name);
        Some(tensor)
    }

    /// Finds a matrix in affine codes with its scales and biases, and checks their shapes.
    fn affine(&mut self, rule: &Rule, module: &str, codes: &Tensor) -> Result<Option<Input>, ConvertError> {
        let Some(widths) = self.quantization.widths(module, codes.dtype == "U32")? else { return Ok(None) };
        let mut pair = ["scales", "biases"].into_iter().map(|name| {
            let name = format!("{module}.{name}");
            self.tensor(&name).cloned().ok_or(ConvertError::MissingTensor(name))
        });
        let (Some(scales), Some(biases)) = (pair.next().transpose()?, pair.next().transpose()?) else {
            return Ok(None);
        };
        let numbers = float(&scales)?;
        if biases.dtype != scales.dtype {
            return Err(wrong_dtype(&biases, numbers.name()));
        }
        let (mut shape, bits) = (codes.shape.clone(), widths.bits as u64);
        let whole = |words: u64| codes.shape.len() > 1 && (words * 32).is_multiple_of(bits);
        let Some(columns) = shape.last_mut().filter(|words| whole(**words)) else {
            let expected = format!("which is no matrix in codes of {} bits", widths.bits);
            return Err(wrong_shape(&codes.name, &codes.shape, expected));
        };
        *columns = *columns * 32 / bits;
        let (columns, mut groups) = (*columns, shape.clone());
        if let Some(last) = groups.last_mut() {
            *last /= widths.group as u64;
        }
        if let Some(other) = [&scales, &biases].into_iter().find(|tensor| tensor.shape != groups) {
            let expected = format!("but {module} has {columns} columns in groups of {}", widths.group);
            return Err(wrong_shape(&other.name, &other.shape, expected));
        }
        if !columns.is_multiple_of(widths.group as u64) {
            let expected = format!("whose {columns} columns are not whole groups of {}", widths.group);
            return Err(wrong_shape(&codes.name, &codes.shape, expected));
        }
        let affine = Affine { codes: codes.clone(), scales, biases, numbers, widths };
        // Routers are F32.
        let router = rule.ours.ends_with("ffn_gate_inp.weight");
        let format = affine.format(self.checkpoint, self.quantization.target, columns)?;
        let format = if router { Format::F32 } else { format };
        Ok(Some(Input { stored: Stored::Affine(Box::new(affine)), format, shape }))
    }

    /// Finds a tensor, or two of MXFP4, or three of affine codes, and checks what their layout asks for.
    pub(super) fn part(&mut self, rule: &Rule, name: &str) -> Result<Option<Input>, ConvertError> {
        let Some(tensor) = self.tensor(name) else { return Ok(None) };
        let (mut shape, owned) = (tensor.shape.clone(), tensor.clone());
        if shape.is_empty() || shape.contains(&0) {
            return Err(wrong_shape(name, &shape, "which is no vector or matrix"));
        }
        if let Some(module) = name.strip_suffix(".weight")
            && let Some(part) = self.affine(rule, module, tensor)?
        {
            return Ok(Some(part));
        }
        let part = match rule.stored {
            Layout::Rows => Input { format: float(tensor)?, shape, stored: Stored::Rows(owned) },
            Layout::Taps => {
                let &[channels, 1, taps] = shape.as_slice() else {
                    return Err(wrong_shape(name, &shape, "which is no stack of taps for one channel each"));
                };
                Input { format: float(tensor)?, shape: vec![channels, taps], stored: Stored::Rows(owned) }
            }
            Layout::Columns => {
                let &[experts, inputs, outputs] = shape.as_slice() else {
                    return Err(wrong_shape(name, &shape, "which is no stack of matrices"));
                };
                let stored = Stored::Columns { tensor: owned, inputs: inputs as usize, outputs: outputs as usize };
                Input { format: float(tensor)?, shape: vec![experts, outputs, inputs], stored }
            }
            Layout::Mxfp4 => {
                let scales_name = name.strip_suffix(BLOCKS).unwrap_or(name).to_owned() + SCALES;
                let scales = self.tensor(&scales_name);
                let scales = scales.ok_or_else(|| ConvertError::MissingTensor(scales_name.clone()))?;
                if let Some(other) = [tensor, scales].into_iter().find(|tensor| tensor.dtype != "U8") {
                    return Err(wrong_dtype(other, "U8"));
                }
                let &[experts, rows, groups, 16] = shape.as_slice() else {
                    return Err(wrong_shape(name, &shape, "which is no stack of matrices in groups of 16 bytes"));
                };
                if scales.shape != [experts, rows, groups] {
                    let expected = format!("but there are {experts} × {rows} × {groups} groups of codes");
                    return Err(wrong_shape(&scales_name, &scales.shape, expected));
                }
                shape = vec![experts, rows, groups * Format::MXFP4.block_len() as u64];
                Input { format: Format::MXFP4, shape, stored: Stored::Mxfp4 { blocks: owned, scales: scales.clone() } }
            }
        };
        Ok(Some(part))
    }
}

/// The format of a tensor's elements.
fn float(tensor: &Tensor) -> Result<Format, ConvertError> {
    let known = [Format::F32, Format::F16, Format::BF16].into_iter().find(|format| format.name() == tensor.dtype);
    known.ok_or_else(|| wrong_dtype(tensor, "F32, F16, BF16"))
}

fn wrong_dtype(tensor: &Tensor, known: &'static str) -> ConvertError {
    ConvertError::Dtype { name: tensor.name.clone(), found: tensor.dtype.clone(), known }
}

pub(super) fn wrong_shape(name: &str, found: &[u64], expected: impl Into<String>) -> ConvertError {
    ConvertError::Shape { name: name.to_owned(), found: found.to_vec(), expected: expected.into() }
}
