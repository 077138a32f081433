//! Sampling of one token per row of logits, with sums in f64.
//!
//! The order is that of [`Sampling`]: mask, bias, penalties, temperature, top-k, top-p, min-p, sample. A token is
//! sampled by inverting the cumulative distribution **in the order of token ids**. This needs no sort and is equal on
//! every device.

use super::candidate::Candidate;
use super::cpu::Cpu;
use super::host;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Argmax, Operation, PADDING, Sample, Sampling};
use std::cmp::Ordering;
use std::sync::{MutexGuard, PoisonError};

/// Exponent below which a token is dropped: e^−44.4 is 2⁻⁶⁴ of the largest probability.
const NEGLIGIBLE: f64 = 44.4;

/// A total order: the larger logit first, then the smaller token id; NaN last.
fn rank(a: &Candidate, b: &Candidate) -> Ordering {
    let by_logit = b.logit.partial_cmp(&a.logit).unwrap_or_else(|| a.logit.is_nan().cmp(&b.logit.is_nan()));
    by_logit.then(a.token.cmp(&b.token))
}

fn allowed(mask: Option<&[u32]>, token: usize) -> bool {
    mask.is_none_or(|m| m[token / 32] >> (token % 32) & 1 == 1)
}

on_cpu! {
    argmax_rows(Argmax): x, out;
    sample_rows(Sample): logits, out;
}

impl Cpu {
    pub(super) fn argmax_rows(&self, call: Argmax) -> Result<()> {
        let Argmax { x, mut out } = call;
        let cols = x.cols();
        let x = host::rows(Argmax::NAME, x)?;
        let out = host::rows_mut(Argmax::NAME, &mut out)?;
        self.each_row(out, cols, &|row, out| {
            let x = x.row(row);
            out.fill(if all_finite(x) { argmax(x) } else { PADDING });
        });
        Ok(())
    }

    /// [`Sample`]: each thread samples whole rows.
    pub(super) fn sample_rows(&self, call: Sample) -> Result<()> {
        let Sample { mut logits, parameters, mut out } = call;
        let cols = logits.cols();
        let rows = (host::rows_mut(Sample::NAME, &mut logits)?, host::rows_mut(Sample::NAME, &mut out)?);
        self.each_row(rows, cols, &|row, (logits, out)| {
            let mut scratch = self.scratch().pop().unwrap_or_default();
            out.fill(sample_row(logits, &parameters[row], &mut scratch));
            self.scratch().push(scratch);
        });
        Ok(())
    }

