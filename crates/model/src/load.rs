//! How to load a model.

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use gristmill_collective::Collective;
use gristmill_kernels::act::Precision;

use crate::ranks::{ExpertLoad, Split};

/// Progress of loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights loaded.
    pub done: u64,
    /// Bytes of weights in all.
    pub total: u64,
}

/// Where the experts of a model are stored and computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpertPlacement {
    /// In the device's memory, with the other weights.
    #[default]
    Device,
    /// The experts of all layers in host memory. The CPU computes them for the GPU.
    Cpu,
    /// The experts of the first layers in host memory; dense layers count too.
    FirstLayersOnCpu(usize),
    /// The experts of all layers in host memory, and this number of slots for experts of each layer in the device's memory. The CPU
    /// computes the experts that have no slot. Slots get the experts that were chosen last; in a deterministic backend they keep the
    /// first experts.
    Slots(usize),
    /// Experts in the model's file, from which the CPU reads those that are chosen; it also computes them for a GPU.
    Disk {
        /// Experts of each layer that host memory keeps: those that were used last.
        kept: usize,
        /// The first layers, whose experts are in the device's memory instead; dense layers count too.
        device_layers: usize,
    },
}

impl ExpertPlacement {
    /// The experts of all layers in the model's file, and this number of each layer in host memory.
    pub const fn disk(kept: usize) -> Self {
        Self::Disk { kept, device_layers: 0 }
    }
}

impl FromStr for ExpertPlacement {
    type Err = String;

    /// Reads `device`, `cpu`, `cpu:N` for the first N layers, `slots:N`, `disk:N`, or `disk:N:L` with L layers on the device.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected device, cpu, cpu:N for the experts of the first N layers, slots:N for N experts of each layer \
                        on the device and the others on the CPU, disk:N for N experts of each layer in memory and the \
                        others in the file, or disk:N:L with the experts of the first L layers on the device, N and L \
                        at least 1";
        match (text, text.split_once(':').map(|(kind, count)| (kind, count.parse()))) {
            ("device", _) => Ok(Self::Device),
            ("cpu", _) => Ok(Self::Cpu),
            (_, Some(("cpu", Ok(count)))) if count > 0 => Ok(Self::FirstLayersOnCpu(count)),
            (_, Some(("slots", Ok(count)))) if count > 0 => Ok(Self::Slots(count)),
            (_, Some(("disk", Ok(count)))) if count > 0 => Ok(Self::disk(count)),
            _ => on_disk_and_device(text).ok_or_else(|| expected.to_owned()),
        }
    }
}

/// Reads `disk:N:L`.
fn on_disk_and_device(text: &str) -> Option<ExpertPlacement> {
    let (kept, layers) = text.strip_prefix("disk:")?.split_once(':')?;
    let [kept, device_layers] = [kept, layers].map(|count| count.parse().ok().filter(|&count| count > 0));
    Some(ExpertPlacement::Disk { kept: kept?, device_layers: device_layers? })
}

impl fmt::Display for ExpertPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("device"),
            Self::Cpu => f.write_str("cpu"),
            Self::FirstLayersOnCpu(count) => write!(f, "cpu:{count}"),
            Self::Slots(count) => write!(f, "slots:{count}"),
            Self::Disk { kept, device_layers: 0 } => write!(f, "disk:{kept}"),
            Self::Disk { kept, device_layers } => write!(f, "disk:{kept}:{device_layers}"),
        }
    }
}

