//! Attention over the paged cache: which kernel, in how many blocks of threads.
//!
//! A token of few neighbours is cut into splits of what it sees, each worked on by a block of threads (`attention_split`), and
//! joined by `attention_combine`. Where there may be long runs, the tokens of a prompt, `attention_plan` finds them on the
//! device, and `attention_tile` shares keys and values among neighbours. How a token is cut depends on what it sees; how many
//! blocks of threads there are, on what the host knows: the number of tokens and the length of the block table.

use bytemuck::{Pod, Zeroable};
use gristmill_gpu::common::kv::{cells_define, limit, placement_args, row_stride};
use gristmill_gpu::common::{RowAlignment, aligned};
use gristmill_gpu::shared_struct;
use gristmill_gpu::storage::{GpuAct, GpuKv};
use gristmill_gpu::{Access, Arg, Device, Kernel, Launch, Region, Unit};
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::{KV_BLOCK, KvFormat, KvSpec};
use gristmill_kernels::ops::{Attention, Operation, require};
use std::sync::Arc;

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
/// So many rounds are not cut into splits: joining these is a launch more.
const WHOLE_ROUNDS: usize = 2;
/// Tokens of the shortest run that `attention_tile` serves: `LONG_RUN`.
const LONG_RUN: usize = 16;
/// Queries that a simdgroup matrix has rows for.
const ROW_GROUP: usize = 8;
/// Blocks of threads that are enough for any GPU of this kind (the largest has 80 cores); with more, each joins splits itself.
const BUSY: usize = 256;
/// Columns of queries that are in threadgroup memory at once.
const QUERY_COLUMNS: usize = 256;
/// Columns of a block table, so that positions and a round more are 32 bits wide.
const MAX_COLUMNS: usize = 1 << 27;
/// Threadgroups in y and z of a grid.
const MAX_HEADS: usize = u16::MAX as usize;

shared_struct! {
    #[repr(C)]
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct AttentionParams in "attention.h" {
        q_stride: u64,
        out_stride: u64,
        scale: f32,
        softcap: f32,
        tokens: u32,
        kv_heads: u32,
        group: u32,
        key_width: u32,
        value_width: u32,
        key_stride: u32,
        value_stride: u32,
        key_columns: u32,
        value_columns: u32,
        query_columns: u32,
        window: u32,
        table_rows: u32,
        table_cols: u32,
        blocks: u32,
        context_columns: u32,
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

/// The widths that the kernels which walk over keys are compiled for: queries together, in groups of eight, and panels of
/// values that each SIMD group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    row_groups: usize,
    panels: usize,
}

impl Form {
    /// For a token's heads.
    fn split(spec: KvSpec) -> Self {
        let panels = spec.value_width.div_ceil(PATCH * WARPS).next_power_of_two();
        Self { row_groups: 1, panels }
    }

    /// For tokens of a prompt: as many queries as threadgroup memory (16 KiB of them, 8 KiB of scores) and registers (eight
    /// sums of each group of eight) hold.
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

/// Every text of attention, for common widths of keys and values.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let plain = ["attention_plan.metal", "attention_combine.metal"];
    let plain = plain.into_iter().map(|file| Unit { file, defines: Vec::new() });
    let widths = [64, 128, 256].into_iter().flat_map(|width| [(width, KvFormat::F16), (width, KvFormat::Q8_0)]);
    plain.chain(widths.flat_map(|(width, format)| {
        let spec = KvSpec { heads: 1, key_width: width, value_width: width, format };
        [("attention_split.metal", Form::split(spec)), ("attention_tile.metal", Form::tile(spec))].map(
            |(file, form)| {
                let defines = form.defines(format).map(|(name, value)| (name, value.to_owned()));
                Unit { file, defines: defines.to_vec() }
            },
        )
    }))
}

/// A part of the workspace.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    bytes: usize,
}

impl Part {
    /// Behind another.
    fn after(before: Part, bytes: usize) -> Self {
        Self { offset: (before.offset + before.bytes).next_multiple_of(256), bytes }
    }

    fn arg(self, region: &Region, access: Access) -> Arg<'_> {
        Arg::Buffer { region, offset: self.offset, bytes: self.bytes, access }
    }
}

/// [`Attention`]; with activations [`gristmill_kernels::ops::AttentionAct`].
pub(super) fn attention(device: &Device, call: Attention, act: Option<&Act>) -> Result<()> {
    let (op, tokens, heads) = (Attention::NAME, call.q.rows(), call.options.heads);
    let (columns, rule) = (call.placement.table_cols, "must be at most 2^27 on a GPU");
    require(columns <= MAX_COLUMNS, op, "columns of the block table", columns, rule)?;
    require(heads <= MAX_HEADS, op, "query heads", heads, "must be at most 65,535 on a GPU")?;
    if tokens == 0 {
        return Ok(());
    }
    let act = act.map(|act| act.storage::<GpuAct>(op)).transpose()?;
    let plan = Plan::new(&call, act.is_some());
    Launches::new(device, &call, act, &plan)?.run()
}

