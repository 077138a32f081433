//! Writes the files of the folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;

use gristmill_files::gguf::WriteError;
use gristmill_files::safetensors::{self, NewTensor, Tensor};
use gristmill_kernels::format::Format;
use gristmill_model::Progress;
use serde_json::{Value, json};

use super::MlxQuantizer;
use super::affine::Coded;
use super::plan::Made;
use super::settings;
use crate::error::ConvertError;
use crate::files::{COPIED, INDEX};
use crate::mlx::Widths;
use crate::quantize::EncodeError;

/// Bytes of a file of weights, at most, unless one tensor has more; those of mlx-lm.
const MOST: u64 = 5 << 30;

/// Elements of rows that a thread quantises at once.
const PIECE: usize = 1 << 18;

type Report<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Counts the bytes of tensors that are written.
struct Reporter<'a, 'r> {
    progress: &'a mut Report<'r>,
    now: Progress,
}

impl Reporter<'_, '_> {
    fn write(&mut self, path: &Path, out: &mut impl Write, data: &[u8]) -> Result<(), ConvertError> {
        out.write_all(data).map_err(|source| at(path, source))?;
        self.now.done += data.len() as u64;
        match (self.progress)(self.now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(EncodeError::Stopped.into()),
        }
    }
}

/// Writes all files into a folder next to the output, and renames it.
pub(super) fn folder(
    quantizer: &MlxQuantizer,
    output: &Path,
    threads: usize,
    progress: &mut Report,
) -> Result<(), ConvertError> {
    if output.exists() {
        return Err(ConvertError::OutputExists(output.to_owned()));
    }
    let mut partial = output.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    fs::create_dir(&partial).map_err(|source| at(&partial, source))?;
    let written = files(quantizer, &partial, threads, progress)
        .and_then(|()| fs::rename(&partial, output).map_err(|source| at(output, source)));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(&partial);
    }
    written
}

fn at(path: &Path, source: io::Error) -> ConvertError {
    ConvertError::Write(WriteError::Path { path: path.to_owned(), source })
}

fn files(quantizer: &MlxQuantizer, folder: &Path, threads: usize, progress: &mut Report) -> Result<(), ConvertError> {
    for name in COPIED {
        let from = quantizer.folder.join(name);
        if from.is_file() {
            fs::copy(&from, folder.join(name)).map_err(|source| at(&from, source))?;
        }
    }
    let settings = Value::Object(settings::quantised(quantizer.settings.clone(), quantizer.widths));
    text(&folder.join("config.json"), &settings)?;

    let shards = shards(&quantizer.made);
    let mut map = BTreeMap::new();
    let mut report = Reporter { progress, now: Progress { done: 0, total: quantizer.bytes() } };
    for (number, made) in (1..).zip(&shards) {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            all => format!("model-{number:05}-of-{all:05}.safetensors"),
        };
        let tensors: Vec<NewTensor> = made.iter().flat_map(|made| &made.tensors).cloned().collect();
        map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), name.clone())));
        shard(quantizer, &folder.join(name), made, &tensors, threads, &mut report)?;
    }
    text(&folder.join(INDEX), &json!({"metadata": {"total_size": quantizer.bytes()}, "weight_map": map}))
}

/// Writes a JSON file.
fn text(path: &Path, value: &Value) -> Result<(), ConvertError> {
    // An object can be written.
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    let write = || File::create_new(path)?.write_all(text.as_bytes());
    write().map_err(|source| at(path, source))
}

/// Cuts the tensors into files, in order. What is made together is in one file.
fn shards(made: &[Made]) -> Vec<Vec<&Made>> {
    let mut shards = Vec::<Vec<&Made>>::new();
    let mut bytes = 0;
    for made in made {
        let own: u64 = made.tensors.iter().map(|tensor| tensor.bytes).sum();
        match shards.last_mut().filter(|_| bytes + own <= MOST) {
            Some(last) => {
                last.push(made);
                bytes += own;
            }
            None => {
                shards.push(vec![made]);
                bytes = own;
            }
        }
    }
    shards
}

/// Writes a file of weights.
fn shard(
    quantizer: &MlxQuantizer,
    path: &Path,
    made: &[&Made],
    tensors: &[NewTensor],
    threads: usize,
    report: &mut Reporter,
) -> Result<(), ConvertError> {
    let error = |source| at(path, source);
    let file = File::create_new(path).map_err(error)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.write_all(&safetensors::header(tensors, &[("format", "mlx")])).map_err(error)?;
    for made in made {
        let mut beside = Coded::default();
        for part in &made.parts {
            let data = quantizer.checkpoint.data(part);
            match made.is_coded() {
                false => report.write(path, &mut out, data)?,
                true => {
                    let coded = quantise(part, data, made.numbers, quantizer.widths, threads)?;
                    report.write(path, &mut out, &coded.codes)?;
                    beside.scales.extend(coded.scales);
                    beside.biases.extend(coded.biases);
                }
            }
            quantizer.checkpoint.done(part);
        }
        for numbers in [&beside.scales, &beside.biases] {
            report.write(path, &mut out, numbers)?;
        }
    }
    out.into_inner().map_err(|e| error(e.into_error()))?.sync_all().map_err(error)
}

/// The codes of a matrix, made by this number of threads.
fn quantise(
    tensor: &Tensor,
    data: &[u8],
    numbers: Format,
    widths: Widths,
    threads: usize,
) -> Result<Coded, ConvertError> {
    // Groups are within rows, so the order of rows and columns does not matter.
    let groups = data.len() / (widths.group * numbers.block_bytes());
    let each = groups.div_ceil(threads).max(1) * widths.group * numbers.block_bytes();
    let some = |data: &[u8]| {
        let mut coded = Coded::default();
        let mut values = vec![0.0; PIECE];
        for piece in data.chunks(PIECE * numbers.block_bytes()) {
            let values = &mut values[..piece.len() / numbers.block_bytes()];
            let decoded = numbers.decode(piece, values);
            if decoded.is_none() || !values.iter().all(|value| value.is_finite()) {
                return None;
            }
            coded.push(values, widths, numbers);
        }
        Some(coded)
    };
    let parts: Vec<Option<Coded>> = thread::scope(|scope| {
        let running: Vec<_> = data.chunks(each).map(|data| scope.spawn(move || some(data))).collect();
        running.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let mut all = Coded::default();
    for part in parts {
        let part = part.ok_or_else(|| ConvertError::NotFinite(tensor.name.clone()))?;
        all.codes.extend(part.codes);
        all.scales.extend(part.scales);
        all.biases.extend(part.biases);
    }
    Ok(all)
}
