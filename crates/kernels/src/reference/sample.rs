//! Sampling by the book: every filter on a fully sorted list.

use super::experts::{ranking, softmax};
use crate::ops::Sampling;
use crate::random;

/// Adjusts the logits in place and draws a token.
pub(super) fn sample_row(logits: &mut [f32], p: &Sampling) -> u32 {
    let allowed = |token: usize| p.mask.is_none_or(|m| m[token / 32] & (1 << (token % 32)) != 0);
    for (token, logit) in logits.iter_mut().enumerate() {
        if !allowed(token) {
            *logit = f32::NEG_INFINITY;
        }
    }
    for &(token, bias) in p.bias {
        logits[token as usize] += bias;
    }
    for &(token, count) in p.counts {
        let logit = &mut logits[token as usize];
        if count > 0 {
            *logit = if *logit > 0.0 { *logit / p.repeat_penalty } else { *logit * p.repeat_penalty };
            *logit -= p.presence_penalty + count as f32 * p.frequency_penalty;
        }
    }

    let wide: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let order: Vec<usize> = ranking(&wide).into_iter().filter(|&token| allowed(token)).collect();
    let best = order.first().copied().unwrap_or(0);
    let hopeless = wide[best].is_nan() || wide[best] == f64::NEG_INFINITY;
    if p.temperature == 0.0 || hopeless {
        return best as u32;
    }

    let kept = if p.top_k == 0 { order.len() } else { order.len().min(p.top_k as usize) };
    // Against the largest, so that a tiny temperature overflows to −∞ only.
    let cooled = |&token: &usize| {
        let (logit, max) = (wide[token], wide[best]);
        if logit == max { 0.0 } else { (logit - max) / f64::from(p.temperature) }
    };
    let shares = softmax(&order[..kept].iter().map(cooled).collect::<Vec<_>>());
    let mut mass = 0.0;
    let mut pool: Vec<(usize, f64)> = Vec::new();
    for (&token, &share) in order.iter().zip(&shares) {
        if pool.is_empty() || p.top_p == 1.0 || mass < f64::from(p.top_p) {
            pool.push((token, share));
        }
        mass += share;
    }
    pool.retain(|&(_, share)| share >= f64::from(p.min_p) * shares[0]);

    pool.sort_by_key(|&(token, _)| token);
    let total: f64 = pool.iter().map(|&(_, share)| share).sum();
    let drawn = random::uniform(p.seed, p.position) * total;
    let mut passed = 0.0;
    for &(token, share) in &pool {
        passed += share;
        if drawn < passed {
            return token as u32;
        }
    }
    pool.last().map_or(best, |&(token, _)| token) as u32
}
