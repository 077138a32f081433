//! Attention over the paged cache: which kernel, in how many blocks of threads.
//!
//! Tokens of a prompt stand side by side: `attention_tile` serves such runs of [`LONG_RUN`] tokens and more, and shares
//! keys and values among them. What any other token sees is cut into splits, each worked on by itself, and joined by
//! `attention_combine`: by `attention_decode` on tensor cores, or by `attention_split`, which serves every shape of
//! cache. In a step whose tokens are each of a sequence of its own, there are no runs, and `attention_decode` also
//! normalises and turns queries and keys and writes to the cache, as `qkv_write` does otherwise. Activations of the next
//! product are prepared where results are written, except those of long runs.
//!
//! The cut depends on what a token sees; how many blocks of threads there are depends on what the host knows, the number
//! of tokens and the length of the block table. RowSelection tokens are in long runs is found on the device. So a recorded
//! launch serves any lengths, and a token's result depends on its own sequence alone.

pub(super) mod form;

use gristmill_gpu::common::activations::prepare_activations;
use gristmill_gpu::common::kv::{cells_define, limit, placement_args, row_stride};
use gristmill_gpu::common::{RowAlignment, aligned, qkv_write};
use gristmill_gpu::shared_struct;
use gristmill_gpu::storage::{GpuAct, GpuKv};
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::require;

use bytemuck::{Pod, Zeroable};
use form::{DECODE_WARPS, Form};
use gristmill_gpu::{Access, Arg, Device, Kernel, Launch, Region};
use gristmill_kernels::kv::{KvSpec, Placement};
use gristmill_kernels::ops::{Attend, Attention, AttentionOptions, Fused, Operation, QkNorms, RopeStyle, Rotary};
use gristmill_kernels::tensor::{View, ViewMut};

/// The most splits of a token's keys: `MAX_SPLITS` of `kernels/attention.cuh`.
const MAX_SPLITS: usize = 32;
/// Blocks of the cache in a split, at least: `SPLIT_BLOCKS`.
const SPLIT_BLOCKS: usize = 8;
/// So many blocks `attention_decode` does not cut: on an H200 each round of eight takes 1.0 µs, and to join splits takes 2.
const WHOLE_BLOCKS: usize = 24;
/// Tokens of the shortest run that `attention_tile` serves: `LONG_RUN`.
const LONG_RUN: usize = 16;
/// Threads of `attention_split` and `attention_tile`.
const THREADS: u32 = 128;
/// Threads of `attention_combine`.
const COMBINE_THREADS: u32 = 128;
/// Rows of `attention_tile`: tokens times query heads that share a KV head.
const TILE_ROWS: u32 = 64;
/// Columns of a block table, so that positions and a tile more are 32 bits wide.
const MAX_COLUMNS: usize = 1 << 27;

shared_struct! {
    #[repr(C)]
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct AttentionParams in "attention.cuh" {
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
        window: u32,
        table_rows: u32,
        table_cols: u32,
        blocks: u32,
        context_columns: u32,
        rows: u32,
        units: u32,
        whole: u32,
        splits: u32,
        walkers: u32,
        long_runs: u32,
        aligned_q: u32,
        aligned_out: u32,
    }
}

shared_struct! {
    #[repr(C)]
    #[derive(Clone, Copy, Default, Pod, Zeroable)]
    pub(super) struct KvWriteParams in "attention_kv_write.cuh" {
        placed: u32,
        normed: u32,
        pairs: u32,
        interleaved: u32,
        eps: f32,
        magnitude: f32,
    }
}

shared_struct! {
    #[repr(C)]
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(super) struct DecodeParams in "attention_decode.cu" {
        attention: AttentionParams,
        kv_write: KvWriteParams,
    }
}

/// What all launches of a call share.
struct Call<'a> {
    device: &'a Device,
    /// Queries; with keys and values beside them if these are to be written to the cache.
    q: &'a View<'a, f32>,
    /// The norms and angles, if the kernel is to normalise, rotate and write as [`gristmill_kernels::ops::QkvWrite`] does.
    write: Option<(Option<QkNorms<'a>>, &'a Rotary)>,
    cache: &'a GpuKv,
    spec: KvSpec,
    /// Blocks of the cache.
    blocks: usize,
    placement: &'a Placement,
    options: &'a AttentionOptions<'a>,
    out: &'a ViewMut<'a, f32>,
    /// Gets the results too.
    act: Option<&'a GpuAct>,
}

