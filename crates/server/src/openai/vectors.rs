//! Vectors of texts on the engine, for every interface that compares or returns them.

use std::time::Instant;

use gristmill_engine::{Canceller, EngineError};
use gristmill_engine::{EmbeddingRequest, Embeddings, Prompt};
use tokio::sync::oneshot;

use crate::blocking::blocking;
use crate::error::{ApiError, Paths};
use crate::keys::Turn;
use crate::models::ServedModel;
use crate::tenant::Tenant;

/// The vectors of texts. `at` has the path of each text in the caller's request.
pub(super) async fn vectors(
    model: &ServedModel,
    tenant: Tenant,
    texts: Vec<Prompt>,
    at: impl Fn(usize) -> String + Send + 'static,
) -> Result<Embeddings, ApiError> {
    run(model, tenant, texts, at, false).await
}

/// The hidden states of the last tokens of texts, as they are.
pub(super) async fn last_states(
    model: &ServedModel,
    tenant: Tenant,
    texts: Vec<Prompt>,
    at: impl Fn(usize) -> String + Send + 'static,
) -> Result<Embeddings, ApiError> {
    run(model, tenant, texts, at, true).await
}

async fn run(
    model: &ServedModel,
    tenant: Tenant,
    texts: Vec<Prompt>,
    at: impl Fn(usize) -> String + Send + 'static,
    last_states: bool,
) -> Result<Embeddings, ApiError> {
    let model = model.clone();
    let running = blocking(move || Running::start(&model, &tenant, texts, at, last_states)).await?;
    running.result().await
}

/// A request on the engine. Dropping this cancels it.
struct Running {
    result: oneshot::Receiver<Result<Embeddings, EngineError>>,
    canceller: Canceller,
    /// Counts the request among those of its key at a time. As in the queue, its texts together are one.
    #[expect(dead_code, reason = "it counts while it exists")]
    turn: Option<Turn>,
}

impl Running {
    fn start(
        model: &ServedModel,
        tenant: &Tenant,
        texts: Vec<Prompt>,
        at: impl Fn(usize) -> String,
        last_states: bool,
    ) -> Result<Running, ApiError> {
        let paths = Paths::new("input");
        let tokens = |(index, text): (usize, Prompt)| {
            let tokens = model.engine.prompt_tokens(&text);
            let tokens = tokens.map_err(|error| {
                let error = paths.error(error);
                // Errors of the prompt are about this text.
                let param = error.param.map(|_| at(index));
                ApiError { param, ..error }
            });
            Ok(Prompt::Tokens(tokens?))
        };
        let inputs = texts.into_iter().enumerate().map(tokens).collect::<Result<_, ApiError>>()?;
        let mut turn = tenant.turn(1)?;
        let (send, result) = oneshot::channel();
        let (mut watch, accepted) = model.app().metrics.watch(model.metrics(), Instant::now(), tenant);
        let deliver = move |embeddings| {
            watch.see_embeddings(&embeddings);
            // Nobody is there if the client has gone away.
            let _ = send.send(embeddings);
        };
        let request = EmbeddingRequest { inputs, tenant: tenant.id(), last_states };
        let canceller = model.engine.deliver_embeddings(request, deliver)?;
        accepted.set();
        turn.iter_mut().for_each(Turn::start);
        Ok(Running { result, canceller, turn })
    }

    async fn result(mut self) -> Result<Embeddings, ApiError> {
        // The engine drops what delivers when it stops.
        let result = (&mut self.result).await.unwrap_or(Err(EngineError::Stopped));
        Ok(result?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.canceller.cancel();
    }
}
