//! A text that becomes a vector, one of the inputs of a request.
//!
//! # A request for embeddings is one job with its next text in the queue
//!
//! When a text gets a sequence, the next text queues after the requests that have arrived since. So a list of texts
//! fills a batch, needs one place in the queue, and delays no other request until its end. The host sums hidden states
//! in the order of positions. *A vector depends neither on how its text is split nor on a preemption. Hidden states are
//! the output of the last norm, which a pass leaves in its scratch before the logits, so they cost no launch.*

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::callback::call_back;
use super::{Permit, Progress};
use crate::Outputs;
use crate::{Embeddings, EngineError, Usage};
use gristmill_model::spec::Pooling;

/// Takes the result of a request.
type Sink = Box<dyn FnOnce(Result<Embeddings, EngineError>) + Send>;

/// An input, with the inputs of the same request that have not started: one of them waits when this one starts. So the
/// inputs of a request run together, and others that wait start between them.
#[derive(Debug)]
pub(crate) struct Embedding {
    pooling: Pooling,
    /// Whether the vector has the length 1.
    is_scaled: bool,
    /// Which input it is.
    index: usize,
    /// The sum of the hidden states so far that are pooled; empty before the first.
    sum: Vec<f64>,
    /// The inputs that have not started.
    rest: VecDeque<(usize, Vec<u32>)>,
    collector: Arc<Mutex<Collector>>,
}

impl Embedding {
    /// The first of a request's inputs, which takes the others with it; `None` without inputs. Without a pooling, the
    /// result is the state of the last token.
    pub(crate) fn first(
        inputs: Vec<Vec<u32>>,
        pooling: Option<Pooling>,
        collector: Collector,
    ) -> Option<(Vec<u32>, Embedding)> {
        let rest = inputs.into_iter().enumerate().collect();
        let collector = Arc::new(Mutex::new(collector));
        let is_scaled = pooling.is_some();
        let pooling = pooling.unwrap_or(Pooling::Last);
        Embedding { pooling, is_scaled, index: 0, sum: Vec::new(), rest, collector }.next_input()
    }

    /// The next input that has not started, which takes the others with it.
    pub(super) fn next_input(&mut self) -> Option<(Vec<u32>, Embedding)> {
        let mut rest = std::mem::take(&mut self.rest);
        let (index, text) = rest.pop_front()?;
        let pooling = self.pooling;
        let is_scaled = self.is_scaled;
        let collector = self.collector.clone();
        Some((text, Embedding { pooling, is_scaled, index, sum: Vec::new(), rest, collector }))
    }

    /// When the request came.
    pub(super) fn asked(&self) -> Instant {
        self.collector().asked
    }

    /// Whether hidden states are pooled from the first token on.
    pub(super) fn needs_first_token(&self) -> bool {
        self.pooling != Pooling::Last
    }

    /// The hidden states that are wanted of a chunk of a text of this length.
    pub(crate) fn outputs(&self, chunk: &Range<usize>, length: usize) -> Outputs {
        match self.pooling {
            Pooling::Mean => Outputs::AllHidden,
            Pooling::First if chunk.start == 0 => Outputs::AllHidden,
            Pooling::Last if chunk.end == length => Outputs::LastHidden,
            _ => Outputs::None,
        }
    }

    /// Takes the next hidden states, rows of `width` elements. The order of the sums does not depend on how a text is
    /// cut.
    pub(crate) fn take(&mut self, rows: &[f32], width: usize) {
        self.sum.resize(width, 0.0);
        let pooled = if self.pooling == Pooling::Mean { rows } else { &rows[..width.min(rows.len())] };
        for row in pooled.chunks_exact(width) {
            self.sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        }
    }

    /// Discards what was pooled: the text is computed again.
    pub(super) fn restart(&mut self) {
        self.sum.clear();
    }

    /// The text is computed.
    pub(crate) fn finish(&mut self, progress: &Progress) {
        let vector = match self.is_scaled {
            true => normalised(&self.sum),
            false => self.sum.iter().map(|&x| x as f32).collect(),
        };
        self.collector().add(self.index, vector, &progress.usage);
    }

    /// Ends the request.
    pub(super) fn fail(&mut self, error: EngineError) {
        self.collector().end(Err(error));
    }

    /// Nobody else holds it for longer than a moment: all inputs are with the engine's thread.
    fn collector(&self) -> MutexGuard<'_, Collector> {
        self.collector.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A vector of length 1 in the direction of a sum, which is also the mean's direction; zeros if the sum is zero.
fn normalised(sum: &[f64]) -> Vec<f32> {
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    let factor = if length > 0.0 { length.recip() } else { 0.0 };
    sum.iter().map(|x| (x * factor) as f32).collect()
}

/// The vectors of a request so far.
pub(crate) struct Collector {
    asked: Instant,
    vectors: Vec<Vec<f32>>,
    /// Vectors that are missing.
    left: usize,
    usage: Usage,
    /// Both until the end of the request.
    permit: Option<Permit>,
    sink: Option<Sink>,
}

impl Collector {
    /// For a request that arrives now, with this number of inputs.
    pub(crate) fn new(inputs: usize, permit: Permit, sink: Sink) -> Collector {
        let vectors = vec![Vec::new(); inputs];
        let usage = Usage { queue: Duration::MAX, ..Usage::default() };
        let (permit, sink) = (Some(permit), Some(sink));
        Collector { asked: Instant::now(), vectors, left: inputs, usage, permit, sink }
    }

    /// When the request came.
    pub(crate) fn asked(&self) -> Instant {
        self.asked
    }

    fn add(&mut self, index: usize, vector: Vec<f32>, usage: &Usage) {
        self.vectors[index] = vector;
        self.left -= 1;
        let all = &mut self.usage;
        all.queue = all.queue.min(usage.queue);
        all.prefill = self.asked.elapsed().saturating_sub(all.queue);
        for (all, one) in [
            (&mut all.prompt_tokens, usage.prompt_tokens),
            (&mut all.reused_tokens, usage.reused_tokens),
            (&mut all.steps, usage.steps),
            (&mut all.step_requests, usage.step_requests),
            (&mut all.preemptions, usage.preemptions),
        ] {
            *all += one;
        }
        if self.left == 0 {
            let vectors = std::mem::take(&mut self.vectors);
            self.end(Ok(Embeddings { vectors, usage: self.usage }));
        }
    }

    /// Delivers the result, once.
    fn end(&mut self, result: Result<Embeddings, EngineError>) {
        self.permit = None;
        if let Some(sink) = self.sink.take() {
            call_back(|| sink(result));
        }
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({} of {} vectors are missing)", self.left, self.vectors.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_has_the_length_1() {
        assert_eq!(normalised(&[3.0, 0.0, -4.0]), [0.6, 0.0, -0.8]);
        assert_eq!(normalised(&[0.0, 0.0]), [0.0, 0.0]);
        let long = f64::from(f32::MAX) * 1e6;
        assert_eq!(normalised(&[long, long]), [0.5_f64.sqrt() as f32; 2]);
    }
}
