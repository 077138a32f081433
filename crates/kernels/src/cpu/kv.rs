//! Keys and values in the cache: how attention reads them, and how a token's are written.

use crate::kv::{self, KV_BLOCK, KV_GROUP, KvCache, groups};
use crate::simd::Simd;
use half::f16;

/// Keys or values of a cache, or of one head of one block of it: what attention needs of a [`KvFormat`].
///
/// [`KvFormat`]: crate::kv::KvFormat
pub(crate) trait Cells: Copy + Send + Sync {
    /// The `index`-th (block, head) of a cache with this width.
    fn part(self, index: usize, width: usize) -> Self;
    /// What [`Self::key`] wants for the elements of a group of [`KV_GROUP`].
    fn key_scale<S: Simd>(self, s: S, group: usize) -> S::F32;
    /// Element `d` of the keys of 16 tokens.
    fn key<S: Simd>(self, s: S, d: usize, scale: S::F32) -> S::F32;
    /// 16 elements of a token's value, from `16 * column`.
    fn value<S: Simd>(self, s: S, width: usize, token: usize, column: usize) -> S::F32;
    /// Element `d` of a token's value.
    fn element(self, width: usize, token: usize, d: usize) -> f32;
}

/// [`kv::Cells::F16`].
#[derive(Clone, Copy)]
pub(crate) struct F16Cells<'a>(&'a [f16]);

impl<'a> F16Cells<'a> {
    /// The cells, if they are of this form and in host memory.
    pub(crate) fn of(cells: &'a kv::Cells) -> Option<Self> {
        match cells {
            kv::Cells::F16(cells) => Some(Self(cells.as_host()?)),
            kv::Cells::Q8_0 { .. } => None,
        }
    }
}

impl Cells for F16Cells<'_> {
    #[inline(always)]
    fn part(self, index: usize, width: usize) -> Self {
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
    fn value<S: Simd>(self, s: S, width: usize, token: usize, column: usize) -> S::F32 {
        s.load_f16(bytemuck::cast_slice(self.0), (token * width + 16 * column) * 2)
    }

    #[inline(always)]
    fn element(self, width: usize, token: usize, d: usize) -> f32 {
        self.0[token * width + d].to_f32()
    }
}

/// [`kv::Cells::Q8_0`].
#[derive(Clone, Copy)]
pub(crate) struct Q8Cells<'a> {
    codes: &'a [i8],
    scales: &'a [f16],
}

impl<'a> Q8Cells<'a> {
    /// The cells, if they are of this form and in host memory.
    pub(crate) fn of(cells: &'a kv::Cells) -> Option<Self> {
        match cells {
            kv::Cells::Q8_0 { codes, scales } => Some(Self { codes: codes.as_host()?, scales: scales.as_host()? }),
            kv::Cells::F16(_) => None,
        }
    }
}

impl Cells for Q8Cells<'_> {
    #[inline(always)]
    fn part(self, index: usize, width: usize) -> Self {
        let (codes, scales) = (width * KV_BLOCK, groups(width) * KV_BLOCK);
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
    fn value<S: Simd>(self, s: S, width: usize, token: usize, column: usize) -> S::F32 {
        let scale = self.scales[token * groups(width) + 16 * column / KV_GROUP];
        let codes = s.load_i8(bytemuck::cast_slice(self.codes), token * width + 16 * column);
        s.mul(s.to_f32(codes), s.splat(scale.to_f32()))
    }

    #[inline(always)]
    fn element(self, width: usize, token: usize, d: usize) -> f32 {
        let scale = self.scales[token * groups(width) + d / KV_GROUP];
        f32::from(self.codes[token * width + d]) * scale.to_f32()
    }
}

/// Where one token's elements of one head go: the first, and the step to the next.
struct Target {
    first: usize,
    step: usize,
}

/// Writes one token's keys and values into its block.
pub(crate) fn write(cache: &mut KvCache, block: usize, at: usize, k: &[f32], v: &[f32]) {
    let (heads, key_width, value_width) = (cache.spec.heads, cache.spec.key_width, cache.spec.value_width);
    for head in 0..heads {
        let index = block * heads + head;
        // Keys are transposed: the tokens of a block lie side by side.
        let key = |width: usize| Target { first: index * width * KV_BLOCK + at, step: KV_BLOCK };
        let value = |width: usize| Target { first: (index * KV_BLOCK + at) * width, step: 1 };
        put(&mut cache.keys, &k[head * key_width..][..key_width], &key);
        put(&mut cache.values, &v[head * value_width..][..value_width], &value);
    }
}

fn put(cells: &mut kv::Cells, x: &[f32], target: &dyn Fn(usize) -> Target) {
    let Target { first, step } = target(x.len());
    match cells {
        kv::Cells::F16(cells) => {
            let Some(cells) = cells.as_host_mut() else { return };
            for (d, &x) in x.iter().enumerate() {
                cells[first + d * step] = f16::from_f32(x);
            }
        }
        kv::Cells::Q8_0 { codes, scales } => {
            let (Some(codes), Some(scales)) = (codes.as_host_mut(), scales.as_host_mut()) else { return };
            let scale_target = target(groups(x.len()));
            for (group, x) in x.chunks(KV_GROUP).enumerate() {
                let (scale, quantised) = kv::quantise(x);
                scales[scale_target.first + group * scale_target.step] = scale;
                for (d, code) in (group * KV_GROUP..).zip(&quantised[..x.len()]) {
                    codes[first + d * step] = *code;
                }
            }
        }
    }
}
