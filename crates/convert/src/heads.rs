//! Prediction heads (MTP): layers after the last one, with tensors of their own at their input and end.

use gristmill_files::gguf::{Array, Value};

use super::error::ConvertError;
use super::family::Family;
use super::keys::Pairs;
use super::tensors::Planner;

impl Planner<'_, '_> {
    /// Adds the heads of which the folder has all tensors, and returns their number. Copies of the embedding table and of
    /// the output matrix are not theirs.
    pub(super) fn heads(&mut self, family: &Family, layers: usize) -> Result<usize, ConvertError> {
        let mut count = 0;
        // Each head has tensors of its own, so the loop ends at the first that the folder does not have.
        loop {
            let (used, planned) = (self.used.clone(), self.planned.len());
            self.head = Some((count, family.head_names));
            let added = self.head(family, layers + count);
            self.head = None;
            match added {
                Ok(true) => count += 1,
                Ok(false) => return Ok(count),
                Err(ConvertError::MissingTensor(_)) => {
                    self.used = used;
                    self.planned.truncate(planned);
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds the head that is this layer, if the folder has its first tensor.
    fn head(&mut self, family: &Family, layer: usize) -> Result<bool, ConvertError> {
        if !family.heads.first().is_some_and(|rule| self.has(rule, layer)) {
            return Ok(false);
        }
        match self.head {
            Some((head, _)) if family.whole_heads && head > 0 => return Ok(false),
            _ if family.whole_heads => {}
            _ => self.layer(family, layer)?,
        }
        family.heads.iter().try_for_each(|rule| self.add(rule, layer))?;
        Ok(true)
    }
}

/// Adds heads to the keys of a model. Values for each layer also have one for each head: with a window if the family's heads
/// have one, without a state of fixed size and without limits, and with the most heads.
pub(super) fn count(pairs: &mut Pairs, family: &Family, heads: usize) {
    if heads == 0 {
        return;
    }
    let layers = pairs.iter().find_map(|(key, value)| match value {
        Value::U32(layers) if key == BLOCKS => Some(*layers as usize),
        _ => None,
    });
    for (key, value) in pairs.iter_mut() {
        match value {
            // A folder has far fewer than 2^32 tensors.
            Value::U32(blocks) if key == BLOCKS => *blocks = blocks.saturating_add(heads as u32),
            Value::Array(Array::Bool(flags)) if Some(flags.len()) == layers => {
                flags.extend(std::iter::repeat_n(family.windowed_heads, heads));
            }
            Value::Array(Array::F32(limits)) if Some(limits.len()) == layers => {
                limits.extend(std::iter::repeat_n(0.0, heads));
            }
            Value::Array(Array::I32(counts)) if Some(counts.len()) == layers => {
                let most = counts.iter().copied().max().unwrap_or_default();
                counts.extend(std::iter::repeat_n(most, heads));
            }
            _ => {}
        }
    }
    pairs.retain(|(key, _)| key != PREDICTED);
    pairs.push((PREDICTED.to_owned(), Value::U32(heads as u32)));
}

const BLOCKS: &str = "block_count";
const PREDICTED: &str = "nextn_predict_layers";
