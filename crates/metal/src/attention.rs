//! Attention over the paged cache: selects kernels and grid sizes.
//!
//! `attention_split` cuts the context of a token with few neighbours into splits, and `attention_combine` joins them.
//! If a batch can contain long runs (the tokens of a prompt), `attention_plan` finds them on the device.
//! `attention_tile` then shares keys and values among adjacent tokens. The cut depends on a token's context. The number
//! of blocks depends on the number of tokens and the length of the block table, which the host has.
//!
//! # Attention on Metal
//!
//! Attention on Metal is one loop for prompts and single tokens (`attention_walk.h`). Keys and values become f32 when
//! they are copied to threadgroup memory, and zero where they are not visible.

use super::Metal;
use gristmill_gpu::attention::{AttentionCall, AttentionSizes};
use gristmill_gpu::common::kv::{cells_define, limit};
use gristmill_gpu::common::{RowAlignment, aligned};
use gristmill_gpu::{Access, Arg, Kernel, Launch, Scratch, Unit, Vendor, shared_struct};
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvFormat, KvSpec, LONG_RUN};

/// Threads and SIMD groups of the kernels that iterate over keys.
const THREADS: u32 = 128;
const WARPS: usize = 4;
/// Threads of `attention_plan`, which runs as one block.
const PLAN_THREADS: u32 = 256;
/// Tokens per iteration.
const ROUND: usize = WARPS * KV_BLOCK;
/// Keys and values are padded to a multiple of this number of columns.
const PATCH: usize = 16;
/// Maximum splits of a token's keys: `MAX_SPLITS` of `kernels/attention.h`.
const MAX_SPLITS: usize = 32;
/// Maximum iterations without splits: joining splits needs another launch.
const WHOLE_ROUNDS: usize = 2;
/// Query rows of a simdgroup matrix.
const ROW_GROUP: usize = 8;
/// Enough blocks to fill any Apple GPU (the largest has 80 cores). With more blocks, each block joins its own splits.
const BUSY: usize = 256;
/// Query columns in threadgroup memory at a time.
const QUERY_COLUMNS: usize = 256;
/// Bits of `AttentionParams::has`: those of `kernels/attention.h`.
const HAS_SINKS: u32 = 1;
const HAS_ENDS: u32 = 2;
/// Slices of the workspace: runs of tokens, and the maximum, sum and output vector of each split.
const RUNS: usize = 0;
const STATS: usize = 1;
const VECTORS: usize = 2;

shared_struct! {
    pub(super) struct AttentionParams {
        ..sizes: AttentionSizes,
        // Widths rounded up to patches.
        key_columns: u32,
        value_columns: u32,
        // Columns of a key that are read at once.
        query_columns: u32,
        // The most query heads of a unit.
        unit_heads: u32,
        // The most rounds that are not cut into splits.
        whole: u32,
        // Splits of a token, at most.
        splits: u32,
        // Blocks that share the splits of a unit; one also joins them.
        walkers: u32,
        // Tokens of a tile.
        tile_tokens: u32,
        // Whether `attention_plan` has listed runs.
        listed: u32,
        // Which optional buffers there are: HAS_SINKS, HAS_ENDS.
        has: u32,
        // Rows allow 16-byte accesses.
        aligned_out: u32,
        // Whether results are also written as activations of the next product.
        prepared: u32,
    }
}

/// Compile-time widths of the kernels that iterate over keys: queries per block, in groups of eight, and value panels
/// per SIMD group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttentionVariant {
    row_groups: usize,
    panels: usize,
}

impl AttentionVariant {
    /// For the heads of one token.
    fn split(spec: KvSpec) -> Self {
        let panels = spec.value_width.div_ceil(PATCH * WARPS).next_power_of_two();
        Self { row_groups: 1, panels }
    }

    /// For tokens of a prompt: as many queries as threadgroup memory (16 KiB of them, 8 KiB of scores) and registers
    /// (eight sums of each group of eight) hold.
    fn tile(spec: KvSpec) -> Self {
        let form = Self::split(spec);
        let narrow = if spec.key_width <= QUERY_COLUMNS / 2 { 4 } else { 2 };
        Self { row_groups: narrow.min(8 / form.panels).max(1), ..form }
    }

