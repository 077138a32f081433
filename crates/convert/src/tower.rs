//! The vision tower of a folder, as an open `mmproj` file or written as one.

use std::path::Path;
use std::sync::Arc;

use gristmill_files::gguf::{GgufFile, GgufWriter, write_atomically};
use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::Format;
use gristmill_model::family::published::{TowerFamily, TowerHow, TowerRule};
use gristmill_vision::{Configs, Fit, Grid, Processor};

use super::checkpoint::Checkpoint;
use super::config::Config;
use super::error::ConvertError;
use super::folder::FolderSource;
use super::inputs::{float, wrong_shape};
use super::keys;
use super::rows::{RowOrder, RowPlan, Stored};
use super::tensors::{OutputTensor, Source};

/// The settings of the tower in `config.json`.
const SETTINGS: &str = "vision_config";

/// Opens the vision tower of a folder as the `mmproj` file that it would become; `None` for a model without a tower, or
/// with one that is not supported. Matrices keep their format. `threads` convert tensors of other formats.
///
/// # Errors
/// [`ConvertError`] names the file, and the key or tensor.
pub fn open_tower(folder: &Path, threads: usize) -> Result<Option<GgufFile>, ConvertError> {
    let config = Config::read(&folder.join("config.json"))?;
    let family = config.text("model_type")?.and_then(TowerFamily::find);
    let (Some(family), Some(vision)) = (family, config.object(SETTINGS)?) else { return Ok(None) };
    let checkpoint = Checkpoint::open(folder)?;
    let Some(prefix) = prefix(family, &checkpoint) else { return Ok(None) };
    for &(setting, known) in family.expects {
        if let Some(found) = vision.value(setting).filter(|found| *found != known) {
            return Err(vision.wrong(setting, found, format!("{known:?}, nothing else is supported")));
        }
    }
    let mut header = GgufWriter::new();
    header.set("general.architecture", "clip")?;
    header.set("general.type", "mmproj")?;
    header.set("clip.has_vision_encoder", true)?;
    header.set("clip.projector_type", family.projector)?;
    for (keys, config) in [(family.keys, &vision), (family.outer_keys, &config)] {
        for key in keys {
            if let Some(value) = keys::value(key, config)? {
                header.set(&format!("clip.{}", key.ours), value)?;
            }
        }
    }
    preprocessing(&mut header, &processor(folder)?)?;
    let heads = header.preview().metadata().required("clip.vision.attention.head_count").unwrap_or(1);
    let tensors = TowerPlanner { family, checkpoint: &checkpoint, prefix, heads, tensors: Vec::new() }.plan(&vision)?;
    let format = |tensor: &OutputTensor| if tensor.shape.len() == 2 { tensor.format() } else { Format::F32 };
    let formats: Vec<Format> = tensors.iter().map(format).collect();
    for (tensor, format) in tensors.iter().zip(&formats) {
        header.tensor(&tensor.name, *format, &tensor.shape)?;
    }
    let source = FolderSource { checkpoint, tensors, formats, threads: threads.max(1) };
    Ok(Some(header.with_source(Arc::new(source))))
}

/// Writes a tower as an `mmproj` file, under a temporary name until it is complete.
///
/// # Errors
/// If a value cannot be had in its format, or the file cannot be written.
pub fn write_tower(tower: &GgufFile, path: &Path) -> Result<(), ConvertError> {
    let mut header = GgufWriter::new();
    for (key, value) in tower.metadata().iter() {
        header.set(key, value.clone())?;
    }
    for tensor in tower.tensors() {
        header.tensor(&tensor.name, tensor.format, &tensor.shape)?;
    }
    write_atomically(path, |out| {
        let mut out = header.begin(out)?;
        for tensor in tower.tensors() {
            let bytes = tower.load(tensor).map_err(|error| ConvertError::Unrunnable(error.into()))?;
            out.write_tensor(&tensor.name, bytes.as_slice())?;
            tower.advise_done(tensor);
        }
        out.finish()?;
        Ok(())
    })
}

/// How the folder prepares pictures.
fn processor(folder: &Path) -> Result<Processor, ConvertError> {
    let read = |name: &str| Config::read_optional(&folder.join(name)).map(Config::into_settings);
    let some = |settings: serde_json::Map<_, _>| Some(settings).filter(|settings| !settings.is_empty());
    let configs = Configs {
        preprocessor: some(read("preprocessor_config.json")?),
        processor: some(read("processor_config.json")?),
        model: read("config.json")?,
    };
    configs.read().map_err(|source| ConvertError::Vision { path: folder.to_owned(), source })
}

