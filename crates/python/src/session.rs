//! Logits of one sequence, for programs that choose its tokens themselves.

use std::process;
use std::sync::{Mutex, PoisonError};

use gristmill_engine::{Batch, Limits, Outputs, Runner, SequenceId};
use gristmill_server::LoadedModel;
use pyo3::prelude::*;

use crate::errors::Raised;
use crate::floats::Floats;
use crate::response::check_process;
use crate::wait::sealed;

/// Tokens of a pass, and of a pass that returns the logits of each.
const TOKENS: usize = 512;
const ROWS: usize = 32;

/// A sequence with its state, which is not shared with the engine's requests.
#[pyclass(frozen, module = "gristmill._native")]
pub(crate) struct Session {
    /// `None` in a process that has none of its device's threads, and while the session is dropped.
    state: Mutex<Option<State>>,
    process: u32,
}

pub(crate) struct State {
    runner: Runner,
    sequence: SequenceId,
}

impl State {
    /// A sequence of at most this number of tokens.
    pub(crate) fn new(loaded: &LoadedModel, context: usize) -> Result<State, Raised> {
        let engine = &loaded.engine;
        let limits = Limits {
            context: Some(context),
            sequences: 1,
            kv_tokens: None,
            batch_tokens: context.min(TOKENS),
            output_rows: Some(context.min(ROWS)),
            kv_format: engine.conditions().kv_format,
            ..Limits::default()
        };
        let mut runner = Runner::new(engine.model().clone(), limits)?;
        let sequence = runner.open_sequence()?;
        Ok(State { runner, sequence })
    }

    /// Appends tokens, and returns the logits after each or after the last.
    pub(crate) fn forward(&mut self, tokens: &[u32], all: bool) -> Result<Floats, Raised> {
        let (most, rows) = if all { (ROWS, tokens.len()) } else { (TOKENS, tokens.len().min(1)) };
        let mut values = Vec::new();
        let mut rest = tokens;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.len().min(most));
            let wanted = match (all, after.is_empty()) {
                (true, _) => Outputs::All,
                (false, true) => Outputs::Last,
                (false, false) => Outputs::None,
            };
            let mut batch = Batch::new();
            batch.push(self.sequence, chunk, wanted);
            let mut logits = self.runner.forward(&batch)?;
            if wanted != Outputs::None {
                values.append(&mut logits.to_vec()?);
            }
            rest = after;
        }
        Ok(Floats::new(values, rows))
    }
}

impl Session {
    pub(crate) fn new(state: State) -> Session {
        Session { state: Mutex::new(Some(state)), process: process::id() }
    }

    fn with<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut State) -> Result<R, Raised> + Send) -> PyResult<R> {
        check_process(py, self.process)?;
        sealed(py, || {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let state =
                state.as_mut().ok_or_else(|| Raised::new("ClosedError", "the session is closed; open another"))?;
            work(state)
        })
    }
}

#[pymethods]
impl Session {
    /// Appends tokens, and returns the logits after each (`all`), or after the last.
    fn forward(&self, py: Python<'_>, tokens: Vec<u32>, all: bool) -> PyResult<Floats> {
        self.with(py, |state| state.forward(&tokens, all))
    }

    /// Removes the tokens behind the first `length`.
    fn truncate(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        self.with(py, |state| Ok(state.runner.truncate(state.sequence, length)?))
    }

    /// Frees the memory.
    fn close(&self, py: Python<'_>) {
        if process::id() == self.process {
            py.detach(|| drop(self.state.lock().unwrap_or_else(PoisonError::into_inner).take()));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if process::id() != self.process {
            // The threads of its device do not exist here, and dropping would wait for them.
            std::mem::forget(self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}
