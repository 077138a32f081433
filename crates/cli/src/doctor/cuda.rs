//! CUDA: NVIDIA's driver, compiler and devices.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gristmill_cuda::cache::Cache;
use gristmill_cuda::driver::{self, Driver};
use gristmill_cuda::nvrtc::Nvrtc;
use gristmill_cuda::{Cuda, Options, units};
use gristmill_gpu::Gpu;
use gristmill_gpu::ahead::side_by_side;
use gristmill_kernels::Error;
use gristmill_kernels::ops::Rates;

use super::finding::{Findings, Verdict};
use super::model::ReferenceRun;
use super::ops;
use crate::console;
use crate::failure::Failure;

/// Kernels that fail to compile and are listed.
const MAX_LISTED: usize = 5;

/// Checks the driver, NVRTC, the kernel cache and the devices. Returns the usable devices with their names.
pub(super) fn devices(findings: &mut Findings) -> Result<Vec<(String, Arc<Driver>)>, Failure> {
    let count = match driver::version() {
        Err(error) => findings.add(Verdict::Bad, "NVIDIA driver", error).map(|()| 0)?,
        Ok(None) => {
            let found = "not here; models run on the CPU";
            findings.add(Verdict::Absent, "NVIDIA driver", found).map(|()| 0)?
        }
        Ok(Some((major, minor))) => {
            findings.add(Verdict::Good, "NVIDIA driver", format!("for CUDA {major}.{minor}{}", module()))?;
            match driver::count() {
                Err(error) => findings.add(Verdict::Bad, "devices", error).map(|()| 0)?,
                Ok(0) => findings.add(Verdict::Absent, "devices", "none; models run on the CPU").map(|()| 0)?,
                Ok(count) => count,
            }
        }
    };
    // Without a device, a missing NVRTC or cache is no failure.
    let missing = if count > 0 { Verdict::Bad } else { Verdict::Absent };
    match Nvrtc::open() {
        Err(reason) => findings.add(missing, "NVRTC", reason)?,
        Ok(nvrtc) => {
            let ((major, minor), path) = (nvrtc.version(), nvrtc.path().display());
            findings.add(Verdict::Good, "NVRTC", format!("{major}.{minor}, {path}"))?;
        }
    }
    match cache() {
        Err(reason) => findings.add(missing, "cache of kernels", reason)?,
        Ok(found) => findings.add(Verdict::Good, "cache of kernels", found)?,
    }
    let mut usable = Vec::new();
    for number in 0..count {
        match open(number) {
            Err(error) => findings.add(Verdict::Bad, format_args!("cuda:{number}"), error)?,
            Ok((driver, found)) => {
                findings.add(Verdict::Good, format_args!("cuda:{number}"), found)?;
                usable.push((format!("cuda:{number}"), driver));
            }
        }
    }
    Ok(usable)
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
fn abbreviated(path: &Path) -> String {
    let below = std::env::home_dir().and_then(|home| path.strip_prefix(home).ok().map(Path::to_path_buf));
    below.map_or_else(|| path.display().to_string(), |below| format!("~/{}", below.display()))
}

/// A device and its description. The error of a device that is too old has the description.
fn open(number: u32) -> Result<(Arc<Driver>, String), Error> {
    let driver = Driver::open(number)?;
    let properties = driver.properties();
    let (major, minor) = (properties.architecture / 10, properties.architecture % 10);
    let (memory, free) = (console::bytes(properties.memory), console::bytes(driver.free_memory()?));
    let found = format!(
        "{}, compute capability {major}.{minor}, {} multiprocessors, {memory}, {free} free",
        properties.name, properties.multiprocessors
    );
    Ok((driver, found))
}

/// Compiles all kernels for a device, measures its rates, and runs the op suite and the built-in model.
pub(super) fn device(
    name: &str,
    driver: &Arc<Driver>,
    reference: &ReferenceRun,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let (units, start) = (units::all(), Instant::now());
    let bar = console::bar("preparing kernels {bar:40} {pos}/{len}");
    bar.set_length(units.len() as u64);
    let prepared = side_by_side(&units, |unit| driver.prepare(unit), |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let failures: Vec<Error> = prepared.into_iter().filter_map(Result::err).collect();
    for error in failures.iter().take(MAX_LISTED) {
        findings.add(Verdict::Bad, format_args!("{name}: a kernel"), error)?;
    }
    let (all, failed, seconds) = (units.len(), failures.len(), start.elapsed().as_secs_f64());
    let verdict = if failed > 0 { Verdict::Bad } else { Verdict::Good };
    let found = format!("{} of {all} kernel sources compiled, or found in the cache, in {seconds:.1} s", all - failed);
    findings.add(verdict, format_args!("{name}: kernels"), found)?;
    if let Some(notice) = driver.notice() {
        findings.add(Verdict::Bad, format_args!("{name}: cache"), notice)?;
    }
    let rates = Cuda::backend(driver.clone(), Options::default()).and_then(|cuda| cuda.rates());
    let rates = rates.map(|rates| rates.map_or(String::new(), describe));
    findings.result(format_args!("{name}: speed"), rates)?;
    let make = |_| Cuda::backend(driver.clone(), Options::default());
    match ops::all(name, &make, findings)? {
        true => reference.check(name, Cuda::backend(driver.clone(), Options::default()), findings),
        false => Ok(()),
    }
}

fn describe(Rates { read_bytes_per_second, ops_per_second }: Rates) -> String {
    let read = console::bytes(read_bytes_per_second as u64);
    format!("memory read at {read}/s, {:.0} TFLOP/s in bf16", ops_per_second / 1e12)
}