/// The keys of a processor.
fn preprocessing(header: &mut GgufWriter, processor: &Processor) -> Result<(), ConvertError> {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    header.set("clip.vision.image_mean", processor.mean.to_vec())?;
    header.set("clip.vision.image_std", processor.std.to_vec())?;
    if let Fit::Area { min, max, .. } = processor.fit {
        header.set("clip.vision.image_min_pixels", number(min))?;
        header.set("clip.vision.image_max_pixels", number(max))?;
    }
    if let Fit::Budget { tokens } = processor.fit {
        let pixels = tokens.saturating_mul((processor.patch * processor.merge).pow(2));
        header.set("clip.vision.image_max_pixels", number(pixels))?;
    }
    if let Fit::Fixed(_) = processor.fit {
        header.set("clip.vision.projector.scale_factor", number(processor.merge))?;
    }
    if let Some(tiling) = processor.tiling {
        let size = match tiling.grid {
            Grid::Closest { min, max, .. } => {
                header.set("clip.vision.preproc_min_tiles", number(min))?;
                header.set("clip.vision.preproc_max_tiles", number(max))?;
                tiling.side
            }
            Grid::Longest(longest) => longest,
        };
        header.set("clip.vision.preproc_image_size", number(size))?;
    }
    Ok(())
}

struct TowerPlanner<'a> {
    family: &'static TowerFamily,
    checkpoint: &'a Checkpoint,
    prefix: (&'static str, &'static str),
    heads: usize,
    tensors: Vec<OutputTensor>,
}

/// The name of a rule's tensor in a folder with these prefixes.
fn theirs((ours, theirs): (&str, &str), name: &str) -> String {
    name.strip_prefix(ours).map_or_else(|| name.to_owned(), |rest| format!("{theirs}{rest}"))
}

/// The prefixes of a folder, by the first tensor of the tower; `None` if there is none.
fn prefix(family: &TowerFamily, checkpoint: &Checkpoint) -> Option<(&'static str, &'static str)> {
    let first = family.globals.first()?;
    family.prefixes.iter().copied().find(|prefix| checkpoint.tensor(&theirs(*prefix, first.theirs)).is_some())
}

