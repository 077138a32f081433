//! Opens the device that a model runs on.

use std::sync::Arc;
use std::time::Duration;

use gristmill_cpu::{Cpu, Level};
use gristmill_cuda::{Choice, CudaDevice, HostExperts, Options, driver};
use gristmill_kernels::Backend;
#[cfg(not(target_os = "macos"))]
use gristmill_kernels::tensor::DeviceId;

use crate::error::{Error, Result};
use crate::load::{ExpertPlacement, LoadOptions};
use crate::machine;

/// The names of devices.
const DEVICES: &str =
    "auto, cpu, cuda, cuda:N, metal, metal:N (N counts from 0); several with commas, as cuda:0,1 or cpu:0,1";

/// The most devices of a model.
const MOST_RANKS: usize = 64;

/// How long a device waits for the rows of a layer whose experts are in a file. A hard disk of 100 MB/s reads 30 GB in this time; a
/// layer of Kimi K2 has 9.5 GB in Q4_K_M.
const FILE_DEADLINE: Duration = Duration::from_secs(300);

/// The default number of threads of a model on a device ([`LoadOptions::device`]): one on each physical core within this process's
/// affinity and quota. If the CPU computes experts for a GPU, one core is left to the thread that submits the steps, and one to the
/// threads that copy experts to slots or read them from the file: with 40 slots of 128 and weak locality, 14 threads of 16 cores
/// decode 2% faster than 15 (Qwen3-30B-A3B, H100); with experts in the file, 14 decode 21.7 tokens per second, 15 12.5, 16 8.9
/// (H200), because a thread that waits for a core delays all others.
pub fn default_threads(device: &str, experts: ExpertPlacement) -> usize {
    let others = match experts {
        ExpertPlacement::Device => 0,
        ExpertPlacement::Disk { .. } => match device {
            "cpu" => 0,
            "auto" if !matches!(driver::version(), Ok(Some(_))) => 0,
            _ => 2,
        },
        ExpertPlacement::Cpu | ExpertPlacement::FirstLayersOnCpu(_) => 1,
        ExpertPlacement::Slots(_) => 2,
    };
    machine::physical_cores().saturating_sub(others).max(1)
}

/// A device, opened.
#[derive(Clone)]
pub struct Opened {
    /// The device.
    pub backend: Arc<Backend>,
    /// The other devices, if the options name several.
    pub others: Vec<Arc<Backend>>,
    /// For `auto`: why a CUDA device could not be used, for the caller to report.
    pub passed_over: Option<Arc<gristmill_kernels::Error>>,
}

impl Opened {
    /// Devices that are open, of which the first one computes the logits.
    pub fn of(backend: Arc<Backend>, others: Vec<Arc<Backend>>) -> Self {
        Self { backend, others, passed_over: None }
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let others: Vec<String> = self.others.iter().map(|other| other.name()).collect();
        write!(f, "Opened({}, {others:?}, passed over: {:?})", self.backend.name(), self.passed_over)
    }
}

/// Opens the device that the options name. `auto` is the first CUDA device, or the CPU if no CUDA device can be used;
/// that is reported where there is an NVIDIA driver. With a limit of the memory, `auto` is a CUDA device only.
///
/// # Errors
/// [`Error::Device`] for an unknown name, [`Error::Level`], [`Error::ExpertPlacement`] for a device that cannot have experts
/// on the CPU, and the error of a device that cannot be used.
pub fn open_device(options: &LoadOptions) -> Result<Opened> {
    let only = |backend| Opened { backend, others: Vec::new(), passed_over: None };
    if options.device.contains(',') {
        return open_ranks(options);
    }
    let (device, cpu) = (options.device.as_str(), || cpu(options, 1));
    // What only a CUDA device has, other than experts in the file.
    let needs_cuda = !matches!(options.experts, ExpertPlacement::Device | ExpertPlacement::Disk { .. });
    if options.gpu_memory.is_some() || needs_cuda {
        let number = cuda_number(device).ok_or_else(|| match needs_cuda {
            true => cannot_place(device, "compute them there, only CUDA can"),
            false => Error::MemoryLimit { device: device.to_owned() },
        })?;
        return cuda(number, options).map(only);
    }
    let (kind, number) = device.split_once(':').unwrap_or((device, "0"));
    match (kind, number.parse()) {
        ("cpu", _) if device == "cpu" => cpu().map(only),
        ("cuda", Ok(number)) => cuda(number, options).map(only),
        ("metal", Ok(_)) if options.experts != ExpertPlacement::Device => {
            Err(cannot_place(device, "read them from the file, only the CPU and CUDA can"))
        }
        ("metal", Ok(number)) => Ok(only(metal(number, options.deterministic)?)),
        ("auto", _) if device == "auto" => match driver::version() {
            Ok(None) => cpu().map(only),
            found => match found.map_err(Error::from).and_then(|_| cuda(0, options)) {
                Err(Error::Kernel(error)) => {
                    let passed_over = Some(Arc::new(error));
                    Ok(Opened { passed_over, ..only(cpu()?) })
                }
                found => found.map(only),
            },
        },
        _ => Err(Error::Device { asked: options.device.clone(), known: DEVICES.to_owned() }),
    }
}

