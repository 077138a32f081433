//! Metal: Apple's GPUs.

use std::sync::Arc;

use gristmill_gpu::Gpu;
use gristmill_metal::driver::{self, Driver};
use gristmill_metal::{Metal, Options, units};

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
    super::compile(name, &units::all(), |unit| driver.prepare(unit), findings)?;
    let make = |_| Metal::backend(driver.clone(), Options::default());
    match ops::all(name, &make, findings)? {
        true => reference.check(name, Metal::backend(driver.clone(), Options::default()), findings),
        false => Ok(()),
    }
}
