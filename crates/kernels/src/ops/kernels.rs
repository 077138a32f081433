//! The trait that a backend implements, and the type that proves that arguments were checked.
//!
//! # Compositions
//!
//! Where launches cost time, a backend does several operations in one launch. A composition (`norm_matmul`, `attend`,
//! `experts`, …) is defined by its parts. A backend that does not fuse a composition implements nothing. The suite
//! compares an override with the parts. *The forward pass calls compositions and never asks which backend it has.*

use super::attention::*;
use super::elementwise::*;
use super::experts::*;
use super::matrix::*;
use super::norm::*;
use super::operation::Operation;
use super::recurrent::*;
use super::route::*;
use super::sample::*;
use super::scan::*;
use crate::Backend;
use crate::act::{Act, ActReader, Precision, Representations};
use crate::error::Result;
use crate::groups::{GroupLists, Groups, Tiling};
use crate::kv::{KvCache, KvSpec};
use crate::offload::OffloadKernels;
use crate::ranks::DeviceRanks;
use crate::tensor::{DeviceId, DeviceMemory, View};
use crate::weight::{Footprint, Prepared, Role, TensorShape, TensorView, Weight};
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

/// An operation that [`Backend::run`] runs.
pub trait Dispatch: Operation {
    /// Calls the backend's kernel, or runs the parts of a composition that the backend does not fuse.
    fn dispatch(call: Checked<Self>, kernels: &dyn Kernels) -> Result<()>;
}

/// A composition: an operation defined by other operations.
pub(super) trait Compose {
    /// Runs the parts. They were checked together with the composition.
    fn compose(self, parts: &Parts) -> Result<()>;
}

/// Arguments that [`Backend::run`] has checked. No other code can make one, so every call of a kernel is checked:
///
/// ```compile_fail
/// use gristmill_kernels::ops::{Checked, Kernels, Scale};
/// use gristmill_kernels::tensor::ViewMut;
///
/// fn past_the_check(kernels: &dyn Kernels, y: ViewMut<f32>) {
///     let _ = kernels.scale(Checked(Scale::new(f32::NAN, y)));
/// }
/// ```
///
/// The same operation through the backend compiles:
///
/// ```
/// use gristmill_kernels::ops::Scale;
/// use gristmill_kernels::tensor::ViewMut;
/// use gristmill_kernels::{Backend, Error};
///
/// fn through_the_check(backend: &Backend, y: ViewMut<f32>) {
///     assert!(matches!(backend.run(Scale::new(f32::NAN, y)), Err(Error::Range { .. })));
/// }
/// ```
#[derive(Debug)]
pub struct Checked<O>(O);

impl<O> Checked<O> {
    /// The arguments.
    pub fn into_inner(self) -> O {
        self.0
    }
}

impl<O> Deref for Checked<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.0
    }
}

impl<O> DerefMut for Checked<O> {
    fn deref_mut(&mut self) -> &mut O {
        &mut self.0
    }
}

impl<'a> Checked<GroupByExpert<'a>> {
    /// The ids, and the lists to fill.
    pub fn into_lists(self) -> (View<'a, u32>, GroupLists<'a>) {
        (self.0.ids, self.0.groups.lists())
    }
}

impl<'a> Checked<RouteAndGroup<'a>> {
    /// The routing, and the lists to fill.
    pub fn lists(&mut self) -> (&mut Route<'a>, GroupLists<'_>) {
        (&mut self.0.route, self.0.groups.lists())
    }
}

impl<'a> Checked<Experts<'a>> {
    /// The routing, and the lists to fill.
    pub fn lists(&mut self) -> (&mut Route<'a>, GroupLists<'_>) {
        (&mut self.0.route, self.0.scratch.groups.lists())
    }
}

/// Whether a backend has run a composition as one fused kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fused {
    /// The fused kernel has run.
    Yes,
    /// Nothing has run; the parts must run instead.
    No,
}

/// Runs the parts of a composition whose arguments have been checked as a whole.
pub(super) struct Parts<'k>(&'k dyn Kernels);

impl Parts<'_> {
    pub(super) fn run<O: Dispatch>(&self, part: O) -> Result<()> {
        O::dispatch(Checked(part), self.0)
    }

    pub(super) fn request_experts(&self, weights: [&Weight; 2], groups: &Groups) -> Result<()> {
        self.0.offload().map_or(Ok(()), |offload| offload.request_experts(weights, groups))
    }
}

/// Checks an operation and runs it.
pub(crate) fn run<O: Dispatch>(kernels: &dyn Kernels, mut operation: O) -> Result<()> {
    operation.check(kernels.device())?;
    O::dispatch(Checked(operation), kernels)
}

