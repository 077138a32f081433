//! Which tensors the file will have, and what each is made of: the tables of [`family`](super::family) applied to a
//! checkpoint.

use std::collections::HashSet;

use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::Format;

use super::base_class::global;
use super::checkpoint::Checkpoint;
use super::config::Config;
use super::delta::{key_heads, value_heads};
use super::error::ConvertError;
use super::family::{Change, EXPERT_COUNT, Family, How, LAYER_TYPES, Layout, Need, Prefix, Rule, stacked_names};
use super::fused::{group, ranked};
use super::inputs::{BLOCKS, Input, wrong_shape};
use super::keys::needed;
use super::latent::head_matrices;
use super::mlx::{Quantization, Target};
use super::packed::{self, joined};
use super::rope::{bounded, rotated_rows};
use super::rows::{RowOrder, RowPlan, Stored};

/// A tensor of the file to be written.
pub(super) struct OutputTensor {
    pub(super) name: String,
    /// The innermost dimension first.
    pub(super) shape: Vec<u64>,
    pub(super) source: Source,
}

/// Where the values of a tensor come from.
pub(super) enum Source {
    /// These rows of each of several tensors of the checkpoint, which have one format and shape.
    Tensors { parts: Vec<Stored>, format: Format, rows: RowPlan },
    /// Computed values.
    Values(Vec<f32>),
}

impl OutputTensor {
    /// The format of its values before the conversion.
    pub(super) fn format(&self) -> Format {
        match self.source {
            Source::Tensors { format, .. } => format,
            Source::Values(_) => Format::F32,
        }
    }

    /// The format of the checkpoint's tensor.
    pub(super) fn stored_format(&self) -> Format {
        match &self.source {
            Source::Tensors { parts, .. } => match parts.first() {
                Some(Stored::Times(times)) => times.from,
                _ => self.format(),
            },
            Source::Values(_) => Format::F32,
        }
    }

    /// The name of the tensor that it is made of, or of the first of them.
    pub(super) fn source_name(&self) -> Option<&str> {
        match &self.source {
            Source::Tensors { parts, .. } => parts.first().map(Stored::name),
            Source::Values(_) => None,
        }
    }
}

/// Buffers of checkpoints that are not weights.
const IGNORED: &[&str] = &[".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"];

/// Whether a tensor is a buffer and not a weight.
pub(super) fn is_ignored(name: &str) -> bool {
    IGNORED.iter().any(|suffix| name.ends_with(suffix))
}

/// Whether a tensor is the taps of a convolution of a delta rule, in MLX's order.
fn is_taps_of_mlx(tensor: &Tensor) -> bool {
    tensor.name.ends_with(".conv1d.weight") && tensor.shape.last() == Some(&1)
}

