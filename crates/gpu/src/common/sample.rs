//! Drawing tokens: `kernels/sample.h`.

use super::argmax::{SEGMENT, launch};
use super::grid::{MOST_BLOCKS, count};
use gristmill_kernels::error::Result;

use crate::{Access, Arg, Device, Scratch};
use gristmill_kernels::ops::{Operation, Sample, Sampling, SamplingOptions};
use gristmill_kernels::tensor::ViewMut;

/// Rows of a batch: each needs some 16 KiB of workspace.
const BATCH: usize = 256;
/// Histograms of a search: `DIGITS` in the source.
const DIGITS: u32 = 4;
/// Bytes of a histogram: two words for each of 256 bins.
const HISTOGRAM: usize = 2 * 256 * size_of::<u32>();
/// Bytes of a `Search`, a `Kept`, a `SegmentMass`.
const RECORD: usize = 16;

shared_struct! {
    /// The parameters of one row.
    pub(super) struct SampleRow {
        // Temperature: see Rate.
        factor: u64,
        // Top-p = top_p · 2^-top_p_down.
        top_p: u64,
        // Min-p as a share.
        least: u64,
        // First word of the mask; NO_MASK allows all tokens.
        mask: u64,
        first_edit: u32,
        edits: u32,
        shift: i32,
        top_p_down: u32,
        // Top-k; 0: all.
        top_k: u32,
        // The uniform number, in units of 2^-32.
        draw: u32,
        // 0 if the temperature is.
        random: u32,
        // The share of a logit is 0 if, divided by 64, it is further than this below the largest.
        negligible: f32,
        repeat_penalty: f32,
        presence_penalty: f32,
        frequency_penalty: f32,
        padding: u32,
    }
}

shared_struct! {
    /// A change to the logit of a token.
    pub(super) struct SampleEdit {
        token: u32,
        count: u32,
        value: f32,
    }
}

shared_struct! {
    pub(super) struct SampleParams {
        cols: u64,
        logits_stride: u64,
        out_stride: u64,
        // The row of logits and of the output at which the table begins; segments of a row.
        first_row: u64,
        segments: u32,
        // Histograms of the searches for top-k and for top-p, DIGITS or 0, and the one that a launch makes.
        count_steps: u32,
        mass_steps: u32,
        step: u32,
        // Units of shares: 2^-bits.
        bits: u32,
        padding: u32,
    }
}

impl SampleRow {
    /// Appends the row's edits and mask to the lists.
    fn new(sampling: &Sampling, bits: u32, edits: &mut Vec<SampleEdit>, masks: &mut Vec<u32>) -> Self {
        let p = &sampling.options;
        let first = edits.len();
        edits.extend(sampling.bias.iter().map(|&(token, value)| SampleEdit { token, count: 0, value }));
        let counted = sampling.counts.iter().filter(|(_, count)| *count > 0);
        edits.extend(counted.map(|&(token, count)| SampleEdit { token, count, value: 0.0 }));
        // Stable: what is done to a token keeps its order, biases first.
        edits[first..].sort_by_key(|edit| edit.token);
        let mask = sampling.mask.map_or(u64::MAX, |_| masks.len() as u64);
        masks.extend(sampling.mask.unwrap_or(&[]));

        let greedy = p.temperature == 0.0;
        let temperature = if greedy { 1.0 } else { f64::from(p.temperature) };
        // The factor of a logit's step for exponents of two, as mantissa in [1, 2) · 2^exponent.
        let rate = 1.0 / (temperature * std::f64::consts::LN_2);
        let exponent = (rate.to_bits() >> 52) as i32 - 1023;
        let mantissa = rate.to_bits() & ((1 << 52) - 1) | 1 << 52;
        let (top_p, top_p_down) = fraction(p.top_p);
        let (least, least_down) = fraction(p.min_p);
        Self {
            factor: mantissa << 11,
            top_p,
            // Rounded up: what is less is not kept.
            least: scaled_up(least, bits as i32 - least_down as i32),
            mask,
            first_edit: first as u32,
            edits: (edits.len() - first) as u32,
            shift: 54 + exponent,
            top_p_down: if p.top_p < 1.0 { top_p_down } else { 0 },
            top_k: p.top_k,
            draw: (sampling.uniform() * 4_294_967_296.0) as u32,
            random: (!greedy).into(),
            // 2^-60 of the largest is nothing next to it.
            negligible: (60.0 / rate / 64.0) as f32,
            repeat_penalty: p.repeat_penalty,
            presence_penalty: p.presence_penalty,
            frequency_penalty: p.frequency_penalty,
            padding: 0,
        }
    }
}

/// A number of at least 0 as an integer · 2^-down.
fn fraction(value: f32) -> (u64, u32) {
    let exponent = value.to_bits() >> 23 & 255;
    let digits = u64::from(value.to_bits() & ((1 << 23) - 1));
    let leading = if exponent == 0 { 0 } else { 1 << 23 };
    (digits | leading, 150 - exponent.max(1))
}

/// value · 2^by for a value of 24 bits, rounded up.
fn scaled_up(value: u64, by: i32) -> u64 {
    match by {
        0.. => value << by,
        -31..0 => (value + (1 << -by) - 1) >> -by,
        _ => u64::from(value > 0),
    }
}

