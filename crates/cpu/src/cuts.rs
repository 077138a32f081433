//! Ranges of rows or columns: the chunks of a job.

use std::ops::Range;

/// Activation rows per chunk: 64 rows of 4,096 int8 activations are half a megabyte.
pub(crate) const TOKEN_BLOCK: usize = 64;

/// Disjoint ranges that cover `0..len`: consecutive segments, each cut into equal steps.
#[derive(Debug)]
pub(crate) struct Cuts {
    segments: Vec<Segment>,
    ranges: usize,
}

#[derive(Debug)]
struct Segment {
    /// The number of ranges in all preceding segments.
    first: usize,
    /// First element.
    start: usize,
    len: usize,
    /// The length of its ranges; the last one may be shorter.
    step: usize,
}

impl Cuts {
    /// Consecutive segments, each given as (length, step). A step of 0 counts as 1.
    pub(crate) fn new(segments: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let (mut first, mut start) = (0, 0);
        let segments = segments.into_iter().map(|(len, step)| {
            let segment = Segment { first, start, len, step: step.max(1) };
            first += len.div_ceil(segment.step);
            start += len;
            segment
        });
        Self { segments: segments.collect(), ranges: first }
    }

    /// A single segment.
    pub(crate) fn even(len: usize, step: usize) -> Self {
        Self::new([(len, step)])
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges
    }

    /// Range `i < len()`, with the index of its segment.
    pub(crate) fn get(&self, i: usize) -> (usize, Range<usize>) {
        // A segment without ranges starts where the next segment starts: `i` belongs to the last segment that starts at
        // or before it.
        let index = self.segments.partition_point(|segment| segment.first <= i) - 1;
        let segment = &self.segments[index];
        let from = (i - segment.first) * segment.step;
        (index, segment.start + from..segment.start + segment.len.min(from + segment.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_everything_once() {
        for parts in [vec![], vec![(0, 3)], vec![(7, 3)], vec![(6, 3), (0, 1), (5, 0), (2, 9)], vec![(1, 1), (1, 1)]] {
            let cuts = Cuts::new(parts.clone());
            let mut next = 0;
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
