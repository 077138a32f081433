//! Finds the tensors of a quantised matrix, and checks their types and shapes.

use std::sync::Arc;

use gristmill_files::safetensors::Tensor;

use super::integers::Integers;
use super::layout::{Layout, Packing};
use super::settings::{GptqPacking, Group, Method};
use crate::error::ConvertError;
use crate::floats::{FloatCodes, FloatMode, Transposed};
use crate::inputs::{FP8, Input, float, wrong_dtype, wrong_shape};
use crate::rows::Stored;
use crate::tensors::Planner;

/// Columns and rows of a matrix.
type Size = [u64; 2];

impl Planner<'_, '_> {
    /// The matrix of a module whose weight is this tensor, if it is quantised and no FP8 with scales in floats.
    pub(crate) fn packed(&mut self, module: &str, weight: &Tensor) -> Result<Option<Input>, ConvertError> {
        let Some(packed) = &self.quantization.packed else { return Ok(None) };
        match (packed.method, weight.dtype.as_str()) {
            (Method::Gptq { packing, ordered }, "I32") => self.gptq(module, weight, packing, ordered).map(Some),
            (Method::Awq, "I32") => self.awq(module, weight).map(Some),
            (Method::ByTensors, "I32") => self.packed_rows(module, weight).map(Some),
            (Method::ByTensors, "I8") => self.bytes(module, weight).map(Some),
            (Method::ByTensors, "U8") => self.small_floats(module, weight).map(Some),
            (Method::ByTensors, FP8) => self.mxfp8(module, weight),
            _ => Ok(None),
        }
    }

    /// A tensor of a module, which must be there.
    fn of_module(&mut self, module: &str, name: &str) -> Result<Tensor, ConvertError> {
        let name = format!("{module}.{name}");
        self.tensor(&name).cloned().ok_or(ConvertError::MissingTensor(name))
    }

    fn gptq(
        &mut self,
        module: &str,
        codes: &Tensor,
        packing: GptqPacking,
        ordered: bool,
    ) -> Result<Input, ConvertError> {
        let (scales, zeros) = (self.of_module(module, "scales")?, self.of_module(module, "qzeros")?);
        let [words, rows] = matrix(codes)?;
        let [groups, of_zeros] = matrix(&zeros)?;
        let bits = self.bits_of(codes, &zeros, of_zeros * 32, rows)?;
        if !(words * 32).is_multiple_of(bits) {
            return Err(wrong_shape(&codes.name, &codes.shape, format!("which is no matrix in codes of {bits} bits")));
        }
        let columns = words * 32 / bits;
        let group = self.group_of(&scales, columns, groups)?;
        let name = format!("{module}.g_idx");
        let order = match self.tensor(&name).cloned() {
            Some(order) => self.order(&order, columns, groups, group)?,
            None if ordered => return Err(ConvertError::MissingTensor(name)),
            None => None,
        };
        let packing = match packing {
            GptqPacking::Planes if columns.is_multiple_of(32) && rows.is_multiple_of(32) => Packing::Planes,
            GptqPacking::Planes => {
                let expected = "whose rows and columns in planes are not multiples of 32";
                return Err(wrong_shape(&codes.name, &[rows, columns], expected));
            }
            other => Packing::Inputs { less_one: other == GptqPacking::LessOne },
        };
        self.integers(codes, (scales, [groups, rows]), Some(zeros), packing, bits, [rows, columns], group, order)
    }

    fn awq(&mut self, module: &str, codes: &Tensor) -> Result<Input, ConvertError> {
        // Rows that are packed together.
        const TOGETHER: u64 = 8;
        let (scales, zeros) = (self.of_module(module, "scales")?, self.of_module(module, "qzeros")?);
        let ([columns, words], [_, rows]) = (matrix(codes)?, matrix(&scales)?);
        let [groups, of_zeros] = matrix(&zeros)?;
        let bits = self.bits_of(codes, &zeros, of_zeros * 32, rows)?;
        if words * 32 != rows * bits || !rows.is_multiple_of(TOGETHER) {
            let expected = format!("but {} has {rows} rows, in codes of {bits} bits", scales.name);
            return Err(wrong_shape(&codes.name, &codes.shape, expected));
        }
        let group = self.group_of(&scales, columns, groups)?;
        self.integers(codes, (scales, [groups, rows]), Some(zeros), Packing::Awq, bits, [rows, columns], group, None)
    }

