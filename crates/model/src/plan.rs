//! The memory of a model, planned before it is loaded.
//!
//! # Memory is planned before it is allocated
//!
//! `Plan` counts weights, caches and scratch of a model on a device.

use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::Footprint;

use crate::error::{Error, Result};
use crate::info::ModelInfo;
use crate::limits::{DEFAULT_CONTEXT, Limits, MAX_CONTEXT, USUAL_BATCH};
use crate::machine;
use crate::notice::Notice;
use crate::program::Program;
use crate::runner::MOST_DRAFTS;
use crate::spec::{LayerSpec, Mixer, ModelSpec, RopeScaling};
use crate::state::{Reuse, State};
use crate::tower::TowerInfo;
use crate::weights::WeightShapes;

/// Bytes of a device's memory that are reserved for its driver. Kernels and captured graphs of a model need some tens
/// of MB; the workspace of attention grows to 64 MB, and captured graphs keep its smaller predecessors.
const RESERVE: u64 = 256 << 20;
/// The same of a model with latent attention, whose workspace grows to 2 MB for each multiprocessor: 276 MB on an H100.
const LATENT_RESERVE: u64 = 512 << 20;

/// Tokens of a batch on CUDA by default, the largest first. Larger products are faster there: with 128 clients a server
/// of Qwen3-30B-A3B on an H200 gives 4,021 tokens per second with 512, 5,044 with 2,048. Its 12 layers on an H100 read a
/// prompt of 8,192 tokens 1.22 times as fast in chunks of 4,096, and 1.33 times in one, as in chunks of 2,048.
const CUDA_BATCHES: [usize; 2] = [2048, 1024];
const LARGE_CUDA_BATCHES: [usize; 2] = [8192, 4096];

/// The divisor of a device's free memory: intermediate results of a larger batch may use one part of this number. Large
/// batches may use one part of what weights leave.
const OF_MEMORY: u64 = 16;

/// Bytes of a device's memory that are reserved for its driver and for workspaces.
fn reserve(spec: &ModelSpec) -> u64 {
    let is_latent = spec.layers.iter().any(|layer| matches!(layer.mixer, Mixer::Latent(_)));
    if is_latent { LATENT_RESERVE } else { RESERVE }
}

/// Where the memory of a model goes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The context length that this is for.
    pub context: usize,
    /// Tokens that the model was trained on.
    pub trained: usize,
    /// The longest context for which LongRoPE's short factors are used, if the model has some.
    pub short_factors: Option<usize>,
    /// Prepared weights.
    pub weights: u64,
    /// Experts in host memory that the CPU computes for a GPU, or the memory for some of them if they are in the file; no part of
    /// [`Plan::total`].
    pub host: u64,
    /// Experts that stay in the model's file; no part of [`Plan::total`].
    pub streamed: u64,
    /// Slots for experts of each layer: part of the weights, or of [`Plan::host`] if the CPU reads a GPU's experts from the file. 0
    /// without.
    pub slots: usize,
    /// Experts of each layer, at most.
    pub experts: usize,
    /// Free memory of the host, if experts are in it and the system reports it.
    pub host_available: Option<u64>,
    /// Weights that are read from the mapped file; the system may drop these pages and read them again.
    pub mapped: u64,
    /// State (the KV cache) of all sequences.
    pub state: u64,
    /// Tokens that the KV cache has blocks for: [`Limits::kv_tokens`].
    pub kv_tokens: usize,
    /// Intermediate results.
    pub scratch: u64,
    /// Prepared weights of the vision tower. Those in its file's map are in [`Self::mapped`].
    pub tower: u64,
    /// Intermediate results of the vision tower for the largest image that a context has room for, and the rows of images
    /// that are kept.
    pub pictures: u64,
    /// Left to the driver of a device, for compiled kernels, captured graphs and workspaces.
    pub reserve: u64,
    /// Free memory of the device; `None` if the system does not report it.
    pub available: Option<u64>,
}

/// What a plan counts, but for weights.
#[derive(Clone, Copy)]
pub(crate) struct PlanParts<'a> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) program: &'a Program,
    pub(crate) tower: Option<&'a TowerInfo>,
}

impl PlanParts<'_> {
    fn picture_bytes(self, context: usize, limits: &Limits, precision: Precision, backend: &Backend) -> u64 {
        self.tower.map_or(0, |tower| tower.runner_bytes(context, &limits.images, precision, backend))
    }
}

impl Plan {
    /// Plans for a model that is not loaded yet, on a backend. Memory is not checked, see [`Self::check`].
    ///
    /// # Errors
    /// [`Error::Limit`] if a limit is 0, or the context longer than [`MAX_CONTEXT`] or than the KV cache.
    /// [`Error::IndexedContext`] if the model would need its index, which is not implemented.
    pub fn new(info: &ModelInfo, limits: &Limits, precision: Precision, backend: &Backend) -> Result<Self> {
        Self::of_parts(info.parts_of_plan(), &info.weights, limits, precision, backend)
    }

