//! The way of requests to the engine's thread: places of the queue, then jobs.
//!
//! # All choices of a request start, or none
//!
//! Their places in the queue of the tenant are reserved together (`Engine::reserve`) before a prompt is tokenised.
//! Choices are created when the queue accepts them. *So a rejected request uses no memory except for its body, and a
//! tenant with a full queue does not block others.*

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::ThreadId;
use std::time::Instant;

use gristmill_text::grammar::Matcher;
use gristmill_text::tokenizer::StreamDecoder;

use crate::KvListener;
use crate::dry::Repetition;
use crate::job::{Completion, Job, Order, Permit, Sink, Task};
use crate::output::Wanted;
use crate::script::Scripted;
use crate::{Canceller, Engine, EngineError, Generation, Grammar, Pictures, Piece, Prompt, Request};

/// Reserved places in an engine's queue ([`Engine::reserve`]). Dropping it frees unused places.
#[derive(Debug)]
pub struct Reservation {
    permits: Vec<Permit>,
    /// Whether any sequence of the request has started.
    started: Arc<AtomicBool>,
}

/// Keeps a request through [`Engine::drain`] although it only waits.
#[derive(Debug, Clone)]
pub struct Pledge(Arc<AtomicBool>);

impl Pledge {
    /// From now on the request is not refused: its caller has been told that there will be a reply.
    pub fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The choices of one prompt that an engine has started.
#[derive(Debug)]
pub struct Choices {
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// One for each choice.
    pub cancellers: Vec<Canceller>,
}

impl Engine {
    /// The thread that runs requests and their callbacks.
    pub(super) fn thread_id(&self) -> Option<ThreadId> {
        self.thread.as_ref().map(|thread| thread.thread().id())
    }

    /// Starts a request. It runs on the engine's thread, independently of the iterator. This call blocks for milliseconds,
    /// while the prompt is tokenised and a grammar is compiled. The iterator blocks until the next piece.
    ///
    /// # Errors
    /// A reason to refuse the request: an empty prompt or one that is longer than the context, an option out of range,
    /// a grammar that cannot be enforced; [`EngineError::Busy`], and the errors of [`health`](Self::health). A later
    /// error is the last item of the iterator.
    pub fn generate(&self, request: Request) -> Result<Generation, EngineError> {
        let (events, pieces) = mpsc::channel();
        let cancel = self.deliver(request, move |event| events.send(event).is_ok())?;
        Ok(Generation { pieces, cancel, ended: false, engine: self.thread_id() })
    }

    /// Starts a request that calls `deliver` with each piece, or with what went wrong, which is the last. It blocks as
    /// [`generate`](Self::generate) does, and does not wait for the first piece. `deliver` returns
    /// whether it wants more (a `bool`, or [`Wanted`]), is called on the engine's thread, for which all requests wait, and is dropped when the
    /// request has ended, was cancelled, or the engine is dropped. If it panics, its own request is cancelled. It can
    /// start requests, but it cannot wait for them: [`EngineError::InCallback`].
    ///
    /// # Errors
    /// The errors of [`generate`](Self::generate).
    pub fn deliver<W: Into<Wanted>>(
        &self,
        request: Request,
        deliver: impl FnMut(Result<Piece, EngineError>) -> W + Send + 'static,
    ) -> Result<Canceller, EngineError> {
        let mut place = self.reserve(request.tenant, 1)?;
        let choices = self.deliver_choices(request, &mut place, [deliver])?;
        choices.cancellers.into_iter().next().ok_or(EngineError::Stopped)
    }

    /// Reserves places for `count` requests of a tenant, or none.
    ///
    /// # Errors
    /// [`EngineError::Busy`] if fewer are free, and the errors of [`health`](Self::health).
    pub fn reserve(&self, tenant: u64, count: usize) -> Result<Reservation, EngineError> {
        self.health()?;
        if self.draining.load(Ordering::Relaxed) {
            return Err(EngineError::Draining);
        }
        let places = self.sequences.saturating_add(self.queue);
        let permits = self.permits.take(tenant, places, count).ok_or(EngineError::Busy { asked: count, places })?;
        Ok(Reservation { permits, started: Arc::default() })
    }

