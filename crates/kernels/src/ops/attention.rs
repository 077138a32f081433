//! The KV cache and attention over it.

use super::check::*;
use super::elementwise::Rotary;
use super::matrix::fill;
use super::norm::segments;
use super::operation::{Check, Operation};
use super::positions::{Temperature, Window, visible};
use crate::act::{Act, Precision};
use crate::error::Result;
use crate::kv::{KV_BLOCK, KvCache, KvSpec, Placement};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};

/// Parameters of attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions<'a> {
    /// Query heads; a multiple of the cache's KV heads.
    pub heads: usize,
    /// Multiplies q · k.
    pub scale: f32,
    /// The temperature of queries, which also multiplies q · k.
    pub temperature: Option<Temperature>,
    /// The visible positions; `None` for all positions up to the token's own.
    pub window: Option<Window>,
    /// Positions before this one are visible only to themselves: 0, except in layers whose first position has no row.
    pub first: usize,
    /// The last position that each token of the batch sees, where tokens of an image see the whole image; `None` if that is
    /// each token's own. A token sees its own position and those before it, whatever its entry is.
    pub ends: Option<&'a Buffer<u32>>,
    /// Sinks: one logit per query head that takes part in the softmax and has no value (gpt-oss).
    pub sinks: Option<&'a Buffer<f32>>,
    /// Logits become `softcap · tanh(logit / softcap)` (Gemma 2).
    pub softcap: Option<f32>,
    /// With [`Precision::Fast`], a backend can round queries and softmax exponentials to f16. The error is smaller than
    /// that of products with int8 activations.
    pub precision: Precision,
}

constructor! {
    AttentionOptions<'a>(heads: usize, scale: f32, precision: Precision)
        optional(temperature: Temperature, window: Window, ends: &'a Buffer<u32>, sinks: &'a Buffer<f32>, softcap: f32)
        default(first: usize = 0)
}

impl AttentionOptions<'_> {
    fn check(&self, op: &'static str, device: DeviceId, spec: KvSpec) -> Result<()> {
        let divides = self.heads > 0 && self.heads.is_multiple_of(spec.heads);
        require(divides, op, "query heads", self.heads, "must be a multiple of the cache's heads")?;
        require(self.scale.is_finite(), op, "scale", self.scale, "must be finite")?;
        if let Some(Temperature { scale, length, offset }) = self.temperature {
            require(scale.is_finite(), op, "scale of the temperature", scale, "must be finite")?;
            require(length > 0, op, "length of the temperature", length, "must be at least 1")?;
            require(offset < 1 << 31, op, "offset of the temperature", offset, "must be below 2^31")?;
        }
        require(self.window.is_none_or(|window| window.positions() > 0), op, "window", 0, "must be at least 1")?;
        if let Some(softcap) = self.softcap {
            require(softcap.is_finite() && softcap > 0.0, op, "softcap", softcap, "must be finite and above 0")?;
        }
        vectors(op, "number of sinks", device, self.sinks, self.heads)
    }
}

/// The lists of a placement in host memory, for T tokens.
struct PlacementCheck<'a> {
    op: &'static str,
    slots: &'a [u32],
    positions: &'a [u32],
    table: &'a [u32],
    table_cols: usize,
}

impl<'a> PlacementCheck<'a> {
    /// Fails unless the placement covers the tokens and is on the device. `None` if the device is not the host.
    fn new(op: &'static str, device: DeviceId, placement: &'a Placement, tokens: usize) -> Result<Option<Self>> {
        let Placement { slots, positions, table, table_rows, table_cols, .. } = placement;
        on_device(op, device, &[slots.device(), positions.device(), table.device()])?;
        at_least(op, "number of slots", slots.len(), tokens)?;
        at_least(op, "number of positions", positions.len(), tokens)?;
        at_least(op, "entries of the block table", table.len(), elements("block table", &[*table_rows, *table_cols])?)?;
        let host = (slots.as_host(), positions.as_host(), table.as_host());
        let (Some(slots), Some(positions), Some(table)) = host else { return Ok(None) };
        let (slots, positions) = (&slots[..tokens], &positions[..tokens]);
        let limit = placement.table_cols.min(placement.context_columns).saturating_mul(KV_BLOCK);
        for (index, (&slot, &position)) in slots.iter().zip(positions).enumerate() {
            if slot != PADDING {
                id(op, "slot", slot, index, *table_rows)?;
                id(op, "position", position, index, limit)?;
            }
        }
        Ok(Some(Self { op, slots, positions, table, table_cols: *table_cols }))
    }