/// [`Attention`]; with activations [`gristmill_kernels::ops::AttentionAct`], at once if it can be: a block of activations must not
/// belong to two heads, and the kernel for long runs writes none.
pub(super) fn attention(device: &Device, call: Attention, act: Option<&Act>) -> Result<()> {
    let Attention { q, cache, placement, options, out } = call;
    let (op, spec) = (Attention::NAME, cache.spec());
    let storage = act.map(|act| act.storage(op)).transpose()?;
    let (q, out, options) = (&q, &out, &options);
    let (cache, blocks) = (cache.storage(op)?, cache.blocks());
    let call = Call { device, q, write: None, cache, spec, blocks, placement, options, out, act: None };
    match act {
        Some(act) if !spec.value_width.is_multiple_of(32) || call.tile().is_some() => {
            call.run()?;
            prepare_activations(device, out.as_view(), act)
        }
        _ => Call { act: storage, ..call }.run(),
    }
}

/// [`gristmill_kernels::Backend::context_bucket`]: a context that is not cut into splits takes one launch less.
pub(super) fn context_bucket(columns: usize) -> usize {
    if columns <= WHOLE_BLOCKS { WHOLE_BLOCKS } else { usize::MAX }
}

/// [`Attend`] at once, where each token is of a sequence of its own and the device has the kernel.
pub(super) fn attend(device: &Device, call: &mut Attend) -> Result<Fused> {
    let Attend { qkv, norms, rotary, cache, placement, options, out, act } = call;
    let (op, spec, blocks) = (Attend::NAME, cache.spec(), cache.blocks());
    let on_tensor_cores = form::decode(device.gpu().properties(), spec).is_some();
    let at_once = placement.one_token_per_sequence && on_tensor_cores && qkv_write::serves(options.heads, *norms, spec);
    if !at_once {
        return Ok(Fused::No);
    }
    let whole = spec.value_width.is_multiple_of(32);
    let (qkv, write, act) = (qkv.as_view(), Some((*norms, *rotary)), &**act);
    let storage = if whole { Some(act.storage(op)?) } else { None };
    let data = cache.storage(op)?;
    let call = Call { device, q: &qkv, write, cache: data, spec, blocks, placement, options, out, act: storage };
    call.run()?;
    if !whole {
        prepare_activations(device, out.as_view(), act)?;
    }
    cache.storage_mut::<GpuKv>(op)?.written = device.epoch();
    Ok(Fused::Yes)
}

/// A part of the workspace.
#[derive(Clone, Copy)]
struct Partials<'a> {
    region: &'a Region,
    offset: usize,
    bytes: usize,
}

impl<'a> Partials<'a> {
    fn arg(self, access: Access) -> Arg<'a> {
        Arg::Buffer { region: self.region, offset: self.offset, bytes: self.bytes, access }
    }
}

impl<'a> Call<'a> {
    /// The kernel for long runs, if there may be any.
    fn tile(&self) -> Option<Form> {
        let many = self.q.rows() >= LONG_RUN && !self.placement.one_token_per_sequence;
        form::tile(self.device.gpu().properties(), self.spec).filter(|_| many)
    }

    /// Runs everything.
    fn run(self) -> Result<()> {
        let (columns, rule) = (self.placement.table_cols, "must be at most 2^27 on a GPU");
        require(columns <= MAX_COLUMNS, Attention::NAME, "columns of the block table", columns, rule)?;
        if self.q.rows() == 0 {
            return Ok(());
        }
        let tile = self.tile();
        let params = AttentionParams { long_runs: tile.is_some().into(), ..self.params() };
        self.splits(&params)?;
        tile.map_or(Ok(()), |tile| self.long_runs(&tile, &params))
    }