impl TowerPlanner<'_> {
    fn plan(mut self, vision: &Config) -> Result<Vec<OutputTensor>, ConvertError> {
        self.family.globals.iter().try_for_each(|rule| self.add(rule, None))?;
        let layers = self.family.layers.map_or(Ok(0), |setting| keys::needed(vision, setting))?;
        for layer in 0..layers {
            // A number of layers that is too large ends at the first one that is not there.
            self.family.layer.iter().try_for_each(|rule| self.add(rule, Some((layer, 0))))?;
        }
        if let Some(list) = self.family.deepstack.map(|setting| vision.list(setting)).transpose()?.flatten() {
            for (index, layer) in list.iter().enumerate() {
                let layer = layer.as_u64().and_then(|layer| u32::try_from(layer).ok()).filter(|layer| *layer < layers);
                let setting = self.family.deepstack.unwrap_or_default();
                let wrong = || vision.wrong(setting, &list.clone().into(), "a list of layers");
                let layer = layer.ok_or_else(wrong)?;
                self.family.deepstack_layer.iter().try_for_each(|rule| self.add(rule, Some((layer, index))))?;
            }
        }
        Ok(self.tensors)
    }

    fn add(&mut self, rule: &TowerRule, place: Option<(u32, usize)>) -> Result<(), ConvertError> {
        let (layer, index) = place.unwrap_or_default();
        let named = |name: &str| name.replace("{layer}", &layer.to_string()).replace("{index}", &index.to_string());
        let ours = named(rule.ours);
        let name = theirs(self.prefix, &named(rule.theirs));
        match rule.how {
            TowerHow::Linear => {
                // A norm that the model does not have, or a product without bias.
                let is_optional = ["mm.input_norm", "mm.patch_merger"].contains(&&*ours);
                for (part, may_lack) in [("weight", is_optional), ("bias", true)] {
                    let name = format!("{name}.{part}");
                    match self.checkpoint.tensor(&name) {
                        Some(tensor) => self.push(format!("{ours}.{part}"), tensor)?,
                        None if may_lack => {}
                        None => return Err(self.missing(name)),
                    }
                }
                Ok(())
            }
            TowerHow::Optional => match self.checkpoint.tensor(&name) {
                Some(tensor) => self.push(ours, tensor),
                None => Ok(()),
            },
            TowerHow::Clamped => {
                let weight = format!("{name}.linear.weight");
                let tensor = self.checkpoint.tensor(&weight).ok_or_else(|| self.missing(weight))?;
                self.push(format!("{ours}.weight"), tensor)?;
                for end in ["input_min", "input_max", "output_min", "output_max"] {
                    if let Some(tensor) = self.checkpoint.tensor(&format!("{name}.{end}")) {
                        self.push(format!("{ours}.{end}"), tensor)?;
                    }
                }
                Ok(())
            }
            TowerHow::Same => {
                let tensor = self.checkpoint.tensor(&name).ok_or_else(|| self.missing(name))?;
                self.push(ours, tensor)
            }
            TowerHow::PlusOne => {
                let tensor = self.checkpoint.tensor(&name).ok_or_else(|| self.missing(name))?;
                let wrong = || wrong_shape(&tensor.name, &tensor.shape, "which is no vector");
                let [len] = *tensor.shape.as_slice() else { return Err(wrong()) };
                let mut values = vec![0.0; usize::try_from(len).unwrap_or(usize::MAX)];
                float(tensor)?.decode(self.checkpoint.data(tensor), &mut values).ok_or_else(wrong)?;
                values.iter_mut().for_each(|value| *value += 1.0);
                self.tensors.push(OutputTensor { name: ours, shape: vec![len], source: Source::Values(values) });
                Ok(())
            }
            TowerHow::PairRows => {
                let tensor = self.checkpoint.tensor(&name).ok_or_else(|| self.missing(name))?;
                self.push_rows(ours, tensor, RowOrder::Pairs { head: self.head(tensor)? })
            }
            TowerHow::FlatChannelsLast => {
                let tensor = self.checkpoint.tensor(&name).ok_or_else(|| self.missing(name))?;
                let shape = tensor.shape.iter().rev().copied().collect();
                // A vector is the columns of one row.
                let rows = if tensor.shape.len() == 1 { vec![1, tensor.shape[0]] } else { tensor.shape.clone() };
                let (_, values) = patches(self.checkpoint, tensor, &rows, rule.how)?;
                self.tensors.push(OutputTensor { name: ours, shape, source: Source::Values(values) });
                Ok(())
            }
            TowerHow::Tables => {
                let tensor = self.checkpoint.tensor(&name).ok_or_else(|| self.missing(name))?;
                let (shape, values) = tables(self.checkpoint, tensor)?;
                self.tensors.push(OutputTensor { name: ours, shape, source: Source::Values(values) });
                Ok(())
            }
            TowerHow::Convolution => {
                let tensor = self.checkpoint.tensor(&name).ok_or_else(|| self.missing(name))?;
                let wrong = || wrong_shape(&tensor.name, &tensor.shape, "which is no convolution of squares");
                let shape: Vec<u64> = tensor.shape.iter().rev().copied().collect();
                let elements = shape.iter().try_fold(1, |all: u64, &n| all.checked_mul(n)).ok_or_else(wrong)?;
                let mut values = vec![0.0; usize::try_from(elements).map_err(|_| wrong())?];
                float(tensor)?.decode(self.checkpoint.data(tensor), &mut values).ok_or_else(wrong)?;
                self.tensors.push(OutputTensor { name: ours, shape, source: Source::Values(values) });
                Ok(())
            }
            TowerHow::ChannelsLast | TowerHow::ChannelsFirst | TowerHow::Frame(_) => {
                let tensor = self.checkpoint.tensor(&name).ok_or_else(|| self.missing(name))?;
                let (shape, values) = patches(self.checkpoint, tensor, &tensor.shape, rule.how)?;
                self.tensors.push(OutputTensor { name: ours, shape, source: Source::Values(values) });
                Ok(())
            }
        }
    }

    fn missing(&self, name: String) -> ConvertError {
        self.checkpoint.explain(ConvertError::MissingTensor(name))
    }

    /// Rows of a head.
    fn head(&self, tensor: &Tensor) -> Result<usize, ConvertError> {
        let rows = tensor.shape.first().and_then(|&rows| usize::try_from(rows).ok()).unwrap_or(0);
        let head = rows / self.heads.max(1);
        match rows == head * self.heads && head.is_multiple_of(2) && head > 0 {
            true => Ok(head),
            false => Err(wrong_shape(&tensor.name, &tensor.shape, format!("but there are {} heads", self.heads))),
        }
    }

    fn push(&mut self, name: String, tensor: &Tensor) -> Result<(), ConvertError> {
        self.push_rows(name, tensor, RowOrder::Same)
    }

    fn push_rows(&mut self, name: String, tensor: &Tensor, order: RowOrder) -> Result<(), ConvertError> {
        let format = float(tensor)?;
        let shape: Vec<u64> = tensor.shape.iter().rev().copied().collect();
        let [columns, count] = match *shape.as_slice() {
            [] => [1, 1],
            [columns] => [columns, 1],
            [columns, rows] => [columns, rows],
            [columns, rows, tables] => [columns, rows.saturating_mul(tables)],
            _ => return Err(wrong_shape(&tensor.name, &tensor.shape, "which is no vector and no matrix")),
        }
        .map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let rows = RowPlan { count, columns, order };
        let source = Source::Tensors { parts: vec![Stored::Rows(tensor.clone())], format, rows };
        let shape = if shape.is_empty() { vec![1] } else { shape };
        self.tensors.push(OutputTensor { name, shape, source });
        Ok(())
    }
}

