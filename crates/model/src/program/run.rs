//! Runs the nodes of a program.

use std::ops::Range;
use std::sync::Arc;

use gristmill_collective::Collective;
use gristmill_kernels::Backend;
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::kv::KvSpec;
use gristmill_kernels::ops::{
    Add, AddGated, AddNorm, AddNormAct, AddNorms, Attend, Attention, AttentionAct, AttentionOptions, CausalConv, Clamp,
    CopyRows, DeltaRule, Embed, ExpertScratch, ExpertWeights, Experts, GateKind, GateUp, GateUpAct, GatedNorm,
    GatherColumns, GroupByExpert, LatentWrite, LayerNorm, Matmul, MoeGateUp, MoeGateUpAct, MoeMatmul, Multiply,
    MultiplyAct, NormAct, NormMatmul, PrepareActivations, QkNorm, QkNorms, QkvWrite, RmsNorm, Rope, Rotary, Route,
    RouteAndGroup, Runs, Scale, SelectiveScan, SoftCap, key_and_value_columns,
};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};

use super::axes::{Axes, AxisRotary};
use super::node::{self, Node};
use super::readers::Names;
use super::scratch::{PictureRows, Scratch};
use super::{ActId, Columns, Factor, Part, PredictionHead, Program, RowsId, Unit, VectorId};
use crate::error::{Error, Result};
use crate::inspect::Inspect;
use crate::model::Model;
use crate::spec::StateName;
use crate::state::{CachedLayer, FixedLayer, LayerStates, State};
use crate::weights::Weights;

/// The results that a pass computes after the last layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PassOutputs {
    /// None: the tokens only fill the state.
    None,
    /// The hidden states of all tokens: the residual stream after the last norm.
    Hidden,
    /// These, and the logits of some tokens.
    Logits { rows: usize },
}

impl PassOutputs {
    fn rows(self) -> usize {
        match self {
            PassOutputs::None | PassOutputs::Hidden => 0,
            PassOutputs::Logits { rows } => rows,
        }
    }
}

/// Runs the first `tokens` of `scratch.tokens`, placed by `state` and rotated by `rotaries` (one for each layer). Leaves
/// the hidden states and the logits that `outputs` requests in the scratch. The backend is the model's, or the one of
/// [`Backend::make_ready`]. `inspect` is called after each layer, with the residual stream in the scratch.
pub(crate) fn forward(
    backend: &Backend,
    model: &Model,
    rotaries: &[Arc<Rotary>],
    state: &mut State,
    scratch: &Scratch,
    tokens: usize,
    outputs: PassOutputs,
    inspect: &mut Inspect,
) -> Result<()> {
    let Model { program, weights, attention_precision, .. } = model;
    let precision = *attention_precision;
    let mut pass =
        Pass { backend, program, weights, rotaries, state, scratch, tokens, outputs: outputs.rows(), precision };
    for part in &program.layers {
        pass.part(part)?;
        inspect(part.stage, scratch)?;
    }
    if outputs != PassOutputs::None || !program.heads.is_empty() {
        pass.part(&program.norm)?;
    }
    match outputs {
        PassOutputs::None | PassOutputs::Hidden => {}
        PassOutputs::Logits { .. } => pass.part(&program.head)?,
    }
    for head in &program.heads {
        pass.part(&head.shift)?;
        match &head.pass_on {
            Some(pass_on) => [&head.block, pass_on].into_iter().try_for_each(|part| pass.part(part))?,
            None => pass.write_cache(&head.block)?,
        }
    }
    Ok(())
}

/// Runs prediction heads for the first `rows` of `scratch.tokens`, one of each sequence. Leaves the logits of the first of
/// these heads in the scratch, and the output of each as the hidden states before the next tokens of the head after it. The
/// last head runs first, because it reads these hidden states before another writes them.
pub(crate) fn predict(
    backend: &Backend,
    model: &Model,
    heads: &[PredictionHead],
    rotaries: &[Arc<Rotary>],
    state: &mut State,
    scratch: &Scratch,
    rows: usize,
) -> Result<()> {
    let Model { program, weights, attention_precision: precision, .. } = model;
    let (tokens, outputs, precision) = (rows, rows, *precision);
    let mut pass = Pass { backend, program, weights, rotaries, state, scratch, tokens, outputs, precision };
    let parts = heads.iter().rev().flat_map(|head| [&head.block, &head.logits, &head.carry]);
    parts.into_iter().try_for_each(|part| pass.part(part))
}

/// Computes the states of fixed size after runs of the last pass, of this number of tokens, whose inputs are kept.
pub(crate) fn replay(
    backend: &Backend,
    model: &Model,
    rotaries: &[Arc<Rotary>],
    state: &mut State,
    scratch: &Scratch,
    tokens: usize,
) -> Result<()> {
    let Model { program, weights, attention_precision: precision, .. } = model;
    let (outputs, precision) = (0, *precision);
    let mut pass = Pass { backend, program, weights, rotaries, state, scratch, tokens, outputs, precision };
    program.replay.nodes.iter().try_for_each(|node| pass.node(node))
}

