//! The selective scan. The state elements of a value do not depend on each other, so a pass over the state adds several
//! tokens to each element before it stores the element. Each token's output has its own sum, over the elements in order:
//! a result does not depend on how a prompt is cut into chunks. Threads divide values.

use super::cpu::Cpu;
use super::host::{self, HostRows};
use super::math::{LANES, exp, softplus};
use super::out::RunColumns;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Operation, Run, SCAN_STATES, SCAN_TILE, ScanHeads, SelectiveScan};
use gristmill_kernels::simd::{Kernel, Simd};

/// Tokens of a pass over the state.
const TOKENS: usize = 4;
/// Tokens whose steps and copies of B and C are made at once. The copies are in the L1 cache for all tiles of a unit: rows
/// are often a multiple of 4 KiB apart, where few of them stay in a cache.
const CHUNK: usize = LANES;
/// Tiles of values of a unit, at most.
const TILES: usize = 8;
/// State elements that have a decay each, at most.
const DECAYS: usize = SCAN_STATES[0];

/// The arguments of a scan.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    xbc: HostRows<'a, f32>,
    dt: HostRows<'a, f32>,
    a: &'a [f32],
    d: &'a [f32],
    dt_bias: &'a [f32],
    heads: ScanHeads,
}

/// A run of the scan for adjacent tiles of [`SCAN_TILE`] values in a group; the values of a tile are the lanes of a vector.
/// `BY_ELEMENT`: each state element of a head has a decay.
struct ScanRun<'a, const BY_ELEMENT: bool> {
    inputs: Inputs<'a>,
    run: Run,
    tiles: usize,
    unit: RunColumns<'a>,
}

impl<const BY_ELEMENT: bool> Kernel for ScanRun<'_, BY_ELEMENT> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { inputs, run, tiles, unit } = self;
        let (state, mut out) = (unit.after, unit.out);
        match unit.before {
            Some(before) => state.copy_from_slice(before),
            None => state.fill(0.0),
        }
        let (n, first) = (inputs.heads.state, unit.index * tiles * SCAN_TILE);
        let mut copied = vec![0.0; run.rows.min(CHUNK) * 2 * n];
        let mut steps = Steps { head: None, delta: [[0.0; LANES]; CHUNK], kept: [[0.0; LANES]; CHUNK] };
        let mut sums = [[0.0; LANES]; CHUNK];
        for start in (0..run.rows).step_by(CHUNK) {
            let rows = CHUNK.min(run.rows - start);
            for (i, copied) in copied.chunks_exact_mut(2 * n).take(rows).enumerate() {
                inputs.copy_b_and_c(run.first + start + i, first, copied);
            }
            steps.head = None;
            for (index, state) in state.chunks_exact_mut(n * SCAN_TILE).enumerate() {
                let tile = Tile::<BY_ELEMENT>::new(inputs, run.first + start, first + index * SCAN_TILE);
                steps.fill::<S, BY_ELEMENT>(s, &tile, rows);
                let whole = rows - rows % TOKENS;
                for at in (0..whole).step_by(TOKENS) {
                    tile.pass::<S, TOKENS>(s, state, &steps, &copied, at, &mut sums);
                }
                for at in whole..rows {
                    tile.pass::<S, 1>(s, state, &steps, &copied, at, &mut sums);
                }
                for (i, sums) in sums[..rows].iter().enumerate() {
                    out.row(start + i)[index * SCAN_TILE..][..SCAN_TILE].copy_from_slice(sums);
                }
            }
        }
    }
}

impl Inputs<'_> {
    /// Copies B and C of the group of a value.
    fn copy_b_and_c(&self, row: usize, value: usize, to: &mut [f32]) {
        let ScanHeads { groups, state: n, .. } = self.heads;
        let group = self.heads.group_of(value);
        let (b, c) = self.xbc.row(row)[self.heads.values()..].split_at(groups * n);
        to[..n].copy_from_slice(&b[group * n..][..n]);
        to[n..].copy_from_slice(&c[group * n..][..n]);
    }
}

/// [`SCAN_TILE`] values of a chunk.
struct Tile<'a, const BY_ELEMENT: bool> {
    inputs: Inputs<'a>,
    /// The first token of the chunk.
    row: usize,
    /// The first value.
    first: usize,
    head_of: [usize; LANES],
    d: [f32; LANES],
    /// With a decay for each state element, these.
    decays: [[f32; LANES]; DECAYS],
}

/// Δ and the kept part of the state, for each token of a chunk and each lane of a tile.
struct Steps {
    /// The head of all lanes.
    head: Option<usize>,
    delta: [[f32; LANES]; CHUNK],
    /// e^(Δ·a). With a decay for each state element it is unused.
    kept: [[f32; LANES]; CHUNK],
}

