//! Parameters of attention, and the bounds of its errors.

use super::super::common::*;
use super::layout::Layout;
use crate::guarded::buffer;
use crate::rng::Rng;
use gristmill_kernels::kv::{KV_BLOCK, KvCache, KvFormat, KvSpec};
use gristmill_kernels::tensor::Buffer;

/// Keys and values are rounded to f16, or to 8 bits, by both sides, so the error is that of f32 sums over widths and
/// positions.
///
/// The exponential magnifies the error of a logit. One of 6 is among many of [`Parameters::attention`]'s scale, and has
/// nearly all the weight of its row, and that row much of all rows' power: so the error is this one's, however many
/// there are. Its sum of `key_width` products grows to 6, each step rounded to 2⁻²³ of what it is by then, which has a
/// variance of `key_width` · 36 · 2⁻⁴⁶ / 24 in all; half of that shows in the row. Errors of 4.5 deviations are
/// allowed, 20 times that.
pub(in super::super) fn bound(key_width: usize) -> f64 {
    4e-12 + 15.0 * key_width as f64 * 2.0_f64.powi(-46)
}

/// More where queries and exponentials may be rounded to f16, which has 11 significant bits: a number from 2ⁿ to 2ⁿ⁺¹
/// then has an error with a variance of up to 2²ⁿ⁻²⁰ / 12. The terms of a logit are normals times normals times
/// [`Parameters::attention`]'s scale, so their squares add up to 2.25, and to 36 / `key_width` more for a logit of 6;
/// half of the variance shows in the row. The exponentials' errors show whole. Twenty times all that is allowed, as
/// above.
fn fast_bound(key_width: usize) -> f64 {
    let logit = 2.25 + 36.0 / key_width as f64;
    bound(key_width) + 20.0 * (logit / 2.0 + 1.0) * 2.0_f64.powi(-20) / 12.0
}

pub(in super::super) const FORMATS: [KvFormat; 2] = [KvFormat::F16, KvFormat::Q8_0];

/// Sequences are shorter.
const MOST_POSITIONS: u32 = 1500;

/// A temperature that changes often in a sequence, or never.
pub(in super::super) fn some_temperature(rng: &mut Rng) -> Temperature {
    Temperature { scale: 0.5, length: rng.pick(&[1, 7, 16, 100, u32::MAX]), offset: rng.pick(&[0, 1, 20]) }
}

/// A window or chunks that sequences are longer than.
pub(in super::super) fn some_window(rng: &mut Rng) -> Window {
    let positions = rng.pick(&[1, 2, 15, 16, 17, 40]);
    if rng.chance(0.5) { Window::Chunk(positions) } else { Window::Last(positions) }
}

pub(in super::super) struct Parameters {
    pub(in super::super) heads: usize,
    pub(in super::super) temperature: Option<Temperature>,
    pub(in super::super) window: Option<Window>,
    pub(in super::super) first: usize,
    /// The distance in which tokens see later ones, if they do: up to the next multiple.
    pub(in super::super) ahead: Option<u32>,
    pub(in super::super) sinks: Option<Vec<f32>>,
    pub(in super::super) softcap: Option<f32>,
    pub(in super::super) precision: Precision,
}

impl Parameters {
    /// The bound of attention with these parameters.
    pub(in super::super) fn bound(&self, key_width: usize) -> f64 {
        if self.precision == Precision::Fast { fast_bound(key_width) } else { bound(key_width) }
    }

    /// The name under which errors are reported.
    pub(super) fn kind(&self) -> &'static str {
        if self.precision == Precision::Fast { "attention, fast" } else { "attention" }
    }

    /// The operation's options; `sinks` are these parameters' on a device.
    pub(in super::super) fn attention<'a>(
        &self,
        key_width: usize,
        ends: Option<&'a Buffer<u32>>,
        sinks: Option<&'a Buffer<f32>>,
    ) -> AttentionOptions<'a> {
        let Self { heads, temperature, window, first, softcap, precision, .. } = *self;
        // The bounds are those of logits of this scale; a temperature brings them to it, at most.
        let largest = temperature.map_or(1.0, |temperature| temperature.factor(MOST_POSITIONS));
        let scale = 1.5 / (key_width as f32).sqrt() / largest as f32;
        AttentionOptions { heads, scale, temperature, window, first, ends, sinks, softcap, precision }
    }

    /// The last position that each token sees, as tokens of images do.
    pub(in super::super) fn ends(&self, layout: &Layout, tokens: &[(u32, u32)]) -> Option<Vec<u32>> {
        let ahead = self.ahead?;
        let end = |&(slot, position): &(u32, u32)| match layout.lengths.get(slot as usize) {
            // Tokens between others that see further.
            Some(_) if ahead == 5 && position % 3 == 1 => 0,
            // Some lie before the token, which changes nothing.
            Some(&length) => (position / ahead * ahead + ahead - 2).min(length as u32 - 1),
            None => 7,
        };
        Some(tokens.iter().map(end).collect())
    }

    pub(in super::super) fn attend(
        &self,
        b: &Backend,
        layout: &Layout,
        cache: &KvCache,
        q: &[f32],
        tokens: &[(u32, u32)],
    ) -> Vec<f32> {
        let KvSpec { key_width, value_width, .. } = layout.spec;
        let sinks = self.sinks.as_ref().map(|sinks| buffer(b, sinks));
        let mut placement = layout.placement(b, tokens);
        let ends = self.ends(layout, tokens);
        let last = ends.iter().flatten().max().copied().unwrap_or(0) as usize;
        placement.context_columns = placement.context_columns.max(last / KV_BLOCK + 1);
        let ends = ends.map(|ends| buffer(b, &ends));
        let parameters = self.attention(key_width, ends.as_ref(), sinks.as_ref());
        let q = Guarded::of(b, q, tokens.len(), self.heads * key_width, Guard::ODD);
        let mut out = Guarded::poisoned(b, tokens.len(), self.heads * value_width, Guard::ODD);
        b.run(Attention { q: q.view(), cache, placement: &placement, options: parameters, out: out.view_mut() })
            .expect("attention");
        out.read(b)
    }
}
