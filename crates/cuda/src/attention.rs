//! Attention over the paged cache: which kernel, in how many blocks of threads.
//!
//! Tokens of a prompt are neighbours: `attention_tile`, or `attention_wgmma` on Hopper, computes runs of [`LONG_RUN`]
//! tokens or more, and shares keys and values among them. The context of any other token is split: by
//! `attention_decode` on tensor cores or by `attention_split`, which supports every shape of cache; `attention_combine`
//! joins the splits. A deterministic backend splits long runs too, by `attention_neighbours`, which shares keys and
//! values in another way. A step with one token per sequence has no runs, and `attention_decode` also normalises and
//! rotates queries and keys and writes to the cache, as `qkv_write` does otherwise. Activations of the next product are
//! prepared where results are written; those of long runs if their readers want bfloat16 alone.
//!
//! The splits depend only on a token's context. The number of blocks depends on the number of tokens and the length of
//! the block table, which the host knows. The device finds the long runs. So a captured launch works for all lengths,
//! and a token's result depends only on its own sequence.
//!
//! # Attention on CUDA
//!
//! The visible tokens of a token are cut into splits by its position alone. Tensor cores multiply f16, so queries and
//! exponentials are split into a high and a low part.
//!
//! | kernel | used for |
//! | --- | --- |
//! | `attention_tile` | runs of 16 tokens or more of a prompt, which share keys and values; no low parts at `Precision::Fast`, because int8 activations round more |
//! | `attention_wgmma` | replaces `attention_tile` on Hopper at `Precision::Fast`, unless the cache has 8 bits or the logits have a soft cap |
//! | `attention_latent` | the same runs of caches whose values are in their keys (f16); a key is copied to shared memory once, for both products |
//! | `attention_latent_split` | the other tokens of such caches, 16 query heads at once, in the splits of `attention_split` |
//! | `attention_decode` | a step of one token for each sequence: it also normalises and rotates queries and keys, and writes the cache |
//!
//! In `attention_wgmma`, two warpgroups multiply 64 rows each in turns with their exponentials, and four warps copy
//! keys and values. `attention_tile` and `attention_wgmma` have registers for the sums of 256 values, so wider heads
//! have blocks for each slice of 256 values; each slice multiplies queries and keys again. *A token's result can depend
//! on how many tokens of its own sequence are in the batch, and on nothing else of the batch.*

pub(super) mod form;

use super::Cuda;
use form::{AttentionVariant, DECODE_PARTS, DecodeOptions, MAX_LATENT_SPLITS, MAX_SPLITS, RowKernel};
use gristmill_gpu::attention::{AttentionCall, AttentionSizes};
use gristmill_gpu::common::activations::prepare_activations;
use gristmill_gpu::common::kv::{cells_define, limit};
use gristmill_gpu::common::{RowAlignment, aligned, qkv_write};
use gristmill_gpu::storage::{ActOutput, GpuKv};
use gristmill_gpu::{Access, Arg, Kernel, Launch, Scratch, Vendor, shared_struct};
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::{BatchRuns, KvSpec, LONG_RUN};
use gristmill_kernels::ops::{Attend, AttentionOptions, Fused, Operation, QkNorms, RopeStyle, Rotary, Window};
use gristmill_kernels::tensor::Buffer;

/// Tokens of a group of `attention_neighbours`: `NEIGHBOURS` of the source.
const NEIGHBOURS: u32 = 4;
/// Blocks of the cache in a split, at least: `SPLIT_BLOCKS`.
const SPLIT_BLOCKS: usize = 8;
/// The most blocks that `attention_decode` does not cut: on an H200 each round of eight takes 1.0 µs, joining splits 2.
const WHOLE_BLOCKS: usize = 24;
/// Threads of `attention_split`.
const THREADS: u32 = 128;
/// Splits of a warp of `attention_combine`: `CHUNK` of `kernels/attention.cuh`.
const COMBINE_CHUNK: usize = 8;
/// Slices of the workspace: a maximum and a sum of each split, and its vector.
const STATS: usize = 0;
const VECTORS: usize = 1;