impl Steps {
    /// Makes the steps of a tile. If all its lanes have one head, the lanes of a vector are tokens, and the next tile of the
    /// head has the same steps.
    #[inline(always)]
    fn fill<S: Simd, const BY_ELEMENT: bool>(&mut self, s: S, tile: &Tile<BY_ELEMENT>, rows: usize) {
        let Inputs { a, dt, dt_bias, heads, .. } = tile.inputs;
        let decay = |head: usize| if BY_ELEMENT { 0.0 } else { a[head] };
        let head = tile.head_of[0];
        if !heads.width.is_multiple_of(SCAN_TILE) {
            let (bias, decay) = (tile.head_of.map(|head| dt_bias[head]), tile.head_of.map(decay));
            for i in 0..rows {
                let row = dt.row(tile.row + i);
                let dt = tile.head_of.map(|head| row[head]);
                (self.delta[i], self.kept[i]) = step::<S, BY_ELEMENT>(s, &dt, &bias, &decay);
            }
        } else if self.head.replace(head) != Some(head) {
            let mut of_tokens = [0.0; LANES];
            for (i, of_token) in of_tokens[..rows].iter_mut().enumerate() {
                *of_token = dt.row(tile.row + i)[head];
            }
            let (bias, decay) = ([dt_bias[head]; LANES], [decay(head); LANES]);
            let (delta, kept) = step::<S, BY_ELEMENT>(s, &of_tokens, &bias, &decay);
            for i in 0..rows {
                (self.delta[i], self.kept[i]) = ([delta[i]; LANES], [kept[i]; LANES]);
            }
        }
    }
}

/// Δ and e^(Δ·a).
#[inline(always)]
fn step<S: Simd, const BY_ELEMENT: bool>(
    s: S,
    dt: &[f32; LANES],
    bias: &[f32; LANES],
    a: &[f32; LANES],
) -> ([f32; LANES], [f32; LANES]) {
    let delta = softplus(s, s.add(s.load_f32(dt, 0), s.load_f32(bias, 0)));
    let kept = if BY_ELEMENT { delta } else { exp(s, s.mul(delta, s.load_f32(a, 0))) };
    (s.to_array(delta), s.to_array(kept))
}

impl<'a, const BY_ELEMENT: bool> Tile<'a, BY_ELEMENT> {
    fn new(inputs: Inputs<'a>, row: usize, first: usize) -> Self {
        let Inputs { a, d, heads, .. } = inputs;
        let head_of = std::array::from_fn(|lane| (first + lane) / heads.width);
        let mut decays = [[0.0; LANES]; DECAYS];
        if BY_ELEMENT {
            (0..heads.state).for_each(|m| decays[m] = head_of.map(|head: usize| a[head * heads.state + m]));
        }
        Self { inputs, row, first, head_of, d: head_of.map(|head| d[head]), decays }
    }

    /// Adds `N` tokens to the state, and its elements to their outputs.
    #[inline(always)]
    fn pass<S: Simd, const N: usize>(
        &self,
        s: S,
        state: &mut [f32],
        steps: &Steps,
        copied: &[f32],
        at: usize,
        sums: &mut [[f32; LANES]; CHUNK],
    ) {
        let n = self.inputs.heads.state;
        let [mut kept, mut input, mut sum] = [[s.splat(0.0); N]; 3];
        let [mut b, mut c] = [[&copied[..0]; N]; 2];
        for i in 0..N {
            let x = s.load_f32(self.inputs.xbc.row(self.row + at + i), self.first);
            let delta = s.load_f32(&steps.delta[at + i], 0);
            kept[i] = if BY_ELEMENT { delta } else { s.load_f32(&steps.kept[at + i], 0) };
            input[i] = s.mul(delta, x);
            sum[i] = s.mul(s.load_f32(&self.d, 0), x);
            (b[i], c[i]) = copied[(at + i) * 2 * n..][..2 * n].split_at(n);
        }
        for (m, state) in state.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let mut element = s.load_f32(state, 0);
            for i in 0..N {
                let kept = if BY_ELEMENT { exp(s, s.mul(kept[i], s.load_f32(&self.decays[m], 0))) } else { kept[i] };
                element = s.mul_add(input[i], s.splat(b[i][m]), s.mul(kept, element));
                sum[i] = s.mul_add(element, s.splat(c[i][m]), sum[i]);
            }
            s.store_f32(element, state, 0);
        }
        for i in 0..N {
            s.store_f32(sum[i], &mut sums[at + i], 0);
        }
    }
}

on_cpu! { selective_scan_rows(SelectiveScan); }

impl Cpu {
    pub(super) fn selective_scan_rows(&self, call: SelectiveScan) -> Result<()> {
        match call.has_element_decays() {
            true => self.selective_scan::<true>(call),
            false => self.selective_scan::<false>(call),
        }
    }

    fn selective_scan<const BY_ELEMENT: bool>(&self, call: SelectiveScan) -> Result<()> {
        const OP: &str = SelectiveScan::NAME;
        let SelectiveScan { xbc, dt, a, d, dt_bias, heads, mut state, runs, mut out } = call;
        let (xbc, dt) = (host::rows(OP, xbc)?, host::rows(OP, dt)?);
        let (a, d, dt_bias) = (host::slice(OP, a)?, host::slice(OP, d)?, host::slice(OP, dt_bias)?);
        let inputs = Inputs { xbc, dt, a, d, dt_bias, heads };
        let runs: Vec<Run> = runs.of_host().into_iter().flatten().collect();
        let (state, out) = (host::rows_mut(OP, &mut state)?, host::rows_mut(OP, &mut out)?);
        // Tiles share B and C, but each thread must get several units.
        let (all, of_group) = (heads.values() / SCAN_TILE, heads.values() / heads.groups / SCAN_TILE);
        let enough =
            |tiles: usize| of_group.is_multiple_of(tiles) && runs.len() * all >= 4 * self.pool.threads() * tiles;
        let tiles = (2..=TILES).rev().find(|&tiles| enough(tiles)).unwrap_or(1);
        self.pool.each_unit(&runs, &state, &out, all / tiles, &|run, unit| {
            self.level.run(ScanRun::<BY_ELEMENT> { inputs, run, tiles, unit });
        });
        Ok(())
    }
}
