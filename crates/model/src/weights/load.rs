//! Loads the weights of a program onto a device.

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::format::Format;
use gristmill_kernels::offload::StreamedTensor;
use gristmill_kernels::tensor::{Buffer, DeviceId};
use gristmill_kernels::weight::{Location, TensorView, Weight};

use super::cut::{cut, part};
use super::find::find;
use super::loaded::Weights;
use super::outer_scale::{scale_of, with_scales};
use super::streamed::OpenFiles;
use super::transposed::transposed;
use crate::error::{Error, Result};
use crate::program::tensors::{MatrixSpec, TensorSpec, Tensors, VectorSpec};

/// Loads all weights. `progress` gets the bytes of each tensor read from the file; its error ends loading.
pub(crate) fn load(
    file: &GgufFile,
    tensors: &Tensors,
    backend: &Backend,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Weights> {
    let is_streamed = tensors.matrices.iter().any(|matrix| matrix.location == Location::File);
    let files = if is_streamed { Some(OpenFiles::new(file)?) } else { None };
    let mut load = Load { file, files, backend, progress };
    let Tensors { rope_factors, long_rope_factors, .. } = *tensors;
    Ok(Weights {
        matrices: tensors.matrices.iter().map(|matrix| load.matrix(matrix)).collect::<Result<_>>()?,
        vectors: tensors.vectors.iter().map(|vector| load.vector(vector)).collect::<Result<_>>()?,
        // A tensor of the needed shape has an element.
        scalars: tensors
            .scalars
            .iter()
            .map(|tensor| Ok(load.values(std::slice::from_ref(tensor))?.first().copied().unwrap_or(1.0)))
            .collect::<Result<_>>()?,
        orders: tensors.orders.iter().map(|order| load.order(order)).collect::<Result<_>>()?,
        rope_factors,
        long_rope_factors,
    })
}

struct Load<'a> {
    file: &'a GgufFile,
    /// The files, if experts stay in them.
    files: Option<OpenFiles>,
    backend: &'a Backend,
    progress: &'a mut dyn FnMut(u64) -> Result<()>,
}

