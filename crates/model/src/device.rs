//! Opens the device that a model runs on.

use std::sync::Arc;

use gristmill_cpu::{Cpu, Level};
use gristmill_cuda::{Choice, CudaDevice, HostExperts, Options, driver};
use gristmill_kernels::Backend;
#[cfg(not(target_os = "macos"))]
use gristmill_kernels::tensor::DeviceId;

use crate::error::{Error, Result};
use crate::load::{ExpertPlacement, LoadOptions};
use crate::machine;

/// The names of devices.
const DEVICES: &str = "auto, cpu, cuda, cuda:N, metal, metal:N (N counts from 0)";

/// The default number of threads of a model: one on each physical core within this process's affinity and quota.
pub fn default_threads() -> usize {
    machine::physical_cores()
}

/// A device, opened.
#[derive(Clone)]
pub struct Opened {
    /// The device.
    pub backend: Arc<Backend>,
    /// For `auto`: why a CUDA device could not be used, for the caller to report.
    pub passed_over: Option<Arc<gristmill_kernels::Error>>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({}, passed over: {:?})", self.backend.name(), self.passed_over)
    }
}

/// Opens the device that the options name. `auto` is the first CUDA device, or the CPU if no CUDA device can be used;
/// that is reported where there is an NVIDIA driver. With a limit of the memory, `auto` is a CUDA device only.
///
/// # Errors
/// [`Error::Device`] for an unknown name, [`Error::Level`], [`Error::ExpertPlacement`] for a device that cannot have experts
/// on the CPU, and the error of a device that cannot be used.
pub fn open_device(options: &LoadOptions) -> Result<Opened> {
    let threads = options.threads.unwrap_or_else(default_threads);
    let cpu = || cpu(options.level.as_deref(), threads, options.cpu_memory);
    if let (ExpertPlacement::Disk(_), device) = (options.experts, options.device.as_str()) {
        if !["auto", "cpu"].contains(&device) {
            let reason =
                format!("device {device:?} cannot read them from the disk, only the CPU can; leave the option out");
            return Err(Error::ExpertPlacement { reason });
        }
        return cpu().map(|backend| Opened { backend, passed_over: None });
    }
    if options.experts != ExpertPlacement::Device {
        return with_experts(options).map(|backend| Opened { backend, passed_over: None });
    }
    let only = |backend| Opened { backend, passed_over: None };
    if options.gpu_memory.is_some() {
        let device = options.device.as_str();
        let number = cuda_number(device).ok_or_else(|| Error::MemoryLimit { device: device.to_owned() })?;
        return Ok(only(cuda(number, options)?));
    }
    let (kind, number) = options.device.split_once(':').unwrap_or((&options.device, "0"));
    match (kind, number.parse()) {
        ("cpu", _) if options.device == "cpu" => cpu().map(only),
        ("cuda", Ok(number)) => Ok(only(cuda(number, options)?)),
        ("metal", Ok(number)) => Ok(only(metal(number, options.deterministic)?)),
        ("auto", _) if options.device == "auto" => match driver::version() {
            Ok(None) => cpu().map(only),
            found => match found.and_then(|_| cuda(0, options)) {
                Ok(backend) => Ok(only(backend)),
                Err(error) => Ok(Opened { backend: cpu()?, passed_over: Some(Arc::new(error)) }),
            },
        },
        _ => Err(Error::Device { asked: options.device.clone(), known: DEVICES.to_owned() }),
    }
}

fn cuda(number: u32, options: &LoadOptions) -> gristmill_kernels::Result<Arc<Backend>> {
    open_cuda(number, options)?.backend(cuda_options(options)).map(Arc::new)
}

fn open_cuda(number: u32, options: &LoadOptions) -> gristmill_kernels::Result<CudaDevice> {
    let device = CudaDevice::open(number)?;
    if let Some(bytes) = options.gpu_memory {
        device.limit_memory(bytes);
    }
    Ok(device)
}

fn cuda_options(options: &LoadOptions) -> Options {
    Options { choice: if options.deterministic { Choice::Deterministic } else { Choice::Fastest } }
}

/// The number of a CUDA device by its name. `auto` is the first.
fn cuda_number(device: &str) -> Option<u32> {
    match device.split_once(':').unwrap_or((device, "0")) {
        ("auto", _) if device == "auto" => Some(0),
        ("cuda", number) => number.parse().ok(),
        _ => None,
    }
}

/// A device whose experts the CPU computes. One core is left to the thread that submits the steps, and one to the thread that copies
/// experts to slots: with 40 slots of 128 and weak locality, 14 threads of 16 cores decode 2% faster than 15 (Qwen3-30B-A3B, H100).
fn with_experts(options: &LoadOptions) -> Result<Arc<Backend>> {
    let device = options.device.as_str();
    let Some(number) = cuda_number(device) else {
        let reason = format!("device {device:?} cannot compute them there, only CUDA can; leave the option out");
        return Err(Error::ExpertPlacement { reason });
    };
    let cuda = open_cuda(number, options)?;
    let others = if matches!(options.experts, ExpertPlacement::Slots(_)) { 2 } else { 1 };
    let threads = options.threads.unwrap_or_else(|| default_threads().saturating_sub(others).max(1));
    let host = HostExperts::new(cpu(options.level.as_deref(), threads, None)?);
    Ok(Arc::new(cuda.backend_with_host_experts(cuda_options(options), host)?))
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

/// The CPU, at a level by name or the best that it has, with this much memory.
fn cpu(level: Option<&str>, threads: usize, memory: Option<u64>) -> Result<Arc<Backend>> {
    let level = match level {
        None => Level::best(),
        Some(asked) => match Level::NAMES.iter().find(|&&name| name == asked) {
            Some(name) => Level::named(name)?,
            None => return Err(Error::Level { asked: asked.to_owned(), known: Level::NAMES.join(", ") }),
        },
    };
    let cpu = Cpu::new(level, threads)?;
    let cpu = if let Some(bytes) = memory { cpu.with_memory(bytes) } else { cpu };
    Ok(Arc::new(Backend::new(cpu)))
}
