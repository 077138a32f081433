//! Requests on the engine, for asynchronous code.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem;
use std::time::Instant;

use gristmill_engine::engine::receipt::{Receipt, Recorder};
use gristmill_engine::engine::{Canceller, EngineError, Finish, Logprob, Piece};
use gristmill_engine::reply::{Reply, ReplyEvent, ReplyForm};
use gristmill_engine::{Chat, ConverseOptions, Request};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::error::ApiError;
use crate::state::App;
use crate::tokens::blocking;

/// The choices of one reply while they are generated. Dropping this cancels what still runs.
#[derive(Debug)]
pub(crate) struct Choices {
    /// Pieces with the numbers of their choices. Unbounded: a generation has no more pieces than the context has tokens, and
    /// the engine never waits for a slow client.
    pieces: UnboundedReceiver<(usize, Result<Piece, EngineError>)>,
    cancellers: Vec<Canceller>,
    running: usize,
    endings: Vec<Ending>,
    /// If the client asks for a receipt.
    recorder: Option<Recorder>,
}

/// How one choice came about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    pub(crate) finish: Option<Finish>,
    /// See [`Piece::cache_miss`].
    pub(crate) cache_miss: Option<String>,
}

/// How all choices of a reply came about: what its usage tells.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The fingerprint of the model.
    pub(crate) model: String,
    pub(crate) endings: Vec<Ending>,
    pub(crate) receipt: Option<Receipt>,
}

/// One choice, whole.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) text: String,
    /// Of the completion, if the request asks for them.
    pub(crate) logprobs: Vec<Logprob>,
    pub(crate) prompt_logprobs: Vec<Logprob>,
    pub(crate) finish: Option<Finish>,
}

/// The request for the reply to a conversation, and the form of the reply.
pub(crate) async fn converse(
    app: &App,
    chat: Chat,
    options: ConverseOptions,
) -> Result<(Request, ReplyForm), ApiError> {
    let app = app.clone();
    blocking(move || Ok(app.engine.converse(chat, options)?)).await
}

/// The events of a piece of a reply, which may be the last.
pub(crate) fn events(reply: &mut Reply, text: &str, last: bool) -> Vec<ReplyEvent> {
    let mut events = reply.push(text);
    if last {
        events.extend(reply.finish());
    }
    events
}

impl Choices {
    /// Starts one generation for each request; `receipt`: the client asks for one.
    pub(crate) async fn start(app: &App, requests: Vec<Request>, receipt: bool) -> Result<Choices, ApiError> {
        let app = app.clone();
        // Templates and tokenizers take milliseconds for long prompts.
        blocking(move || Choices::start_blocking(&app, requests, receipt)).await
    }

    fn start_blocking(app: &App, mut requests: Vec<Request>, receipt: bool) -> Result<Choices, ApiError> {
        requests.iter_mut().for_each(|request| request.draft = app.options.draft);
        let recorder = receipt.then(|| Recorder::new(&app.engine, &requests));
        let (sender, pieces) = mpsc::unbounded_channel();
        let (running, endings) = (requests.len(), vec![Ending::default(); requests.len()]);
        let mut choices = Choices { pieces, cancellers: Vec::new(), running, endings, recorder };
        for (number, request) in requests.into_iter().enumerate() {
            let sender = sender.clone();
            let (mut watch, accepted) = app.metrics.watch(Instant::now());
            let deliver = move |event: Result<Piece, EngineError>| {
                watch.see(&event);
                sender.send((number, event)).is_ok()
            };
            // After a refusal, dropping `choices` cancels those that were started.
            choices.cancellers.push(app.engine.deliver(request, deliver)?);
            accepted.set();
        }
        Ok(choices)
    }

    /// The next piece, with the number of its choice. `None` after the last of all.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, Piece), ApiError>> {
        if self.running == 0 {
            return None;
        }
        // The engine drops what delivers when it stops.
        let (number, event) = self.pieces.recv().await.unwrap_or((0, Err(EngineError::Stopped)));
        match event {
            Ok(piece) => {
                self.running -= usize::from(piece.finish.is_some());
                self.see(number, &piece);
                Some(Ok((number, piece)))
            }
            Err(error) => {
                self.running = 0;
                self.cancel();
                Some(Err(error.into()))
            }
        }
    }

    fn see(&mut self, number: usize, piece: &Piece) {
        let ending = &mut self.endings[number];
        ending.finish = piece.finish;
        if piece.cache_miss.is_some() {
            ending.cache_miss.clone_from(&piece.cache_miss);
        }
        self.recorder.iter_mut().for_each(|recorder| recorder.push(number, piece));
    }

    /// How the choices came about, after the last piece of all.
    pub(crate) fn outcome(&mut self, app: &App) -> Outcome {
        let model = app.engine.model().fingerprint().to_owned();
        let receipt = self.recorder.take().and_then(Recorder::finish);
        Outcome { model, endings: mem::take(&mut self.endings), receipt }
    }

    /// Waits for all choices.
    pub(crate) async fn collect(mut self, app: &App) -> Result<(Vec<Choice>, Outcome), ApiError> {
        let mut choices: Vec<Choice> = self.cancellers.iter().map(|_| Choice::default()).collect();
        while let Some(next) = self.next().await {
            let (number, piece) = next?;
            let choice = &mut choices[number];
            choice.text += &piece.text;
            choice.logprobs.extend(piece.logprob);
            choice.prompt_logprobs.extend(piece.prompt_logprobs);
            choice.finish = piece.finish;
        }
        Ok((choices, self.outcome(app)))
    }

    fn cancel(&self) {
        self.cancellers.iter().for_each(Canceller::cancel);
    }
}

impl Drop for Choices {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// A name for a call: `call_` and 16 random digits.
pub(crate) fn call_id() -> String {
    item_id("call")
}

/// A name for a part of a reply: `prefix_` and 16 random digits.
pub(crate) fn item_id(prefix: &str) -> String {
    format!("{prefix}_{:016x}", RandomState::new().hash_one(prefix))
}

/// A name for a reply that no other reply has: `chatcmpl-` and 32 random digits.
pub(crate) fn id(prefix: &str) -> String {
    // The standard library seeds each `RandomState` with system randomness.
    let random = || RandomState::new().hash_one(prefix);
    format!("{prefix}-{:016x}{:016x}", random(), random())
}
