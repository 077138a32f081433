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
/// cache and intermediate results come first, and slots for experts get the rest; on a CPU, a tenth of the memory is left to others
/// unless [`LoadOptions::cpu_memory`] sets a limit. Returns the placement, and the context length that it is for. The options' own if
/// the model fits, if they place experts themselves, or if nothing helps: [`Plan::check`] has the error then.
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
    let info = |experts| {
        let prediction_heads = options.prediction_heads;
        ModelInfo::read_for(file, &LoadOptions { experts, prediction_heads, ..LoadOptions::default() })
    };
    let plan = |info: &ModelInfo, limits: &Limits| Plan::new(info, limits, options.precision, backend);
    let is_cpu = match backend.device() {
        DeviceId::Cuda(_) => false,
        DeviceId::Cpu => true,
        _ => return Ok(own),
    };
    if options.experts != ExpertPlacement::Device {
        return Ok(own);
    }
    let all = info(ExpertPlacement::Device)?;
    let most = all.spec.routers().iter().map(|router| router.experts).max().unwrap_or(0);
    if plan(&all, limits)?.check().is_ok() {
        return Ok(own);
    }
    let (least, slots): (_, fn(usize) -> ExpertPlacement) = match is_cpu {
        true if file.is_readable() => (ExpertPlacement::Disk(1), ExpertPlacement::Disk),
        true => return Ok(own),
        false => (ExpertPlacement::Cpu, ExpertPlacement::Slots),
    };
    let without = match info(least) {
        // The model has no experts that can be there.
        Err(Error::ExpertPlacement { .. }) => return Ok(own),
        without => plan(&without?, limits)?,
    };
    let (Ok(()), Some(free)) = (without.check(), without.available) else { return Ok(own) };
    let left = match is_cpu {
        true if options.cpu_memory.is_none() => free / LEFT_OF_MEMORY,
        true => 0,
        false => without.host / PINNED_FOR_EACH,
    };
    let limits = Limits { context: Some(without.context), ..*limits };
    let total = |count| Ok::<_, Error>(plan(&info(slots(count))?, &limits)?.total());
    let (one, two) = (total(1)?, total(2)?);
    // Every slot takes the same memory, up to the layer with the fewest experts.
    let rest = free.saturating_sub(left).checked_sub(one);
    let more = rest.map(|rest| usize::try_from(rest / two.saturating_sub(one).max(1)).unwrap_or(most));
    Ok((more.map_or(least, |more| slots(more.saturating_add(1).min(most))), limits.context))
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
            limits.batch_tokens = Limits::usual_batch(&info, options.precision, &backend)?.max(limits.sequences);
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
