//! Mixers: attention, the gated delta rule, a short convolution.

use gristmill_kernels::ops::{DecayKind, DeltaHeads, Epilogue, GateKind, GateOrder};
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Input, Layer};
use crate::program::node::{Attention, Node, QkNorms};
use crate::program::tensors::{RowOrder, TensorSpec, VectorSpec};
use crate::program::{ActId, Columns, Factor, MatrixId, RowsId, VectorId};
use crate::spec::{AttentionSpec, ConvolutionSpec, DeltaProjections, DeltaSpec, GateRows, Mixer, OutputGate, QkNorm};

impl Builder<'_> {
    /// Mixers that read the same input. Returns the block's output, and the rows of its input; `None` without mixers.
    pub(super) fn mixers(&mut self, layer: Layer, mixers: &[Mixer], input: Input) -> Option<(RowsId, RowsId)> {
        let (first, others) = mixers.split_first()?;
        let (output, read) = self.mixer(layer, first, input);
        for other in others {
            let (x, _) = self.mixer(layer, other, Input::Rows(read));
            // Without a norm after the block, each mixer has added its output to the residual stream.
            if x != output {
                self.push(Node::Add { x, scale: 1.0, y: output });
            }
        }
        Some((output, read))
    }

    fn mixer(&mut self, layer: Layer, mixer: &Mixer, input: Input) -> (RowsId, RowsId) {
        match mixer {
            Mixer::Attention(spec) => self.attention(layer, spec, input),
            Mixer::Delta(spec) => match spec.projections {
                DeltaProjections::PerChannel(gates) => self.channel_delta(layer, spec, &gates, input),
                _ => self.delta(layer, spec, input),
            },
            Mixer::Convolution(spec) => self.convolution(layer, *spec, input),
            Mixer::Latent(spec) => self.latent(layer, spec, input),
            Mixer::Scan(spec) => self.scan(layer, spec, input),
            Mixer::Sum(mixers) => match self.mixers(layer, mixers, input) {
                Some(mixed) => mixed,
                None => (self.residual, self.input_rows(input)),
            },
        }
    }

    /// The last product of a mixer.
    pub(super) fn mixer_output(&mut self, weight: MatrixId, bias: Option<VectorId>, act: ActId) -> RowsId {
        self.scaled_output(weight, bias, act, 1.0)
    }

    /// [`Self::mixer_output`], times a factor.
    fn scaled_output(&mut self, weight: MatrixId, bias: Option<VectorId>, act: ActId, factor: f32) -> RowsId {
        let (epilogue, y) = match self.destination(self.spec.post_norms) {
            (Epilogue::Add { scale }, y) => (Epilogue::Add { scale: scale * factor }, y),
            (Epilogue::Store, y) => (Epilogue::Store, y),
        };
        self.push(Node::Matmul { weight, bias, act, epilogue, y });
        if epilogue == Epilogue::Store {
            self.scale(Factor::Constant(factor), y);
        }
        y
    }

    /// output(attention(rope(qk_norm(qkv(input))))), or with rope and qk_norm in the other order.
    fn attention(&mut self, layer: Layer, spec: &AttentionSpec, input: Input) -> (RowsId, RowsId) {
        let hidden = self.spec.hidden;
        let attended_cols = spec.attended_columns();
        let gate_cols = spec.gate_columns();
        let columns = gate_cols + spec.qkv_columns();
        let [q_norm, k_norm] = self.qk_norms(layer, spec);
        let heads = self.heads_of_rank(layer, spec);
        let whole = heads.whole;
        let parts = attention_parts(whole, self.contains(&layer.name("attn_qkv.weight")));
        let weights = heads.tensors(attention_tensors(layer, hidden, whole, &parts));
        let weights = self.matrix(Role::Matrix, weights);
        let biases =
            || parts.iter().map(|(part, rows)| TensorSpec::new(layer.name(&format!("attn_{part}.bias")), &[*rows]));
        let biases = || heads.biases(biases().collect());
        let qkv_bias = spec.qkv_bias.then(|| self.tensors.add_vector(VectorSpec::Tensors(biases())));
        let values = spec.value_norm.then(|| self.repeated(&[1.0], spec.value_width));
        let sinks = || heads.columns(TensorSpec::new(layer.name("attn_sinks.weight"), &[whole.heads]), 1);
        let sinks = spec.sinks.then(|| self.vector(sinks()));
        let output = TensorSpec::new(layer.name("attn_output.weight"), &[whole.attended_columns(), hidden]);
        let output = self.matrix(Role::Matrix, vec![heads.columns(output, spec.value_width)]);
        if heads.own.is_some() {
            self.summed.insert(output);
        }
        let output_bias =
            spec.output_bias.then(|| self.vector(TensorSpec::new(layer.name("attn_output.bias"), &[hidden])));

        let (product, read) = self.input_matmul(input, weights, qkv_bias, columns, "queries, keys and values");
        let qkv = Columns { rows: product, first: gate_cols, end: columns };
        let AttentionSpec { heads: count, scale, cap, temperature, window, both_ways, .. } = *spec;
        let options = Attention { heads: count, scale, cap, temperature, window, first: layer.first, sinks, both_ways };
        let attended = self.new_rows(attended_cols, "attention");
        let mut act = self.new_act(attended_cols);
        if spec.kv_from.is_some() {
            self.queries(layer, spec, qkv, q_norm);
            self.push(Node::AttentionAct { layer: layer.index, q: qkv, options, out: attended, act });
        } else {
            let norms =
                q_norm.zip(k_norm).map(|(q, k)| QkNorms { q, k, v: values, after_rotation: spec.norm_after_rope });
            self.push(Node::Attend { layer: layer.index, qkv, norms, options, out: attended, act });
        }
        if let Some(OutputGate { kind, .. }) = spec.gate {
            let gate = Columns { rows: product, first: 0, end: gate_cols };
            let out = self.new_rows(attended_cols, "attention");
            self.push(Node::Multiply { x: self.all(attended), gate, kind, out, act: None });
            act = self.prepare(out);
        }
        (self.scaled_output(output, output_bias, act, spec.value_scale), read)
    }

    /// The norms of queries and of keys. A layer that reads the keys of another has no norm of keys.
    fn qk_norms(&mut self, layer: Layer, spec: &AttentionSpec) -> [Option<VectorId>; 2] {
        let Some(over) = spec.qk_norm else { return [None, None] };
        let widths = match over {
            QkNorm::PerHead | QkNorm::PerHeadUnweighted => [spec.key_width; 2],
            QkNorm::WholeRow => [spec.query_columns(), spec.key_columns()],
        };
        let mut norm = |name: &str, width: usize| match over {
            QkNorm::PerHeadUnweighted => self.repeated(&[1.0], width),
            QkNorm::PerHead | QkNorm::WholeRow => self.vector(TensorSpec::new(layer.name(name), &[width])),
        };
        let q = norm("attn_q_norm.weight", widths[0]);
        [Some(q), spec.kv_from.is_none().then(|| norm("attn_k_norm.weight", widths[1]))]
    }

    /// Normalises and rotates queries.
    fn queries(&mut self, layer: Layer, spec: &AttentionSpec, q: Columns, norm: Option<VectorId>) {
        let eps = self.spec.norm_eps;
        let norm = norm.map(|weight| Node::QkNorm { x: q, weight, eps });
        let rope = Node::Rope { layer: layer.index, x: q, head_width: spec.key_width };
        match spec.norm_after_rope {
            false => self.nodes.extend(norm.into_iter().chain([rope])),
            true => self.nodes.extend([rope].into_iter().chain(norm)),
        }
    }

    /// output(gated_norm(delta_rule(silu(convolution(qkv)), beta, alpha), gate)).
    fn delta(&mut self, layer: Layer, spec: &DeltaSpec, input: Input) -> (RowsId, RowsId) {
        let (hidden, heads, taps) = (self.spec.hidden, spec.heads, spec.taps);
        let DeltaHeads { values, width, .. } = heads;
        let qkv = heads.columns();
        let gate = values * width;
        let mut vector = |part: &str, shape: &[usize]| self.vector(TensorSpec::new(layer.name(part), shape));
        let weight = vector("ssm_conv1d.weight", &[taps, qkv]);
        let (decay, dt_bias) = (vector("ssm_a", &[values]), vector("ssm_dt.bias", &[values]));
        let norm = vector("ssm_norm.weight", &[width]);
        let projection = self.matrix(Role::Matrix, self.delta_tensors(layer, spec));
        let output = self.matrix(Role::Matrix, vec![TensorSpec::new(layer.name("ssm_out.weight"), &[gate, hidden])]);

        // Queries, keys and values, the gate, β and α.
        let columns = qkv + gate + 2 * values;
        let (product, read) = self.input_matmul(input, projection, None, columns, "queries, keys and values");
        let part = |first, len| Columns { rows: product, first, end: first + len };
        let mixed = self.new_rows(qkv, "convolution and gates");
        let layer = layer.index;
        self.push(Node::CausalConv { layer, x: part(0, qkv), weight, bias: None, silu: true, out: mixed });
        let beta = part(qkv + gate, values);
        let alpha = part(qkv + gate + values, values);
        let out = self.new_rows(gate, "attention");
        let kind = DecayKind::Softplus;
        self.push(Node::DeltaRule { layer, qkv: mixed, beta, alpha, decay, dt_bias, kind, heads, out });
        let order = GateOrder::AfterNorm;
        self.push(Node::GatedNorm { x: out, gate: part(qkv, gate), weight: norm, width, order });
        let act = self.prepare(out);
        (self.mixer_output(output, None, act), read)
    }

    /// Queries, keys and values, then the gate, β and α, whatever tensors the file stores them in. See also [`Self::channel_tensors`].
    pub(super) fn delta_tensors(&self, layer: Layer, spec: &DeltaSpec) -> Vec<TensorSpec> {
        let (keys, values, width) = (spec.heads.keys, spec.heads.values, spec.heads.width);
        let shared = values / keys;
        let matrix =
            |part: &str, rows| TensorSpec::new(layer.name(&format!("{part}.weight")), &[self.spec.hidden, rows]);
        let ordered = |part: &str, parts: Vec<usize>| {
            let rows = keys * parts.iter().sum::<usize>();
            let order = (0..parts.len()).collect();
            TensorSpec { order: Some(RowOrder { parts, order }), ..matrix(part, rows) }
        };
        let apart = [matrix("attn_qkv", spec.heads.columns()), matrix("attn_gate", values * width)];
        let gates = ordered("ssm_ba", vec![shared, shared]);
        match spec.projections {
            DeltaProjections::Apart => {
                apart.into_iter().chain([matrix("ssm_beta", values), matrix("ssm_alpha", values)]).collect()
            }
            DeltaProjections::GatesJoined => apart.into_iter().chain([gates]).collect(),
            DeltaProjections::PerChannel(gates) => self.channel_tensors(layer, spec, &gates),
            DeltaProjections::Joined => {
                vec![ordered("ssm_in", vec![width, width, shared * width, shared * width]), gates]
            }
        }
    }

    /// output(c · convolution(b · x)).
    fn convolution(
        &mut self,
        layer: Layer,
        ConvolutionSpec { taps }: ConvolutionSpec,
        input: Input,
    ) -> (RowsId, RowsId) {
        let hidden = self.spec.hidden;
        let matrix = |part: &str, rows| vec![TensorSpec::new(layer.name(part), &[hidden, rows])];
        let weight = self.vector(TensorSpec::new(layer.name("shortconv.conv.weight"), &[taps, hidden]));
        let projection = self.matrix(Role::Matrix, matrix("shortconv.in_proj.weight", hidden.saturating_mul(3)));
        let output = self.matrix(Role::Matrix, matrix("shortconv.out_proj.weight", hidden));

        let (product, read) =
            self.input_matmul(input, projection, None, hidden.saturating_mul(3), "convolution and gates");
        let part =
            |i: usize| Columns { rows: product, first: i.saturating_mul(hidden), end: (i + 1).saturating_mul(hidden) };
        let mut rows = || self.new_rows(hidden, "convolution and gates");
        let (gated, mixed, out) = (rows(), rows(), rows());
        self.push(Node::Multiply { x: part(2), gate: part(0), kind: GateKind::Linear, out: gated, act: None });
        self.push(Node::CausalConv {
            layer: layer.index,
            x: self.all(gated),
            weight,
            bias: None,
            silu: false,
            out: mixed,
        });
        self.push(Node::Multiply { x: self.all(mixed), gate: part(1), kind: GateKind::Linear, out, act: None });
        let act = self.prepare(out);
        (self.mixer_output(output, None, act), read)
    }
}

