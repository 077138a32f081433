//! Decode rates of all batch sizes in a range, in one run.

use std::fmt;
use std::ops::RangeInclusive;

use gristmill_engine::GraphUsage;
use serde::Serialize;

use super::measure::{Bench, Workload};
use crate::error::LabError;
use crate::units;

/// Steps of a repetition with a prompt, of which the first is not timed.
const PROMPT_STEPS: usize = 4;

/// Untimed steps of a batch size: the first compiles what is missing, the second is captured into a graph.
const WARM_UP: usize = 3;

/// Reads a range such as `1..130`, whose last number belongs to it.
pub fn sizes(text: &str) -> Result<RangeInclusive<usize>, String> {
    let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match ends {
        Some((from, to)) if 1 <= from && from <= to => Ok(from..=to),
        _ => Err("it must be two whole numbers such as 1..130, at least 1 and not descending".to_owned()),
    }
}

/// What a sweep measures.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Numbers of sequences.
    pub sizes: RangeInclusive<usize>,
    /// Timed steps of a size in a repetition.
    pub steps: usize,
    /// Repetitions of each size.
    pub repeats: usize,
    /// Tokens in the KV cache of each sequence.
    pub depth: usize,
    /// Tokens of a prompt in the same step, which each size also measures.
    pub prompt: Option<usize>,
}

impl Plan {
    /// The workload of the largest size, with a sequence for the prompt.
    pub fn workload(&self, chunk: usize) -> Result<Workload, LabError> {
        let sum = |a: usize, b: usize| a.checked_add(b).ok_or(LabError::StepTokens);
        let most = *self.sizes.end();
        let prompt = self.prompt.unwrap_or(0);
        let batch = sum(most, usize::from(self.prompt.is_some()))?;
        let tokens = sum(most, prompt)?;
        let decode = sum(self.steps, WARM_UP)?;
        Ok(Workload { batch, depth: self.depth, prompt, decode, chunk: chunk.max(tokens) })
    }
}

/// Decode rates by batch size.
#[derive(Debug, Default, Serialize)]
pub struct Sweep {
    sizes: Vec<Size>,
    /// Tokens in the KV cache of each sequence.
    depth: usize,
    /// Tokens of the prompt in `median_prompt_step_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<usize>,
    /// Device memory that was free before the steps were captured into graphs and not after, captures, and their
    /// seconds.
    graph_bytes: u64,
    captures: usize,
    capture_seconds: f64,
}

/// One batch size.
#[derive(Debug, Default, Serialize)]
struct Size {
    sequences: usize,
    /// Each timed step, over all repetitions.
    #[serde(skip)]
    seconds: Vec<f64>,
    median_step_seconds: f64,
    median_tokens_per_second: f64,
    /// Each timed step that also has the prompt.
    #[serde(skip)]
    prompt_seconds: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_prompt_step_seconds: Option<f64>,
}

/// Measures each batch size in each repetition. `each` takes the number of each repetition, and the rates so far.
///
/// # Errors
/// Those of the passes and of `each`.
pub fn run<E: From<LabError>>(
    bench: &mut Bench,
    plan: &Plan,
    mut each: impl FnMut(usize, &Sweep) -> Result<(), E>,
) -> Result<Sweep, E> {
    let mut sweep = Sweep { depth: plan.depth, prompt_tokens: plan.prompt, ..Sweep::default() };
    for repeat in 1..=plan.repeats {
        for (index, sequences) in plan.sizes.clone().enumerate() {
            if repeat == 1 {
                sweep.sizes.push(Size { sequences, ..Size::default() });
            }
            let size = &mut sweep.sizes[index];
            size.add(&bench.decode_steps_of(sequences, WARM_UP, plan.steps)?);
            if let Some(tokens) = plan.prompt {
                size.add_with_prompt(&bench.prompt_steps_of(sequences, tokens, PROMPT_STEPS)?[1..]);
            }
        }
        sweep.note(bench.graphs());
        each(repeat, &sweep)?;
    }
    Ok(sweep)
}