shared_struct! {
    pub(super) struct AttentionParams {
        ..sizes: AttentionSizes,
        // The most query heads of a unit, a power of two.
        rows: u32,
        // Units of a token.
        units: u32,
        // Blocks of the cache in one split.
        whole: u32,
        // The most splits of a token, by the context columns.
        splits: u32,
        // Thread blocks that share the splits of one unit; a single one also joins them.
        walkers: u32,
        // Whether a kernel for long runs computes these.
        long_runs: u32,
        // Rows allow 16-byte accesses.
        aligned_q: u32,
        aligned_out: u32,
    }
}

shared_struct! {
    /// How queries and keys change before use, and whether this launch writes the cache.
    #[derive(Default)]
    pub(super) struct KvWriteParams {
        placed: u32,
        normed: u32,
        pairs: u32,
        interleaved: u32,
        eps: f32,
        magnitude: f32,
    }
}

shared_struct! {
    pub(super) struct DecodeParams {
        attention: AttentionParams,
        kv_write: KvWriteParams,
    }
}

/// [`gristmill_kernels::Backend::context_bucket`]: a context that is not split into splits takes one launch less.
pub(super) fn context_bucket(columns: usize) -> usize {
    if columns <= WHOLE_BLOCKS { WHOLE_BLOCKS } else { usize::MAX }
}

/// Whether kernels may write results as activations too: a block of activations must not belong to two heads.
fn writes_act(spec: KvSpec) -> bool {
    spec.value_width.is_multiple_of(32)
}

/// [`gristmill_kernels::ops::Attention`]. Which runs are long depends on how a sequence's tokens are split into steps,
/// so a deterministic backend takes every token by splits.
pub(super) fn attention(cuda: &Cuda, call: &AttentionCall) -> Result<()> {
    let many = call.q.rows() >= LONG_RUN && call.placement.runs != BatchRuns::Single && !cuda.deterministic();
    let long = form::long_runs(call.device.gpu().properties(), call.spec, call.options).filter(|_| many);
    // The kernel for long runs writes results, or bfloat16 activations, by its form.
    let act = call.act.filter(|act| writes_act(call.spec) && (long.is_none() || act.only_bf16()));
    let launches = Launches::new(cuda, AttentionCall { act, ..*call }, None, long.is_some());
    if long.is_none() || call.placement.runs != BatchRuns::Long {
        launches.splits()?;
    }
    long.map_or(Ok(()), |kernel| launches.long_runs(&kernel))?;
    let left = call.act.filter(|_| act.is_none());
    left.map_or(Ok(()), |act| prepare_activations(call.device, call.out.as_view(), act))
}

/// [`Attend`] at once, with one token per sequence where the device has the kernel.
pub(super) fn attend(cuda: &Cuda, call: &mut Attend) -> Result<Fused> {
    let Attend { qkv, norms, rotary, cache, placement, options, out, act } = call;
    let op = Attend::NAME;
    let device = &cuda.device;
    let spec = cache.spec();
    let blocks = cache.blocks();
    let on_tensor_cores =
        form::decode(device.gpu().properties(), spec, DecodeOptions { all: true, units: 1, split: false }).is_some();
    let values_as_they_are = norms.is_none_or(|norms| norms.values.is_none());
    let by_row = norms.is_some_and(|norms| by_row(norms, options.heads, spec));
    let served = values_as_they_are && (by_row || qkv_write::serves(options.heads, *norms, spec));
    let at_once = placement.runs == BatchRuns::Single && on_tensor_cores && served && options.ends.is_none();
    if !at_once {
        return Ok(Fused::No);
    }
    if qkv.rows() > 0 {
        let q = &qkv.as_view();
        let data = cache.storage(op)?;
        let act = ActOutput::new(op, act)?;
        let act_at_once = Some(act).filter(|_| writes_act(spec));
        let call = AttentionCall { device, q, cache: data, spec, blocks, placement, options, out, act: act_at_once };
        call.check()?;
        let normed = match norms {
            None => 0,
            Some(_) if by_row => NORMED_BY_ROW,
            Some(_) => NORMED_BY_HEAD,
        };
        Launches::new(cuda, call, Some(Write { norms: *norms, rotary, normed }), false).splits()?;
        if act_at_once.is_none() {
            prepare_activations(device, out.as_view(), act)?;
        }
    }
    cache.storage_mut::<GpuKv>(op)?.written = device.epoch();
    Ok(Fused::Yes)
}

