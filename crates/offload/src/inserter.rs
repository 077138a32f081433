//! Copies missed experts to slots, without a wait of the device or of the CPU's products.
//!
//! A thread copies experts to staging memory while steps run. The thread that submits steps launches, before a step, a kernel that
//! moves what has arrived into slots and enters it in the tables. So a captured step reads one table, and no copy is in a step's
//! way. Invariant: staging memory is reused after its kernel has run; because the device has posted a later request by then.

use crate::admission::Admission;
use crate::compute::HostLayer;
use crate::mailbox::HIT;
use crate::options::HostExperts;
use gristmill_gpu::{Gpu, Region};
use gristmill_kernels::Backend;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::offload::SlotUsage;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Experts in staging memory at most. Each costs a launch.
const MOST_STAGED: usize = 96;
/// Experts that are copied before the thread waits: it needs as long to wake up as the copy of one.
const MOST_TOGETHER: usize = 8;
/// Wanted experts that are remembered. Those that were missed last are copied first.
const MOST_WANTED: usize = 512;
/// Tokens of a request, the last ones, whose choices count. A prompt thus leaves the experts of its end in slots.
pub(super) const COUNTED_TOKENS: usize = 8;

/// The thread, and what the submitting thread and the worker share with it.
#[derive(Debug)]
pub(super) struct Inserter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    gpu: Arc<dyn Gpu>,
    host: Arc<Backend>,
    /// The most staging memory, unless two experts need more.
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
    clock: AtomicU64,
    usage: [AtomicU64; 4],
}

/// An expert of a layer, and the staging memory that it has.
type StagedExpert = (Arc<HostLayer>, usize, Region);

#[derive(Debug, Default)]
struct State {
    wanted: VecDeque<(Arc<HostLayer>, usize)>,
    /// Staging memory that nothing uses, and the bytes of all.
    free: Vec<Region>,
    allocated: usize,
    /// Bytes of the largest expert so far, which new staging memory has, so that layers of several formats share it.
    largest: usize,
    staged: usize,
    arrived: Vec<StagedExpert>,
    /// Staging memory that kernels read, with the number of the last request before each.
    placed: VecDeque<(u32, Region)>,
    admission: Admission,
    stop: bool,
}

impl Inserter {
    /// Starts the thread, unless the slots are `fixed`.
    pub(super) fn start(gpu: &Arc<dyn Gpu>, host: &HostExperts, fixed: bool) -> Result<Self> {
        let (state, changed, clock, usage) = Default::default();
        let gpu = Arc::clone(gpu);
        let most = host.staged_bytes;
        let host = Arc::clone(&host.backend);
        let shared = Arc::new(Shared { gpu, host, most, state, changed, clock, usage });
        let own = Arc::clone(&shared);
        // An error of a copy is the device's, which the next operation reports.
        let serve = move || drop(own.serve());
        let start = || thread::Builder::new().name("gristmill-slots".to_owned()).spawn(serve);
        let thread = if fixed { None } else { Some(start()) };
        let thread = thread.transpose().map_err(|error| Error::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { shared, thread })
    }

