//! Many requests through the engine: throughput, times of tokens, draft tokens accepted, and the device's free memory
//! before and after.

use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use gristmill_engine::{Engine, EngineError, Piece, Prompt, Request, SamplingOptions, Times, Usage};
use serde::Serialize;

use super::measure::Workload;
use crate::drafts::drafts_line;
use crate::error::LabError;
use crate::random::Random;
use crate::units;

/// One in this many mixed requests is cancelled, after a random number of tokens.
const CANCELLED: u64 = 8;

/// Results of the requests.
#[derive(Debug, Serialize)]
pub struct Served {
    requests: usize,
    cancelled: usize,
    prompt_tokens: usize,
    generated_tokens: usize,
    /// Drafts, their tokens, those that the model accepted, and the share of these by place.
    drafts: usize,
    drafted_tokens: usize,
    accepted_tokens: usize,
    acceptance_by_place: Vec<f64>,
    /// The sum over all requests.
    #[serde(skip)]
    all: Usage,
    seconds: f64,
    /// From a request to its first token, and from each token to the next.
    first_token: Percentiles,
    between_tokens: Percentiles,
    /// Steps, and those of them that were submitted before the tokens of the step before had arrived.
    steps: u64,
    overlapped_steps: u64,
    /// The engine's own time in a step: scheduling, texts and callbacks.
    host_seconds_per_step: f64,
    /// Free bytes of the device after the warm-up, and after the last request; `None` on the CPU.
    free_before: Option<u64>,
    free_after: Option<u64>,
}

impl Served {
    /// Adds a request that was not cancelled.
    fn add(&mut self, usage: &Usage) {
        self.prompt_tokens += usage.prompt_tokens;
        self.generated_tokens += usage.generated_tokens;
        self.all.drafting = usage.drafting;
        self.all.add_drafts(usage);
    }
}

/// Median and 99th percentile, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
}

impl Percentiles {
    fn of(mut times: Vec<Duration>) -> Percentiles {
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).map_or(0.0, Duration::as_secs_f64);
        Percentiles { p50: at(50), p99: at(99) }
    }
}

/// A request before it is sent.
struct Planned {
    request: Request,
    /// The number of tokens after which it is cancelled.
    cancel: Option<usize>,
}

/// A request that has ended.
#[derive(Debug)]
struct Ended {
    outcome: Result<(), EngineError>,
    /// Of a request that was not cancelled.
    usage: Option<Usage>,
    sent_at: Instant,
    /// When each token arrived.
    tokens: Vec<Instant>,
}

/// Watches a request, and hands on what it has seen when the engine drops it.
struct Watched {
    ended: Option<Ended>,
    left: Option<usize>,
    all: Sender<Ended>,
}

