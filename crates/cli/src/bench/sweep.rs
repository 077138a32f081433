//! Decode rates of all batch sizes in a range, in one run.

use std::fmt;
use std::ops::RangeInclusive;

use gristmill_engine::GraphUsage;
use serde::Serialize;

use super::measure::Bench;
use crate::console;
use crate::failure::Failure;

/// Untimed steps of a batch size: the first compiles what is missing, the second is captured into a graph.
pub(super) const WARM_UP: usize = 3;

/// Reads a range such as `1..130`, whose last number belongs to it.
pub(super) fn sizes(text: &str) -> Result<RangeInclusive<usize>, String> {
    let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match ends {
        Some((from, to)) if 1 <= from && from <= to => Ok(from..=to),
        _ => Err("it must be two whole numbers such as 1..130, at least 1 and not descending".to_owned()),
    }
}

/// Decode rates by batch size.
#[derive(Debug, Default, Serialize)]
pub(super) struct Sweep {
    sizes: Vec<Size>,
    /// Device memory that was free before the steps were captured into graphs and not after, captures, and their
    /// seconds.
    graph_bytes: u64,
    captures: usize,
    capture_seconds: f64,
}

/// One batch size.
#[derive(Debug, Serialize)]
struct Size {
    sequences: usize,
    /// Each timed step, over all repetitions.
    #[serde(skip)]
    seconds: Vec<f64>,
    median_step_seconds: f64,
    median_tokens_per_second: f64,
}

/// Decodes `steps` tokens in each batch size, `repeats` times, and prints the rates so far after each repetition.
pub(super) fn run(
    bench: &mut Bench,
    sizes: RangeInclusive<usize>,
    steps: usize,
    repeats: usize,
    json: bool,
) -> Result<(), Failure> {
    let mut sweep = Sweep::default();
    for repeat in 1..=repeats {
        for (index, sequences) in sizes.clone().enumerate() {
            let seconds = bench.decode_steps_of(sequences, WARM_UP, steps)?;
            if repeat == 1 {
                sweep.sizes.push(Size::new(sequences));
            }
            sweep.sizes[index].add(&seconds);
        }
        sweep.note(bench.graphs());
        if !json {
            console::print(format_args!("repetition {repeat} of {repeats}\n{sweep}"))?;
        }
    }
    if json { console::print_json(&sweep) } else { Ok(()) }
}

impl Size {
    fn new(sequences: usize) -> Size {
        Size { sequences, seconds: Vec::new(), median_step_seconds: 0.0, median_tokens_per_second: 0.0 }
    }

    fn add(&mut self, seconds: &[f64]) {
        self.seconds.extend(seconds);
        self.seconds.sort_by(f64::total_cmp);
        self.median_step_seconds = self.seconds.get(self.seconds.len() / 2).copied().unwrap_or(f64::NAN);
        self.median_tokens_per_second = self.sequences as f64 / self.median_step_seconds;
    }
}

impl Sweep {
    fn note(&mut self, graphs: GraphUsage) {
        (self.graph_bytes, self.captures) = (graphs.bytes, graphs.captures);
        self.capture_seconds = graphs.time.as_secs_f64();
    }

    /// The least rate of a size, as a share of the rate of the size before, and that size.
    fn least(&self) -> Option<(f64, usize)> {
        let shares = self.sizes.windows(2).map(|pair| (pair[1].share_of(&pair[0]), pair[1].sequences));
        shares.min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

impl Size {
    fn share_of(&self, other: &Size) -> f64 {
        self.median_tokens_per_second / other.median_tokens_per_second
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>9} {:>10} {:>9} {:>12}", "sequences", "tok/s", "ms/step", "of the last")?;
        let mut last: Option<&Size> = None;
        for size in &self.sizes {
            let share = last.map_or("-".to_owned(), |last| format!("{:.3}", size.share_of(last)));
            let milliseconds = 1e3 * size.median_step_seconds;
            writeln!(
                f,
                "{:>9} {:>10.1} {milliseconds:>9.3} {share:>12}",
                size.sequences, size.median_tokens_per_second
            )?;
            last = Some(size);
        }
        if let Some((share, sequences)) = self.least() {
            writeln!(f, "least share of the size before: {share:.3} with {sequences} sequences")?;
        }
        if self.captures > 0 {
            let (bytes, seconds) = (console::bytes(self.graph_bytes), self.capture_seconds);
            writeln!(f, "{} captured graphs took {bytes} and {seconds:.2} s", self.captures)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(sizes("1..130"), Ok(1..=130));
        assert_eq!(sizes("7..7"), Ok(7..=7));
        for bad in ["", "5", "0..3", "4..3", "1..x", "1...3", "-1..2"] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_least_share_is_found() {
        let mut sweep = Sweep::default();
        for (sequences, seconds) in [(1, [1.0, 1.0, 9.0]), (2, [1.0, 1.0, 1.0]), (3, [3.0, 3.0, 3.0]), (4, [2.0; 3])] {
            let mut size = Size::new(sequences);
            size.add(&seconds);
            sweep.sizes.push(size);
        }
        assert_eq!(sweep.least(), Some((0.5, 3)));
        assert!(sweep.to_string().contains("0.500 with 3 sequences"), "{sweep}");
    }
}