    /// `weight_packed` of compressed-tensors.
    fn packed_rows(&mut self, module: &str, codes: &Tensor) -> Result<Input, ConvertError> {
        let (scales, shape) = (self.of_module(module, "weight_scale")?, self.of_module(module, "weight_shape")?);
        let [of_codes, words] = matrix(codes)?;
        let [rows, columns] = self.shape_of(&shape)?;
        let widths = self.quantization.packed.as_ref().map(|packed| packed.widths.as_slice()).unwrap_or_default();
        let bits = widths.iter().map(|&bits| bits as u64).find(|bits| (columns * bits).div_ceil(32) == words);
        let Some(bits) = bits.filter(|bits| (1..=8).contains(bits) && rows == of_codes) else {
            let expected = format!("but {} says {rows} × {columns}, in codes of {widths:?} bits", shape.name);
            return Err(wrong_shape(&codes.name, &codes.shape, expected));
        };
        let [_, groups] = matrix(&scales)?;
        let zeros = self.tensor(&format!("{module}.weight_zero_point")).cloned();
        if let Some(zeros) = &zeros
            && zeros.shape != [(rows * bits).div_ceil(32), groups]
        {
            let expected = format!("but {rows} zero points of {bits} bits for each of {groups} groups are packed");
            return Err(wrong_shape(&zeros.name, &zeros.shape, expected));
        }
        let group = self.group_of(&scales, columns, groups)?;
        let order = match self.tensor(&format!("{module}.weight_g_idx")).cloned() {
            // Programs write −1 where groups are consecutive.
            Some(order) if self.checkpoint.data(&order).iter().all(|&byte| byte == 0xff) => None,
            Some(order) => self.order(&order, columns, groups, group)?,
            None => None,
        };
        self.integers(codes, (scales, [rows, groups]), zeros, Packing::Rows, bits, [rows, columns], group, order)
    }

    /// `weight` in signed bytes, as compressed-tensors has it for activations in eight bits.
    fn bytes(&mut self, module: &str, codes: &Tensor) -> Result<Input, ConvertError> {
        let scales = self.of_module(module, "weight_scale")?;
        let [rows, columns] = matrix(codes)?;
        let groups = scales.shape.iter().product::<u64>() / rows;
        let zeros = self.tensor(&format!("{module}.weight_zero_point")).cloned();
        if let Some(zeros) = zeros.as_ref().filter(|zeros| zeros.shape != scales.shape || zeros.dtype != "I8") {
            return Err(wrong_shape(&zeros.name, &zeros.shape, format!("but {} has other scales", scales.name)));
        }
        let group = self.group_of(&scales, columns, groups)?;
        // Scales of rows may be a vector.
        let shape = if scales.shape == [rows] { vec![rows] } else { vec![rows, groups] };
        check_shape(&scales, &shape, [rows, columns])?;
        let scales = Tensor { shape: vec![rows, groups], ..scales };
        self.integers(codes, (scales, [rows, groups]), zeros, Packing::Bytes, 8, [rows, columns], group, None)
    }

    /// The matrix, after the shapes of scales and zero points are checked.
    #[allow(clippy::too_many_arguments)]
    fn integers(
        &mut self,
        codes: &Tensor,
        (scales, shape): (Tensor, Size),
        zeros: Option<Tensor>,
        packing: Packing,
        bits: u64,
        [rows, columns]: Size,
        group: u64,
        order: Option<Arc<[u32]>>,
    ) -> Result<Input, ConvertError> {
        check_shape(&scales, &shape, [rows, columns])?;
        let integer = |tensor: &&Tensor| !["I32", "I8"].contains(&tensor.dtype.as_str());
        if let Some(other) = zeros.as_ref().filter(integer) {
            return Err(wrong_dtype(other, "I32"));
        }
        let scales_by_row = matches!(packing, Packing::Rows | Packing::Bytes);
        let groups = shape[usize::from(scales_by_row)] as usize;
        let numbers = float(&scales)?;
        let layout = Layout { packing, bits: bits as usize, rows: rows as usize, columns: columns as usize, groups };
        let integers = Integers {
            codes: codes.clone(),
            scales,
            zeros,
            numbers,
            layout,
            scales_by_row,
            group: group as usize,
            order,
            columns: None,
            rows: None,
        };
        let format = integers.format(self.checkpoint, self.quantization.target)?;
        Ok(Input { stored: Stored::Integers(Box::new(integers)), format, shape: vec![rows, columns] })
    }

