//! The choices of the routers in a forward pass.

use super::Runner;
use crate::error::Result;
use crate::spec::RouterSize;

/// The choices of all routers in one forward pass, copied to host memory. The forward pass leaves them side by side on
/// the device, so no layer waits for the host.
#[derive(Clone, Debug, Default)]
pub struct RoutingTrace {
    /// The layers of the model.
    layers: Vec<RouterSize>,
    /// Tokens of the batch.
    tokens: usize,
    /// Tokens of the pass, padding included.
    padded: usize,
    /// Chosen experts: `padded` × `top_k` of each layer, one layer after another.
    ids: Vec<u32>,
    /// Their weights, likewise.
    weights: Vec<f32>,
}

impl RoutingTrace {
    /// The number of tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// For each layer, the (token, slot) pairs of each expert; empty for a layer without experts. No layers for an
    /// empty batch.
    pub fn counts(&self) -> Vec<Vec<u32>> {
        let count = |(router, start): (RouterSize, usize)| {
            let mut counts = vec![0; router.experts];
            let ids = self.ids.iter().skip(start).take(self.tokens * router.top_k);
            ids.for_each(|&id| counts.get_mut(id as usize).into_iter().for_each(|count| *count += 1));
            counts
        };
        self.starts().map(count).collect()
    }

    /// For each layer, the experts of one token of the batch with their weights, in the router's order; empty for a
    /// layer without experts. The list is empty for a token beyond the batch.
    pub fn of_token(&self, token: usize) -> Vec<Vec<(u32, f32)>> {
        if token >= self.tokens {
            return Vec::new();
        }
        let chosen = |(router, start): (RouterSize, usize)| {
            let range = start + token * router.top_k..start + (token + 1) * router.top_k;
            let ids = self.ids.get(range.clone()).unwrap_or_default();
            ids.iter().copied().zip(self.weights.get(range).unwrap_or_default().iter().copied()).collect()
        };
        self.starts().map(chosen).collect()
    }

    /// The layers, and where their choices start.
    fn starts(&self) -> impl Iterator<Item = (RouterSize, usize)> {
        self.layers.iter().scan(0, |next, &router| {
            let start = *next;
            *next += self.padded * router.top_k;
            Some((router, start))
        })
    }
}

impl Runner {
    /// The choices of the routers in the last forward pass, in two copies from the device. Without layers before the
    /// first pass, and after that of an empty batch.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if the device refuses.
    pub fn routing(&self) -> Result<RoutingTrace> {
        let _exclusive = self.model.backend.exclusive();
        self.read_routing()
    }

    /// The same for a caller that holds [`Backend::exclusive`](gristmill_kernels::Backend::exclusive), which cannot be
    /// locked twice.
    pub(super) fn read_routing(&self) -> Result<RoutingTrace> {
        let Some(shape) = self.last else { return Ok(RoutingTrace::default()) };
        let layers = self.model.own.routers();
        let padded = shape.tokens;
        let choices = padded * layers.iter().map(|router| router.top_k).sum::<usize>();
        let (mut ids, mut weights) = (vec![0; choices], vec![0.0; choices]);
        if choices > 0 {
            let (backend, scratch) = (&self.model.backend, &self.scratch);
            backend.download(scratch.ids.borrow().view(1, choices)?, &mut ids)?;
            backend.download(scratch.weights.borrow().view(1, choices)?, &mut weights)?;
        }
        Ok(RoutingTrace { layers, tokens: self.places.len(), padded, ids, weights })
    }
}