/// Whether whole rows of queries and of keys are normalised before their rotation.
fn by_row(norms: QkNorms, heads: usize, spec: KvSpec) -> bool {
    let widths = [heads, spec.heads].map(|heads| heads.saturating_mul(spec.key_width));
    !norms.after_rotation && norms.weights.map(Buffer::len) == widths && widths != [spec.key_width; 2]
}

/// `NORMED_BY_HEAD` and `NORMED_BY_ROW` of `attention_kv_write.cuh`.
const NORMED_BY_HEAD: u32 = 1;
const NORMED_BY_ROW: u32 = 2;

/// The part of [`gristmill_kernels::ops::QkvWrite`] on queries, keys and values, where an attention kernel runs it too.
#[derive(Clone, Copy)]
struct Write<'a> {
    norms: Option<QkNorms<'a>>,
    rotary: &'a Rotary,
    /// How queries and keys are normalised: 0, [`NORMED_BY_HEAD`] or [`NORMED_BY_ROW`].
    normed: u32,
}

impl Write<'_> {
    fn params(self) -> KvWriteParams {
        let Self { norms, rotary, normed } = self;
        KvWriteParams {
            placed: 1,
            normed,
            pairs: limit(rotary.frequencies.len()),
            interleaved: (rotary.style == RopeStyle::Interleaved).into(),
            eps: norms.map_or(0.0, |norms| norms.eps),
            magnitude: rotary.magnitude,
        }
    }
}

/// The launches of a call.
struct Launches<'a> {
    call: AttentionCall<'a>,
    /// Keys and values next to the queries are written to the cache.
    write: Option<Write<'a>>,
    /// `attention_decode`, where it serves the cache.
    decode: Option<AttentionVariant>,
    /// Whether `attention_neighbours` takes its place.
    neighbours: bool,
    /// `attention_latent_split`, where it serves the cache.
    latent: Option<RowKernel>,
    /// The most splits of a token, as a definition of its kernels too.
    max_splits: usize,
    /// Query heads of a unit, as the definition of `attention_split` too.
    rows: (u32, &'static str),
    /// Blocks along x of the kernels that take splits.
    tokens: u32,
    params: AttentionParams,
}

