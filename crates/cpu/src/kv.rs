//! The KV cache: reads by attention, writes of new tokens, and block copies.
//!
//! # Keys and values have 16 or 8 bits
//!
//! A trait defines what attention needs of a cache (`cpu/src/kv.rs`), so the CPU has one flash attention.

use super::cpu::{Cpu, DEVICE};
use super::host;
use super::operation::OnCpu;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::kv::{KV_BLOCK, KV_GROUP, KvCache, KvFormat, KvSpec, Placement, quantise, scale_groups};
use gristmill_kernels::ops::{Checked, KvCopy, KvWrite, Operation, PADDING, elements};
use gristmill_kernels::simd::Simd;
use gristmill_kernels::storage::Storage;
use gristmill_kernels::tensor::zeroed;
use half::f16;

/// The keys or the values of a cache. The order of key elements is block, head, element, token, so 16 tokens fill 16
/// lanes. The order of value elements is block, head, token, element. Scales have the same order, with one scale for
/// each group of [`KV_GROUP`] elements.
#[derive(Debug)]
pub(super) enum KvData {
    /// [`KvFormat::F16`].
    F16(Vec<f16>),
    /// [`KvFormat::Q8_0`].
    Q8_0 {
        /// One byte per element.
        codes: Vec<i8>,
        /// One scale per group of a key or value.
        scales: Vec<f16>,
    },
}

impl KvData {
    fn zeroed(spec: KvSpec, blocks: usize, width: usize) -> Result<Self> {
        let what = "the KV cache";
        let count = |width: usize| elements(what, &[blocks, spec.heads, width, KV_BLOCK]);
        Ok(match spec.format {
            KvFormat::F16 => Self::F16(zeroed(count(width)?, what)?),
            KvFormat::Q8_0 => {
                Self::Q8_0 { codes: zeroed(count(width)?, what)?, scales: zeroed(count(scale_groups(width))?, what)? }
            }
        })
    }

    /// Copies whole blocks of a cache that has `all` blocks.
    fn copy(&mut self, all: usize, blocks: &[(u32, u32)]) {
        fn copy<T: Copy>(data: &mut [T], all: usize, blocks: &[(u32, u32)]) {
            let len = data.len() / all.max(1);
            for &(from, to) in blocks {
                let from = from as usize * len;
                data.copy_within(from..from + len, to as usize * len);
            }
        }
        match self {
            Self::F16(data) => copy(data, all, blocks),
            Self::Q8_0 { codes, scales } => {
                copy(codes, all, blocks);
                copy(scales, all, blocks);
            }
        }
    }
}

/// The CPU's storage of a [`KvCache`].
#[derive(Debug)]
pub(super) struct CpuKv {
    pub(super) keys: KvData,
    pub(super) values: KvData,
}

/// See [`gristmill_kernels::Backend::alloc_kv`].
pub(super) fn new_cache(spec: KvSpec, blocks: usize) -> Result<KvCache> {
    let keys = KvData::zeroed(spec, blocks, spec.key_width)?;
    let values = KvData::zeroed(spec, blocks, spec.stored_value_width())?;
    Ok(KvCache::new(DEVICE, spec, blocks, Storage::new(CpuKv { keys, values })))
}

impl OnCpu for KvCopy<'_> {
    fn run(call: Checked<Self>, _cpu: &Cpu) -> Result<()> {
        copy(call.into_inner())
    }
}

fn copy(call: KvCopy) -> Result<()> {
    let KvCopy { cache, blocks } = call;
    let all = cache.blocks();
    let CpuKv { keys, values } = cache.storage_mut(KvCopy::NAME)?;
    keys.copy(all, blocks);
    values.copy(all, blocks);
    Ok(())
}

impl OnCpu for KvWrite<'_> {
    fn run(call: Checked<Self>, _cpu: &Cpu) -> Result<()> {
        write(call.into_inner())
    }
}

fn write(call: KvWrite) -> Result<()> {
    let KvWrite { cache, k, v, placement } = call;
    let (tokens, spec) = (k.rows(), cache.spec());
    let (k, v) = (host::rows(KvWrite::NAME, k)?, v.map(|v| host::rows(KvWrite::NAME, v)).transpose()?);
    let HostPlacement { slots, positions, table } = HostPlacement::new(KvWrite::NAME, placement)?;
    let cache: &mut CpuKv = cache.storage_mut(KvWrite::NAME)?;
    for token in (0..tokens).filter(|&token| slots[token] != PADDING) {
        let position = positions[token] as usize;
        let block = table[slots[token] as usize * placement.table_cols + position / KV_BLOCK] as usize;
        let v = v.as_ref().map(|v| v.row(token));
        write_token(cache, spec, block, position % KV_BLOCK, k.row(token), v);
    }
    Ok(())
}

