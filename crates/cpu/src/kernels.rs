//! Each operation by the method that computes it.

use super::cpu::{Cpu, DEVICE};
use super::{group, kv, moe, weight};
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::kv::{KvCache, KvSpec};
use gristmill_kernels::offload::OffloadKernels;
use gristmill_kernels::ops::*;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView};
use std::sync::atomic::Ordering;

/// Runs operations by methods of [`Cpu`], one line per operation.
macro_rules! operations {
    ($($kernel:ident($Operation:ident) => $method:ident,)*) => {
        $(fn $kernel(&self, call: Checked<$Operation>) -> Result<()> {
            self.measured(call, |call| self.$method(call.into_inner()))
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

    /// The order of a sum depends neither on the number of rows nor on the number of threads.
    fn deterministic(&self) -> bool {
        true
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

    operations! {
        embed(Embed) => decode_rows,
        prepare_activations(PrepareActivations) => fill_act,
        matmul(Matmul) => multiply_dense,
        gate_up(GateUp) => multiply_dense_gated,
        route(Route) => route_rows,
        moe_matmul(MoeMatmul) => multiply_experts,
        moe_gate_up(MoeGateUp) => multiply_experts_gated,
        moe_combine(MoeCombine) => combine_rows,
        rms_norm(RmsNorm) => rms_norm_rows,
        layer_norm(LayerNorm) => layer_norm_rows,
        qk_norm(QkNorm) => norm_segments,
        rope(Rope) => rope_rows,
        copy_rows(CopyRows) => copy_rows,
        gather_columns(GatherColumns) => gather_columns,
        add(Add) => add_rows,
        add_gated(AddGated) => add_gated_rows,
        scale(Scale) => scale_rows,
        soft_cap(SoftCap) => soft_cap_rows,
        clamp(Clamp) => clamp_rows,
        argmax(Argmax) => argmax_rows,
        sample(Sample) => sample_rows,
        attention(Attention) => flash_attention,
        causal_conv(CausalConv) => causal_conv_rows,
        delta_rule(DeltaRule) => delta_rule_rows,
        selective_scan(SelectiveScan) => selective_scan_rows,
        gated_norm(GatedNorm) => gated_norm_rows,
        multiply(Multiply) => multiply_rows,
    }

    fn group_by_expert(&self, call: Checked<GroupByExpert>) -> Result<()> {
        self.measured(call, group::group_by_expert)
    }

    fn kv_write(&self, call: Checked<KvWrite>) -> Result<()> {
        self.measured(call, |call| kv::write(call.into_inner()))
    }

    fn kv_copy(&self, call: Checked<KvCopy>) -> Result<()> {
        self.measured(call, |call| kv::copy(call.into_inner()))
    }
}
