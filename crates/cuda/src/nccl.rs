//! NCCL, by which several devices sum without the host.

use crate::nvrtc::python_packages;
use gristmill_collective::{Error, NcclLibrary};
use std::sync::{Mutex, PoisonError};

/// The library, found once.
static LIBRARY: Mutex<Option<NcclLibrary>> = Mutex::new(None);

/// Opens NCCL of a folder of Python packages, or where the system's loader finds it.
///
/// # Errors
/// There is none, or it is older than 2.18.
pub fn library() -> Result<NcclLibrary, Error> {
    let mut library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    match &*library {
        Some(library) => Ok(library.clone()),
        None => Ok(library.insert(NcclLibrary::open(&python_packages())?).clone()),
    }
}
