//! Plans and writes a quantised file.

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use gristmill_files::gguf::{ALIGNMENT_KEY, GgufFile, GgufWriter, write_atomically};
use gristmill_kernels::format::Format;
use gristmill_model::Progress;
use gristmill_transcode::Transcoder;

use super::choose::choose;
use super::error::QuantizeError;
use super::facts::Facts;
use super::keep::Keep;
use super::mix::Mix;
use super::outer::scale_of;
use super::pieces::PieceWriter;

/// The version of the quantised formats, as llama.cpp counts it (`GGML_QNT_VERSION`).
pub const QUANTIZATION_VERSION: u32 = 2;
/// The key of [`QUANTIZATION_VERSION`].
pub const QUANTIZATION_VERSION_KEY: &str = "general.quantization_version";
/// The key of [`Mix::file_type`].
pub const FILE_TYPE_KEY: &str = "general.file_type";

/// One tensor of the output.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// Its format in the input.
    pub from: Format,
    /// Its format in the output.
    pub to: Format,
    /// The format that was requested, if its rows are not whole blocks of that.
    pub instead_of: Option<Format>,
    /// Its size in the output, in bytes, with its scales.
    pub bytes: u64,
    /// Numbers of the tensor that follows it in the file, `X.scale` of an NVFP4 weight `X.weight`: one, or one for each
    /// expert. 0 if there is no such tensor.
    pub scales: u64,
}

impl Planned {
    /// A tensor with this many elements, which are whole blocks of `to`.
    pub(crate) fn new(name: &str, from: Format, to: Format, instead_of: Option<Format>, elements: u64) -> Planned {
        let bytes = usize::try_from(elements).ok().and_then(|n| to.row_bytes(n)).unwrap_or_default() as u64;
        Planned { name: name.to_owned(), from, to, instead_of, bytes, scales: 0 }
    }

    /// The same tensor with this many scales.
    pub(crate) fn with_scales(self, scales: u64) -> Planned {
        Planned { scales, bytes: self.bytes + 4 * scales, ..self }
    }

    /// Whether an already quantised tensor is quantised again, which adds a second rounding error.
    pub fn is_requantised(&self) -> bool {
        self.from != self.to && !self.from.is_float() && !self.to.is_float()
    }
}

/// A model with the choice of its new formats.
#[derive(Debug)]
pub struct Quantizer<'a> {
    file: &'a GgufFile,
    tensors: Vec<Planned>,
    plan: GgufWriter,
}

impl<'a> Quantizer<'a> {
    /// Chooses the format of each tensor. Metadata is copied but for `general.file_type`,
    /// `general.quantization_version` and what says that a model is split: the output is one file.
    ///
    /// # Errors
    /// If a pattern of `keep` matches nothing, a name is longer than may be written, or a weight has a scale in another
    /// tensor and would get another format.
    pub fn new(file: &'a GgufFile, mix: Mix, keep: &[Keep]) -> Result<Quantizer<'a>, QuantizeError> {
        let metadata = file.metadata();
        let shapes: Vec<(&str, &[u64])> = file.tensors().iter().map(|t| (t.name.as_str(), &t.shape[..])).collect();
        let choices = choose(&mix, keep, &Facts::read(metadata), &shapes)?;

        let mut plan = GgufWriter::new();
        let mut set =
            vec![(FILE_TYPE_KEY, mix.file_type().into()), (QUANTIZATION_VERSION_KEY, QUANTIZATION_VERSION.into())];
        for (key, value) in metadata.iter().filter(|(key, _)| *key != ALIGNMENT_KEY && !key.starts_with("split.")) {
            let own = set.iter().position(|(own, _)| *own == key).map(|i| set.remove(i).1);
            plan.set(key, own.unwrap_or_else(|| value.clone()))?;
        }
        for (key, value) in set {
            plan.set(key, value)?;
        }
        let names: HashSet<&str> = shapes.iter().map(|(name, _)| *name).collect();
        let mut tensors = Vec::with_capacity(choices.len());
        for (tensor, choice) in file.tensors().iter().zip(choices) {
            let to = choice.format.unwrap_or(tensor.format);
            if to != tensor.format && tensor.format == Format::NVFP4 {
                let scale = tensor.name.strip_suffix(".weight").map(|name| format!("{name}.scale"));
                if let Some(scale) = scale.filter(|scale| file.tensor(scale).is_some()) {
                    return Err(QuantizeError::Scaled { name: tensor.name.clone(), scale });
                }
            }
            plan.tensor(&tensor.name, to, &tensor.shape)?;
            let planned = Planned::new(&tensor.name, tensor.format, to, choice.instead_of, tensor.elements());
            let scale = scale_of(&tensor.name, &tensor.shape, [tensor.format, to], &names);
            if let Some((name, count)) = &scale {
                plan.tensor(name, Format::F32, &[*count])?;
            }
            tensors.push(planned.with_scales(scale.map_or(0, |(_, count)| count)));
        }
        Ok(Quantizer { file, tensors, plan })
    }

    /// The tensors of the output, in file order; [`Planned::scales`] may follow one.
    pub fn tensors(&self) -> &[Planned] {
        &self.tensors
    }

    /// The size of the output in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.plan.file_bytes()
    }

    /// Writes the output, under a temporary name until it is complete. An existing file is replaced: see
    /// [`check_output`]. `progress` is told the bytes of tensors written and in all, and may stop.
    ///
    /// The bytes are the same for any number of threads and on any CPU.
    ///
    /// # Errors
    /// If a weight is not finite or too large for its format (the error names the tensor; tensors that keep their
    /// format are checked too), or the file cannot be written. Then no file remains.
    pub fn write(
        self,
        path: &Path,
        threads: usize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), QuantizeError> {
        let transcoder = Transcoder::new(threads)?;
        write_atomically(path, |out| {
            let mut out = PieceWriter::begin(self.plan, &self.tensors, out, &transcoder, progress)?;
            for (tensor, planned) in self.file.tensors().iter().zip(&self.tensors) {
                out.write_tensor(tensor.format, self.file.load(tensor)?.as_slice(), planned.scales)?;
                self.file.advise_done(tensor);
            }
            Ok(out.finish()?)
        })
    }
}

/// Checks that a command may write to `output`: never onto one of its inputs, a folder or a device, and onto another
/// existing file only with `force`.
///
/// # Errors
/// [`QuantizeError::NoFile`], [`QuantizeError::SameFile`] (also through links), [`QuantizeError::Exists`].
pub fn check_output<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    output: &Path,
    force: bool,
) -> Result<(), QuantizeError> {
    let Ok(there) = fs::canonicalize(output) else { return Ok(()) };
    if !there.is_file() {
        return Err(QuantizeError::NoFile(output.to_owned()));
    }
    for input in inputs {
        if fs::canonicalize(input).is_ok_and(|input| input == there || same_file(&input, &there)) {
            return Err(QuantizeError::SameFile(output.to_owned()));
        }
    }
    if force { Ok(()) } else { Err(QuantizeError::Exists(output.to_owned())) }
}

/// Two names of one file.
#[cfg(unix)]
fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    id(a).is_some_and(|a| id(b) == Some(a))
}

/// Elsewhere the standard library does not tell. A second hard link then counts as another existing file; even with
/// `force` the file that is read survives, since the output is written next to it and renamed.
#[cfg(not(unix))]
fn same_file(_: &Path, _: &Path) -> bool {
    false
}
