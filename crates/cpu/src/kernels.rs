//! The backend: what is no operation, and each operation by its [`OnCpu`].

use super::cpu::{Cpu, DEVICE};
use super::operation::OnCpu;
use super::{kv, moe, weight};
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::kv::{KvCache, KvSpec};
use gristmill_kernels::offload::OffloadKernels;
use gristmill_kernels::ops::*;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView};
use gristmill_kernels::with_operations;
use std::sync::atomic::Ordering;

macro_rules! operations {
    ($($kernel:ident($Operation:ident),)*) => {
        $(fn $kernel(&self, call: Checked<$Operation>) -> Result<()> {
            self.measured(call, |call| OnCpu::run(call, self))
        })*
    };
}

impl Kernels for Cpu {
    fn name(&self) -> String {
        format!("CPU, {}, {} threads", self.level.name(), self.pool.threads())
    }

    fn device(&self) -> DeviceId {
        DEVICE
    }

    fn arithmetic(&self) -> Vec<String> {
        let bf16 = self.level.has_bf16().then_some("bf16");
        [self.level.name()].into_iter().chain(bf16).map(str::to_owned).collect()
    }

    /// The order of a sum does not depend on the number of threads, and on the number of rows only with tiles.
    fn deterministic(&self) -> bool {
        self.level.is_deterministic()
    }

    fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        self.new_act(precision, rows, cols)
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        kv::new_cache(spec, blocks)
    }

    fn tiling(&self) -> Tiling {
        Tiling { tile_rows: moe::TILE_ROWS, grid_words: 0 }
    }

    fn footprint(&self, shape: &TensorShape, role: Role) -> Footprint {
        weight::footprint(shape, role)
    }

    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Prepared> {
        self.prepare_weight(tensors, role)
    }

    fn offload(&self) -> Option<&dyn OffloadKernels> {
        Some(self)
    }

    fn free_memory(&self) -> Result<Option<u64>> {
        Ok(self.memory.map(|bytes| bytes.saturating_sub(self.prepared_bytes.load(Ordering::Relaxed))))
    }

    with_operations!(operations);
}
