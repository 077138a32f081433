//! The CPU backend: SIMD levels chosen at run time, a pool of threads, weights in tiles of 16 rows.
//!
//! From here: [`dot`] is the innermost kernel, [`matmul`] and [`moe`] decide which tiles it multiplies with which rows,
//! [`layout`] says how weights lie, [`attention`] works on the paged cache, [`rows`] row by row.

#![deny(unsafe_code)]

mod act;
mod attention;
mod cuts;
mod dot;
mod group;
mod host;
mod kv;
pub mod layout;
mod level;
mod math;
mod matmul;
mod moe;
mod out;
mod pool;
mod quantise;
mod route;
mod rows;
mod sample;
pub mod simd;
mod transcode;
mod weight;

use gristmill_kernels::Backend;
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::kv::{KvCache, KvSpec};
use gristmill_kernels::ops::*;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView};
pub use level::Level;
pub use pool::{MAX_THREADS, Pool};
use std::sync::Mutex;
pub use transcode::{TranscodeError, Transcoder};

/// Where the CPU's memory is.
const DEVICE: DeviceId = DeviceId::Cpu;

/// The kernels of the CPU.
#[derive(Debug)]
pub struct Cpu {
    level: Level,
    pool: Pool,
    /// Scratch of [`Sample`], kept so that a step does not allocate.
    candidates: Mutex<Vec<sample::Candidate>>,
}

impl Cpu {
    /// Kernels at a level, with threads of their own (the caller's counts as one).
    pub fn new(level: Level, threads: usize) -> Result<Self> {
        Ok(Self { level, pool: Pool::new(threads)?, candidates: Mutex::default() })
    }

    /// The same as a backend.
    pub fn backend(level: Level, threads: usize) -> Result<Backend> {
        Self::new(level, threads).map(Backend::new)
    }
}

impl Kernels for Cpu {
    fn name(&self) -> String {
        format!("CPU, {}, {} threads", self.level.name(), self.pool.threads())
    }

    fn device(&self) -> DeviceId {
        DEVICE
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

    fn embed(&self, call: Checked<Embed>) -> Result<()> {
        self.decode_rows(call.into_inner())
    }

    fn prepare_activations(&self, call: Checked<PrepareActivations>) -> Result<()> {
        self.fill_act(call.into_inner())
    }

    fn matmul(&self, call: Checked<Matmul>) -> Result<()> {
        self.multiply_dense(call.into_inner())
    }

    fn gate_up(&self, call: Checked<GateUp>) -> Result<()> {
        self.multiply_dense_gated(call.into_inner())
    }

    fn route(&self, call: Checked<Route>) -> Result<()> {
        self.route_rows(call.into_inner())
    }

    fn group_by_expert(&self, call: Checked<GroupByExpert>) -> Result<()> {
        group::group_by_expert(call)
    }

    fn moe_matmul(&self, call: Checked<MoeMatmul>) -> Result<()> {
        self.multiply_experts(call.into_inner())
    }

    fn moe_gate_up(&self, call: Checked<MoeGateUp>) -> Result<()> {
        self.multiply_experts_gated(call.into_inner())
    }

    fn moe_combine(&self, call: Checked<MoeCombine>) -> Result<()> {
        self.combine_rows(call.into_inner())
    }

    fn rms_norm(&self, call: Checked<RmsNorm>) -> Result<()> {
        self.rms_norm_rows(call.into_inner())
    }

    fn layer_norm(&self, call: Checked<LayerNorm>) -> Result<()> {
        self.layer_norm_rows(call.into_inner())
    }

    fn qk_norm(&self, call: Checked<QkNorm>) -> Result<()> {
        self.norm_segments(call.into_inner())
    }

    fn rope(&self, call: Checked<Rope>) -> Result<()> {
        self.rope_rows(call.into_inner())
    }

    fn add(&self, call: Checked<Add>) -> Result<()> {
        self.add_rows(call.into_inner())
    }

    fn add_gated(&self, call: Checked<AddGated>) -> Result<()> {
        self.add_gated_rows(call.into_inner())
    }

    fn scale(&self, call: Checked<Scale>) -> Result<()> {
        self.scale_rows(call.into_inner())
    }

    fn argmax(&self, call: Checked<Argmax>) -> Result<()> {
        self.argmax_rows(call.into_inner())
    }

    fn sample(&self, call: Checked<Sample>) -> Result<()> {
        self.sample_rows(call.into_inner())
    }

    fn kv_write(&self, call: Checked<KvWrite>) -> Result<()> {
        kv::write(call.into_inner())
    }

    fn kv_copy(&self, call: Checked<KvCopy>) -> Result<()> {
        kv::copy(call.into_inner())
    }

    fn attention(&self, call: Checked<Attention>) -> Result<()> {
        self.flash_attention(call.into_inner())
    }
}