    /// The bits of codes whose zero points of `rows` rows have so many bits.
    fn bits_of(&self, codes: &Tensor, zeros: &Tensor, of_zeros: u64, rows: u64) -> Result<u64, ConvertError> {
        let bits = of_zeros / rows;
        let module = codes.name.rsplit_once('.').map_or("", |(module, _)| module);
        let stated = self.quantization.packed.as_ref();
        let stated = stated.and_then(|packed| packed.modules.get(module).copied().or(packed.bits));
        let expected = stated.map_or(bits, |bits| bits as u64);
        if of_zeros != expected * rows || !(1..=8).contains(&expected) {
            let rows = format!("{rows} rows of {} in codes of {expected} bits", codes.name);
            return Err(wrong_shape(&zeros.name, &zeros.shape, format!("but there are {rows}")));
        }
        Ok(expected)
    }

    /// The columns of a group, of which a row has `groups`.
    fn group_of(&self, scales: &Tensor, columns: u64, groups: u64) -> Result<u64, ConvertError> {
        let stated = self.quantization.packed.as_ref().and_then(|packed| packed.group);
        let group = match stated {
            Some(Group::Of(size)) => size as u64,
            Some(Group::Row) => columns,
            None if groups > 0 && columns.is_multiple_of(groups) => columns / groups,
            None => 0,
        };
        if group == 0 || columns.div_ceil(group) != groups {
            let size = if group == 0 { String::new() } else { format!(" of {group}") };
            let expected = format!("but {columns} columns are not {groups} groups{size}");
            return Err(wrong_shape(&scales.name, &scales.shape, expected));
        }
        Ok(group)
    }

    /// The group of each column, unless they are consecutive.
    fn order(&self, order: &Tensor, columns: u64, groups: u64, group: u64) -> Result<Option<Arc<[u32]>>, ConvertError> {
        if order.dtype != "I32" {
            return Err(wrong_dtype(order, "I32"));
        }
        if order.shape != [columns] {
            return Err(wrong_shape(&order.name, &order.shape, format!("but there are {columns} columns")));
        }
        let (numbers, _) = self.checkpoint.data(order).as_chunks::<4>();
        let numbers: Vec<u32> = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        if let Some(other) = numbers.iter().find(|&&of| u64::from(of) >= groups) {
            let expected = format!("but has group {}, and there are {groups} groups", other.cast_signed());
            return Err(wrong_shape(&order.name, &order.shape, expected));
        }
        let consecutive = numbers.iter().enumerate().all(|(column, &of)| column as u64 / group == u64::from(of));
        Ok((!consecutive).then(|| numbers.into()))
    }

    /// The two numbers of `weight_shape`.
    fn shape_of(&self, shape: &Tensor) -> Result<Size, ConvertError> {
        let data = self.checkpoint.data(shape);
        let numbers: Option<Vec<u64>> = match shape.dtype.as_str() {
            "I64" => data.as_chunks().0.iter().map(|&bytes| u64::try_from(i64::from_le_bytes(bytes)).ok()).collect(),
            "I32" => data.as_chunks().0.iter().map(|&bytes| u64::try_from(i32::from_le_bytes(bytes)).ok()).collect(),
            _ => return Err(wrong_dtype(shape, "I64, I32")),
        };
        // Products of both fit 64 bits.
        match numbers.as_deref() {
            Some(&[rows, columns]) if [rows, columns].iter().all(|n| (1..1 << 28).contains(n)) => Ok([rows, columns]),
            _ => Err(wrong_shape(&shape.name, &shape.shape, "whose two numbers are no shape of a matrix")),
        }
    }

    /// Codes of four bits that are floats: NVFP4 with scales of 16 columns in FP8, or MXFP4 with scales of 32 in bytes.
    fn small_floats(&mut self, module: &str, codes: &Tensor) -> Result<Input, ConvertError> {
        let scales = self.of_module(module, "weight_scale")?;
        let [rows, bytes] = matrix(codes)?;
        let columns = bytes * 2;
        let mode = match scales.dtype.as_str() {
            FP8 => FloatMode::Nvfp4,
            "U8" | "F8_E8M0" => FloatMode::Mxfp4,
            _ => return Err(wrong_dtype(&scales, "F8_E4M3, U8, F8_E8M0")),
        };
        let outer = if mode == FloatMode::Nvfp4 { Some(self.outer_scale(module)?) } else { None };
        self.floats(codes, scales, mode, outer, [rows, columns])
    }

