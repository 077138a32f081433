//! One text on its way through the engine: what is to be computed, how far it is, and what for.

mod callback;
mod completion;
mod embedding;
mod permit;
mod progress;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gristmill_text::tokenizer::Tokenizer;

use crate::EngineError;
use crate::pictures::Numbered;
use crate::{KvListener, Pictures};
pub(super) use completion::{Completion, Sampled, Sink};
pub(super) use embedding::{Collector, Embedding};
pub(super) use permit::{Permit, Permits};
pub(super) use progress::Progress;

/// A text and its progress.
#[derive(Debug)]
pub(super) struct Job {
    /// The tokens to be computed, until the job enters a slot: the prompt, after a preemption with the tokens that were
    /// generated.
    pub(super) text: Vec<u32>,
    /// The number of jobs that started earlier, when it has started once.
    pub(super) priority: Option<u64>,
    /// How often blocks had become free when there were too few for it last.
    pub(super) refused: Option<u64>,
    /// See [`Request::tenant`](crate::Request::tenant).
    pub(super) tenant: u64,
    /// Jobs with the same key reuse what each other computes.
    pub(super) cache_key: u64,
    /// The pictures of the prompt; numbered when the job arrives.
    pub(super) pictures: Pictures,
    pub(super) numbered: Numbered,
    pub(super) progress: Progress,
    cancelled: Arc<AtomicBool>,
    /// Whether any sequence of the request has started.
    request_started: Arc<AtomicBool>,
    pub(super) task: Task,
}

/// What callers hand to the engine's thread.
#[derive(Debug)]
pub(super) enum Order {
    Run(Box<Job>),
    /// Remove the entries of a tenant from the prefix cache.
    EvictPrefixes(u64),
    /// Tell the changes of the prefix cache from now on.
    Listen(KvListener),
}

/// The purpose of a job.
#[derive(Debug)]
pub(super) enum Task {
    /// Tokens that follow it.
    Complete(Box<Completion>),
    /// A vector.
    Embed(Box<Embedding>),
}

impl Job {
    /// A job that was requested at this time, of a request that has started if `request_started` is set.
    pub(super) fn new(
        text: Vec<u32>,
        tenant: u64,
        since: Instant,
        cancelled: Arc<AtomicBool>,
        request_started: Arc<AtomicBool>,
        task: Task,
    ) -> Job {
        let progress = Progress::new(text.len(), since);
        Job {
            text,
            priority: None,
            refused: None,
            tenant,
            cache_key: tenant,
            pictures: Pictures::default(),
            numbered: Numbered::default(),
            progress,
            cancelled,
            request_started,
            task,
        }
    }

    /// Whether its request has not started.
    pub(super) fn only_waits(&self) -> bool {
        !self.request_started.load(Ordering::Relaxed)
    }

    /// Set by the caller to cancel the request.
    pub(super) fn cancelled(&self) -> Arc<AtomicBool> {
        self.cancelled.clone()
    }

    /// Whether the caller has cancelled the request.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// The completion, if the job has that task.
    pub(super) fn completion(&self) -> Option<&Completion> {
        match &self.task {
            Task::Complete(completion) => Some(completion),
            Task::Embed(_) => None,
        }
    }

    /// The tokens that need not be computed if their state is there: all but the last, which has logits or a hidden
    /// state, and none where each token has outputs.
    pub(super) fn reusable(&self) -> Cow<'_, [u32]> {
        self.numbered.keys(self.reusable_tokens())
    }

    fn reusable_tokens(&self) -> &[u32] {
        let last = self.text.len().saturating_sub(1);
        let whole = match &self.task {
            Task::Complete(completion) => completion.prompt_logprobs.is_some(),
            Task::Embed(embedding) => embedding.needs_first_token(),
        };
        if whole { &[] } else { &self.text[..last] }
    }

    /// The tokens that the text may soon have: at most `more` than `length`.
    pub(super) fn soon(&self, length: usize, more: usize) -> usize {
        length + self.completion().map_or(0, |completion| more.min(completion.left(&self.progress)))
    }

    /// How many draft tokens to make, of which the context holds `room` more behind the next.
    pub(super) fn draft_tokens(&self, room: usize) -> usize {
        self.completion().map_or(0, |completion| completion.draft_tokens(&self.progress, room))
    }

    /// Enters a slot for the first time; of its sequence `reused` tokens are computed, which are all that others have
    /// computed if `differs`. Returns the job that waits in its place: the next input of its request, if there is one.
    pub(super) fn begin(&mut self, reused: usize, differs: bool, tokenizer: Option<&Tokenizer>) -> Option<Job> {
        let misses = differs && (1..self.reusable_tokens().len()).contains(&reused);
        self.progress.begin(reused);
        self.request_started.store(true, Ordering::Relaxed);
        match &mut self.task {
            Task::Complete(completion) => {
                if misses {
                    completion.miss(&self.text[reused..], tokenizer);
                }
                None
            }
            Task::Embed(embedding) => {
                let (text, next) = embedding.next_input()?;
                let (since, cancelled, started) = (next.asked(), self.cancelled.clone(), self.request_started.clone());
                Some(Job::new(text, self.tenant, since, cancelled, started, Task::Embed(Box::new(next))))
            }
        }
    }

    /// Waits again, until there are blocks for its text.
    pub(super) fn preempt(&mut self) {
        self.progress.usage.preemptions += 1;
        match &mut self.task {
            Task::Complete(completion) => completion.preempt(&self.progress),
            Task::Embed(embedding) => embedding.restart(),
        }
    }

    /// Ends the request with an error.
    pub(super) fn fail(&mut self, error: EngineError) {
        match &mut self.task {
            Task::Complete(completion) => completion.fail(error),
            Task::Embed(embedding) => {
                // The other inputs of the request.
                self.cancelled.store(true, Ordering::Relaxed);
                embedding.fail(error);
            }
        }
    }
}