    /// Checks the table's entries for blocks `from..=to` of a slot.
    fn blocks(&self, slot: u32, from: usize, to: usize, limit: usize) -> Result<()> {
        let row = slot as usize * self.table_cols;
        (row + from..=row + to).try_for_each(|i| id(self.op, "block", self.table[i], i, limit))
    }

    /// The tokens that are not padding: slot and position.
    fn tokens(&self) -> impl Iterator<Item = (u32, u32)> {
        self.slots.iter().copied().zip(self.positions.iter().copied()).filter(|&(slot, _)| slot != PADDING)
    }

    /// Checks the blocks that each token writes to.
    fn check_written(&self, limit: usize) -> Result<()> {
        self.tokens().try_for_each(|(slot, position)| {
            let block = position as usize / KV_BLOCK;
            self.blocks(slot, block, block, limit)
        })
    }

    /// Checks the blocks that each token sees.
    fn check_visible(&self, options: &AttentionOptions, limit: usize) -> Result<()> {
        let ends = options.ends.and_then(Buffer::as_host);
        // Adjacent tokens see nearly the same blocks, so each run of tokens is checked once.
        let mut seen: Option<(u32, usize, usize)> = None;
        for (index, (&slot, &position)) in self.slots.iter().zip(self.positions).enumerate() {
            if slot == PADDING {
                continue;
            }
            let end = ends.map(|ends| ends[index]);
            if let Some(end) = end {
                id(self.op, "end", end, index, self.table_cols.saturating_mul(KV_BLOCK))?;
            }
            let (first, last) = visible(position, end, options.window, options.first);
            let (first, last) = (first / KV_BLOCK, last / KV_BLOCK);
            match seen {
                Some((s, from, to)) if s == slot && from <= first && first <= to => {
                    if last > to {
                        self.blocks(slot, to + 1, last, limit)?;
                        seen = Some((slot, from, last));
                    }
                }
                _ => {
                    self.blocks(slot, first, last, limit)?;
                    seen = Some((slot, first, last));
                }
            }
        }
        Ok(())
    }
}

/// Writes keys and values into the cache.
#[derive(Debug)]
pub struct KvWrite<'a> {
    /// The cache.
    pub cache: &'a mut KvCache,
    /// Keys, T × H·Dk.
    pub k: View<'a, f32>,
    /// Values, T × H·Dv; `None` if the cache's values are part of its keys.
    pub v: Option<View<'a, f32>>,
    /// The block and slot of each token.
    pub placement: &'a Placement,
}

constructor! {
    KvWrite<'a>(cache: &'a mut KvCache, k: View<'a, f32>, placement: &'a Placement) optional(v: View<'a, f32>)
}

impl Check for KvWrite<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { cache, k, v, placement } = self;
        on_device(Self::NAME, device, &[cache.device(), k.device()])?;
        let spec = cache.spec();
        let found = if v.is_some() { "some" } else { "none" };
        let rule = "must be none if the cache has them in its keys";
        require(v.is_none() == spec.values_in_keys, Self::NAME, "values", found, rule)?;
        if let Some(v) = v {
            on_device(Self::NAME, device, &[v.device()])?;
            expect(Self::NAME, "rows of the values", v.rows(), k.rows())?;
        }
        if k.rows() == 0 {
            return Ok(());
        }
        expect(Self::NAME, "columns of the keys", k.cols(), spec.heads * spec.key_width)?;
        if let Some(v) = v {
            expect(Self::NAME, "columns of the values", v.cols(), spec.heads * spec.value_width)?;
        }
        let placement = PlacementCheck::new(Self::NAME, device, placement, k.rows())?;
        placement.map_or(Ok(()), |placement| placement.check_written(cache.blocks()))
    }
}

/// Copies whole blocks within a cache, in order.
#[derive(Debug)]
pub struct KvCopy<'a> {
    /// The cache.
    pub cache: &'a mut KvCache,
    /// (from, to).
    pub blocks: &'a [(u32, u32)],
}

