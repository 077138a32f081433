//! Matrices that have queries, keys and values together: of each KV head, or of each rank of tensor parallelism.

use gristmill_files::safetensors::Tensor;

use super::config::Config;
use super::error::ConvertError;
use super::family::GroupPart;
use super::files::INDEX;
use super::inputs::FP8;
use super::keys::needed;
use super::rows::{RowOrder, RowPlan};
use super::tensors::Planner;

const KV: &str = "num_key_value_heads";

impl Planner<'_, '_> {
    /// The number of ranks that a fused matrix is laid out for. In FP8 it is the number of KV heads with full attention,
    /// as in SGLang and vLLM. Floats are as the authors' model has them in memory, for one rank, unless the index of the
    /// files has another number.
    ///
    /// # Errors
    /// If the settings lack the number, or the index contradicts it.
    pub(super) fn ranks(&self, tensor: &Tensor) -> Result<usize, ConvertError> {
        let stated = self.checkpoint.ranks()?;
        if tensor.dtype != FP8 {
            return Ok(stated.unwrap_or(1));
        }
        let heads = needed(self.config, KV)? as usize;
        match stated.filter(|&ranks| ranks != heads) {
            Some(ranks) => Err(self.config.wrong(KV, &heads.into(), format!("{ranks}, the `tp_size` in {INDEX}"))),
            None => Ok(heads),
        }
    }
}

/// The rows of one part of a matrix of this shape, which stores queries, keys and values of each rank together. The inner
/// error is what the matrix should have.
pub(super) fn ranked(
    config: &Config,
    part: GroupPart,
    ranks: usize,
    shape: &[u64],
) -> Result<Result<RowPlan, String>, ConvertError> {
    let setting = |name| needed(config, name).map(u64::from);
    let (heads, of_key, of_value) = (setting("num_attention_heads")?, setting("head_dim")?, setting("v_head_dim")?);
    let &[rows, columns] = shape else { return Ok(Err("which is not a matrix".to_owned())) };
    let of_kv_heads = rows.saturating_sub(heads * of_key);
    if of_kv_heads == 0 || [heads, of_key, of_value].contains(&0) || !of_kv_heads.is_multiple_of(of_key + of_value) {
        let expected = format!("whose rows are not {heads} queries of {of_key} rows with keys and values");
        return Ok(Err(expected));
    }
    let kv_heads = of_kv_heads / (of_key + of_value);
    let ranks = ranks as u64;
    if ranks == 0 || !heads.is_multiple_of(ranks) || !kv_heads.is_multiple_of(ranks) {
        let expected =
            format!("whose {heads} query heads and {kv_heads} KV heads are not those of {ranks} equal ranks");
        return Ok(Err(expected));
    }
    // The rows of one rank. A tensor of a file has these elements.
    let [queries, keys, values] =
        [heads * of_key, kv_heads * of_key, kv_heads * of_value].map(|rows| (rows / ranks) as usize);
    let (first, width) = match part {
        GroupPart::Queries => (0, queries),
        GroupPart::Keys => (queries, keys),
        GroupPart::Values => (queries + keys, values),
    };
    let order = RowOrder::Group { group: queries + keys + values, first, width, pairs: None };
    Ok(Ok(RowPlan { count: ranks as usize * width, columns: columns as usize, order }))
}

/// The rows of one part of a matrix of this shape, which stores the parts of each KV head together. The inner error is
/// what the matrix should have.
pub(super) fn group(config: &Config, part: GroupPart, shape: &[u64]) -> Result<Result<RowPlan, String>, ConvertError> {
    let heads = needed(config, "num_attention_heads")? as usize;
    let kv_heads = if config.value(KV).is_some() { needed(config, KV)? as usize } else { heads };
    if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(config.wrong(KV, &kv_heads.into(), format!("a divisor of the {heads} query heads")));
    }
    let queries = heads / kv_heads;
    let all = (heads + 2 * kv_heads) as u64;
    let &[rows, columns] = shape else { return Ok(Err("which is not a matrix".to_owned())) };
    if !rows.is_multiple_of(2 * all) {
        return Ok(Err(format!("whose rows are not {all} heads of even width")));
    }
    let head = (rows / all) as usize;
    let (first, width, pairs) = match part {
        GroupPart::Queries => (0, queries * head, Some(head)),
        GroupPart::Keys => (queries * head, head, Some(head)),
        GroupPart::Values => ((queries + 1) * head, head, None),
    };
    let order = RowOrder::Group { group: (queries + 2) * head, first, width, pairs };
    Ok(Ok(RowPlan { count: kv_heads * width, columns: columns as usize, order }))
}
