//! Which tensors the file will have, and what each is made of: the tables of [`family`](super::family) applied to a
//! checkpoint.

use std::collections::HashSet;

use gristmill_kernels::format::Format;

use super::checkpoint::Checkpoint;
use super::config::Config;
use super::error::ConvertError;
use super::family::{Family, How, Need, Rule};
use super::keys::needed;
use super::safetensors::Tensor;

/// A tensor of the file to be written.
pub(super) struct Made {
    pub(super) name: String,
    /// The innermost dimension first.
    pub(super) shape: Vec<u64>,
    pub(super) source: Source,
}

/// Where the values of a tensor come from.
pub(super) enum Source {
    /// From tensors of the checkpoint one after the other, all of one dtype and shape.
    Tensors { parts: Vec<Tensor>, dtype: Format, order: RowOrder },
    /// They were computed.
    Values(Vec<f32>),
}

impl Made {
    /// The format of its values before the conversion.
    pub(super) fn dtype(&self) -> Format {
        match self.source {
            Source::Tensors { dtype, .. } => dtype,
            Source::Values(_) => Format::F32,
        }
    }

    /// The name of the tensor that it is made of, or of the first of them.
    pub(super) fn source_name(&self) -> Option<&str> {
        match &self.source {
            Source::Tensors { parts, .. } => parts.first().map(|tensor| tensor.name.as_str()),
            Source::Values(_) => None,
        }
    }
}

/// The order in which rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOrder {
    Same,
    /// See [`How::PairRows`]; a head has this many rows, an even number.
    Pairs {
        head: usize,
    },
}

impl RowOrder {
    /// The row of the checkpoint that is written as row `row`.
    pub(super) fn source(self, row: usize) -> usize {
        match self {
            RowOrder::Same => row,
            RowOrder::Pairs { head } => {
                let (start, within) = (row / head * head, row % head);
                start + within % 2 * (head / 2) + within / 2
            }
        }
    }
}

/// Buffers that some checkpoints have, which are no weights.
const IGNORED: &[&str] = &[".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"];

/// Plans every tensor; `factors` are those of [`Rope`](super::rope::Rope).
pub(super) fn plan(
    family: &Family,
    config: &Config,
    checkpoint: &Checkpoint,
    factors: Option<Vec<f32>>,
) -> Result<Vec<Made>, ConvertError> {
    let layers = needed(config, "num_hidden_layers")? as usize;
    let mut planner = Planner { config, checkpoint, used: HashSet::new(), planned: Vec::new() };
    if let Some(factors) = factors {
        let shape = vec![factors.len() as u64];
        planner.planned.push(Made { name: "rope_freqs.weight".to_owned(), shape, source: Source::Values(factors) });
    }
    for rule in family.globals {
        planner.add(rule, 0)?;
    }
    // Every layer has tensors of its own, so a count that the checkpoint cannot hold ends the loop at the first that is
    // missing.
    for layer in 0..layers {
        for rule in family.layer.iter().copied().flatten() {
            planner.add(rule, layer)?;
        }
        let there =
            |rules: &&&[Rule]| rules.first().is_some_and(|rule| checkpoint.tensor(&theirs(rule, layer, 0)).is_some());
        let mlp = family.mlps.iter().find(there).or(family.mlps.first());
        for rule in mlp.copied().into_iter().flatten() {
            planner.add(rule, layer)?;
        }
    }
    planner.check_unused(family)?;
    Ok(planner.planned)
}

struct Planner<'a, 'c> {
    config: &'c Config,
    checkpoint: &'a Checkpoint,
    used: HashSet<&'a str>,
    planned: Vec<Made>,
}

fn theirs(rule: &Rule, layer: usize, expert: usize) -> String {
    rule.theirs.replace("{layer}", &layer.to_string()).replace("{expert}", &expert.to_string())
}

