//! Where the experts go of a model that is larger than the device's memory.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::tensor::DeviceId;

use crate::device::{Opened, open_device};
use crate::error::{Error, Result};
use crate::info::ModelInfo;
use crate::limits::Limits;
use crate::load::{ExpertPlacement, LoadOptions};
use crate::model::Model;
use crate::plan::{Plan, PlanParts};
use crate::ranks::{RankPart, SplitChoice, Sums, agree, choose};
use crate::spec::ModelSpec;
use crate::tower::TowerInfo;

/// The divisor of a computer's free memory: one part of this number is left to others if no limit is set.
const LEFT_OF_MEMORY: u64 = 10;
/// Bytes of pinned host memory for each byte that the driver takes of the device's memory to address them: 8 bytes for a page of
/// 4 KiB. The plan of a GPU with 8 GB was short of 22 MB without (Qwen3-30B-A3B, 17 GB pinned, H100).
const PINNED_FOR_EACH: u64 = 512;

/// Places the experts of a model that does not fit into the free memory of a CUDA device or of a CPU. The other weights, the KV
/// cache and intermediate results come first, and slots for experts get the rest. If the host's memory does not suffice for the
/// experts, they stay in the file, but for those of as many layers as fit into the device's memory; a tenth of the host's memory is
/// left to others then, unless [`LoadOptions::cpu_memory`] sets a limit. Returns the placement, and the context length that it is
/// for. The options' own if the model fits, if they place experts themselves, or if nothing helps: [`Plan::check`] has the error
/// then. `info` was read of `file` for these options ([`ModelInfo::read_for`]).
///
/// # Errors
/// [`Error::ExpertPlacement`], and the errors of [`Plan::new`].
pub fn place_experts(
    file: &GgufFile,
    info: &ModelInfo,
    options: &LoadOptions,
    limits: &Limits,
    backend: &Backend,
) -> Result<(ExpertPlacement, Option<usize>)> {
    let own = (options.experts, limits.context);
    let tiers = match backend.device() {
        DeviceId::Cuda(_) => &[Tier::Host, Tier::HostAndFile][..],
        DeviceId::Cpu => &[Tier::File][..],
        _ => return Ok(own),
    };
    if options.experts != ExpertPlacement::Device {
        return Ok(own);
    }
    if Plan::new(info, limits, options.precision, backend)?.check().is_ok() {
        return Ok(own);
    }
    let planner = Planner { file, spec: &info.spec, tower: info.tower.as_ref(), options, limits: *limits, backend };
    for &tier in tiers.iter().filter(|&&tier| tier == Tier::Host || file.is_readable()) {
        if let Some((placement, context)) = planner.place(tier)? {
            return Ok((placement, Some(context)));
        }
    }
    Ok(own)
}

/// A model on a device within limits.
struct Planner<'a> {
    file: &'a GgufFile,
    spec: &'a ModelSpec,
    tower: Option<&'a TowerInfo>,
    options: &'a LoadOptions,
    limits: Limits,
    backend: &'a Backend,
}

