//! Where the experts go of a model that is larger than the device's memory.

use std::path::Path;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::tensor::DeviceId;

use crate::device::open_device;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::load::{ExpertPlacement, LoadOptions};
use crate::model::{Model, ModelInfo};
use crate::plan::Plan;

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
/// then.
///
/// # Errors
/// The errors of [`ModelInfo::read_for`] and [`Plan::new`].
pub fn place_experts(
    file: &GgufFile,
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
    let planner = Planner { file, options, limits: *limits, backend };
    if planner.plan(ExpertPlacement::Device)?.check().is_ok() {
        return Ok(own);
    }
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
    options: &'a LoadOptions,
    limits: Limits,
    backend: &'a Backend,
}

impl Planner<'_> {
    fn info(&self, experts: ExpertPlacement) -> Result<ModelInfo> {
        let prediction_heads = self.options.prediction_heads;
        ModelInfo::read_for(self.file, &LoadOptions { experts, prediction_heads, ..LoadOptions::default() })
    }

    fn plan(&self, experts: ExpertPlacement) -> Result<Plan> {
        Plan::new(&self.info(experts)?, &self.limits, self.options.precision, self.backend)
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
        let spec = self.info(ExpertPlacement::Device)?.spec;
        let device_layers = match tier {
            Tier::HostAndFile => fixed.device_layers(tier, spec.layers.len()),
            Tier::Host | Tier::File => 0,
        };
        let bytes = |count| {
            let plan = fixed.plan(tier.slots(count, device_layers))?;
            Ok::<_, Error>(if tier == Tier::HostAndFile { plan.host } else { plan.total() })
        };
        // Every slot takes the same memory, up to the layer with the fewest experts.
        let (one, two) = (bytes(1)?, bytes(2)?);
        let most = spec.routers().iter().map(|router| router.experts).max().unwrap_or(0);
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

impl Model {
    /// Loads a model for runners and engines with these limits. [`Limits::batch_tokens`] of 0 are those that suit the model and its
    /// device. If the model is larger than the memory, its experts are placed as [`place_experts`] does. Returns the limits too, with
    /// the context that was planned then.
    ///
    /// # Errors
    /// The errors of [`Model::open`] and [`Plan::new`].
    pub fn open_for(path: impl AsRef<Path>, mut options: LoadOptions, mut limits: Limits) -> Result<(Self, Limits)> {
        let file = GgufFile::open(path)?;
        let mut backend = open_device(&options)?.backend;
        if limits.batch_tokens == 0 {
            let info = ModelInfo::read_for(&file, &options)?;
            limits.batch_tokens = limits.usual_batch(&info, options.precision, &backend)?.max(limits.sequences);
        }
        let (experts, context) = place_experts(&file, &options, &limits, &backend)?;
        if experts != options.experts {
            // The CPU's threads belong to the backend that has experts there.
            drop(backend);
            (options.experts, limits.context) = (experts, context);
            backend = open_device(&options)?.backend;
        }
        Ok((Self::with_backend(file, backend, options)?, limits))
    }
}
