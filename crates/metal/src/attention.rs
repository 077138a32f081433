//! Attention over the paged cache: which kernel, in how many blocks.
//!
//! The context of a token with few neighbours is cut into splits (`attention_split`), which `attention_combine` joins.
//! Where there may be long runs, the tokens of a prompt, `attention_plan` finds them on the device, and
//! `attention_tile` shares keys and values among neighbours. The cut depends on a token's context. The number of blocks
//! depends on the number of tokens and the length of the block table, which the host knows.

use super::Metal;
use gristmill_gpu::attention::{AttentionCall, AttentionSizes};
use gristmill_gpu::common::kv::{cells_define, limit};
use gristmill_gpu::common::{RowAlignment, aligned};
use gristmill_gpu::{Access, Arg, Kernel, Launch, Scratch, Unit, Vendor, shared_struct};
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvFormat, KvSpec, LONG_RUN};

/// Threads of the kernels that walk over keys, and their SIMD groups.
const THREADS: u32 = 128;
const WARPS: usize = 4;
/// Threads of `attention_plan`, which has one block of them.
const PLAN_THREADS: u32 = 256;
/// Tokens of a round.
const ROUND: usize = WARPS * KV_BLOCK;
/// Columns that keys and values are rounded up to.
const PATCH: usize = 16;
/// The most splits of a token's keys: `MAX_SPLITS` of `kernels/attention.h`.
const MAX_SPLITS: usize = 32;
/// The most rounds that are not cut into splits: joining splits is a launch more.
const WHOLE_ROUNDS: usize = 2;
/// Queries that a simdgroup matrix has rows for.
const ROW_GROUP: usize = 8;
/// Blocks that keep any GPU of this kind busy (the largest has 80 cores); with more, each joins splits itself.
const BUSY: usize = 256;
/// Columns of queries that are in threadgroup memory at once.
const QUERY_COLUMNS: usize = 256;
/// Slices of the workspace: runs of tokens, a maximum and a sum of each split, and its vector.
const RUNS: usize = 0;
const STATS: usize = 1;
const VECTORS: usize = 2;

shared_struct! {
    pub(super) struct AttentionParams in "attention.h" {
        ..sizes: AttentionSizes,
        key_columns: u32,
        value_columns: u32,
        query_columns: u32,
        unit_heads: u32,
        whole: u32,
        splits: u32,
        walkers: u32,
        tile_tokens: u32,
        listed: u32,
        sunk: u32,
        aligned_out: u32,
        prepared: u32,
    }
}

/// The widths that the kernels which walk over keys are compiled for: queries together, in groups of eight, and panels
/// of values that each SIMD group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttentionVariant {
    row_groups: usize,
    panels: usize,
}

impl AttentionVariant {
    /// For a token's heads.
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

/// The units, for common widths of keys and values.
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

/// [`gristmill_kernels::ops::Attention`], with activations.
pub(super) fn attention(metal: &Metal, call: &AttentionCall) -> Result<()> {
    Launches::new(call, !metal.deterministic())?.run()
}

/// The launches of a call.
struct Launches<'a> {
    call: &'a AttentionCall<'a>,
    split: AttentionVariant,
    tile: AttentionVariant,
    /// Blocks along x of `attention_split`.
    split_tokens: usize,
    params: AttentionParams,
    scratch: Scratch<3>,
}

impl<'a> Launches<'a> {
    /// `tiles`: whether tokens of long runs share keys and values. Which runs are long depends on how a sequence's
    /// tokens are cut into steps.
    fn new(call: &'a AttentionCall<'a>, tiles: bool) -> Result<Self> {
        let (spec, sizes, tokens, heads) = (call.spec, call.sizes(), call.q.rows(), call.options.heads);
        let (split, tile, group) = (AttentionVariant::split(spec), AttentionVariant::tile(spec), heads / spec.heads);
        let [key_columns, value_columns] =
            [spec.key_width, spec.value_width].map(|width| width.next_multiple_of(PATCH));
        let rounds = (sizes.context_columns as usize * KV_BLOCK).div_ceil(ROUND);
        let splits = if rounds <= WHOLE_ROUNDS { 1 } else { rounds.min(MAX_SPLITS) };
        let units = spec.heads * group.div_ceil(split.rows());
        // Where there are few tokens, several blocks share the splits of one unit.
        let shared = tokens * units < BUSY;
        let split_tokens = if shared { tokens } else { tokens.min(BUSY.div_ceil(units)) };
        let listed = tiles && tokens >= LONG_RUN && call.placement.runs != BatchRuns::Single;
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
            sunk: call.options.sinks.is_some().into(),
            aligned_out: aligned(spec.value_width, [RowAlignment::of_mut(call.out)]),
            prepared: call.act.is_some().into(),
        };
        let (partials, word) = (if splits > 1 { split_tokens * heads * splits } else { 1 }, size_of::<u32>());
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

