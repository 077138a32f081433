//! Each operation by the function that computes it.

use super::attention;
use crate::Backend;
use crate::act::{Act, Precision};
use crate::error::Result;
use crate::groups::Tiling;
use crate::kv::{KvCache, KvSpec};
use crate::ops::*;
use crate::storage::Storage;
use crate::tensor::{Buffer, DeviceId};
use crate::weight::{Footprint, Prepared, Role, TensorShape, TensorView};

/// Rows of a tile of expert pairs.
const TILE_ROWS: usize = 8;

/// The oracle. It has one precision, the exact one, and one thread: the caller's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Reference {
    /// The oracle as a backend.
    pub fn backend() -> Backend {
        Backend::new(Self)
    }
}

/// The functions that compute operations, by the operations' names.
mod functions {
    pub(super) use super::super::attention::*;
    pub(super) use super::super::elementwise::*;
    pub(super) use super::super::experts::*;
    pub(super) use super::super::matrix::*;
    pub(super) use super::super::recurrent::*;
    pub(super) use super::super::sample::*;
    pub(super) use super::super::scan::*;
}

macro_rules! operations {
    ($($kernel:ident($Operation:ident),)*) => {
        $(fn $kernel(&self, call: Checked<$Operation>) -> Result<()> {
            functions::$kernel(call.into_inner())
        })*
    };
}

impl Kernels for Reference {
    fn name(&self) -> String {
        "reference".into()
    }

    fn device(&self) -> DeviceId {
        DeviceId::Cpu
    }

    fn deterministic(&self) -> bool {
        true
    }

    /// Exact, whatever precision is requested.
    fn alloc_act(&self, _precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        let rows_of_floats: Buffer<f32> = Buffer::host_zeroed(rows * cols, "activations")?;
        Ok(Act::new(DeviceId::Cpu, Precision::Exact, rows, cols, Storage::new(rows_of_floats)))
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        let cache = attention::ReferenceKv::zeroed(spec, blocks)?;
        Ok(KvCache::new(DeviceId::Cpu, spec, blocks, Storage::new(cache)))
    }

    fn tiling(&self) -> Tiling {
        Tiling { tile_rows: TILE_ROWS, grid_words: 0 }
    }

    fn footprint(&self, shape: &TensorShape, _role: Role) -> Footprint {
        Footprint { owned: 0, mapped: shape.file_bytes() }
    }

    fn prepare(&self, tensors: &[TensorView], _role: Role) -> Result<Prepared> {
        Ok(Prepared { storage: Storage::new(tensors.to_vec()), owned_bytes: 0 })
    }

    with_operations!(operations);
}
