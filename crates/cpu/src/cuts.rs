//! Ranges of rows or columns that a job's chunks share out.

use std::ops::Range;

/// A list of ranges that do not overlap, made of parts of `0..len` that are cut into equal steps.
#[derive(Debug)]
pub(crate) struct Cuts {
    parts: Vec<CutPart>,
    ranges: usize,
}

#[derive(Debug)]
struct CutPart {
    /// The number of ranges before this part.
    first: usize,
    /// Where it lies.
    start: usize,
    len: usize,
    /// The length of its ranges; the last one may be shorter.
    step: usize,
}

impl Cuts {
    /// Parts one after another, each as (length, step). A step of 0 counts as 1.
    pub(crate) fn new(parts: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let (mut first, mut start) = (0, 0);
        let parts = parts.into_iter().map(|(len, step)| {
            let part = CutPart { first, start, len, step: step.max(1) };
            first += len.div_ceil(part.step);
            start += len;
            part
        });
        Self { parts: parts.collect(), ranges: first }
    }

    /// One part.
    pub(crate) fn even(len: usize, step: usize) -> Self {
        Self::new([(len, step)])
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges
    }

    /// Range `i < len()`: its part, and where it lies.
    pub(crate) fn get(&self, i: usize) -> (usize, Range<usize>) {
        // Parts without ranges begin where the next one does: the last that begins at or before `i` has it.
        let index = self.parts.partition_point(|part| part.first <= i) - 1;
        let part = &self.parts[index];
        let from = (i - part.first) * part.step;
        (index, part.start + from..part.start + part.len.min(from + part.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_everything_once() {
        for parts in [vec![], vec![(0, 3)], vec![(7, 3)], vec![(6, 3), (0, 1), (5, 0), (2, 9)], vec![(1, 1), (1, 1)]] {
            let (cuts, mut next) = (Cuts::new(parts.clone()), 0);
            for i in 0..cuts.len() {
                let (part, range) = cuts.get(i);
                let before: usize = parts[..part].iter().map(|(len, _)| len).sum();
                assert!(
                    range.start == next && range.end > next && range.len() <= parts[part].1.max(1),
                    "{parts:?} {i}"
                );
                assert!(before <= range.start && range.end <= before + parts[part].0, "{parts:?} {i}");
                next = range.end;
            }
            assert_eq!(next, parts.iter().map(|(len, _)| len).sum(), "{parts:?}");
        }
    }
}
