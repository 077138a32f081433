//! The public interface on hosts without the simulator; every call fails with an error.

use crate::error::{Error, Result};
use crate::launch::Launch;
use crate::source::Source;
use std::path::Path;

/// A compiled source. There is none on this machine.
#[derive(Debug)]
pub struct Program {
    never: std::convert::Infallible,
}

impl Program {
    /// Fails with [`Error::Host`].
    pub fn compile(_: &Source, _: &Path) -> Result<Self> {
        Err(Error::Host)
    }

    /// The names of the source's kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        match self.never {}
        #[allow(unreachable_code)]
        std::iter::empty()
    }

    /// Runs a launch to its end.
    ///
    /// # Safety
    /// None is needed where no program exists.
    pub unsafe fn launch(&self, _: &Launch) -> Result<()> {
        match self.never {}
    }
}
