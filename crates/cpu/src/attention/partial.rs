//! Results of a part of a sequence's positions, and how they are merged.

/// The results of `R` rows over some positions: the largest logit, the sum of exponentials relative to it, and the
/// weighted sum of values, 16 columns at a time.
pub(super) struct Partial<const R: usize> {
    pub(super) max: [f32; R],
    pub(super) sum: [f32; R],
    pub(super) values: Vec<[[f32; 16]; R]>,
}

/// One row of a [`Partial`] in memory: the maximum, the sum, and the values.
#[derive(Clone, Copy)]
pub(super) struct PartialRow<'a>(pub(super) &'a [f32]);

impl PartialRow<'_> {
    /// Elements of a row with values of this width.
    pub(super) fn len(value_width: usize) -> usize {
        2 + value_width
    }
}

/// The factors of two results of one row, and their common maximum. `None` if the second has no visible position.
fn factors(max: f32, other: f32, sum: f32) -> Option<(f32, [f32; 2])> {
    if sum == 0.0 {
        return None;
    }
    // A NaN fails the comparison; it is in the sum.
    let top = if other > max { other } else { max };
    let factor = |max: f32| if max == top { 1.0 } else { (max - top).exp() };
    Some((top, [factor(max), factor(other)]))
}

/// Exactly these operations wherever splits are merged, so that all give the same bits.
#[inline(always)]
fn merged(x: f32, y: f32, factors: [f32; 2]) -> f32 {
    x * factors[0] + y * factors[1]
}

impl<const R: usize> Partial<R> {
    /// No position yet. A sink is a logit without a value.
    pub(super) fn new(sinks: [Option<f32>; R], columns: usize) -> Self {
        Self {
            max: sinks.map(|sink| sink.unwrap_or(f32::NEG_INFINITY)),
            sum: sinks.map(|sink| if sink.is_some() { 1.0 } else { 0.0 }),
            values: vec![[[0.0; 16]; R]; columns],
        }
    }

    /// Merges the results of later positions.
    #[inline(always)]
    pub(super) fn merge(&mut self, later: &Self) {
        for r in 0..R {
            let Some((top, factors)) = factors(self.max[r], later.max[r], later.sum[r]) else { continue };
            self.max[r] = top;
            self.sum[r] = merged(self.sum[r], later.sum[r], factors);
            for (x, y) in self.values.iter_mut().zip(&later.values) {
                x[r].iter_mut().zip(&y[r]).for_each(|(x, y)| *x = merged(*x, *y, factors));
            }
        }
    }

    /// Writes a row's result: values over the sum.
    #[inline(always)]
    pub(super) fn result(&self, r: usize, out: &mut [f32]) {
        for (out, values) in out.chunks_mut(16).zip(&self.values) {
            out.iter_mut().zip(&values[r]).for_each(|(out, x)| *out = x / self.sum[r]);
        }
    }

    /// Writes a row as a [`PartialRow`].
    pub(super) fn store(&self, r: usize, row: &mut [f32]) {
        (row[0], row[1]) = (self.max[r], self.sum[r]);
        for (out, values) in row[2..].chunks_mut(16).zip(&self.values) {
            out.copy_from_slice(&values[r][..out.len()]);
        }
    }
}

/// The result of a row over splits in order: zeros if there are none, which are those of padding.
pub(super) fn merge_rows<'a>(sink: Option<f32>, splits: impl Iterator<Item = PartialRow<'a>>, out: &mut [f32]) {
    out.fill(0.0);
    let mut max = sink.unwrap_or(f32::NEG_INFINITY);
    let mut sum = if sink.is_some() { 1.0 } else { 0.0 };
    let mut are_any = false;
    for PartialRow(row) in splits {
        are_any = true;
        let Some((top, factors)) = factors(max, row[0], row[1]) else { continue };
        (max, sum) = (top, merged(sum, row[1], factors));
        out.iter_mut().zip(&row[2..]).for_each(|(x, y)| *x = merged(*x, *y, factors));
    }
    if are_any {
        out.iter_mut().for_each(|x| *x /= sum);
    }
}