    /// The same of the parts of a model.
    pub(crate) fn of_parts(
        parts: PlanParts,
        weights: &WeightShapes,
        limits: &Limits,
        precision: Precision,
        backend: &Backend,
    ) -> Result<Self> {
        let tower = parts.tower.map_or_else(Footprint::default, |tower| tower.weights.footprint(backend));
        let footprints = [weights.footprint(backend), tower];
        let plan = Self::with_weights(parts, footprints, limits, precision, backend, Reuse::Prefixes)?;
        let host = weights.host_bytes(backend);
        let host_available = if host > 0 { Self::host_memory(backend)? } else { None };
        Ok(Self { host, host_available, streamed: weights.streamed_bytes(), slots: weights.slots(), ..plan })
    }

    /// Free memory of the host of a GPU, if the system reports it, or what is left of the limit.
    pub(crate) fn host_memory(backend: &Backend) -> Result<Option<u64>> {
        let limit = backend.offload().host().map(|host| host.free_memory()).transpose()?.flatten();
        Ok(machine::available_memory().into_iter().chain(limit).min())
    }

    /// Plans for a runner of a model that is loaded: its weights are not counted.
    pub(crate) fn loaded(
        parts: PlanParts,
        limits: &Limits,
        precision: Precision,
        backend: &Backend,
        reuse: Reuse,
    ) -> Result<Self> {
        Self::with_weights(parts, Default::default(), limits, precision, backend, reuse)
    }

    fn with_weights(
        parts: PlanParts,
        [weights, tower]: [Footprint; 2],
        limits: &Limits,
        precision: Precision,
        backend: &Backend,
        reuse: Reuse,
    ) -> Result<Self> {
        let PlanParts { spec, program, .. } = parts;
        limits.check()?;
        let device = backend.free_memory()?;
        let is_cpu = backend.device() == DeviceId::Cpu;
        let mut plan = Self {
            context: 0,
            trained: spec.context_length,
            short_factors: spec.layers.iter().find_map(|layer| match layer.rope()?.scaling {
                RopeScaling::Long { original_context, .. } => Some(original_context),
                _ => None,
            }),
            weights: weights.owned,
            host: 0,
            streamed: 0,
            slots: 0,
            experts: spec.routers().iter().map(|router| router.experts).max().unwrap_or(0),
            host_available: None,
            mapped: weights.mapped.saturating_add(tower.mapped),
            state: 0,
            kv_tokens: 0,
            scratch: program
                .slots
                .bytes(precision, limits.batch_tokens, limits.rows())
                .saturating_add(program.slots.kept_bytes(limits.kept_tokens(backend)))
                .saturating_add(rope_bytes(spec))
                .saturating_add(draft_bytes(spec, limits)),
            tower: tower.owned,
            pictures: 0,
            reserve: if is_cpu { 0 } else { device.map_or(0, |_| reserve(spec)) },
            available: if is_cpu {
                device.into_iter().chain(machine::available_memory()).min()
            } else {
                device.or_else(machine::available_memory)
            },
        };
        plan.context = match limits.context {
            Some(context) if context > MAX_CONTEXT => {
                let rule = format!("gristmill supports at most {MAX_CONTEXT}");
                return Err(Error::Limit { what: "the context length", found: context, rule });
            }
            Some(context) if spec.unindexed_context.is_some_and(|most| context > most) => {
                let most = spec.unindexed_context.unwrap_or(MAX_CONTEXT);
                return Err(Error::IndexedContext { architecture: spec.architecture.clone(), context, most });
            }
            Some(context) => context,
            None => plan.default_context(parts, limits, precision, backend, reuse),
        };
        plan.pictures = parts.picture_bytes(plan.context, limits, precision, backend);
        plan.kv_tokens = limits.kv_tokens(plan.context)?;
        plan.state = State::bytes(backend, spec, limits, plan.context, reuse);
        plan.scratch = plan.scratch.saturating_add(State::table_bytes(spec, limits, plan.context));
        Ok(plan)
    }

