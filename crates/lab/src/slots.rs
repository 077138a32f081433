//! What slots for experts are expected to give: the share of choices that they have, and tokens per second.

use gristmill_engine::model::spec::{ModelSpec, RouterSize};
use gristmill_engine::model::{TensorReads, TensorUse};
use serde::Serialize;

use crate::routing::LOCALITIES;

/// The share of a GPU's measured bandwidth that a decode step reaches, and the rest of its time for each layer. On an H100 they give
/// the 522 tokens per second of Qwen3-30B-A3B (docs/benchmarks.md).
const OF_DEVICE: f64 = 0.85;
const LAYER_SECONDS: f64 = 26e-6;
/// The share of the host's measured bandwidth that the CPU's experts reach, and the time of a layer that waits for them: with slots
/// for 42 and 71 of 128 experts, 112 and 174 tokens per second on an H100 with 16 cores (docs/benchmarks.md).
const OF_HOST: f64 = 0.76;
const HANDOFF_SECONDS: f64 = 40e-6;

/// Measured bytes per second that the GPU and the CPU read.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReadRates {
    /// Of the GPU's memory.
    pub device: f64,
    /// Of the host's memory.
    pub host: f64,
}

/// Measured bytes per second that the CPU reads from memory, and from the model's file.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FileRates {
    /// Of memory.
    pub memory: f64,
    /// Of the file.
    pub file: f64,
}

/// What a token reads, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBytes {
    /// All weights of a token.
    pub active: u64,
    /// The weights of the experts that a token chooses.
    pub chosen: u64,
    /// All experts of the model.
    pub experts: u64,
}

impl TokenBytes {
    /// Of a model with these tensors.
    pub fn new(uses: &[TensorUse], bytes: impl Fn(&str) -> u64) -> Self {
        let is_expert = |it: &&TensorUse| matches!(it.reads, TensorReads::Experts { .. });
        let experts: Vec<TensorUse> = uses.iter().filter(is_expert).cloned().collect();
        Self {
            active: bytes_per_token(uses, &bytes),
            chosen: bytes_per_token(&experts, &bytes),
            experts: experts.iter().map(|it| bytes(&it.tensor)).fold(0, u64::saturating_add),
        }
    }
}

/// The layers of a model, and the router of those with experts.
#[derive(Clone, Copy, Debug)]
pub struct Layers {
    layers: usize,
    with_experts: usize,
    router: RouterSize,
}

impl Layers {
    /// `None` without experts.
    pub fn of(spec: &ModelSpec) -> Option<Self> {
        let routers = spec.routers();
        let router = routers.iter().copied().max_by_key(|router| router.experts).filter(|router| router.experts > 0)?;
        let with_experts = routers.iter().filter(|router| router.experts > 0).count();
        Some(Self { layers: routers.len(), with_experts, router })
    }

    /// Experts of a layer.
    pub fn experts(&self) -> usize {
        self.router.experts
    }

    /// Slots of each layer that fit into these bytes.
    pub fn slots(&self, bytes: &TokenBytes, free: u64) -> usize {
        let one = (bytes.experts / self.router.experts as u64).max(1);
        usize::try_from(free / one).unwrap_or(usize::MAX).min(self.router.experts)
    }

    /// What to expect of this number of slots on a GPU.
    pub fn expect(&self, bytes: &TokenBytes, slots: usize, rates: &ReadRates) -> Vec<Expected> {
        self.expect_by(slots, |hits| self.tokens_per_second(bytes, hits, rates))
    }

    /// What to expect of this number of experts in memory and the others in the file.
    pub fn expect_from_file(&self, bytes: &TokenBytes, slots: usize, rates: &FileRates) -> Vec<Expected> {
        self.expect_by(slots, |hits| {
            let missed = (1.0 - hits) * bytes.chosen as f64;
            1.0 / (bytes.active as f64 / (OF_HOST * rates.memory) + missed / rates.file)
        })
    }

