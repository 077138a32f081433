//! The minimum bytes and operations of each kernel call.

use super::record::Work;
use crate::layout::{group_bytes, groups};
use crate::weight::shapes;
use gristmill_kernels::act::Act;
use gristmill_kernels::groups::Groups;
use gristmill_kernels::kv::{KV_BLOCK, KvSpec, Placement};
use gristmill_kernels::ops::*;
use gristmill_kernels::weight::Weight;
use std::collections::BTreeMap;

/// Bytes of an f32 or u32.
const WORD: f64 = 4.0;

/// An operation whose work can be counted. All of its buffers are in host memory.
pub(crate) trait Measured: Operation {
    /// Format and shape of the weight.
    fn weight(&self) -> String {
        String::new()
    }
    /// Bytes and operations.
    fn work(&self) -> Work;
}

/// Work of an operation that only moves this number of words.
pub(crate) fn words(words: usize) -> Work {
    Work { bytes: WORD * words as f64, operations: 0.0 }
}

/// The distinct formats of a weight's tensors, and the weight's shape.
fn describe(weight: &Weight) -> String {
    let tensors = shapes("profile", weight).unwrap_or_default();
    let mut formats: Vec<&str> = tensors.iter().map(|tensor| tensor.format.name()).collect();
    formats.dedup();
    let rows: usize = tensors.iter().map(|tensor| tensor.rows).sum();
    format!("{} {rows}×{}", formats.join("+"), weight.cols())
}

/// A product of `rows` activation rows with `experts` expert matrices of a weight.
fn product(weight: &Weight, x: &Act, rows: usize, experts: usize, out: usize) -> Work {
    let tensors = shapes("profile", weight).unwrap_or_default();
    let matrix: usize = tensors.iter().map(|tensor| groups(tensor) * group_bytes(tensor)).sum();
    let outputs: usize = tensors.iter().map(|tensor| tensor.rows).sum();
    Work {
        bytes: (matrix * experts) as f64 + WORD * (x.rows() * x.cols() + out) as f64,
        operations: 2.0 * rows as f64 * outputs as f64 * weight.cols() as f64,
    }
}

/// Experts with at least one pair.
fn chosen(groups: &Groups) -> usize {
    groups.counts().as_host().map_or(0, |counts| counts.iter().filter(|&&pairs| pairs > 0).count())
}

/// Query–key pairs of all tokens, and the cache bytes that they read. Each position of a sequence counts once.
fn seen(placement: &Placement, spec: KvSpec, tokens: usize, options: &AttentionOptions) -> (f64, f64) {
    let host = |buffer| gristmill_kernels::tensor::Buffer::<u32>::as_host(buffer).unwrap_or_default();
    let (slots, positions) = (host(&placement.slots), host(&placement.positions));
    let mut products = 0.0;
    let mut spans: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    let ends = options.ends.map(host);
    let all = slots.iter().zip(positions).take(tokens).enumerate();
    for (index, (&slot, &position)) in all.filter(|&(_, (&slot, _))| slot != PADDING) {
        let end = ends.and_then(|ends| ends.get(index).copied());
        let (first, last) = visible(position, end, options.window, options.first);
        products += (last + 1 - first) as f64;
        let span = spans.entry(slot).or_insert((first, last));
        *span = (span.0.min(first), span.1.max(last));
    }
    let cached: usize = spans.values().map(|(first, last)| last + 1 - first).sum();
    (products, (cached * spec.block_bytes() / KV_BLOCK) as f64)
}

impl Measured for Matmul<'_> {
    fn weight(&self) -> String {
        describe(self.weight)
    }
    fn work(&self) -> Work {
        product(self.weight, self.x, self.y.rows(), 1, self.y.rows() * self.y.cols())
    }
}

impl Measured for GateUp<'_> {
    fn weight(&self) -> String {
        describe(self.weight)
    }
    fn work(&self) -> Work {
        product(self.weight, self.x, self.h.rows(), 1, self.h.rows() * self.h.cols())
    }
}

impl Measured for MoeMatmul<'_> {
    fn weight(&self) -> String {
        describe(self.weight)
    }
    fn work(&self) -> Work {
        product(self.weight, self.x, self.out.rows(), chosen(self.groups), self.out.rows() * self.out.cols())
    }
}

impl Measured for MoeGateUp<'_> {
    fn weight(&self) -> String {
        describe(self.weight)
    }
    fn work(&self) -> Work {
        product(self.weight, self.x, self.h.rows(), chosen(self.groups), self.h.rows() * self.h.cols())
    }
}

impl Measured for Attention<'_> {
    fn work(&self) -> Work {
        let spec = self.cache.spec();
        let (products, cached) = seen(self.placement, spec, self.q.rows(), &self.options);
        let width = self.options.heads * (spec.key_width + spec.value_width);
        let rows = words(self.q.rows() * width);
        Work { bytes: rows.bytes + cached, operations: 2.0 * products * width as f64 }
    }
}

impl Measured for KvWrite<'_> {
    fn work(&self) -> Work {
        let spec = self.cache.spec();
        let cached = self.k.rows() * spec.block_bytes() / KV_BLOCK;
        let values = self.v.map_or(0, |v| v.cols());
        Work { bytes: words(self.k.rows() * (self.k.cols() + values)).bytes + cached as f64, operations: 0.0 }
    }
}

impl Measured for KvCopy<'_> {
    fn work(&self) -> Work {
        Work { bytes: 2.0 * (self.blocks.len() * self.cache.spec().block_bytes()) as f64, operations: 0.0 }
    }
}

impl Measured for PrepareActivations<'_> {
    fn work(&self) -> Work {
        // Two words are written for each that is read: the value, its int8 with scales, and perhaps its bfloat16.
        words(3 * self.x.rows() * self.x.cols())
    }
}

/// Words of the states that runs read and write; a slot has `slot` of them.
fn states(runs: &Runs, slot: usize) -> usize {
    let moved = |run: Run| 1 + usize::from(run.read.is_some());
    slot * runs.of_host().map_or(0, |runs| runs.map(moved).sum())
}

impl Measured for CausalConv<'_> {
    fn work(&self) -> Work {
        let rows = 2 * self.x.rows() * self.x.cols();
        words(rows + self.weight.len() + states(self.runs, self.state.cols()))
    }
}

impl Measured for DeltaRule<'_> {
    fn work(&self) -> Work {
        let tokens = self.qkv.rows();
        let heads = self.heads;
        let rows = tokens * (heads.columns() + self.alpha.cols() + heads.values * (1 + heads.width));
        // A token multiplies the state of each head with its key and its query, and adds the product of key and update.
        let operations = 3.0 * 2.0 * (tokens * heads.state()) as f64;
        Work { operations, ..words(rows + states(self.runs, self.state.cols())) }
    }
}

impl Measured for SelectiveScan<'_> {
    fn work(&self) -> Work {
        let tokens = self.xbc.rows();
        let heads = self.heads;
        let rows = tokens * (heads.columns() + heads.heads + heads.values());
        // A token decays each element of the state, adds a product to it, and multiplies it with C.
        let operations = 5.0 * (tokens * heads.elements()) as f64;
        Work { operations, ..words(rows + states(self.runs, self.state.cols())) }
    }
}

impl Measured for GroupByExpert<'_> {
    fn work(&self) -> Work {
        words(2 * self.ids.rows() * self.ids.cols())
    }
}