/// How a call is cut into blocks of threads.
struct Plan {
    split: Form,
    tile: Form,
    params: AttentionParams,
    /// Blocks of `attention_split` along x.
    split_tokens: usize,
    /// Elements of the partial results of a split: statistics and vectors of this many rows.
    partials: usize,
}

impl Plan {
    fn new(call: &Attention, prepared: bool) -> Self {
        let Attention { q, cache, placement, options, out } = call;
        let (spec, tokens, heads) = (cache.spec(), q.rows(), options.heads);
        let (split, tile) = (Form::split(spec), Form::tile(spec));
        let group = heads / spec.heads;
        let columns = |width: usize| width.next_multiple_of(PATCH);
        let context = placement.context_columns.min(placement.table_cols);
        let rounds = (context * KV_BLOCK).div_ceil(ROUND);
        let splits = if rounds <= WHOLE_ROUNDS { 1 } else { rounds.min(MAX_SPLITS) };
        let units = spec.heads * group.div_ceil(split.rows());
        // Where there are few tokens, several blocks of threads share the splits of one unit.
        let shared = tokens * units < BUSY;
        let split_tokens = if shared { tokens } else { tokens.min(BUSY.div_ceil(units)) };
        let params = AttentionParams {
            q_stride: q.layout().stride() as u64,
            out_stride: out.layout().stride() as u64,
            scale: options.scale,
            softcap: options.softcap.unwrap_or(0.0),
            tokens: limit(tokens),
            kv_heads: limit(spec.heads),
            group: limit(group),
            key_width: limit(spec.key_width),
            value_width: limit(spec.value_width),
            key_stride: limit(row_stride(spec.key_width, spec.format)),
            value_stride: limit(row_stride(spec.value_width, spec.format)),
            key_columns: limit(columns(spec.key_width)),
            value_columns: limit(columns(spec.value_width)),
            query_columns: limit(columns(spec.key_width).min(QUERY_COLUMNS)),
            // Positions are 32 bits wide: a larger window sees them all.
            window: options.window.and_then(|window| u32::try_from(window).ok()).unwrap_or(0),
            table_rows: limit(placement.table_rows),
            table_cols: limit(placement.table_cols),
            blocks: limit(cache.blocks()),
            context_columns: limit(context),
            unit_heads: limit(group.min(split.rows())),
            whole: limit(WHOLE_ROUNDS),
            splits: limit(splits),
            walkers: if shared { limit(splits) } else { 1 },
            tile_tokens: limit((tile.rows() / group).max(1)),
            listed: (tokens >= LONG_RUN && !placement.one_token_per_sequence).into(),
            sunk: options.sinks.is_some().into(),
            aligned_out: aligned(spec.value_width, [RowAlignment::of_mut(out)]),
            prepared: prepared.into(),
        };
        let partials = if splits > 1 { split_tokens * heads * splits } else { 1 };
        Self { split, tile, params, split_tokens, partials }
    }
}