/// Two tables of positions, from (position, table, column) to (table, position, column).
fn tables(checkpoint: &Checkpoint, tensor: &Tensor) -> Result<(Vec<u64>, Vec<f32>), ConvertError> {
    let wrong = || wrong_shape(&tensor.name, &tensor.shape, "which is no pair of tables");
    let [len, 2, columns] = *tensor.shape.as_slice() else { return Err(wrong()) };
    let width = usize::try_from(columns).ok().filter(|width| *width > 0).ok_or_else(wrong)?;
    let all = usize::try_from(len).ok().and_then(|len| len.checked_mul(2)?.checked_mul(width)).ok_or_else(wrong)?;
    let mut stored = vec![0.0; all];
    float(tensor)?.decode(checkpoint.data(tensor), &mut stored).ok_or_else(wrong)?;
    let table = |table: usize| stored.chunks_exact(width).skip(table).step_by(2).flatten().copied();
    Ok((vec![columns, len, 2], table(0).chain(table(1)).collect()))
}

/// The weights of patches as (channel, row, column). `shape` is the tensor's.
fn patches(
    checkpoint: &Checkpoint,
    tensor: &Tensor,
    shape: &[u64],
    how: TowerHow,
) -> Result<(Vec<u64>, Vec<f32>), ConvertError> {
    let wrong = || wrong_shape(&tensor.name, &tensor.shape, "which is no matrix of patches");
    let [outputs, side, frames] = match *shape {
        [outputs, columns] => [outputs, (columns / 3).isqrt(), 1],
        [outputs, 3, side, other] if side == other => [outputs, side, 1],
        [outputs, 3, frames, side, other] if side == other => [outputs, side, frames],
        _ => return Err(wrong()),
    }
    .map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let area = side.checked_mul(side).ok_or_else(wrong)?;
    let all = [outputs, 3, frames, area].into_iter().try_fold(1_usize, usize::checked_mul).ok_or_else(wrong)?;
    let mut stored = vec![0.0; all];
    float(tensor)?.decode(checkpoint.data(tensor), &mut stored).ok_or_else(wrong)?;
    let row = 3 * frames * area;
    let mut values = Vec::with_capacity(outputs * 3 * area);
    for output in stored.chunks_exact(row.max(1)) {
        for channel in 0..3 {
            match how {
                TowerHow::Frame(frame) if frame < frames => {
                    values.extend_from_slice(&output[(channel * frames + frame) * area..][..area]);
                }
                TowerHow::Frame(_) => return Err(wrong()),
                TowerHow::ChannelsFirst => values.extend_from_slice(&output[channel * area..][..area]),
                _ => values.extend((0..area).map(|pixel| output[pixel * 3 + channel])),
            }
        }
    }
    Ok((vec![side as u64, side as u64, 3, outputs as u64], values))
}
