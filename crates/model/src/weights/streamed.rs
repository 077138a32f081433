//! Tensors of experts that stay in the model's files and are read while the model runs.

use std::ops::Range;
use std::sync::Arc;

use gristmill_files::gguf::{FileReader, GgufError, GgufFile, TensorInfo};
use gristmill_kernels::format::rows::ScaledRows;
use gristmill_kernels::format::{Format, nvfp4_scaled};
use gristmill_kernels::offload::{MatrixSource, StreamedTensor};
use gristmill_kernels::weight::TensorShape;

use super::find::find;
use super::outer_scale::check_scales;
use crate::error::Result;
use crate::program::tensors::{RowOrder, TensorSpec};

/// The files of a model, opened for reads while it runs.
#[derive(Debug)]
pub(crate) struct OpenFiles(Vec<Arc<FileReader>>);

impl OpenFiles {
    pub(crate) fn new(file: &GgufFile) -> Result<Self> {
        Ok(Self(file.readers()?))
    }

    /// A tensor of experts. `scale` has a scale for each of its matrices, if the file has some.
    pub(super) fn tensor(
        &self,
        file: &GgufFile,
        needed: &TensorSpec,
        scale: Option<(&TensorInfo, Vec<f32>)>,
    ) -> Result<StreamedTensor> {
        let tensor = find(file, needed)?;
        // A tensor of the file is in one of its parts.
        let Some(reader) = self.0.get(tensor.part) else { return Err(GgufError::NotOnDisk.into()) };
        let (experts, rows, cols) = needed.matrix();
        let matrix_bytes = tensor.bytes / (experts as u64).max(1);
        let stored_rows = needed.file_rows() / experts.max(1);
        let row_bytes = matrix_bytes / (stored_rows as u64).max(1);
        // Adjacent rows are read alone, others are selected from the whole matrix.
        let (order, read) = match needed.order.as_ref().map(|order| (order, order.slice(stored_rows))) {
            None => (None, 0..matrix_bytes),
            Some((_, Some(rows))) => (None, rows.start as u64 * row_bytes..rows.end as u64 * row_bytes),
            Some((order, None)) => (Some(order.clone()), 0..matrix_bytes),
        };
        let format = if scale.is_some() { Format::NVFP4_SCALED } else { tensor.format };
        let scales = scale.map(|(info, values)| check_scales(info, &values).map(|()| values)).transpose()?;
        let reader = Arc::clone(reader);
        let start = tensor.offset;
        let row_bytes = usize::try_from(row_bytes).unwrap_or(usize::MAX);
        let layout = Stored { order, row_bytes, rows: tensor.rows, cols, scales };
        let source = Arc::new(FileMatrices { reader, start, matrix_bytes, read, layout });
        let shape = TensorShape { format, experts, rows, cols };
        Ok(StreamedTensor { name: needed.name.clone(), shape, source })
    }
}

/// The matrices of a tensor in a file.
#[derive(Debug)]
struct FileMatrices {
    reader: Arc<FileReader>,
    /// Where the first matrix starts.
    start: u64,
    matrix_bytes: u64,
    /// The bytes of a matrix that are read.
    read: Range<u64>,
    layout: Stored,
}

/// How the bytes of a matrix in the file become those that are loaded.
#[derive(Debug)]
struct Stored {
    order: Option<RowOrder>,
    row_bytes: usize,
    /// The rows start with a scale.
    rows: Option<ScaledRows>,
    cols: usize,
    /// A scale for each matrix, of NVFP4 blocks.
    scales: Option<Vec<f32>>,
}

impl MatrixSource for FileMatrices {
    fn read(&self, expert: usize, take: &mut dyn FnMut(&[u8])) -> std::result::Result<(), String> {
        let first = self.start + expert as u64 * self.matrix_bytes;
        let mut done = Ok(());
        self.reader
            .read(first + self.read.start..first + self.read.end, &mut |bytes| {
                done = self.layout.load(expert, bytes, take);
            })
            .map_err(|error| error.to_string())?;
        done
    }
}

impl Stored {
    fn load(&self, expert: usize, bytes: &[u8], take: &mut dyn FnMut(&[u8])) -> std::result::Result<(), String> {
        let ordered = self.order.as_ref().map(|order| order.apply(bytes, self.row_bytes));
        let bytes = ordered.as_deref().unwrap_or(bytes);
        let blocks = self.rows.map(|rows| rows.blocks(bytes, self.cols)).transpose();
        let blocks = blocks.map_err(|error| error.to_string())?;
        let bytes = blocks.as_deref().unwrap_or(bytes);
        match self.scales.as_ref().and_then(|scales| scales.get(expert)) {
            None => take(bytes),
            Some(&scale) => {
                let mut scaled = Vec::new();
                nvfp4_scaled::put_blocks(bytes, scale, &mut scaled);
                take(&scaled);
            }
        }
        Ok(())
    }
}
