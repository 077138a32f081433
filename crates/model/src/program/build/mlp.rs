//! MLPs: dense ones, and mixtures of experts.

use gristmill_kernels::ops::{Activation, Epilogue};
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Input, Layer};
use super::norms::NormVectors;
use crate::program::node::{Experts, Node, Route};
use crate::program::tensors::TensorSpec;
use crate::program::{ActId, ActShape, Columns, Factor, MatrixId, RowsId, Unit};
use crate::spec::{MlpSpec, MoeSpec, SharedExpert};

/// The matrices of an MLP.
#[derive(Clone, Copy)]
struct GatedMlp {
    gate_up: MatrixId,
    down: MatrixId,
    inner: usize,
    activation: Activation,
}

/// A router's logits and its experts' input.
#[derive(Clone, Copy)]
struct Router {
    logits: RowsId,
    rows: RowsId,
    /// The rows as activations. Experts whose input is weighed prepare the weighed rows instead.
    act: Option<ActId>,
}

impl Builder<'_> {
    /// Adds the output of an MLP of either kind to the residual stream, and multiplies the sum.
    pub(super) fn mlp(&mut self, layer: Layer, spec: &MlpSpec, input: Input, factor: Factor) {
        let norm = match spec {
            MlpSpec::Moe(MoeSpec { beside: Some(_), .. }) => None,
            _ => self.post_norm(&layer.name("post_ffw_norm")),
        };
        match *spec {
            MlpSpec::Dense { inner, activation } => {
                let mlp = self.dense_mlp(layer, inner, activation);
                let x = self.input_rows(input);
                let act = self.prepare(x);
                let output = self.gated_mlp(mlp, act, norm.is_some());
                self.finish_block(output, norm, factor);
            }
            MlpSpec::Moe(spec) => self.moe(layer, &spec, input, norm, factor),
        }
    }

    /// The matrices of a dense MLP; gate and up can be one tensor.
    fn dense_mlp(&mut self, layer: Layer, inner: usize, activation: Activation) -> GatedMlp {
        let hidden = self.spec.hidden;
        let up = layer.name("ffn_up.weight");
        let twice = [hidden as u64, (inner as u64).saturating_mul(2)];
        let is_fused = activation.role() == Role::GateUp
            && self.file.tensor(&up).is_some_and(|tensor| tensor.shape == twice)
            && !self.contains(&layer.name("ffn_gate.weight"));
        let gate_up = match is_fused {
            true => TensorSpec::halves(&up, [hidden, inner, 1]),
            false => self.inputs(layer, ["ffn_gate.weight", "ffn_up.weight"], &[hidden, inner], activation),
        };
        self.gated(layer, gate_up, "ffn_down.weight", inner, activation)
    }

    /// Gate and up, or up for an activation without a gate.
    fn inputs(&self, layer: Layer, names: [&str; 2], shape: &[usize], activation: Activation) -> Vec<TensorSpec> {
        let gates = usize::from(activation.role() == Role::Up);
        names[gates..].iter().map(|name| TensorSpec::new(layer.name(name), shape)).collect()
    }

    fn gated(
        &mut self,
        layer: Layer,
        gate_up: Vec<TensorSpec>,
        down: &str,
        inner: usize,
        activation: Activation,
    ) -> GatedMlp {
        let gate_up = self.matrix(activation.role(), gate_up);
        let down = self.matrix(Role::Matrix, vec![TensorSpec::new(layer.name(down), &[inner, self.spec.hidden])]);
        GatedMlp { gate_up, down, inner, activation }
    }

    /// activation(gate(x), up(x)) as activations.
    fn gate_up(&mut self, mlp: GatedMlp, x: ActId) -> ActId {
        let h = self.new_rows(mlp.inner, "the MLP");
        self.push(Node::GateUp { weight: mlp.gate_up, activation: mlp.activation, x, h, act: None });
        self.prepare(h)
    }

    /// down(activation(gate(x), up(x))), stored or added to the residual stream.
    fn gated_mlp(&mut self, mlp: GatedMlp, x: ActId, is_stored: bool) -> RowsId {
        let act = self.gate_up(mlp, x);
        let (epilogue, y) = self.destination(is_stored);
        self.push(Node::Matmul { weight: mlp.down, bias: None, act, epilogue, y });
        y
    }

    /// The router chooses experts for each token: Σ weight · expert(input), then the shared expert and the dense MLP whose
    /// output is added to that of the experts.
    fn moe(&mut self, layer: Layer, spec: &MoeSpec, input: Input, norm: Option<NormVectors>, factor: Factor) {
        let hidden = self.spec.hidden;
        let router_norm = spec.router_norm.then(|| {
            let weight = TensorSpec::new(layer.name("ffn_gate_inp.scale"), &[hidden]);
            NormVectors::Rms { weight: self.scaled(weight, (hidden as f32).sqrt().recip()) }
        });
        let experts_input = match spec.beside {
            Some(_) => Input::Norm(self.norm_vectors(&layer.name("pre_ffw_norm_2"))),
            None => input,
        };
        let is_stored = norm.is_some() || spec.beside.is_some();
        let router = self.router(layer, spec, router_norm, experts_input);
        let output = match (router.act, spec.latent) {
            (Some(x), Some(latent)) => self.latent_experts(layer, spec, latent, router.logits, x, is_stored),
            (Some(x), None) => {
                let experts = self.expert_matrices(layer, spec);
                self.experts(layer, spec, experts, router.logits, x, is_stored)
            }
            (None, _) => {
                let experts = self.expert_matrices(layer, spec);
                self.input_weighed_experts(layer, spec, experts, router, is_stored)
            }
        };
        if let Some(shared) = spec.shared {
            let x = router.act.unwrap_or_else(|| self.prepare(router.rows));
            self.shared_expert(layer, shared, x, router.logits, is_stored.then_some(output));
        }
        match spec.beside {
            Some(inner) => self.beside(layer, inner, spec.activation, input, output, factor),
            None => self.finish_block(output, norm, factor),
        }
    }

    /// The columns of the experts' input and output.
    fn expert_columns(&self, spec: &MoeSpec) -> usize {
        spec.latent.unwrap_or(self.spec.hidden)
    }

    /// up · Σ weight · expert(down · x), with rows of this width between.
    fn latent_experts(
        &mut self,
        layer: Layer,
        spec: &MoeSpec,
        latent: usize,
        logits: RowsId,
        x: ActId,
        is_stored: bool,
    ) -> RowsId {
        let hidden = self.spec.hidden;
        let down = TensorSpec::new(layer.name("ffn_latent_down.weight"), &[hidden, latent]);
        let up = TensorSpec::new(layer.name("ffn_latent_up.weight"), &[latent, hidden]);
        let down = self.matrix(Role::Matrix, vec![down]);
        let experts = self.expert_matrices(layer, spec);
        let up = self.matrix(Role::Matrix, vec![up]);
        let projected = self.new_rows(latent, "the experts");
        self.push(Node::Matmul { weight: down, bias: None, act: x, epilogue: Epilogue::Store, y: projected });
        let x = self.prepare(projected);
        let sum = self.experts(layer, spec, experts, logits, x, true);
        let act = self.prepare(sum);
        let (epilogue, y) = self.destination(is_stored);
        self.push(Node::Matmul { weight: up, bias: None, act, epilogue, y });
        y
    }

    fn expert_matrices(&mut self, layer: Layer, spec: &MoeSpec) -> GatedMlp {
        let MoeSpec { experts, inner, activation, .. } = *spec;
        let hidden = self.expert_columns(spec);
        // llama.cpp's converter can write both as one tensor, for each expert first the rows of its gate.
        let fused = layer.name("ffn_gate_up_exps.weight");
        let gate_up = match self.contains(&fused) {
            true => TensorSpec::halves(&fused, [hidden, inner, experts]),
            false => {
                let names = ["ffn_gate_exps.weight", "ffn_up_exps.weight"];
                self.inputs(layer, names, &[hidden, inner, experts], activation)
            }
        };
        let gate_up = self.matrix(activation.role(), gate_up);
        let down = TensorSpec::new(layer.name("ffn_down_exps.weight"), &[inner, hidden, experts]);
        // The experts' own scales have the name that scales of the weight would have.
        let down = self.matrix(Role::Matrix, vec![TensorSpec { is_scaled: !spec.expert_scales, ..down }]);
        GatedMlp { gate_up, down, inner, activation }
    }

    /// The router's product. The logit of a gated shared expert follows the logits of the experts: one product less in a
    /// layer.
    fn router(&mut self, layer: Layer, spec: &MoeSpec, norm: Option<NormVectors>, input: Input) -> Router {
        let (hidden, experts) = (self.spec.hidden, spec.experts);
        let is_gated = spec.shared.is_some_and(|shared| shared.gated);
        let router = TensorSpec::new(layer.name("ffn_gate_inp.weight"), &[hidden, experts]);
        let gate = is_gated.then(|| TensorSpec::new(layer.name("ffn_gate_inp_shexp.weight"), &[hidden, 1]));
        let weight = self.matrix(Role::Matrix, [router].into_iter().chain(gate).collect());
        let bias = spec.bias.then(|| self.vector(TensorSpec::new(layer.name("ffn_gate_inp.bias"), &[experts])));

        let logits = self.new_rows(experts.saturating_add(is_gated.into()), "the router");
        let exact = self.add_act(ActShape { unit: Unit::Token, per_unit: 1, cols: hidden, exact: true });
        let product = Node::Matmul { weight, bias, act: exact, epilogue: Epilogue::Store, y: logits };
        if let Some(norm) = norm {
            let x = self.normalise(norm, self.residual);
            self.push(Node::Prepare { x, act: exact });
            self.push(product);
            let rows = self.input_rows(input);
            let act = (!spec.weighs_input).then(|| self.prepare(rows));
            return Router { logits, rows, act };
        }
        let rows = self.input_rows(input);
        self.push(Node::Prepare { x: rows, act: exact });
        let act = (!spec.weighs_input).then(|| self.prepare(rows));
        self.push(product);
        Router { logits, rows, act }
    }

    fn route(&mut self, layer: Layer, spec: &MoeSpec, logits: RowsId) -> Route {
        let MoeSpec { experts, routing, .. } = *spec;
        // Hy3's converter writes no suffix.
        let bias = if self.contains(&layer.name("exp_probs_b")) { "exp_probs_b" } else { "exp_probs_b.bias" };
        let mut vector = |name: &str| self.vector(TensorSpec::new(layer.name(name), &[experts]));
        let selection_bias = spec.selection_bias.then(|| vector(bias));
        let expert_scales = spec.expert_scales.then(|| vector("ffn_down_exps.scale"));
        let choices = self.choices;
        self.choices = choices.saturating_add(routing.top_k);
        let logits = Columns { rows: logits, first: 0, end: experts };
        Route { logits, routing, selection_bias, expert_scales, choices }
    }

    /// Σ weight · expert(x).
    fn experts(
        &mut self,
        layer: Layer,
        spec: &MoeSpec,
        mlp: GatedMlp,
        logits: RowsId,
        x: ActId,
        is_stored: bool,
    ) -> RowsId {
        let GatedMlp { gate_up, down, inner, activation } = mlp;
        let hidden = self.expert_columns(spec);
        let experts = spec.experts;
        let top_k = spec.routing.top_k;
        let mut bias = |name: &str, rows| self.vector(TensorSpec::new(layer.name(name), &[rows, experts]));
        let gate_up_bias = spec.bias.then(|| [bias("ffn_gate_exps.bias", inner), bias("ffn_up_exps.bias", inner)]);
        let down_bias = spec.bias.then(|| bias("ffn_down_exps.bias", hidden));

        let route = self.route(layer, spec, logits);
        let groups = self.new_groups(experts, top_k);
        let h = self.pair_rows(top_k, inner, "the MLP");
        let act = self.add_act(ActShape { unit: Unit::Token, per_unit: top_k, cols: inner, exact: false });
        let out = self.pair_rows(top_k, hidden, "the experts");
        let (epilogue, y) = match spec.latent {
            Some(latent) => (Epilogue::Store, self.new_rows(latent, "the experts")),
            None => self.destination(is_stored),
        };
        self.push(Node::Experts(Box::new(Experts {
            route,
            gate_up,
            down,
            activation,
            gate_up_bias,
            down_bias,
            x,
            groups,
            h,
            act,
            out,
            epilogue,
            y,
        })));
        y
    }

    /// The one chosen expert of each token: expert(weight · rows).
    fn input_weighed_experts(
        &mut self,
        layer: Layer,
        spec: &MoeSpec,
        mlp: GatedMlp,
        router: Router,
        is_stored: bool,
    ) -> RowsId {
        let (hidden, GatedMlp { gate_up, down, inner, activation }, top_k) = (self.spec.hidden, mlp, 1);
        let route = self.route(layer, spec, router.logits);
        let groups = self.new_groups(spec.experts, top_k);
        self.push(Node::RouteAndGroup { route, groups });
        let weighed = self.new_rows(hidden, "the experts");
        let x = self.new_act(hidden);
        self.push(Node::WeighInput { x: router.rows, choices: route.choices, out: weighed, act: x });
        let h = self.new_rows(inner, "the MLP");
        let act = self.new_act(inner);
        self.push(Node::MoeGateUpAct { weight: gate_up, top_k, activation, x, groups, h, act });
        let out = self.new_rows(hidden, "the experts");
        self.push(Node::MoeMatmul { weight: down, top_k, x: act, groups, out });
        if is_stored {
            return out;
        }
        self.push(Node::Add { x: out, scale: self.spec.residual_scale, y: self.residual });
        self.residual
    }

    /// Adds sigmoid(gate) · expert(x), or expert(x) without a gate, to the experts' stored output or to the residual
    /// stream.
    fn shared_expert(
        &mut self,
        layer: Layer,
        SharedExpert { inner, activation, gated }: SharedExpert,
        x: ActId,
        logits: RowsId,
        stored: Option<RowsId>,
    ) {
        let names = ["ffn_gate_shexp.weight", "ffn_up_shexp.weight"];
        let gate_up = self.inputs(layer, names, &[self.spec.hidden, inner], activation);
        let mlp = self.gated(layer, gate_up, "ffn_down_shexp.weight", inner, activation);
        let act = self.gate_up(mlp, x);
        let (scale, y) = stored.map_or((self.spec.residual_scale, self.residual), |output| (1.0, output));
        let product = |epilogue, y| Node::Matmul { weight: mlp.down, bias: None, act, epilogue, y };
        if !gated {
            self.push(product(Epilogue::Add { scale }, y));
            return;
        }
        let x = self.new_rows(self.spec.hidden, "the experts");
        self.push(product(Epilogue::Store, x));
        self.scale(Factor::Constant(scale), x);
        let end = self.cols(logits);
        let gate = Columns { rows: logits, first: end.saturating_sub(1), end };
        self.push(Node::AddGated { x, gate, y });
    }

    /// residual = factor · (residual + scale · norm(norm₁(experts) + norm₂(mlp(input)))).
    fn beside(
        &mut self,
        layer: Layer,
        inner: usize,
        activation: Activation,
        input: Input,
        experts: RowsId,
        factor: Factor,
    ) {
        let hidden = self.spec.hidden;
        let gate_up = self.inputs(layer, ["ffn_gate.weight", "ffn_up.weight"], &[hidden, inner], activation);
        let mlp = self.gated(layer, gate_up, "ffn_down.weight", inner, activation);
        let mut norm =
            |name: &str| NormVectors::Rms { weight: self.vector(TensorSpec::new(layer.name(name), &[hidden])) };
        let (of_experts, of_mlp) = (norm("post_ffw_norm_2.weight"), norm("post_ffw_norm_1.weight"));
        let of_sum = norm("post_ffw_norm.weight");

        let rows = self.input_rows(input);
        let act = self.prepare(rows);
        let output = self.gated_mlp(mlp, act, true);
        let sum = self.normalise(of_experts, experts);
        let x = self.normalise(of_mlp, output);
        self.push(Node::Add { x, scale: 1.0, y: sum });
        self.finish_block(sum, Some(of_sum), factor);
    }
}