constructor! { KvCopy<'a>(cache: &'a mut KvCache, blocks: &'a [(u32, u32)]) }

impl Check for KvCopy<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { cache, blocks } = self;
        on_device(Self::NAME, device, &[cache.device()])?;
        for (index, &(from, to)) in blocks.iter().enumerate() {
            id(Self::NAME, "source block", from, index, cache.blocks())?;
            id(Self::NAME, "target block", to, index, cache.blocks())?;
        }
        Ok(())
    }
}

/// Causal attention of each token over its own sequence's cache, including the token itself. The keys and values of all
/// positions up to the token's must have been written. Padding tokens get zeros.
#[derive(Debug)]
pub struct Attention<'a> {
    /// Queries, T × heads·Dk.
    pub q: View<'a, f32>,
    /// The cache.
    pub cache: &'a KvCache,
    /// The slot and position of each token.
    pub placement: &'a Placement,
    /// The parameters.
    pub options: AttentionOptions<'a>,
    /// T × heads·Dv.
    pub out: ViewMut<'a, f32>,
}

constructor! {
    Attention<'a>(
        q: View<'a, f32>, cache: &'a KvCache, placement: &'a Placement, options: AttentionOptions<'a>,
        out: ViewMut<'a, f32>
    )
}

impl Attention<'_> {
    /// The call with shorter borrows.
    pub fn reborrow(&mut self) -> Attention<'_> {
        Attention { out: self.out.reborrow(), ..*self }
    }
}

impl Check for Attention<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { q, cache, placement, options, out } = self;
        on_device(Self::NAME, device, &[q.device()])?;
        check_attention(Self::NAME, device, [q.rows(), q.cols()], cache, placement, options, out)
    }
}

/// Fails unless attention with this number of queries over the cache is possible.
fn check_attention(
    op: &'static str,
    device: DeviceId,
    [tokens, columns]: [usize; 2],
    cache: &KvCache,
    placement: &Placement,
    options: &AttentionOptions,
    out: &ViewMut<f32>,
) -> Result<()> {
    on_device(op, device, &[cache.device(), out.device()])?;
    let spec = cache.spec();
    expect(op, OUTPUT[0], out.rows(), tokens)?;
    options.check(op, device, spec)?;
    if let Some(ends) = options.ends {
        on_device(op, device, &[ends.device()])?;
        at_least(op, "number of ends", ends.len(), tokens)?;
    }
    if tokens == 0 {
        return Ok(());
    }
    expect(op, "columns of the queries", columns, elements("queries", &[options.heads, spec.key_width])?)?;
    expect(op, OUTPUT[1], out.cols(), elements("outputs", &[options.heads, spec.value_width])?)?;
    let placement = PlacementCheck::new(op, device, placement, tokens)?;
    placement.map_or(Ok(()), |placement| placement.check_visible(options, cache.blocks()))
}

/// [`Attention`], with its output also prepared as activations.
#[derive(Debug)]
pub struct AttentionAct<'a> {
    /// The attention.
    pub attention: Attention<'a>,
    /// Receives the output as activations.
    pub act: &'a mut Act,
    /// Whether the activations have a row for each head of a token, T·heads × Dv, instead of T × heads·Dv. Rows of `out`
    /// must then be adjacent.
    pub by_head: bool,
}

constructor! { AttentionAct<'a>(attention: Attention<'a>, act: &'a mut Act) default(by_head: bool = false) }

impl AttentionAct<'_> {
    /// Rows of the activations for each token.
    pub(super) fn parts(&self) -> usize {
        if self.by_head { self.attention.options.heads } else { 1 }
    }
}

impl Check for AttentionAct<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        self.attention.check(device)?;
        let of_act = self.attention.out.as_view().split(self.parts())?;
        fill(Self::NAME, device, self.act, of_act.rows(), of_act.cols())
    }
}

/// Norms of queries and of keys, and of values.
#[derive(Clone, Copy, Debug)]
pub struct QkNorms<'a> {
    /// Weights for queries and for keys, per head or for the whole row.
    pub weights: [&'a Buffer<f32>; 2],
    /// Weights for values, per head or for the whole row; `None` if values are not normalised.
    pub values: Option<&'a Buffer<f32>>,
    /// Added to the mean square.
    pub eps: f32,
    /// Whether queries and keys are normalised after the rotation instead of before.
    pub after_rotation: bool,
}

