//! A prompt next to decode in one step: what that costs, and what the two cost apart.

use std::fmt;

use serde::Serialize;

use super::cost::{Span, StepSpans};
use super::measure::{Bench, Workload};
use crate::error::LabError;

/// Untimed steps of each kind: the first compiles what is missing, the second may be captured into a graph.
const WARM_UP: usize = 2;

/// Medians of steps.
#[derive(Debug, Serialize)]
pub struct Beside {
    /// Sequences that are decoded, and tokens of the prompt.
    sequences: usize,
    prompt: usize,
    /// Seconds of a step that decodes, that reads the prompt, and that does both.
    decode_seconds: f64,
    prompt_seconds: f64,
    both_seconds: f64,
    /// The last over the sum of the others.
    share: f64,
}

/// The workload of a bench in which one sequence more than are decoded reads a prompt in one step.
pub fn workload(of: Workload) -> Result<Workload, LabError> {
    let sum = |a: usize, b: usize| a.checked_add(b).ok_or(LabError::StepTokens);
    let (batch, tokens) = (sum(of.batch, 1)?, sum(of.prompt, of.batch)?);
    Ok(Workload { batch, chunk: of.chunk.max(tokens), decode: 1, ..of })
}

/// Measures steps of a bench with such a workload, `repeats` times each, in turns.
pub fn run(bench: &mut Bench, of: Workload, repeats: usize) -> Result<Beside, LabError> {
    let span = |count| Span { start: of.depth, count, output: true };
    let decode: StepSpans = (0..of.batch).map(|sequence| (sequence, span(1))).collect();
    let prompt: StepSpans = vec![(of.batch, span(of.prompt))];
    let both: StepSpans = decode.iter().chain(&prompt).copied().collect();
    let mut seconds = [const { Vec::new() }; 3];
    for turn in 0..WARM_UP + repeats {
        for (step, seconds) in [&decode, &prompt, &both].into_iter().zip(&mut seconds) {
            let ran = bench.run(std::slice::from_ref(step))?;
            seconds.extend((turn >= WARM_UP).then_some(ran.seconds));
        }
    }
    let [decode_seconds, prompt_seconds, both_seconds] = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
    });
    let sequences = of.batch;
    let prompt = of.prompt;
    let share = both_seconds / (decode_seconds + prompt_seconds);
    Ok(Beside { sequences, prompt, decode_seconds, prompt_seconds, both_seconds, share })
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Beside { sequences, prompt, .. } = self;
        writeln!(f, "{:<40} {:>9}", "one step", "ms")?;
        for (what, seconds) in [
            (format!("decodes {sequences} sequences"), self.decode_seconds),
            (format!("reads {prompt} tokens of a prompt"), self.prompt_seconds),
            ("does both".to_owned(), self.both_seconds),
        ] {
            writeln!(f, "{what:<40} {:>9.3}", 1e3 * seconds)?;
        }
        writeln!(f, "both over the sum of each alone: {:.3}", self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_more_reads_the_prompt() {
        let of = Workload { batch: 3, depth: 7, prompt: 600, decode: 0, chunk: 512 };
        let Workload { batch, depth, prompt, decode, chunk } = workload(of).unwrap_or(of);
        assert_eq!([batch, depth, prompt, decode, chunk], [4, 7, 600, 1, 603]);
        assert!(workload(Workload { prompt: usize::MAX, ..of }).is_err());
    }
}