/// Runs these parts of a tower for pictures of `tokens` patches and `outputs` tokens.
pub(crate) fn encode(
    backend: &Backend,
    (program, weights): (&Program, &Weights),
    parts: Range<usize>,
    rotaries: &[Arc<Rotary>],
    state: &mut dyn LayerStates,
    scratch: &Scratch,
    [tokens, outputs]: [usize; 2],
    precision: Precision,
) -> Result<()> {
    let mut pass = Pass { backend, program, weights, rotaries, state, scratch, tokens, outputs, precision };
    program.parts().skip(parts.start).take(parts.len()).try_for_each(|part| pass.part(part))
}

/// One pass.
struct Pass<'a> {
    backend: &'a Backend,
    program: &'a Program,
    weights: &'a Weights,
    rotaries: &'a [Arc<Rotary>],
    state: &'a mut dyn LayerStates,
    scratch: &'a Scratch,
    tokens: usize,
    /// Rows of logits.
    outputs: usize,
    /// The precision of attention.
    precision: Precision,
}

impl<'a> Pass<'a> {
    fn part(&mut self, part: &Part) -> Result<()> {
        for (node, names) in part.nodes.iter().zip(&part.names) {
            self.name_readers(names);
            self.node(node)?;
        }
        Ok(())
    }

    /// Runs a layer up to the node that writes its cache, without attention.
    fn write_cache(&mut self, part: &Part) -> Result<()> {
        for (node, names) in part.nodes.iter().zip(&part.names) {
            self.name_readers(names);
            match node {
                Node::Attend { .. } => return self.write_keys(node),
                Node::LatentWrite { .. } => return self.node(node),
                _ => self.node(node)?,
            }
        }
        Ok(())
    }