/// The launches of a call, and the arguments that they share.
struct Launches<'a> {
    device: &'a Device,
    plan: &'a Plan,
    format: KvFormat,
    workspace: Arc<Region>,
    /// Runs of tokens, statistics and vectors of splits, in the workspace.
    runs: Part,
    stats: Part,
    vectors: Part,
    q: Arg<'a>,
    /// Keys, their scales, values, their scales.
    cache: [Arg<'a>; 4],
    /// Slots, positions, block table.
    ids: [Arg<'a>; 3],
    sinks: Arg<'a>,
    out: Arg<'a>,
    /// The output's copy in activations.
    exact: Arg<'a>,
}

impl<'a> Launches<'a> {
    fn new(device: &'a Device, call: &'a Attention, act: Option<&'a GpuAct>, plan: &'a Plan) -> Result<Self> {
        let (params, word) = (&plan.params, size_of::<u32>());
        let listed = params.listed != 0;
        let runs = Part { offset: 0, bytes: if listed { (2 + 3 * params.tokens as usize) * word } else { word } };
        let stats = Part::after(runs, plan.partials * 2 * word);
        let vectors = Part::after(stats, plan.partials * params.value_columns as usize * word);
        let GpuKv { keys, values, .. } = call.cache.storage(Attention::NAME)?;
        let [keys, key_scales] = keys.args(Access::Read);
        let [values, value_scales] = values.args(Access::Read);
        Ok(Self {
            device,
            plan,
            format: call.cache.spec().format,
            workspace: device.workspace(vectors.offset + vectors.bytes)?,
            runs,
            stats,
            vectors,
            q: Arg::read(&call.q),
            cache: [keys, key_scales, values, value_scales],
            ids: placement_args(call.placement),
            sinks: Arg::optional(call.options.sinks),
            out: Arg::write(&call.out),
            exact: act.map_or(Arg::Null, |act| act.exact(Access::Write)),
        })
    }

    fn run(&self) -> Result<()> {
        if self.plan.params.listed != 0 {
            self.list_runs()?;
            self.long_runs()?;
        }
        self.splits()?;
        if self.plan.params.walkers == 1 { Ok(()) } else { self.combine() }
    }

    fn launch(&self, kernel: Kernel, grid: [u32; 3], block: u32, shared: u32, args: &[Arg]) -> Result<()> {
        self.device.launch(&Launch { kernel, grid, block, shared, overlap: false, args })
    }

    fn part(&self, part: Part, access: Access) -> Arg<'_> {
        part.arg(&self.workspace, access)
    }

    /// What both kernels that walk over keys take first.
    fn walk_args(&self) -> Vec<Arg<'_>> {
        let Self { q, cache, ids, sinks, out, exact, .. } = self;
        [&[*q][..], cache, ids, &[*sinks, self.part(self.runs, Access::Read), *out, *exact]].concat()
    }

    /// Bytes of threadgroup memory for the queries.
    fn query_bytes(&self, form: Form) -> u32 {
        (form.rows() * self.plan.params.query_columns as usize * size_of::<f32>()) as u32
    }

    /// Lists the runs of [`LONG_RUN`] tokens and more.
    fn list_runs(&self) -> Result<()> {
        let kernel = Kernel { file: "attention_plan.metal", entry: "attention_plan", defines: &[] };
        let [slots, positions, _] = self.ids;
        let args = [slots, positions, self.part(self.runs, Access::Write), Arg::params(&self.plan.params)];
        self.launch(kernel, [1, 1, 1], PLAN_THREADS, 0, &args)
    }

    /// The tokens of listed runs.
    fn long_runs(&self) -> Result<()> {
        let Plan { tile, params, .. } = self.plan;
        let params = AttentionParams { unit_heads: params.group.min(limit(tile.rows())), ..*params };
        let (tokens, kv_heads) = (params.tokens as usize, params.kv_heads as usize);
        let units = kv_heads * (params.group as usize).div_ceil(tile.rows());
        // A run has at most two tiles that are not full.
        let tiles = tokens.div_ceil(params.tile_tokens as usize) + 2 * (tokens / LONG_RUN);
        let defines = tile.defines(self.format);
        let kernel = Kernel { file: "attention_tile.metal", entry: "attention_tile", defines: &defines };
        let args = [self.walk_args(), vec![self.device.flag(), Arg::params(&params)]].concat();
        self.launch(kernel, [limit(tiles), limit(units), 1], THREADS, self.query_bytes(*tile), &args)
    }

    /// All other tokens, split by split.
    fn splits(&self) -> Result<()> {
        let Plan { split, params, split_tokens, .. } = self.plan;
        let units = params.kv_heads as usize * (params.group as usize).div_ceil(split.rows());
        let defines = split.defines(self.format);
        let kernel = Kernel { file: "attention_split.metal", entry: "attention_split", defines: &defines };
        let [vectors, stats] = [self.vectors, self.stats].map(|part| self.part(part, Access::ReadWrite));
        let args = [self.walk_args(), vec![vectors, stats, self.device.flag(), Arg::params(params)]].concat();
        let grid = [limit(*split_tokens), limit(units), params.walkers];
        self.launch(kernel, grid, THREADS, self.query_bytes(*split), &args)
    }

    /// Joins the splits that several blocks of threads have worked on.
    fn combine(&self) -> Result<()> {
        let kernel = Kernel { file: "attention_combine.metal", entry: "attention_combine", defines: &[] };
        let [vectors, stats, runs] = [self.vectors, self.stats, self.runs].map(|part| self.part(part, Access::Read));
        let [slots, positions, _] = self.ids;
        let params = &self.plan.params;
        let args = [vectors, stats, slots, positions, self.sinks, runs, self.out, self.exact, Arg::params(params)];
        let heads = (params.kv_heads * params.group) as usize;
        self.launch(kernel, [params.tokens, limit(heads.div_ceil(WARPS)), 1], THREADS, 0, &args)
    }
}
