//! The CPU backend: SIMD levels chosen at run time, a thread pool, weights in tiles of 16 rows.
//!
//! ```
//! use gristmill_cpu::{Cpu, Level};
//! use gristmill_kernels::act::Precision;
//! use gristmill_kernels::format::Format;
//! use gristmill_kernels::ops::{Matmul, PrepareActivations};
//! use gristmill_kernels::weight::{Role, TensorView};
//!
//! // Two rows of 32 weights in Q8_0, as a GGUF file has them: a scale of 1 in f16, and 32 codes.
//! let mut bytes = Vec::new();
//! for code in [1_u8, 2] {
//!     bytes.extend([0x00, 0x3c]);
//!     bytes.extend([code; 32]);
//! }
//! let tensor = TensorView::new("w", Format::Q8_0, [1, 2, 32], bytes);
//! let backend = Cpu::backend(Level::best(), 2)?;
//! let weight = backend.prepare(&[tensor], Role::Matrix)?;
//! let mut x = backend.alloc::<f32>(32, "x")?;
//! backend.upload(&[0.5; 32], &mut x)?;
//! let mut act = backend.alloc_act(Precision::Exact, 1, 32)?;
//! backend.run(PrepareActivations::new(x.view(1, 32)?, &mut act))?;
//! let mut y = backend.alloc::<f32>(2, "y")?;
//! backend.run(Matmul::new(&weight, &act, y.view_mut(1, 2)?))?;
//! assert_eq!(backend.into_host(y)?, [16.0, 32.0]);
//! # Ok::<(), gristmill_kernels::Error>(())
//! ```
//!
//! `examples/experts.rs` computes the mixture-of-experts layer of a GGUF file; `docs/kernels.md` explains it.
//!
//! In a development build, copy these lines into the `Cargo.toml` of your workspace. Without optimisation, the kernels are
//! 40 times slower, and cargo ignores the profiles of dependencies:
//!
//! ```toml
//! [profile.dev.package.gristmill-kernels]
//! opt-level = 3
//!
//! [profile.dev.package.gristmill-cpu]
//! opt-level = 3
//! codegen-units = 1
//! overflow-checks = false
//! debug-assertions = false
//! ```
//!
//! [`dot`] is the innermost kernel. [`matmul`] and [`moe`] choose its tiles and activation rows. [`layout`] is the
//! memory layout of weights. [`attention`] reads the paged cache. [`rows`] has the operations on single rows.

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
mod offload;
mod out;
mod pool;
mod profile;
mod quantise;
mod recurrent;
mod route;
mod rows;
mod sample;
pub mod simd;
mod weight;

use gristmill_kernels::Backend;
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::kv::{KvCache, KvSpec};
use gristmill_kernels::offload::OffloadKernels;
use gristmill_kernels::ops::*;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView};
pub use level::Level;
pub use offload::readers::READERS;
use offload::readers::Readers;
pub use pool::{MAX_THREADS, Pool};
pub use profile::{Profile, Record, Work};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The device of the CPU's buffers.
const DEVICE: DeviceId = DeviceId::Cpu;

/// The kernels of the CPU.
#[derive(Debug)]
pub struct Cpu {
    level: Level,
    pool: Pool,
    /// Unused scratch of [`Sample`], kept so that a step does not allocate.
    candidates: Mutex<Vec<Vec<sample::Candidate>>>,
    profile: Option<Arc<Profile>>,
    /// Threads that read experts from files, once a weight needs them.
    readers: Mutex<Option<Readers>>,
    /// Bytes of memory that may be used; `None` for what the system has.
    memory: Option<u64>,
    /// Bytes of all weights so far.
    prepared_bytes: AtomicU64,
}

impl Cpu {
    /// Kernels at a level with `threads` threads, including the caller's.
    pub fn new(level: Level, threads: usize) -> Result<Self> {
        Ok(Self {
            level,
            pool: Pool::new(threads)?,
            candidates: Mutex::default(),
            profile: None,
            readers: Mutex::default(),
            memory: None,
            prepared_bytes: AtomicU64::new(0),
        })
    }

    /// Reports this number of bytes, less those of prepared weights, as free memory ([`Backend::free_memory`]).
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// The kernels as a backend.
    pub fn backend(level: Level, threads: usize) -> Result<Backend> {
        Self::new(level, threads).map(Backend::new)
    }
}

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
        add(Add) => add_rows,
        add_gated(AddGated) => add_gated_rows,
        scale(Scale) => scale_rows,
        soft_cap(SoftCap) => soft_cap_rows,
        argmax(Argmax) => argmax_rows,
        sample(Sample) => sample_rows,
        attention(Attention) => flash_attention,
        causal_conv(CausalConv) => causal_conv_rows,
        delta_rule(DeltaRule) => delta_rule_rows,
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
