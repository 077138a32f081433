//! Opens the device that a model runs on.

use std::sync::Arc;

use gristmill_kernels::ops::Backend;

use crate::error::{Error, Result};
use crate::machine;
use crate::model::LoadOptions;

/// The devices that there are.
const DEVICES: &[&str] = &["auto", "cpu"];

/// Threads that a model uses unless told otherwise: one on each physical core within this process's affinity and quota.
pub fn default_threads() -> usize {
    machine::physical_cores()
}

/// Opens the device that the options name.
pub(crate) fn open(options: &LoadOptions) -> Result<Arc<dyn Backend>> {
    match options.device.as_str() {
        "auto" | "cpu" => cpu(options.level.as_deref(), options.threads.unwrap_or_else(default_threads)),
        other => Err(Error::Device { asked: other.to_owned(), known: DEVICES.join(", ") }),
    }
}

fn cpu(_level: Option<&str>, _threads: usize) -> Result<Arc<dyn Backend>> {
    Err(Error::Device { asked: "cpu".to_owned(), known: "none yet".to_owned() })
}
