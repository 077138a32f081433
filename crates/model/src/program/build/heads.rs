//! Prediction heads: a layer whose logits are those of the token after the next one.

use gristmill_kernels::ops::Epilogue;
use gristmill_kernels::weight::Role;

use super::{Builder, Layer, Output};
use crate::program::node::Node;
use crate::program::tensors::TensorSpec;
use crate::program::{Columns, PredictionHead, RowsId};
use crate::spec::LayerSpec;
use crate::stage::Stage;

impl Builder<'_> {
    /// See [`ModelSpec::heads`](crate::spec::ModelSpec::heads). The row of token t has position and slot of t. A text's
    /// first token has no hidden state before it, so its row is visible to no other.
    pub(super) fn prediction_head(
        &mut self,
        index: usize,
        spec: &LayerSpec,
        hidden_states: RowsId,
        output: Output,
    ) -> PredictionHead {
        let (hidden, vocab, stage) = (self.spec.hidden, self.spec.vocab, Stage::Layer(index));
        let layer = Layer { index, first: 1 };
        // Drafting runs the head without the layers that have grouped tokens and heads.
        self.heads.clear();
        let previous = self.new_rows(hidden, "the prediction head");
        let taps = self.repeated(&[1.0, 0.0], hidden);
        self.push(Node::PreviousRow { x: hidden_states, taps, out: previous });
        let shift = self.part(stage);

        self.residual = self.new_rows(hidden, "the prediction head");
        self.head_input(layer, previous, output);
        self.layer(layer, spec, None);
        let block = self.part(stage);

        let own = layer.name("nextn.shared_head_norm");
        let norm = if self.contains(&format!("{own}.weight")) { &own } else { self.spec.output_norm };
        let norm = self.norm_vectors(norm);
        let next = self.normalise(norm, self.residual);
        let act = self.prepare(next);
        let own = layer.name("nextn.shared_head_head.weight");
        let output = match self.contains(&own) {
            true => {
                Output { weight: self.matrix(Role::Matrix, vec![TensorSpec::new(own, &[hidden, vocab])]), ..output }
            }
            false => output,
        };
        self.logits(output, act);
        let logits = self.part(stage);

        self.push(Node::Copy { x: self.all(next), out: self.all(previous) });
        let carry = self.part(stage);
        PredictionHead { shift, block, logits, carry, previous }
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
