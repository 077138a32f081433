//! The state of the checks in a launch.

use super::clocks::{Actor, COPIES, Clock, Clocks, PRODUCTS, Readers};
use super::history::{Beats, Cell, Now, Past, Scope, Touch, VALID};
use super::memory::{Buffer, Extents, Shadow};
use super::who::{Shared, Who, Wrong, no_memory};
use crate::fault::Kind;
use std::ops::Range;

/// The state of the checks in a launch.
#[derive(Debug)]
pub(crate) struct Checks {
    /// Ordering state for arguments and for shared memory: a barrier can order accesses in only one of them.
    orders: [Ordered; 2],
    /// Vector clocks, in blocks that do not only use block barriers.
    clocks: Option<Clocks>,
    readers: Readers,
    /// Whether the launch can overlap earlier launches, and which threads have waited for them.
    overlaps: bool,
    waited: Vec<bool>,
    shared: Shadow,
    extents: Extents,
}

/// Order that barriers and synchronisations create in one kind of memory.
#[derive(Debug, Default)]
struct Ordered {
    /// Number of barriers and blocks so far. It is never reset, so shared memory needs no cleanup.
    phase: u32,
    first_phase: u32,
    /// Beats of each warp of the block.
    beats: Vec<Beats>,
}

/// The orders that have a bit in `memory`: bit 0 for arguments, bit 1 for shared memory.
fn chosen(orders: &mut [Ordered; 2], memory: u32) -> impl Iterator<Item = &mut Ordered> {
    orders.iter_mut().enumerate().filter(move |(i, _)| memory >> i & 1 != 0).map(|(_, order)| order)
}

impl Checks {
    /// For a launch; `last` was for the one before.
    pub(crate) fn new(
        last: Option<Box<Self>>,
        buffers: &[Buffer],
        threads: usize,
        overlaps: bool,
    ) -> Result<Box<Self>, std::io::Error> {
        let extents = Extents::new(buffers)?;
        let waited = vec![false; threads];
        let mut checks = match last {
            // Half of all phases are left: enough for a launch of two billion barriers.
            Some(last) if last.orders.iter().all(|order| order.phase < 1 << 31) => {
                Box::new(Self { overlaps, waited, extents, ..*last })
            }
            _ => {
                let (orders, clocks, readers, shared) = Default::default();
                Box::new(Self { orders, clocks, readers, overlaps, waited, shared, extents })
            }
        };
        for order in &mut checks.orders {
            order.beats.clear();
            order.beats.resize(threads.div_ceil(32), Beats::default());
        }
        Ok(checks)
    }

    pub(crate) fn begin_block(&mut self) {
        for order in &mut self.orders {
            order.phase += 1;
            order.first_phase = order.phase;
            order.beats.fill(Beats::default());
        }
        self.clocks = None;
        self.readers.clear();
        self.waited.fill(false);
    }

    /// A thread has waited for the earlier launches.
    pub(crate) fn depend(&mut self, thread: u32) {
        self.waited[thread as usize] = true;
    }

    /// Whether a wait is required and no thread of the block has waited.
    pub(crate) fn never_waited(&self) -> bool {
        self.overlaps && !self.waited.contains(&true)
    }

    /// A block barrier has opened, which orders accesses in some kinds of memory.
    pub(crate) fn barrier(&mut self, memory: u32) {
        for order in chosen(&mut self.orders, memory) {
            order.phase += 1;
            order.beats.iter_mut().for_each(Beats::barrier);
        }
        if self.overlaps && self.waited.contains(&true) {
            self.waited.fill(true);
        }
        if let Some(clocks) = &mut self.clocks {
            clocks.barrier(&self.orders[0].beats);
        }
    }

    /// Lanes of a warp have synchronised, which orders accesses in some kinds of memory.
    pub(crate) fn synchronise(&mut self, warp: usize, mask: u32, memory: u32) {
        chosen(&mut self.orders, memory).for_each(|order| order.beats[warp].synchronise(mask));
        if let Some(clocks) = &mut self.clocks {
            clocks.converge(warp, mask, self.orders[0].beats[warp].beat);
        }
    }

