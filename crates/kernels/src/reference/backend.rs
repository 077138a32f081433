//! Each operation by the function that computes it.

use super::{attention, elementwise, experts, matrix, recurrent, sample, scan};
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

/// Runs operations by functions of this module's files: a line for each.
macro_rules! operations {
    ($($kernel:ident($Operation:ident) => $function:path,)*) => {
        $(fn $kernel(&self, call: Checked<$Operation>) -> Result<()> {
            $function(call.into_inner())
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

    operations! {
        embed(Embed) => matrix::embed,
        prepare_activations(PrepareActivations) => matrix::prepare_activations,
        matmul(Matmul) => matrix::matmul,
        gate_up(GateUp) => matrix::gate_up,
        route(Route) => experts::route,
        moe_matmul(MoeMatmul) => experts::moe_matmul,
        moe_gate_up(MoeGateUp) => experts::moe_gate_up,
        moe_combine(MoeCombine) => experts::moe_combine,
        rms_norm(RmsNorm) => elementwise::rms_norm,
        layer_norm(LayerNorm) => elementwise::layer_norm,
        qk_norm(QkNorm) => elementwise::qk_norm,
        rope(Rope) => elementwise::rope,
        copy_rows(CopyRows) => elementwise::copy_rows,
        gather_columns(GatherColumns) => elementwise::gather_columns,
        add_gated(AddGated) => elementwise::add_gated,
        scale(Scale) => elementwise::scale,
        soft_cap(SoftCap) => elementwise::soft_cap,
        clamp(Clamp) => elementwise::clamp,
        argmax(Argmax) => sample::argmax,
        sample(Sample) => sample::sample,
        kv_write(KvWrite) => attention::write,
        kv_copy(KvCopy) => attention::copy,
        attention(Attention) => attention::attention,
        causal_conv(CausalConv) => recurrent::causal_conv,
        delta_rule(DeltaRule) => recurrent::delta_rule,
        selective_scan(SelectiveScan) => scan::selective_scan,
        gated_norm(GatedNorm) => recurrent::gated_norm,
        multiply(Multiply) => recurrent::multiply,
    }

    fn group_by_expert(&self, call: Checked<GroupByExpert>) -> Result<()> {
        experts::group(call)
    }

    fn add(&self, call: Checked<Add>) -> Result<()> {
        let Add { x, scale, y } = call.into_inner();
        elementwise::add(Add::NAME, x, y, |_| scale.into())
    }
}
