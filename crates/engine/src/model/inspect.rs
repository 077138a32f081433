//! Looking into a forward pass: which part of a model first gives an output that is not finite, and what routers
//! choose.

use gristmill_kernels::Backend;
use gristmill_kernels::ops::GroupByExpert;
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Weight;

use super::Scratch;
use super::weights::{LayerWeights, MlpWeights, MoeWeights};
use crate::error::Result;
use crate::stage::Stage;

/// Is called after each stage but the last, with the residual stream in the scratch.
pub(crate) type Inspect<'a> = dyn FnMut(Stage, &mut Scratch) -> Result<()> + 'a;

/// The first of `tokens` tokens whose row of the residual stream is not finite, of those that `counts` admits.
pub(crate) fn first_not_finite(
    backend: &Backend,
    scratch: &Scratch,
    [tokens, hidden]: [usize; 2],
    counts: impl Fn(usize) -> bool,
) -> Result<Option<usize>> {
    let mut rows = vec![0.0; tokens * hidden];
    backend.download(scratch.residual.view(tokens, hidden)?, &mut rows)?;
    let finite = |row: &[f32]| row.iter().all(|x| x.is_finite());
    Ok(rows.chunks_exact(hidden).enumerate().position(|(token, row)| counts(token) && !finite(row)))
}

/// How many (token, slot) pairs each expert of a layer got from these many tokens; empty for a layer without experts.
pub(crate) fn expert_counts(
    backend: &Backend,
    layer: &LayerWeights<Weight, Buffer<f32>>,
    scratch: &mut Scratch,
    tokens: usize,
) -> Result<Vec<u32>> {
    let Some(MlpWeights::Moe(MoeWeights { router, routing, .. })) = layer.mlp.as_ref().map(|block| &block.weights)
    else {
        return Ok(Vec::new());
    };
    let mut counts = vec![0; router.rows()];
    let (ids, groups) = (scratch.moe.ids.view(tokens, routing.top_k)?, &mut scratch.moe.groups);
    backend.run(GroupByExpert { ids, groups })?;
    backend.download(scratch.moe.groups.counts().view(counts.len(), 1)?, &mut counts)?;
    Ok(counts)
}