    fn expect_by(&self, slots: usize, tokens_per_second: impl Fn(f64) -> f64) -> Vec<Expected> {
        let expected = |locality: &'static crate::routing::Locality| {
            let hits = locality.hits(self.router, slots);
            Expected { reuse: locality.name, hits, tokens_per_second: tokens_per_second(hits) }
        };
        LOCALITIES.iter().map(expected).collect()
    }

    /// Tokens per second if this share of the choices is in slots.
    fn tokens_per_second(&self, bytes: &TokenBytes, hits: f64, rates: &ReadRates) -> f64 {
        let missed = (1.0 - hits) * bytes.chosen as f64;
        let device = (bytes.active as f64 - missed) / (OF_DEVICE * rates.device) + self.layers as f64 * LAYER_SECONDS;
        let host = missed / (OF_HOST * rates.host) + self.with_experts as f64 * HANDOFF_SECONDS;
        1.0 / (device + if hits < 1.0 { host } else { 0.0 })
    }
}

/// What to expect of texts that use the same experts again with this locality ([`LOCALITIES`]).
#[derive(Clone, Debug, Serialize)]
pub struct Expected {
    /// The name of the locality.
    pub reuse: &'static str,
    /// The share of choices that are in slots.
    pub hits: f64,
    /// Of one sequence.
    pub tokens_per_second: f64,
}

/// One line. `place` says where an expert with a slot is.
pub fn describe(expected: &[Expected], place: &str) -> String {
    // Fewer than ten tokens per second have a decimal.
    let rate = |rate: f64| if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") };
    let part = |it: &Expected| {
        format!(
            "{} reuse {:.0}% of the choices {place}, {} tok/s",
            it.reuse,
            100.0 * it.hits,
            rate(it.tokens_per_second)
        )
    };
    expected.iter().map(part).collect::<Vec<_>>().join("; ")
}

/// Bytes of weights that one token reads, if its logits are computed; `bytes` are those of a tensor. Of experts it reads
/// the chosen ones, of a table one row.
pub fn bytes_per_token(uses: &[TensorUse], bytes: impl Fn(&str) -> u64) -> u64 {
    let read = |it: &TensorUse| {
        let bytes = bytes(&it.tensor);
        match it.reads {
            TensorReads::Row { rows } => bytes / rows.max(1) as u64,
            TensorReads::Experts { experts, top_k, .. } => (bytes / experts.max(1) as u64).saturating_mul(top_k as u64),
            _ => bytes,
        }
    };
    uses.iter().map(read).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Qwen3-30B-A3B in Q4_K_M.
    fn qwen() -> (Layers, TokenBytes) {
        let mut router = RouterSize::default();
        (router.experts, router.top_k) = (128, 8);
        let experts = 48 * 128 * 2_700_000;
        let chosen = experts / 16;
        let layers = Layers { layers: 48, with_experts: 48, router };
        (layers, TokenBytes { active: chosen + 830_000_000, chosen, experts })
    }

    /// docs/benchmarks.md, "CUDA: experts on the CPU": choices in slots, and tokens per second.
    #[test]
    fn rates_are_those_that_were_measured() {
        let (layers, bytes) = qwen();
        let rates = ReadRates { device: 3.3e12, host: 83e9 };
        for (hits, measured) in [(0.0, 61.7), (0.71, 112.0), (0.89, 174.0), (1.0, 522.0)] {
            let found = layers.tokens_per_second(&bytes, hits, &rates);
            println!("{hits}: {found:.1} ({measured})");
            assert!((found / measured - 1.0).abs() < 0.2, "{hits}: {found:.1} ({measured})");
        }
    }

    #[test]
    fn slots_fill_the_memory_and_more_reuse_hits_more() {
        let (layers, bytes) = qwen();
        let one = bytes.experts / 128;
        assert_eq!([0, one - 1, 42 * one, u64::MAX].map(|free| layers.slots(&bytes, free)), [0, 0, 42, 128]);
        let expected = layers.expect(&bytes, 42, &ReadRates { device: 3.3e12, host: 83e9 });
        let hits: Vec<f64> = expected.iter().map(|it| it.hits).collect();
        assert!(hits[0] < hits[1] && hits[1] < hits[2], "{hits:?}");
        assert!((hits[0] - 42.0 / 128.0).abs() < 0.03, "{hits:?}");
        assert!(expected[0].tokens_per_second < expected[2].tokens_per_second);
        assert!(describe(&expected, "in slots").starts_with("uniform reuse 3"), "{expected:?}");
    }
}