/// The tensors of queries, keys and values, with their rows: one tensor if the file has them `together`.
fn attention_parts(spec: &AttentionSpec, together: bool) -> Vec<(&'static str, usize)> {
    let apart = [("q", spec.query_columns()), ("k", spec.key_columns()), ("v", spec.value_columns())];
    if spec.kv_from.is_some() {
        return apart[..1].to_vec();
    }
    // Values are not reordered.
    match (together && !spec.halves_alternate, spec.values_are_keys) {
        (true, false) if spec.gate.map(|gate| gate.rows) != Some(GateRows::WithQueries) => {
            vec![("qkv", spec.qkv_columns())]
        }
        (_, true) => [apart[0], apart[1], ("k", spec.value_columns())].into(),
        _ => apart.into(),
    }
}

/// The output's gate, then queries, keys and values, so that these three are adjacent.
fn attention_tensors(layer: Layer, hidden: usize, spec: &AttentionSpec, parts: &[(&str, usize)]) -> Vec<TensorSpec> {
    let tensor = |part: &str, rows| TensorSpec::new(layer.name(&format!("attn_{part}.weight")), &[hidden, rows]);
    let halves = |rows: usize| {
        let half = |head: usize, first: usize| (head + first..head + spec.key_width).step_by(2);
        let order = (0..rows).step_by(spec.key_width).flat_map(|head| half(head, 0).chain(half(head, 1))).collect();
        RowOrder { parts: vec![1; rows], order }
    };
    let order = |part: &str, rows| (spec.halves_alternate && part != "v").then(|| halves(rows));
    let mut tensors: Vec<_> =
        parts.iter().map(|&(part, rows)| TensorSpec { order: order(part, rows), ..tensor(part, rows) }).collect();
    match (spec.gate.map(|gate| gate.rows), tensors.first_mut()) {
        (None, _) | (_, None) => {}
        (Some(GateRows::WithQueries), Some(queries)) => {
            let order = RowOrder { parts: vec![spec.key_width, spec.value_width], order: vec![1, 0] };
            let rows = spec.query_columns() + spec.attended_columns();
            *queries = TensorSpec { order: Some(order), ..tensor("q", rows) };
        }
        (Some(GateRows::Apart), _) => tensors.insert(0, tensor("gate", spec.gate_columns())),
    }
    tensors
}