    /// The longest context up to [`DEFAULT_CONTEXT`] that uses LongRoPE's short factors and no index, and whose state leaves a tenth
    /// of the memory free; at least 1. If [`Limits::kv_tokens`] sets the size of the state, the longest context that
    /// fits.
    fn default_context(
        &self,
        parts: PlanParts,
        limits: &Limits,
        precision: Precision,
        backend: &Backend,
        reuse: Reuse,
    ) -> usize {
        let spec = parts.spec;
        let limits_of_model = [self.short_factors, spec.unindexed_context].into_iter().flatten();
        let most = limits_of_model.fold(spec.context_length.min(DEFAULT_CONTEXT), usize::min);
        let (None, Some(available)) = (limits.kv_tokens, self.available) else {
            return most.min(limits.kv_tokens.unwrap_or(usize::MAX));
        };
        let free = (available - available / 10).saturating_sub(self.total());
        let fits = |&context: &usize| {
            let pictures = parts.picture_bytes(context, limits, precision, backend);
            State::bytes(backend, spec, limits, context, reuse).saturating_add(pictures) <= free
        };
        std::iter::successors(Some(most), |context| Some(context / 2)).take_while(|&n| n > 1).find(fits).unwrap_or(1)
    }

    /// A context longer than what the model was trained on, or one with LongRoPE's long factors.
    pub fn notice(&self) -> Option<Notice> {
        let Self { context, trained, short_factors, .. } = *self;
        if context > trained {
            return Some(Notice::LongContext { context, trained });
        }
        let original = short_factors.filter(|&original| context > original)?;
        Some(Notice::LongFactors { context, original })
    }

    /// The sum of all parts.
    pub fn total(&self) -> u64 {
        let Self { weights, tower, mapped, state, scratch, pictures, reserve, .. } = *self;
        [weights, tower, mapped, state, scratch, pictures, reserve].into_iter().fold(0, u64::saturating_add)
    }

    /// Checks that the total is available.
    ///
    /// # Errors
    /// [`Error::Memory`] with the numbers and what can be done.
    pub fn check(&self) -> Result<()> {
        if let Some(free) = self.host_available.filter(|&free| self.host > free) {
            let remedy = "use a smaller quantisation, keep experts in the file, place those of fewer layers in host memory, \
                          or free memory";
            return Err(Error::Memory { what: "experts in host memory", needed: self.host, free, remedy });
        }
        let (needed, Some(free)) = (self.total(), self.available) else { return Ok(()) };
        if needed <= free {
            return Ok(());
        }
        let least = [self.weights, self.tower, self.mapped, self.reserve].into_iter().fold(0, u64::saturating_add);
        let (what, remedy) = match least > free {
            true => (
                "the model",
                "use a smaller model or a smaller quantisation, free memory, or place experts in host memory (on CUDA)",
            ),
            false => (
                "the model with this context",
                "use a shorter context, a KV cache of fewer tokens or of 8 bits, a smaller batch or fewer sequences",
            ),
        };
        Err(Error::Memory { what, needed, free, remedy })
    }
}

impl Limits {
    /// [`Limits::batch_tokens`] that suit a model on a device, with the other limits of these: more on CUDA, where its
    /// memory is not short.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the device refuses, and the errors of [`Plan::new`].
    pub fn usual_batch(&self, info: &ModelInfo, precision: Precision, backend: &Backend) -> Result<usize> {
        let (DeviceId::Cuda(_), Some(free)) = (backend.device(), backend.free_memory()?) else {
            return Ok(USUAL_BATCH);
        };
        let fits = |&tokens: &usize| info.program.slots.bytes(precision, tokens, 1) <= free / OF_MEMORY;
        let usual = CUDA_BATCHES.into_iter().find(fits).unwrap_or(USUAL_BATCH);
        if usual < CUDA_BATCHES[0] {
            return Ok(usual);
        }
        let usual_plan = Plan::new(info, &Self { batch_tokens: usual, ..*self }, precision, backend)?;
        // A step has at most the tokens that the cache has blocks for.
        for batch_tokens in LARGE_CUDA_BATCHES.into_iter().filter(|&tokens| tokens <= usual_plan.kv_tokens) {
            // Caches of layers with a window grow with a batch, too.
            let limits = Self { batch_tokens, context: Some(usual_plan.context), ..*self };
            let more = Plan::new(info, &limits, precision, backend)?.total().saturating_sub(usual_plan.total());
            if more <= free.saturating_sub(usual_plan.total()) / OF_MEMORY {
                return Ok(batch_tokens);
            }
        }
        Ok(usual)
    }
}

/// Bytes of drafted tokens.
fn draft_bytes(spec: &ModelSpec, limits: &Limits) -> u64 {
    let tokens = if spec.heads.is_empty() { 0 } else { limits.rows().saturating_mul(MOST_DRAFTS + 1) };
    (size_of::<u32>() as u64).saturating_mul(tokens as u64)
}

/// Bytes of the frequencies of RoPE, if no two layers have the same.
fn rope_bytes(spec: &ModelSpec) -> u64 {
    let ropes = spec.all_layers().filter_map(LayerSpec::rope);
    ropes.map(|rope| 4 * rope.width.div_ceil(2) as u64).fold(0, u64::saturating_add)
}
