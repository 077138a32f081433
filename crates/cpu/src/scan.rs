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
/// Tokens whose B and C are copied, so that they are in the L1 cache for all tiles of a unit. Rows are often a multiple of
/// 4 KiB apart, where few of them stay in a cache.
const COPIED: usize = 16;
/// Tiles of values of a unit, at most.
const TILES: usize = 4;
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
        let mut copied = vec![0.0; run.rows.min(COPIED) * 2 * n];
        for start in (0..run.rows).step_by(COPIED) {
            let rows = start..run.rows.min(start + COPIED);
            for (row, copied) in rows.clone().zip(copied.chunks_exact_mut(2 * n)) {
                inputs.copy_b_and_c(run.first + row, first, copied);
            }
            for (tile, state) in state.chunks_exact_mut(n * SCAN_TILE).enumerate() {
                let values = Tile::<BY_ELEMENT>::new(inputs, first + tile * SCAN_TILE);
                let whole = rows.len() - rows.len() % TOKENS;
                for at in (0..whole).step_by(TOKENS) {
                    let mut tokens = [values.token(s, run.first + start + at, &copied[at * 2 * n..]); TOKENS];
                    for (i, token) in tokens.iter_mut().enumerate().skip(1) {
                        *token = values.token(s, run.first + start + at + i, &copied[(at + i) * 2 * n..]);
                    }
                    values.scan(s, state, &mut tokens);
                    for (i, token) in tokens.iter().enumerate() {
                        s.store_f32(token.sum, out.row(start + at + i), tile * SCAN_TILE);
                    }
                }
                for at in whole..rows.len() {
                    let mut token = [values.token(s, run.first + start + at, &copied[at * 2 * n..])];
                    values.scan(s, state, &mut token);
                    s.store_f32(token[0].sum, out.row(start + at), tile * SCAN_TILE);
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

/// [`SCAN_TILE`] values, and what they have in all tokens.
struct Tile<'a, const BY_ELEMENT: bool> {
    inputs: Inputs<'a>,
    first: usize,
    head_of: [usize; LANES],
    d: [f32; LANES],
    dt_bias: [f32; LANES],
    /// `a` of each state element, or only the first for all.
    decays: [[f32; LANES]; DECAYS],
}

/// One token of a tile of values.
#[derive(Clone, Copy)]
struct Token<'a, S: Simd> {
    /// e^(Δ·a); with a decay for each state element Δ.
    kept: S::F32,
    /// Δ · x.
    input: S::F32,
    b: &'a [f32],
    c: &'a [f32],
    /// The output so far.
    sum: S::F32,
}

impl<'a, const BY_ELEMENT: bool> Tile<'a, BY_ELEMENT> {
    fn new(inputs: Inputs<'a>, first: usize) -> Self {
        let Inputs { a, d, dt_bias, heads, .. } = inputs;
        let head_of = std::array::from_fn(|lane| (first + lane) / heads.width);
        let mut decays = [[0.0; LANES]; DECAYS];
        match BY_ELEMENT {
            true => (0..heads.state).for_each(|m| decays[m] = head_of.map(|head: usize| a[head * heads.state + m])),
            false => decays[0] = head_of.map(|head| a[head]),
        }
        Self {
            inputs,
            first,
            head_of,
            d: head_of.map(|head| d[head]),
            dt_bias: head_of.map(|head| dt_bias[head]),
            decays,
        }
    }

    #[inline(always)]
    fn token<'b, S: Simd>(&self, s: S, row: usize, b_and_c: &'b [f32]) -> Token<'b, S> {
        let Inputs { xbc, dt, heads, .. } = self.inputs;
        let (inputs, of_row) = (xbc.row(row), dt.row(row));
        let mut dt = [0.0; LANES];
        for (dt, head) in dt.iter_mut().zip(self.head_of) {
            *dt = of_row[head];
        }
        let delta = softplus(s, s.add(s.load_f32(&dt, 0), s.load_f32(&self.dt_bias, 0)));
        let kept = if BY_ELEMENT { delta } else { exp(s, s.mul(delta, s.load_f32(&self.decays[0], 0))) };
        let x = s.load_f32(inputs, self.first);
        let (b, c) = b_and_c[..2 * heads.state].split_at(heads.state);
        Token { kept, input: s.mul(delta, x), b, c, sum: s.mul(s.load_f32(&self.d, 0), x) }
    }

    /// Adds tokens to the state, and its elements to their sums.
    #[inline(always)]
    fn scan<S: Simd, const N: usize>(&self, s: S, state: &mut [f32], tokens: &mut [Token<'_, S>; N]) {
        for (m, state) in state.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let mut element = s.load_f32(state, 0);
            for token in tokens.iter_mut() {
                let kept =
                    if BY_ELEMENT { exp(s, s.mul(token.kept, s.load_f32(&self.decays[m], 0))) } else { token.kept };
                element = s.mul_add(token.input, s.splat(token.b[m]), s.mul(kept, element));
                token.sum = s.mul_add(element, s.splat(token.c[m]), token.sum);
            }
            s.store_f32(element, state, 0);
        }
    }
}

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