/// A device's peak rates.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Memory bandwidth for reads.
    pub read_bytes_per_second: f64,
    /// Peak rate of the fastest products that the kernels use (bfloat16 for CUDA). A product and a sum are two
    /// operations.
    pub ops_per_second: f64,
}

/// Launches captured into a graph, which replays them with the same arguments.
pub trait Graph: Debug + Send + Sync {
    /// Replays all launches.
    fn replay(&self) -> Result<()>;
}

/// A device-to-host copy in flight.
pub trait PendingRead: Debug + Send {
    /// Waits for the copy and for all work submitted before it. Returns the bytes of all pieces, concatenated.
    fn wait(self: Box<Self>) -> Result<Vec<u8>>;
}

/// A finished copy.
impl PendingRead for Vec<u8> {
    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        Ok(*self)
    }
}

/// Device memory that the host cannot address.
pub trait Heap {
    /// Allocates zeroed memory. `what` names it in an out-of-memory error.
    fn allocate(&self, bytes: usize, what: &'static str) -> Result<Box<dyn DeviceMemory>>;
    /// Copies from the host to the memory, from `offset` on. The range must be inside the memory.
    fn write(&self, to: &dyn DeviceMemory, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Waits for all work and copies to the host, from `offset` on. The range must be inside the memory. Fails if a
    /// kernel has found a bad id since the last check.
    fn read(&self, from: &dyn DeviceMemory, offset: usize, bytes: &mut [u8]) -> Result<()>;
    /// Starts to copy `bytes` bytes to the host, from `offset` on, after all work submitted so far. The range must be
    /// inside the memory. The wait fails if a kernel of that work has found a bad id since the last check.
    fn start_read(&self, from: &dyn DeviceMemory, offset: usize, bytes: usize) -> Result<Box<dyn PendingRead>>;
    /// Copies `bytes` bytes within the device, from one offset to the other. Both ranges must be inside their memory
    /// and must not overlap.
    fn copy(&self, from: (&dyn DeviceMemory, usize), to: (&dyn DeviceMemory, usize), bytes: usize) -> Result<()>;
}

macro_rules! operations {
    (
        kernels { $($kernel:ident($Kernel:ident),)* }
        compositions { $($composition:ident($Composition:ident),)* }
    ) => {
        /// Kernels of a backend: one for each operation, and compositions that it runs at once. Callers use
        /// [`Backend`], which checks the arguments. All of it is `&self`: several threads may call it, and operations
        /// run one after another.
        pub trait Kernels: Send + Sync {
            /// The human-readable name of the device and its level.
            fn name(&self) -> String;
            /// Which device.
            fn device(&self) -> DeviceId;
            /// See [`Backend::arithmetic`].
            fn arithmetic(&self) -> Vec<String> {
                vec![self.name()]
            }
            /// The device's own memory; `None` for host memory.
            fn heap(&self) -> Option<&dyn Heap> {
                None
            }
            /// See [`Backend::deterministic`].
            fn deterministic(&self) -> bool;
            /// See [`Backend::is_asynchronous`].
            fn is_asynchronous(&self) -> bool {
                false
            }
            /// See [`Backend::synchronize`].
            fn synchronize(&self) -> Result<()> {
                Ok(())
            }
            /// See [`Backend::free_memory`].
            fn free_memory(&self) -> Result<Option<u64>> {
                Ok(None)
            }
            /// See [`Backend::rates`].
            fn rates(&self) -> Result<Option<Rates>> {
                Ok(None)
            }
            /// See [`Backend::batch_bucket`].
            fn batch_bucket(&self, rows: usize) -> usize {
                rows
            }
            /// See [`Backend::context_bucket`].
            fn context_bucket(&self, columns: usize) -> usize {
                columns
            }
            /// See [`Backend::capture`].
            fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
                let _ = work;
                Ok(None)
            }
            /// See [`Backend::make_ready`].
            fn make_ready(
                &self,
                work: &mut dyn FnMut(&Backend) -> Result<()>,
                progress: &mut dyn FnMut(usize, usize),
            ) -> Result<()> {
                let _ = (work, progress);
                Ok(())
            }
            /// See [`Backend::exclusive`].
            fn exclusive(&self) -> Option<MutexGuard<'_, ()>> {
                None
            }
            /// See [`Backend::notice`].
            fn notice(&self) -> Option<String> {
                None
            }
            /// See [`Backend::code_report`].
            fn code_report(&self) -> Option<String> {
                None
            }
            /// Storage for activations of up to `rows` × `cols`, whose product fits memory.
            fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act>;
            /// The representations of activations that a product may read.
            fn wanted(&self, precision: Precision, reader: &ActReader) -> Representations {
                let _ = (precision, reader);
                Representations::ALL
            }
            /// A zeroed cache; the spec has been checked.
            fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache>;
            /// Bytes that [`Kernels::alloc_kv`] takes.
            fn kv_bytes(&self, spec: KvSpec, blocks: usize) -> u64 {
                (spec.block_bytes() as u64).saturating_mul(blocks as u64)
            }
            /// How pairs are cut into tiles.
            fn tiling(&self) -> Tiling;
            /// Bytes that [`Kernels::prepare`] takes for a tensor.
            fn footprint(&self, shape: &TensorShape, role: Role) -> Footprint;
            /// Brings tensors, which have been checked, into the backend's layout.
            fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Prepared>;
            /// The backend's part of [`Backend::ranks`]; `None` if its devices do not sum without the host.
            fn ranks(&self) -> Option<&dyn DeviceRanks> {
                None
            }
            /// The backend's part of [`Backend::offload`]; `None` if it computes only with weights in its own memory.
            fn offload(&self) -> Option<&dyn OffloadKernels> {
                None
            }

            $(
                #[doc = concat!("[`", stringify!($Kernel), "`].")]
                fn $kernel(&self, call: Checked<$Kernel>) -> Result<()>;
            )*
            $(
                #[doc = concat!("[`", stringify!($Composition), "`] at once.")]
                ///
                /// The parts run if the result is [`Fused::No`].
                fn $composition(&self, call: &mut Checked<$Composition>) -> Result<Fused> {
                    let _ = call;
                    Ok(Fused::No)
                }
            )*
        }

        $(
            impl Operation for $Kernel<'_> {
                const NAME: &'static str = stringify!($kernel);
            }

            impl Dispatch for $Kernel<'_> {
                fn dispatch(call: Checked<Self>, kernels: &dyn Kernels) -> Result<()> {
                    kernels.$kernel(call)
                }
            }
        )*
        $(
            impl Operation for $Composition<'_> {
                const NAME: &'static str = stringify!($composition);
            }

            impl Dispatch for $Composition<'_> {
                fn dispatch(mut call: Checked<Self>, kernels: &dyn Kernels) -> Result<()> {
                    match kernels.$composition(&mut call)? {
                        Fused::Yes => Ok(()),
                        Fused::No => call.0.compose(&Parts(kernels)),
                    }
                }
            }
        )*

        /// Runs a macro with every operation that a backend must have: `embed(Embed), …`.
        #[macro_export]
        macro_rules! with_operations {
            ($run:ident) => { $run! { $($kernel($Kernel),)* } };
        }

        /// Runs a macro with every composition, which a backend may fuse: `add_norm(AddNorm), …`.
        #[macro_export]
        macro_rules! with_compositions {
            ($run:ident) => { $run! { $($composition($Composition),)* } };
        }
    };
}

