//! Many requests through the engine: throughput, and whether the device's memory comes back.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use gristmill_engine::{Engine, Generation, Limits, Model, Prompt, Request, SamplingOptions};
use serde::Serialize;

use super::measure::Shape;
use crate::console;
use crate::failure::Failure;
use crate::synthetic::Random;

/// One in so many mixed requests is cancelled, after a random number of its tokens.
const CANCELLED: u64 = 8;

/// What came of them.
#[derive(Debug, Serialize)]
pub(super) struct Served {
    requests: usize,
    cancelled: usize,
    prompt_tokens: usize,
    generated_tokens: usize,
    seconds: f64,
    /// Free memory of the device after the first requests, and after the last; none on the CPU.
    free_before: Option<u64>,
    free_after: Option<u64>,
}

/// A request with what is to become of it.
struct Planned {
    request: Request,
    /// Cancelled after so many tokens.
    cancel: Option<usize>,
}

/// Serves `requests`, as many at a time as the shape's batch. Mixed ones have random lengths up to the shape's, and some
/// are cancelled.
pub(super) fn serve(
    model: Arc<Model>,
    shape: Shape,
    limits: Limits,
    requests: usize,
    mixed: bool,
) -> Result<Served, Failure> {
    let mut random = Random::named("gristmill bench requests");
    let vocab = model.spec().vocab as u64;
    let mut plan = || {
        let mut length = |most: usize| if mixed { 1 + random.below(most as u64) as usize } else { most };
        let (prompt, decode) = (length(shape.prompt.max(1)), length(shape.decode.max(1)));
        let tokens = (0..prompt).map(|_| random.below(vocab) as u32).collect();
        let cancel = (mixed && random.below(CANCELLED) == 0).then(|| random.below(decode as u64) as usize);
        let sampling = SamplingOptions { seed: random.next(), ..SamplingOptions::default() };
        let request =
            Request { sampling, max_tokens: Some(decode), ignore_end: true, ..Request::new(Prompt::Tokens(tokens)) };
        Planned { request, cancel }
    };
    let engine = Engine::start(model.clone(), limits)?;
    // What is compiled and recorded on the way must not count as lost: every batch size comes up once.
    for together in 1..=shape.batch {
        batch(&engine, (0..together).map(|_| plan()).collect())?;
    }
    let free_before = model.free_memory()?;
    let begun = Instant::now();
    let mut served = Served {
        requests,
        cancelled: 0,
        prompt_tokens: 0,
        generated_tokens: 0,
        seconds: 0.0,
        free_before,
        free_after: None,
    };
    let mut left = requests;
    while left > 0 {
        let together = left.min(4 * shape.batch);
        left -= together;
        let planned: Vec<Planned> = (0..together).map(|_| plan()).collect();
        served.cancelled += planned.iter().filter(|planned| planned.cancel.is_some()).count();
        let (prompt_tokens, generated_tokens) = batch(&engine, planned)?;
        served.prompt_tokens += prompt_tokens;
        served.generated_tokens += generated_tokens;
    }
    served.seconds = begun.elapsed().as_secs_f64();
    served.free_after = model.free_memory()?;
    Ok(served)
}

/// Serves some requests to their ends: tokens read and generated of those that were not cancelled.
fn batch(engine: &Engine, planned: Vec<Planned>) -> Result<(usize, usize), Failure> {
    let mut running: Vec<(Generation, Option<usize>)> = Vec::with_capacity(planned.len());
    for Planned { request, cancel } in planned {
        running.push((engine.generate(request)?, cancel));
    }
    let (mut prompts, mut generated) = (0, 0);
    for (mut generation, cancel) in running {
        match cancel {
            // Dropping it cancels it.
            Some(tokens) => generation.by_ref().take(tokens).try_for_each(|piece| piece.map(|_| ()))?,
            None => {
                for piece in generation {
                    if let Some(finish) = piece?.finish {
                        prompts += finish.usage.prompt_tokens;
                        generated += finish.usage.generated_tokens;
                    }
                }
            }
        }
    }
    Ok((prompts, generated))
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Served { requests, cancelled, prompt_tokens, generated_tokens, seconds, .. } = self;
        writeln!(f, "{requests} requests ({cancelled} cancelled) in {seconds:.2} s")?;
        let rate = |tokens: &usize| *tokens as f64 / seconds;
        writeln!(f, "prompts {prompt_tokens} tokens, {:.1} tok/s", rate(prompt_tokens))?;
        writeln!(f, "answers {generated_tokens} tokens, {:.1} tok/s", rate(generated_tokens))?;
        if let (Some(before), Some(after)) = (self.free_before, self.free_after) {
            writeln!(f, "free memory: {} before, {} after", console::bytes(before), console::bytes(after))?;
        }
        Ok(())
    }
}
