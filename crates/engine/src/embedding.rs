//! Texts that become vectors.

use std::sync::{Arc, mpsc};
use std::thread;

use crate::job::{Collector, Embedding, Job, Task};
use crate::{Canceller, Embeddings, Engine, EngineError, Prompt};

/// Texts to be embedded, each by itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EmbeddingRequest {
    /// The texts; at least one.
    pub inputs: Vec<Prompt>,
    /// See [`Request::tenant`](crate::Request::tenant).
    pub tenant: u64,
    /// Whether the results are the hidden states of the last tokens after the last norm, as they are, instead of pooled
    /// vectors of length 1.
    pub last_states: bool,
}

impl EmbeddingRequest {
    /// A request of tenant 0.
    pub fn new(inputs: Vec<Prompt>) -> EmbeddingRequest {
        EmbeddingRequest { inputs, tenant: 0, last_states: false }
    }
}

impl Engine {
    /// Embeds texts, and waits for their vectors.
    ///
    /// A vector is pooled from the hidden states after the last norm. The model file's `pooling_type` is the mean, the
    /// first token or the last token. Without `pooling_type`, as in models that generate text, it is the last token.
    /// It blocks until all are computed. Inputs run in the same steps as all other requests, and on a CPU other requests do not change a bit of them.
    ///
    /// # Errors
    /// The errors of [`deliver_embeddings`](Self::deliver_embeddings), and those that arise while the inputs are
    /// computed.
    pub fn embed(&self, request: EmbeddingRequest) -> Result<Embeddings, EngineError> {
        if self.thread_id() == Some(thread::current().id()) {
            return Err(EngineError::InCallback);
        }
        let (result, results) = mpsc::channel();
        // It is received, or nobody waits for it.
        self.deliver_embeddings(request, move |embeddings| drop(result.send(embeddings)))?;
        results.recv().unwrap_or(Err(EngineError::Stopped))
    }

    /// Computes vectors as [`embed`](Self::embed) does. Calls `deliver` with the vectors or the error on the engine's
    /// thread; all requests wait for this call. `deliver` is dropped instead if the request is cancelled or the engine
    /// dropped. The request uses one place of the queue for any number of inputs.
    ///
    /// # Errors
    /// [`EngineError::NoInputs`], [`EngineError::NoPooling`], an input that is empty or longer than the context,
    /// [`EngineError::Busy`], and the errors of [`health`](Self::health).
    pub fn deliver_embeddings(
        &self,
        request: EmbeddingRequest,
        deliver: impl FnOnce(Result<Embeddings, EngineError>) + Send + 'static,
    ) -> Result<Canceller, EngineError> {
        self.health()?;
        let pooling = match request.last_states {
            true => None,
            false => Some(self.model().spec().pooling.ok_or(EngineError::NoPooling)?),
        };
        let (place, started) = self.reserve(request.tenant, 1)?.one().ok_or(EngineError::Stopped)?;
        let collector = Collector::new(request.inputs.len(), place, Box::new(deliver));
        let since = collector.asked();
        let texts: Vec<Vec<u32>> =
            request.inputs.iter().map(|input| self.prompt_tokens(input)).collect::<Result<_, _>>()?;
        let (text, embedding) = Embedding::first(texts, pooling, collector).ok_or(EngineError::NoInputs)?;
        let task = Task::Embed(Box::new(embedding));
        self.submit(Job::new(text, request.tenant, since, Arc::default(), started, task))
    }
}
