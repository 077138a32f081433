//! The cache and attention.

use super::{PADDING, at_least, elements, home, homes, id, require, vector};
use crate::compose::key_and_value_columns;
use crate::error::{Result, expect};
use crate::kv::{KV_BLOCK, KvCache, Placement};
use crate::ops::{Attention, Norms, Rope};
use crate::tensor::{DeviceId, View, ViewMut};

/// The parts of a placement that live in host memory and cover T tokens.
struct Place<'a> {
    op: &'static str,
    slots: &'a [u32],
    positions: &'a [u32],
    table: &'a [u32],
    table_cols: usize,
}

impl<'a> Place<'a> {
    fn new(op: &'static str, device: DeviceId, place: &'a Placement, tokens: usize) -> Result<Option<Self>> {
        homes(op, device, &[place.slots.device(), place.positions.device(), place.table.device()])?;
        at_least(op, "number of slots", place.slots.len(), tokens)?;
        at_least(op, "number of positions", place.positions.len(), tokens)?;
        let entries = elements("block table", &[place.table_rows, place.table_cols])?;
        at_least(op, "entries of the block table", place.table.len(), entries)?;
        let host = (place.slots.as_host(), place.positions.as_host(), place.table.as_host());
        let (Some(slots), Some(positions), Some(table)) = host else { return Ok(None) };
        let (slots, positions) = (&slots[..tokens], &positions[..tokens]);
        let columns = place.table_cols.min(place.reach);
        for (index, (&slot, &position)) in slots.iter().zip(positions).enumerate() {
            if slot != PADDING {
                id(op, "slot", slot, index, place.table_rows)?;
                id(op, "position", position, index, columns.saturating_mul(KV_BLOCK))?;
            }
        }
        Ok(Some(Self { op, slots, positions, table, table_cols: place.table_cols }))
    }

    /// Checks the table's entries for blocks `from..=to` of a slot.
    fn blocks(&self, slot: u32, from: usize, to: usize, limit: usize) -> Result<()> {
        let row = slot as usize * self.table_cols;
        (row + from..=row + to).try_for_each(|i| id(self.op, "block", self.table[i], i, limit))
    }
}

/// [`crate::ops::Backend::kv_write`].
pub(crate) fn kv_write(
    device: DeviceId,
    cache: &KvCache,
    k: &View<f32>,
    v: &View<f32>,
    place: &Placement,
) -> Result<()> {
    let op = "kv_write";
    homes(op, device, &[cache.device(), k.device(), v.device()])?;
    expect(op, "rows of the values", v.rows(), k.rows())?;
    if k.rows() == 0 {
        return Ok(());
    }
    let spec = cache.spec();
    expect(op, "columns of the keys", k.cols(), spec.heads * spec.key_width)?;
    expect(op, "columns of the values", v.cols(), spec.heads * spec.value_width)?;
    let Some(place) = Place::new(op, device, place, k.rows())? else { return Ok(()) };
    for (&slot, &position) in place.slots.iter().zip(place.positions) {
        if slot != PADDING {
            let block = position as usize / KV_BLOCK;
            place.blocks(slot, block, block, cache.blocks())?;
        }
    }
    Ok(())
}

/// [`crate::ops::Backend::kv_copy`].
pub(crate) fn kv_copy(device: DeviceId, cache: &KvCache, blocks: &[(u32, u32)]) -> Result<()> {
    let op = "kv_copy";
    home(op, device, cache.device())?;
    for (index, &(from, to)) in blocks.iter().enumerate() {
        id(op, "source block", from, index, cache.blocks())?;
        id(op, "target block", to, index, cache.blocks())?;
    }
    Ok(())
}

/// [`crate::ops::Backend::attention`].
/// The parts of [`crate::ops::Backend::place_qkv`].
pub(crate) fn place_qkv(
    device: DeviceId,
    qkv: &mut ViewMut<f32>,
    heads: usize,
    norms: Norms,
    rope: &Rope,
    cache: &KvCache,
    place: &Placement,
) -> Result<()> {
    let spec = cache.spec();
    let (tokens, all, [k, v]) = (qkv.rows(), qkv.cols(), key_and_value_columns(heads, spec)?);
    for (columns, which) in [(0..k, 0), (k..v, 1)] {
        let Some((weights, eps)) = norms else { break };
        super::qk_norm(device, &qkv.reborrow().columns(columns)?, weights[which], eps)?;
    }
    let positions = place.positions.view(tokens, 1)?;
    super::rope(device, &qkv.reborrow().columns(0..v)?, spec.key_width, &positions, rope)?;
    let read = qkv.as_view();
    kv_write(device, cache, &read.columns(k..v)?, &read.columns(v..all)?, place)
}

pub(crate) fn attention(
    device: DeviceId,
    q: &View<f32>,
    cache: &KvCache,
    place: &Placement,
    parameters: &Attention,
    out: &ViewMut<f32>,
) -> Result<()> {
    let op = "attention";
    homes(op, device, &[q.device(), cache.device(), out.device()])?;
    let (spec, heads) = (cache.spec(), parameters.heads);
    expect(op, "rows of the output", out.rows(), q.rows())?;
    let divides = heads > 0 && heads.is_multiple_of(spec.heads);
    require(divides, op, "query heads", heads, "must be a multiple of the cache's heads")?;
    require(parameters.scale.is_finite(), op, "scale", parameters.scale, "must be finite")?;
    require(parameters.window != Some(0), op, "window", 0, "must be at least 1")?;
    if let Some(softcap) = parameters.softcap {
        require(softcap.is_finite() && softcap > 0.0, op, "softcap", softcap, "must be finite and above 0")?;
    }
    if let Some(sinks) = parameters.sinks {
        vector(op, "number of sinks", device, sinks, heads)?;
    }
    if q.rows() == 0 {
        return Ok(());
    }
    expect(op, "columns of the queries", q.cols(), elements("queries", &[heads, spec.key_width])?)?;
    expect(op, "columns of the output", out.cols(), elements("outputs", &[heads, spec.value_width])?)?;
    let Some(place) = Place::new(op, device, place, q.rows())? else { return Ok(()) };
    // Neighbouring tokens see nearly the same blocks: each run of them is looked at once.
    let mut seen: Option<(u32, usize, usize)> = None;
    for (&slot, &position) in place.slots.iter().zip(place.positions) {
        if slot == PADDING {
            continue;
        }
        let (first, last) = visible(position, parameters.window);
        let (first, last) = (first / KV_BLOCK, last / KV_BLOCK);
        match seen {
            Some((s, from, to)) if s == slot && from <= first && first <= to => {
                if last > to {
                    place.blocks(slot, to + 1, last, cache.blocks())?;
                    seen = Some((slot, from, last));
                }
            }
            _ => {
                place.blocks(slot, first, last, cache.blocks())?;
                seen = Some((slot, first, last));
            }
        }
    }
    Ok(())
}

/// First and last position that a token at `position` sees.
pub(crate) fn visible(position: u32, window: Option<usize>) -> (usize, usize) {
    let last = position as usize;
    (window.map_or(0, |w| (last + 1).saturating_sub(w)), last)
}