    /// Accepts no more requests. New requests end with [`EngineError::Draining`], and so do waiting requests that have
    /// not started and have no [`Pledge`]. Running requests continue.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Starts several choices as [`deliver`](Self::deliver) does, one for each of `delivers`: their prompt is tokenised
    /// once, and choice *i* is sampled with seed + *i*. Each choice uses one place of the queue.
    ///
    /// # Errors
    /// The errors of [`generate`](Self::generate), and [`EngineError::Busy`] if `places` are too few. Choices that were
    /// started before an error are cancelled.
    pub fn deliver_choices<D, W: Into<Wanted>>(
        &self,
        request: Request,
        places: &mut Reservation,
        delivers: impl IntoIterator<Item = D>,
    ) -> Result<Choices, EngineError>
    where
        D: FnMut(Result<Piece, EngineError>) -> W + Send + 'static,
    {
        let since = Instant::now();
        let mut request = request;
        request.check(self.model.spec().vocab)?;
        let (prompt, images) = self.prompt_input(&request.prompt)?;
        if !images.is_empty() {
            request.pictures = Pictures::new(images);
        }
        request.pictures.check(&self.model, prompt.len())?;
        if self.model.spec().has_whole_images() {
            request.pictures.check_whole(self.step_room, request.prompt_logprobs.is_some())?;
        }
        // Its tokens stand for it in each choice.
        let text = mem::replace(&mut request.prompt, Prompt::Tokens(Vec::new()));
        let is_reply = matches!(text, Prompt::Rendered { is_started: false, .. });
        drop(text);
        let mut choices = Choices { prompt, cancellers: Vec::new() };
        for mut deliver in delivers {
            let deliver = Box::new(move |event| deliver(event).into());
            let started = self.begin(&request, is_reply, &choices.prompt, places, since, deliver);
            match started {
                Ok(canceller) => choices.cancellers.push(canceller),
                Err(error) => {
                    choices.cancellers.iter().for_each(Canceller::cancel);
                    return Err(error);
                }
            }
            request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(1));
        }
        Ok(choices)
    }

    /// Hands one choice to the engine's thread. `is_reply`: its text answers a conversation.
    fn begin(
        &self,
        request: &Request,
        is_reply: bool,
        prompt: &[u32],
        places: &mut Reservation,
        since: Instant,
        deliver: Box<dyn FnMut(Result<Piece, EngineError>) -> Wanted + Send>,
    ) -> Result<Canceller, EngineError> {
        let vocabulary = self.model.spec().vocab;
        let repetition = Repetition::new(&request.dry, self.model.tokenizer().is_ok())?;
        let grammar = request.grammar.as_ref();
        // A refused request frees its place.
        let matcher = grammar.map(|grammar| self.compile(grammar)).transpose()?;
        let place = places.permits.pop().ok_or(EngineError::Busy { asked: 1, places: 0 })?;
        let decoder = match grammar {
            None if is_reply => StreamDecoder::new(!request.control_tokens),
            // The text continues another, whose first space is not the first of a new one; a grammar has each space.
            _ => StreamDecoder::continuing(!request.control_tokens),
        };
        let sink = Sink(deliver);
        let mut completion = Completion::new(request.clone(), vocabulary, repetition, matcher, decoder, place, sink);
        if let Some(script) = &self.script {
            completion.follow(Scripted::new(&**script, self.model.tokenizer()?, prompt)?);
        }
        let task = Task::Complete(Box::new(completion));
        let mut job = Job::new(prompt.to_vec(), request.tenant, since, Arc::default(), places.started.clone(), task);
        job.pictures = request.pictures.clone();
        job.cache_key = request.cache_key.unwrap_or(request.tenant);
        self.submit(job)
    }

    /// Removes a tenant's entries from the prefix cache, except blocks that running requests use. Later requests start
    /// after it. Entries with a cache key of their own stay.
    ///
    /// # Errors
    /// The errors of [`health`](Self::health).
    pub fn evict_prefixes(&self, tenant: u64) -> Result<(), EngineError> {
        self.health()?;
        let jobs = self.jobs.as_ref().ok_or(EngineError::Stopped)?;
        jobs.send(Order::EvictPrefixes(tenant)).map_err(|_| EngineError::Stopped)
    }

    /// The listener gets each change of the prefix cache by requests that are made later. It replaces an earlier
    /// listener.
    ///
    /// # Errors
    /// The errors of [`health`](Self::health).
    pub fn listen(&self, listener: KvListener) -> Result<(), EngineError> {
        self.health()?;
        let jobs = self.jobs.as_ref().ok_or(EngineError::Stopped)?;
        jobs.send(Order::Listen(listener)).map_err(|_| EngineError::Stopped)
    }

    /// The matcher of a new text that follows a grammar.
    pub(super) fn compile(&self, grammar: &Grammar) -> Result<Matcher, EngineError> {
        Ok(self.grammars.compile(grammar, self.model.tokenizer()?, self.model.spec().vocab)?)
    }

    /// Hands a job to the engine's thread.
    pub(super) fn submit(&self, job: Job) -> Result<Canceller, EngineError> {
        let cancelled = job.cancelled();
        let jobs = self.jobs.as_ref().ok_or(EngineError::Stopped)?;
        jobs.send(Order::Run(Box::new(job))).map_err(|_| self.health().err().unwrap_or(EngineError::Stopped))?;
        Ok(Canceller(cancelled))
    }
}

impl Reservation {
    /// Keeps the request of these places through a drain, once [`Pledge::give`] is called.
    pub fn pledge(&self) -> Pledge {
        Pledge(self.started.clone())
    }

    /// The place of a request in the queue, and whether any of its sequences has started.
    pub(super) fn one(mut self) -> Option<(Permit, Arc<AtomicBool>)> {
        Some((self.permits.pop()?, self.started))
    }
}