    fn name_readers(&self, names: &Names) {
        for (act, readers) in names {
            let readers: Vec<_> =
                readers.iter().map(|reader| reader.of_pass(self.weights, |unit| self.units(unit))).collect();
            self.backend.name_readers(&mut self.scratch.act_mut(*act), &readers);
        }
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let (b, s, w, eps) = (self.backend, self.scratch, self.weights, self.program.eps);
        match *node {
            Node::Embed { table, scale, out } => {
                let (rows, mut out_rows) = (s.tokens.view(self.tokens, 1)?, s.rows_mut(out));
                b.run(Embed { table: w.matrix(table), rows, scale, out: self.view_mut(out, &mut out_rows)? })?
            }
            Node::Input { .. } => {}
            Node::Join { x, out } => {
                let (from, mut to) = (s.rows(x), s.rows_mut(out));
                let out = self.view_mut(out, &mut to)?;
                b.run(CopyRows { x: from.view(out.rows(), out.cols())?, out })?
            }
            Node::Pictures { out } => self.with_pictures(out, 0, |x, out| Ok(b.run(CopyRows { x, out })?))?,
            Node::AddPictures { level, out } => {
                self.with_pictures(out, level, |x, y| Ok(b.run(Add { x, scale: 1.0, y })?))?
            }
            Node::RmsNorm(norm) => self.with_norm(norm, |norm| Ok(b.run(norm)?))?,
            Node::LayerNorm { x, weight, bias, eps, out } => {
                let (from, mut to) = (s.rows(x), s.rows_mut(out));
                let (x, out) = (self.view(x, &from)?, self.view_mut(out, &mut to)?);
                b.run(LayerNorm { x, weight: w.vector(weight), bias: w.vector(bias), eps, out })?
            }
            Node::Prepare { x, act } => {
                let rows = s.rows(x);
                b.run(PrepareActivations { x: self.token_view(x, &rows)?, act: &mut s.act_mut(act) })?
            }
            Node::PrepareColumns { x, act } => {
                let rows = s.rows(x.rows);
                b.run(PrepareActivations { x: self.columns(x, &rows)?, act: &mut s.act_mut(act) })?
            }
            Node::NormAct { norm, acts } => {
                let [mut first, mut second] = acts.map(|act| act.map(|act| s.act_mut(act)));
                let acts: [Option<&mut Act>; 2] = [first.as_deref_mut(), second.as_deref_mut()];
                self.with_norm(norm, |norm| Ok(b.run(NormAct { norm, acts })?))?
            }
            Node::NormMatmul { norm, act, other, weight, bias, y } => {
                let (mut act, mut other, mut rows) = (s.act_mut(act), other.map(|act| s.act_mut(act)), s.rows_mut(y));
                let (weight, bias, y) = (w.matrix(weight), self.vector(bias), self.view_mut(y, &mut rows)?);
                let (act, other) = (&mut *act, other.as_deref_mut());
                self.with_norm(norm, |norm| Ok(b.run(NormMatmul { norm, act, other, weight, bias, y })?))?
            }
            Node::Matmul { weight, bias, act, epilogue, y } => {
                let (x, mut rows) = (s.act(act), s.rows_mut(y));
                let y = self.token_view_mut(y, &mut rows)?;
                b.run(Matmul { bias: self.vector(bias), epilogue, ..Matmul::new(w.matrix(weight), &x, y) })?
            }
            Node::OutputMatmul { weight, bias, act, y } => {
                let (x, mut rows) = (s.act(act), s.rows_mut(y));
                let (y, chosen) = (self.view_mut(y, &mut rows)?, s.output_rows.view(self.outputs, 1)?);
                let matmul = Matmul::new(w.matrix(weight), &x, y);
                b.run(Matmul { rows: Some(chosen), bias: self.vector(bias), ..matmul })?
            }
            Node::GateUp { weight, activation, x, h, act } => {
                let (x, mut rows) = (s.act(x), s.rows_mut(h));
                let h = self.view_mut(h, &mut rows)?;
                let gate_up = GateUp { weight: w.matrix(weight), x: &x, bias: None, activation, h };
                match act {
                    Some(act) => b.run(GateUpAct { gate_up, act: &mut s.act_mut(act) })?,
                    None => b.run(gate_up)?,
                }
            }
            Node::AllReduce { x } => self.all_reduce(x)?,
            Node::Send { to, x } => self.on_ranks(x, |ranks, x| ranks.send(to, x))?,
            Node::Receive { from, x } => self.on_ranks(x, |ranks, x| ranks.receive(from, x))?,
            Node::Add { x, scale, y } => {
                let (from, mut to) = (s.rows(x), s.rows_mut(y));
                b.run(Add { x: self.view(x, &from)?, scale, y: self.view_mut(y, &mut to)? })?
            }
            Node::AddParts { x, parts, scale, out } => {
                let (from, mut to) = (s.rows(x), s.rows_mut(out));
                let (x, mut out) = (self.view(x, &from)?, self.view_mut(out, &mut to)?);
                let part = x.cols() / parts.max(1);
                for at in 0..parts {
                    let x = x.columns(at * part..(at + 1) * part)?;
                    match at {
                        0 => {
                            b.run(CopyRows { x, out: out.reborrow() })?;
                            b.run(Scale { factor: scale, y: out.reborrow() })?;
                        }
                        _ => b.run(Add { x, scale, y: out.reborrow() })?,
                    }
                }
            }
            Node::AddGated { x, gate, y } => {
                let (from, gates, mut to) = (s.rows(x), s.rows(gate.rows), s.rows_mut(y));
                let (x, gate, y) = (self.view(x, &from)?, self.columns(gate, &gates)?, self.view_mut(y, &mut to)?);
                b.run(AddGated { x, gate, y })?
            }
            Node::AddNorm(sum) => self.with_sum(sum, |sum| Ok(b.run(sum)?))?,
            Node::AddNormAct { sum, next, act } => {
                let (next, mut act) = (next.map(|weight| (w.vector(weight), eps)), s.act_mut(act));
                self.with_sum(sum, |sum| Ok(b.run(AddNormAct { sum, next, act: &mut act })?))?
            }
            Node::AddNorms { norms: [first, second], weight, scale, factor, y } => {
                let mut rows = s.rows_mut(y);
                let (weight, factor, y) = (w.vector(weight), self.factor(factor), self.view_mut(y, &mut rows)?);
                self.with_norm(first, |first| {
                    self.with_norm(second, |second| {
                        Ok(b.run(AddNorms { norms: [first, second], weight, eps, scale, factor, y })?)
                    })
                })?
            }
            Node::Scale { factor, y } => {
                let (factor, mut rows) = (self.factor(factor), s.rows_mut(y));
                if factor != 1.0 {
                    b.run(Scale { factor, y: self.view_mut(y, &mut rows)? })?
                }
            }
            Node::Clamp { low, high, y } => {
                let (low, high, mut rows) = (w.scalar(low), w.scalar(high), s.rows_mut(y));
                b.run(Clamp { low, high, y: self.view_mut(y, &mut rows)? })?
            }
            Node::SoftCap { cap, y } => b.run(SoftCap { cap, y: self.view_mut(y, &mut s.rows_mut(y))? })?,
            Node::Multiply { x, gate, kind, out, act } => {
                let (from, gates, mut to) = (s.rows(x.rows), s.rows(gate.rows), s.rows_mut(out));
                // All rows of a token are its heads.
                let x = match (x.first, x.end) == (0, self.shape(x.rows)[1]) {
                    true => self.token_view(x.rows, &from)?,
                    false => self.columns(x, &from)?,
                };
                let gate = self.columns(gate, &gates)?;
                let multiply = Multiply { x, gate, kind, out: self.view_mut(out, &mut to)? };
                match act {
                    Some(act) => b.run(MultiplyAct { multiply, act: &mut s.act_mut(act) })?,
                    None => b.run(multiply)?,
                }
            }
            Node::NormColumnsAct { x, weight, eps, out, act } => {
                let (from, mut to, mut act) = (s.rows(x.rows), s.rows_mut(out), s.act_mut(act));
                let (x, out) = (self.columns(x, &from)?, self.view_mut(out, &mut to)?);
                let norm = RmsNorm { x, weight: w.vector(weight), eps, out };
                b.run(NormAct { norm, acts: [Some(&mut *act), None] })?
            }
            Node::QkNorm { x, weight, eps } => {
                let mut rows = s.rows_mut(x.rows);
                b.run(QkNorm { x: self.columns_mut(x, &mut rows)?, weight: w.vector(weight), eps })?
            }
            Node::GatedNorm { x, gate, weight, width, order } => {
                let (mut rows, gates) = (s.rows_mut(x), s.rows(gate.rows));
                let (x, gate) = (self.view_mut(x, &mut rows)?, self.columns(gate, &gates)?);
                b.run(GatedNorm { x, gate, weight: w.vector(weight), width, order, eps })?
            }
            Node::Rope { layer, x, head_width } => self.rope(layer, x, head_width)?,
            Node::Copy { x, out } => {
                let (from, mut to) = (s.rows(x.rows), s.rows_mut(out.rows));
                b.run(CopyRows { x: self.columns(x, &from)?, out: self.columns_mut(out, &mut to)? })?
            }
            Node::GatherColumns { x, order, out } => {
                let (from, mut to) = (s.rows(x), s.rows_mut(out));
                let (x, out) = (self.token_view(x, &from)?, self.token_view_mut(out, &mut to)?);
                let order = w.order(order);
                b.run(GatherColumns { x, order: order.view(order.len(), 1)?, out })?
            }
            Node::GroupHeads { heads, groups } => {
                let ids = s.head_ids(self.tokens, heads)?;
                b.run(GroupByExpert { ids, groups: &mut s.groups_mut(groups) })?
            }
            Node::HeadMatmul { weight, heads, x, groups, out } => {
                let (x, groups, mut rows) = (s.act(x), s.groups(groups), s.rows_mut(out.rows));
                let (weight, out) = (w.matrix(weight), self.columns_mut(out, &mut rows)?);
                b.run(MoeMatmul { weight, x: &x, groups: &groups, top_k: heads, bias: None, out })?
            }
            Node::LatentWrite { .. } => self.write_latent(node)?,
            Node::AttendLatent { layer, q, options, out, act } => self.attend_latent(layer, q, options, out, act)?,
            Node::Attend { .. } | Node::AttentionAct { .. } => self.attention(node)?,
            Node::AttendWhole { layer, qkv, norms, options, out, act } => {
                self.write_rows(layer, qkv, norms, options.heads)?;
                let (rows, mut to, mut act) = (s.rows(qkv.rows), s.rows_mut(out), s.act_mut(act));
                let (options, out) = (self.options(options), self.view_mut(out, &mut to)?);
                let (cache, placement) = self.state.whole(layer).ok_or(Error::UnknownSequence)?;
                let first = qkv.first + options.heads * cache.spec().key_width;
                let q = self.columns(Columns { end: first, ..qkv }, &rows)?;
                let attention = Attention { q, cache, placement, options, out };
                b.run(AttentionAct { attention, act: &mut act, by_head: false })?
            }
            Node::Experts(ref experts) => self.experts(experts)?,
            Node::RouteAndGroup { route, groups } => {
                let mut groups = s.groups_mut(groups);
                self.with_route(route, |route| Ok(b.run(RouteAndGroup { route, groups: &mut groups })?))?
            }
            Node::WeighInput { x, choices, out, act } => {
                let (from, mut to, mut act) = (s.rows(x), s.rows_mut(out), s.act_mut(act));
                let mut weights = s.weights.borrow_mut();
                let gate = weights.view_mut_at(choices.saturating_mul(self.tokens), self.tokens, 1)?;
                let (x, out) = (self.view(x, &from)?, self.view_mut(out, &mut to)?);
                let multiply = Multiply { x, gate: gate.as_view(), kind: GateKind::Linear, out };
                b.run(MultiplyAct { multiply, act: &mut act })?
            }
            Node::MoeGateUpAct { weight, top_k, activation, x, groups, h, act } => {
                let (x, groups, mut rows, mut act) = (s.act(x), s.groups(groups), s.rows_mut(h), s.act_mut(act));
                let (weight, h) = (w.matrix(weight), self.view_mut(h, &mut rows)?);
                let gate_up = MoeGateUp { weight, x: &x, groups: &groups, top_k, bias: None, activation, h };
                b.run(MoeGateUpAct { gate_up, act: &mut act })?
            }
            Node::MoeMatmul { weight, top_k, x, groups, out } => {
                let (x, groups, mut rows) = (s.act(x), s.groups(groups), s.rows_mut(out));
                let (weight, out) = (w.matrix(weight), self.view_mut(out, &mut rows)?);
                b.run(MoeMatmul { weight, x: &x, groups: &groups, top_k, bias: None, out })?
            }
            Node::CausalConv { layer, x, weight, bias, silu, out } => {
                let (from, mut to) = (s.rows(x.rows), s.rows_mut(out));
                let (x, out) = (self.columns(x, &from)?, self.view_mut(out, &mut to)?);
                let (weight, bias) = (w.vector(weight), self.vector(bias));
                let (state, runs) = fixed(self.state.fixed(layer), StateName::Convolution)?;
                b.run(CausalConv { x, weight, bias, silu, state, runs, out })?
            }
            Node::PreviousRow { head, x, taps, out } => {
                let (from, mut to) = (s.rows(x), s.rows_mut(out));
                let (x, out) = (self.view(x, &from)?, self.view_mut(out, &mut to)?);
                let (state, runs) = fixed(self.state.last_hidden(head), StateName::Hidden)?;
                b.run(CausalConv { x, weight: w.vector(taps), bias: None, silu: false, state, runs, out })?
            }
            Node::DeltaRule { layer, qkv, beta, alpha, decay, dt_bias, kind, heads, out } => {
                let (from, gates, mut to) = (s.rows(qkv), s.rows(beta.rows), s.rows_mut(out));
                let of_alpha = s.rows(alpha.rows);
                let qkv = self.view(qkv, &from)?;
                let (beta, alpha) = (self.columns(beta, &gates)?, self.columns(alpha, &of_alpha)?);
                let (decay, dt_bias, out) = (w.vector(decay), w.vector(dt_bias), self.view_mut(out, &mut to)?);
                let (state, runs) = fixed(self.state.fixed(layer), StateName::Delta)?;
                b.run(DeltaRule { qkv, beta, alpha, decay, dt_bias, kind, heads, state, runs, out })?
            }
            Node::SelectiveScan { layer, xbc, dt, a, d, dt_bias, heads, out } => {
                let (from, steps, mut to) = (s.rows(xbc), s.rows(dt.rows), s.rows_mut(out));
                let (xbc, dt, out) = (self.view(xbc, &from)?, self.columns(dt, &steps)?, self.view_mut(out, &mut to)?);
                let (a, d, dt_bias) = (w.vector(a), w.vector(d), w.vector(dt_bias));
                let (state, runs) = fixed(self.state.fixed(layer), StateName::Scan)?;
                b.run(SelectiveScan { xbc, dt, a, d, dt_bias, heads, state, runs, out })?
            }
        }
        Ok(())
    }