    /// Records the choices of a layer as the device posted them.
    pub(super) fn chosen(&self, layer: &Arc<HostLayer>, ids: &[u32]) {
        let Some(slots) = &layer.slots else { return };
        let now = self.shared.clock.fetch_add(1, Ordering::Relaxed) + 1;
        let ids = &ids[ids.len().saturating_sub(COUNTED_TOKENS * layer.top_k)..];
        let experts = ids.iter().filter(|&&id| id != u32::MAX).map(|id| (id & !HIT) as usize);
        let (gains, mut wanted) = slots.resident(|resident| {
            let gains = resident.count((ids.len() / layer.top_k.max(1)) as u64);
            (gains, experts.filter(|&expert| resident.choose(expert, now)).collect::<Vec<_>>())
        });
        if (gains.is_empty() && wanted.is_empty()) || self.thread.is_none() {
            return;
        }
        let mut state = self.shared.state();
        state.admission.learn(gains);
        wanted.retain(|_| state.admission.admits());
        state.wanted.extend(wanted.into_iter().map(|expert| (Arc::clone(layer), expert)));
        let old = state.wanted.len().saturating_sub(MOST_WANTED);
        state.wanted.drain(..old);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Counts choices as the device posted them.
    pub(super) fn count(&self, ids: &[u32]) {
        let chosen = ids.iter().copied().filter(|&id| id != u32::MAX);
        let (hits, misses): (Vec<u32>, Vec<u32>) = chosen.partition(|&id| id & HIT != 0);
        for (total, some) in self.shared.usage.iter().zip([hits, misses]) {
            total.fetch_add(some.len() as u64, Ordering::Relaxed);
        }
    }

    /// Counts choices of a long batch as the device posted them.
    pub(super) fn count_shared(&self, ids: &[u32]) {
        let by_cpu = ids.iter().filter(|&&id| id & HIT == 0).count();
        self.shared.usage[3].fetch_add(by_cpu as u64, Ordering::Relaxed);
    }

    /// Submits the launches that place what has arrived. `submitted` is the number of the last request that was submitted.
    pub(super) fn publish(&self, submitted: u32) -> Result<()> {
        let arrived = std::mem::take(&mut self.shared.state().arrived);
        for (layer, expert, memory) in arrived {
            if layer.slots.as_ref().is_some_and(|slots| slots.resident(|resident| resident.is_held())) {
                self.shared.state().arrived.push((layer, expert, memory));
                continue;
            }
            let matrices = layer.matrices();
            let placed = match (&layer.slots, &matrices) {
                (Some(slots), Some(matrices)) => slots.place(&self.shared.gpu, expert, matrices, &memory)?,
                _ => false,
            };
            let mut state = self.shared.state();
            if placed {
                self.shared.usage[2].fetch_add(1, Ordering::Relaxed);
                state.placed.push_back((submitted, memory));
            } else {
                state.release(memory);
                self.shared.changed.notify_one();
            }
        }
        Ok(())
    }

    /// Reuses the staging memory of kernels that ended before a request of this number.
    pub(super) fn posted(&self, number: u32) {
        let mut state = self.shared.state();
        while let Some((_, memory)) =
            state.placed.pop_front_if(|&mut (before, _)| (number.wrapping_sub(before) as i32) > 0)
        {
            state.release(memory);
            self.shared.changed.notify_one();
        }
    }

    /// Choices and copies so far.
    pub(super) fn usage(&self) -> SlotUsage {
        let [hits, misses, insertions, shared] =
            self.shared.usage.each_ref().map(|count| count.load(Ordering::Relaxed));
        SlotUsage { hits, misses, insertions, shared, ..SlotUsage::default() }
    }
}

impl Drop for Inserter {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        // The thread does not panic.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl State {
    fn release(&mut self, memory: Region) {
        self.staged -= 1;
        self.free.push(memory);
    }

    /// Memory for an expert of this size, of `most` bytes in all.
    fn take(&mut self, bytes: usize, most: usize) -> Taken {
        self.largest = self.largest.max(bytes);
        if let Some(at) = self.free.iter().position(|memory| memory.bytes() >= bytes) {
            return Taken::Free(self.free.swap_remove(at));
        }
        let bytes = self.largest;
        let most = most.max(2 * self.largest);
        let mut small = Vec::new();
        while self.allocated + bytes > most
            && let Some(memory) = self.free.pop()
        {
            self.allocated -= memory.bytes();
            small.push(memory);
        }
        if self.allocated + bytes > most {
            return Taken::None(small);
        }
        self.allocated += bytes;
        Taken::New(bytes, small)
    }
}

/// What [`State::take`] found. The memory in lists is too small, and is freed after the state is unlocked: freeing waits for the
/// device, and the device can be waiting for a thread that needs the state.
enum Taken {
    Free(Region),
    /// Nothing, but this number of bytes can be allocated.
    New(usize, Vec<Region>),
    None(Vec<Region>),
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) -> Result<()> {
        while let Some(experts) = self.next()? {
            self.copy(&experts)?;
            self.state().arrived.extend(experts);
        }
        Ok(())
    }

    fn copy(&self, experts: &[StagedExpert]) -> Result<()> {
        let matrices: Vec<_> = experts.iter().map(|(layer, ..)| layer.matrices()).collect();
        let mut pieces = Vec::with_capacity(6 * experts.len());
        for ((layer, expert, memory), matrices) in experts.iter().zip(&matrices) {
            // None if the model is gone.
            if let (Some(slots), Some(matrices)) = (&layer.slots, matrices) {
                slots.pieces(&self.host, *expert, &layer.expert(matrices), (memory, 0), &mut pieces)?;
            }
        }
        Region::write_overlapped(&pieces)
    }