/// The lists of a [`Placement`].
pub(super) struct HostPlacement<'a> {
    pub(super) slots: &'a [u32],
    pub(super) positions: &'a [u32],
    pub(super) table: &'a [u32],
}

impl<'a> HostPlacement<'a> {
    pub(super) fn new(op: &'static str, placement: &'a Placement) -> Result<Self> {
        let list = |list| host::slice(op, list);
        Ok(Self {
            slots: list(&placement.slots)?,
            positions: list(&placement.positions)?,
            table: list(&placement.table)?,
        })
    }
}

/// Keys or values of a cache, or of one (block, head), in one [`KvFormat`].
pub(super) trait Cells: Values + Send + Sync {
    /// The `index`-th (block, head) of a cache with this width.
    fn head_block(self, index: usize, width: usize) -> Self;
    /// The `scale` of [`Self::key`] for a group of [`KV_GROUP`] elements.
    fn key_scale<S: Simd>(self, s: S, group: usize) -> S::F32;
    /// Element `d` of the keys of 16 tokens.
    fn key<S: Simd>(self, s: S, d: usize, scale: S::F32) -> S::F32;
    /// Element `d` of a token's value.
    fn element(self, width: usize, token: usize, d: usize) -> f32;
}

/// Values of one (block, head), token by token.
pub(super) trait Values: Copy {
    /// 16 elements of a token's value, from `16 * column`.
    fn value<S: Simd>(self, s: S, width: usize, token: usize, column: usize) -> S::F32;
}

/// [`KvData::F16`].
#[derive(Clone, Copy)]
pub(super) struct F16Cells<'a>(&'a [f16]);

impl<'a> F16Cells<'a> {
    /// The cells of this format.
    pub(super) fn of(op: &'static str, data: &'a KvData) -> Result<Self> {
        match data {
            KvData::F16(data) => Ok(Self(data)),
            KvData::Q8_0 { .. } => Err(Error::ForeignLayout { op, what: "a KV cache" }),
        }
    }
}

impl Cells for F16Cells<'_> {
    #[inline(always)]
    fn head_block(self, index: usize, width: usize) -> Self {
        Self(&self.0[index * width * KV_BLOCK..][..width * KV_BLOCK])
    }

    #[inline(always)]
    fn key_scale<S: Simd>(self, s: S, _group: usize) -> S::F32 {
        s.splat(1.0)
    }

    #[inline(always)]
    fn key<S: Simd>(self, s: S, d: usize, _scale: S::F32) -> S::F32 {
        s.load_f16(bytemuck::cast_slice(self.0), d * KV_BLOCK * 2)
    }

    #[inline(always)]
    fn element(self, width: usize, token: usize, d: usize) -> f32 {
        self.0[token * width + d].to_f32()
    }
}

impl Values for F16Cells<'_> {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, width: usize, token: usize, column: usize) -> S::F32 {
        s.load_f16(bytemuck::cast_slice(self.0), (token * width + 16 * column) * 2)
    }
}

/// [`KvData::Q8_0`].
#[derive(Clone, Copy)]
pub(super) struct Q8Cells<'a> {
    codes: &'a [i8],
    scales: &'a [f16],
}

impl<'a> Q8Cells<'a> {
    /// The cells of this format.
    pub(super) fn of(op: &'static str, data: &'a KvData) -> Result<Self> {
        match data {
            KvData::Q8_0 { codes, scales } => Ok(Self { codes, scales }),
            KvData::F16(_) => Err(Error::ForeignLayout { op, what: "a KV cache" }),
        }
    }
}

impl Cells for Q8Cells<'_> {
    #[inline(always)]
    fn head_block(self, index: usize, width: usize) -> Self {
        let codes = width * KV_BLOCK;
        let scales = scale_groups(width) * KV_BLOCK;
        Self { codes: &self.codes[index * codes..][..codes], scales: &self.scales[index * scales..][..scales] }
    }

    #[inline(always)]
    fn key_scale<S: Simd>(self, s: S, group: usize) -> S::F32 {
        s.load_f16(bytemuck::cast_slice(self.scales), group * KV_BLOCK * 2)
    }

    #[inline(always)]
    fn key<S: Simd>(self, s: S, d: usize, scale: S::F32) -> S::F32 {
        s.mul(s.to_f32(s.load_i8(bytemuck::cast_slice(self.codes), d * KV_BLOCK)), scale)
    }

    #[inline(always)]
    fn element(self, width: usize, token: usize, d: usize) -> f32 {
        let scale = self.scales[token * scale_groups(width) + d / KV_GROUP];
        f32::from(self.codes[token * width + d]) * scale.to_f32()
    }
}

