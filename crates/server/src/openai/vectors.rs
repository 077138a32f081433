//! Vectors of texts on the engine, for every interface that compares or returns them.

use std::time::Instant;

use gristmill_engine::engine::{Canceller, EngineError};
use gristmill_engine::{EmbeddingRequest, Embeddings, Prompt};
use tokio::sync::oneshot;

use crate::access::Tenant;
use crate::blocking::blocking;
use crate::error::{ApiError, Paths};
use crate::keys::Turn;
use crate::state::App;

/// The vectors of texts. `at` has the path of each text in the caller's request.
pub(super) async fn vectors(
    app: &App,
    tenant: Tenant,
    texts: Vec<Prompt>,
    at: impl Fn(usize) -> String + Send + 'static,
) -> Result<Embeddings, ApiError> {
    let app = app.clone();
    let running = blocking(move || Running::start(&app, &tenant, texts, at)).await?;
    running.result().await
}

/// A request on the engine. Dropping this cancels it.
struct Running {
    result: oneshot::Receiver<Result<Embeddings, EngineError>>,
    canceller: Canceller,
    /// Counts the request among those of its key at a time.
    #[expect(dead_code, reason = "it counts while it exists")]
    turn: Option<Turn>,
}

impl Running {
    fn start(
        app: &App,
        tenant: &Tenant,
        texts: Vec<Prompt>,
        at: impl Fn(usize) -> String,
    ) -> Result<Running, ApiError> {
        let paths = Paths::new("input");
        let tokens = |(index, text): (usize, Prompt)| {
            let tokens = app.engine.prompt_tokens(&text);
            let tokens = tokens.map_err(|error| {
                let error = paths.error(error);
                // Errors of the prompt are about this text.
                let param = error.param.map(|_| at(index));
                ApiError { param, ..error }
            });
            Ok(Prompt::Tokens(tokens?))
        };
        let inputs = texts.into_iter().enumerate().map(tokens).collect::<Result<_, ApiError>>()?;
        let turn = tenant.turn()?;
        let (send, result) = oneshot::channel();
        let (mut watch, accepted) = app.metrics.watch(Instant::now(), tenant);
        let deliver = move |embeddings| {
            watch.see_embeddings(&embeddings);
            // Nobody is there if the client has gone away.
            let _ = send.send(embeddings);
        };
        let request = EmbeddingRequest { inputs, tenant: tenant.id() };
        let canceller = app.engine.deliver_embeddings(request, deliver)?;
        accepted.set();
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