    /// Sums rows over the ranks.
    fn all_reduce(&self, id: RowsId) -> Result<()> {
        let on_device = self.backend.ranks().filter(|_| self.scratch.sums_on_device);
        let Some(ranks) = on_device else { return self.on_ranks(id, |ranks, x| ranks.all_reduce(x)) };
        let ([rows, cols], mut buffer) = (self.shape(id), self.scratch.rows_mut(id));
        Ok(ranks.all_reduce(buffer.view_mut(rows, cols)?)?)
    }

    /// Exchanges rows with other ranks, in the host's memory. A dry pass has no ranks.
    fn on_ranks(
        &self,
        id: RowsId,
        exchange: impl Fn(&dyn Collective, &mut [f32]) -> std::result::Result<(), gristmill_collective::Error>,
    ) -> Result<()> {
        let Some(ranks) = self.scratch.ranks.as_deref() else { return Ok(()) };
        let ([rows, cols], mut buffer) = (self.shape(id), self.scratch.rows_mut(id));
        let len = rows * cols;
        if let Some(values) = buffer.as_host_mut() {
            return Ok(exchange(ranks, &mut values[..len])?);
        }
        let mut values = vec![0.0; len];
        self.backend.download(buffer.view(rows, cols)?, &mut values)?;
        exchange(ranks, &mut values)?;
        Ok(self.backend.upload(&values, &mut buffer)?)
    }