    fn scratch(&self) -> MutexGuard<'_, Vec<Vec<Candidate>>> {
        self.candidates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether all values are finite. There is no early exit, so the loop vectorises: 0.02 ms for a vocabulary of 151,936.
fn all_finite(values: &[f32]) -> bool {
    let exponent = f32::INFINITY.to_bits();
    values.iter().fold(0, |largest, x| (x.to_bits() & exponent).max(largest)) < exponent
}

/// Index of the largest value, the smaller index on a tie. NaN is the smallest. 0 without values.
///
/// The first pass finds the value in vector lanes, the second pass finds its index. A comparison that carries the index
/// would wait for the preceding one.
fn argmax(values: &[f32]) -> u32 {
    const LANES: usize = 64;
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for part in values.chunks(LANES) {
        lanes.iter_mut().zip(part).for_each(|(lane, &value)| *lane = larger(*lane, value));
    }
    let max = lanes.into_iter().fold(f32::NEG_INFINITY, larger);
    let has = |part: &[f32]| part.iter().fold(false, |has, &value| has | (value == max));
    let Some(part) = values.chunks(LANES).position(has) else { return 0 };
    let start = part * LANES;
    values[start..].iter().position(|&value| value == max).map_or(0, |at| (start + at) as u32)
}

/// Draws a token, [`PADDING`] if a logit is not finite. Leaves the logits masked (−∞), biased and penalised. The
/// parameters must have passed the checks of [`gristmill_kernels::ops::Backend::sample`].
fn sample_row(logits: &mut [f32], sampling: &Sampling, scratch: &mut Vec<Candidate>) -> u32 {
    let p = &sampling.options;
    let finite = all_finite(logits);
    adjust(logits, sampling);
    if !finite {
        return PADDING;
    }
    let greedy = argmax(logits);
    let max = logits[greedy as usize];
    // A masked logit is −∞ and ranks above an allowed NaN: if no logit is above −∞, the mask decides.
    if max.is_nan() || max == f32::NEG_INFINITY {
        let candidates = (0..logits.len()).filter(|&i| allowed(sampling.mask, i));
        let best = candidates.map(|i| Candidate { logit: logits[i], token: i as u32 }).min_by(rank);
        return best.map_or(greedy, |c| c.token);
    }
    if p.temperature == 0.0 {
        return greedy;
    }

    let temperature = f64::from(p.temperature);
    // The difference of equal infinities is NaN. All other values are finite, or −∞ or NaN.
    let exponent = |logit: f32| if logit == max { 0.0 } else { (f64::from(logit) - f64::from(max)) / temperature };
    let share = |c: &Candidate| exponent(c.logit).exp();

    scratch.clear();
    // The largest logit always stays: a temperature near 0 can round the difference away.
    let least = f64::from(max) - NEGLIGIBLE * temperature;
    let all = logits.iter().zip(0_u32..).map(|(&logit, token)| Candidate { logit, token });
    scratch.extend(all.filter(|c| f64::from(c.logit) >= least));
    if p.top_k > 0 && (p.top_k as usize) < scratch.len() {
        scratch.select_nth_unstable_by(p.top_k as usize - 1, rank);
        scratch.truncate(p.top_k as usize);
    }
    if p.top_p < 1.0 {
        keep_mass(scratch, p.top_p.into(), share);
    }
    if p.min_p > 0.0 {
        scratch.retain(|c| share(c) >= p.min_p.into());
    }

    scratch.sort_unstable_by_key(|c| c.token);
    let total: f64 = scratch.iter().map(share).sum();
    let mut left = sampling.uniform() * total;
    for candidate in scratch.iter() {
        left -= share(candidate);
        if left < 0.0 {
            return candidate.token;
        }
    }
    // Rounding can leave a remainder; it goes to the last candidate.
    scratch.last().map_or(greedy, |c| c.token)
}

/// Mask, bias and penalties, in place.
fn adjust(logits: &mut [f32], sampling: &Sampling) {
    let p = &sampling.options;
    for (part, &word) in logits.chunks_mut(32).zip(sampling.mask.unwrap_or_default()) {
        match word {
            0 => part.fill(f32::NEG_INFINITY),
            u32::MAX => {}
            _ => {
                let refused = (0..32).zip(part).filter(|(bit, _)| word >> bit & 1 == 0);
                refused.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
            }
        }
    }
    for &(token, bias) in sampling.bias {
        logits[token as usize] += bias;
    }
    for &(token, count) in sampling.counts.iter().filter(|&&(_, count)| count > 0) {
        let logit = &mut logits[token as usize];
        *logit = if *logit > 0.0 { *logit / p.repeat_penalty } else { *logit * p.repeat_penalty };
        *logit -= p.presence_penalty + count as f32 * p.frequency_penalty;
    }
}

/// Keeps the smallest set of most likely tokens with at least this share of the total, and at least one token.
fn keep_mass(candidates: &mut Vec<Candidate>, share_kept: f64, share: impl Fn(&Candidate) -> f64) {
    let wanted = share_kept * candidates.iter().map(&share).sum::<f64>();
    // Few tokens usually suffice. Each attempt sorts four times as many as the preceding one.
    let (mut sorted, mut mass, mut batch) = (0, 0.0, 64);
    while sorted < candidates.len() {
        let rest = &mut candidates[sorted..];
        let batch_len = batch.min(rest.len());
        if batch_len < rest.len() {
            rest.select_nth_unstable_by(batch_len - 1, rank);
        }
        rest[..batch_len].sort_unstable_by(rank);
        for i in 0..batch_len {
            mass += share(&rest[i]);
            if mass >= wanted {
                candidates.truncate(sorted + i + 1);
                return;
            }
        }
        sorted += batch_len;
        batch *= 4;
    }
}
