//! Options of a backend.

use crate::family::Family;

/// Options of a backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How kernels are chosen.
    pub choice: Choice,
}

/// How kernels are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The fastest for the number of rows.
    #[default]
    Fastest,
    /// Kernels whose result for a row does not depend on the number of rows (`docs/determinism.md`).
    Deterministic,
    /// Products by kernels of one family, for tests of each. A product that they cannot do is an
    /// [`Error::Range`](gristmill_kernels::Error::Range).
    Family(Family),
}