    /// The first arguments of both kernels that walk over keys.
    fn walk_args(&self) -> [Arg<'_>; 12] {
        let [keys, k_scales, values, v_scales] = self.call.cells(Access::Read);
        let ([slots, positions, table], [out, exact, ..]) = (self.call.ids(), self.call.outputs());
        let (q, sinks) = (Arg::read(self.call.q), Arg::optional(self.call.options.sinks));
        let runs = self.scratch.arg(RUNS, Access::Read);
        [q, keys, k_scales, values, v_scales, slots, positions, table, sinks, runs, out, exact]
    }

    /// Bytes of threadgroup memory for the queries.
    fn query_bytes(&self, form: AttentionVariant) -> u32 {
        (form.rows() * self.params.query_columns as usize * size_of::<f32>()) as u32
    }

    /// Units of the query heads of each KV head.
    fn units(&self, form: AttentionVariant) -> u32 {
        self.params.sizes.kv_heads * self.params.sizes.group.div_ceil(limit(form.rows()))
    }

    /// Lists the runs of [`LONG_RUN`] tokens and more.
    fn list_runs(&self) -> Result<()> {
        let kernel = Kernel::plain("attention_plan.metal", "attention_plan");
        let [slots, positions, _] = self.call.ids();
        let args = [slots, positions, self.scratch.arg(RUNS, Access::Write), Arg::params(&self.params)];
        self.launch(kernel, [1, 1, 1], PLAN_THREADS, 0, &args)
    }

    /// The tokens of listed runs.
    fn long_runs(&self) -> Result<()> {
        let Self { tile, params, .. } = self;
        let params = AttentionParams { unit_heads: params.sizes.group.min(limit(tile.rows())), ..*params };
        let tokens = self.call.q.rows();
        // A run has at most two tiles that are not full.
        let tiles = tokens.div_ceil(params.tile_tokens as usize) + 2 * (tokens / LONG_RUN);
        let defines = tile.defines(self.call.spec.format);
        let kernel = Kernel { file: "attention_tile.metal", entry: "attention_tile", defines: &defines };
        let args = [&self.walk_args()[..], &[self.call.device.flag(), Arg::params(&params)]].concat();
        self.launch(kernel, [limit(tiles), self.units(*tile), 1], THREADS, self.query_bytes(*tile), &args)
    }

    /// All other tokens, split by split.
    fn splits(&self) -> Result<()> {
        let defines = self.split.defines(self.call.spec.format);
        let kernel = Kernel { file: "attention_split.metal", entry: "attention_split", defines: &defines };
        let [vectors, stats] = [VECTORS, STATS].map(|slice| self.scratch.arg(slice, Access::ReadWrite));
        let own = [vectors, stats, self.call.device.flag(), Arg::params(&self.params)];
        let args = [&self.walk_args()[..], &own].concat();
        let grid = [limit(self.split_tokens), self.units(self.split), self.params.walkers];
        self.launch(kernel, grid, THREADS, self.query_bytes(self.split), &args)
    }

    /// Joins the splits that several blocks have taken.
    fn combine(&self) -> Result<()> {
        let kernel = Kernel::plain("attention_combine.metal", "attention_combine");
        let [vectors, stats, runs] = [VECTORS, STATS, RUNS].map(|slice| self.scratch.arg(slice, Access::Read));
        let ([slots, positions, _], [out, exact, ..]) = (self.call.ids(), self.call.outputs());
        let (sinks, params) = (Arg::optional(self.call.options.sinks), Arg::params(&self.params));
        let args = [vectors, stats, slots, positions, sinks, runs, out, exact, params];
        let blocks = limit(self.call.options.heads.div_ceil(WARPS));
        self.launch(kernel, [self.params.sizes.tokens, blocks, 1], THREADS, 0, &args)
    }
}
