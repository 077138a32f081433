//! The extension module `gristmill._native` of the Python package in `python/gristmill`.
//!
//! `engine` opens models and starts requests. `response` is a request to the server's router without a port, `embedding` one for
//! vectors. `session` returns the logits of a sequence. `floats` are arrays that numpy reads without a copy. `wait` releases the
//! GIL while something is awaited, and `errors` raises the classes of `gristmill.errors`. Everything that can be written in
//! Python is written there.
//!
//! # No panic, no wait with the GIL, no engine after a fork
//!
//! A panic becomes `InternalError`. Each wait detaches from the interpreter and looks for signals 20 times a second. Python
//! code runs on no thread of an engine: other threads call what [`response::Response::notify`] was given, which only wakes an
//! event loop. The threads of an engine do not exist in a forked child, so each method compares process ids first,
//! and dropping there frees nothing.

#![forbid(unsafe_code)]

mod embedding;
mod engine;
mod errors;
mod floats;
mod response;
mod session;
mod wait;

use pyo3::pymodule;

/// The native part of `gristmill`.
#[pymodule]
mod _native {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use pyo3::{PyResult, Python, pyfunction};

    #[pymodule_export]
    use crate::embedding::Embedding;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::floats::Floats;
    #[pymodule_export]
    use crate::response::Response;
    #[pymodule_export]
    use crate::session::Session;

    /// The version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Sets the folders of Python packages, where CUDA's compiler is searched.
    #[pyfunction]
    fn set_packages(folders: Vec<PathBuf>) {
        gristmill_cuda::nvrtc::search_python_packages(folders);
    }

    /// Runs the command line and returns its exit code.
    #[pyfunction]
    fn main(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
        crate::wait::sealed(py, || Ok(gristmill_cli::main(arguments)))
    }
}
