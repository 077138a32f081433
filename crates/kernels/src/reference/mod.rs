//! Every operation in plain scalar Rust with f64 sums: the oracle of all tests.
//!
//! Written to be read against the contracts in [`crate::ops`]. Weights stay in the file's layout and are decoded on
//! the fly; activations are kept exact. Its router, grouping and sampler are the obvious ones, and it shares no code
//! that computes with the other backends.

mod attention;
mod elementwise;
mod experts;
mod matrix;
mod rows;
mod sample;

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

impl Kernels for Reference {
    fn name(&self) -> String {
        "reference".into()
    }

    fn device(&self) -> DeviceId {
        DeviceId::Cpu
    }

    /// Exact, whatever precision is asked for.
    fn alloc_act(&self, _precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        let rows_of_floats: Buffer<f32> = Buffer::host_zeroed(rows * cols, "activations")?;
        Ok(Act::new(DeviceId::Cpu, Precision::Exact, rows, cols, Storage::new(rows_of_floats)))
    }

    fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        let cells = attention::Cells::zeroed(spec, blocks)?;
        Ok(KvCache::new(DeviceId::Cpu, spec, blocks, Storage::new(cells)))
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

    fn embed(&self, call: Checked<Embed>) -> Result<()> {
        matrix::embed(call.into_inner())
    }

    fn prepare_activations(&self, call: Checked<PrepareActivations>) -> Result<()> {
        matrix::prepare_activations(call.into_inner())
    }

    fn matmul(&self, call: Checked<Matmul>) -> Result<()> {
        matrix::matmul(call.into_inner())
    }

    fn gate_up(&self, call: Checked<GateUp>) -> Result<()> {
        matrix::gate_up(call.into_inner())
    }

    fn route(&self, call: Checked<Route>) -> Result<()> {
        experts::route(call.into_inner())
    }

    fn group_by_expert(&self, call: Checked<GroupByExpert>) -> Result<()> {
        experts::group(call)
    }

    fn moe_matmul(&self, call: Checked<MoeMatmul>) -> Result<()> {
        experts::moe_matmul(call.into_inner())
    }

    fn moe_gate_up(&self, call: Checked<MoeGateUp>) -> Result<()> {
        experts::moe_gate_up(call.into_inner())
    }

    fn moe_combine(&self, call: Checked<MoeCombine>) -> Result<()> {
        experts::moe_combine(call.into_inner())
    }

    fn rms_norm(&self, call: Checked<RmsNorm>) -> Result<()> {
        elementwise::rms_norm(call.into_inner())
    }

    fn layer_norm(&self, call: Checked<LayerNorm>) -> Result<()> {
        elementwise::layer_norm(call.into_inner())
    }

    fn qk_norm(&self, call: Checked<QkNorm>) -> Result<()> {
        elementwise::qk_norm(call.into_inner())
    }

    fn rope(&self, call: Checked<Rope>) -> Result<()> {
        elementwise::rope(call.into_inner())
    }

    fn add(&self, call: Checked<Add>) -> Result<()> {
        let Add { x, scale, y } = call.into_inner();
        elementwise::add(Add::NAME, x, y, |_| scale.into())
    }

    fn add_gated(&self, call: Checked<AddGated>) -> Result<()> {
        elementwise::add_gated(call.into_inner())
    }

    fn scale(&self, call: Checked<Scale>) -> Result<()> {
        elementwise::scale(call.into_inner())
    }

    fn argmax(&self, call: Checked<Argmax>) -> Result<()> {
        sample::argmax(call.into_inner())
    }

    fn sample(&self, call: Checked<Sample>) -> Result<()> {
        sample::sample(call.into_inner())
    }

    fn kv_write(&self, call: Checked<KvWrite>) -> Result<()> {
        attention::write(call.into_inner())
    }

    fn kv_copy(&self, call: Checked<KvCopy>) -> Result<()> {
        attention::copy(call.into_inner())
    }

    fn attention(&self, call: Checked<Attention>) -> Result<()> {
        attention::attention(call.into_inner())
    }
}
