//! The compilation units of the backend, for tools that compile or check all of them.

use super::{attention, gemm, gemv};
use gristmill_gpu::{Unit, common};

/// Every unit that the backend can compile.
pub fn all() -> Vec<Unit> {
    common::units().chain(gemv::units()).chain(gemm::units()).chain(attention::units()).collect()
}