impl<'a> Launches<'a> {
    fn new(cuda: &Cuda, call: AttentionCall<'a>, write: Option<Write<'a>>, long_runs: bool) -> Self {
        let properties = call.device.gpu().properties();
        let spec = call.spec;
        let sizes = call.sizes();
        let AttentionOptions { window, softcap, temperature, .. } = call.options;
        let chunked = matches!(window, Some(Window::Chunk(_)));
        let by_row = write.is_some_and(|write| write.normed == NORMED_BY_ROW);
        let all_options = by_row || chunked || softcap.is_some() || temperature.is_some();
        let heads = sizes.kv_heads * sizes.group.div_ceil(DECODE_PARTS);
        // Neighbours share what is read if there are groups of them for all multiprocessors.
        let groups = sizes.tokens.div_ceil(NEIGHBOURS);
        let runs = write.is_none() && call.placement.runs != BatchRuns::Single && call.options.ends.is_none();
        let neighbours = cuda.deterministic() && runs && groups * heads >= properties.multiprocessors;
        // One compilation for both kernels of neighbours, which takes fewer registers.
        let options = DecodeOptions {
            all: all_options || neighbours,
            units: if neighbours { 1 } else { sizes.tokens.saturating_mul(heads) },
            split: sizes.context_columns as usize > WHOLE_BLOCKS,
        };
        let decode = form::decode(properties, spec, options);
        let neighbours = neighbours && decode.is_some();
        // Query heads share what is read of a KV head, unless there are too few units for all multiprocessors.
        let alone = !cuda.deterministic() && sizes.tokens * sizes.kv_heads * sizes.group <= properties.multiprocessors;
        // Query heads of a unit, and blocks that are resident on a multiprocessor.
        let latent = form::latent_splits(properties, spec).filter(|_| call.options.ends.is_none());
        let (rows, resident) = match sizes.group {
            _ if let Some(form) = &decode => ((8, "8"), form.blocks),
            _ if latent.is_some() => ((16, "16"), 1),
            group if alone || group == 1 => ((1, "1"), 4),
            2..=4 => ((4, "4"), 3),
            _ => ((8, "8"), 2),
        };
        let max_splits = if decode.is_none() && latent.is_some() { MAX_LATENT_SPLITS } else { MAX_SPLITS };
        let units = sizes.kv_heads * sizes.group.div_ceil(rows.0);
        let whole = limit(if decode.is_some() { WHOLE_BLOCKS } else { SPLIT_BLOCKS });
        let splits = match sizes.context_columns {
            columns if columns <= whole => 1,
            columns => columns.div_ceil(limit(SPLIT_BLOCKS)).clamp(1, limit(max_splits)),
        };
        // Where there are few tokens, several blocks take the splits of one unit. Else each takes token after token and
        // joins the splits itself.
        let busy = resident * properties.multiprocessors.max(1);
        let walkers = (busy / (sizes.tokens * units)).clamp(1, splits);
        let at_once = if neighbours { groups } else { sizes.tokens };
        let tokens = if walkers == 1 { at_once.min(busy.div_ceil(units)) } else { sizes.tokens };
        let whole_values = write.is_none() || spec.value_width.is_multiple_of(4);
        let params = AttentionParams {
            sizes,
            rows: rows.0,
            units,
            whole,
            splits,
            walkers,
            long_runs: long_runs.into(),
            // Heads of queries, and of keys and values next to them, are whole 16-byte words.
            aligned_q: aligned(spec.key_width, [RowAlignment::of(call.q)]) * u32::from(whole_values),
            aligned_out: aligned(spec.value_width, [RowAlignment::of_mut(call.out)]),
        };
        Self { call, write, decode, neighbours, latent, max_splits, rows, tokens, params }
    }

    /// All tokens, or those in short runs, by splits.
    fn splits(&self) -> Result<()> {
        let AttentionParams { sizes, rows, units, splits, walkers, .. } = self.params;
        let together = if self.neighbours { NEIGHBOURS } else { 1 };
        // `attention_decode` and `attention_neighbours` write the result of a single split where it belongs.
        let kept = if self.decode.is_some() && splits == 1 { 0 } else { splits };
        let results = [self.tokens, together, units, rows, kept].map(|n| n as usize).iter().product::<usize>();
        let vectors = results * sizes.value_stride as usize * size_of::<f32>();
        let scratch = self.call.device.scratch([results * size_of::<[f32; 2]>(), vectors])?;
        match (&self.decode, &self.latent) {
            (Some(form), _) if self.neighbours => self.neighbours(form, &scratch)?,
            (Some(form), _) => self.decode(form, &scratch)?,
            (None, Some(kernel)) => self.latent(kernel, &scratch)?,
            (None, None) => self.split(&scratch)?,
        }
        if walkers == 1 { Ok(()) } else { self.combine(&scratch) }
    }