impl Load<'_> {
    fn view(&self, needed: &TensorSpec) -> Result<TensorView> {
        let tensor = find(self.file, needed)?;
        let (all, rows, cols) = needed.whole_matrix();
        // The experts of a rank are adjacent, so no others are read.
        let own = needed.cut.experts.clone().unwrap_or(0..all);
        let (experts, bytes) = (own.len(), self.file.load(tensor)?);
        let (bytes, stored_rows) = match &needed.cut.experts {
            None => (bytes, needed.file_rows()),
            Some(own) => {
                let of_expert = bytes.as_slice().len() / all.max(1);
                let rows = needed.file_rows() / all.max(1) * experts;
                (part(bytes, own.start * of_expert..own.end * of_expert), rows)
            }
        };
        let bytes = match &needed.order {
            None => bytes,
            Some(order) => {
                let row = bytes.as_slice().len() / stored_rows.max(1);
                match order.slice(stored_rows) {
                    Some(rows) => part(bytes, rows.start * row..rows.end * row),
                    None => order.apply(bytes.as_slice(), row).into(),
                }
            }
        };
        let (stored, bytes) = match scale_of(self.file, needed)? {
            None => (tensor.format, bytes),
            Some(scale) => {
                let values = self.decoded(&TensorSpec::new(scale.name.clone(), &[all]))?;
                (Format::NVFP4_SCALED, with_scales(bytes.as_slice(), scale, &values[own])?.into())
            }
        };
        if !needed.is_transposed() {
            let view = TensorView { name: needed.name.clone(), format: stored, experts, rows, cols, bytes };
            return cut(view, &needed.cut);
        }
        let view = match needed.by_channel {
            Some(joined) => {
                let view = TensorView { name: needed.name.clone(), format: stored, experts, rows, cols, bytes };
                view.check()?;
                // Each row is a matrix to be transposed.
                TensorView { experts: rows, rows: cols / joined.max(1), cols: joined, ..view }
            }
            None => {
                let view =
                    TensorView { name: needed.name.clone(), format: stored, experts, rows: cols, cols: rows, bytes };
                view.check()?;
                view
            }
        };
        let format = needed.loaded_format(stored);
        let bytes = transposed(&view, needed.loaded_format(stored)).into();
        Ok(TensorView { format, experts, rows, cols, bytes, ..view })
    }

    /// The values of a tensor.
    fn decoded(&self, needed: &TensorSpec) -> Result<Vec<f32>> {
        let view = self.view(needed)?;
        view.check()?;
        let mut values = vec![0.0; view.rows * view.cols];
        // Checked: the bytes are exactly these values.
        view.format.decode(view.bytes.as_slice(), &mut values);
        Ok(values)
    }

    fn done(&mut self, tensors: &[TensorSpec]) -> Result<()> {
        for (index, needed) in tensors.iter().enumerate() {
            // A tensor that serves twice is read once.
            if tensors[..index].iter().any(|before| before.name == needed.name) {
                continue;
            }
            let (tensor, scale) = (find(self.file, needed)?, scale_of(self.file, needed)?);
            for tensor in [Some(tensor), scale].into_iter().flatten() {
                self.file.advise_done(tensor);
                (self.progress)(needed.part_of(tensor.bytes))?;
            }
        }
        Ok(())
    }

    /// The values of tensors, one after another.
    fn values(&mut self, tensors: &[TensorSpec]) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for needed in tensors {
            values.extend(self.decoded(needed)?);
        }
        self.done(tensors)?;
        Ok(values)
    }

    fn upload(&self, values: &[f32]) -> Result<Buffer<f32>> {
        let mut buffer = self.backend.alloc::<f32>(values.len(), "a vector of weights")?;
        self.backend.upload(values, &mut buffer)?;
        Ok(buffer)
    }

    fn matrix(&mut self, matrix: &MatrixSpec) -> Result<Weight> {
        let weight = match (matrix.location, &self.files) {
            (Location::File, Some(files)) => {
                let streamed = |needed| self.streamed(files, needed);
                let tensors = matrix.tensors.iter().map(streamed).collect::<Result<Vec<_>>>()?;
                self.backend.offload().prepare_streamed(&tensors, matrix.role, matrix.slots)?
            }
            (Location::Host, _) => {
                self.backend.offload().prepare_on_host(&self.views(matrix)?, matrix.role, matrix.slots)?
            }
            (Location::Device | Location::File, _) => self.backend.prepare(&self.views(matrix)?, matrix.role)?,
        };
        self.done(&matrix.tensors)?;
        Ok(weight)
    }

    fn views(&self, matrix: &MatrixSpec) -> Result<Vec<TensorView>> {
        let mut views = matrix.tensors.iter().map(|needed| self.view(needed)).collect::<Result<Vec<_>>>()?;
        if matrix.is_copied && self.backend.device() == DeviceId::Cpu {
            views.iter_mut().for_each(|view| view.bytes = view.bytes.as_slice().to_vec().into());
        }
        Ok(views)
    }

    fn streamed(&self, files: &OpenFiles, needed: &TensorSpec) -> Result<StreamedTensor> {
        let (experts, _, _) = needed.matrix();
        let scale = match scale_of(self.file, needed)? {
            None => None,
            Some(scale) => Some((scale, self.decoded(&TensorSpec::new(scale.name.clone(), &[experts]))?)),
        };
        files.tensor(self.file, needed, scale)
    }

    /// An order of columns, which all tensors have.
    fn order(&mut self, tensors: &[TensorSpec]) -> Result<Buffer<u32>> {
        let mut order: Option<Vec<u32>> = None;
        for needed in tensors {
            let values = self.decoded(needed)?;
            let columns: Vec<u32> = values.iter().map(|&value| value as u32).collect();
            let mut sorted = values.clone();
            sorted.sort_unstable_by(f32::total_cmp);
            let name = || needed.name.clone();
            if sorted.iter().enumerate().any(|(column, &value)| value != column as f32) {
                return Err(Error::ColumnOrder { name: name(), problem: "is not each column once" });
            }
            if order.replace(columns.clone()).is_some_and(|before| before != columns) {
                return Err(Error::ColumnOrder { name: name(), problem: "differs within a matrix" });
            }
        }
        self.done(tensors)?;
        let order = order.unwrap_or_default();
        let mut buffer = self.backend.alloc::<u32>(order.len(), "an order of columns")?;
        self.backend.upload(&order, &mut buffer)?;
        Ok(buffer)
    }

    fn vector(&mut self, vector: &VectorSpec) -> Result<Buffer<f32>> {
        let mut values = match vector {
            VectorSpec::Repeated { values, count } => values.repeat(*count),
            VectorSpec::Tensors(_) | VectorSpec::Scaled(..) => self.values(vector.tensors())?,
        };
        if let VectorSpec::Scaled(_, factor) = vector {
            values.iter_mut().for_each(|value| *value *= factor);
        }
        self.upload(&values)
    }
}
