//! The machine code of a unit: kept on disk, compiled ahead, or compiled now.

use super::ahead::Folder;
use super::cache::Cache;
use super::jit::{Input, architecture};
use super::nvrtc::Nvrtc;
use gristmill_gpu::Unit;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where machine code comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The user's cache.
    Cache,
    /// A folder of kernels that were compiled ahead.
    Ahead,
    /// NVRTC, now.
    Compiled,
}

/// The machine code of kernels for one architecture.
#[derive(Debug)]
pub(crate) struct MachineCode {
    /// The architecture in NVRTC's terms: `sm_90a`.
    architecture: String,
    /// The compiler, or why there is none.
    nvrtc: Result<Nvrtc, String>,
    /// The user's cache, if the system has a folder for it.
    cache: Option<Cache>,
    ahead: Vec<Folder>,
    /// Why the driver refused a kernel that was compiled ahead.
    refused: OnceLock<String>,
    /// Units by their [`Origin`].
    counts: [AtomicUsize; 3],
}

impl MachineCode {
    /// For a compute capability, with folders of kernels that were compiled ahead.
    ///
    /// # Errors
    /// There is neither NVRTC nor a kernel for this capability.
    pub(crate) fn new(capability: u32, folders: &[PathBuf]) -> Result<Self, String> {
        Self::with(Nvrtc::open(), Cache::of_user(), capability, folders)
    }

    fn with(
        nvrtc: Result<Nvrtc, String>,
        cache: Option<Cache>,
        capability: u32,
        folders: &[PathBuf],
    ) -> Result<Self, String> {
        let architecture = architecture(capability);
        let all = folders.iter().flat_map(|folder| Folder::all(folder));
        let ahead: Vec<Folder> = all.filter(|folder| folder.architecture() == architecture).collect();
        match nvrtc {
            Err(reason) if ahead.is_empty() => Err(reason),
            nvrtc => {
                let (refused, counts) = Default::default();
                Ok(Self { architecture, nvrtc, cache, ahead, refused, counts })
            }
        }
    }

    /// The machine code of a unit, and where it comes from.
    pub(crate) fn of(&self, unit: &Unit) -> Result<(Vec<u8>, Origin), String> {
        let input = Input::new(unit, &self.architecture)?;
        let kept = self.cached(&input).and_then(|(cache, name)| cache.get(&name));
        let found = kept.map(|code| (code, Origin::Cache)).or_else(|| {
            let code = self.ahead.iter().find_map(|folder| folder.get(&input))?;
            Some((code, Origin::Ahead))
        });
        match found {
            Some((code, origin)) => {
                self.counts[origin as usize].fetch_add(1, Ordering::Relaxed);
                Ok((code, origin))
            }
            None => self.compile_input(&input).map(|code| (code, Origin::Compiled)),
        }
    }

    /// Compiles a unit whose machine code, compiled ahead, the driver has refused.
    pub(crate) fn compile_instead(&self, unit: &Unit, refusal: &dyn Display) -> Result<Vec<u8>, String> {
        let _ =
            self.refused.set(format!("kernels that were compiled ahead cannot be used, and are compiled: {refusal}"));
        self.counts[Origin::Ahead as usize].fetch_sub(1, Ordering::Relaxed);
        self.compile_input(&Input::new(unit, &self.architecture)?)
    }

    fn compile_input(&self, input: &Input) -> Result<Vec<u8>, String> {
        let nvrtc = self.nvrtc.as_ref().map_err(|reason| {
            let folders: Vec<String> = self.ahead.iter().map(Folder::to_string).collect();
            format!("it was not compiled ahead (in {}), and {reason}", folders.join(", "))
        })?;
        let (code, _log) = input.compile(nvrtc)?;
        if let Some(cache) = &self.cache {
            cache.keep(&input.name(nvrtc.version()), &code);
        }
        self.counts[Origin::Compiled as usize].fetch_add(1, Ordering::Relaxed);
        Ok(code)
    }

    /// The cache and the name of an input in it. Without a compiler the cache is of no use: names contain its version.
    fn cached(&self, input: &Input) -> Option<(&Cache, String)> {
        Some((self.cache.as_ref()?, input.name(self.nvrtc.as_ref().ok()?.version())))
    }

    /// Whether nothing has to be compiled for a unit.
    pub(crate) fn has(&self, unit: &Unit) -> bool {
        Input::new(unit, &self.architecture).is_ok_and(|input| {
            self.cached(&input).is_some_and(|(cache, name)| cache.has(&name))
                || self.ahead.iter().any(|folder| folder.has(&input))
        })
    }

    /// A notice for people: that compiled kernels cannot be kept, or that the driver refused some.
    pub(crate) fn notice(&self) -> Option<String> {
        let no_cache = "compiled kernels cannot be kept, as there is no home folder; they are compiled at each start";
        let of_cache = match &self.cache {
            Some(cache) => cache.notice(),
            None => Some(no_cache.to_owned()),
        };
        self.refused.get().cloned().into_iter().chain(of_cache).reduce(|all, notice| all + "; " + &notice)
    }

    /// How many kernels came from where so far, for people.
    pub(crate) fn report(&self) -> String {
        let count = |origin: Origin| self.counts[origin as usize].load(Ordering::Relaxed);
        let [cached, ahead, compiled] = [Origin::Cache, Origin::Ahead, Origin::Compiled].map(count);
        let folders: Vec<String> = self.ahead.iter().map(Folder::to_string).collect();
        let folders = if folders.is_empty() { String::new() } else { format!(" ({})", folders.join(", ")) };
        format!("{cached} of the cache, {ahead} compiled ahead{folders}, {compiled} compiled now")
    }
}

#[cfg(test)]
mod tests;
