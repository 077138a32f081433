//! Metal: Apple's GPUs.

use std::sync::Arc;
use std::time::Instant;

use gristmill_gpu::Gpu;
use gristmill_gpu::ahead::side_by_side;
use gristmill_metal::driver::{self, Driver};
use gristmill_metal::{Metal, units};

use super::finding::{Findings, Verdict};
use super::model::ReferenceRun;
use super::ops;
use crate::console;
use crate::failure::Failure;

/// Lists the devices; on each usable device compiles all kernels and runs the op suite and the built-in model. Returns
/// whether a device is usable.
pub(super) fn devices(reference: &ReferenceRun, findings: &mut Findings) -> Result<bool, Failure> {
    let count = driver::count();
    if count == 0 {
        findings.add(Verdict::Absent, "Metal", "no devices; models run on the CPU")?;
    }
    let mut usable = false;
    for number in 0..count {
        let name = format!("metal:{number}");
        match Driver::open(number) {
            Err(error) => findings.add(Verdict::Bad, &name, error)?,
            Ok(driver) => {
                usable = true;
                device(&name, &driver, reference, findings)?;
            }
        }
    }
    Ok(usable)
}

fn device(name: &str, driver: &Arc<Driver>, reference: &ReferenceRun, findings: &mut Findings) -> Result<(), Failure> {
    let properties = driver.properties();
    let memory = console::bytes(properties.memory);
    let found = format!("{}, Apple family {}, {memory} recommended", properties.name, properties.architecture);
    findings.add(Verdict::Good, name, found)?;
    let (all, start) = (units::all(), Instant::now());
    let prepared = side_by_side(&all, |unit| driver.prepare(unit), |_| ());
    let mut failed = 0;
    for error in prepared.into_iter().filter_map(Result::err) {
        failed += 1;
        findings.add(Verdict::Bad, format_args!("{name}: a kernel"), error)?;
    }
    let (verdict, seconds) = (if failed > 0 { Verdict::Bad } else { Verdict::Good }, start.elapsed().as_secs_f64());
    let found = format!("{} of {} kernel sources compiled in {seconds:.1} s", all.len() - failed, all.len());
    findings.add(verdict, format_args!("{name}: kernels"), found)?;
    let make = |_| Metal::backend(driver.clone());
    match ops::all(name, &make, findings)? {
        true => reference.check(name, Metal::backend(driver.clone()), findings),
        false => Ok(()),
    }
}
