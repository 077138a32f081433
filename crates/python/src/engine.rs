//! Models and their engines.

use std::ffi::OsString;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use gristmill_cli::library::{self, OpenModel};
use gristmill_engine::tokenizer::EncodeOptions;
use gristmill_engine::{EngineError, Prompt};
use gristmill_server::{LoadedModel, OfferedModel, Options, router};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::runtime::{Builder, Runtime};

use crate::embedding::Embedding;
use crate::errors::Raised;
use crate::floats::Floats;
use crate::response::{Response, check_process};
use crate::session::{Session, State};
use crate::wait::{Awaited, sealed, unpanicked};

/// How long [`Engine::close`] waits for work that cannot be cancelled, such as tokenising a long text.
const CLOSING: Duration = Duration::from_secs(10);

/// A model with its engine, and the server's router over it.
#[pyclass(frozen, weakref, module = "gristmill._native")]
pub(crate) struct Engine {
    open: Mutex<Option<Arc<Open>>>,
    /// The process that has the engine's threads.
    process: u32,
}

struct Open {
    name: String,
    loaded: LoadedModel,
    router: axum::Router,
    /// A router that refuses unknown fields.
    strict: axum::Router,
    runtime: Runtime,
}

/// Texts or their tokens.
#[derive(FromPyObject)]
enum Input {
    Text(String),
    Tokens(Vec<u32>),
}

impl From<Input> for Prompt {
    fn from(input: Input) -> Prompt {
        match input {
            Input::Text(text) => text.into(),
            Input::Tokens(tokens) => tokens.into(),
        }
    }
}

impl Engine {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        check_process(py, self.process)?;
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.ok_or_else(|| Raised::new("ClosedError", "the engine is closed; open the model again").exception(py))
    }
}

impl Open {
    fn new(options: Vec<OsString>, shared: Option<&Open>) -> Result<Open, Raised> {
        let shared = shared.map(|shared| shared.loaded.engine.model().backend().clone());
        let OpenModel { name, loaded, options, .. } = library::open(options, shared)?;
        // One thread answers requests, the others tokenise.
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("gristmill").enable_all().build();
        let runtime = runtime.map_err(|error| Raised::new("InternalError", format!("no thread starts: {error}")))?;
        // Integrations name a model of their own.
        let model = OfferedModel::loaded(name.clone(), loaded.clone()).with_aliases(vec!["*".to_owned()]);
        let strict = router(vec![model.clone()], Options { strict: true, ..options.clone() });
        Ok(Open { name, loaded, router: router(vec![model], options), strict, runtime })
    }

    fn logits(&self, tokens: &[u32], all: bool) -> Result<Floats, Raised> {
        // Refuses empty and long prompts, and tokens that do not exist.
        self.loaded.engine.prompt_tokens(&Prompt::Tokens(tokens.to_vec()))?;
        State::new(&self.loaded, tokens.len())?.forward(tokens, all)
    }
}

#[pymethods]
impl Engine {
    /// Opens a model with options of the command line. Another engine's device is shared. After a signal, the thread that
    /// opens the model frees it.
    #[new]
    #[pyo3(signature = (options, shared = None))]
    fn new(py: Python<'_>, options: Vec<OsString>, shared: Option<&Engine>) -> PyResult<Engine> {
        let shared = shared.map(|engine| engine.open(py)).transpose()?;
        let result = Arc::<Awaited<Option<Result<Open, Raised>>>>::default();
        let sent = result.clone();
        let work = move || {
            let opened = unpanicked(|| Open::new(options, shared.as_deref()));
            *sent.lock() = Some(opened);
            sent.changed();
        };
        let failed = |error| Raised::new("InternalError", format!("no thread starts: {error}")).exception(py);
        thread::Builder::new().name("gristmill-open".to_owned()).spawn(work).map_err(failed)?;
        let open = result.wait(py, Option::take)?.map_err(|raised| raised.exception(py))?;
        Ok(Engine { open: Mutex::new(Some(Arc::new(open))), process: process::id() })
    }

    /// Sends a request to the server's router. `strict`: unknown fields are refused.
    fn request(
        this: &Bound<'_, Self>,
        py: Python<'_>,
        method: &str,
        target: &str,
        headers: Vec<(String, Vec<u8>)>,
        body: Vec<u8>,
        strict: bool,
    ) -> PyResult<Response> {
        let open = this.get().open(py)?;
        let request = headers.iter().fold(Request::builder().method(method).uri(target), |request, (name, value)| {
            request.header(name.as_str(), value.as_slice())
        });
        let wrong =
            |error: axum::http::Error| Raised::new("BadRequestError", format!("the request: {error}")).exception(py);
        let request = request.body(Body::from(body)).map_err(wrong)?;
        let router = if strict { &open.strict } else { &open.router };
        Ok(Response::start(open.runtime.handle(), router.clone(), request, this.clone().unbind()))
    }

