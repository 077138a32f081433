//! Reads models in the form in which Hugging Face publishes them: converts them to GGUF ([`Converter`]), or opens them
//! as they lie ([`open_folder`]). Also quantises GGUF files ([`quantize`]).
//!
//! ```text
//! config.json ── family, keys, rope ──► metadata ┐
//! tokenizer.* ── vocabulary ────────────────────►├─ checked as a model that runs ──► header
//! *.safetensors ── checkpoint, tensors ─────────►┘                                     data, streamed (encode)
//!                                                                                      or made when loaded (folder)
//! ```
//! All differences between families of models are data in [`family`]. Tensors are mapped, converted some rows at a
//! time, and leave memory when they are written, so a model much larger than memory can be converted.

#![forbid(unsafe_code)]

mod base_class;
mod checkpoint;
mod classes;
mod config;
mod delta;
mod encode;
mod error;

mod files;
mod floats;
mod folder;
mod fused;
mod heads;
mod inputs;
mod keys;
mod latent;
mod mlx;
mod mlx_folder;
mod packed;
pub mod quantize;
mod rope;
mod rows;
mod tensors;
mod times;
mod tower;
mod vocabulary;

pub use error::ConvertError;
pub use folder::{is_model_folder, open_folder};
pub use mlx_folder::{MlxQuantizer, MlxWidths};
pub use tower::{open_tower, write_tower};

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gristmill_files::gguf::{GgufWriter, Value, write_atomically};
use gristmill_kernels::format::Format;
use gristmill_model::{Error, ModelInfo, Progress};
use gristmill_transcode::Transcoder;

use checkpoint::Checkpoint;
use config::Config;
use encode::Encoder;
use family::Family;
use gristmill_model::family::published as family;
use mlx::{Quantization, Target};
use quantize::{
    FILE_TYPE_KEY, Facts, Mix, PieceWriter, Planned, QUANTIZATION_VERSION, QUANTIZATION_VERSION_KEY, choose, scale_of,
    unquantised,
};
use tensors::OutputTensor;

/// How to convert.
#[derive(Clone, Debug, Default)]
pub struct ConvertOptions {
    /// The formats of matrices; `None` for the format of the first. Vectors and routers are F32; tensors that are
    /// quantised in the checkpoint keep their format.
    pub mix: Option<Mix>,
    /// `tokenizer.ggml.pre`; `None` to recognise it, and to refuse an unknown one.
    pub pre: Option<String>,
    /// `general.name`; `None` for the name of the folder.
    pub name: Option<String>,
    /// Leave out prediction heads (MTP), which are part of the model otherwise.
    pub without_heads: bool,
}

/// A model in the form of Hugging Face, read and checked, and the header of the file that it becomes.
struct Read {
    checkpoint: Checkpoint,
    header: GgufWriter,
    made: Vec<OutputTensor>,
    tensors: Vec<Planned>,
    notes: Vec<String>,
}

/// A model in the form of Hugging Face, read and checked, to be written.
pub struct Converter {
    model: Read,
    /// Files next to those of weights, as far as they are there.
    beside: Vec<PathBuf>,
}

impl Converter {
    /// Reads the folder, and checks everything but the values of the weights: also that what comes out will run.
    ///
    /// # Errors
    /// [`ConvertError`] names the file, and the key or tensor.
    pub fn new(folder: &Path, options: &ConvertOptions) -> Result<Converter, ConvertError> {
        let model = read(folder, options, Target::File)?;
        let beside = files::NAMES.iter().map(|name| folder.join(name)).filter(|path| path.exists());
        let beside = beside.chain(vocabulary::template_files(folder)).collect();
        Ok(Converter { model, beside })
    }

    /// The tensors of the output, in file order; [`Planned::scales`] may follow one.
    pub fn tensors(&self) -> &[Planned] {
        &self.model.tensors
    }

    /// Notes for the user on decisions of the conversion.
    pub fn notes(&self) -> &[String] {
        &self.model.notes
    }

    /// The input files: those of weights, and the small files of the folder.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.model.checkpoint.files().chain(self.beside.iter().map(PathBuf::as_path))
    }

    /// The size of the output in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.model.header.file_bytes()
    }

    /// Writes the output, under a temporary name until it is complete. An existing file is replaced: see
    /// [`check_output`](crate::quantize::check_output). `progress` is told the bytes of tensors written and in all, and
    /// may stop.
    ///
    /// # Errors
    /// If a weight is not finite or too large for its format (the error names the tensor; tensors that keep their
    /// format are checked too), or the file cannot be written. Then no file remains.
    pub fn write(
        &self,
        path: &Path,
        threads: usize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), ConvertError> {
        let transcoder = Transcoder::new(threads).map_err(|error| ConvertError::Unrunnable(error.into()))?;
        write_atomically(path, |out| {
            let Read { checkpoint, header, made, tensors, .. } = &self.model;
            let out = PieceWriter::begin(header.clone(), tensors, out, &transcoder, progress)?;
            let mut encoder = Encoder::new(checkpoint, out);
            made.iter().zip(tensors).try_for_each(|(tensor, planned)| encoder.write(tensor, planned.scales))?;
            Ok(encoder.finish()?)
        })
    }
}