impl Planner<'_> {
    fn plan(&self, experts: ExpertPlacement) -> Result<Plan> {
        let (_, program, weights) = ModelInfo::parts(self.spec, self.file, experts, &RankPart::WHOLE)?;
        let parts = PlanParts { spec: self.spec, program: &program, tower: self.tower };
        Plan::of_parts(parts, &weights, &self.limits, self.options.precision, self.backend)
    }

    /// The placement of a tier with as many experts in the faster memory as fit, and the context length that it is for. `None` if
    /// the model does not fit so either, or has no experts that can be there.
    fn place(&self, tier: Tier) -> Result<Option<(ExpertPlacement, usize)>> {
        let least = match self.plan(tier.least()) {
            Err(Error::ExpertPlacement { .. }) => return Ok(None),
            least => least?,
        };
        let limit = self.options.cpu_memory;
        let host_free = least.host_available.map(|free| free.min(limit.unwrap_or(u64::MAX)));
        if least.check().is_err() || host_free.is_some_and(|free| least.host > free) {
            return Ok(None);
        }
        let (free, left) = match tier {
            Tier::Host => (least.available, least.host / PINNED_FOR_EACH),
            Tier::HostAndFile | Tier::File => {
                let free = if tier == Tier::File { least.available } else { host_free };
                (free, if limit.is_some() { 0 } else { free.unwrap_or(0) / LEFT_OF_MEMORY })
            }
        };
        let Some(free) = free else { return Ok(None) };
        let fixed = Planner { limits: Limits { context: Some(least.context), ..self.limits }, ..*self };
        let device_layers = match tier {
            Tier::HostAndFile => fixed.device_layers(tier, self.spec.layers.len()),
            Tier::Host | Tier::File => 0,
        };
        let bytes = |count| {
            let plan = fixed.plan(tier.slots(count, device_layers))?;
            Ok::<_, Error>(if tier == Tier::HostAndFile { plan.host } else { plan.total() })
        };
        // Every slot takes the same memory, up to the layer with the fewest experts.
        let (one, two) = (bytes(1)?, bytes(2)?);
        let most = self.spec.routers().iter().map(|router| router.experts).max().unwrap_or(0);
        let rest = free.saturating_sub(left).checked_sub(one);
        let more = rest.map(|rest| usize::try_from(rest / two.saturating_sub(one).max(1)).unwrap_or(most));
        let placement = match (tier, more) {
            (Tier::Host, None) => tier.least(),
            (_, more) => tier.slots(more.map_or(1, |more| more.saturating_add(1).min(most)), device_layers),
        };
        Ok(Some((placement, least.context)))
    }

    /// The first layers whose experts fit into the device's memory, at most all but one.
    fn device_layers(&self, tier: Tier, layers: usize) -> usize {
        let fits = |&layers: &usize| {
            let plan = self.plan(tier.slots(1, layers)).ok();
            // A runner plans for the driver's part again, when kernels have taken some of it; no slots can be freed for it.
            plan.is_some_and(|plan| plan.available.is_none_or(|free| plan.total().saturating_add(plan.reserve) <= free))
        };
        (1..layers).collect::<Vec<_>>().partition_point(fits)
    }
}

/// Where experts are that a device has no memory for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    /// All in host memory, some also in slots of a GPU.
    Host,
    /// In the file, some also in host memory, where the CPU computes them for a GPU.
    HostAndFile,
    /// In the file, some also in the memory of the CPU that runs the model.
    File,
}

impl Tier {
    /// The placement that takes the least memory.
    fn least(self) -> ExpertPlacement {
        match self {
            Self::Host => ExpertPlacement::Cpu,
            Self::HostAndFile | Self::File => ExpertPlacement::disk(1),
        }
    }

    /// The placement with this number of experts of each layer in the faster memory, behind the layers whose experts are all on
    /// the device.
    fn slots(self, count: usize, device_layers: usize) -> ExpertPlacement {
        match self {
            Self::Host => ExpertPlacement::Slots(count),
            Self::HostAndFile | Self::File => ExpertPlacement::Disk { kept: count, device_layers },
        }
    }
}

/// What a user is told of a placement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PlacementNote {
    /// `auto` is the CPU, because a CUDA device cannot be used.
    PassedOver(Arc<gristmill_kernels::Error>),
    /// The model is larger than the memory, so its experts are there.
    Experts(ExpertPlacement),
}

impl Display for PlacementNote {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Self::PassedOver(error) => write!(f, "{error}; the CPU is used"),
            Self::Experts(placement) => write!(f, "the model is larger than the memory: experts on {placement}"),
        }
    }
}

/// A device of a model that is split.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RankPlan {
    /// The name of the device.
    pub device: String,
    /// What it has of layers that are split, as text.
    pub has: String,
    /// Its memory.
    pub plan: Plan,
}

/// A model on its device within limits, before its weights are loaded.
#[derive(Debug)]
#[non_exhaustive]
pub struct Placed {
    /// The model, with its experts where the options place them.
    pub info: ModelInfo,
    /// The device.
    pub backend: Arc<Backend>,
    /// The other devices of a model that is split.
    pub others: Vec<Arc<Backend>>,
    /// The options, with the placement of experts.
    pub options: LoadOptions,
    /// The limits, with the tokens of a batch, and with the context that experts were placed for.
    pub limits: Limits,
    /// What a user is told.
    pub notes: Vec<PlacementNote>,
    /// The split of a model on several devices, if the options name none.
    pub choice: Option<SplitChoice>,
    /// How several devices sum.
    sums: Option<Sums>,
}

impl Placed {
    /// A model on a device that is open, as it is. `info` was read for these options.
    pub fn on(backend: Arc<Backend>, info: ModelInfo, options: LoadOptions, limits: Limits) -> Self {
        let (others, notes, choice, sums) = Default::default();
        Self { info, backend, others, options, limits, notes, choice, sums }
    }