constructor! {
    QkNorms<'a>(weights: [&'a Buffer<f32>; 2], eps: f32)
        optional(values: &'a Buffer<f32>)
        default(after_rotation: bool = false)
}

/// First columns of keys and of values in a row of concatenated queries, keys and values.
pub fn key_and_value_columns(heads: usize, spec: KvSpec) -> Result<[usize; 2]> {
    let keys = elements("queries", &[heads, spec.key_width])?;
    Ok([keys, elements("keys", &[heads.saturating_add(spec.heads), spec.key_width])?])
}

/// Concatenated queries, keys and values, as their joint product returns them. Queries and keys are normalised and
/// rotated in place, in the order that the norms state. Values are normalised in place. Then keys and values are
/// written to the cache.
#[derive(Debug)]
pub struct QkvWrite<'a> {
    /// T × heads·Dk + H·Dk + H·Dv.
    pub qkv: ViewMut<'a, f32>,
    /// Query heads.
    pub heads: usize,
    /// Norms; `None` if there are none.
    pub norms: Option<QkNorms<'a>>,
    /// The rotation angles.
    pub rotary: &'a Rotary,
    /// The cache.
    pub cache: &'a mut KvCache,
    /// The block and slot of each token.
    pub placement: &'a Placement,
}

constructor! {
    QkvWrite<'a>(
        qkv: ViewMut<'a, f32>, heads: usize, rotary: &'a Rotary, cache: &'a mut KvCache, placement: &'a Placement
    )
        optional(norms: QkNorms<'a>)
}

impl Check for QkvWrite<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { qkv, heads, norms, rotary, cache, placement } = self;
        on_device(Self::NAME, device, &[qkv.device()])?;
        check_qkv_write(Self::NAME, device, qkv, *heads, norms, rotary, cache, placement)
    }
}

/// Fails unless concatenated queries, keys and values can be normalised, rotated and written to the cache.
fn check_qkv_write(
    op: &'static str,
    device: DeviceId,
    qkv: &ViewMut<f32>,
    heads: usize,
    norms: &Option<QkNorms>,
    rotary: &Rotary,
    cache: &KvCache,
    placement: &Placement,
) -> Result<()> {
    let (tokens, spec) = (qkv.rows(), cache.spec());
    on_device(op, device, &[cache.device()])?;
    require(!spec.values_in_keys, op, "a cache", "with values in its keys", "must have values of its own")?;
    let [k, v] = key_and_value_columns(heads, spec)?;
    let columns = elements("values", &[spec.heads, spec.value_width])?.saturating_add(v);
    if let Some(QkNorms { weights: [q_norm, k_norm], values, eps, .. }) = norms {
        segments(op, device, q_norm, *eps, k)?;
        segments(op, device, k_norm, *eps, v - k)?;
        values.map_or(Ok(()), |v_norm| segments(op, device, v_norm, *eps, columns - v))?;
    }
    rotary.check(op, device, spec.key_width, v)?;
    if tokens == 0 {
        return Ok(());
    }
    expect(op, "columns of queries, keys and values", qkv.cols(), columns)?;
    let placement = PlacementCheck::new(op, device, placement, tokens)?;
    placement.map_or(Ok(()), |placement| placement.check_written(cache.blocks()))
}

/// [`QkvWrite`], then [`AttentionAct`] of the queries.
#[derive(Debug)]
pub struct Attend<'a> {
    /// T × heads·Dk + H·Dk + H·Dv. Its contents can be undefined afterwards.
    pub qkv: ViewMut<'a, f32>,
    /// Norms; `None` if there are none.
    pub norms: Option<QkNorms<'a>>,
    /// The rotation angles.
    pub rotary: &'a Rotary,
    /// The cache.
    pub cache: &'a mut KvCache,
    /// The slot and position of each token.
    pub placement: &'a Placement,
    /// The parameters.
    pub options: AttentionOptions<'a>,
    /// T × heads·Dv.
    pub out: ViewMut<'a, f32>,
    /// Receives the output as activations.
    pub act: &'a mut Act,
}

constructor! {
    Attend<'a>(
        qkv: ViewMut<'a, f32>, rotary: &'a Rotary, cache: &'a mut KvCache, placement: &'a Placement,
        options: AttentionOptions<'a>, out: ViewMut<'a, f32>, act: &'a mut Act
    )
        optional(norms: QkNorms<'a>)
}