    /// Starts vector clocks for the block's threads. In kernels with clocks, each barrier orders both kinds of
    /// memory, so both kinds count the same beats.
    pub(crate) fn keep_clocks(&mut self, threads: usize) {
        self.clocks.get_or_insert_with(|| Clocks::new(threads, &self.orders[0].beats));
    }

    /// Starts the next beat of a thread's warp. Earlier accesses of the thread precede it.
    fn beat(&mut self, thread: u32) -> u32 {
        self.orders.iter_mut().for_each(|order| order.beats[thread as usize / 32].beat += 1);
        self.now(thread)
    }

    /// Adds to `clock` the thread's accesses and those visible to it.
    pub(crate) fn release(&mut self, thread: u32, clock: &mut Clock) {
        let beat = self.beat(thread);
        if let Some(clocks) = &mut self.clocks {
            clocks.release(thread, beat, clock);
        }
    }

    /// Adds to a thread's clock what is visible in `clock`.
    pub(crate) fn acquire(&mut self, thread: u32, clock: &Clock) {
        if let Some(clocks) = &mut self.clocks {
            clocks.acquire(thread, clock);
        }
    }

    /// A proxy fence: a thread's accesses, and those visible to it, become visible to asynchronous operations.
    pub(crate) fn fence(&mut self, thread: u32) {
        let beat = self.beat(thread);
        if let Some(clocks) = &mut self.clocks {
            clocks.fence(thread, beat);
        }
    }

    /// Whether the last access of `of` is visible to asynchronous operations of `thread`.
    pub(crate) fn fenced(&self, thread: u32, of: Actor, beat: u32) -> bool {
        self.clocks.as_ref().is_some_and(|clocks| clocks.fenced(thread, of, beat))
    }

    /// The number of synchronisations of a thread's warp.
    pub(crate) fn now(&self, thread: u32) -> u32 {
        self.orders[0].beats[thread as usize / 32].beat
    }

    /// Accesses of an asynchronous actor before a beat become visible to a thread.
    pub(crate) fn learn(&mut self, thread: u32, actor: Actor, beat: u32) {
        if let Some(clocks) = &mut self.clocks {
            clocks.learn(thread, actor, beat);
        }
    }

    /// Adds to `clock` the accesses of an asynchronous actor before a beat.
    pub(crate) fn publish(&self, actor: Actor, beat: u32, clock: &mut Clock) {
        if let Some(clocks) = &self.clocks {
            clocks.publish(actor, beat, clock);
        }
    }

    /// Records an access of a thread to some bytes. Returns the fault if the access is not allowed.
    pub(crate) fn touch(
        &mut self,
        who: Who,
        at: usize,
        bytes: usize,
        touch: Touch,
        shared: Shared,
    ) -> Result<(), Wrong> {
        let in_shared = (shared.begin..shared.begin + shared.bytes).contains(&at);
        let order = &self.orders[usize::from(in_shared)];
        let beats = &order.beats[who.thread as usize / 32];
        let past =
            Past { phase: order.phase, beat: beats.beat, code: who.code, actor: who.thread as u16, marks: VALID };
        let record = match who.on_behalf_of {
            Some((actor, beat)) => Past { actor, beat, ..past },
            None => past,
        };
        let now = Now { past, record, first_phase: order.first_phase, beats, clocks: self.clocks.as_ref() };
        let readers = &mut self.readers;
        if in_shared {
            let at = at - shared.begin;
            if !shared.ranges.iter().any(|range| range.start <= at && at + bytes <= range.end) {
                return Err(outside_shared(at, bytes, shared.ranges));
            }
            let cells = self.shared.cells(shared.bytes, at, bytes).map_err(no_memory)?;
            let scope = Scope { shared: true, fresh: true };
            return each(cells, &now, touch, scope, readers, None);
        }
        let found = self.extents.find(at, bytes, !touch.reads())?;
        let early = self.overlaps && !self.waited[who.thread as usize];
        let missing = match () {
            () if touch == Touch::Constant && found.cells.is_some() => {
                Some("as a constant, which the launch may write")
            }
            () if touch == Touch::Constant && self.overlaps && !found.settled => {
                Some("as a constant, which launches before may write")
            }
            () if early && touch.reads() && !found.settled => {
                Some("before dependency_wait: launches before may write it")
            }
            () if early && !touch.reads() => Some("before dependency_wait: launches before may still use it"),
            () => None,
        };
        if let Some(missing) = missing {
            let does = if touch.reads() { "reads" } else { "writes" };
            let what = format!("{does} argument {} {missing}", found.argument);
            return Err(Wrong { kind: Kind::Early, what, earlier: None });
        }
        let scope = Scope { shared: false, fresh: found.fresh };
        match found.cells {
            Some(cells) => each(cells, &now, touch, scope, readers, Some(found.argument)),
            None => Ok(()),
        }
    }
}