    fn rows(self) -> usize {
        self.row_groups * ROW_GROUP
    }

    fn defines(self, format: KvFormat) -> [(&'static str, &'static str); 3] {
        let word = |number| match number {
            1 => "1",
            2 => "2",
            4 => "4",
            8 => "8",
            _ => "16",
        };
        [("ROW_GROUPS", word(self.row_groups)), ("PANELS", word(self.panels)), cells_define(format)]
    }
}

/// The units for common widths of keys and values.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let plain = ["attention_plan.metal", "attention_combine.metal"].map(|file| Unit::new(file, &[]));
    let widths = [64, 128, 256].into_iter().flat_map(|width| [(width, KvFormat::F16), (width, KvFormat::Q8_0)]);
    plain.into_iter().chain(widths.flat_map(|(width, format)| {
        let spec = KvSpec { heads: 1, key_width: width, value_width: width, format, values_in_keys: false };
        [
            ("attention_split.metal", AttentionVariant::split(spec)),
            ("attention_tile.metal", AttentionVariant::tile(spec)),
        ]
        .map(|(file, form)| Unit::new(file, &form.defines(format)))
    }))
}

/// [`gristmill_kernels::ops::Attention`], with its activations.
pub(super) fn attention(metal: &Metal, call: &AttentionCall) -> Result<()> {
    Launches::new(call, !metal.deterministic())?.run()
}

/// The launches of a call.
struct Launches<'a> {
    call: &'a AttentionCall<'a>,
    split: AttentionVariant,
    tile: AttentionVariant,
    /// Blocks of `attention_split` along x.
    split_tokens: usize,
    params: AttentionParams,
    scratch: Scratch<3>,
}

impl<'a> Launches<'a> {
    /// `tiles`: whether tokens of long runs share keys and values. The length of a run depends on how a sequence is cut
    /// into steps.
    fn new(call: &'a AttentionCall<'a>, tiles: bool) -> Result<Self> {
        let spec = call.spec;
        let sizes = call.sizes();
        let tokens = call.q.rows();
        let heads = call.options.heads;
        let split = AttentionVariant::split(spec);
        let tile = AttentionVariant::tile(spec);
        let group = heads / spec.heads;
        let [key_columns, value_columns] =
            [spec.key_width, spec.value_width].map(|width| width.next_multiple_of(PATCH));
        let rounds = (sizes.context_columns as usize * KV_BLOCK).div_ceil(ROUND);
        let splits = if rounds <= WHOLE_ROUNDS { 1 } else { rounds.min(MAX_SPLITS) };
        let units = spec.heads * group.div_ceil(split.rows());
        // With few tokens, several blocks divide the splits of one unit.
        let shared = tokens * units < BUSY;
        let split_tokens = if shared { tokens } else { tokens.min(BUSY.div_ceil(units)) };
        let has_ends = call.options.ends.is_some();
        let listed = tiles && tokens >= LONG_RUN && call.placement.runs != BatchRuns::Single && !has_ends;
        let params = AttentionParams {
            sizes,
            key_columns: limit(key_columns),
            value_columns: limit(value_columns),
            query_columns: limit(key_columns.min(QUERY_COLUMNS)),
            unit_heads: limit(group.min(split.rows())),
            whole: limit(WHOLE_ROUNDS),
            splits: limit(splits),
            walkers: if shared { limit(splits) } else { 1 },
            tile_tokens: limit((tile.rows() / group).max(1)),
            listed: listed.into(),
            has: u32::from(call.options.sinks.is_some()) * HAS_SINKS + u32::from(has_ends) * HAS_ENDS,
            aligned_out: aligned(spec.value_width, [RowAlignment::of_mut(call.out)]),
            prepared: call.act.is_some().into(),
        };
        let partials = if splits > 1 { split_tokens * heads * splits } else { 1 };
        let word = size_of::<u32>();
        let runs = if listed { (2 + 3 * tokens) * word } else { word };
        let scratch = call.device.scratch([runs, partials * 2 * word, partials * value_columns * word])?;
        Ok(Self { call, split, tile, split_tokens, params, scratch })
    }

    fn run(&self) -> Result<()> {
        if self.params.listed != 0 {
            self.list_runs()?;
            self.long_runs()?;
        }
        self.splits()?;
        if self.params.walkers == 1 { Ok(()) } else { self.combine() }
    }

