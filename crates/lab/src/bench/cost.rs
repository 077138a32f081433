//! The least that a forward pass reads and computes, from which the speed limit follows.

use gristmill_engine::model::spec::{ModelSpec, StateBuffer};
use gristmill_engine::model::{TensorReads, TensorUse};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::kv::{KV_BLOCK, KvFormat};
use gristmill_kernels::ops::Window;

use super::measure::LayerRouting;

/// Tokens that a step adds to one sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Tokens in the cache before the step.
    pub(crate) start: usize,
    pub(crate) count: usize,
    /// The step outputs the logits of the last token.
    pub(crate) output: bool,
}

/// One forward pass: sequences and their spans.
pub(crate) type StepSpans = Vec<(usize, Span)>;

/// The work of several steps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// Input tokens.
    pub(crate) tokens: usize,
    /// Bytes read of weights and cache.
    pub(crate) bytes: f64,
    /// Operations; a multiplication and an addition are two.
    pub(crate) ops: f64,
}

/// The costs of a model.
pub(crate) struct Cost {
    /// Weights that every step reads.
    dense: Matrix,
    head: Matrix,
    /// One row of the embedding table.
    embedding_row: f64,
    layers: Vec<LayerCost>,
}

/// Bytes of weights, and multiplications per token.
#[derive(Clone, Copy, Default)]
struct Matrix {
    bytes: f64,
    products: f64,
}

struct LayerCost {
    /// One expert.
    expert: Matrix,
    top_k: usize,
    /// Multiplications for one query token and one cached token.
    attention: f64,
    /// Bytes of one token in the cache.
    cache_bytes: f64,
    /// Bytes of a sequence's state, if it has a fixed size.
    state_bytes: f64,
    /// Multiplications with that state for one token.
    state_products: f64,
    window: Option<Window>,
}

impl Cost {
    /// The costs of a model with these uses of the file's tensors.
    pub(crate) fn of(spec: &ModelSpec, uses: &[TensorUse], file: &GgufFile, format: KvFormat) -> Cost {
        let layers = spec.layers.iter().zip(spec.routers()).map(|(layer, router)| {
            let mut cost = LayerCost {
                expert: Matrix::default(),
                top_k: router.top_k,
                attention: 0.0,
                cache_bytes: 0.0,
                state_bytes: 0.0,
                state_products: 0.0,
                window: None,
            };
            for StateBuffer { name, elements } in layer.mixer.fixed_state(spec.hidden) {
                cost.state_bytes += (size_of::<f32>() * elements) as f64;
                cost.state_products += (name.products() * elements) as f64;
            }
            let source = layer.attention().and_then(|attention| spec.layers.get(attention.kv_from?)).unwrap_or(layer);
            if let Some(cache) = source.cache(format) {
                cost.cache_bytes = (cache.block_bytes() / KV_BLOCK) as f64;
                cost.attention = (layer.query_heads() * (cache.key_width + cache.value_width)) as f64;
                cost.window = layer.attention().and_then(|attention| attention.window);
            }
            cost
        });
        let mut cost =
            Cost { dense: Matrix::default(), head: Matrix::default(), embedding_row: 0.0, layers: layers.collect() };
        for TensorUse { tensor, elements, reads, .. } in uses {
            let bytes = file.tensor(tensor).map_or(0, |tensor| tensor.bytes) as f64;
            let matrix = Matrix { bytes, products: *elements as f64 };
            match *reads {
                TensorReads::Row { rows } => cost.embedding_row += bytes / rows.max(1) as f64,
                TensorReads::OutputMatrix => cost.head.add(matrix, 1.0),
                TensorReads::Experts { layer, experts, .. } => {
                    let expert = cost.layers.get_mut(layer).map(|layer| &mut layer.expert);
                    expert.into_iter().for_each(|expert| expert.add(matrix, 1.0 / experts.max(1) as f64));
                }
                TensorReads::Matrix => cost.dense.add(matrix, 1.0),
                _ => cost.dense.bytes += bytes,
            }
        }
        cost
    }

    /// The work of these steps, whose routers chose so; without a layer's routing it reads no expert.
    pub(crate) fn of_steps(&self, steps: &[StepSpans], routing: &[LayerRouting]) -> Work {
        let mut work = Work::default();
        for step in steps {
            let tokens: usize = step.iter().map(|(_, span)| span.count).sum();
            let outputs = step.iter().filter(|(_, span)| span.output).count() as f64;
            work.tokens += tokens;
            work.bytes += self.dense.bytes + self.embedding_row * tokens as f64;
            work.bytes += if outputs > 0.0 { self.head.bytes } else { 0.0 };
            work.ops += 2.0 * (self.dense.products * tokens as f64 + self.head.products * outputs);
            for (i, layer) in self.layers.iter().enumerate() {
                work.bytes += layer.expert.bytes * routing.get(i).map_or(0.0, |routing| routing.distinct);
                work.ops += 2.0 * layer.expert.products * (layer.top_k * tokens) as f64;
                for (_, span) in step {
                    let end = span.start + span.count;
                    let first = |position| layer.window.map_or(0, |window| window.first(position));
                    let seen: usize = (span.start..end).map(|position| position + 1 - first(position)).sum();
                    work.ops += 2.0 * (layer.attention * seen as f64 + layer.state_products * span.count as f64);
                    // Read and written once in a step.
                    work.bytes += 2.0 * layer.state_bytes;
                    work.bytes += layer.cache_bytes * (end - first(span.start)) as f64;
                }
            }
        }
        work
    }
}

impl Matrix {
    fn add(&mut self, other: Matrix, share: f64) {
        self.bytes += other.bytes * share;
        self.products += other.products * share;
    }
}
