//! Opens the device that a model runs on.

use std::sync::Arc;

use gristmill_kernels::cpu::{Cpu, Level};
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

/// The CPU, at a level by name or the best that it has.
fn cpu(level: Option<&str>, threads: usize) -> Result<Arc<dyn Backend>> {
    let level = match level {
        None => Level::best(),
        Some(asked) => match Level::NAMES.iter().find(|&&name| name == asked) {
            Some(name) => Level::named(name)?,
            None => return Err(Error::Level { asked: asked.to_owned(), known: Level::NAMES.join(", ") }),
        },
    };
    Ok(Arc::new(Cpu::new(level, threads)?))
}