/// Plans every tensor; `vectors`: name and values of those that the settings say, see [`Rope`](super::rope::Rope). Returns
/// also the number of prediction heads.
pub(super) fn plan(
    family: &Family,
    config: &Config,
    quantization: &Quantization,
    checkpoint: &Checkpoint,
    vectors: Vec<(&'static str, Vec<f32>)>,
    with_heads: bool,
    notes: &mut Vec<String>,
) -> Result<(Vec<OutputTensor>, usize), ConvertError> {
    let layers = needed(config, "num_hidden_layers")? as usize;
    let tied = tied(config)?;
    let prefixes = family.within.as_ref().map(|within| within.tensors).unwrap_or_default();
    let has = |prefix: &&Prefix| checkpoint.names().any(|name| name.starts_with(prefix.model));
    let within = prefixes.iter().find(has);
    let is_of_mlx =
        |tensor: &Tensor| is_taps_of_mlx(tensor) || family.mlx_adds_one.is_some_and(|end| tensor.name.ends_with(end));
    let has_one = quantization.form && checkpoint.tensors().any(is_of_mlx);
    let (used, planned) = (HashSet::new(), Vec::new());
    let mut planner = Planner { config, quantization, checkpoint, tied, within, has_one, head: None, used, planned };
    for (name, values) in vectors {
        let shape = vec![values.len() as u64];
        planner.planned.push(OutputTensor { name: name.to_owned(), shape, source: Source::Values(values) });
    }
    let output = global(family, "output.weight");
    if checkpoint.is_of_base_class && !tied && output.is_some_and(|rule| !planner.has(rule, 0)) {
        planner.tied = true;
        notes.push(
            "a base class saved the folder, without an output matrix: the embedding table is in its place, so the model \
             is for embeddings"
                .to_owned(),
        );
    }
    for rule in family.globals.iter().copied().flatten() {
        planner.add(rule, 0)?;
    }
    // Every layer has tensors of its own, so a count that the checkpoint cannot hold ends the loop at the first that is
    // missing.
    for layer in 0..layers {
        planner.layer(family, layer)?;
    }
    let heads = if with_heads { planner.heads(family, layers)? } else { 0 };
    planner.check_unused(family, layers, notes)?;
    if quantization.target == Target::Engine {
        packed::reorder(&mut planner.planned, checkpoint)?;
    }
    Ok((planner.planned, heads))
}

/// Whether the output head is the embedding table.
fn tied(config: &Config) -> Result<bool, ConvertError> {
    // LFM2 was published with the former.
    Ok(config.flag("tie_embedding")?.or(config.flag("tie_word_embeddings")?).unwrap_or(false))
}

pub(super) struct Planner<'a, 'c> {
    pub(super) config: &'c Config,
    pub(super) quantization: &'c Quantization,
    pub(super) checkpoint: &'a Checkpoint,
    /// The output head is the embedding table.
    tied: bool,
    /// Beginning of the names of tensors, where the model is within another.
    within: Option<&'static Prefix>,
    /// Norms have the 1 that is otherwise added.
    has_one: bool,
    /// The prediction head whose layer is planned: its number, and [`Family::head_names`].
    pub(super) head: Option<(usize, &'static [(&'static str, &'static str)])>,
    pub(super) used: HashSet<&'a str>,
    pub(super) planned: Vec<OutputTensor>,
}

impl<'a> Planner<'a, '_> {
    /// The name of a rule's tensor, or of the first of them.
    fn theirs(&self, rule: &Rule, layer: usize, expert: usize) -> String {
        let theirs = match self.head {
            Some((head, names)) => {
                let replaced = |name: String, (part, of_head): &(&str, &str)| name.replace(part, of_head);
                names.iter().fold(rule.theirs.to_owned(), replaced).replace("{head}", &head.to_string())
            }
            None => rule.theirs.to_owned(),
        };
        let name = theirs.replace("{layer}", &layer.to_string()).replace("{expert}", &expert.to_string());
        let name = match (self.within, name.strip_prefix("model.")) {
            (Some(within), Some(rest)) => format!("{}{rest}", within.model),
            (Some(within), None) => format!("{}{name}", within.others),
            (None, _) => name,
        };
        if rule.stored == Layout::Mxfp4 { name + BLOCKS } else { name }
    }

    /// Whether the checkpoint has a rule's tensor, or the first of them.
    pub(super) fn has(&self, rule: &Rule, layer: usize) -> bool {
        self.checkpoint.tensor(&self.theirs(rule, layer, 0)).is_some()
    }

    /// The tensor in which MLX stacks a rule's experts, if the checkpoint has it.
    fn stacked(&self, rule: &Rule, layer: usize) -> Option<String> {
        let (names, _) = stacked_names(&self.theirs(rule, layer, 0)).filter(|_| self.quantization.form)?;
        names.into_iter().find(|name| self.checkpoint.tensor(name).is_some())
    }

    /// Adds the tensors of a layer.
    pub(super) fn layer(&mut self, family: &Family, layer: usize) -> Result<(), ConvertError> {
        for rule in family.layer.iter().copied().flatten() {
            self.add(rule, layer)?;
        }
        self.fill(family, layer)?;
        for kinds in [family.mixers, family.mlps] {
            let there = |rules: &&&[Rule]| rules.first().is_some_and(|rule| self.has(rule, layer));
            let kind = kinds.iter().find(there).or(kinds.first());
            for rule in kind.copied().into_iter().flatten() {
                self.add(rule, layer)?;
            }
        }
        Ok(())
    }

    pub(super) fn add(&mut self, rule: &Rule, layer: usize) -> Result<(), ConvertError> {
        let may_lack = match rule.need {
            Need::Always => false,
            Need::IfThere => true,
            Need::UnlessTied => self.tied,
            Need::UnlessFull(setting) => {
                let types = self.config.list(LAYER_TYPES)?.and_then(|types| types.get(layer));
                if self.config.flag(setting)? == Some(true) && types.is_some_and(|kind| kind == "full_attention") {
                    return Ok(());
                }
                true
            }
            Need::IfSet(setting) | Need::UnlessUnset(setting) => match (rule.need, self.config.flag(setting)?) {
                (_, Some(false)) => return Ok(()),
                (Need::IfSet(_), Some(true)) => false,
                _ => true,
            },
        };
        let stacked = self.stacked(rule, layer);
        let stack = stacked.is_none() && rule.theirs.contains("{expert}");
        let count = if stack { self.experts()? } else { 1 };
        let mut parts = Vec::new();
        for expert in 0..count {
            let name = stacked.clone().unwrap_or_else(|| self.theirs(rule, layer, expert));
            match self.part(rule, &name)? {
                Some(part) => parts.push(part),
                None if may_lack => return Ok(()),
                None => return Err(ConvertError::MissingTensor(name)),
            }
        }
        let integers = parts.iter().map(|part| Some((part.stored.integers()?, part.format)));
        if let Some(all) = integers.collect::<Option<Vec<_>>>()
            && let Some(format) = joined(all.iter().copied(), self.quantization.target)
        {
            parts.iter_mut().for_each(|part| part.format = format);
        }
        let [first, rest @ ..] = parts.as_slice() else {
            return Err(self.config.wrong("num_local_experts", &0.into(), "at least 1"));
        };
        if let Some(other) = rest.iter().find(|part| part.shape != first.shape || part.format != first.format) {
            let (format, wanted) = (other.format.name(), first.format.name());
            let expected = format!("dtype {format}, but expert 0 has {:?}, {wanted}", first.shape);
            return Err(wrong_shape(other.stored.name(), &other.shape, expected));
        }
        let (mut shape, rows) = self.rows(rule.how, first)?;
        shape.reverse();
        if stack {
            shape.push(count as u64);
        }
        // Rows may be heads of other widths than blocks.
        let single = matches!(rows.order, RowOrder::Columns { .. }) && first.format.block_len() > 1;
        let whole = rows.columns.is_multiple_of(first.format.block_len()) && !single;
        let format = match first.format {
            format if whole => format,
            Format::FP8_64 => Format::BF16,
            _ => Format::F32,
        };
        let change = if self.has_one && rule.change == Change::PlusOne { Change::None } else { rule.change };
        let source = match (change, &first.stored) {
            (change @ (Change::PlusOne | Change::MinusExp | Change::Exp), Stored::Rows(tensor)) => {
                if change == Change::Exp {
                    shape.insert(0, 1);
                }
                Source::Values(self.changed(tensor, format, rows.order, change)?)
            }
            (Change::Times(factors), _) => {
                let of_rows = self.factors(factors, rows.count)?;
                let name = first.stored.name().to_owned();
                let stored = parts.into_iter().map(|part| part.stored.times(format, of_rows.clone()));
                let parts = stored.collect::<Option<_>>();
                let parts = parts.ok_or_else(|| {
                    let expected = format!("dtype {}, but factors of settings multiply floats only", format.name());
                    wrong_shape(&name, &shape, expected)
                })?;
                Source::Tensors { format: Format::F32, rows, parts }
            }
            _ => Source::Tensors { format, rows, parts: parts.into_iter().map(|part| part.stored).collect() },
        };
        self.planned.push(OutputTensor { name: rule.ours.replace("{layer}", &layer.to_string()), shape, source });
        Ok(())
    }

    /// Adds the vectors of a layer that the checkpoint lacks.
    fn fill(&mut self, family: &Family, layer: usize) -> Result<(), ConvertError> {
        for filled in family.filled {
            let value = match filled.value {
                Some(setting) => self.config.number(setting)?.ok_or_else(|| self.config.missing(setting))?,
                None => 1.0,
            };
            let width = bounded(self.config, filled.width, needed(self.config, filled.width)?)?;
            self.planned.push(OutputTensor {
                name: filled.ours.replace("{layer}", &layer.to_string()),
                shape: vec![width.into()],
                source: Source::Values(vec![value as f32; width as usize]),
            });
        }
        Ok(())
    }

    /// The values of a vector, or of a matrix of floats whose rows stay, each changed.
    fn changed(
        &self,
        tensor: &Tensor,
        format: Format,
        order: RowOrder,
        change: Change,
    ) -> Result<Vec<f32>, ConvertError> {
        let mut values = vec![0.0; tensor.shape.iter().product::<u64>() as usize];
        let is_vector = tensor.shape.iter().filter(|&&n| n != 1).count() <= 1;
        let is_allowed = is_vector || change == Change::MinusExp && matches!(order, RowOrder::Same);
        if !is_allowed || format.decode(self.checkpoint.data(tensor), &mut values).is_none() {
            return Err(wrong_shape(&tensor.name, &tensor.shape, "which is no vector"));
        }
        self.checkpoint.done(tensor);
        let change = |value: f32| match change {
            Change::None | Change::Times(_) => value,
            Change::PlusOne => value + 1.0,
            Change::MinusExp => -f64::from(value).exp() as f32,
            Change::Exp => f64::from(value).exp() as f32,
        };
        Ok((0..values.len()).map(|row| change(values[order.source(row)])).collect())
    }

    fn experts(&self) -> Result<usize, ConvertError> {
        let setting = EXPERT_COUNT.iter().find(|setting| self.config.value(setting).is_some());
        Ok(needed(self.config, setting.unwrap_or(&EXPERT_COUNT[0]))? as usize)
    }

    /// The shape of what is written of a part, outermost dimension first, and its rows.
    fn rows(&self, how: How, part: &Input) -> Result<(Vec<u64>, RowPlan), ConvertError> {
        let mut shape = part.shape.clone();
        let refuse = |expected: String| Err(wrong_shape(part.stored.name(), &part.shape, expected));
        // A row has the dimensions behind this axis.
        let (axis, order) = match how {
            How::Same => (shape.len().saturating_sub(2), RowOrder::Same),
            How::ValueHeads(place) => {
                return value_heads(self.config, place, &shape)?.map_or_else(refuse, |rows| Ok((shape, rows)));
            }
            How::KeyHeads(inputs) => {
                let rows = key_heads(self.config, inputs, &shape)?;
                return rows.map_or_else(refuse, |rows| Ok((vec![rows.count as u64, rows.columns as u64], rows)));
            }
            How::Group(part) => {
                let rows = group(self.config, part, &shape)?;
                return rows.map_or_else(refuse, |rows| Ok((vec![rows.count as u64, rows.columns as u64], rows)));
            }
            How::Ranked(which) => {
                let ranks = match &part.stored {
                    Stored::Blocks(blocks) => blocks.parts,
                    Stored::Rows(tensor) => self.ranks(tensor)?,
                    _ => {
                        return refuse(
                            "in codes whose rows have an unknown order; take the published model".to_owned(),
                        );
                    }
                };
                let rows = ranked(self.config, which, ranks, &shape)?;
                return rows.map_or_else(refuse, |rows| Ok((vec![rows.count as u64, rows.columns as u64], rows)));
            }
            How::Column | How::Groups(_) => {
                let [values] = *shape.as_slice() else { return refuse("which is no vector".to_owned()) };
                let groups = match how {
                    How::Groups(setting) => u64::from(needed(self.config, setting)?),
                    _ => values,
                };
                if groups == 0 || !values.is_multiple_of(groups) {
                    return refuse(format!("whose values are not {groups} equal groups"));
                }
                let columns = values / groups;
                let rows = RowPlan { count: groups as usize, columns: columns as usize, order: RowOrder::Same };
                return Ok((vec![groups, columns], rows));
            }
            How::LatentKeys | How::LatentValues => {
                let planned = head_matrices(self.config, how == How::LatentKeys, &shape)?;
                return planned.map_or_else(refuse, Ok);
            }
            How::PairRows(settings) | How::HalfRows { heads: settings, .. } => {
                let setting = settings.iter().find(|setting| self.config.value(setting).is_some());
                let heads = needed(self.config, setting.or(settings.first()).copied().unwrap_or_default())?;
                let rows = shape.first().copied().unwrap_or_default();
                if heads == 0 || !rows.is_multiple_of(2 * u64::from(heads)) {
                    return refuse(format!("whose rows are not {heads} heads of even width"));
                }
                let head = (rows / u64::from(heads)) as usize;
                (
                    0,
                    match how {
                        How::HalfRows { rotated, .. } => {
                            RowOrder::Halves { head, rotated: rotated_rows(self.config, head, rotated)? }
                        }
                        _ => RowOrder::Pairs { head },
                    },
                )
            }
            How::Half { axis, which } | How::Interleaved { axis, which } => {
                let Some(both) = shape.get_mut(axis).filter(|both| both.is_multiple_of(2)) else {
                    return refuse("which is not that of two matrices together".to_owned());
                };
                *both /= 2;
                let rows = *both as usize;
                let alternate = matches!(how, How::Interleaved { .. });
                (axis, if alternate { RowOrder::Interleaved { which } } else { RowOrder::Half { rows, which } })
            }
        };
        // The products are at most the elements of a tensor in a file.
        let product = |dims: &[u64]| dims.iter().product::<u64>() as usize;
        let (outer, inner) = shape.split_at(axis + 1);
        let rows = RowPlan { count: product(outer), columns: product(inner), order };
        Ok((shape, rows))
    }

    /// Whether this is the bias of a quantised module that had none: AutoGPTQ writes zeros.
    fn is_empty_bias(&self, tensor: &Tensor) -> bool {
        let module = tensor.name.strip_suffix(".bias").filter(|_| self.quantization.packed.is_some());
        module.is_some_and(|module| self.checkpoint.tensor(&format!("{module}.qweight")).is_some())
            && self.checkpoint.data(tensor).iter().all(|&byte| byte == 0)
    }

    /// Refuses tensors that no rule has used, except for layers of multi-token prediction and towers, which are left
    /// out.
    fn check_unused(&self, family: &Family, layers: usize, notes: &mut Vec<String>) -> Result<(), ConvertError> {
        let predicting = self.config.prediction_layers()?;
        let predicts = |name: &str| {
            let layer =
                name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
            layer.and_then(|layer| layer.checked_sub(layers)).is_some_and(|after| after < predicting)
                || family.prediction.iter().any(|start| name.starts_with(start))
        };
        let is_of_activations = |name: &str| {
            let suffixes = packed::SCALES_OF_ACTIVATIONS;
            self.quantization.fp8.is_some() && suffixes.iter().any(|suffix| name.ends_with(suffix))
        };
        let unused = |tensor: &&Tensor| {
            let name = tensor.name.as_str();
            !self.used.contains(name) && !is_ignored(name) && !is_of_activations(name) && !self.is_empty_bias(tensor)
        };
        let (towers, named) = family.within.as_ref().map(|within| (within.towers, within.named)).unwrap_or_default();
        let of_towers = |name: &str| towers.iter().any(|start| name.starts_with(start));
        let output = global(family, "output.weight").filter(|_| self.tied).map(|rule| self.theirs(rule, 0, 0));
        let is_unneeded =
            |name: &str| predicts(name) || of_towers(name) || is_ignored(name) || output.as_deref() == Some(name);
        notes.extend(self.checkpoint.left_out(is_unneeded)?);
        let unused: Vec<_> = self.checkpoint.tensors().filter(unused).collect();
        let (left_out, unused): (Vec<_>, Vec<_>) = unused.into_iter().partition(|tensor| predicts(&tensor.name));
        let (blind_to, unused): (Vec<_>, Vec<_>) = unused.into_iter().partition(|tensor| of_towers(&tensor.name));
        for (tensors, role) in
            [(left_out, "predict further tokens".to_owned()), (blind_to, format!("belong to {named}"))]
        {
            if let Some(first) = tensors.first() {
                notes.push(format!("{} tensors, {} first, {role}; they are left out", tensors.len(), first.name));
            }
        }
        let mut unused = unused.into_iter();
        match unused.next() {
            Some(first) => Err(ConvertError::UnusedTensors {
                first: first.name.clone(),
                count: 1 + unused.count(),
                family: family.model_types.join(", "),
            }),
            None => Ok(()),
        }
    }
}
