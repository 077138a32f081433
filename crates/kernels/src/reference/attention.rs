//! The paged cache and attention over it.

use super::rows::{Rows, RowsMut};
use crate::check::{PADDING, visible};
use crate::error::Result;
use crate::kv::{KV_BLOCK, KvCache, KvSpec, Placement};
use crate::ops::Attention;
use crate::tensor::{View, ViewMut};
use half::f16;

/// Where each token's sequence has its blocks.
struct Blocks<'a> {
    slots: &'a [u32],
    positions: &'a [u32],
    table: &'a [u32],
    cols: usize,
}

impl<'a> Blocks<'a> {
    fn new(place: &'a Placement) -> Self {
        Self {
            slots: place.slots.as_host().unwrap_or(&[]),
            positions: place.positions.as_host().unwrap_or(&[]),
            table: place.table.as_host().unwrap_or(&[]),
            cols: place.table_cols,
        }
    }

    /// Slot and position of a token, or `None` for padding.
    fn token(&self, token: usize) -> Option<(usize, u32)> {
        let slot = self.slots[token];
        (slot != PADDING).then_some((slot as usize, self.positions[token]))
    }

    /// Block, and index within it, of a position.
    fn find(&self, slot: usize, position: usize) -> (usize, usize) {
        (self.table[slot * self.cols + position / KV_BLOCK] as usize, position % KV_BLOCK)
    }
}

/// Index of element `d` of the key of the `at`-th token of a block.
fn key_index(spec: KvSpec, head: usize, (block, at): (usize, usize), d: usize) -> usize {
    ((block * spec.heads + head) * spec.key_width + d) * KV_BLOCK + at
}

fn value_index(spec: KvSpec, head: usize, (block, at): (usize, usize), d: usize) -> usize {
    ((block * spec.heads + head) * KV_BLOCK + at) * spec.value_width + d
}

pub(super) fn write(cache: &mut KvCache, k: View<f32>, v: View<f32>, place: &Placement) -> Result<()> {
    let (k, v, blocks) = (Rows::new("kv_write", k)?, Rows::new("kv_write", v)?, Blocks::new(place));
    let spec = cache.spec;
    let (Some(keys), Some(values)) = (cache.keys.as_host_mut(), cache.values.as_host_mut()) else { return Ok(()) };
    for t in 0..k.len {
        let Some((slot, position)) = blocks.token(t) else { continue };
        let at = blocks.find(slot, position as usize);
        for (i, &x) in k.row(t).iter().enumerate() {
            keys[key_index(spec, i / spec.key_width, at, i % spec.key_width)] = f16::from_f32(x);
        }
        for (i, &x) in v.row(t).iter().enumerate() {
            values[value_index(spec, i / spec.value_width, at, i % spec.value_width)] = f16::from_f32(x);
        }
    }
    Ok(())
}

pub(super) fn copy(cache: &mut KvCache, blocks: &[(u32, u32)]) {
    let spec = cache.spec;
    let copy = |memory: Option<&mut [f16]>, block: usize| {
        let Some(memory) = memory else { return };
        for &(from, to) in blocks {
            memory.copy_within(from as usize * block..(from as usize + 1) * block, to as usize * block);
        }
    };
    copy(cache.keys.as_host_mut(), spec.heads * spec.key_width * KV_BLOCK);
    copy(cache.values.as_host_mut(), spec.heads * spec.value_width * KV_BLOCK);
}

pub(super) fn attention(
    q: View<f32>,
    cache: &KvCache,
    place: &Placement,
    parameters: &Attention,
    mut out: ViewMut<f32>,
) -> Result<()> {
    let op = "attention";
    let (q, blocks, spec) = (Rows::new(op, q)?, Blocks::new(place), cache.spec);
    let keys = cache.keys.as_host().unwrap_or(&[]);
    let values = cache.values.as_host().unwrap_or(&[]);
    let sinks = parameters.sinks.and_then(|s| s.as_host());
    RowsMut::new(op, &mut out)?.each(|t, out| {
        out.fill(0.0);
        let Some((slot, position)) = blocks.token(t) else { return };
        let (first, last) = visible(position, parameters.window);
        for (head, out) in out.chunks_exact_mut(spec.value_width).enumerate() {
            let q = &q.row(t)[head * spec.key_width..][..spec.key_width];
            let kv_head = head / (parameters.heads / spec.heads);
            let logit = |p: usize| {
                let at = blocks.find(slot, p);
                let key = |d| keys[key_index(spec, kv_head, at, d)].to_f64();
                let dot: f64 = q.iter().enumerate().map(|(d, &q)| f64::from(q) * key(d)).sum();
                soft_cap(dot * f64::from(parameters.scale), parameters.softcap)
            };
            let logits: Vec<f64> = (first..=last).map(logit).collect();
            let sink = sinks.map(|s| f64::from(s[head]));
            let mut sums = vec![0.0; spec.value_width];
            for (p, share) in (first..=last).zip(shares(&logits, sink)) {
                let at = blocks.find(slot, p);
                for (d, sum) in sums.iter_mut().enumerate() {
                    *sum += share * values[value_index(spec, kv_head, at, d)].to_f64();
                }
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
        }
    });
    Ok(())
}

fn soft_cap(logit: f64, cap: Option<f32>) -> f64 {
    cap.map(f64::from).map_or(logit, |cap| cap * (logit / cap).tanh())
}

/// Softmax with a sink, which takes a share and gives nothing.
fn shares(logits: &[f64], sink: Option<f64>) -> Vec<f64> {
    let max = logits.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = logits.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exps.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
    exps.iter().map(|e| e / sum).collect()
}
