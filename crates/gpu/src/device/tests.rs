//! What a driver is never asked for, by a device that counts the calls.

use super::*;
use crate::device_api::{Kernel, Properties, Unit};
use gristmill_kernels::tensor::SharedBytes;
use std::sync::atomic::AtomicUsize;

/// A device without bytes. It maps host memory, counts copies and launches, and records what it frees and releases.
#[derive(Debug)]
pub(crate) struct Counting {
    properties: Properties,
    next: AtomicU64,
    calls: AtomicUsize,
    pub(crate) freed: Mutex<Vec<u64>>,
    pub(crate) released: Mutex<Vec<u64>>,
}

impl Counting {
    pub(crate) fn new() -> Arc<Counting> {
        let id = DeviceId::Cuda(DeviceId::SIMULATED);
        let name = "counting".to_owned();
        let properties =
            Properties { id, name, architecture: 90, multiprocessors: 1, shared_bytes: 0, memory: 1 << 30 };
        let (next, calls) = (AtomicU64::new(256), AtomicUsize::new(0));
        Arc::new(Counting { properties, next, calls, freed: Mutex::default(), released: Mutex::default() })
    }

    fn called(&self) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Gpu for Counting {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn free_memory(&self) -> Result<u64> {
        Ok(self.properties.memory)
    }
    fn allocate(&self, bytes: usize, _what: &'static str) -> Result<u64> {
        Ok(self.next.fetch_add(bytes.next_multiple_of(256) as u64, Ordering::Relaxed))
    }
    fn map_host(&self, bytes: &[u8]) -> Result<Option<u64>> {
        Ok(Some(bytes.as_ptr().addr() as u64))
    }
    fn free(&self, address: u64) {
        self.freed.lock().unwrap().push(address);
    }
    fn release(&self, address: u64) {
        self.released.lock().unwrap().push(address);
    }
    fn zero(&self, _address: u64, _bytes: usize) -> Result<()> {
        Ok(())
    }
    fn write(&self, _address: u64, _bytes: &[u8]) -> Result<()> {
        self.called()
    }
    fn read(&self, _pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.called()
    }
    fn copy(&self, _from: u64, _to: u64, _bytes: usize) -> Result<()> {
        self.called()
    }
    fn launch(&self, _launch: &Launch) -> Result<()> {
        self.called()
    }
    fn launch_indirect(&self, _launch: &Launch, _grid: &Region, _offset: usize) -> Result<()> {
        self.called()
    }
    fn capture(&self, _work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        Ok(None)
    }
    fn prepare(&self, _unit: &Unit) -> Result<()> {
        Ok(())
    }
}

const BYTES: usize = 64;

fn region(gpu: &Arc<Counting>) -> Region {
    let gpu: Arc<dyn Gpu> = gpu.clone();
    Region::new(&gpu, BYTES, "a test").unwrap()
}

fn launch<'a>(args: &'a [Arg<'a>]) -> Launch<'a> {
    Launch::new(Kernel::plain("rows.gpu", "rope"), [1; 3], 32, args)
}

#[test]
fn what_is_inside_an_own_region_reaches_the_driver() {
    let gpu = Counting::new();
    let device = Device::new(gpu.clone()).unwrap();
    let one = region(&gpu);
    let other = region(&gpu);
    device.write_region(&one, &[1; BYTES]).unwrap();
    device.read_region(&one, 60, &mut [0; 4]).unwrap();
    device.start_read_region(&one, 0, BYTES).unwrap();
    device.copy_region((&one, 0), (&other, 0), BYTES).unwrap();
    device.copy_region((&one, 0), (&one, 32), 32).unwrap();
    device.launch(&launch(&[Arg::region(&one, Access::Read)])).unwrap();
    device.launch_indirect(&launch(&[]), &one, 52).unwrap();
    assert_eq!(gpu.calls.load(Ordering::Relaxed), 7);
}

#[test]
fn a_region_of_another_device_is_refused() {
    let (gpu, other) = (Counting::new(), Counting::new());
    let device = Device::new(gpu.clone()).unwrap();
    let own = region(&gpu);
    let foreign = region(&other);
    for refused in [
        device.write_region(&foreign, &[1]),
        device.read_region(&foreign, 0, &mut [0]),
        device.start_read_region(&foreign, 0, 1).map(drop),
        device.copy_region((&foreign, 0), (&own, 0), 1),
        device.copy_region((&own, 0), (&foreign, 0), 1),
        device.launch(&launch(&[Arg::region(&foreign, Access::Read)])),
        device.launch_indirect(&launch(&[]), &foreign, 0),
    ] {
        assert!(matches!(refused, Err(Error::ForeignLayout { .. })), "{refused:?}");
    }
    assert_eq!(gpu.calls.load(Ordering::Relaxed) + other.calls.load(Ordering::Relaxed), 0);
}

#[test]
fn a_range_that_is_not_inside_is_refused() {
    let gpu = Counting::new();
    let device = Device::new(gpu.clone()).unwrap();
    let one = region(&gpu);
    let other = region(&gpu);
    let past = BYTES + 1;
    let access = Access::Write;
    for refused in [
        one.write(1, &[1; BYTES]),
        one.write(usize::MAX, &[1]),
        device.write_region(&one, &[1; BYTES + 1]),
        device.write_region_at(&one, 1, &[1; BYTES]),
        device.read_region(&one, 61, &mut [0; 4]),
        device.start_read_region(&one, 1, BYTES).map(drop),
        device.copy_region((&one, 1), (&other, 0), BYTES),
        device.copy_region((&one, 0), (&other, 1), BYTES),
        device.launch(&launch(&[Arg::Buffer { region: &one, offset: 0, bytes: past, access }])),
        device.launch_indirect(&launch(&[]), &one, 56),
    ] {
        assert!(matches!(refused, Err(Error::View { .. })), "{refused:?}");
    }
    let overlap = device.copy_region((&one, 0), (&one, 31), 32);
    assert!(matches!(overlap, Err(Error::Range { .. })), "{overlap:?}");
    assert_eq!(gpu.calls.load(Ordering::Relaxed), 0);
}

#[test]
fn mapped_host_memory_is_only_read() {
    let gpu = Counting::new();
    let device = Device::new(gpu.clone()).unwrap();
    let own = region(&gpu);
    let any: Arc<dyn Gpu> = gpu.clone();
    // Some start of the bytes has the alignment that mapping needs.
    let bytes = SharedBytes::from(vec![1; BYTES + 16]);
    let start = bytes.as_slice().as_ptr().align_offset(16);
    let mapped = Region::of_host(&any, bytes.slice(start..start + BYTES).unwrap(), "a test").unwrap();
    assert!(mapped.is_mapped());
    for refused in
        [mapped.write(0, &[1]), device.write_region(&mapped, &[1]), device.copy_region((&own, 0), (&mapped, 0), 1)]
    {
        assert!(matches!(refused, Err(Error::Range { .. })), "{refused:?}");
    }
    assert_eq!(gpu.calls.load(Ordering::Relaxed), 0);
    device.copy_region((&mapped, 0), (&own, 0), 1).unwrap();
}