    /// Calls `run` with the rows of each picture and of its tokens.
    fn with_pictures(
        &self,
        out: RowsId,
        level: usize,
        run: impl Fn(View<f32>, ViewMut<f32>) -> Result<()>,
    ) -> Result<()> {
        let (mut rows, [_, cols]) = (self.scratch.rows_mut(out), self.shape(out));
        for PictureRows { rows: from, first, at, tokens, levels } in &self.scratch.pictures {
            let (all, end) = (cols * levels, first + tokens);
            let x = from.view(1, end * all)?.columns(first * all..end * all)?.split(*tokens)?;
            run(x.columns(level * cols..(level + 1) * cols)?, rows.view_mut_at(at * cols, *tokens, cols)?)?;
        }
        Ok(())
    }

    /// The axes by which a layer rotates in this pass.
    fn axes(&self, layer: usize) -> Option<(&'a Axes, &'a [AxisRotary])> {
        let axes = self.scratch.axes.as_ref().filter(|axes| axes.is_on)?;
        Some((axes, axes.layers.get(layer)?.as_deref()?))
    }

    /// Rotates columns by all axes.
    fn rotate(&self, (axes, rotaries): (&Axes, &[AxisRotary]), mut x: ViewMut<f32>, head_width: usize) -> Result<()> {
        for (AxisRotary { rotary, first }, positions) in rotaries.iter().zip(&axes.positions) {
            let positions = positions.view(self.tokens, 1)?;
            self.backend.run(Rope { x: x.reborrow(), head_width, first: *first, positions, rotary })?;
        }
        Ok(())
    }