    /// Splits on tensor cores.
    fn decode(&self, form: &AttentionVariant, scratch: &Scratch<2>) -> Result<()> {
        let Self { call, write, params, .. } = self;
        let both = DecodeParams { attention: *params, kv_write: write.map_or_else(Default::default, Write::params) };
        let access = if write.is_some() { Access::ReadWrite } else { Access::Read };
        let norms = write.and_then(|write| write.norms).map(|norms| norms.weights);
        let [q_norm, k_norm] = norms.map_or([Arg::Null; 2], |both| both.map(|w| Arg::buffer(w, Access::Read)));
        let angles = Arg::optional(write.map(|write| &write.rotary.frequencies));
        let [keys, _, values, _] = call.cells(access);
        let [slots, positions, table] = call.ids();
        let q = Arg::read(call.q);
        let sinks = Arg::optional(call.options.sinks);
        let [out, exact, int8, bf16] = call.outputs();
        let [vectors, stats] = [VECTORS, STATS].map(|slice| scratch.arg(slice, Access::ReadWrite));
        let flag = call.device.flag();
        let ends = call.ends();
        let params = Arg::params(&both);
        let args = [
            q, q_norm, k_norm, angles, keys, values, slots, positions, table, sinks, out, exact, int8, bf16, vectors,
            stats, flag, ends, params,
        ];
        let kernel = Kernel { file: "attention_decode.cu", entry: "attention_decode", defines: &form.defines() };
        // A kernel that writes to the cache reads the cache before it waits for the kernel before it.
        let overlap = write.is_none() || call.cache.written < call.device.epoch();
        let launch = Launch::new(kernel, self.grid(), form.threads(), &args);
        call.device.launch(&Launch { shared: form.shared, overlap, ..launch })
    }

    /// Splits on tensor cores, of neighbours together.
    fn neighbours(&self, form: &AttentionVariant, scratch: &Scratch<2>) -> Result<()> {
        let Self { call, params, .. } = self;
        let [keys, _, values, _] = call.cells(Access::Read);
        let [slots, positions, table] = call.ids();
        let q = Arg::read(call.q);
        let sinks = Arg::optional(call.options.sinks);
        let [out, exact, int8, bf16] = call.outputs();
        let [vectors, stats] = [VECTORS, STATS].map(|slice| scratch.arg(slice, Access::ReadWrite));
        let flag = call.device.flag();
        let params = Arg::params(params);
        let args =
            [q, keys, values, slots, positions, table, sinks, out, exact, int8, bf16, vectors, stats, flag, params];
        let (file, entry) = ("attention_neighbours.cu", "attention_neighbours");
        let kernel = Kernel { file, entry, defines: &form.defines() };
        let launch = Launch::new(kernel, self.grid(), form.threads(), &args);
        // Results of two tokens at a time.
        call.device.launch(&Launch { shared: 2 * form.shared, ..launch })
    }

    /// Splits of any cache.
    fn split(&self, scratch: &Scratch<2>) -> Result<()> {
        let Self { call, params, rows: (rows, rows_define), .. } = self;
        let [keys, k_scales, values, v_scales] = call.cells(Access::Read);
        let [slots, positions, table] = call.ids();
        let q = Arg::read(call.q);
        let sinks = Arg::optional(call.options.sinks);
        let [out, exact, int8, bf16] = call.outputs();
        let [vectors, stats] = [VECTORS, STATS].map(|slice| scratch.arg(slice, Access::ReadWrite));
        let flag = call.device.flag();
        let ends = call.ends();
        let params_arg = Arg::params(params);
        let args = [
            q, keys, k_scales, values, v_scales, slots, positions, table, sinks, out, exact, int8, bf16, vectors,
            stats, flag, ends, params_arg,
        ];
        let defines = [("ROWS", *rows_define), cells_define(call.spec.format)];
        let kernel = Kernel { file: "attention_split.cu", entry: "attention_split", defines: &defines };
        let width = params.sizes.key_stride.max(params.sizes.value_stride);
        let launch = Launch::new(kernel, self.grid(), THREADS, &args);
        call.device.launch(&Launch { shared: rows * width * size_of::<f32>() as u32, ..launch })
    }

