//! Compiles kernels before their first launch: a dry run collects them, and several threads compile.

use crate::device_api::{Gpu, Launch, Properties, Region, Unit};
use crate::host_link::HostLink;
use crate::upload::Make;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::Graph;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

/// Compilations at a time: each takes some 100 MB of memory.
const MOST_THREADS: usize = 16;

/// Compiles what `work` would launch on the device that it gets, which runs nothing. `progress` gets the number of units
/// that were compiled so far, and of those to be compiled; nothing if all machine code is on disk.
pub fn make_ready(
    gpu: &Arc<dyn Gpu>,
    work: &mut dyn FnMut(Arc<dyn Gpu>) -> Result<()>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<()> {
    let dry_run = Arc::new(DryRun::over(gpu));
    work(dry_run.clone())?;
    let units: Vec<Unit> = dry_run.units().into_iter().collect();
    prepare_all(gpu.as_ref(), &units, progress)
}

/// Compiles units on several threads, and loads those whose machine code is on disk.
fn prepare_all(gpu: &dyn Gpu, units: &[Unit], progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
    let is_compiled = parallel_map(units, |unit| gpu.is_compiled(unit), |_| ());
    let (ready, new): (Vec<_>, Vec<_>) = units.iter().zip(is_compiled).partition(|(_, is_compiled)| *is_compiled);
    let prepare = |(unit, _): &(&Unit, bool)| gpu.prepare(unit);
    let compiled = match new.len() {
        0 => Vec::new(),
        count => parallel_map(&new, prepare, |done| progress(done, count)),
    };
    compiled.into_iter().chain(parallel_map(&ready, prepare, |_| ())).collect()
}

/// Runs `work` for all items on several threads. Results are in the items' order. The caller's thread runs `progress`
/// with the number of finished items.
pub fn parallel_map<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut progress: impl FnMut(usize),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(items.len());
    let (answers, inbox) = mpsc::channel();
    let mut answered: Vec<(usize, R)> = thread::scope(|scope| {
        for _ in 0..threads {
            let next = &next;
            let work = &work;
            let answers = answers.clone();
            scope.spawn(move || {
                while let Some((i, item)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    items.get(i).map(|item| (i, item))
                } {
                    // The receiver lives as long as the scope.
                    let _ = answers.send((i, work(item)));
                }
            });
        }
        drop(answers);
        progress(0);
        inbox.iter().zip(1..).inspect(|(_, done)| progress(*done)).map(|(answer, _)| answer).collect()
    });
    answered.sort_by_key(|(i, _)| *i);
    answered.into_iter().map(|(_, answer)| answer).collect()
}

/// A device that collects the units of launches, and runs nothing. Its memory has addresses and no bytes.
#[derive(Debug)]
pub struct DryRun {
    properties: Properties,
    /// The device that will run the launches, if it is here.
    gpu: Option<Arc<dyn Gpu>>,
    units: Mutex<BTreeSet<Unit>>,
}

impl DryRun {
    /// Over a device that is here.
    fn over(gpu: &Arc<dyn Gpu>) -> Self {
        Self { properties: gpu.properties().clone(), gpu: Some(gpu.clone()), units: Mutex::default() }
    }

    /// For a device that is not here. All of its memory is free.
    pub fn absent(properties: Properties) -> Self {
        Self { properties, gpu: None, units: Mutex::default() }
    }

    /// The units that were launched or prepared so far.
    pub fn units(&self) -> BTreeSet<Unit> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Unit>> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gpu for DryRun {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The work has buffers of the device that it will run on, which are neither read nor written.
    fn owns(&self, _region: &Region) -> bool {
        true
    }

    fn free_memory(&self) -> Result<u64> {
        self.gpu.as_ref().map_or(Ok(self.properties.memory), |gpu| gpu.free_memory())
    }

    fn allocate(&self, bytes: usize, what: &'static str) -> Result<u64> {
        match bytes as u64 <= self.properties.memory {
            // Any address but null, which stands for an absent buffer; aligned as promised.
            true => Ok(256),
            false => Err(Error::OutOfMemory { what, bytes }),
        }
    }

    fn free(&self, _address: u64) {}

    fn zero(&self, _address: u64, _bytes: usize) -> Result<()> {
        Ok(())
    }

    fn write(&self, _address: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn fill(&self, _address: u64, _bytes: usize, _piece: usize, _make: &Make) -> Result<()> {
        Ok(())
    }

    fn read(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        pieces.iter_mut().for_each(|(_, bytes)| bytes.fill(0));
        Ok(())
    }

    fn copy(&self, _from: u64, _to: u64, _bytes: usize) -> Result<()> {
        Ok(())
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        self.lock().insert(launch.kernel.unit());
        Ok(())
    }

    fn launch_indirect(&self, launch: &Launch, _grid: &Region, _offset: usize) -> Result<()> {
        self.launch(launch)
    }

    fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        work().map(|()| None)
    }

    fn prepare(&self, unit: &Unit) -> Result<()> {
        self.lock().insert(unit.clone());
        Ok(())
    }

    fn host_link(&self) -> Option<&dyn HostLink> {
        Some(self)
    }
}

impl HostLink for DryRun {
    fn allocate_pinned(&self, bytes: usize, what: &'static str) -> Result<u64> {
        self.allocate(bytes, what)
    }

    fn free_pinned(&self, _address: u64) {}

    fn pin(&self, _bytes: &[u8]) -> Result<bool> {
        Ok(false)
    }

    fn unpin(&self, _address: u64) {}

    fn write_overlapped(&self, _pieces: &[(u64, &[u8])]) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_the_order_of_the_items() {
        for count in [0, 1, 5, 100] {
            let items: Vec<usize> = (0..count).collect();
            let mut seen = Vec::new();
            let answers = parallel_map(&items, |i| i * i, |done| seen.push(done));
            assert_eq!(answers, items.iter().map(|i| i * i).collect::<Vec<_>>());
            assert_eq!(seen, (0..=count).collect::<Vec<_>>());
        }
    }
}
