//! The paged cache and attention over it.

use super::matrix::dot;
use super::rows::{Rows, RowsMut};
use crate::error::Result;
use crate::kv::{KV_BLOCK, KV_GROUP, KvFormat, KvSpec, Placement, quantise};
use crate::ops::{Attention, KvCopy, KvWrite, Operation, PADDING, Temperature, elements, visible};
use crate::tensor::zeroed;
use half::f16;

/// The contents of a cache, as f32 rounded to its format: block × token of the block × head × `width`.
#[derive(Debug)]
pub(super) struct ReferenceKv {
    keys: Vec<f32>,
    /// Empty if values are in keys.
    values: Vec<f32>,
}

impl ReferenceKv {
    pub(super) fn zeroed(spec: KvSpec, blocks: usize) -> Result<Self> {
        let what = "the KV cache";
        let zeros = |width: usize| zeroed(elements(what, &[blocks, KV_BLOCK, spec.heads, width])?, what);
        Ok(Self { keys: zeros(spec.key_width)?, values: zeros(spec.stored_value_width())? })
    }
}

/// The lists of a placement.
struct Blocks<'a> {
    slots: &'a [u32],
    positions: &'a [u32],
    table: &'a [u32],
    cols: usize,
}

impl<'a> Blocks<'a> {
    fn new(placement: &'a Placement) -> Self {
        Self {
            slots: placement.slots.as_host().unwrap_or(&[]),
            positions: placement.positions.as_host().unwrap_or(&[]),
            table: placement.table.as_host().unwrap_or(&[]),
            cols: placement.table_cols,
        }
    }

    /// Slot and position of a token; `None` for padding.
    fn token(&self, token: usize) -> Option<(usize, u32)> {
        let slot = self.slots[token];
        (slot != PADDING).then_some((slot as usize, self.positions[token]))
    }

    /// Index of the cached token at a position of a slot.
    fn find(&self, slot: usize, position: usize) -> usize {
        self.table[slot * self.cols + position / KV_BLOCK] as usize * KV_BLOCK + position % KV_BLOCK
    }
}

/// One head's key or value as the cache keeps it.
fn rounded(format: KvFormat, x: &[f32]) -> Vec<f32> {
    match format {
        KvFormat::F16 => x.iter().map(|&x| f16::from_f32(x).to_f32()).collect(),
        KvFormat::Q8_0 => {
            let group = |x: &[f32]| {
                let (scale, codes) = quantise(x);
                // A scale has 11 significant bits and a code 7: the product is exact.
                codes.map(|code| f32::from(code) * scale.to_f32())[..x.len()].to_vec()
            };
            x.chunks(KV_GROUP).flat_map(group).collect()
        }
    }
}

pub(super) fn kv_write(call: KvWrite) -> Result<()> {
    let KvWrite { cache, k, v, placement } = call;
    let (k, v) = (Rows::new(KvWrite::NAME, k)?, v.map(|v| Rows::new(KvWrite::NAME, v)).transpose()?);
    let blocks = Blocks::new(placement);
    let spec = cache.spec();
    let ReferenceKv { keys, values } = cache.storage_mut(KvWrite::NAME)?;
    for t in 0..k.len {
        let Some((slot, position)) = blocks.token(t) else { continue };
        let at = blocks.find(slot, position as usize);
        let value = v.as_ref().map(|v| (&mut *values, v.row(t), spec.value_width));
        for (cells, row, width) in [(&mut *keys, k.row(t), spec.key_width)].into_iter().chain(value) {
            let cells = &mut cells[at * row.len()..][..row.len()];
            for (cells, x) in cells.chunks_exact_mut(width).zip(row.chunks_exact(width)) {
                cells.copy_from_slice(&rounded(spec.format, x));
            }
        }
    }
    Ok(())
}

pub(super) fn kv_copy(call: KvCopy) -> Result<()> {
    let KvCopy { cache, blocks } = call;
    let all = cache.blocks();
    let ReferenceKv { keys, values } = cache.storage_mut(KvCopy::NAME)?;
    for cells in [keys, values] {
        let len = cells.len() / all.max(1);
        for &(from, to) in blocks {
            let from = from as usize * len;
            cells.copy_within(from..from + len, to as usize * len);
        }
    }
    Ok(())
}

pub(super) fn attention(call: Attention) -> Result<()> {
    let Attention { q, cache, placement, options, mut out } = call;
    let q = Rows::new(Attention::NAME, q)?;
    let blocks = Blocks::new(placement);
    let spec = cache.spec();
    let ReferenceKv { keys, values } = cache.storage(Attention::NAME)?;
    let ends = options.ends.and_then(|ends| ends.as_host());
    let sinks = options.sinks.and_then(|s| s.as_host());
    RowsMut::new(Attention::NAME, &mut out)?.each(|t, out| {
        out.fill(0.0);
        let Some((slot, position)) = blocks.token(t) else { return };
        let (first, last) = visible(position, ends.map(|ends| ends[t]), options.window, options.first);
        let temperature = temperature(options.temperature, position);
        for (head, out) in out.chunks_exact_mut(spec.value_width).enumerate() {
            let q = &q.row(t)[head * spec.key_width..][..spec.key_width];
            let kv_head = head / (options.heads / spec.heads);
            // The head's row among the numbers of the cache.
            let row = |p: usize| blocks.find(slot, p) * spec.heads + kv_head;
            let logit = |p: usize| {
                let key = &keys[row(p) * spec.key_width..][..spec.key_width];
                soft_cap(dot(q, key) * f64::from(options.scale) * temperature, options.softcap)
            };
            let logits: Vec<f64> = (first..=last).map(logit).collect();
            let sink = sinks.map(|s| f64::from(s[head]));
            let mut sums = vec![0.0; spec.value_width];
            for (p, share) in (first..=last).zip(shares(&logits, sink)) {
                let cells = if spec.values_in_keys { keys } else { values };
                let value = &cells[row(p) * spec.value_row_width()..][..spec.value_width];
                sums.iter_mut().zip(value).for_each(|(sum, &value)| *sum += share * f64::from(value));
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
        }
    });
    Ok(())
}

/// 1 + scale · ln(1 + ⌊(position + offset) / length⌋).
fn temperature(of: Option<Temperature>, position: u32) -> f64 {
    let steps = |t: Temperature| ((f64::from(position) + f64::from(t.offset)) / f64::from(t.length)).floor();
    of.map_or(1.0, |t| 1.0 + f64::from(t.scale) * (1.0 + steps(t)).ln())
}

fn soft_cap(logit: f64, cap: Option<f32>) -> f64 {
    cap.map(f64::from).map_or(logit, |cap| cap * (logit / cap).tanh())
}

/// Softmax with a sink: a logit that counts in the sum and has no value.
fn shares(logits: &[f64], sink: Option<f64>) -> Vec<f64> {
    let max = logits.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = logits.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exps.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
    exps.iter().map(|e| e / sum).collect()
}