impl Watched {
    /// Takes an event of the request. Returns whether it wants more.
    fn take(&mut self, event: Result<Piece, EngineError>) -> bool {
        let Some(ended) = &mut self.ended else { return false };
        match event {
            Ok(piece) => {
                ended.tokens.push(Instant::now());
                ended.usage = piece.finish.map(|finish| finish.usage).filter(|_| self.left.is_none());
                self.left.iter_mut().for_each(|left| *left = left.saturating_sub(1));
                self.left != Some(0)
            }
            Err(error) => {
                ended.outcome = Err(error);
                false
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Nobody listens if another request has failed.
        self.ended.take().into_iter().for_each(|ended| drop(self.all.send(ended)));
    }
}

/// Serves `requests`, `workload.batch` at a time, with up to `draft` draft tokens in each step. Mixed requests have
/// random lengths up to the workload's, and some are cancelled.
pub fn serve(
    engine: &Engine,
    workload: Workload,
    requests: usize,
    mixed: bool,
    draft: usize,
) -> Result<Served, LabError> {
    let model = engine.model();
    let mut random = Random::named("gristmill bench requests");
    let vocab = model.spec().vocab as u64;
    let mut plan = || {
        let mut length = |most: usize| if mixed { 1 + random.below(most as u64) as usize } else { most };
        let (prompt, decode) = (length(workload.prompt.max(1)), length(workload.decode.max(1)));
        let tokens = (0..prompt).map(|_| random.below(vocab) as u32).collect();
        let cancel = (mixed && random.below(CANCELLED) == 0).then(|| random.below(decode as u64) as usize);
        let sampling = SamplingOptions { seed: Some(random.next()), ..SamplingOptions::default() };
        let prompt = Prompt::Tokens(tokens);
        let request = Request { sampling, max_tokens: Some(decode), ignore_end: true, draft, ..Request::new(prompt) };
        Planned { request, cancel }
    };
    warm_up(engine, workload, &mut plan)?;
    let free_before = model.free_memory()?;
    let before = engine.stats();
    let started = Instant::now();
    let mut served = Served {
        requests,
        cancelled: 0,
        prompt_tokens: 0,
        generated_tokens: 0,
        drafts: 0,
        drafted_tokens: 0,
        accepted_tokens: 0,
        acceptance_by_place: Vec::new(),
        all: Usage::default(),
        seconds: 0.0,
        first_token: Percentiles::default(),
        between_tokens: Percentiles::default(),
        steps: 0,
        overlapped_steps: 0,
        host_seconds_per_step: 0.0,
        free_before,
        free_after: None,
    };
    let planned: Vec<Planned> = (0..requests).map(|_| plan()).collect();
    served.cancelled = planned.iter().filter(|planned| planned.cancel.is_some()).count();
    let (mut first, mut between) = (Vec::new(), Vec::new());
    batch(engine, planned, workload.batch, |Ended { usage, sent_at, tokens, .. }| {
        usage.iter().for_each(|usage| served.add(usage));
        first.extend(tokens.first().map(|&token| token - *sent_at));
        between.extend(tokens.windows(2).map(|pair| pair[1] - pair[0]));
    })?;
    served.seconds = started.elapsed().as_secs_f64();
    (served.first_token, served.between_tokens) = (Percentiles::of(first), Percentiles::of(between));
    let after = engine.stats();
    served.steps = after.step_requests.count() - before.step_requests.count();
    served.overlapped_steps = after.overlapped_steps - before.overlapped_steps;
    let host = |times: Times| times.steps.saturating_sub(times.forward + times.draw).as_secs_f64();
    served.host_seconds_per_step = (host(after.times) - host(before.times)) / served.steps.max(1) as f64;
    served.free_after = model.free_memory()?;
    (served.drafts, served.drafted_tokens) = (served.all.drafts, served.all.drafted_tokens);
    served.accepted_tokens = served.all.accepted_tokens;
    served.acceptance_by_place = served.all.acceptance_by_place().collect();
    Ok(served)
}

/// Runs the whole batch and then every smaller one, so that kernels and graphs that stay in memory exist before the first measurement. The requests of
/// a round end one after another: each size has two steps, because a graph is captured in the second. So the number of
/// steps grows with the batch, not with its square.
fn warm_up(engine: &Engine, workload: Workload, plan: &mut dyn FnMut() -> Planned) -> Result<(), LabError> {
    batch(engine, (0..workload.batch).map(|_| plan()).collect(), workload.batch, |_| {})?;
    for lengths in warm_up_rounds(workload.batch.saturating_sub(1), workload.decode.max(1)) {
        let with_length = |max_tokens: usize| {
            let Planned { request, .. } = plan();
            Planned { request: Request { max_tokens: Some(max_tokens), ..request }, cancel: None }
        };
        batch(engine, lengths.into_iter().map(with_length).collect(), workload.batch, |_| {})?;
    }
    Ok(())
}

/// Tokens of the requests of each round of the warm-up, with up to `decode` tokens each.
fn warm_up_rounds(batch: usize, decode: usize) -> Vec<Vec<usize>> {
    let largest = (1..=batch).rev().step_by((decode / 2).max(1));
    largest.map(|largest| (0..largest).map(|index| (2 * (largest - index)).min(decode)).collect()).collect()
}

/// Serves requests to their ends, at most `most` at a time: the next one is sent when one has ended.
fn batch(engine: &Engine, planned: Vec<Planned>, most: usize, mut take: impl FnMut(&Ended)) -> Result<(), LabError> {
    let (all, ends) = mpsc::channel();
    let mut running = 0;
    let mut receive = |running: &mut usize| -> Result<(), LabError> {
        // A sender lives as long as this function.
        let Ok(ended) = ends.recv() else { return Ok(()) };
        *running -= 1;
        take(&ended);
        Ok(ended.outcome?)
    };
    for Planned { request, cancel } in planned {
        while running >= most.max(1) {
            receive(&mut running)?;
        }
        let ended = Ended { outcome: Ok(()), usage: None, sent_at: Instant::now(), tokens: Vec::new() };
        let mut watched = Watched { ended: Some(ended), left: cancel, all: all.clone() };
        let canceller = engine.deliver(request, move |event| watched.take(event))?;
        if cancel == Some(0) {
            canceller.cancel();
        }
        running += 1;
    }
    while running > 0 {
        receive(&mut running)?;
    }
    Ok(())
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Served { requests, cancelled, prompt_tokens, generated_tokens, seconds, .. } = self;
        writeln!(f, "{requests} requests ({cancelled} cancelled) in {seconds:.2} s")?;
        let rate = |tokens: &usize| *tokens as f64 / seconds;
        writeln!(f, "prompts {prompt_tokens} tokens, {:.1} tok/s", rate(prompt_tokens))?;
        writeln!(f, "answers {generated_tokens} tokens, {:.1} tok/s", rate(generated_tokens))?;
        let of = |times: &Percentiles| format!("{:.1} ms, {:.1} ms", times.p50 * 1e3, times.p99 * 1e3);
        writeln!(f, "first token p50, p99: {}; between tokens {}", of(&self.first_token), of(&self.between_tokens))?;
        let (steps, overlapped, host) = (self.steps, self.overlapped_steps, self.host_seconds_per_step * 1e6);
        writeln!(f, "{steps} steps, {overlapped} of them overlapped; host {host:.0} \u{b5}s a step")?;
        if let Some(line) = drafts_line(&self.all) {
            writeln!(f, "{line}")?;
        }
        if let (Some(before), Some(after)) = (self.free_before, self.free_after) {
            writeln!(f, "free memory: {} before, {} after", units::bytes(before), units::bytes(after))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_has_every_size_and_is_not_quadratic() {
        for (batch, decode) in [(1, 1), (1, 256), (7, 2), (7, 5), (64, 8), (64, 128), (512, 256), (512, 2000)] {
            let rounds = warm_up_rounds(batch, decode);
            let mut steps = vec![0; batch + 1];
            for lengths in &rounds {
                assert!(lengths.iter().all(|tokens| (1..=decode).contains(tokens)));
                (0..decode).for_each(|step| steps[lengths.iter().filter(|&&tokens| tokens > step).count()] += 1);
            }
            let least = if decode == 1 { 1 } else { 2 };
            assert!(steps[1..].iter().all(|&steps| steps >= least), "{batch} {decode}: {steps:?}");
            let requests: usize = rounds.iter().map(Vec::len).sum();
            assert!(requests <= batch * batch.div_ceil((decode / 2).max(1)), "{batch} {decode}: {requests} requests");
        }
        assert_eq!(warm_up_rounds(64, 256).len(), 1, "each request once");
    }
}
