//! A generation as an asynchronous stream: `cargo run --release --example stream -- MODEL.gguf PROMPT`.
//!
//! The engine calls back with each piece, so a stream occupies no thread. Dropping the stream cancels its request.

use std::error::Error;
use std::io::{Write, stdout};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};
use gristmill_engine::Canceller;
use gristmill_engine::{Engine, EngineError, GenerationOptions, Limits, LoadOptions, Model, Piece, Request};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The pieces of a generation. It ends after the last piece or an error.
pub struct Pieces {
    pieces: UnboundedReceiver<Result<Piece, EngineError>>,
    cancel: Canceller,
}

/// Starts a request. Pieces that nobody has read yet wait in the channel, at most `max_tokens` of them.
pub fn pieces(engine: &Engine, request: Request) -> Result<Pieces, EngineError> {
    let (events, pieces) = unbounded_channel();
    let cancel = engine.deliver(request, move |event| events.send(event).is_ok())?;
    Ok(Pieces { pieces, cancel })
}

impl Stream for Pieces {
    type Item = Result<Piece, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.poll_recv(context)
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (Some(path), Some(prompt)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        return Err("usage: stream MODEL.gguf PROMPT".into());
    };
    let model = Arc::new(Model::open(path, LoadOptions::default())?);
    let engine = Engine::start(model, Limits::default())?;
    let options = GenerationOptions { max_tokens: Some(200), ..GenerationOptions::default() };
    tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        let mut pieces = pieces(&engine, engine.request(prompt, options))?;
        while let Some(piece) = pieces.next().await {
            print!("{}", piece?.text);
            stdout().flush()?;
        }
        println!();
        Ok(())
    })
}
