//! Times forward passes of random tokens.

use std::sync::Arc;
use std::time::Instant;

use gristmill_cpu::{Profile, Record};
use gristmill_engine::{Batch, ForcedExperts, GraphUsage, Limits, Model, Outputs, Runner, SampledTokens, SequenceId};
use gristmill_kernels::offload::SlotUsage;
use serde::Serialize;

use super::cost::{Span, StepSpans};
use crate::error::LabError;
use crate::random::Random;
use crate::routing::Routing;

/// The measured workload: `batch` sequences of `depth` tokens, to which `prompt` or `decode` tokens are added.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Workload {
    /// Sequences.
    pub batch: usize,
    /// Tokens of each sequence before the measurement.
    pub depth: usize,
    /// Tokens of prefill.
    pub prompt: usize,
    /// Tokens of decode.
    pub decode: usize,
    /// Tokens of one forward pass in prefill.
    pub chunk: usize,
}

impl Workload {
    /// The limits of a runner for this workload.
    pub fn limits(&self) -> Result<Limits, LabError> {
        let context = self.depth.checked_add(self.prompt.max(self.decode));
        Ok(Limits {
            context: Some(context.ok_or(LabError::SequenceTokens)?),
            sequences: self.batch,
            batch_tokens: self.chunk.max(self.batch),
            ..Limits::default()
        })
    }
}

/// Measurements of steps.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) seconds: f64,
    /// When the tokens of each step were on the host, in seconds from the start.
    ends: Vec<f64>,
    /// Which experts were read, by layer. Empty if counting is off.
    pub(crate) routing: Vec<LayerRouting>,
    /// The operations, if they are measured.
    pub(crate) records: Vec<Record>,
    /// Choices of experts in slots, if there are slots.
    pub(crate) slots: Option<SlotUsage>,
}

/// The experts that one layer chose in several steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerRouting {
    /// The mean number of distinct experts in a step; 0 for a layer without experts.
    pub(crate) distinct: f64,
    /// Choices of each expert in all steps.
    pub(crate) choices: Vec<u64>,
}

impl LayerRouting {
    /// Adds one of `steps` steps, in which the experts were chosen this often.
    fn add(&mut self, counts: &[u32], steps: usize) {
        self.distinct += counts.iter().filter(|&&count| count > 0).count() as f64 / steps as f64;
        self.choices.resize(counts.len(), 0);
        self.choices.iter_mut().zip(counts).for_each(|(sum, &count)| *sum += u64::from(count));
    }

    /// The share of the choices that the most popular expert has. `None` without choices.
    pub(crate) fn busiest_share(&self) -> Option<f64> {
        let most = *self.choices.iter().max().filter(|&&most| most > 0)?;
        Some(most as f64 / self.choices.iter().sum::<u64>() as f64)
    }
}

/// A runner with sequences of the workload's depth.
pub struct Bench {
    runner: Runner,
    sequences: Vec<SequenceId>,
    workload: Workload,
    random: Random,
    batch: Batch,
    profile: Option<Arc<Profile>>,
    /// The experts of all tokens; the routers choose without.
    routing: Option<Routing>,
}

impl Bench {
    /// Opens the sequences and fills them to their depth. `limits` and `routing` belong to `workload`, and `profile` to the
    /// model's device.
    pub fn new(
        model: Arc<Model>,
        workload: Workload,
        limits: Limits,
        profile: Option<Arc<Profile>>,
        routing: Option<Routing>,
    ) -> Result<Bench, LabError> {
        let mut runner = Runner::new(model, limits)?;
        let sequences = (0..workload.batch).map(|_| runner.open_sequence()).collect::<Result<_, _>>()?;
        let random = Random::named("gristmill bench");
        let mut bench = Bench { runner, sequences, workload, random, batch: Batch::new(), profile, routing };
        bench.forward(&prefill_steps(workload.chunk, workload.batch, 0, workload.depth))?;
        Ok(bench)
    }

    pub(crate) fn prefill_steps(&self) -> Vec<StepSpans> {
        prefill_steps(self.workload.chunk, self.workload.batch, self.workload.depth, self.workload.prompt)
    }

    pub(crate) fn decode_steps(&self) -> Vec<StepSpans> {
        decode_steps(self.workload.batch, self.workload.depth, self.workload.decode)
    }