/// Adds times, and returns the median of all.
fn add(times: &mut Vec<f64>, more: &[f64]) -> f64 {
    times.extend(more);
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Size {
    fn add(&mut self, seconds: &[f64]) {
        self.median_step_seconds = add(&mut self.seconds, seconds);
        self.median_tokens_per_second = self.sequences as f64 / self.median_step_seconds;
    }

    fn add_with_prompt(&mut self, seconds: &[f64]) {
        self.median_prompt_step_seconds = Some(add(&mut self.prompt_seconds, seconds));
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
        write!(f, "{:>9} {:>10} {:>9} {:>12}", "sequences", "tok/s", "ms/step", "of the last")?;
        match self.prompt_tokens {
            Some(tokens) => writeln!(f, " {:>26}", format!("ms/step with {tokens} of prompt"))?,
            None => writeln!(f)?,
        }
        let mut last: Option<&Size> = None;
        for size in &self.sizes {
            let share = last.map_or("-".to_owned(), |last| format!("{:.3}", size.share_of(last)));
            let milliseconds = 1e3 * size.median_step_seconds;
            let (sequences, rate) = (size.sequences, size.median_tokens_per_second);
            write!(f, "{sequences:>9} {rate:>10.1} {milliseconds:>9.3} {share:>12}")?;
            match size.median_prompt_step_seconds {
                Some(seconds) => writeln!(f, " {:>26.3}", 1e3 * seconds)?,
                None => writeln!(f)?,
            }
            last = Some(size);
        }
        if let Some((share, sequences)) = self.least() {
            writeln!(f, "least share of the size before: {share:.3} with {sequences} sequences")?;
        }
        if self.captures > 0 {
            let bytes = units::bytes(self.graph_bytes);
            let seconds = self.capture_seconds;
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
    fn a_plan_has_a_sequence_for_its_prompt() {
        let plan = Plan { sizes: 1..=8, steps: 10, repeats: 1, depth: 7, prompt: Some(600) };
        let plain = Plan { prompt: None, ..plan.clone() };
        for (plan, expected) in [(&plan, [9, 7, 600, 13, 608]), (&plain, [8, 7, 0, 13, 512])] {
            let workload =
                plan.workload(512).unwrap_or(Workload { batch: 0, depth: 0, prompt: 0, decode: 0, chunk: 0 });
            let Workload { batch, depth, prompt, decode, chunk } = workload;
            assert_eq!([batch, depth, prompt, decode, chunk], expected);
        }
        assert!(Plan { prompt: Some(usize::MAX), ..plan }.workload(512).is_err());
    }

    #[test]
    fn steps_with_a_prompt_are_apart() {
        let mut size = Size { sequences: 2, ..Size::default() };
        size.add(&[1.0, 2.0, 4.0]);
        assert_eq!(size.median_prompt_step_seconds, None);
        size.add_with_prompt(&[8.0]);
        size.add_with_prompt(&[6.0, 7.0]);
        assert_eq!((size.median_step_seconds, size.median_prompt_step_seconds), (2.0, Some(7.0)));
        let sweep = Sweep { sizes: vec![size], prompt_tokens: Some(512), ..Sweep::default() };
        let json = serde_json::to_value(&sweep).unwrap_or_default();
        assert_eq!(
            (&json["prompt_tokens"], &json["sizes"][0]["median_prompt_step_seconds"]),
            (&512.into(), &7.0.into())
        );
        assert!(sweep.to_string().contains("512 of prompt") && sweep.to_string().contains("7000.000"), "{sweep}");
    }

    #[test]
    fn the_least_share_is_found() {
        let mut sweep = Sweep::default();
        for (sequences, seconds) in [(1, [1.0, 1.0, 9.0]), (2, [1.0, 1.0, 1.0]), (3, [3.0, 3.0, 3.0]), (4, [2.0; 3])] {
            let mut size = Size { sequences, ..Size::default() };
            size.add(&seconds);
            sweep.sizes.push(size);
        }
        assert_eq!(sweep.least(), Some((0.5, 3)));
        assert!(sweep.to_string().contains("0.500 with 3 sequences"), "{sweep}");
    }
}