    /// Parameters of all launches; those of splits differ in some.
    fn params(&self) -> AttentionParams {
        let (spec, p, place) = (self.spec, self.options, self.placement);
        let decode = form::decode(self.device.gpu().properties(), spec);
        let whole = if decode.is_some() { WHOLE_BLOCKS } else { SPLIT_BLOCKS };
        let context_columns = place.context_columns.min(place.table_cols);
        AttentionParams {
            q_stride: self.q.layout().stride() as u64,
            out_stride: self.out.layout().stride() as u64,
            scale: p.scale,
            softcap: p.softcap.unwrap_or(0.0),
            tokens: limit(self.q.rows()),
            kv_heads: limit(spec.heads),
            group: limit(p.heads / spec.heads),
            key_width: limit(spec.key_width),
            value_width: limit(spec.value_width),
            key_stride: limit(row_stride(spec.key_width, spec.format)),
            value_stride: limit(row_stride(spec.value_width, spec.format)),
            // Positions are 32 bits wide: a larger window sees them all.
            window: p.window.and_then(|window| u32::try_from(window).ok()).unwrap_or(0),
            table_rows: limit(place.table_rows),
            table_cols: limit(place.table_cols),
            blocks: limit(self.blocks),
            context_columns: limit(context_columns),
            rows: 1,
            units: 1,
            whole: limit(whole),
            splits: if context_columns <= whole {
                1
            } else {
                limit(context_columns.div_ceil(SPLIT_BLOCKS).clamp(1, MAX_SPLITS))
            },
            walkers: 1,
            long_runs: 0,
            aligned_q: self.aligned_q(),
            aligned_out: aligned(spec.value_width, [RowAlignment::of_mut(self.out)]),
        }
    }

    /// Whether heads of queries, and of keys and values beside them, are whole 16-byte words.
    fn aligned_q(&self) -> u32 {
        let spec = self.spec;
        let values = self.write.is_none() || spec.value_width.is_multiple_of(4);
        aligned(spec.key_width, [RowAlignment::of(self.q)]) * u32::from(values)
    }

    fn kv_write(&self) -> KvWriteParams {
        let Some((norms, rotary)) = self.write else { return KvWriteParams::default() };
        KvWriteParams {
            placed: 1,
            normed: norms.is_some().into(),
            pairs: limit(rotary.frequencies.len()),
            interleaved: (rotary.style == RopeStyle::Interleaved).into(),
            eps: norms.map_or(0.0, |norms| norms.eps),
            magnitude: rotary.magnitude,
        }
    }

    /// The output, then the activations: as they are, as int8, as bfloat16.
    fn results(&self) -> [Arg<'_>; 4] {
        let [exact, int8, bf16] = self.act.map_or([Arg::Null; 3], GpuAct::outputs);
        [Arg::write(self.out), exact, int8, bf16]
    }

