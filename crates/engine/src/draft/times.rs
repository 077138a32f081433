//! The measured time of decode steps, by the number of sequences and of draft tokens.

use std::collections::BTreeMap;
use std::time::Duration;

/// The weight of a new measurement. The first ones count by their minimum, because a device compiles or captures a step
/// of a new shape when it first runs it.
const WEIGHT: f64 = 0.2;
const FIRST: u32 = 3;
/// A longer step counts as this many times the time so far: it was interrupted.
const INTERRUPTED: f64 = 2.0;

/// The mean time of one kind of step, in seconds.
#[derive(Debug, Clone, Copy)]
struct Mean {
    seconds: f64,
    count: u32,
    /// The seconds that the first measurements took together.
    first: f64,
}

impl Mean {
    fn add(&mut self, seconds: f64) {
        self.count = self.count.saturating_add(1);
        if self.count <= FIRST {
            self.first += seconds;
        }
        self.seconds = match self.count <= FIRST {
            true => self.seconds.min(seconds),
            false => self.seconds + WEIGHT * (seconds.min(INTERRUPTED * self.seconds) - self.seconds),
        };
    }

    /// The seconds that the first measurements took longer than usual.
    fn start_up(&self) -> f64 {
        self.first - f64::from(self.count.min(FIRST)) * self.seconds
    }
}

/// The times of steps with similar numbers of sequences.
#[derive(Debug, Clone, Default)]
pub(super) struct Times(BTreeMap<usize, Mean>);

impl Times {
    /// A step with this number of draft tokens took so long.
    pub(super) fn add(&mut self, drafts: usize, time: Duration) {
        let seconds = time.as_secs_f64();
        let mean = self.0.entry(drafts).or_insert(Mean { seconds, count: 0, first: 0.0 });
        mean.add(seconds);
    }

    /// The seconds of a step without draft tokens, after two measurements.
    pub(super) fn plain(&self) -> Option<f64> {
        self.0.get(&0).filter(|mean| mean.count >= 2).map(|mean| mean.seconds)
    }

    /// The seconds that a new kind of step costs once, because a device compiles or captures it: those of steps without
    /// draft tokens.
    pub(super) fn start_up(&self) -> f64 {
        self.0.get(&0).map_or(0.0, |mean| mean.start_up().max(0.0))
    }

    /// The most draft tokens of a step that was measured.
    pub(super) fn most(&self) -> usize {
        self.0.last_key_value().map_or(0, |(&drafts, _)| drafts)
    }

    /// The seconds of a step with this number of draft tokens: measured, or on the line between two measured numbers.
    /// More draft tokens than were ever measured are assumed to cost nothing more, so that they are tried.
    pub(super) fn of(&self, drafts: usize) -> Option<f64> {
        let (&below, mean) = self.0.range(..=drafts).next_back()?;
        let Some((&above, next)) = self.0.range(drafts..).next().filter(|_| below < drafts) else {
            return Some(mean.seconds);
        };
        let share = (drafts - below) as f64 / (above - below) as f64;
        Some(mean.seconds + share * (next.seconds - mean.seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(times: &mut Times, drafts: usize, ms: u64) {
        times.add(drafts, Duration::from_millis(ms));
    }

    #[test]
    fn unmeasured_steps_lie_between_measured_ones() {
        let mut times = Times::default();
        assert_eq!((times.plain(), times.of(1), times.most()), (None, None, 0));
        add(&mut times, 0, 50);
        assert_eq!(times.plain(), None);
        // The first step of a shape was slow.
        add(&mut times, 0, 10);
        add(&mut times, 4, 20);
        assert_eq!((times.plain(), times.most()), (Some(0.01), 4));
        let near = |found: Option<f64>, expected: f64| assert!((found.unwrap() - expected).abs() < 1e-9, "{found:?}");
        near(times.of(1), 0.0125);
        near(times.of(3), 0.0175);
        near(times.of(4), 0.02);
        near(times.of(9), 0.02);
        near(Some(times.start_up()), 0.04);
    }

    #[test]
    fn an_interruption_counts_little() {
        let mut times = Times::default();
        (0..4).for_each(|_| add(&mut times, 0, 10));
        add(&mut times, 0, 5000);
        assert!(times.plain().unwrap() < 0.0121);
        (0..40).for_each(|_| add(&mut times, 0, 20));
        assert!((times.plain().unwrap() - 0.02).abs() < 1e-4);
    }
}
