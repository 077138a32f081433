//! The paged cache and attention over it.

use super::rows::{Rows, RowsMut};
use crate::check::{PADDING, visible};
use crate::error::Result;
use crate::kv::{Cells, KV_BLOCK, KV_GROUP, KvCache, Placement, groups, quantise};
use crate::ops::Attention;
use crate::tensor::{View, ViewMut};

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
fn key_index(heads: usize, width: usize, head: usize, (block, at): (usize, usize), d: usize) -> usize {
    ((block * heads + head) * width + d) * KV_BLOCK + at
}

fn value_index(heads: usize, width: usize, head: usize, (block, at): (usize, usize), d: usize) -> usize {
    ((block * heads + head) * KV_BLOCK + at) * width + d
}

/// One of the two above.
type Index = fn(usize, usize, usize, (usize, usize), usize) -> usize;

/// Writes a token's keys or values, `width` for each head.
fn put(cells: &mut Cells, index: Index, x: &[f32], width: usize, at: (usize, usize)) {
    let heads = x.len() / width;
    for (head, x) in x.chunks_exact(width).enumerate() {
        match cells {
            Cells::F16(cells) => {
                let Some(cells) = cells.as_host_mut() else { return };
                for (d, &x) in x.iter().enumerate() {
                    cells[index(heads, width, head, at, d)] = half::f16::from_f32(x);
                }
            }
            Cells::Q8_0 { codes, scales } => {
                let (Some(codes), Some(scales)) = (codes.as_host_mut(), scales.as_host_mut()) else { return };
                for (group, x) in x.chunks(KV_GROUP).enumerate() {
                    let (scale, quantised) = quantise(x);
                    scales[index(heads, groups(width), head, at, group)] = scale;
                    for (i, _) in x.iter().enumerate() {
                        codes[index(heads, width, head, at, group * KV_GROUP + i)] = quantised[i];
                    }
                }
            }
        }
    }
}

/// Keys or values of a whole cache as numbers: for each block, head and token of the block, `width` neighbours.
fn numbers(cells: &Cells, index: Index, heads: usize, width: usize, blocks: usize) -> Vec<f64> {
    let tokens =
        (0..blocks).flat_map(|block| (0..heads).flat_map(move |head| (0..KV_BLOCK).map(move |at| (block, head, at))));
    let number = |(block, head, at), d| {
        let at = (block, at);
        match cells {
            Cells::F16(cells) => cells.as_host().map_or(0.0, |cells| cells[index(heads, width, head, at, d)].to_f64()),
            Cells::Q8_0 { codes, scales } => {
                let (Some(codes), Some(scales)) = (codes.as_host(), scales.as_host()) else { return 0.0 };
                let scale = scales[index(heads, groups(width), head, at, d / KV_GROUP)].to_f64();
                f64::from(codes[index(heads, width, head, at, d)]) * scale
            }
        }
    };
    tokens.flat_map(|token| (0..width).map(move |d| number(token, d))).collect()
}

pub(super) fn write(cache: &mut KvCache, k: View<f32>, v: View<f32>, place: &Placement) -> Result<()> {
    let (k, v, blocks) = (Rows::new("kv_write", k)?, Rows::new("kv_write", v)?, Blocks::new(place));
    let spec = cache.spec;
    for t in 0..k.len {
        let Some((slot, position)) = blocks.token(t) else { continue };
        let at = blocks.find(slot, position as usize);
        put(&mut cache.keys, key_index, k.row(t), spec.key_width, at);
        put(&mut cache.values, value_index, v.row(t), spec.value_width, at);
    }
    Ok(())
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
    let sinks = parameters.sinks.and_then(|s| s.as_host());
    let keys = numbers(&cache.keys, key_index, spec.heads, spec.key_width, cache.blocks);
    let values = numbers(&cache.values, value_index, spec.heads, spec.value_width, cache.blocks);
    RowsMut::new(op, &mut out)?.each(|t, out| {
        out.fill(0.0);
        let Some((slot, position)) = blocks.token(t) else { return };
        let (first, last) = visible(position, parameters.window);
        for (head, out) in out.chunks_exact_mut(spec.value_width).enumerate() {
            let q = &q.row(t)[head * spec.key_width..][..spec.key_width];
            let kv_head = head / (parameters.heads / spec.heads);
            // The token's row among the numbers of the cache.
            let row = |p: usize| {
                let (block, at) = blocks.find(slot, p);
                (block * spec.heads + kv_head) * KV_BLOCK + at
            };
            let logit = |p: usize| {
                let key = &keys[row(p) * spec.key_width..][..spec.key_width];
                let dot: f64 = q.iter().zip(key).map(|(&q, key)| f64::from(q) * key).sum();
                soft_cap(dot * f64::from(parameters.scale), parameters.softcap)
            };
            let logits: Vec<f64> = (first..=last).map(logit).collect();
            let sink = sinks.map(|s| f64::from(s[head]));
            let mut sums = vec![0.0; spec.value_width];
            for (p, share) in (first..=last).zip(shares(&logits, sink)) {
                let value = &values[row(p) * spec.value_width..][..spec.value_width];
                sums.iter_mut().zip(value).for_each(|(sum, value)| *sum += share * value);
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