    /// Splits on tensor cores, of a cache whose values are in its keys.
    fn latent(&self, kernel: &RowKernel, scratch: &Scratch<2>) -> Result<()> {
        let Self { call, params, .. } = self;
        let [keys, ..] = call.cells(Access::Read);
        let [slots, positions, table] = call.ids();
        let q = Arg::read(call.q);
        let sinks = Arg::optional(call.options.sinks);
        let [out, exact, int8, bf16] = call.outputs();
        let [vectors, stats] = [VECTORS, STATS].map(|slice| scratch.arg(slice, Access::ReadWrite));
        let flag = call.device.flag();
        let params = Arg::params(params);
        let args = [q, keys, slots, positions, table, sinks, out, exact, int8, bf16, vectors, stats, flag, params];
        let (file, entry) = (kernel.file, kernel.file.trim_end_matches(".cu"));
        let kernel_of = Kernel { file, entry, defines: &kernel.split_defines() };
        let launch = Launch::new(kernel_of, self.grid(), kernel.threads, &args);
        call.device.launch(&Launch { shared: kernel.shared(), ..launch })
    }

    /// The grid of the kernels of splits.
    fn grid(&self) -> [u32; 3] {
        [self.tokens, self.params.units, self.params.walkers]
    }

    /// Joins the splits that several blocks have taken.
    fn combine(&self, scratch: &Scratch<2>) -> Result<()> {
        let Self { call, params, .. } = self;
        let [vectors, stats] = [VECTORS, STATS].map(|slice| scratch.arg(slice, Access::Read));
        let [slots, positions, _] = call.ids();
        let sinks = Arg::optional(call.options.sinks);
        let [out, exact, int8, bf16] = call.outputs();
        let params_arg = Arg::params(params);
        let args = [vectors, stats, slots, positions, sinks, out, exact, int8, bf16, call.ends(), params_arg];
        let sizes = params.sizes;
        let grid = [sizes.tokens, sizes.kv_heads * sizes.group, limit(call.spec.value_width.div_ceil(128))];
        let file = "attention_combine.cu";
        let entry = "attention_combine";
        let max_splits = self.max_splits.to_string();
        let kernel = Kernel { file, entry, defines: &[("MAX_SPLITS", &max_splits)] };
        call.device.launch(&Launch::new(kernel, grid, limit(self.max_splits / COMBINE_CHUNK * 32), &args))
    }

    /// All runs of [`LONG_RUN`] tokens and more.
    fn long_runs(&self, long: &RowKernel) -> Result<()> {
        let Self { call, params: AttentionParams { sizes, .. }, .. } = self;
        let tiles = sizes.tokens.div_ceil((long.rows / sizes.group).max(1));
        // This kernel has its own units.
        let mut params = AttentionParams { rows: 1, units: 1, walkers: 1, ..self.params };
        let out = match call.act {
            Some(act) => {
                params.sizes.out_stride = call.out.cols() as u64;
                act.storage.bf16(Access::Write)
            }
            None => Arg::write(call.out),
        };
        let [keys, _, values, _] = call.cells(Access::Read);
        let [slots, positions, table] = call.ids();
        let q = Arg::read(call.q);
        let sinks = Arg::optional(call.options.sinks);
        let flag = call.device.flag();
        let ends = call.ends();
        let params = Arg::params(&params);
        let cells = if call.spec.values_in_keys { vec![keys] } else { vec![keys, values] };
        let args = [vec![q], cells, vec![slots, positions, table, sinks, out, flag, ends, params]].concat();
        let defines = long.defines(call.act.is_some());
        let defines: Vec<_> = defines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let kernel = Kernel { file: long.file, entry: long.file.trim_end_matches(".cu"), defines: &defines };
        let grid = [tiles * sizes.kv_heads * sizes.group.div_ceil(long.rows), long.slices, 1];
        call.device.launch(&Launch { shared: long.shared(), ..Launch::new(kernel, grid, long.threads, &args) })
    }
}
