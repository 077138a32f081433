//! Sampling, each filter on a fully sorted list.

use super::experts::ranking;
use super::rows::{Rows, RowsMut};
use crate::error::Result;
use crate::ops::{Argmax, Operation, PADDING, Sample, Sampling};

pub(super) fn argmax(call: Argmax) -> Result<()> {
    let Argmax { x, mut out } = call;
    let x = Rows::new(Argmax::NAME, x)?;
    RowsMut::new(Argmax::NAME, &mut out)?.each(|t, out| {
        let wide: Vec<f64> = x.row(t).iter().map(|&x| f64::from(x)).collect();
        let finite = wide.iter().all(|x| x.is_finite());
        out.fill(if finite { ranking(&wide)[0] as u32 } else { PADDING });
    });
    Ok(())
}

pub(super) fn sample(call: Sample) -> Result<()> {
    let Sample { mut logits, parameters, mut out } = call;
    let mut out = RowsMut::new(Sample::NAME, &mut out)?;
    RowsMut::new(Sample::NAME, &mut logits)?.each(|r, row| out.row(r)[0] = sample_row(row, &parameters[r]));
    Ok(())
}

/// Adjusts the logits in place and samples a token.
fn sample_row(logits: &mut [f32], sampling: &Sampling) -> u32 {
    let p = &sampling.options;
    let finite = logits.iter().all(|x| x.is_finite());
    let allowed = |token: usize| sampling.mask.is_none_or(|m| m[token / 32] & (1 << (token % 32)) != 0);
    for (token, logit) in logits.iter_mut().enumerate() {
        if !allowed(token) {
            *logit = f32::NEG_INFINITY;
        }
    }
    for &(token, bias) in sampling.bias {
        logits[token as usize] += bias;
    }
    for &(token, count) in sampling.counts {
        let logit = &mut logits[token as usize];
        if count > 0 {
            *logit = if *logit > 0.0 { *logit / p.repeat_penalty } else { *logit * p.repeat_penalty };
            *logit -= p.presence_penalty + count as f32 * p.frequency_penalty;
        }
    }

    let wide: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let order: Vec<usize> = ranking(&wide).into_iter().filter(|&token| allowed(token)).collect();
    let best = order.first().copied().unwrap_or(0);
    if !finite {
        return PADDING;
    }
    let no_finite_best = wide[best].is_nan() || wide[best] == f64::NEG_INFINITY;
    if p.temperature == 0.0 || no_finite_best {
        return best as u32;
    }

    // Relative to the largest share, which is 1: divided by their sum, a half might round to less than 0.5.
    let share = |&token: &usize| match (wide[token], wide[best]) {
        (logit, max) if logit == max => 1.0,
        (logit, _) if logit.is_nan() => 0.0,
        (logit, max) => ((logit - max) / f64::from(p.temperature)).exp(),
    };
    let kept = if p.top_k == 0 { order.len() } else { order.len().min(p.top_k as usize) };
    let shares: Vec<f64> = order[..kept].iter().map(share).collect();
    let wanted = f64::from(p.top_p) * shares.iter().sum::<f64>();
    let mut mass = 0.0;
    let mut pool: Vec<(usize, f64)> = Vec::new();
    for (&token, &share) in order.iter().zip(&shares) {
        if pool.is_empty() || p.top_p == 1.0 || mass < wanted {
            pool.push((token, share));
        }
        mass += share;
    }
    pool.retain(|&(_, share)| share >= f64::from(p.min_p));

    pool.sort_by_key(|&(token, _)| token);
    let total: f64 = pool.iter().map(|&(_, share)| share).sum();
    let drawn = sampling.uniform() * total;
    let mut passed = 0.0;
    for &(token, share) in &pool {
        passed += share;
        if drawn < passed {
            return token as u32;
        }
    }
    pool.last().map_or(best, |&(token, _)| token) as u32
}