/// Touches the cells of one access, to shared memory or an argument. If all cells are alike, one is checked for all.
fn each(
    cells: &mut [Cell],
    now: &Now,
    touch: Touch,
    scope: Scope,
    readers: &mut Readers,
    argument: Option<usize>,
) -> Result<(), Wrong> {
    let mut last: Option<(Cell, Cell)> = None;
    for cell in cells {
        if let Some((before, after)) = last
            && before == *cell
        {
            *cell = after;
            continue;
        }
        let before = *cell;
        cell.touch(now, touch, scope, readers).map_err(|(kind, earlier)| wrong(kind, earlier, touch, argument))?;
        last = Some((before, *cell));
    }
    Ok(())
}

fn wrong(kind: Kind, earlier: Past, touch: Touch, argument: Option<usize>) -> Wrong {
    let name = argument.map_or("shared memory".to_owned(), |argument| format!("argument {argument}"));
    let does = match touch {
        Touch::Read | Touch::Constant | Touch::AsyncRead => "reads",
        Touch::Atomic | Touch::AtomicWrite => "changes atomically",
        Touch::BarrierInit | Touch::BarrierUse | Touch::BarrierInval => "uses as a barrier",
        _ => "writes",
    };
    let what = match kind {
        Kind::Uninitialised => format!("{does} {name} that the block has not written"),
        Kind::Undeclared => format!("{does} {name}, which is declared as written, where the launch has not written it"),
        Kind::InFlight if (PRODUCTS..COPIES).contains(&earlier.actor) => {
            format!("{does} {name} that a product reads which was not waited for")
        }
        Kind::Phase if touch == Touch::BarrierInit => format!("{does} {name} where a barrier lies already"),
        Kind::Phase => format!("{does} {name} where a barrier lies"),
        Kind::Unfenced => format!("{does} {name} asynchronously that was written without fence.proxy.async since"),
        Kind::InFlight => format!("{does} {name} to which a copy is on its way that was not waited for"),
        Kind::RaceInWarp => {
            format!("{does} {name} that another lane of the warp has touched, without a barrier of the warp")
        }
        Kind::RaceInBlock => format!("{does} {name} that another warp has touched, without a barrier"),
        _ => format!("{does} {name} that another block has touched"),
    };
    let earlier = (earlier.marks & VALID != 0).then_some((earlier.actor, earlier.code));
    Wrong { kind, what, earlier }
}

fn outside_shared(at: usize, bytes: usize, ranges: &[Range<usize>]) -> Wrong {
    // The last one that starts before the access is the one that was meant.
    let index = ranges.iter().rposition(|range| range.start <= at && !range.is_empty());
    let what = match index {
        Some(index) => {
            let name = if index == 0 { "dynamic shared memory" } else { "a shared variable" };
            let size = ranges[index].len();
            format!("touches {bytes} bytes at byte {} of {name} of {size} bytes", at - ranges[index].start)
        }
        None => format!("touches {bytes} bytes of shared memory, of which the block has none"),
    };
    Wrong { kind: Kind::OutOfBounds, what, earlier: None }
}