/// Opens the devices of a list, as `cuda:0,1`. CPUs of a list share the threads.
fn open_ranks(options: &LoadOptions) -> Result<Opened> {
    let unknown = || Error::Device { asked: options.device.clone(), known: DEVICES.to_owned() };
    let (kind, numbers) = options.device.split_once(':').ok_or_else(unknown)?;
    let numbers = numbers.split(',').map(str::parse).collect::<std::result::Result<Vec<u32>, _>>();
    let numbers = numbers.map_err(|_| unknown())?;
    if let Some((_, twice)) = numbers.iter().enumerate().find(|(at, number)| numbers[..*at].contains(number)) {
        let reason = format!("{kind}:{twice} is named twice in {:?}; name each device once", options.device);
        return Err(Error::Split { reason });
    }
    if numbers.len() > MOST_RANKS {
        let reason = format!("there are {} devices (expected at most {MOST_RANKS}); name fewer", numbers.len());
        return Err(Error::Split { reason });
    }
    if options.experts != ExpertPlacement::Device {
        return Err(cannot_place(&options.device, "have experts in host memory or in the file, only one device can"));
    }
    let ranks = numbers.len();
    let open = |&number: &u32| match kind {
        "cpu" if options.gpu_memory.is_some() => Err(Error::MemoryLimit { device: options.device.clone() }),
        "cpu" => cpu(options, ranks),
        "cuda" => cuda(number, options),
        "metal" => Err(Error::Split { reason: "several devices of Metal are not supported; name one".to_owned() }),
        _ => Err(unknown()),
    };
    let mut backends = numbers.iter().map(open).collect::<Result<Vec<_>>>()?.into_iter();
    let backend = backends.next().ok_or_else(unknown)?;
    Ok(Opened { backend, others: backends.collect(), passed_over: None })
}

fn cannot_place(device: &str, what: &str) -> Error {
    Error::ExpertPlacement { reason: format!("device {device:?} cannot {what}; leave the option out") }
}

/// A CUDA device, with a CPU for experts that are elsewhere.
fn cuda(number: u32, options: &LoadOptions) -> Result<Arc<Backend>> {
    let device = CudaDevice::open_with(number, &options.kernels)?;
    if let Some(bytes) = options.gpu_memory {
        device.limit_memory(bytes);
    }
    let kernels = Options { choice: if options.deterministic { Choice::Deterministic } else { Choice::Fastest } };
    if options.experts == ExpertPlacement::Device {
        return Ok(Arc::new(device.backend(kernels)?));
    }
    let mut host = HostExperts::new(cpu(options, 1)?);
    if let ExpertPlacement::Disk { .. } = options.experts {
        host.deadline = FILE_DEADLINE;
    }
    Ok(Arc::new(device.backend_with_host_experts(kernels, host)?))
}

/// The number of a CUDA device by its name. `auto` is the first.
fn cuda_number(device: &str) -> Option<u32> {
    match device.split_once(':').unwrap_or((device, "0")) {
        ("auto", _) if device == "auto" => Some(0),
        ("cuda", number) => number.parse().ok(),
        _ => None,
    }
}

#[cfg(target_os = "macos")]
fn metal(number: u32, deterministic: bool) -> gristmill_kernels::Result<Arc<Backend>> {
    use gristmill_metal::{MetalDevice, Options};
    MetalDevice::open(number)?.backend(Options { deterministic }).map(Arc::new)
}

#[cfg(not(target_os = "macos"))]
fn metal(number: u32, _deterministic: bool) -> gristmill_kernels::Result<Arc<Backend>> {
    let (device, what) = (DeviceId::Metal(number), "opening it".to_owned());
    let reason = "Metal exists on macOS only; use the device `cpu`".to_owned();
    Err(gristmill_kernels::Error::Device { device, what, reason })
}

/// One of `ranks` ranks on the CPU, at a level by name or the best that it has, within a limit of its memory.
fn cpu(options: &LoadOptions, ranks: usize) -> Result<Arc<Backend>> {
    let level = match &options.level {
        None => Level::best(),
        Some(asked) => match Level::NAMES.iter().find(|&name| name == asked) {
            Some(name) => Level::named(name)?,
            None => return Err(Error::Level { asked: asked.clone(), known: Level::NAMES.join(", ") }),
        },
    };
    let level = if options.deterministic { level.deterministic() } else { level };
    let threads = options.threads.unwrap_or_else(|| default_threads(&options.device, options.experts));
    // None at all is refused there.
    let cpu = Cpu::new(level, (threads / ranks).max(threads.min(1)))?;
    let cpu = if let Some(bytes) = options.cpu_memory { cpu.with_memory(bytes / ranks as u64) } else { cpu };
    Ok(Arc::new(Backend::new(cpu)))
}