    /// Normalises queries and keys and rotates them by all axes, so that nothing of both is left to the write of the cache.
    fn rotate_queries_and_keys(
        &self,
        axes: (&Axes, &[AxisRotary]),
        qkv: &mut ViewMut<f32>,
        norms: Option<QkNorms>,
        heads: usize,
        spec: KvSpec,
    ) -> Result<()> {
        let [k, v] = key_and_value_columns(heads, spec)?;
        let normalise = |qkv: &mut ViewMut<f32>, is_after: bool| -> Result<()> {
            let Some(norms) = norms.filter(|norms| norms.after_rotation == is_after) else { return Ok(()) };
            let columns =
                [(0..k, Some(norms.weights[0])), (k..v, Some(norms.weights[1])), (v..qkv.cols(), norms.values)];
            for (columns, weight) in columns {
                let Some(weight) = weight else { continue };
                self.backend.run(QkNorm { x: qkv.reborrow().columns(columns)?, weight, eps: norms.eps })?;
            }
            Ok(())
        };
        normalise(qkv, false)?;
        self.rotate(axes, qkv.reborrow().columns(0..v)?, spec.key_width)?;
        normalise(qkv, true)
    }

    fn rope(&mut self, layer: usize, x: Columns, head_width: usize) -> Result<()> {
        let mut rows = self.scratch.rows_mut(x.rows);
        let [_, cols] = self.shape(x.rows);
        // All rows of a token are its heads.
        let x = match (x.first, x.end) == (0, cols) {
            true => self.token_view_mut(x.rows, &mut rows)?,
            false => self.columns_mut(x, &mut rows)?,
        };
        if let Some(axes) = self.axes(layer) {
            return self.rotate(axes, x, head_width);
        }
        let CachedLayer { placement, .. } = cached(self.state, layer)?;
        let positions = placement.positions.view(self.tokens, 1)?;
        Ok(self.backend.run(Rope { x, head_width, first: 0, positions, rotary: &self.rotaries[layer] })?)
    }

    fn write_latent(&mut self, node: &Node) -> Result<()> {
        let Node::LatentWrite { layer, rows, queries, heads, norm, eps, is_rotated, plain, rotated } = *node else {
            return Ok(());
        };
        let (b, s) = (self.backend, self.scratch);
        let (mut of_rows, mut of_queries, mut plain) = (s.rows_mut(rows.rows), s.rows_mut(queries), s.act_mut(plain));
        let mut of_rotated = s.rows_mut(rotated.rows);
        let (rows, queries) = (self.columns_mut(rows, &mut of_rows)?, self.token_view_mut(queries, &mut of_queries)?);
        let (rotated, plain) = (self.columns_mut(rotated, &mut of_rotated)?, &mut *plain);
        let (norm, rotary) = (self.weights.vector(norm), is_rotated.then_some(&*self.rotaries[layer]));
        let CachedLayer { cache, placement } = cached(self.state, layer)?;
        Ok(b.run(LatentWrite { rows, queries, heads, norm, eps, rotary, cache, placement, plain, rotated })?)
    }

    fn attend_latent(
        &mut self,
        layer: usize,
        q: RowsId,
        options: node::Attention,
        out: RowsId,
        act: ActId,
    ) -> Result<()> {
        let s = self.scratch;
        let (from, mut to, mut act) = (s.rows(q), s.rows_mut(out), s.act_mut(act));
        let (b, options) = (self.backend, self.options(options));
        let (q, out) = (self.token_view(q, &from)?, self.token_view_mut(out, &mut to)?);
        let CachedLayer { cache, placement } = cached(self.state, layer)?;
        let attention = Attention { q, cache, placement, options, out };
        Ok(b.run(AttentionAct { attention, act: &mut act, by_head: true })?)
    }

