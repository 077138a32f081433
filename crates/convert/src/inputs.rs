//! The tensors of a checkpoint that tensors of the file are made of, and what their layouts require.

use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::Format;

use super::error::ConvertError;
use super::family::{How, Layout, Rule};
use super::floats::{BlockScaled, FloatCodes, Transposed};
use super::mlx::{Affine, Mode, Scaled, Target};
use super::rows::Stored;
use super::tensors::Planner;

/// The suffix of the name of a matrix in MXFP4.
pub(super) const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";

/// The type of a matrix in FP8, and the suffixes of the names of its scales.
pub(super) const FP8: &str = "F8_E4M3";
const FP8_SCALES: [&str; 3] = ["_scale_inv", "_scale", "_weight_scale"];
/// An input of an output tensor; its shape has the outermost dimension first.
pub(super) struct Input {
    pub(super) stored: Stored,
    pub(super) format: Format,
    pub(super) shape: Vec<u64>,
}

impl<'a> Planner<'a, '_> {
    /// A tensor of the checkpoint, marked as used.
    pub(super) fn tensor(&mut self, name: &str) -> Option<&'a Tensor> {
        let tensor = self.checkpoint.tensor(name)?;
        self.used.insert(&tensor.name);
        Some(tensor)
    }

    /// Finds a matrix in codes of MLX with its scales, and biases of affine ones, and checks their shapes.
    fn mlx(&mut self, rule: &Rule, module: &str, codes: &Tensor) -> Result<Option<Input>, ConvertError> {
        let Some(mode) = self.quantization.mode(module, codes.dtype == "U32")? else { return Ok(None) };
        let (bits, group) = match mode {
            Mode::Affine(widths) => (widths.bits, widths.group),
            Mode::Floats(mode) => (mode.bits(), mode.group()),
        };
        let mut shape = codes.shape.clone();
        let per_word = bits as u64;
        let whole = |words: u64| codes.shape.len() > 1 && (words * 32).is_multiple_of(per_word);
        let Some(columns) = shape.last_mut().filter(|words| whole(**words)) else {
            let expected = format!("which is no matrix in codes of {bits} bits");
            return Err(wrong_shape(&codes.name, &codes.shape, expected));
        };
        *columns = *columns * 32 / per_word;
        let columns = *columns;
        let mut groups = shape.clone();
        if let Some(last) = groups.last_mut() {
            *last /= group as u64;
        }
        let mut beside = |name: &str| {
            let name = format!("{module}.{name}");
            let tensor = self.tensor(&name).cloned().ok_or(ConvertError::MissingTensor(name))?;
            if tensor.shape != groups {
                let expected = format!("but {module} has {columns} columns in groups of {group}");
                return Err(wrong_shape(&tensor.name, &tensor.shape, expected));
            }
            Ok(tensor)
        };
        let scales = beside("scales")?;
        let biases = matches!(mode, Mode::Affine(_)).then(|| beside("biases")).transpose()?;
        if !columns.is_multiple_of(group as u64) {
            let expected = format!("whose {columns} columns are not whole groups of {group}");
            return Err(wrong_shape(&codes.name, &codes.shape, expected));
        }
        let codes = codes.clone();
        let checkpoint = self.checkpoint;
        let target = self.quantization.target;
        let (format, stored) = match (mode, biases) {
            (Mode::Affine(widths), Some(biases)) => {
                let numbers = float(&scales)?;
                if biases.dtype != scales.dtype {
                    return Err(wrong_dtype(&biases, numbers.name()));
                }
                let affine = Affine { codes, scales, biases, numbers, widths };
                (affine.format(checkpoint, target, columns)?, Stored::Affine(Box::new(affine)))
            }
            (Mode::Floats(mode), _) if scales.dtype == "U8" => {
                let floats = FloatCodes { codes, scales, mode, outer: None, transposed: None };
                (floats.format(checkpoint, target, columns)?, Stored::Floats(Box::new(floats)))
            }
            _ => return Err(wrong_dtype(&scales, "U8")),
        };
        Ok(Some(Input { stored, format: if is_router(rule) { Format::F32 } else { format }, shape }))
    }

    /// Finds the scales of a matrix in FP8, and checks their shape.
    fn fp8(&mut self, rule: &Rule, codes: &Tensor) -> Result<Option<Input>, ConvertError> {
        let block = match self.quantization.fp8.filter(|_| codes.dtype == FP8) {
            None => return Ok(None),
            Some(Scaled::Matrix) => return self.fp8_matrices(codes, Layout::Rows).map(Some),
            Some(Scaled::Block(block)) => block,
        };
        let (stack, rows, columns) = match *codes.shape.as_slice() {
            [rows, columns] => (None, rows, columns),
            [experts, rows, columns] => (Some(experts), rows, columns),
            _ => return Err(wrong_shape(&codes.name, &codes.shape, "which is no matrix, and no stack of them")),
        };
        let scales = self.fp8_scales(codes)?;
        // In compressed-tensors other modules may have other scales.
        let is_of_rows = [1, rows].contains(&(scales.shape.iter().product::<u64>() / stack.unwrap_or(1)));
        if self.quantization.packed.is_some() && is_of_rows {
            return self.fp8_matrices(codes, Layout::Rows).map(Some);
        }
        let numbers = float(&scales)?;
        let [of_rows, of_columns] = block.map(|size| size as u64);
        // Each rank has whole blocks of its own, and so has each expert.
        let ranks = if matches!(rule.how, How::Ranked(_)) { self.ranks(codes)? } else { 1 };
        if ranks == 0 || !rows.is_multiple_of(ranks as u64) {
            return Err(wrong_shape(
                &codes.name,
                &codes.shape,
                format!("whose rows are not those of {ranks} equal ranks"),
            ));
        }
        let of_part = rows / ranks as u64;
        let mut shape = vec![ranks as u64 * of_part.div_ceil(of_rows), columns.div_ceil(of_columns)];
        stack.into_iter().for_each(|experts| shape.insert(0, experts));
        if scales.shape != shape {
            let of_ranks = if ranks > 1 { format!("of {ranks} ranks ") } else { String::new() };
            let expected = format!("but {rows} × {columns} codes {of_ranks}are in blocks of {of_rows} × {of_columns}");
            return Err(wrong_shape(&scales.name, &scales.shape, expected));
        }
        let parts = ranks * stack.unwrap_or(1) as usize;
        let columns = columns as usize;
        let rows = of_part as usize;
        let blocks =
            BlockScaled { codes: codes.clone(), scales, numbers, block, columns, parts, rows, transposed: None };
        Ok(Some(self.fp8_input(codes, blocks)))
    }

    fn fp8_scales(&mut self, codes: &Tensor) -> Result<Tensor, ConvertError> {
        let names = FP8_SCALES.map(|end| format!("{}{end}", codes.name));
        let found = names.iter().find_map(|name| self.tensor(name)).cloned();
        found.ok_or_else(|| {
            let usual = usize::from(self.quantization.packed.is_some());
            ConvertError::MissingTensor(names[usual].clone())
        })
    }

    /// Finds the scale of a matrix in FP8 or of each of its rows, or those of a stack of matrices.
    fn fp8_matrices(&mut self, codes: &Tensor, layout: Layout) -> Result<Input, ConvertError> {
        let (&[rows, columns] | &[_, rows, columns]) = codes.shape.as_slice() else {
            return Err(wrong_shape(&codes.name, &codes.shape, "which is no matrix, and no stack of them"));
        };
        let count = codes.shape.iter().product::<u64>() / (rows * columns);
        let [rows, columns] = if layout == Layout::Columns { [columns, rows] } else { [rows, columns] };
        let scales = self.fp8_scales(codes)?;
        let scales_there = scales.shape.iter().product::<u64>();
        if ![1, count, count * rows].contains(&scales_there) {
            let expected = format!(
                "but `weight_block_size` is missing, so each matrix of {}, or each row, has one scale",
                codes.name
            );
            return Err(wrong_shape(&scales.name, &scales.shape, expected));
        }
        let (rows, columns) = (rows as usize, columns as usize);
        let transposed = (layout == Layout::Columns).then_some(Transposed { inputs: columns, outputs: rows });
        // One scale may be that of all matrices.
        let of_rows = match scales_there {
            1 => rows * count as usize,
            there if there == count => rows,
            _ => 1,
        };
        let numbers = float(&scales)?;
        let block = [of_rows, columns];
        let rows = rows * count as usize;
        let blocks = BlockScaled { codes: codes.clone(), scales, numbers, block, columns, parts: 1, rows, transposed };
        Ok(self.fp8_input(codes, blocks))
    }

    fn fp8_input(&self, codes: &Tensor, blocks: BlockScaled) -> Input {
        let format = match self.quantization.target {
            _ if self.quantization.fp8_exact => Format::F32,
            Target::File => Format::BF16,
            Target::Engine => blocks.format(),
        };
        let mut shape = codes.shape.clone();
        if blocks.transposed.is_some() {
            let inputs = shape.len() - 2;
            shape[inputs..].reverse();
        }
        Input { stored: Stored::Blocks(Box::new(blocks)), format, shape }
    }

    /// Finds a tensor, or several of a quantised matrix, and checks what their layouts requires.
    pub(super) fn part(&mut self, rule: &Rule, name: &str) -> Result<Option<Input>, ConvertError> {
        let Some(tensor) = self.tensor(name) else { return Ok(None) };
        let (mut shape, owned) = (tensor.shape.clone(), tensor.clone());
        if shape.is_empty() || shape.contains(&0) {
            return Err(wrong_shape(name, &shape, "which is no vector or matrix"));
        }
        if let Some(module) = name.strip_suffix(".weight")
            && let Some(part) = self.mlx(rule, module, tensor)?
        {
            return Ok(Some(part));
        }
        if let Some(module) = name.strip_suffix(".weight")
            && rule.stored == Layout::Rows
            && let Some(mut part) = self.packed(module, tensor)?
        {
            part.format = if is_router(rule) { Format::F32 } else { part.format };
            return Ok(Some(part));
        }
        if rule.stored == Layout::Rows
            && let Some(part) = self.fp8(rule, tensor)?
        {
            return Ok(Some(part));
        }
        let part = match rule.stored {
            Layout::Rows => Input { format: float(tensor)?, shape, stored: Stored::Rows(owned) },
            Layout::Taps => {
                let (&[channels, 1, taps] | &[channels, taps, 1]) = shape.as_slice() else {
                    return Err(wrong_shape(name, &shape, "which is not a stack of taps, one channel each"));
                };
                Input { format: float(tensor)?, shape: vec![channels, taps], stored: Stored::Rows(owned) }
            }
            Layout::TapsOfChannels => {
                let (&[channels, taps] | &[channels, 1, taps]) = shape.as_slice() else {
                    return Err(wrong_shape(name, &shape, "which is not a stack of taps, one channel each"));
                };
                Input { format: float(tensor)?, shape: vec![1, channels, 1, taps], stored: Stored::Rows(owned) }
            }
            Layout::Columns => {
                let &[experts, inputs, outputs] = shape.as_slice() else {
                    return Err(wrong_shape(name, &shape, "which is no stack of matrices"));
                };
                if self.quantization.packed.is_some() && tensor.dtype == FP8 {
                    return self.fp8_matrices(tensor, Layout::Columns).map(Some);
                }
                if self.quantization.packed.is_some() && tensor.dtype == "U8" {
                    return self.packed_columns(tensor).map(Some);
                }
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

/// Whether this is the weight of a router, which is F32.
fn is_router(rule: &Rule) -> bool {
    rule.ours.ends_with("ffn_gate_inp.weight")
}

/// The format of a tensor's elements.
pub(super) fn float(tensor: &Tensor) -> Result<Format, ConvertError> {
    let known = [Format::F32, Format::F16, Format::BF16].into_iter().find(|format| format.name() == tensor.dtype);
    known.ok_or_else(|| wrong_dtype(tensor, "F32, F16, BF16"))
}

pub(super) fn wrong_dtype(tensor: &Tensor, known: &'static str) -> ConvertError {
    ConvertError::Dtype { name: tensor.name.clone(), found: tensor.dtype.clone(), known }
}

pub(super) fn wrong_shape(name: &str, found: &[u64], expected: impl Into<String>) -> ConvertError {
    ConvertError::Shape { name: name.to_owned(), found: found.to_vec(), expected: expected.into() }
}
