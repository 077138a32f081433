//! Memory of the caller as an operand.
//!
//! Only [`Region`] and `Device` pass addresses to a driver, because a driver cannot check them: both check that a range is inside a
//! region of the same driver. A region is an allocation of the driver, or what the caller of an `unsafe` function
//! (`buffer_from_raw`, [`Region::from_raw`]) promises to be one. Visibility holds this: the drivers are private, and
//! `CudaDevice` and `MetalDevice` return a `Backend` only.

#![allow(unsafe_code)]

use crate::device_api::{ALIGNMENT, Gpu, Owner, Region};
use gristmill_kernels::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl Region {
    /// Memory that the caller owns. Dropping the region does not free it.
    ///
    /// # Safety
    /// Until the region is dropped, and until the work that was submitted with it is done:
    ///
    /// - The `bytes` from `address` on are allocated, and kernels of `gpu` can read and write them.
    /// - No other region of `gpu` overlaps them.
    /// - Nothing else writes them, and nothing else reads what the work writes.
    ///
    /// # Errors
    /// [`Error::Range`] if the address is 0 or not a multiple of 16, or the end of the range is not an address.
    pub unsafe fn from_raw(gpu: &Arc<dyn Gpu>, address: u64, bytes: usize) -> Result<Self> {
        let refuse = |what, found, rule| Err(Error::Range { op: "from_raw", what, found, rule });
        if bytes > 0 && (address == 0 || !address.is_multiple_of(ALIGNMENT as u64)) {
            return refuse("address", format!("{address:#x}"), "must be a multiple of 16, and not 0");
        }
        if address.checked_add(bytes as u64).is_none() {
            return refuse("bytes", bytes.to_string(), "must end inside the address space");
        }
        let is_freed = AtomicBool::new(false);
        Ok(Self { gpu: Arc::clone(gpu), address, bytes, owner: Owner::Caller, is_freed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::Counting;
    use crate::{Access, Arg, Device, Kernel, Launch};

    /// Memory at addresses of a device that never accesses it.
    fn memory(gpu: &Arc<Counting>, address: u64, bytes: usize) -> Result<Region> {
        let gpu: Arc<dyn Gpu> = gpu.clone();
        // SAFETY: the device runs nothing.
        unsafe { Region::from_raw(&gpu, address, bytes) }
    }

    #[test]
    fn memory_of_the_caller_is_not_freed() {
        let gpu = Counting::new();
        let device = Device::new(gpu.clone()).unwrap();
        let region = memory(&gpu, 4096, 64).unwrap();
        device.write_region(&region, &[1; 64]).unwrap();
        let args = [Arg::region(&region, Access::ReadWrite)];
        device.launch(&Launch::new(Kernel::plain("rows.gpu", "rope"), [1; 3], 32, &args)).unwrap();
        assert!(matches!(device.write_region(&region, &[1; 65]), Err(Error::View { .. })));
        drop(region);
        drop(memory(&gpu, 0, 0).unwrap());
        assert_eq!((&*gpu.freed.lock().unwrap(), &*gpu.released.lock().unwrap()), (&vec![], &vec![4096]));
    }

    #[test]
    fn addresses_that_kernels_cannot_read_are_refused() {
        let gpu = Counting::new();
        for (address, bytes) in [(0, 16), (8, 16), (4100, 4), (u64::MAX - 15, 17), (16, usize::MAX)] {
            let refused = memory(&gpu, address, bytes);
            assert!(matches!(refused, Err(Error::Range { op: "from_raw", .. })), "{address} {bytes}");
        }
        assert!(gpu.released.lock().unwrap().is_empty());
    }
}