    fn attention(&mut self, node: &Node) -> Result<()> {
        let (b, s) = (self.backend, self.scratch);
        let (Node::Attend { layer, qkv: x, options, out, act, .. }
        | Node::AttentionAct { layer, q: x, options, out, act }) = *node
        else {
            return Ok(());
        };
        let (mut rows, mut to, mut act) = (s.rows_mut(x.rows), s.rows_mut(out), s.act_mut(act));
        let options = self.options(options);
        let (mut qkv, out, act) = (self.columns_mut(x, &mut rows)?, self.view_mut(out, &mut to)?, &mut *act);
        let (weights, eps, axes) = (self.weights, self.program.eps, self.axes(layer));
        let mut rotary = &*self.rotaries[layer];
        let mut norms = match *node {
            Node::Attend { norms, .. } => norms.map(|norms| qk_norms(norms, weights, eps)),
            _ => None,
        };
        if let (Some(axes), Node::Attend { .. }) = (axes, node) {
            let spec = self.kv_spec(layer)?;
            self.rotate_queries_and_keys(axes, &mut qkv, norms.take(), options.heads, spec)?;
            rotary = &axes.0.none;
        }
        let CachedLayer { cache, placement } = cached(self.state, layer)?;
        if let Node::Attend { .. } = *node {
            return Ok(b.run(Attend { qkv, norms, rotary, cache, placement, options, out, act })?);
        }
        let attention = Attention { q: qkv.as_view(), cache, placement, options, out };
        Ok(b.run(AttentionAct { attention, act, by_head: false })?)
    }

    /// Writes the keys and values of attention.
    fn write_keys(&mut self, node: &Node) -> Result<()> {
        let Node::Attend { layer, qkv, norms, options: node::Attention { heads, .. }, .. } = *node else {
            return Ok(());
        };
        self.write_rows(layer, qkv, norms, heads)
    }

    fn write_rows(&mut self, layer: usize, x: Columns, norms: Option<node::QkNorms>, heads: usize) -> Result<()> {
        let mut rows = self.scratch.rows_mut(x.rows);
        let (b, mut qkv) = (self.backend, self.columns_mut(x, &mut rows)?);
        let mut norms = norms.map(|norms| qk_norms(norms, self.weights, self.program.eps));
        let mut rotary = &*self.rotaries[layer];
        // In a tower, nodes before this one have rotated.
        if let Some(axes) = self.axes(layer) {
            if self.state.whole(layer).is_none() {
                let spec = self.kv_spec(layer)?;
                self.rotate_queries_and_keys(axes, &mut qkv, norms.take(), heads, spec)?;
            }
            rotary = &axes.0.none;
        }
        let CachedLayer { cache, placement } = cached(self.state, layer)?;
        Ok(b.run(QkvWrite { qkv, heads, norms, rotary, cache, placement })?)
    }

    fn kv_spec(&mut self, layer: usize) -> Result<KvSpec> {
        Ok(cached(self.state, layer)?.cache.spec())
    }

