//! Where the sequences of a case are in a paged cache, and what is written there.

use super::super::common::*;
use crate::guarded::buffer;
use crate::rng::Rng;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvCache, KvSpec, Placement};

/// Sequences in a cache.
#[derive(Clone)]
pub(in crate::ops) struct Layout {
    pub(super) spec: KvSpec,
    blocks: usize,
    pub(super) table_cols: usize,
    pub(super) table: Vec<u32>,
    pub(in crate::ops) lengths: Vec<usize>,
}

impl Layout {
    /// Sequences of these lengths on blocks in random order; table entries that nothing reaches are no block at all.
    pub(in crate::ops) fn new(rng: &mut Rng, spec: KvSpec, lengths: Vec<usize>) -> Self {
        let needed: usize = lengths.iter().map(|n| n.div_ceil(KV_BLOCK)).sum();
        let table_cols = lengths.iter().map(|n| n.div_ceil(KV_BLOCK)).max().unwrap_or(0) + 1;
        let blocks = needed + 3;
        let mut free = rng.shuffled(blocks).into_iter();
        let mut table = vec![u32::MAX; lengths.len() * table_cols];
        for (row, length) in table.chunks_exact_mut(table_cols).zip(&lengths) {
            row.iter_mut().zip(free.by_ref().take(length.div_ceil(KV_BLOCK))).for_each(|(to, block)| *to = block);
        }
        Self { spec, blocks, table_cols, table, lengths }
    }

    pub(in crate::ops) fn placement(&self, b: &Backend, tokens: &[(u32, u32)]) -> Placement {
        // Longer than needed, as a bucket's buffers are.
        let with_more = |values: &[u32]| buffer(b, &[values, &[77; 3]].concat());
        let (slots, positions): (Vec<_>, Vec<_>) = tokens.iter().copied().unzip();
        Placement {
            slots: with_more(&slots),
            positions: with_more(&positions),
            table: buffer(b, &self.table),
            table_rows: self.lengths.len(),
            table_cols: self.table_cols,
            context_columns: tokens
                .iter()
                .filter(|t| t.0 != u32::MAX)
                .map(|t| t.1 as usize / KV_BLOCK + 1)
                .max()
                .unwrap_or(0),
            runs: BatchRuns::of(&slots, &positions),
        }
    }

    /// Keys and values for every block, a tenth of them infinities and NaN.
    fn used(&self, seed: u64) -> (Layout, Written) {
        let all = Layout {
            table: (0..self.blocks as u32).collect(),
            lengths: vec![self.blocks * KV_BLOCK],
            table_cols: self.blocks,
            ..*self
        };
        let tokens: Vec<(u32, u32)> = (0..all.lengths[0]).map(|p| (0, p as u32)).collect();
        let written = all.written(&tokens, &mut Rng::new(seed), 0.1);
        (all, written)
    }

    /// A way to make caches of which every block has been used before, and left with infinities and NaN.
    pub(in crate::ops) fn used_cache(&self, seed: u64) -> impl Fn(&Backend) -> KvCache + use<> {
        let spec = self.spec;
        let blocks = self.blocks;
        let (all, written) = self.used(seed);
        move |b| {
            let mut cache = b.alloc_kv(spec, blocks).expect("alloc_kv");
            all.write(b, &mut cache, &written);
            cache
        }
    }

    /// Random keys and values of these (slot, position); this share of them is not finite.
    pub(in crate::ops) fn written(&self, tokens: &[(u32, u32)], rng: &mut Rng, wild: f64) -> Written {
        let KvSpec { heads, key_width, value_width, .. } = self.spec;
        let mut random = |width: usize| {
            let mut values = rng.normals(tokens.len() * heads * width);
            for value in values.iter_mut().filter(|_| wild > 0.0) {
                if rng.chance(wild) {
                    *value = rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
                }
            }
            values
        };
        let (keys, values) = (random(key_width), random(value_width));
        Written { tokens: tokens.to_vec(), keys, values }
    }

    /// Writes keys and values.
    pub(in crate::ops) fn write(&self, b: &Backend, cache: &mut KvCache, written: &Written) {
        let Written { tokens, keys, values } = written;
        let KvSpec { heads, key_width, value_width, .. } = self.spec;
        let keys = Guarded::of(b, keys, tokens.len(), heads * key_width, Guard::ODD);
        let values = Guarded::of(b, values, tokens.len(), heads * value_width, Guard::ODD);
        let v = (!self.spec.values_in_keys).then(|| values.view());
        b.run(KvWrite { cache, k: keys.view(), v, placement: &self.placement(b, tokens) }).expect("kv_write");
    }

    /// A way to make caches of which every block has been used before, and all tokens are written, in pieces.
    pub(super) fn filled(&self, seed: u64) -> impl Fn(&Backend) -> KvCache + use<> {
        let mut rng = Rng::new(seed ^ 1);
        let mut tokens = self.tokens();
        tokens.insert(tokens.len() / 2, (u32::MAX, 9));
        let pieces = tokens.chunks(rng.between(1, 60));
        let pieces: Vec<Written> = pieces.map(|piece| self.written(piece, &mut rng, 0.0)).collect();
        let layout = self.clone();
        let used = self.used_cache(seed);
        move |b| {
            let mut cache = used(b);
            pieces.iter().for_each(|piece| layout.write(b, &mut cache, piece));
            cache
        }
    }

    /// All tokens of all sequences, sequence after sequence.
    pub(in crate::ops) fn tokens(&self) -> Vec<(u32, u32)> {
        let of = |(slot, &n): (usize, &usize)| (0..n).map(move |p| (slot as u32, p as u32)).collect::<Vec<_>>();
        self.lengths.iter().enumerate().flat_map(of).collect()
    }
}

/// Keys and values that one operation writes. All backends of a case write the same data.
pub(in crate::ops) struct Written {
    tokens: Vec<(u32, u32)>,
    keys: Vec<f32>,
    values: Vec<f32>,
}