/// The family of the text model within a multimodal model: `family`, or another that is published in the same way.
fn of_text_model(family: &'static Family, config: &Config) -> Result<&'static Family, ConvertError> {
    let Some(within) = &family.within else { return Ok(family) };
    let Some(text_model) = config.object(within.settings)? else { return Ok(family) };
    let inner = text_model.text("model_type")?.and_then(Family::find);
    Ok(inner.filter(|inner| inner.within.is_some()).unwrap_or(family))
}

/// The name by which rules know a tensor.
fn renamed(family: &Family, name: &str) -> String {
    let new = |(theirs, ours): &(&str, &str)| Some(format!("{ours}{}", name.strip_prefix(theirs)?));
    family.renamed.iter().find_map(new).unwrap_or_else(|| name.to_owned())
}

/// Reads a folder, and checks everything but the values of the weights: also that the model will run.
fn read(folder: &Path, options: &ConvertOptions, target: Target) -> Result<Read, ConvertError> {
    if !folder.is_dir() {
        return Err(ConvertError::NoFolder(folder.to_owned()));
    }
    let config = Config::read(&folder.join("config.json"))?;
    let model_type = config.text("model_type")?.ok_or_else(|| config.missing("model_type"))?.to_owned();
    let family = Family::find(&model_type).ok_or_else(|| ConvertError::Family {
        path: folder.join("config.json"),
        found: model_type.clone(),
        known: Family::known(),
    })?;
    let family = of_text_model(family, &config)?;
    let config = classes::read(family, config)?;
    let family = config.variant(family)?;
    let quantization = Quantization::read(folder, &model_type, &config, target, options.mix.is_some())?;
    let refuse = target == Target::Engine && options.mix.is_some() && quantization.is_there();
    if refuse && quantization.packed.is_none() {
        return Err(ConvertError::Quantised(folder.to_owned()));
    }
    let mut checkpoint = Checkpoint::open(folder)?;
    if !family.renamed.is_empty() {
        checkpoint.rename(|name| renamed(family, name));
    }
    checkpoint.is_of_base_class = base_class::complete_names(family, &mut checkpoint);
    let rope = rope::read(family, &config)?;
    let mut notes = Vec::new();
    let with_heads = !options.without_heads;
    let planned = tensors::plan(family, &config, &quantization, &checkpoint, rope.vectors, with_heads, &mut notes);
    let (made, heads) = planned.map_err(|error| checkpoint.explain(error))?;
    if refuse && made.iter().any(|tensor| !tensor.format().is_float()) {
        return Err(ConvertError::Quantised(folder.to_owned()));
    }

    let mut header = GgufWriter::new();
    header.set("general.architecture", family.architecture)?;
    header.set("general.type", "model")?;
    let name = name(folder, options);
    header.set("general.name", name.as_str())?;
    for (key, value) in sampling(folder)? {
        header.set(&key, value)?;
    }
    // A model that runs as it lies has no file, and so no file type.
    let of_file = (target == Target::File).then(|| Mix::uniform(dtype_of_matrices(&made)));
    if let Some(mix) = options.mix.or(of_file) {
        header.set(FILE_TYPE_KEY, mix.file_type())?;
        header.set(QUANTIZATION_VERSION_KEY, QUANTIZATION_VERSION)?;
    }
    // Settings of RoPE have priority over the family's defaults.
    let mut pairs = keys::read(family, &config)?;
    heads::count(&mut pairs, family, heads);
    pairs.retain(|(key, _)| !rope.pairs.iter().any(|(other, _)| other == key));
    for (key, value) in pairs.into_iter().chain(rope.pairs) {
        header.set(&format!("{}.{key}", family.architecture), value)?;
    }
    let rows = made.iter().find(|tensor| tensor.name == "token_embd.weight").and_then(|t| t.shape.get(1));
    let size = rows.and_then(|&rows| usize::try_from(rows).ok()).unwrap_or_default();
    let about = (options.pre.as_deref(), name.as_str(), target);
    for (key, value) in vocabulary::read(folder, &config, family, size, about, &mut notes)? {
        header.set(&key, value)?;
    }

    // Where MLX has quantised some, the others have the formats that hold their values.
    let as_they_are = options.mix.is_none() && (target == Target::Engine || quantization.is_there());
    let tensors = add_tensors(&mut header, &made, options.mix, as_they_are, target)?;
    check(&header, &made, target)?;
    if let Some(kept) = tensors.iter().find(|tensor| !tensor.from.is_float() && options.mix.is_some()) {
        let format = kept.from.name();
        notes.push(format!("{}: tensors in {format} keep this format, whatever the type", kept.name));
    }
    Ok(Read { checkpoint, header, made, tensors, notes })
}

/// Chooses the formats of all tensors, and adds these to the header. `as_they_are`: matrices keep theirs.
fn add_tensors(
    header: &mut GgufWriter,
    made: &[OutputTensor],
    mix: Option<Mix>,
    as_they_are: bool,
    target: Target,
) -> Result<Vec<Planned>, ConvertError> {
    let facts = Facts::read(header.preview().metadata());
    let shapes: Vec<(&str, &[u64])> = made.iter().map(|t| (t.name.as_str(), t.shape.as_slice())).collect();
    let mix = mix.unwrap_or_else(|| Mix::uniform(dtype_of_matrices(made)));
    let names: HashSet<&str> = shapes.iter().map(|(name, _)| *name).collect();
    let mut tensors = Vec::with_capacity(made.len());
    for (tensor, choice) in made.iter().zip(choose(&mix, &[], &facts, &shapes)?) {
        // Another format would only add an error to published quantised weights.
        let (to, instead_of) = match tensor.format() {
            from if !from.is_float() || as_they_are && choice.format.is_some() => {
                (if from.is_float() { tensor.stored_format() } else { from }, None)
            }
            from => {
                let unquantised = || unquantised(&mix, &tensor.name, &tensor.shape, from);
                (choice.format.unwrap_or_else(unquantised), choice.instead_of)
            }
        };
        let scale = scale_of(&tensor.name, &tensor.shape, [tensor.format(), to], &names);
        // The engine reads scales within blocks.
        let (to, scale) = match target {
            Target::Engine if scale.is_some() => (Format::NVFP4_SCALED, None),
            // A file has the scale next to the blocks, or no scale where none is read.
            Target::File if to == Format::NVFP4_SCALED => {
                let scale = scale_of(&tensor.name, &tensor.shape, [to, Format::NVFP4], &names);
                (if scale.is_some() { Format::NVFP4 } else { Format::F32 }, scale)
            }
            _ => (to, scale),
        };
        header.tensor(&tensor.name, to, &tensor.shape)?;
        if let Some((name, count)) = &scale {
            header.tensor(name, Format::F32, &[*count])?;
        }
        let elements = tensor.shape.iter().product();
        let planned = Planned::new(&tensor.name, tensor.format(), to, instead_of, elements);
        tensors.push(planned.with_scales(scale.map_or(0, |(_, count)| count)));
    }
    Ok(tensors)
}

/// The float format in which the matrices are in the checkpoint: that of the first.
fn dtype_of_matrices(tensors: &[OutputTensor]) -> Format {
    let is_of_files = |format: Format| format.is_float() && format.ggml_type().is_some();
    let float = |tensor: &&OutputTensor| tensor.shape.len() > 1 && is_of_files(tensor.stored_format());
    tensors.iter().find(float).map_or(Format::F32, OutputTensor::stored_format)
}

/// `general.name`: what the user says, or the folder's name.
fn name(folder: &Path, options: &ConvertOptions) -> String {
    let canonical = fs::canonicalize(folder).ok();
    let folder = canonical.as_deref().unwrap_or(folder).file_name();
    options.name.clone().unwrap_or_else(|| folder.unwrap_or_default().to_string_lossy().into_owned())
}

/// The publisher's sampling parameters.
fn sampling(folder: &Path) -> Result<keys::Pairs, ConvertError> {
    // transformers declares all of these as optional: without a value it uses its own.
    let nulls = ["top_k", "top_p", "min_p", "temperature", "repetition_penalty"];
    let config = Config::read_optional(&folder.join("generation_config.json"))?.without_nulls(&nulls);
    let mut pairs = keys::Pairs::new();
    if let Some(k) = config.count("top_k")? {
        pairs.push(("general.sampling.top_k".to_owned(), Value::I32(i32::try_from(k).unwrap_or(i32::MAX))));
    }
    let numbers =
        [("top_p", "top_p"), ("min_p", "min_p"), ("temp", "temperature"), ("penalty_repeat", "repetition_penalty")];
    for (ours, theirs) in numbers {
        if let Some(x) = config.number(theirs)? {
            pairs.push((format!("general.sampling.{ours}"), Value::F32(x as f32)));
        }
    }
    Ok(pairs)
}

/// Reads the header as a model to be run, so that a model that does not run is refused before anything is written.
fn check(header: &GgufWriter, tensors: &[OutputTensor], target: Target) -> Result<(), ConvertError> {
    let preview = header.preview();
    let checked = match target {
        // Who loads the model reads its vocabulary.
        Target::Engine => ModelInfo::check(&preview),
        Target::File => ModelInfo::read_with_heads(&preview).map(drop),
    };
    match checked {
        Ok(()) => Ok(()),
        Err(Error::TensorShape { name, found, expected, .. }) => {
            let source = tensors.iter().find(|tensor| tensor.name == name).and_then(OutputTensor::source_name);
            let reversed = |shape: Vec<u64>| shape.into_iter().rev().collect::<Vec<_>>();
            let expected = format!("but config.json asks for {:?}", reversed(expected));
            let name = source.map(|source| format!("{source} ({name})")).unwrap_or(name);
            Err(ConvertError::Shape { name, found: reversed(found), expected })
        }
        Err(error) => Err(ConvertError::Unrunnable(error)),
    }
}
