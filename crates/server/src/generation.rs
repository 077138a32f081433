//! Requests on the engine, for asynchronous code.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Instant;

use gristmill_engine::Request;
use gristmill_engine::engine::{Canceller, EngineError, Finish, Logprob, Piece};
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

impl Choices {
    /// Starts one generation for each request.
    pub(crate) async fn start(app: &App, requests: Vec<Request>) -> Result<Choices, ApiError> {
        let app = app.clone();
        // Templates and tokenizers take milliseconds for long prompts.
        blocking(move || Choices::start_blocking(&app, requests)).await
    }

    fn start_blocking(app: &App, requests: Vec<Request>) -> Result<Choices, ApiError> {
        let (sender, pieces) = mpsc::unbounded_channel();
        let mut choices = Choices { pieces, cancellers: Vec::new(), running: requests.len() };
        for (number, mut request) in requests.into_iter().enumerate() {
            request.draft = app.options.draft;
            let sender = sender.clone();
            let mut watch = app.metrics.watch(Instant::now());
            let deliver = move |event: Result<Piece, EngineError>| {
                watch.see(&event);
                sender.send((number, event)).is_ok()
            };
            // After a refusal, dropping `choices` cancels those that were started.
            choices.cancellers.push(app.engine.deliver(request, deliver)?);
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
                Some(Ok((number, piece)))
            }
            Err(error) => {
                self.running = 0;
                self.cancel();
                Some(Err(error.into()))
            }
        }
    }

    /// Waits for all choices.
    pub(crate) async fn collect(mut self) -> Result<Vec<Choice>, ApiError> {
        let mut choices: Vec<Choice> = self.cancellers.iter().map(|_| Choice::default()).collect();
        while let Some(next) = self.next().await {
            let (number, piece) = next?;
            let choice = &mut choices[number];
            choice.text += &piece.text;
            choice.logprobs.extend(piece.logprob);
            choice.prompt_logprobs.extend(piece.prompt_logprobs);
            choice.finish = piece.finish;
        }
        Ok(choices)
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