    /// The next experts to copy, and memory for each. `None` if the thread must stop.
    fn next(&self) -> Result<Option<Vec<StagedExpert>>> {
        let mut state = self.state();
        let mut experts = Vec::new();
        while !state.stop {
            if experts.len() < MOST_TOGETHER
                && state.staged < MOST_STAGED
                && let Some((layer, expert)) = state.wanted.pop_back()
            {
                let Some(slots) = &layer.slots else { continue };
                if !slots.resident(|resident| resident.wants(expert)) {
                    continue;
                }
                let taken = state.take(slots.staged_bytes(), self.most);
                let memory;
                (memory, state) = self.memory(taken, state)?;
                if let Some(memory) = memory {
                    state.staged += 1;
                    slots.resident(|resident| resident.start(expert));
                    experts.push((layer, expert, memory));
                    continue;
                }
                state.wanted.push_back((layer, expert));
            }
            if !experts.is_empty() {
                return Ok(Some(experts));
            }
            if !state.stop {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(None)
    }

    /// The memory that was taken. `None` if all is in use, or the device's memory is. The state is unlocked meanwhile if memory is
    /// allocated or freed.
    fn memory<'a>(
        &'a self,
        taken: Taken,
        state: MutexGuard<'a, State>,
    ) -> Result<(Option<Region>, MutexGuard<'a, State>)> {
        let (bytes, small) = match taken {
            Taken::Free(memory) => return Ok((Some(memory), state)),
            Taken::None(small) if small.is_empty() => return Ok((None, state)),
            Taken::None(small) => (None, small),
            Taken::New(bytes, small) => (Some(bytes), small),
        };
        drop(state);
        drop(small);
        let memory = bytes.map(|bytes| Region::new(&self.gpu, bytes, "staging of experts")).transpose();
        let mut state = self.state();
        match memory {
            // The steps need the memory more. After the next misses it is tried again.
            Err(error) if error.is_out_of_memory() => {
                state.allocated -= bytes.unwrap_or(0);
                Ok((None, state))
            }
            memory => Ok((memory?, state)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_gpu::{Launch, Properties, Unit};
    use gristmill_kernels::ops::Graph;
    use gristmill_kernels::reference::Reference;
    use gristmill_kernels::tensor::DeviceId;
    use std::time::{Duration, Instant};

    /// A device that only allocates, and records what it frees.
    #[derive(Debug)]
    struct Allocator {
        properties: Properties,
        next: AtomicU64,
        freed: Mutex<Vec<u64>>,
    }

    impl Gpu for Allocator {
        fn properties(&self) -> &Properties {
            &self.properties
        }
        fn free_memory(&self) -> Result<u64> {
            Ok(self.properties.memory)
        }
        fn allocate(&self, bytes: usize, _what: &'static str) -> Result<u64> {
            Ok(self.next.fetch_add(bytes.next_multiple_of(256) as u64, Ordering::Relaxed))
        }
        fn free(&self, address: u64) {
            self.freed.lock().unwrap().push(address);
        }
        fn zero(&self, _address: u64, _bytes: usize) -> Result<()> {
            unreachable!()
        }
        fn write(&self, _address: u64, _bytes: &[u8]) -> Result<()> {
            unreachable!()
        }
        fn read(&self, _pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
            unreachable!()
        }
        fn copy(&self, _from: u64, _to: u64, _bytes: usize) -> Result<()> {
            unreachable!()
        }
        fn launch(&self, _launch: &Launch) -> Result<()> {
            unreachable!()
        }
        fn capture(&self, _work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
            unreachable!()
        }
        fn prepare(&self, _unit: &Unit) -> Result<()> {
            unreachable!()
        }
    }

    /// A driver that frees memory waits for the device, which can wait for a thread that needs the state. Here it waits for the test.
    #[test]
    fn memory_is_freed_while_the_state_is_unlocked() {
        let id = DeviceId::Cuda(DeviceId::SIMULATED);
        let name = "allocator".to_owned();
        let properties =
            Properties { id, name, architecture: 90, multiprocessors: 1, shared_bytes: 0, memory: 1 << 30 };
        let allocator = Arc::new(Allocator { properties, next: AtomicU64::new(256), freed: Mutex::default() });
        let gpu: Arc<dyn Gpu> = allocator.clone();
        let host = Arc::new(Backend::new(Reference));
        let (state, changed, clock, usage) = Default::default();
        let shared = Shared { gpu: Arc::clone(&gpu), host, most: 1, state, changed, clock, usage };
        let take = |bytes| {
            let mut state = shared.state();
            let taken = state.take(bytes, shared.most);
            shared.memory(taken, state).unwrap().0
        };
        let small: Vec<Region> = [8, 8].map(|bytes| take(bytes).expect("room for two")).into();
        assert!(take(8).is_none(), "all is in use");
        let large = take(16).expect("room for two of this size");
        assert!(take(16).is_none(), "all is in use");
        shared.state().free.extend(small);
        let freed = allocator.freed.lock().unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| take(16));
            let start = Instant::now();
            let mut is_unlocked = false;
            while !is_unlocked && start.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(1));
                is_unlocked = shared.state.try_lock().is_ok_and(|state| state.free.is_empty());
            }
            drop(freed);
            assert!(is_unlocked, "the state is locked while memory is freed");
            let other = other.join().unwrap().expect("the small ones are freed");
            assert_eq!((other.bytes(), allocator.freed.lock().unwrap().len()), (16, 2));
        });
        shared.state().free.push(large);
        assert_eq!(take(8).expect("experts of all sizes share memory").bytes(), 16);
    }
}