    /// All tokens, or those in short runs, by splits.
    fn splits(&self, params: &AttentionParams) -> Result<()> {
        let device = self.device.gpu().properties();
        let decode = form::decode(device, self.spec);
        let heads = params.kv_heads * params.group;
        // Query heads of a unit, and how many blocks of threads a multiprocessor has room for.
        let (rows, resident, define) = match params.group {
            _ if decode.is_some() => (8, 1, "8"),
            1 => (1, 4, "1"),
            2..=4 => (4, 3, "4"),
            _ => (8, 2, "8"),
        };
        let units = params.kv_heads * params.group.div_ceil(rows);
        let room = u32::from(u16::MAX);
        require(units <= room && heads <= room, "attention", "query heads", heads, "must be at most 65,535 on a GPU")?;
        // Where there are few tokens, several blocks of threads walk through the splits of one unit. Else each takes
        // token after token and joins the splits itself.
        let busy = resident * device.multiprocessors.max(1);
        let walkers = (busy / (params.tokens * units)).clamp(1, params.splits);
        let tokens = if walkers == 1 { params.tokens.min(busy.div_ceil(units)) } else { params.tokens };
        let params = AttentionParams { rows, units, walkers, ..*params };

        let results = [tokens, units, rows, params.splits].map(|n| n as usize).iter().product::<usize>();
        let stats_bytes = (results * size_of::<[f32; 2]>()).next_multiple_of(16);
        let all_bytes = stats_bytes + results * params.value_stride as usize * size_of::<f32>();
        let region = self.device.workspace(all_bytes)?;
        let stats = Partials { region: &region, offset: 0, bytes: stats_bytes };
        let vectors = Partials { region: &region, offset: stats_bytes, bytes: all_bytes - stats_bytes };

        let grid = [tokens, units, walkers];
        let [slots, positions, table] = placement_args(self.placement);
        let (q, sinks) = (Arg::read(self.q), Arg::optional(self.options.sinks));
        let [out, exact, int8, bf16] = self.results();
        let (vectors_arg, stats_arg) = (vectors.arg(Access::ReadWrite), stats.arg(Access::ReadWrite));
        let (flag, arg) = (self.device.flag(), Arg::params(&params));
        match &decode {
            Some(form) => {
                let both = DecodeParams { attention: params, kv_write: self.kv_write() };
                let access = if self.write.is_some() { Access::ReadWrite } else { Access::Read };
                let norms = self.write.and_then(|(norms, _)| norms).map(|norms| norms.weights);
                let [q_norm, k_norm] = norms.map_or([Arg::Null; 2], |both| both.map(|w| Arg::buffer(w, Access::Read)));
                let frequencies = self.write.map(|(_, rotary)| &rotary.frequencies);
                let [[keys, _], [values, _]] = [&self.cache.keys, &self.cache.values].map(|data| data.args(access));
                self.device.launch(&Launch {
                    kernel: Kernel { file: "attention_decode.cu", entry: "attention_decode", defines: &form.defines() },
                    grid,
                    block: DECODE_WARPS * 32,
                    shared: form.shared,
                    // When it places, it reads the cache before it waits for the kernel before it.
                    overlap: self.write.is_none() || self.cache.written < self.device.epoch(),
                    args: &[
                        q,
                        q_norm,
                        k_norm,
                        Arg::optional(frequencies),
                        keys,
                        values,
                        slots,
                        positions,
                        table,
                        sinks,
                        out,
                        exact,
                        int8,
                        bf16,
                        vectors_arg,
                        stats_arg,
                        flag,
                        Arg::params(&both),
                    ],
                })?;
            }
            None => {
                let [keys, key_scales] = self.cache.keys.args(Access::Read);
                let [values, value_scales] = self.cache.values.args(Access::Read);
                self.device.launch(&Launch {
                    kernel: Kernel {
                        file: "attention_split.cu",
                        entry: "attention_split",
                        defines: &[("ROWS", define), cells_define(self.spec.format)],
                    },
                    grid,
                    block: THREADS,
                    shared: rows * params.key_stride.max(params.value_stride) * size_of::<f32>() as u32,
                    overlap: true,
                    args: &[
                        q,
                        keys,
                        key_scales,
                        values,
                        value_scales,
                        slots,
                        positions,
                        table,
                        sinks,
                        out,
                        exact,
                        int8,
                        bf16,
                        vectors_arg,
                        stats_arg,
                        flag,
                        arg,
                    ],
                })?;
            }
        }
        if walkers == 1 {
            return Ok(());
        }
        let (vectors, stats) = (vectors.arg(Access::Read), stats.arg(Access::Read));
        self.device.launch(&Launch {
            kernel: Kernel { file: "attention_combine.cu", entry: "attention_combine", defines: &[] },
            grid: [params.tokens, heads, 1],
            block: COMBINE_THREADS,
            shared: 0,
            overlap: true,
            args: &[vectors, stats, slots, positions, sinks, out, exact, int8, bf16, arg],
        })
    }

    /// All runs of [`LONG_RUN`] tokens and more.
    fn long_runs(&self, tile: &Form, params: &AttentionParams) -> Result<()> {
        let tokens = (TILE_ROWS / params.group).max(1);
        let tiles = params.tokens.div_ceil(tokens);
        let [keys, _] = self.cache.keys.args(Access::Read);
        let [values, _] = self.cache.values.args(Access::Read);
        let [slots, positions, table] = placement_args(self.placement);
        self.device.launch(&Launch {
            kernel: Kernel { file: "attention_tile.cu", entry: "attention_tile", defines: &tile.defines() },
            grid: [tiles * params.kv_heads * params.group.div_ceil(TILE_ROWS), 1, 1],
            block: THREADS,
            shared: tile.shared,
            overlap: true,
            args: &[
                Arg::read(self.q),
                keys,
                values,
                slots,
                positions,
                table,
                Arg::optional(self.options.sinks),
                Arg::write(self.out),
                self.device.flag(),
                Arg::params(params),
            ],
        })
    }
}