    /// An untimed repetition of both, which loads weights into memory, starts threads and counts the routers' choices.
    pub(crate) fn warm_up(&mut self) -> Result<[Ran; 2], LabError> {
        self.runner.count_experts(true);
        let ran = [self.prefill()?, self.decode()?];
        self.runner.count_experts(false);
        Ok(ran)
    }

    pub(crate) fn prefill(&mut self) -> Result<Ran, LabError> {
        self.run(&self.prefill_steps())
    }

    pub(crate) fn decode(&mut self) -> Result<Ran, LabError> {
        self.run(&self.decode_steps())
    }

    /// Decodes with the first `sequences` sequences. Returns the seconds of each of `steps` steps after `warm_up`
    /// others.
    pub(crate) fn decode_steps_of(
        &mut self,
        sequences: usize,
        warm_up: usize,
        steps: usize,
    ) -> Result<Vec<f64>, LabError> {
        let all = decode_steps(sequences, self.workload.depth, warm_up + steps);
        let (untimed, timed) = all.split_at(warm_up);
        self.restore()?;
        self.forward(untimed)?;
        let ends = self.forward(timed)?.ends;
        let begins = std::iter::once(0.0).chain(ends.iter().copied());
        Ok(ends.iter().zip(begins).map(|(end, begin)| end - begin).collect())
    }

    /// Decodes with the first `sequences` sequences and prefills `prompt` tokens in the last one, in one step. All have the
    /// workload's depth. Returns the seconds of each of `steps` such steps.
    pub(crate) fn prompt_steps_of(
        &mut self,
        sequences: usize,
        prompt: usize,
        steps: usize,
    ) -> Result<Vec<f64>, LabError> {
        let span = |count| Span { start: self.workload.depth, count, output: true };
        let decode = (0..sequences).map(|sequence| (sequence, span(1)));
        let step: StepSpans = decode.chain([(self.workload.batch - 1, span(prompt))]).collect();
        (0..steps).map(|_| Ok(self.run(std::slice::from_ref(&step))?.seconds)).collect()
    }

    /// The runner's captured graphs.
    pub(crate) fn graphs(&self) -> GraphUsage {
        self.runner.graphs()
    }

    /// Restores the depth of the sequences, then runs steps.
    pub(crate) fn run(&mut self, steps: &[StepSpans]) -> Result<Ran, LabError> {
        self.restore()?;
        self.forward(steps)
    }

    /// Shortens the sequences that the last steps made longer: before the next ones, because it may take a prefill of
    /// the whole depth.
    fn restore(&mut self) -> Result<(), LabError> {
        let depth = self.workload.depth;
        let mut dropped = false;
        for &sequence in &self.sequences {
            // Layers with a sliding window may have dropped positions that the next token attends to, and those with a
            // state of fixed size the state at this depth.
            dropped |= self.runner.checkpoint(sequence, depth)? < depth;
        }
        for &sequence in &self.sequences {
            self.runner.truncate(sequence, if dropped { 0 } else { depth })?;
        }
        if dropped {
            self.forward(&prefill_steps(self.workload.chunk, self.workload.batch, 0, depth))?;
        }
        Ok(())
    }

