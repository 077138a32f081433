//! Attention over the paged cache: which kernel, in how many blocks of threads.
//!
//! A token of few neighbours is cut into splits of what it sees, each worked on by a block of threads (`attention_split`), and
//! joined by `attention_combine`. Where there may be long runs, the tokens of a prompt, `attention_plan` finds them on the
//! device, and `attention_tile` shares keys and values among neighbours. How a token is cut depends on what it sees; how many
//! blocks of threads there are, on what the host knows: the number of tokens and the length of the block table.

use crate::act::Act;
use crate::check::require;
use crate::error::Result;
use crate::gpu::small::kv::{cells_args, cells_define, limit, row_stride};
use crate::gpu::small::{Rows, wide};
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch, Region, Text};
use crate::kv::{KV_BLOCK, KvCache, KvFormat, KvSpec, Placement};
use crate::ops::Attention;
use crate::tensor::{View, ViewMut};
use bytemuck::{Pod, Zeroable};

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

twin! {
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
        reach: u32,
        unit_heads: u32,
        whole: u32,
        splits: u32,
        walkers: u32,
        tile_tokens: u32,
        listed: u32,
        sunk: u32,
        wide_out: u32,
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
pub(super) fn texts() -> impl Iterator<Item = Text> {
    let plain = ["attention_plan.metal", "attention_combine.metal"];
    let plain = plain.into_iter().map(|file| Text { file, defines: Vec::new() });
    let widths = [64, 128, 256].into_iter().flat_map(|width| [(width, KvFormat::F16), (width, KvFormat::Q8_0)]);
    plain.chain(widths.flat_map(|(width, format)| {
        let spec = KvSpec { heads: 1, key_width: width, value_width: width, format };
        [("attention_split.metal", Form::split(spec)), ("attention_tile.metal", Form::tile(spec))].map(
            |(file, form)| {
                let defines = form.defines(format).map(|(name, value)| (name, value.to_owned()));
                Text { file, defines: defines.to_vec() }
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

/// [`crate::ops::Backend::attention`], and [`crate::ops::Backend::attention_act`] if there are activations; checked.
pub(super) fn attention(
    device: &Device,
    q: View<f32>,
    cache: &KvCache,
    place: &Placement,
    parameters: &Attention,
    out: ViewMut<f32>,
    act: Option<&mut Act>,
) -> Result<()> {
    let (op, spec, tokens, heads) = ("attention", cache.spec, q.rows(), parameters.heads);
    let act = act.map(|act| {
        (act.rows, act.cols) = (tokens, heads * spec.value_width);
        &*act
    });
    let rule = "must be at most 2^27 on a GPU";
    require(place.table_cols <= MAX_COLUMNS, op, "columns of the block table", place.table_cols, rule)?;
    require(heads <= MAX_HEADS, op, "query heads", heads, "must be at most 65,535 on a GPU")?;
    if tokens == 0 {
        return Ok(());
    }
    let listed = tokens >= LONG_RUN && !place.apart;
    let group = heads / spec.heads;
    let units_of = |form: Form| spec.heads * group.div_ceil(form.rows());
    let columns = |width: usize| width.next_multiple_of(PATCH);
    let reach = place.reach.min(place.table_cols);
    let rounds = (reach * KV_BLOCK).div_ceil(ROUND);
    let splits = if rounds <= WHOLE_ROUNDS { 1 } else { rounds.min(MAX_SPLITS) };

    let (split, tile) = (Form::split(spec), Form::tile(spec));
    let units = units_of(split);
    // Where there are few tokens, several blocks of threads share the splits of one unit.
    let shared = tokens * units < BUSY;
    let places = if shared { tokens } else { tokens.min(BUSY.div_ceil(units)) };
    let params = AttentionParams {
        q_stride: q.shape().stride() as u64,
        out_stride: out.shape().stride() as u64,
        scale: parameters.scale,
        softcap: parameters.softcap.unwrap_or(0.0),
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
        window: parameters.window.and_then(|window| u32::try_from(window).ok()).unwrap_or(0),
        table_rows: limit(place.table_rows),
        table_cols: limit(place.table_cols),
        blocks: limit(cache.blocks),
        reach: limit(reach),
        unit_heads: limit(group.min(split.rows())),
        whole: limit(WHOLE_ROUNDS),
        splits: limit(splits),
        walkers: if shared { limit(splits) } else { 1 },
        tile_tokens: limit((tile.rows() / group).max(1)),
        listed: listed.into(),
        sunk: parameters.sinks.is_some().into(),
        wide_out: wide(spec.value_width, [Rows::of_mut(&out)]),
        prepared: act.is_some().into(),
    };

    let word = size_of::<u32>();
    let plan = Part { offset: 0, bytes: if listed { (2 + 3 * tokens) * word } else { word } };
    let partials = if splits > 1 { places * heads * splits } else { 1 };
    let stats = Part::after(plan, partials * 2 * word);
    let vectors = Part::after(stats, partials * columns(spec.value_width) * word);
    let workspace = device.workspace(vectors.offset + vectors.bytes)?;
    let part = |part: Part, access| part.arg(&workspace, access);

    let [slots, positions, table] =
        [&place.slots, &place.positions, &place.table].map(|ids| Arg::buffer(ids, Access::Read));
    let [keys, key_scales] = cells_args(&cache.keys, Access::Read);
    let [values, value_scales] = cells_args(&cache.values, Access::Read);
    let (q, sinks, out) = (Arg::read(&q), Arg::optional(parameters.sinks), Arg::write(&out));
    let exact = act.map_or(Arg::Null, |act| Arg::buffer(&act.exact, Access::Write));
    let read_plan = part(plan, Access::Read);
    // What both kernels that walk over keys take first.
    let walk = [q, keys, key_scales, values, value_scales, slots, positions, table, sinks, read_plan, out, exact];
    let partials = [part(vectors, Access::ReadWrite), part(stats, Access::ReadWrite)];
    let query_bytes = |form: Form| (form.rows() * params.query_columns as usize * size_of::<f32>()) as u32;
    let launch = |kernel: Kernel, grid, block, shared, args: &[Arg]| {
        device.launch(&Launch { kernel, grid, block, shared, overlap: false, args })
    };
    let kernel = |file, entry| Kernel { file, entry, defines: &[] };

    if listed {
        let args = [slots, positions, part(plan, Access::Write), Arg::params(&params)];
        launch(kernel("attention_plan.metal", "attention_plan"), [1, 1, 1], PLAN_THREADS, 0, &args)?;
        let (defines, units) = (tile.defines(spec.format), units_of(tile));
        let params = AttentionParams { unit_heads: limit(group.min(tile.rows())), ..params };
        // A run has at most two tiles that are not full.
        let tiles = tokens.div_ceil(params.tile_tokens as usize) + 2 * (tokens / LONG_RUN);
        launch(
            Kernel { defines: &defines, ..kernel("attention_tile.metal", "attention_tile") },
            [limit(tiles), limit(units), 1],
            THREADS,
            query_bytes(tile),
            &[&walk[..], &[device.flag(), Arg::params(&params)]].concat(),
        )?;
    }
    launch(
        Kernel { defines: &split.defines(spec.format), ..kernel("attention_split.metal", "attention_split") },
        [limit(places), limit(units), params.walkers],
        THREADS,
        query_bytes(split),
        &[&walk[..], &partials, &[device.flag(), Arg::params(&params)]].concat(),
    )?;
    if params.walkers == 1 {
        return Ok(());
    }
    launch(
        kernel("attention_combine.metal", "attention_combine"),
        [limit(tokens), limit(heads.div_ceil(WARPS)), 1],
        THREADS,
        0,
        &[
            part(vectors, Access::Read),
            part(stats, Access::Read),
            slots,
            positions,
            sinks,
            read_plan,
            out,
            exact,
            Arg::params(&params),
        ],
    )
}