impl SampleParams {
    /// For a batch of rows from `first_row` on.
    fn new(logits: &ViewMut<f32>, first_row: usize, parameters: &[Sampling], out: &ViewMut<u32>) -> Self {
        let cols = logits.cols();
        let steps = |needed: &dyn Fn(&SamplingOptions) -> bool| {
            if parameters.iter().any(|p| p.options.temperature > 0.0 && needed(&p.options)) { DIGITS } else { 0 }
        };
        Self {
            cols: cols as u64,
            logits_stride: logits.layout().stride() as u64,
            out_stride: out.layout().stride() as u64,
            first_row: first_row as u64,
            segments: cols.div_ceil(SEGMENT) as u32,
            count_steps: steps(&|p| p.top_k > 0 && (p.top_k as usize) < cols),
            mass_steps: steps(&|p| p.top_p < 1.0),
            step: 0,
            // All shares together are below 2^63.
            bits: 52.min(62 - (usize::BITS - cols.leading_zeros())),
            padding: 0,
        }
    }
}

/// Slices of the workspace.
#[derive(Clone, Copy)]
enum Slice {
    Rows,
    Edits,
    Masks,
    Best,
    Searches,
    Histograms,
    Thresholds,
    Masses,
}

/// The workspace of a batch, with the rows' parameters, edits and masks.
fn workspace(device: &Device, parameters: &[Sampling], params: &SampleParams) -> Result<Scratch<8>> {
    let (mut edits, mut masks) = (Vec::new(), Vec::new());
    let rows = parameters.iter().map(|p| SampleRow::new(p, params.bits, &mut edits, &mut masks));
    let table: Vec<SampleRow> = rows.collect();
    count(Sample::NAME, "biased and counted tokens", edits.len(), u32::MAX as usize)?;
    let rows = table.len();
    let segments = params.segments as usize;
    let histograms = (params.count_steps + params.mass_steps) as usize;
    let scratch = device.scratch([
        size_of_val(&table[..]),
        size_of_val(&edits[..]),
        size_of_val(&masks[..]),
        size_of::<u64>() * rows * segments,
        RECORD * rows * histograms,
        HISTOGRAM * rows * histograms,
        RECORD * rows,
        RECORD * rows * segments,
    ])?;
    scratch.write(Slice::Rows as usize, &table)?;
    scratch.write(Slice::Edits as usize, &edits)?;
    scratch.write(Slice::Masks as usize, &masks)?;
    Ok(scratch)
}

on_device! { sample(Sample) }

pub(crate) fn sample(device: &Device, call: Sample) -> Result<()> {
    let Sample { logits, parameters, out } = call;
    let mut batches = parameters.chunks(BATCH).enumerate();
    batches.try_for_each(|(i, batch)| sample_rows(device, &logits, i * BATCH, batch, &out))
}

/// A batch of rows from `first_row` on.
fn sample_rows(
    device: &Device,
    logits: &ViewMut<f32>,
    first_row: usize,
    parameters: &[Sampling],
    out: &ViewMut<u32>,
) -> Result<()> {
    let mut params = SampleParams::new(logits, first_row, parameters, out);
    let blocks = parameters.len().saturating_mul(params.segments as usize);
    let blocks = count(Sample::NAME, "segments of rows", blocks, MOST_BLOCKS)?;
    let scratch = workspace(device, parameters, &params)?;
    let arg = |slice, access| scratch.arg(slice as usize, access);
    let read = |slice| arg(slice, Access::Read);
    let [edits, masks, rows, best] = [Slice::Edits, Slice::Masks, Slice::Rows, Slice::Best].map(read);
    let [searches, sums] = [Slice::Searches, Slice::Histograms].map(|slice| arg(slice, Access::ReadWrite));
    let [new_best, new_sums] = [Slice::Best, Slice::Histograms].map(|slice| arg(slice, Access::Write));
    let view = logits.as_view();
    let adjusted = Arg::read(&view);

    let args = [Arg::change(logits), rows, edits, masks, new_best, new_sums, Arg::params(&params)];
    launch(device, "sample_adjust", blocks, &args)?;
    for step in 0..params.count_steps + params.mass_steps {
        params.step = step;
        let args = [adjusted, rows, best, searches, sums, Arg::params(&params)];
        launch(device, "sample_histogram", blocks, &args)?;
    }
    if parameters.iter().any(|p| p.options.temperature > 0.0) {
        let [thresholds, masses] = [Slice::Thresholds, Slice::Masses].map(|slice| arg(slice, Access::Write));
        let sums = read(Slice::Histograms);
        let args = [adjusted, rows, best, sums, searches, thresholds, masses, Arg::params(&params)];
        launch(device, "sample_masses", blocks, &args)?;
    }
    let [thresholds, masses] = [Slice::Thresholds, Slice::Masses].map(read);
    let args = [adjusted, rows, best, thresholds, masses, Arg::write(out), Arg::params(&params)];
    launch(device, "sample_draw", parameters.len() as u32, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_and_rounded_up() {
        for value in [0.0, 1.0, 0.5, 0.95, 1e-40, f32::MIN_POSITIVE, 0.05] {
            let (mantissa, down) = fraction(value);
            assert_eq!(mantissa as f64 * 0.5_f64.powi(down as i32), f64::from(value));
        }
        let least = |value: f32, bits| {
            let (mantissa, down) = fraction(value);
            scaled_up(mantissa, bits - down as i32)
        };
        assert_eq!([least(1.0, 52), least(0.5, 40), least(0.0, 44)], [1 << 52, 1 << 39, 0]);
        assert_eq!([least(1e-40, 44), least(1.5 * 2.0_f32.powi(-44), 44), least(0.75, 0)], [1, 2, 1]);
    }
}