impl Values for Q8Cells<'_> {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, width: usize, token: usize, column: usize) -> S::F32 {
        let scale = self.scales[token * scale_groups(width) + 16 * column / KV_GROUP];
        let codes = s.load_i8(bytemuck::cast_slice(self.codes), token * width + 16 * column);
        s.mul(s.to_f32(codes), s.splat(scale.to_f32()))
    }
}

/// 16 columns of the values of a block, copied. Beyond the width of the values they are anything.
pub(super) struct ValueTile([[f32; 16]; KV_BLOCK]);

impl ValueTile {
    /// The columns from `16 * column` of one (block, head), for a cache whose values are the first elements of its
    /// keys.
    #[inline(always)]
    pub(super) fn of_keys<C: Cells, S: Simd>(s: S, keys: C, key_width: usize, column: usize) -> Self {
        let first = 16 * column;
        let mut tokens = [[0.0; 16]; KV_BLOCK];
        // The columns share a scale.
        let scale = keys.key_scale(s, first / KV_GROUP);
        for (d, column) in (first..key_width.min(first + 16)).enumerate() {
            let of_tokens = s.to_array(keys.key(s, column, scale));
            for (token, x) in tokens.iter_mut().zip(of_tokens) {
                token[d] = x;
            }
        }
        Self(tokens)
    }

    /// The last columns of one (block, head), for a width that is not a multiple of 16.
    #[inline(always)]
    pub(super) fn of_last<C: Cells, S: Simd>(s: S, values: C, width: usize) -> Self {
        let (column, first) = (width / 16, width / 16 * 16);
        let mut tokens = [[0.0; 16]; KV_BLOCK];
        for (t, token) in tokens.iter_mut().enumerate() {
            // A row of 16 ends in the next token's value, and for the last tokens beyond the block.
            if t * width + first + 16 <= width * KV_BLOCK {
                s.store_f32(values.value(s, width, t, column), token, 0);
            } else {
                token.iter_mut().zip(first..width).for_each(|(x, d)| *x = values.element(width, t, d));
            }
        }
        Self(tokens)
    }
}

impl Values for &ValueTile {
    #[inline(always)]
    fn value<S: Simd>(self, s: S, _width: usize, token: usize, _column: usize) -> S::F32 {
        s.load_f32(&self.0[token], 0)
    }
}

/// Indices of one token's elements in one head: the first index, and the stride.
struct Target {
    first: usize,
    step: usize,
}

/// Writes one token's keys and values into its block.
fn write_token(cache: &mut CpuKv, spec: KvSpec, block: usize, at: usize, k: &[f32], v: Option<&[f32]>) {
    let KvSpec { heads, key_width, value_width, .. } = spec;
    for head in 0..heads {
        let index = block * heads + head;
        // Keys are transposed: the tokens of a block are contiguous.
        let key = |width: usize| Target { first: index * width * KV_BLOCK + at, step: KV_BLOCK };
        let value = |width: usize| Target { first: (index * KV_BLOCK + at) * width, step: 1 };
        put(&mut cache.keys, &k[head * key_width..][..key_width], &key);
        if let Some(v) = v {
            put(&mut cache.values, &v[head * value_width..][..value_width], &value);
        }
    }
}

fn put(data: &mut KvData, x: &[f32], target: &dyn Fn(usize) -> Target) {
    let Target { first, step } = target(x.len());
    match data {
        KvData::F16(data) => {
            for (d, &x) in x.iter().enumerate() {
                data[first + d * step] = f16::from_f32(x);
            }
        }
        KvData::Q8_0 { codes, scales } => {
            let scale_target = target(scale_groups(x.len()));
            for (group, x) in x.chunks(KV_GROUP).enumerate() {
                let (scale, quantised) = quantise(x);
                scales[scale_target.first + group * scale_target.step] = scale;
                for (d, code) in (group * KV_GROUP..).zip(&quantised[..x.len()]) {
                    codes[first + d * step] = *code;
                }
            }
        }
    }
}