    /// What each device has of the model, and its memory: one entry without a split. `file` is the one of [`Self::info`].
    ///
    /// # Errors
    /// The errors of [`Plan::new`].
    pub fn rank_plans(&self, file: &GgufFile) -> Result<Vec<RankPlan>> {
        let backends = std::iter::once(&self.backend).chain(&self.others);
        let plan = |(rank, backend): (usize, &Arc<Backend>)| {
            let other = match rank {
                0 => None,
                _ => Some(self.info.of_rank(file, self.info.part.of_rank(rank))?),
            };
            let info = other.as_ref().unwrap_or(&self.info);
            let plan = Plan::new(info, &self.limits, self.options.precision, backend)?;
            Ok(RankPlan { device: backend.name(), has: info.own_parts(), plan })
        };
        backends.enumerate().map(plan).collect()
    }

    /// Loads the weights. `file` is the one of [`Self::info`].
    ///
    /// # Errors
    /// The errors of [`Model::open`].
    pub fn load(self, file: GgufFile) -> Result<Model> {
        Model::load_ranks(file, self.info, self.backend, self.others, self.options, self.sums)
    }
}

/// Chooses the split over several devices if the options name none, the tokens of a batch if the limits have 0, and places the experts of a model that does not fit as
/// [`place_experts`] does; `opened` was opened by these options ([`open_device`]), and is opened again with that placement. `info`
/// was read of `file` for the options ([`ModelInfo::read_for`]).
///
/// # Errors
/// The errors of [`place_experts`] and [`open_device`].
pub fn place(
    file: &GgufFile,
    mut info: ModelInfo,
    opened: Opened,
    mut options: LoadOptions,
    mut limits: Limits,
) -> Result<Placed> {
    let (mut choice, mut sums) = (None, None);
    if !opened.others.is_empty() || options.group.is_some() {
        let backends: Vec<_> = std::iter::once(&opened.backend).chain(&opened.others).cloned().collect();
        let found = Sums::of(&backends, &options)?;
        if options.split.is_none() {
            let limits = Limits { batch_tokens: limits.batch_tokens.max(limits.sequences), ..limits };
            let chosen = choose(file, &info, &backends, &found, &options, &limits)?;
            (options.split, choice) = (Some(chosen.split), Some(chosen));
        }
        if let (Some(group), Some(own)) = (&options.group, options.split) {
            let agreed = agree(&**group, own)?;
            // A split that the user named is compared with that of rank 0 later.
            if let Some(choice) = &mut choice {
                (options.split, choice.split) = (Some(agreed), agreed);
            }
        }
        sums = Some(found);
    }
    info.split(file, RankPart::own(1 + opened.others.len(), &info.spec, &options))?;
    if limits.batch_tokens == 0 {
        limits.batch_tokens = limits.usual_batch(&info, options.precision, &opened.backend)?.max(limits.sequences);
    }
    let (experts, context) = match opened.others.is_empty() && options.group.is_none() {
        true => place_experts(file, &info, &options, &limits, &opened.backend)?,
        false => (options.experts, limits.context),
    };
    let mut placed = Placed::on(opened.backend, info, options, limits);
    (placed.others, placed.choice, placed.sums) = (opened.others, choice, sums);
    placed.notes.extend(opened.passed_over.map(PlacementNote::PassedOver));
    if experts == placed.options.experts {
        return Ok(placed);
    }
    let Placed { mut info, backend, others, mut options, limits, mut notes, choice, sums } = placed;
    // The CPU's threads belong to the backend that has experts there.
    drop(backend);
    options.experts = experts;
    info.place(file, experts)?;
    notes.push(PlacementNote::Experts(experts));
    let backend = open_device(&options)?.backend;
    Ok(Placed { info, backend, others, options, limits: Limits { context, ..limits }, notes, choice, sums })
}

impl Model {
    /// Loads a model for runners and engines with these limits: [`place`] chooses what they leave open. Returns the limits with
    /// these choices, and what a user is told.
    ///
    /// # Errors
    /// The errors of [`Model::open`] and [`place`].
    pub fn open_for(
        path: impl AsRef<Path>,
        options: LoadOptions,
        limits: Limits,
    ) -> Result<(Self, Limits, Vec<PlacementNote>)> {
        let file = GgufFile::open(path)?;
        // Wrong options are refused before a large file is read.
        let opened = open_device(&options)?;
        let info = ModelInfo::read_for(&file, &options)?;
        let mut placed = place(&file, info, opened, options, limits)?;
        let limits = placed.limits;
        let notes = std::mem::take(&mut placed.notes);
        Ok((placed.load(file)?, limits, notes))
    }
}