impl Check for Attend<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let Self { qkv, norms, rotary, cache, placement, options, out, act } = self;
        on_device(Self::NAME, device, &[qkv.device()])?;
        check_qkv_write(Self::NAME, device, qkv, options.heads, norms, rotary, cache, placement)?;
        let [queries, _] = key_and_value_columns(options.heads, cache.spec())?;
        check_attention(Self::NAME, device, [qkv.rows(), queries], cache, placement, options, out)?;
        fill(Self::NAME, device, act, out.rows(), out.cols())
    }
}

/// What latent attention makes of its projections. The first C columns of each latent row are normalised. The last R
/// columns of a latent row and of each query are rotated. Then latent rows are written to the cache, the columns of
/// queries that are not rotated become activations, and those that are get rows of their own.
#[derive(Debug)]
pub struct LatentWrite<'a> {
    /// Latent rows, T × C + R. Their contents can be undefined afterwards.
    pub rows: ViewMut<'a, f32>,
    /// Queries, T × heads·(P + R), in adjacent rows. Their contents can be undefined afterwards.
    pub queries: ViewMut<'a, f32>,
    /// Query heads.
    pub heads: usize,
    /// The norm's weights, C.
    pub norm: &'a Buffer<f32>,
    /// Added to the mean square.
    pub eps: f32,
    /// The rotation angles; `None` if nothing is rotated.
    pub rotary: Option<&'a Rotary>,
    /// A cache with one head, keys of C + R, and values in its keys.
    pub cache: &'a mut KvCache,
    /// The block and slot of each token.
    pub placement: &'a Placement,
    /// Receives the first P columns of queries, T·heads × P.
    pub plain: &'a mut Act,
    /// Receives the last R columns of queries, T·heads × R.
    pub rotated: ViewMut<'a, f32>,
}

constructor! {
    LatentWrite<'a>(
        rows: ViewMut<'a, f32>, queries: ViewMut<'a, f32>, heads: usize, norm: &'a Buffer<f32>, eps: f32,
        cache: &'a mut KvCache, placement: &'a Placement, plain: &'a mut Act, rotated: ViewMut<'a, f32>
    )
        optional(rotary: &'a Rotary)
}

impl LatentWrite<'_> {
    /// P and R.
    pub(super) fn widths(&self) -> Result<[usize; 2]> {
        let row = self.cache.spec().key_width;
        let columns = self.queries.cols();
        let op = Self::NAME;
        let latent = self.norm.len();
        require(
            self.heads > 0 && columns.is_multiple_of(self.heads),
            op,
            "query heads",
            self.heads,
            "must divide the columns of the queries",
        )?;
        let width = columns / self.heads;
        let fits = (1..=row).contains(&latent) && row - latent <= width;
        require(fits, op, "norm", latent, "must leave the rotated columns of a latent row, at most those of a query")?;
        Ok([width - (row - latent), row - latent])
    }
}

impl Check for LatentWrite<'_> {
    fn check(&mut self, device: DeviceId) -> Result<()> {
        let [plain, rotated] = self.widths()?;
        let Self { rows, queries, heads, norm, eps, rotary, cache, placement, plain: act, rotated: out } = self;
        let op = Self::NAME;
        let tokens = rows.rows();
        let spec = cache.spec();
        on_device(op, device, &[rows.device(), queries.device(), cache.device(), out.device()])?;
        let suits = spec.values_in_keys && spec.heads == 1;
        require(
            suits,
            op,
            "a cache",
            "with values of its own or several heads",
            "must have one head with values in its keys",
        )?;
        expect(op, "columns of latent rows", rows.cols(), spec.key_width)?;
        expect(op, "rows of the queries", queries.rows(), tokens)?;
        queries.as_view().split(*heads)?;
        segments(op, device, norm, *eps, norm.len())?;
        if let Some(rotary) = rotary {
            rotary.check(op, device, rotated, rotated)?;
        }
        let of_heads = elements("queries", &[tokens, *heads])?;
        expect(op, OUTPUT[0], out.rows(), of_heads)?;
        expect(op, OUTPUT[1], out.cols(), rotated)?;
        let placement = PlacementCheck::new(op, device, placement, tokens)?;
        placement.map_or(Ok(()), |placement| placement.check_written(cache.blocks()))?;
        fill(op, device, act, of_heads, plain)
    }
}