/// How to load a model.
pub struct LoadOptions {
    /// `auto`, `cpu`, `cuda`, `cuda:N`, `metal` or `metal:N`, or several devices of one kind, as `cuda:0,1`; see
    /// [`crate::open_device`].
    pub device: String,
    /// Threads of the CPU, the caller's included; `None` for [`default_threads`](crate::default_threads).
    pub threads: Option<usize>,
    /// A CPU level such as `avx2`; `None` for the best that this CPU has.
    pub level: Option<String>,
    /// How precisely activations are kept.
    pub precision: Precision,
    /// The same logits, to the bit, for the same tokens, independent of other sequences in a step, of the split of a
    /// prompt into steps, and of cached prefixes. A CPU is always deterministic, so this changes nothing there; a GPU
    /// is slower with it (`docs/determinism.md`).
    pub deterministic: bool,
    /// Where experts are stored and computed, for models that are larger than the memory. Experts on the CPU need a CUDA device,
    /// and experts in the file a CUDA device or the CPU.
    pub experts: ExpertPlacement,
    /// How the model is split, if `device` names several devices; `None` for what suits the model.
    pub split: Option<Split>,
    /// How often experts are chosen, by which several devices share them; `None` for as many experts on each.
    pub expert_load: Option<Arc<ExpertLoad>>,
    /// This process as one of several that run the model together, each on its device; `None` for a model of this process only.
    pub group: Option<Arc<dyn Collective>>,
    /// Bytes of a CUDA device's memory that may be used; `None` for all that is free.
    pub gpu_memory: Option<u64>,
    /// Bytes of memory that a model on the CPU may use, or the experts in host memory of a model on a CUDA device; `None` for all
    /// that is free.
    pub cpu_memory: Option<u64>,
    /// Load the file's prediction heads, with which [`Runner::draft`](crate::Runner::draft) drafts tokens. Each takes the
    /// memory of a layer.
    pub prediction_heads: bool,
    /// Refuse a model whose weights do not fit into the memory that is free.
    pub check_memory: bool,
    /// Folders of kernels that were compiled ahead for CUDA devices (`gristmill_cuda::ahead`).
    pub kernels: Vec<PathBuf>,
    /// Called before the first and after each tensor, on the loading thread. [`ControlFlow::Break`] cancels loading with
    /// [`Error::Cancelled`](crate::Error::Cancelled), and frees what was loaded.
    pub progress: Option<Box<dyn FnMut(Progress) -> ControlFlow<()> + Send>>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device: "auto".to_owned(),
            threads: None,
            level: None,
            precision: Precision::Fast,
            deterministic: false,
            experts: ExpertPlacement::Device,
            split: None,
            expert_load: None,
            group: None,
            gpu_memory: None,
            cpu_memory: None,
            prediction_heads: false,
            check_memory: true,
            kernels: Vec::new(),
            progress: None,
        }
    }
}

impl LoadOptions {
    /// The options of a rank that has no caller.
    pub(crate) fn of_other_rank(&self) -> Self {
        let Self { device, level, kernels, expert_load, .. } = self;
        let (device, level, kernels) = (device.clone(), level.clone(), kernels.clone());
        let expert_load = expert_load.clone();
        let Self { threads, precision, deterministic, experts, split, gpu_memory, cpu_memory, .. } = *self;
        let Self { prediction_heads, check_memory, .. } = *self;
        Self {
            device,
            threads,
            level,
            precision,
            deterministic,
            experts,
            split,
            expert_load,
            group: None,
            gpu_memory,
            cpu_memory,
            prediction_heads,
            check_memory,
            kernels,
            progress: None,
        }
    }
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, threads, level, precision, deterministic, experts, split, expert_load, group, .. } = self;
        let Self { gpu_memory, cpu_memory, prediction_heads, check_memory, kernels, progress, .. } = self;
        f.debug_struct("LoadOptions")
            .field("device", device)
            .field("threads", threads)
            .field("level", level)
            .field("precision", precision)
            .field("deterministic", deterministic)
            .field("experts", experts)
            .field("split", split)
            .field("expert_load", &expert_load.is_some())
            .field("group", group)
            .field("gpu_memory", gpu_memory)
            .field("cpu_memory", cpu_memory)
            .field("prediction_heads", prediction_heads)
            .field("check_memory", check_memory)
            .field("kernels", kernels)
            .field("progress", &progress.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_read_as_they_are_written() {
        use ExpertPlacement::{Cpu, Device, Disk, FirstLayersOnCpu, Slots};
        let on_disk = [ExpertPlacement::disk(3), Disk { kept: 3, device_layers: 7 }];
        let others = [Device, Cpu, FirstLayersOnCpu(1), FirstLayersOnCpu(usize::MAX), Slots(1), Slots(128)];
        for placement in others.into_iter().chain(on_disk) {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        for text in [
            "",
            "gpu",
            "cpu:",
            "cpu:0",
            "cpu:-1",
            "cpu:all",
            "cpu:1:2",
            "CPU",
            "device:1",
            "slots",
            "slots:0",
            "disk",
            "disk:0",
            "disk:1:",
            "disk:1:0",
            "disk:0:1",
            "disk::1",
            "disk:1:2:3",
        ] {
            assert!(text.parse::<ExpertPlacement>().is_err(), "{text}");
        }
    }
}
