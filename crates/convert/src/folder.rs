//! Opens a folder as a model that runs, without writing a file: tensors are views of the folder's files where these
//! have them as they are needed, and are made when they are loaded otherwise.

use std::error::Error;
use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use gristmill_files::gguf::{GgufFile, TensorSource};
use gristmill_kernels::format::{Format, nvfp4, nvfp4_scaled};
use gristmill_transcode::Transcoder;

use super::checkpoint::Checkpoint;
use super::error::ConvertError;
use super::mlx::Target;
use super::rows::{RowOrder, RowPlan, Stored};
use super::tensors::{OutputTensor, Source};
use super::{ConvertOptions, read};

/// Bytes of rows that are gathered at once by a thread.
const GATHERED: usize = 1 << 16;
/// Tensors with fewer elements are made by one thread.
const SMALL: usize = 1 << 16;
/// Bytes at each end of a tensor's data that tell it from others.
const SAMPLE: usize = 4 << 10;

/// Whether a path is a folder with `config.json`, which [`open_folder`] opens.
pub fn is_model_folder(path: &Path) -> bool {
    path.is_dir() && path.join("config.json").is_file()
}

/// Opens a folder as Hugging Face publishes models, or as MLX quantises them, as a model that runs: see
/// [`gristmill_model::Model::from_file`]. Tensors keep their format, or get the format of `options.mix`; vectors and
/// routers are F32. `threads` convert tensors that have affine codes, other formats, or rows in another order. Also
/// returns notes for the user.
///
/// It blocks: it reads the folder's settings, its vocabulary and the headers of its files. The files must not change while
/// the model is in use.
///
/// # Errors
/// [`ConvertError`] names the file, and the key or tensor. `options.mix` with a folder that MLX quantised is refused.
pub fn open_folder(
    folder: &Path,
    options: &ConvertOptions,
    threads: usize,
) -> Result<(GgufFile, Vec<String>), ConvertError> {
    let model = read(folder, options, Target::Engine)?;
    let formats = model.tensors.iter().map(|tensor| tensor.to).collect();
    let source = FolderSource { checkpoint: model.checkpoint, tensors: model.made, formats, threads: threads.max(1) };
    Ok((model.header.with_source(Arc::new(source)), model.notes))
}

/// The tensors of a folder.
pub(super) struct FolderSource {
    pub(super) checkpoint: Checkpoint,
    pub(super) tensors: Vec<OutputTensor>,
    /// The format that each is loaded in.
    pub(super) formats: Vec<Format>,
    pub(super) threads: usize,
}

impl Debug for FolderSource {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "FolderSource({} tensors)", self.tensors.len())
    }
}

impl FolderSource {
    fn tensor(&self, tensor: usize) -> Option<(&OutputTensor, Format)> {
        self.tensors.get(tensor).zip(self.formats.get(tensor).copied())
    }

    /// Rows of several tensors, one after another, in `format`.
    fn gather(&self, parts: &[Stored], rows: &RowPlan, format: Format) -> Vec<u8> {
        // Rows of vectors, of one element, are floats.
        let row = format.row_bytes(rows.columns).unwrap_or_default().max(1);
        let all = parts.len() * rows.count;
        let threads = if all * rows.columns < SMALL { 1 } else { self.threads };
        let each = all.div_ceil(threads).max(1);
        let mut out = vec![0; all * row];
        thread::scope(|scope| {
            for (number, out) in out.chunks_mut(each * row).enumerate() {
                let mut gather = move || self.gather_some(parts, rows, format, number * each, row, out);
                if threads == 1 {
                    gather();
                } else {
                    scope.spawn(gather);
                }
            }
        });
        out
    }

    /// The same for rows from `first` on, counted over all parts, of `row` bytes each.
    fn gather_some(&self, parts: &[Stored], rows: &RowPlan, format: Format, first: usize, row: usize, out: &mut [u8]) {
        let mut gathered = Vec::new();
        let mut at = first;
        let most = (GATHERED / row).max(1);
        let mut left = out;
        while !left.is_empty() {
            let (part, start) = (at / rows.count.max(1), at % rows.count.max(1));
            let Some(stored) = parts.get(part) else { return };
            let count = most.min(rows.count - start).min(left.len() / row).max(1);
            stored.gather(&self.checkpoint, rows, start..start + count, format, &mut gathered);
            let Some((some, rest)) = left.split_at_mut_checked(gathered.len()) else { return };
            some.copy_from_slice(&gathered);
            (left, at) = (rest, at + count);
        }
    }
}

/// Blocks of NVFP4 with the scale of each matrix: the values that a file has, see [`crate::encode`].
fn scaled(
    transcoder: &Transcoder,
    from: Format,
    data: &[u8],
    matrices: u64,
) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let (mut made, mut blocks) = (Vec::new(), Vec::new());
    for (number, matrix) in data.chunks(data.len().div_ceil(matrices as usize).max(1)).enumerate() {
        let elements = matrix.len() / from.block_bytes() * from.block_len();
        let scale = nvfp4::outer_scale(transcoder.largest(from, matrix));
        blocks.resize(Format::NVFP4.row_bytes(elements).unwrap_or_default(), 0);
        let divided = transcoder.transcode_divided(from, matrix, scale, Format::NVFP4, &mut blocks);
        divided.map_err(|error| error.after(number * elements))?;
        nvfp4_scaled::put_blocks(&blocks, scale, &mut made);
    }
    Ok(made)
}

impl TensorSource for FolderSource {
    fn mapped(&self, tensor: usize) -> Option<&[u8]> {
        let (tensor, to) = self.tensor(tensor)?;
        match &tensor.source {
            Source::Values(values) if to == Format::F32 => Some(bytemuck::cast_slice(values)),
            Source::Tensors { parts, format, rows } if *format == to && rows.order == RowOrder::Same => {
                match &parts[..] {
                    [Stored::Rows(data)] => Some(self.checkpoint.data(data)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn make(&self, tensor: usize) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        let Some((tensor, to)) = self.tensor(tensor) else { return Ok(Vec::new()) };
        let data = match &tensor.source {
            Source::Values(values) => bytemuck::cast_slice(values).to_vec(),
            Source::Tensors { parts, format, rows } => self.gather(parts, rows, *format),
        };
        let from = tensor.format();
        if from == to {
            return Ok(data);
        }
        let elements = data.len() / from.block_bytes() * from.block_len();
        let threads = if elements < SMALL { 1 } else { self.threads };
        let transcoder = Transcoder::new(threads)?;
        if to == Format::NVFP4_SCALED {
            return scaled(&transcoder, from, &data, tensor.shape.iter().skip(2).product());
        }
        let mut made = vec![0; to.row_bytes(elements).unwrap_or_default()];
        transcoder.transcode(from, &data, to, &mut made)?;
        Ok(made)
    }

    fn done(&self, tensor: usize) {
        if let Some((OutputTensor { source: Source::Tensors { parts, .. }, .. }, _)) = self.tensor(tensor) {
            parts.iter().for_each(|part| part.done(&self.checkpoint));
        }
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.checkpoint.files().map(Path::to_owned).collect()
    }

    fn file_bytes(&self) -> u64 {
        self.checkpoint.bytes()
    }

    fn sample(&self, take: &mut dyn FnMut(&[u8])) {
        for tensor in self.checkpoint.tensors() {
            let data = self.checkpoint.data(tensor);
            take(format!("{} {} {:?}", tensor.name, tensor.dtype, tensor.shape).as_bytes());
            take(&data[..data.len().min(SAMPLE)]);
            take(&data[data.len().saturating_sub(SAMPLE)..]);
        }
    }
}
