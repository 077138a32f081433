//! Which texts the backend may compile, with which definitions: for those who compile or check all of them.

use super::{attention, gemm, gemv};
use crate::gpu::{Text, small};

/// Every text that the backend may compile.
pub fn all() -> Vec<Text> {
    small::texts().chain(gemv::texts()).chain(gemm::texts()).chain(attention::texts()).collect()
}