    /// A stack of matrices in NVFP4, column after column.
    pub(crate) fn packed_columns(&mut self, codes: &Tensor) -> Result<Input, ConvertError> {
        let mode = FloatMode::Nvfp4;
        let &[count, bytes, rows] = codes.shape.as_slice() else {
            return Err(wrong_shape(&codes.name, &codes.shape, "which is no stack of matrices"));
        };
        let columns = 2 * bytes;
        let group = mode.group() as u64;
        let name = format!("{}_weight_scale", codes.name);
        let scales = self.tensor(&name).cloned().ok_or(ConvertError::MissingTensor(name))?;
        if scales.dtype != FP8 {
            return Err(wrong_dtype(&scales, FP8));
        }
        if !columns.is_multiple_of(group) || scales.shape != [count, columns / group, rows] {
            let expected = format!("but {count} × {columns} × {rows} codes are in groups of {group} inputs");
            return Err(wrong_shape(&scales.name, &scales.shape, expected));
        }
        let outer = Some(self.number(&format!("{}_weight_scale_2", codes.name))?);
        let transposed = Some(Transposed { inputs: columns as usize, outputs: rows as usize });
        let floats = FloatCodes { codes: codes.clone(), scales, mode, outer, transposed };
        let format = floats.format(self.checkpoint, self.quantization.target, columns)?;
        Ok(Input { stored: Stored::Floats(Box::new(floats)), format, shape: vec![count, rows, columns] })
    }

    /// MXFP8: numbers as those of FP8, with scales that are bytes.
    fn mxfp8(&mut self, module: &str, codes: &Tensor) -> Result<Option<Input>, ConvertError> {
        let name = format!("{module}.weight_scale");
        let Some(scales) = self.checkpoint.tensor(&name).filter(|scales| ["U8", "F8_E8M0"].contains(&&*scales.dtype))
        else {
            return Ok(None);
        };
        self.tensor(&name);
        self.floats(codes, scales.clone(), FloatMode::Mxfp8, None, matrix(codes)?).map(Some)
    }

    fn floats(
        &mut self,
        codes: &Tensor,
        scales: Tensor,
        mode: FloatMode,
        outer: Option<f32>,
        [rows, columns]: Size,
    ) -> Result<Input, ConvertError> {
        let group = mode.group() as u64;
        if !columns.is_multiple_of(group) {
            let expected = format!("whose {columns} columns are not whole groups of {group}");
            return Err(wrong_shape(&codes.name, &codes.shape, expected));
        }
        check_shape(&scales, &[rows, columns / group], [rows, columns])?;
        let floats = FloatCodes { codes: codes.clone(), scales, mode, outer, transposed: None };
        let format = floats.format(self.checkpoint, self.quantization.target, columns)?;
        Ok(Input { stored: Stored::Floats(Box::new(floats)), format, shape: vec![rows, columns] })
    }

    /// The scale of a matrix in NVFP4. compressed-tensors stores its reciprocal.
    fn outer_scale(&mut self, module: &str) -> Result<f32, ConvertError> {
        let names = ["weight_scale_2", "weight_global_scale"].map(|name| format!("{module}.{name}"));
        let found = names.iter().position(|name| self.checkpoint.tensor(name).is_some()).unwrap_or(1);
        let number = self.number(&names[found])?;
        let outer = if found == 0 { number } else { 1.0 / number };
        if !outer.is_finite() { Err(ConvertError::NotFinite(names[found].clone())) } else { Ok(outer) }
    }

    /// The only number of a tensor.
    fn number(&mut self, name: &str) -> Result<f32, ConvertError> {
        let scale = self.tensor(name).cloned().ok_or_else(|| ConvertError::MissingTensor(name.to_owned()))?;
        let mut number = [f32::NAN];
        if scale.shape.iter().product::<u64>() != 1
            || float(&scale)?.decode(self.checkpoint.data(&scale), &mut number).is_none()
        {
            return Err(wrong_shape(&scale.name, &scale.shape, "which is not one number"));
        }
        if !number[0].is_finite() { Err(ConvertError::NotFinite(scale.name)) } else { Ok(number[0]) }
    }
}

/// The shape of a matrix. Its bits fit 64 bits.
fn matrix(tensor: &Tensor) -> Result<Size, ConvertError> {
    match *tensor.shape.as_slice() {
        [rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
        _ => Err(wrong_shape(&tensor.name, &tensor.shape, "which is no matrix")),
    }
}

fn check_shape(scales: &Tensor, shape: &[u64], [rows, columns]: Size) -> Result<(), ConvertError> {
    if scales.shape == shape {
        return Ok(());
    }
    Err(wrong_shape(&scales.name, &scales.shape, format!("expected {shape:?} for {rows} rows of {columns} columns")))
}