operations! {
    kernels {
        embed(Embed),
        prepare_activations(PrepareActivations),
        matmul(Matmul),
        gate_up(GateUp),
        route(Route),
        group_by_expert(GroupByExpert),
        moe_matmul(MoeMatmul),
        moe_gate_up(MoeGateUp),
        moe_combine(MoeCombine),
        rms_norm(RmsNorm),
        layer_norm(LayerNorm),
        qk_norm(QkNorm),
        rope(Rope),
        copy_rows(CopyRows),
        gather_columns(GatherColumns),
        add(Add),
        add_gated(AddGated),
        scale(Scale),
        soft_cap(SoftCap),
        clamp(Clamp),
        argmax(Argmax),
        sample(Sample),
        kv_write(KvWrite),
        kv_copy(KvCopy),
        attention(Attention),
        causal_conv(CausalConv),
        delta_rule(DeltaRule),
        selective_scan(SelectiveScan),
        gated_norm(GatedNorm),
        multiply(Multiply),
    }
    compositions {
        add_norm(AddNorm),
        add_norm_act(AddNormAct),
        add_norms(AddNorms),
        norm_act(NormAct),
        norm_matmul(NormMatmul),
        multiply_act(MultiplyAct),
        gate_up_act(GateUpAct),
        route_and_group(RouteAndGroup),
        moe_gate_up_act(MoeGateUpAct),
        experts(Experts),
        qkv_write(QkvWrite),
        latent_write(LatentWrite),
        attention_act(AttentionAct),
        attend(Attend),
    }
}
