//! Products of two groups of 16 weight rows with many activation rows that are floats.
//!
//! Rows of activations start at addresses that are far apart, often by a power of two: those of a panel share few sets of the L1
//! cache, and no prefetcher follows 64 of them. *Packed* rows are a copy in the order in which panels read them, made once for many
//! row groups. Eight rows have a sum for each of two groups, so each element is loaded for two products. *Sums are added in the
//! order of [`float`](super::float), so a row has the same bits with few rows and with many.*

use super::super::cuts::TOKEN_BLOCK;
use super::super::layout::{Lanes, ROWS};
use super::float::{Element, HALF, Product, Steps};
use gristmill_kernels::simd::{Kernel, Simd};

/// Two sums of each row, of two groups.
pub(super) type PairSums = [[[Lanes; 2]; TOKEN_BLOCK]; 2];

/// A copy of up to [`TOKEN_BLOCK`] activation rows: of each [`HALF`] of a panel all rows, one after another.
pub(crate) struct PackedRows<T> {
    halves: Vec<[T; HALF]>,
    rows: usize,
}

impl<T: Copy + Default> PackedRows<T> {
    pub(crate) fn new(rows: &[&[T]]) -> Self {
        let rows = &rows[..rows.len().min(TOKEN_BLOCK)];
        let steps = rows.first().map_or(0, |row| row.len());
        let mut halves = vec![[T::default(); HALF]; steps.div_ceil(HALF) * rows.len()];
        for (half, of_rows) in halves.chunks_exact_mut(rows.len().max(1)).enumerate() {
            for (packed, row) in of_rows.iter_mut().zip(rows) {
                let elements = &row[half * HALF..steps.min((half + 1) * HALF)];
                packed[..elements.len()].copy_from_slice(elements);
            }
        }
        Self { halves, rows: rows.len() }
    }

    /// All rows of a half; of one that no step has, nothing.
    #[inline(always)]
    fn half(&self, index: usize) -> &[[T; HALF]] {
        self.halves.get(index * self.rows..(index + 1) * self.rows).unwrap_or(&[])
    }
}

/// Two row groups of the same columns times packed rows.
pub(super) struct PairDot<'a, K: Steps> {
    pub(super) groups: [&'a [u8]; 2],
    pub(super) rows: &'a PackedRows<Element<K>>,
    pub(super) out: [&'a mut [Lanes]; 2],
}

impl<K: Steps> Kernel for PairDot<'_, K>
where
    Element<K>: Default,
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let steps = K::count(self.groups[0]);
        let proof = K::proof(s);
        let mut panels = [[K::zero(s); 2 * HALF]; 2];
        let mut sums: PairSums = [[[[0.0; ROWS]; 2]; TOKEN_BLOCK]; 2];
        for first in (0..steps).step_by(2 * HALF) {
            let len = (2 * HALF).min(steps - first);
            for (group, panel) in self.groups.iter().zip(&mut panels) {
                K::unpack(s, group, first, &mut panel[..len]);
            }
            let rows = [first / HALF, first / HALF + 1].map(|half| self.rows.half(half));
            K::multiply_pair(s, proof, [&panels[0][..len], &panels[1][..len]], rows, &mut sums);
        }
        for (out, sums) in self.out.into_iter().zip(&sums) {
            for (out, sums) in out.iter_mut().zip(sums) {
                s.store_f32(s.add(s.load_f32(&sums[0], 0), s.load_f32(&sums[1], 0)), out, 0);
            }
        }
    }
}

/// sums += products of two panels with all rows.
#[inline(always)]
pub(super) fn multiply<P: Product, S: Simd>(
    s: S,
    proof: P::Proof<S>,
    panels: [&[P::Weights<S>]; 2],
    rows: [&[[P::Element; HALF]]; 2],
    sums: &mut PairSums,
) {
    let halves = panels.map(|panel| panel.split_at(panel.len().min(HALF)));
    let halves = [halves.map(|(low, _)| low), halves.map(|(_, high)| high)];
    for (half, (steps, rows)) in halves.into_iter().zip(rows).enumerate() {
        let mut row = 0;
        while row < rows.len() {
            let rest = &rows[row..];
            row += if const { S::TOKENS >= 16 } && rest.len() >= 8 {
                add::<P, S, 8, 2>(s, proof, steps, rest, &mut sums[..], [row, half])
            } else {
                // Fewer registers have sums of one group at a time.
                let mut done = 0;
                for (steps, sums) in steps.into_iter().zip(&mut *sums) {
                    let sums = std::slice::from_mut(sums);
                    done = if const { S::TOKENS >= 6 } && rest.len() >= 6 {
                        add::<P, S, 6, 1>(s, proof, [steps], rest, sums, [row, half])
                    } else if rest.len() >= 4 {
                        add::<P, S, 4, 1>(s, proof, [steps], rest, sums, [row, half])
                    } else {
                        add::<P, S, 1, 1>(s, proof, [steps], rest, sums, [row, half])
                    };
                }
                done
            };
        }
    }
}

/// One of the sums of `N` rows, of each of `V` groups, += products of half a panel. `at` is the first row and the sum's index.
/// Returns `N`.
#[inline(always)]
fn add<P: Product, S: Simd, const N: usize, const V: usize>(
    s: S,
    proof: P::Proof<S>,
    steps: [&[P::Weights<S>]; V],
    rows: &[[P::Element; HALF]],
    sums: &mut [[[Lanes; 2]; TOKEN_BLOCK]],
    at: [usize; 2],
) -> usize {
    let [row, half] = at;
    // Lengths that the compiler knows, so that the loop has no bounds checks.
    let len = steps[0].len().min(HALF);
    let steps = steps.map(|steps| &steps[..len]);
    let Some((rows, _)) = rows.split_first_chunk::<N>() else { return N };
    let mut kept = [[s.splat(0.0); V]; N];
    for t in 0..N {
        for v in 0..V {
            kept[t][v] = s.load_f32(&sums[v][row + t][half], 0);
        }
    }
    for k in 0..len {
        for t in 0..N {
            for v in 0..V {
                kept[t][v] = P::add(s, proof, kept[t][v], &steps[v][k], rows[t][k]);
            }
        }
    }
    for t in 0..N {
        for v in 0..V {
            s.store_f32(kept[t][v], &mut sums[v][row + t][half], 0);
        }
    }
    N
}