    /// Runs steps with new random tokens. A step with logits also computes their argmax, as greedy decoding does. The
    /// device has a step before the host waits for the tokens of the one before, as in the engine.
    fn forward(&mut self, steps: &[StepSpans]) -> Result<Ran, LabError> {
        let vocab = self.runner.model().spec().vocab as u64;
        let mut tokens = Vec::new();
        let mut routing: Vec<LayerRouting> = Vec::new();
        let records = |profile: &Option<Arc<Profile>>| profile.as_ref().map(|p| p.take()).unwrap_or_default();
        records(&self.profile);
        let mut forced = self.forced(steps);
        let slots = self.runner.model().backend().offload().slot_usage();
        let started = Instant::now();
        let mut ends = Vec::with_capacity(steps.len());
        let mut under_way = None;
        let mut wait = |drawn: Option<SampledTokens>| -> Result<(), LabError> {
            if let Some(drawn) = drawn {
                drawn.wait()?;
                ends.push(started.elapsed().as_secs_f64());
            }
            Ok(())
        };
        for step in steps {
            self.batch.clear();
            for &(sequence, Span { count, output, .. }) in step {
                tokens.clear();
                tokens.extend((0..count).map(|_| self.random.below(vocab) as u32));
                let outputs = if output { Outputs::Last } else { Outputs::None };
                self.batch.push(self.sequences[sequence], &tokens, outputs);
            }
            self.batch.take_argmax();
            let mut logits = match forced.as_mut().and_then(Iterator::next) {
                Some(experts) => self.runner.forward_forced(&self.batch, &experts)?,
                None => self.runner.forward(&self.batch)?,
            };
            let drawn = logits.start_argmax()?;
            wait(under_way.replace(drawn))?;
            let counts = self.runner.expert_counts();
            routing.resize(counts.len(), LayerRouting::default());
            routing.iter_mut().zip(counts).for_each(|(layer, counts)| layer.add(counts, steps.len()));
        }
        wait(under_way)?;
        let seconds = started.elapsed().as_secs_f64();
        let since = |before: SlotUsage| {
            let now = self.runner.model().backend().offload().slot_usage()?;
            Some(SlotUsage {
                hits: now.hits - before.hits,
                misses: now.misses - before.misses,
                insertions: now.insertions - before.insertions,
                shared: now.shared - before.shared,
                freed_bytes: now.freed_bytes - before.freed_bytes,
                read_bytes: now.read_bytes - before.read_bytes,
                read_nanoseconds: now.read_nanoseconds - before.read_nanoseconds,
            })
        };
        Ok(Ran { seconds, ends, routing, records: records(&self.profile), slots: slots.and_then(since) })
    }

    /// The experts of each step's tokens, in the batch's order: they are chosen before time is measured.
    fn forced(&mut self, steps: &[StepSpans]) -> Option<std::vec::IntoIter<Vec<ForcedExperts>>> {
        let routing = self.routing.as_mut()?;
        let of_step = |step: &StepSpans| {
            let mut experts = Vec::new();
            step.iter().for_each(|&(sequence, span)| experts.extend((0..span.count).map(|_| routing.next(sequence))));
            experts
        };
        Some(steps.iter().map(of_step).collect::<Vec<_>>().into_iter())
    }
}

/// Steps that add `count` tokens to each of `batch` sequences of `start` tokens: `chunk` tokens in a step, sequence
/// after sequence.
fn prefill_steps(chunk: usize, batch: usize, start: usize, count: usize) -> Vec<StepSpans> {
    let mut steps = vec![StepSpans::new()];
    let mut free = chunk;
    for sequence in 0..batch {
        let mut done = 0;
        while done < count {
            if free == 0 {
                steps.push(StepSpans::new());
                free = chunk;
            }
            let taken = free.min(count - done);
            let span = Span { start: start + done, count: taken, output: done + taken == count };
            if let Some(step) = steps.last_mut() {
                step.push((sequence, span));
            }
            (done, free) = (done + taken, free - taken);
        }
    }
    steps.retain(|step| !step.is_empty());
    steps
}

/// `count` steps that add one token to each sequence.
fn decode_steps(batch: usize, start: usize, count: usize) -> Vec<StepSpans> {
    let span = |step| Span { start: start + step, count: 1, output: true };
    (0..count).map(|step| (0..batch).map(|sequence| (sequence, span(step))).collect()).collect()
}

#[cfg(test)]
impl Bench {
    /// Tokens of each sequence.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.sequences.iter().map(|&sequence| self.runner.sequence_len(sequence).unwrap_or(0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefill_fills_batches_and_asks_for_the_last_logits_of_each_sequence() {
        for (batch, start, count) in [(1, 0, 512), (1, 3, 1), (3, 7, 500), (2, 0, 1024), (700, 0, 1), (2, 0, 0)] {
            const CHUNK: usize = 512;
            let steps = prefill_steps(CHUNK, batch, start, count);
            assert_eq!(steps.len(), (batch * count).div_ceil(CHUNK));
            for (i, step) in steps.iter().enumerate() {
                let tokens: usize = step.iter().map(|(_, span)| span.count).sum();
                assert!(tokens == CHUNK || i + 1 == steps.len());
            }
            for sequence in 0..batch {
                let spans = steps.iter().flatten().filter(|(s, _)| *s == sequence).map(|(_, span)| span);
                let end = spans.fold(start, |at, span| {
                    assert_eq!(span.start, at);
                    assert_eq!(span.output, at + span.count == start + count);
                    at + span.count
                });
                assert_eq!(end, start + count);
            }
        }
    }
}