    fn launch(&self, kernel: Kernel, grid: [u32; 3], block: u32, shared: u32, args: &[Arg]) -> Result<()> {
        self.call.device.launch(&Launch { shared, overlap: false, ..Launch::new(kernel, grid, block, args) })
    }

    /// The leading arguments of both kernels that iterate over keys.
    fn walk_args(&self) -> [Arg<'_>; 12] {
        let [keys, k_scales, values, v_scales] = self.call.cells(Access::Read);
        let ([slots, positions, table], [out, exact, ..]) = (self.call.ids(), self.call.outputs());
        let q = Arg::read(self.call.q);
        let sinks = Arg::optional(self.call.options.sinks);
        let runs = self.scratch.arg(RUNS, Access::Read);
        [q, keys, k_scales, values, v_scales, slots, positions, table, sinks, runs, out, exact]
    }

    /// Threadgroup memory for the queries, in bytes.
    fn query_bytes(&self, form: AttentionVariant) -> u32 {
        (form.rows() * self.params.query_columns as usize * size_of::<f32>()) as u32
    }

    /// Units of the query heads of each KV head.
    fn units(&self, form: AttentionVariant) -> u32 {
        self.params.sizes.kv_heads * self.params.sizes.group.div_ceil(limit(form.rows()))
    }

    /// Lists the runs of at least [`LONG_RUN`] tokens.
    fn list_runs(&self) -> Result<()> {
        let kernel = Kernel::plain("attention_plan.metal", "attention_plan");
        let [slots, positions, _] = self.call.ids();
        let args = [slots, positions, self.scratch.arg(RUNS, Access::Write), Arg::params(&self.params)];
        self.launch(kernel, [1, 1, 1], PLAN_THREADS, 0, &args)
    }

    /// Attention of the tokens in listed runs.
    fn long_runs(&self) -> Result<()> {
        let Self { tile, params, .. } = self;
        let params = AttentionParams { unit_heads: params.sizes.group.min(limit(tile.rows())), ..*params };
        let tokens = self.call.q.rows();
        // A run has at most two partly filled tiles.
        let tiles = tokens.div_ceil(params.tile_tokens as usize) + 2 * (tokens / LONG_RUN);
        let defines = tile.defines(self.call.spec.format);
        let kernel = Kernel { file: "attention_tile.metal", entry: "attention_tile", defines: &defines };
        let args = [&self.walk_args()[..], &[self.call.device.flag(), Arg::params(&params)]].concat();
        self.launch(kernel, [limit(tiles), self.units(*tile), 1], THREADS, self.query_bytes(*tile), &args)
    }

    /// Attention of all other tokens, split by split.
    fn splits(&self) -> Result<()> {
        let defines = self.split.defines(self.call.spec.format);
        let kernel = Kernel { file: "attention_split.metal", entry: "attention_split", defines: &defines };
        let [vectors, stats] = [VECTORS, STATS].map(|slice| self.scratch.arg(slice, Access::ReadWrite));
        let own = [vectors, stats, self.call.device.flag(), self.call.ends(), Arg::params(&self.params)];
        let args = [&self.walk_args()[..], &own].concat();
        let grid = [limit(self.split_tokens), self.units(self.split), self.params.walkers];
        self.launch(kernel, grid, THREADS, self.query_bytes(self.split), &args)
    }

    /// Joins the splits that several blocks computed.
    fn combine(&self) -> Result<()> {
        let kernel = Kernel::plain("attention_combine.metal", "attention_combine");
        let [vectors, stats, runs] = [VECTORS, STATS, RUNS].map(|slice| self.scratch.arg(slice, Access::Read));
        let ([slots, positions, _], [out, exact, ..]) = (self.call.ids(), self.call.outputs());
        let sinks = Arg::optional(self.call.options.sinks);
        let ends = self.call.ends();
        let params = Arg::params(&self.params);
        let args = [vectors, stats, slots, positions, sinks, runs, out, exact, ends, params];
        let blocks = limit(self.call.options.heads.div_ceil(WARPS));
        self.launch(kernel, [self.params.sizes.tokens, blocks, 1], THREADS, 0, &args)
    }
}
