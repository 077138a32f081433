//! Prediction heads: a layer whose logits are those of the token after the next one.

use gristmill_kernels::ops::Epilogue;
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Layer, Output};
use crate::program::node::Node;
use crate::program::tensors::TensorSpec;
use crate::program::{Columns, PredictionHead, RowsId};
use crate::spec::LayerSpec;
use crate::stage::Stage;

/// The names of a head's own last norm: llama.cpp's usual name, and its name for Ling 2 and MiMo V2.
const LAST_NORMS: [&str; 2] = ["nextn.shared_head_norm", "layer_output_norm"];

/// What a prediction head reads and writes.
#[derive(Clone, Copy)]
struct Head {
    /// Its number.
    at: usize,
    /// The rows of a batch's tokens, of which the head reads those of the tokens before.
    x: RowsId,
    /// The rows before the tokens.
    previous: RowsId,
    /// The rows before the tokens of the next head.
    next: Option<RowsId>,
}

impl Builder<'_> {
    /// See [`ModelSpec::heads`](crate::spec::ModelSpec::heads).
    pub(super) fn prediction_heads(&mut self, mut x: RowsId, output: Output) -> Vec<PredictionHead> {
        let specs = &self.spec.heads;
        let previous: Vec<_> = specs.iter().map(|_| self.new_rows(self.spec.hidden, "the prediction head")).collect();
        let mut heads = Vec::with_capacity(specs.len());
        for (at, spec) in specs.iter().enumerate() {
            let next = previous.get(at + 1).copied();
            let head = Head { at, x, previous: previous[at], next };
            let (head, passed) = self.prediction_head(head, spec, output);
            heads.push(head);
            x = passed;
        }
        heads
    }

    /// Returns the head, and the rows of which the next one reads those of the tokens before. The row of token t has position
    /// and slot of t. A text's first token has no hidden state before it, so its row is visible to no other; in the second
    /// head those of the first two tokens, and so on.
    fn prediction_head(&mut self, head: Head, spec: &LayerSpec, output: Output) -> (PredictionHead, RowsId) {
        let Head { at, x, previous, next } = head;
        let inputs = self.spec.head_inputs;
        let index = self.spec.layers.len() + at;
        let hidden = self.spec.hidden;
        let vocab = self.spec.vocab;
        let stage = Stage::Layer(index);
        let layer = Layer { index, first: at + 1 };
        // Drafting runs the head without the layers that have grouped tokens and heads.
        self.heads.clear();
        let taps = self.repeated(&[1.0, 0.0], hidden);
        self.push(Node::PreviousRow { head: at, x, taps, out: previous });
        let shift = self.part(stage);

        self.residual = self.new_rows(hidden, "the prediction head");
        self.head_input(layer, previous, output);
        self.layer(layer, spec, None);
        let block = self.part(stage);

        let own = LAST_NORMS.map(|norm| layer.name(norm));
        let own = own.iter().find(|norm| self.contains(&format!("{norm}.weight")));
        let norm = self.norm_vectors_of(self.spec.head_norm, own.map_or(self.spec.output_norm, String::as_str));
        // What the next head reads in a forward pass. Drafting leaves these rows, which a replay reads, as they are.
        let passes_on = inputs.chained && next.is_some();
        let passed = match (passes_on, inputs.normed) {
            (true, true) => self.normalise(norm, self.residual),
            (true, false) => self.copied(self.residual),
            (false, _) => previous,
        };
        let pass_on = passes_on.then(|| self.part(stage));
        let normed = self.normalise(norm, self.residual);
        let act = self.prepare(normed);
        let own = layer.name("nextn.shared_head_head.weight");
        let output = match self.contains(&own) {
            true => {
                Output { weight: self.matrix(Role::Matrix, vec![TensorSpec::new(own, &[hidden, vocab])]), ..output }
            }
            false => output,
        };
        self.logits(output, act);
        let logits = self.part(stage);

        let carried = match (inputs.chained, inputs.normed) {
            (true, true) => normed,
            (true, false) => self.residual,
            (false, _) => previous,
        };
        let to = next.unwrap_or(previous);
        if carried != to {
            self.push(Node::Copy { x: self.all(carried), out: self.all(to) });
        }
        let carry = self.part(stage);
        (PredictionHead { shift, block, pass_on, logits, carry, previous }, passed)
    }

    /// A copy of these rows.
    fn copied(&mut self, x: RowsId) -> RowsId {
        let out = self.new_rows(self.cols(x), "the prediction head");
        self.push(Node::Copy { x: self.all(x), out: self.all(out) });
        out
    }

    /// residual = eh_proj [norm(embedding of the token) | norm(previous)].
    fn head_input(&mut self, layer: Layer, previous: RowsId, Output { table, .. }: Output) {
        let (hidden, vocab, what) = (self.spec.hidden, self.spec.vocab, "the prediction head");
        let both = hidden.saturating_mul(2);
        let own = layer.name("nextn.embed_tokens.weight");
        let table = match self.contains(&own) {
            true => self.matrix(Role::Table, vec![TensorSpec::new(own, &[hidden, vocab])]),
            false => table,
        };
        let norms = ["enorm", "hnorm"].map(|part| self.norm_vectors(&layer.name(&format!("nextn.{part}"))));
        let projection = TensorSpec::new(layer.name("nextn.eh_proj.weight"), &[both, hidden]);
        let projection = self.matrix(Role::Matrix, vec![projection]);

        let embedded = self.new_rows(hidden, what);
        self.push(Node::Embed { table, scale: self.spec.embedding_scale, out: embedded });
        let joined = self.new_rows(both, what);
        for (at, (norm, x)) in norms.into_iter().zip([embedded, previous]).enumerate() {
            let normed = self.normalise(norm, x);
            let first = at.saturating_mul(hidden);
            let out = Columns { rows: joined, first, end: first.saturating_add(hidden) };
            self.push(Node::Copy { x: self.all(normed), out });
        }
        let act = self.prepare(joined);
        let y = self.residual;
        self.push(Node::Matmul { weight: projection, bias: None, act, epilogue: Epilogue::Store, y });
    }
}
