//! Metal: which kernels multiply, attention, and the driver. Unverified on hardware: a simulator runs its
//! kernels, and the driver is type-checked.
//!
//! From here: [`matmul`], [`attention`] are host sides of what Metal does in its own way; all else is in
//! [`gristmill_gpu`]. Weights stay where the file's map has them (`layout::PlaneRows::of_file`), activations are floats.
//! `driver` is Apple's framework, on macOS alone.

mod attention;
#[cfg(target_os = "macos")]
pub mod driver;
mod experts;
mod gemm;
mod gemv;
#[cfg(any(target_os = "macos", test))]
mod hazards;
mod matmul;
mod norm_matmul;
pub mod units;

use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::RowSelection;
use gristmill_gpu::shared_struct::{SharedStruct, StructLayout};
use gristmill_gpu::source::{COMMON, Library};
use gristmill_gpu::{Device, Gpu, GpuBackend, Vendor};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::ops::*;
use gristmill_kernels::weight::{Footprint, Role, TensorShape, TensorView};
use matmul::{act_output, multiply, multiply_gated};
use std::sync::Arc;

/// The kernel sources of the backend.
pub const SOURCES: &[Library] = &[COMMON, OWN];

const OWN: Library = gristmill_gpu::library!("metal", language Some("device_metal.h"), SHARED_STRUCTS,
    [
        "attention.h",
        "attention_combine.metal",
        "attention_plan.metal",
        "attention_split.metal",
        "attention_tile.metal",
        "attention_walk.h", "device_metal.h",
        "experts.h",
        "gemm.metal",
        "gemv.h",
        "gemv.metal",
        "norm_matmul.h",
        "tasks.h",
    ]
);

/// Structs that the sources declare and the host fills.
const SHARED_STRUCTS: &[StructLayout] =
    &[attention::AttentionParams::LAYOUT, experts::ExpertsParams::LAYOUT, norm_matmul::NormMatmulParams::LAYOUT];

/// Grids that grouping writes behind the number of tiles, for 1, 2, … groups of outputs, three words each: `GRIDS` in
/// `kernels/group.h`.
const GRIDS: usize = 64;

/// Metal's part of a backend.
#[derive(Debug)]
pub struct Metal {
    device: Device,
}

impl Metal {
    /// A backend over a device: a real one, or a simulator's.
    pub fn backend(gpu: Arc<dyn Gpu>) -> Result<Backend> {
        Ok(Backend::new(GpuBackend::new(Self { device: Device::new(gpu)? })))
    }
}

impl Vendor for Metal {
    const ROUNDS_ACTIVATIONS: bool = false;
    const TILING: Tiling = Tiling { tile_rows: gemm::TILE_ROWS, grid_words: 3 * GRIDS };

    fn over(&self, gpu: Arc<dyn Gpu>) -> Result<Self> {
        Ok(Self { device: Device::new(gpu)? })
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn footprint(&self, shape: &TensorShape) -> Footprint {
        Footprint { owned: 0, mapped: shape.file_bytes() }
    }

    /// Each tensor stays by itself, as the file has it.
    fn prepare(&self, tensors: &[TensorView], _role: Role) -> Result<Vec<PlaneRows>> {
        tensors.iter().map(|tensor| PlaneRows::of_file(&self.device, tensor)).collect()
    }

    fn matmul(&self, call: Matmul) -> Result<()> {
        let Matmul { weight, x, rows, bias, epilogue, y } = call;
        let which = rows.map_or(RowSelection::All, RowSelection::Ids);
        multiply(&self.device, Matmul::NAME, weight, x, which, bias, epilogue.into(), y)
    }

    fn gate_up(&self, call: GateUp, act: Option<&mut Act>) -> Result<()> {
        let GateUp { weight, x, bias, activation, h } = call;
        let (op, rows) = (GateUp::NAME, h.rows());
        let h = act.map_or(Ok(h), |act| act_output(op, act, rows, weight.rows()))?;
        multiply_gated(&self.device, op, weight, x, RowSelection::All, bias, activation, h)
    }

    fn moe_matmul(&self, call: MoeMatmul) -> Result<()> {
        let MoeMatmul { weight, x, groups, top_k, bias, out } = call;
        // A row of X for each pair, or for each token.
        let which = RowSelection::Pairs { groups, pairs_per_row: if x.rows() == out.rows() { 1 } else { top_k } };
        multiply(&self.device, MoeMatmul::NAME, weight, x, which, bias, ProductEpilogue::Store, out)
    }

    fn moe_gate_up(&self, call: MoeGateUp, act: Option<&mut Act>) -> Result<()> {
        let MoeGateUp { weight, x, groups, top_k, bias, activation, h } = call;
        let (op, rows) = (MoeGateUp::NAME, h.rows());
        let h = act.map_or(Ok(h), |act| act_output(op, act, rows, weight.rows()))?;
        let which = RowSelection::Pairs { groups, pairs_per_row: top_k };
        multiply_gated(&self.device, op, weight, x, which, bias, activation, h)
    }

    fn attention(&self, call: Attention, act: Option<&mut Act>) -> Result<()> {
        attention::attention(&self.device, call, act.as_deref())
    }

    fn norm_matmul(&self, call: &mut NormMatmul) -> Result<Fused> {
        norm_matmul::norm_matmul(&self.device, call)
    }

    fn experts(&self, call: &mut Experts) -> Result<Fused> {
        experts::experts(&self.device, call)
    }
}