    fn options(&self, options: node::Attention) -> AttentionOptions<'a> {
        let node::Attention { heads, scale, cap, temperature, window, first, sinks, both_ways } = options;
        let (sinks, precision) = (self.vector(sinks), self.precision);
        let ends = self.scratch.ends.as_ref().filter(|ends| both_ways && ends.is_on).map(|ends| &ends.last);
        AttentionOptions { heads, scale, temperature, window, first, ends, sinks, softcap: cap, precision }
    }

    fn experts(&self, experts: &node::Experts) -> Result<()> {
        let (b, s, w) = (self.backend, self.scratch, self.weights);
        let node::Experts { activation, epilogue, .. } = *experts;
        let (x, mut groups, mut act) = (s.act(experts.x), s.groups_mut(experts.groups), s.act_mut(experts.act));
        let (mut h, mut out, mut y) = (s.rows_mut(experts.h), s.rows_mut(experts.out), s.rows_mut(experts.y));
        let weights = ExpertWeights {
            gate_up: w.matrix(experts.gate_up),
            down: w.matrix(experts.down),
            activation,
            gate_up_bias: experts.gate_up_bias.map(|biases| biases.map(|bias| w.vector(bias))),
            down_bias: self.vector(experts.down_bias),
        };
        let scratch = ExpertScratch {
            groups: &mut groups,
            h: self.view_mut(experts.h, &mut h)?,
            act: &mut act,
            out: self.view_mut(experts.out, &mut out)?,
        };
        let y = self.view_mut(experts.y, &mut y)?;
        self.with_route(experts.route, |route| Ok(b.run(Experts { route, weights, x: &x, scratch, epilogue, y })?))
    }

    /// Calls `run` with a router's operands.
    fn with_route(&self, route: node::Route, run: impl FnOnce(Route) -> Result<()>) -> Result<()> {
        let (s, t) = (self.scratch, self.tokens);
        let node::Route { ref routing, choices, .. } = route;
        let (logits, mut ids, mut weights) = (s.rows(route.logits.rows), s.ids.borrow_mut(), s.weights.borrow_mut());
        let start = choices.saturating_mul(t);
        let forced = s.forced.as_ref().map(|forced| forced.of_router(choices, t)).transpose()?.flatten();
        let (logits, routing, selection_bias, expert_scales) = match &forced {
            Some((logits, rule)) => (*logits, rule, None, None),
            None => (self.columns(route.logits, &logits)?, routing, route.selection_bias, route.expert_scales),
        };
        run(Route {
            logits,
            routing,
            selection_bias: self.vector(selection_bias),
            expert_scales: self.vector(expert_scales),
            tokens: Some(s.tokens.view(t, 1)?),
            ids: ids.view_mut_at(start, t, routing.top_k)?,
            weights: weights.view_mut_at(start, t, routing.top_k)?,
        })
    }

    /// Calls `run` with the operands of a norm.
    fn with_norm(&self, norm: node::RmsNorm, run: impl FnOnce(RmsNorm) -> Result<()>) -> Result<()> {
        let (from, mut to) = (self.scratch.rows(norm.x), self.scratch.rows_mut(norm.out));
        let (x, out) = (self.view(norm.x, &from)?, self.view_mut(norm.out, &mut to)?);
        run(RmsNorm { x, weight: self.weights.vector(norm.weight), eps: self.program.eps, out })
    }

    /// Calls `run` with the operands of a sum.
    fn with_sum(&self, sum: node::AddNorm, run: impl FnOnce(AddNorm) -> Result<()>) -> Result<()> {
        let node::AddNorm { norm, scale, factor, y } = sum;
        let (factor, mut rows) = (self.factor(factor), self.scratch.rows_mut(y));
        let y = self.view_mut(y, &mut rows)?;
        self.with_norm(norm, |norm| run(AddNorm { norm, scale, factor, y }))
    }

    fn vector(&self, id: Option<VectorId>) -> Option<&'a Buffer<f32>> {
        id.map(|id| self.weights.vector(id))
    }

    fn factor(&self, factor: Factor) -> f32 {
        match factor {
            Factor::Constant(factor) => factor,
            Factor::Weight(scalar) => self.weights.scalar(scalar),
        }
    }

    /// Rows and columns of a value in this pass.
    fn shape(&self, id: RowsId) -> [usize; 2] {
        let shape = &self.program.rows[id.0];
        [self.units(shape.unit) * shape.per_unit, shape.cols]
    }

    /// The same, if all rows of a unit are one.
    fn token_shape(&self, id: RowsId) -> [usize; 2] {
        let shape = &self.program.rows[id.0];
        [self.units(shape.unit), shape.per_unit * shape.cols]
    }

    fn units(&self, unit: Unit) -> usize {
        if unit == Unit::Token { self.tokens } else { self.outputs }
    }

    fn view<'b>(&self, id: RowsId, buffer: &'b Buffer<f32>) -> Result<View<'b, f32>> {
        let [rows, cols] = self.shape(id);
        Ok(buffer.view(rows, cols)?)
    }

    fn view_mut<'b>(&self, id: RowsId, buffer: &'b mut Buffer<f32>) -> Result<ViewMut<'b, f32>> {
        let [rows, cols] = self.shape(id);
        Ok(buffer.view_mut(rows, cols)?)
    }

    /// A value of tokens with one row for each token, which has all of the token's rows.
    fn token_view<'b>(&self, id: RowsId, buffer: &'b Buffer<f32>) -> Result<View<'b, f32>> {
        let [rows, cols] = self.token_shape(id);
        Ok(buffer.view(rows, cols)?)
    }

    fn token_view_mut<'b>(&self, id: RowsId, buffer: &'b mut Buffer<f32>) -> Result<ViewMut<'b, f32>> {
        let [rows, cols] = self.token_shape(id);
        Ok(buffer.view_mut(rows, cols)?)
    }

    fn columns<'b>(&self, part: Columns, buffer: &'b Buffer<f32>) -> Result<View<'b, f32>> {
        Ok(self.view(part.rows, buffer)?.columns(part.first..part.end)?)
    }

    fn columns_mut<'b>(&self, part: Columns, buffer: &'b mut Buffer<f32>) -> Result<ViewMut<'b, f32>> {
        Ok(self.view_mut(part.rows, buffer)?.columns(part.first..part.end)?)
    }
}

fn qk_norms(norms: node::QkNorms, weights: &Weights, eps: f32) -> QkNorms<'_> {
    QkNorms {
        weights: [weights.vector(norms.q), weights.vector(norms.k)],
        values: norms.v.map(|weight| weights.vector(weight)),
        eps,
        after_rotation: norms.after_rotation,
    }
}

/// The cache of a layer.
fn cached(state: &mut dyn LayerStates, layer: usize) -> Result<CachedLayer<'_>> {
    // The program and the state are made of the same spec.
    state.cache(layer).ok_or(Error::UnknownSequence)
}

/// A buffer of a layer's state of fixed size, and the runs of the pass.
fn fixed(layer: Option<FixedLayer<'_>>, name: StateName) -> Result<(ViewMut<'_, f32>, &Runs)> {
    // The program and the state are made of the same spec.
    let FixedLayer { buffers, runs } = layer.ok_or(Error::UnknownSequence)?;
    Ok((buffers.rows_mut(name)?, runs))
}