    /// Starts to embed texts.
    fn embed(&self, py: Python<'_>, inputs: Vec<Input>) -> PyResult<Embedding> {
        let open = self.open(py)?;
        let inputs = inputs.into_iter().map(Prompt::from).collect();
        sealed(py, || Ok(Embedding::start(&open.loaded.engine, inputs)?))
    }

    /// The logits after each token, or after the last.
    fn logits(&self, py: Python<'_>, tokens: Vec<u32>, last: bool) -> PyResult<Floats> {
        let open = self.open(py)?;
        sealed(py, || open.logits(&tokens, !last))
    }

    /// A sequence of at most this number of tokens, whose logits are returned.
    fn session(&self, py: Python<'_>, context: usize) -> PyResult<Session> {
        let open = self.open(py)?;
        sealed(py, || State::new(&open.loaded, context)).map(Session::new)
    }

    /// The tokens of a text.
    fn tokenize(&self, py: Python<'_>, text: &str, add_special: bool, parse_special: bool) -> PyResult<Vec<u32>> {
        let open = self.open(py)?;
        let options = EncodeOptions { add_special, parse_special };
        sealed(py, || {
            let tokens = open.loaded.engine.model().tokenizer()?.encode(text, options);
            tokens.map_err(|error| Raised::from(EngineError::from(error)))
        })
    }

    /// The text of tokens; without control tokens if `skip_special`.
    fn detokenize(&self, py: Python<'_>, tokens: Vec<u32>, skip_special: bool) -> PyResult<String> {
        let open = self.open(py)?;
        sealed(py, || {
            let text = open.loaded.engine.model().tokenizer()?.decode(&tokens, skip_special);
            text.map_err(|error| Raised::from(EngineError::from(error)))
        })
    }

    /// The bytes that a token stands for.
    fn token_bytes(&self, py: Python<'_>, token: u32) -> PyResult<Vec<u8>> {
        let open = self.open(py)?;
        sealed(py, || {
            let bytes = open.loaded.engine.model().tokenizer()?.token_bytes(token);
            bytes.map(<[u8]>::to_vec).map_err(|error| Raised::from(EngineError::from(error)))
        })
    }

    /// Whether a token is no text, such as the end of a text.
    fn is_special(&self, py: Python<'_>, token: u32) -> PyResult<bool> {
        let open = self.open(py)?;
        Ok(open.loaded.engine.model().tokenizer().is_ok_and(|tokenizer| tokenizer.is_special(token)))
    }

    /// Facts about the model.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let open = self.open(py)?;
        let (engine, info) = (&open.loaded.engine, PyDict::new(py));
        let (model, spec) = (engine.model(), engine.model().spec());
        let tokenizer = model.tokenizer().ok();
        info.set_item("name", &open.name)?;
        info.set_item("title", &spec.name)?;
        info.set_item("architecture", spec.architecture.to_string())?;
        info.set_item("context", engine.context())?;
        info.set_item("sequences", engine.sequences())?;
        info.set_item("vocabulary", spec.vocab)?;
        info.set_item("width", spec.hidden)?;
        info.set_item("layers", spec.layers.len())?;
        info.set_item("device", model.device_name())?;
        info.set_item("fingerprint", model.fingerprint())?;
        info.set_item("chat_template", engine.template().map(|template| template.source()))?;
        info.set_item("bos", tokenizer.and_then(|tokenizer| tokenizer.bos()))?;
        info.set_item("eos", tokenizer.and_then(|tokenizer| tokenizer.eos()))?;
        let ends = tokenizer.map(|tokenizer| tokenizer.end_of_generation().to_vec());
        info.set_item("ends", ends.unwrap_or_default())?;
        info.set_item("images", model.tower().is_some())?;
        info.set_item("notices", engine.notices().iter().map(ToString::to_string).collect::<Vec<_>>())?;
        Ok(info)
    }

    /// What the engine does now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let open = self.open(py)?;
        let (found, stats) = (open.loaded.engine.stats(), PyDict::new(py));
        stats.set_item("running", found.running)?;
        stats.set_item("waiting", found.waiting)?;
        stats.set_item("kv_tokens", found.kv.used)?;
        stats.set_item("kv_capacity", found.kv.capacity)?;
        stats.set_item("overlapped_steps", found.overlapped_steps)?;
        Ok(stats)
    }

    /// Cancels all requests and frees the memory.
    fn close(&self, py: Python<'_>) {
        if process::id() == self.process {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
            py.detach(|| end(open));
        }
    }
}

/// Ends the requests of an engine, whose replies hold it, and then the engine. It blocks.
fn end(open: Option<Arc<Open>>) {
    // Else a method that runs on another thread ends it when it returns.
    if let Some(Open { loaded, router, strict, runtime, .. }) = open.and_then(Arc::into_inner) {
        runtime.shutdown_timeout(CLOSING);
        drop((router, strict, loaded));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match process::id() == self.process {
            // Its threads may wait for the GIL, and it for them.
            true => drop(Python::try_attach(|py| py.detach(|| end(open)))),
            false => std::mem::forget(open),
        }
    }
}