impl<'a> Planner<'a, '_> {
    fn add(&mut self, rule: &Rule, layer: usize) -> Result<(), ConvertError> {
        let count = if rule.theirs.contains("{expert}") { self.experts()? } else { 1 };
        let mut parts: Vec<&Tensor> = Vec::new();
        for expert in 0..count {
            let name = theirs(rule, layer, expert);
            match self.checkpoint.tensor(&name) {
                Some(tensor) => {
                    self.used.insert(&tensor.name);
                    parts.push(tensor);
                }
                None if self.may_lack(rule.need)? => return Ok(()),
                None => return Err(ConvertError::MissingTensor { name }),
            }
        }
        let [first, rest @ ..] = parts.as_slice() else {
            return Err(self.config.wrong("num_local_experts", &0.into(), "at least 1"));
        };
        if let Some(other) = rest.iter().find(|t| t.shape != first.shape || t.dtype != first.dtype) {
            let expected = format!("dtype {}, but expert 0 has {:?}, {}", other.dtype, first.shape, first.dtype);
            return Err(ConvertError::Shape { name: other.name.clone(), found: other.shape.clone(), expected });
        }
        let mut shape: Vec<u64> = first.shape.iter().rev().copied().collect();
        if shape.is_empty() || shape.contains(&0) {
            let expected = "which is no vector or matrix".to_owned();
            return Err(ConvertError::Shape { name: first.name.clone(), found: first.shape.clone(), expected });
        }
        if rule.theirs.contains("{expert}") {
            shape.push(count as u64);
        }
        let (dtype, order) = (dtype(first)?, self.order(rule.how, first)?);
        let source = Source::Tensors { dtype, order, parts: parts.into_iter().cloned().collect() };
        self.planned.push(Made { name: rule.ours.replace("{layer}", &layer.to_string()), shape, source });
        Ok(())
    }

    fn experts(&self) -> Result<usize, ConvertError> {
        let count = match self.config.count("num_local_experts")? {
            Some(count) => count,
            None => needed(self.config, "num_experts")?,
        };
        Ok(count as usize)
    }

    fn may_lack(&self, need: Need) -> Result<bool, ConvertError> {
        Ok(match need {
            Need::Always => false,
            Need::IfThere => true,
            Need::UnlessTied => self.config.flag("tie_word_embeddings")?.unwrap_or(false),
        })
    }

    fn order(&self, how: How, tensor: &Tensor) -> Result<RowOrder, ConvertError> {
        let How::PairRows(settings) = how else { return Ok(RowOrder::Same) };
        let setting = settings.iter().find(|setting| self.config.value(setting).is_some());
        let heads = needed(self.config, setting.or(settings.first()).copied().unwrap_or_default())?;
        let rows = tensor.shape.first().copied().unwrap_or_default();
        if heads == 0 || !rows.is_multiple_of(2 * u64::from(heads)) {
            let expected = format!("whose rows are not {heads} heads of even width");
            return Err(ConvertError::Shape { name: tensor.name.clone(), found: tensor.shape.clone(), expected });
        }
        Ok(RowOrder::Pairs { head: (rows / u64::from(heads)) as usize })
    }

    fn check_unused(&self, family: &Family) -> Result<(), ConvertError> {
        let unused = |tensor: &&Tensor| {
            !self.used.contains(tensor.name.as_str()) && !IGNORED.iter().any(|suffix| tensor.name.ends_with(suffix))
        };
        let mut unused = self.checkpoint.tensors().filter(unused);
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

/// The format of a tensor's elements.
fn dtype(tensor: &Tensor) -> Result<Format, ConvertError> {
    let known = [Format::F32, Format::F16, Format::BF16].into_iter().find(|format| format.name() == tensor.dtype);
    known.ok_or_else(|| ConvertError::Dtype { name: tensor.name.clone(), found: tensor.dtype.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_head_become_pairs() {
        let order = RowOrder::Pairs { head: 6 };
        let rows: Vec<usize> = (0..12).map(|row| order.source(row)).collect();
        assert_eq!(rows, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert_eq!(RowOrder::Same.source(7), 7);
    }
}
