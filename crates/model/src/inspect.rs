//! Looking into a forward pass: which part of a model first gives an output that is not finite.
//!
//! # Logits that are not finite
//!
//! Logits that are not finite end their request. A second pass then checks the residual stream after each layer, and
//! reports the first layer with such an output. So a normal step checks only its logits.

use gristmill_kernels::Backend;
use gristmill_kernels::tensor::Buffer;

use crate::error::Result;
use crate::program::scratch::Scratch;
use crate::stage::Stage;

/// Is called after each stage but the last, with the residual stream in the scratch.
pub(crate) type Inspect<'a> = dyn FnMut(Stage, &Scratch) -> Result<()> + 'a;

/// The first of `tokens` tokens whose row of the residual stream is not finite, of those that `counts` admits.
pub(crate) fn first_not_finite(
    backend: &Backend,
    residual: &Buffer<f32>,
    [tokens, hidden]: [usize; 2],
    counts: impl Fn(usize) -> bool,
) -> Result<Option<usize>> {
    let mut rows = vec![0.0; tokens * hidden];
    backend.download(residual.view(tokens, hidden)?, &mut rows)?;
    let finite = |row: &[f32]| row.iter().all(|x| x.is_finite());
    Ok(rows.chunks_exact(hidden).enumerate().position(|(token, row)| counts(token) && !finite(row)))
}
