//! CUDA: NVIDIA's driver, compiler and devices.

use std::fs;
use std::path::{Path, PathBuf};

use gristmill_cuda::cache::Cache;
use gristmill_cuda::nvrtc::Nvrtc;
use gristmill_cuda::{CudaDevice, Options, driver, nccl, units};
use gristmill_kernels::Error;
use gristmill_kernels::ops::Rates;
use gristmill_suite::Extent;

use super::checks::Checks;
use super::finding::{Findings, Verdict};
use super::model::ReferenceRun;
use super::{ahead, ops};
use crate::console;
use crate::failure::Failure;

/// Checks the driver, NVRTC, the kernel cache, the folders of kernels that were compiled ahead, and the devices. Returns the
/// usable devices with their names.
pub(super) fn devices(kernels: &[PathBuf], findings: &mut Findings) -> Result<Vec<(String, CudaDevice)>, Failure> {
    let count = count(findings)?;
    // Without a device, a missing NVRTC or cache is no failure.
    let missing = if count > 0 { Verdict::Bad } else { Verdict::Absent };
    match Nvrtc::open() {
        Err(reason) => findings.add(missing, "NVRTC", reason)?,
        Ok(nvrtc) => {
            let (major, minor) = nvrtc.version();
            let path = nvrtc.path().display();
            findings.add(Verdict::Good, "NVRTC", format!("{major}.{minor}, {path}"))?;
        }
    }
    match cache() {
        Err(reason) => findings.add(missing, "cache of kernels", reason)?,
        Ok(found) => findings.add(Verdict::Good, "cache of kernels", found)?,
    }
    ahead::check(kernels, findings)?;
    if count > 1 {
        // Several devices of a model also sum without it.
        match nccl::library() {
            Err(reason) => {
                let found = format!("{reason}; without it, sums over devices go through host memory");
                findings.add(Verdict::Absent, "NCCL", found)?;
            }
            Ok(found) => {
                findings.add(Verdict::Good, "NCCL", format!("{}, {}", found.version(), found.path().display()))?;
            }
        }
    }
    let mut usable = Vec::new();
    for number in 0..count {
        let name = format!("cuda:{number}");
        match open(number, kernels) {
            Err(error) => findings.add(Verdict::Bad, &name, error)?,
            Ok((device, found)) => {
                findings.add(Verdict::Good, &name, found)?;
                usable.push((name, device));
            }
        }
    }
    Ok(usable)
}

/// Checks the driver and returns the number of devices.
fn count(findings: &mut Findings) -> Result<u32, Failure> {
    let version = match driver::version() {
        Err(error) => return findings.add(Verdict::Bad, "NVIDIA driver", error).map(|()| 0),
        Ok(None) => {
            let found = "not here; models run on the CPU";
            return findings.add(Verdict::Absent, "NVIDIA driver", found).map(|()| 0);
        }
        Ok(Some(version)) => version,
    };
    findings.add(Verdict::Good, "NVIDIA driver", format!("for CUDA {}.{}{}", version.0, version.1, module()))?;
    match driver::count() {
        Err(error) => findings.add(Verdict::Bad, "devices", error).map(|()| 0),
        Ok(0) => findings.add(Verdict::Absent, "devices", "none; models run on the CPU").map(|()| 0),
        Ok(count) => Ok(count),
    }
}

/// The version of the driver's kernel module; Linux only.
fn module() -> String {
    let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let line = text.lines().next().and_then(|line| line.strip_prefix("NVRM version:"));
    line.map(|line| format!(",{line}")).unwrap_or_default()
}

/// The folder and the content of the cache, or why it is unusable.
fn cache() -> Result<String, String> {
    let cache = Cache::of_user().ok_or("there is no home folder for it: kernels are compiled at each start")?;
    let folder = abbreviated(cache.folder());
    let failed = |error| format!("{folder}: {error}; kernels are compiled at each start until it can be written");
    cache.try_write().map_err(failed)?;
    let (files, bytes) = cache.usage().map_err(failed)?;
    Ok(format!("{folder}, writable, {files} files, {}", console::bytes(bytes)))
}

/// A path without the user's name: the home folder is `~`.
pub(super) fn abbreviated(path: &Path) -> String {
    let below = std::env::home_dir().and_then(|home| path.strip_prefix(home).ok().map(Path::to_path_buf));
    below.map_or_else(|| path.display().to_string(), |below| format!("~/{}", below.display()))
}

/// A device and its description. The error of a device that is too old has the description.
fn open(number: u32, kernels: &[PathBuf]) -> Result<(CudaDevice, String), Error> {
    let device = CudaDevice::open_with(number, kernels)?;
    let properties = device.properties();
    let major = properties.architecture / 10;
    let minor = properties.architecture % 10;
    let memory = console::bytes(properties.memory);
    let free = console::bytes(device.free_memory()?);
    let found = format!(
        "{}, compute capability {major}.{minor}, {} multiprocessors, {memory}, {free} free",
        properties.name, properties.multiprocessors
    );
    Ok((device, found))
}

/// Compiles kernels for a device, measures its rates, and runs the op suite and the built-in model. Without a compiler, it checks
/// nothing.
pub(super) fn device(
    name: &str,
    device: &CudaDevice,
    reference: &ReferenceRun,
    checks: Checks,
    findings: &mut Findings,
) -> Result<(), Failure> {
    if Nvrtc::open().is_err() {
        let found = "not checked, because NVRTC is missing; only models whose kernels were compiled ahead run";
        return findings.add(Verdict::Absent, format_args!("{name}: operations"), found);
    }
    match checks.extent {
        Extent::All => super::checks::compile(name, &units::all(), |unit| device.prepare(unit), findings)?,
        Extent::Quick => ops::compile(name, device, checks, findings)?,
    }
    if let Some(notice) = device.notice() {
        findings.add(Verdict::Bad, format_args!("{name}: cache"), notice)?;
    }
    let rates = device.backend(Options::default()).and_then(|cuda| cuda.rates());
    let rates = rates.map(|rates| rates.map_or(String::new(), describe));
    findings.result(format_args!("{name}: speed"), rates)?;
    let make = |_| device.backend(Options::default());
    match ops::all(name, &make, checks, findings)? {
        true => reference.check(name, device.backend(Options::default()), findings),
        false => Ok(()),
    }
}

fn describe(Rates { read_bytes_per_second, ops_per_second }: Rates) -> String {
    let read = console::bytes(read_bytes_per_second as u64);
    format!("memory read at {read}/s, {:.0} TFLOP/s in bf16", ops_per_second / 1e12)
}
