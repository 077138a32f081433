//! Metal: Apple's GPUs.

use gristmill_metal::{MetalDevice, Options, driver, units};
use gristmill_suite::Extent;

use super::checks::Checks;
use super::finding::{Findings, Verdict};
use super::model::ReferenceRun;
use super::ops;
use crate::console;
use crate::failure::Failure;

/// Lists the devices; on each usable device compiles kernels and runs the op suite and the built-in model. Returns
/// whether a device is usable.
pub(super) fn devices(reference: &ReferenceRun, checks: Checks, findings: &mut Findings) -> Result<bool, Failure> {
    let count = driver::count();
    if count == 0 {
        findings.add(Verdict::Absent, "Metal", "no devices; models run on the CPU")?;
    }
    let mut usable = false;
    for number in 0..count {
        let name = format!("metal:{number}");
        match MetalDevice::open(number) {
            Err(error) => findings.add(Verdict::Bad, &name, error)?,
            Ok(opened) => {
                usable = true;
                device(&name, &opened, reference, checks, findings)?;
            }
        }
    }
    Ok(usable)
}

fn device(
    name: &str,
    device: &MetalDevice,
    reference: &ReferenceRun,
    checks: Checks,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let properties = device.properties();
    let memory = console::bytes(properties.memory);
    let found = format!("{}, Apple family {}, {memory} recommended", properties.name, properties.architecture);
    findings.add(Verdict::Good, name, found)?;
    // Otherwise each is compiled at its first launch, which takes Metal little time.
    if checks.extent == Extent::All {
        super::checks::compile(name, &units::all(), |unit| device.prepare(unit), findings)?;
    }
    let make = |_| device.backend(Options::default());
    match ops::all(name, &make, checks, findings)? {
        true => reference.check(name, device.backend(Options::default()), findings),
        false => Ok(()),
    }
}
