//! Attention over the paged cache: what the kernels of all GPUs are told.

use crate::common::kv::{limit, placement_args, row_stride};
use crate::storage::{ActOutput, GpuKv};
use crate::vendor::Vendor;
use crate::{Access, Arg, Device};
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::{KvSpec, Placement};
use gristmill_kernels::ops::{Attention, AttentionOptions, Operation, Window, require};
use gristmill_kernels::tensor::{View, ViewMut};

/// Columns of a block table, so that positions and a tile more are 32 bits wide.
const MAX_COLUMNS: usize = 1 << 27;
/// Query heads: they are along y of a grid.
const MAX_HEADS: usize = 65_535;

shared_fields! {
    /// The fields that every `AttentionParams` starts with. A softcap, a window or a temperature's length of 0 means that there is none.
    pub struct AttentionSizes {
        q_stride: u64,
        /// Elements from a row of the output to the next.
        pub out_stride: u64,
        scale: f32,
        softcap: f32,
        /// Tokens of the batch.
        pub tokens: u32,
        /// Heads of the cache.
        pub kv_heads: u32,
        /// Query heads for each.
        pub group: u32,
        key_width: u32,
        value_width: u32,
        /// Elements from a token's key to the next.
        pub key_stride: u32,
        /// Elements from a token's value to the next.
        pub value_stride: u32,
        /// Elements of the cache's row in which a value is.
        value_row: u32,
        window: u32,
        table_rows: u32,
        table_cols: u32,
        blocks: u32,
        /// Columns of the block table that positions may be in.
        pub context_columns: u32,
        chunked: u32,
        temperature: f32,
        temperature_length: u32,
        temperature_offset: u32,
        /// See [`AttentionOptions::first`].
        first: u32,
    }
}

/// Attention of a batch, with what its launches share.
#[derive(Clone, Copy)]
pub struct AttentionCall<'a> {
    /// The device.
    pub device: &'a Device,
    /// Queries; keys and values may lie next to them.
    pub q: &'a View<'a, f32>,
    /// The cache.
    pub cache: &'a GpuKv,
    /// Its heads, widths and format.
    pub spec: KvSpec,
    /// Its blocks.
    pub blocks: usize,
    /// Where each token stands.
    pub placement: &'a Placement,
    /// The parameters.
    pub options: &'a AttentionOptions<'a>,
    /// T × heads · value width.
    pub out: &'a ViewMut<'a, f32>,
    /// Receives the output too.
    pub act: Option<ActOutput<'a>>,
}

impl<'a> AttentionCall<'a> {
    /// Fails if a size is beyond what kernels count to.
    pub fn check(&self) -> Result<()> {
        let op = Attention::NAME;
        let columns = self.placement.table_cols;
        let heads = self.options.heads;
        require(columns <= MAX_COLUMNS, op, "columns of the block table", columns, "must be at most 2^27 on a GPU")?;
        require(heads <= MAX_HEADS, op, "query heads", heads, "must be at most 65,535 on a GPU")
    }

    /// The sizes.
    pub fn sizes(&self) -> AttentionSizes {
        let Self { q, spec, blocks, placement, options, out, .. } = *self;
        AttentionSizes {
            q_stride: q.layout().stride() as u64,
            out_stride: out.layout().stride() as u64,
            scale: options.scale,
            softcap: options.softcap.unwrap_or(0.0),
            tokens: limit(q.rows()),
            kv_heads: limit(spec.heads),
            group: limit(options.heads / spec.heads),
            key_width: limit(spec.key_width),
            value_width: limit(spec.value_width),
            key_stride: limit(row_stride(spec.key_width, spec.format)),
            value_stride: limit(row_stride(spec.value_row_width(), spec.format)),
            value_row: limit(spec.value_row_width()),
            // Positions are 32 bits wide: a larger window sees them all.
            window: options.window.and_then(|window| u32::try_from(window.positions()).ok()).unwrap_or(0),
            table_rows: limit(placement.table_rows),
            table_cols: limit(placement.table_cols),
            blocks: limit(blocks),
            context_columns: limit(placement.context_columns.min(placement.table_cols)),
            chunked: matches!(options.window, Some(Window::Chunk(_))).into(),
            temperature: options.temperature.map_or(0.0, |temperature| temperature.scale),
            temperature_length: options.temperature.map_or(0, |temperature| temperature.length),
            temperature_offset: options.temperature.map_or(0, |temperature| temperature.offset),
            first: u32::try_from(options.first).unwrap_or(u32::MAX),
        }
    }

    /// Slots, positions and the block table as arguments.
    pub fn ids(&self) -> [Arg<'a>; 3] {
        placement_args(self.placement)
    }

    /// [`AttentionOptions::ends`] as an argument.
    pub fn ends(&self) -> Arg<'a> {
        Arg::optional(self.options.ends)
    }

    /// Keys, their scales, values and their scales as arguments.
    pub fn cells(&self, access: Access) -> [Arg<'a>; 4] {
        self.cache.args(access)
    }

    /// The output, then the activations: exact, int8, bfloat16.
    pub fn outputs(&self) -> [Arg<'a>; 4] {
        let [exact, int8, bf16] = self.act.map_or([Arg::Null; 3], |act| act.storage.outputs());
        [Arg::write(self.out), exact, int8, bf16]
    }
}

/// [`Attention`]; with activations [`gristmill_kernels::ops::AttentionAct`].
pub(crate) fn attention<V: Vendor>(vendor: &V, call: Attention, act: Option<&mut Act>) -> Result<()> {
    let Attention { q, cache, placement, options, out } = &call;
    let act = act.map(|act| ActOutput::new(Attention::NAME, act)).transpose()?;
    let blocks = cache.blocks();
    let spec = cache.spec();
    let cache = cache.storage(Attention::NAME)?;
    let call = AttentionCall { device: vendor.device(), q, cache, spec, blocks, placement, options, out, act };
    call.check()?;
    if q.rows() == 0 { Ok(()) } else { vendor.attention(&call) }
}
