//! A request for vectors.

use std::process;
use std::sync::Arc;

use gristmill_engine::{Canceller, EmbeddingRequest, Embeddings, Engine, EngineError, Prompt};
use pyo3::prelude::*;

use crate::floats::Floats;
use crate::response::check_process;
use crate::wait::{Awaited, sealed};

/// What the engine has sent.
#[derive(Default)]
struct Arrived {
    result: Option<Result<Embeddings, EngineError>>,
    has_ended: bool,
    notify: Option<Py<PyAny>>,
}

/// A request for vectors. Closing it, or dropping it, cancels it.
#[pyclass(frozen, module = "gristmill._native")]
pub(crate) struct Embedding {
    arrived: Arc<Awaited<Arrived>>,
    canceller: Canceller,
    rows: usize,
    /// The process that has the engine's threads.
    process: u32,
}

impl Embedding {
    pub(crate) fn start(engine: &Engine, inputs: Vec<Prompt>) -> Result<Embedding, EngineError> {
        let (arrived, rows) = (Arc::<Awaited<Arrived>>::default(), inputs.len());
        let sender = Sender(arrived.clone());
        let request = EmbeddingRequest { inputs, tenant: 0, last_states: false };
        let canceller = engine.deliver_embeddings(request, move |result| sender.send(result))?;
        Ok(Embedding { arrived, canceller, rows, process: process::id() })
    }
}

/// The engine's side.
struct Sender(Arc<Awaited<Arrived>>);

impl Sender {
    /// The first result counts.
    fn send(&self, result: Result<Embeddings, EngineError>) {
        let notify = {
            let mut arrived = self.0.lock();
            if !arrived.has_ended {
                (arrived.result, arrived.has_ended) = (Some(result), true);
            }
            arrived.notify.take()
        };
        self.0.changed();
        if let Some(notify) = notify {
            // All requests wait for the engine's thread, so another one waits for the GIL.
            std::thread::spawn(move || Python::try_attach(|py| notify.call0(py).map(drop).unwrap_or_default()));
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.send(Err(EngineError::Stopped));
    }
}

#[pymethods]
impl Embedding {
    /// Waits for the vectors, one row each, and the number of tokens.
    fn wait(&self, py: Python<'_>) -> PyResult<(Floats, usize)> {
        check_process(py, self.process)?;
        let result = self.arrived.wait(py, |arrived| match arrived.result.take() {
            None if arrived.has_ended => Some(Err(EngineError::Stopped)),
            result => result,
        })?;
        let rows = self.rows;
        sealed(py, || {
            let embeddings = result?;
            let tokens = embeddings.usage.prompt_tokens;
            Ok((Floats::new(embeddings.vectors.concat(), rows), tokens))
        })
    }

    /// Whether the vectors are there. Else the callback is called once, from another thread, when they are.
    fn notify(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<bool> {
        check_process(py, self.process)?;
        let mut arrived = self.arrived.lock();
        if arrived.has_ended {
            return Ok(true);
        }
        let old = arrived.notify.replace(callback);
        drop(arrived);
        drop(old);
        Ok(false)
    }

    /// Cancels the request.
    fn close(&self) {
        if process::id() == self.process {
            self.canceller.cancel();
        }
    }
}

impl Drop for Embedding {
    fn drop(&mut self) {
        self.close();
    }
}
