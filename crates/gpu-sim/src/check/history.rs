//! The access history of each byte, and the rules for conflicting accesses.
//!
//! Accesses are ordered if one thread makes both. They are ordered if a barrier separates two accesses of one block, or
//! if a `__syncwarp` of both lanes separates two accesses of one warp. Vector clocks also order accesses (`clocks.rs`).
//! Blocks of one launch are not ordered, but their atomic operations do not conflict.

use super::clocks::{Actor, Clocks, PRODUCTS, Readers};
use crate::fault::Kind;

/// One access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// Barriers and blocks before it.
    pub(super) phase: u32,
    /// Synchronisations of its warp before it; of an asynchronous operation its number.
    pub(super) beat: u32,
    /// Offset of the return address in the code.
    pub(super) code: u32,
    /// The actor, mostly the number of a thread in its block.
    pub(super) actor: Actor,
    pub(super) marks: u16,
}

/// An access was recorded.
pub(super) const VALID: u16 = 1;
/// An atomic operation.
pub(super) const ATOMIC: u16 = 2;
/// A copy in flight.
pub(super) const PENDING: u16 = 4;
/// Reads by several lanes of the warp, by several warps of the block, and by earlier blocks.
const LANES: u16 = 8;
const WARPS: u16 = 16;
const BLOCKS: u16 = 32;
/// Reads by vector clocks: `beat` is the number of a set of reads.
const SEVERAL: u16 = 64;
/// The byte belongs to a barrier.
const BARRIER: u16 = 128;

/// The last write of a byte, and the reads since. All zero: untouched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Cell {
    write: Past,
    read: Past,
}

/// The kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    /// A read of memory that no launch writes.
    Constant,
    Write,
    Atomic,
    /// Atomic too, but it does not read.
    AtomicWrite,
    /// A copy to it starts, and has been waited for.
    Begin,
    Deliver,
    /// An asynchronous operation reads it; starts to write it, and has written it.
    AsyncRead,
    AsyncBegin,
    AsyncDeliver,
    /// A barrier is initialised, used, and invalidated.
    BarrierInit,
    BarrierUse,
    BarrierInval,
}

impl Touch {
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Constant | Self::AsyncRead | Self::BarrierUse)
    }
}

/// The kind of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Shared memory: every block has its own.
    pub(super) shared: bool,
    /// The launch (for shared memory: the block) must write it before it reads it.
    pub(super) fresh: bool,
}

/// The synchronisations of a warp.
#[derive(Clone, Debug, Default)]
pub(super) struct Beats {
    /// Number of synchronisations.
    pub(super) beat: u32,
    /// The last of all lanes, and of all threads.
    pub(super) whole: u32,
    pub(super) floor: u32,
    /// Beats of some lanes since: beat and lanes.
    pub(super) parts: Vec<(u32, u32)>,
}

impl Beats {
    pub(super) fn synchronise(&mut self, mask: u32) {
        self.beat += 1;
        if mask == u32::MAX {
            self.whole = self.beat;
            self.parts.clear();
        } else {
            self.parts.push((self.beat, mask));
        }
    }

    /// A block barrier has opened.
    pub(super) fn barrier(&mut self) {
        self.synchronise(u32::MAX);
        self.floor = self.beat;
    }

    /// Whether an access of `from` at a beat is visible to `to`.
    fn order(&self, beat: u32, from: u32, to: u32) -> bool {
        let mut know = 1 << from;
        for &(at, mask) in &self.parts {
            if at > beat && mask & know != 0 {
                know |= mask;
            }
        }
        beat < self.whole || know >> to & 1 != 0
    }
}

/// The access being checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now<'a> {
    /// The thread's access, and the record of it; for an asynchronous operation the record is the actor's.
    pub(super) past: Past,
    pub(super) record: Past,
    /// The phase in which this block started.
    pub(super) first_phase: u32,
    pub(super) beats: &'a Beats,
    /// Vector clocks, in blocks that do not only use block barriers.
    pub(super) clocks: Option<&'a Clocks>,
}

/// A conflict of two accesses: the kind, and the earlier access.
pub(super) type Conflict = (Kind, Past);

impl Now<'_> {
    /// The missing order between a recorded access and this one.
    fn unordered(&self, past: Past) -> Option<Kind> {
        let thread = u32::from(past.actor);
        let me = u32::from(self.past.actor);
        if past.phase < self.first_phase {
            Some(Kind::RaceInGrid)
        } else if self.clocks.is_some_and(|clocks| clocks.knows(me, past)) {
            None
        } else if past.actor >= PRODUCTS {
            Some(Kind::InFlight)
        } else if past.phase < self.past.phase || thread == me {
            None
        } else if thread / 32 != me / 32 {
            Some(Kind::RaceInBlock)
        } else if self.beats.order(past.beat, thread % 32, me % 32) {
            None
        } else {
            Some(Kind::RaceInWarp)
        }
    }

    /// The missing order between this access and the reads that a cell records, with the first unordered read.
    fn unordered_reads(&self, read: Past, readers: &Readers) -> Option<Conflict> {
        if read.marks & SEVERAL != 0 && read.marks & BLOCKS == 0 && read.phase >= self.first_phase {
            let mut reads = readers.get(read.beat).iter();
            return reads.find_map(|&read| Some((self.unordered(read)?, read)));
        }
        self.unordered_read(read).map(|kind| (kind, read))
    }

    fn unordered_read(&self, read: Past) -> Option<Kind> {
        if read.marks & BLOCKS != 0 || read.phase < self.first_phase {
            Some(Kind::RaceInGrid)
        } else if read.phase == self.past.phase && read.marks & WARPS != 0 {
            Some(Kind::RaceInBlock)
        } else if read.phase == self.past.phase && read.marks & LANES != 0 && read.actor / 32 == self.past.actor / 32 {
            (read.beat >= self.beats.whole).then_some(Kind::RaceInWarp)
        } else {
            self.unordered(read)
        }
    }

    /// The record of a cell after one more read.
    fn and_read(&self, read: Past, readers: &mut Readers) -> Past {
        let earlier =
            if read.marks & VALID != 0 && read.phase < self.first_phase { BLOCKS } else { read.marks & BLOCKS };
        let mine = Past { marks: VALID | earlier, ..self.record };
        if read.marks & VALID != 0 && earlier == 0 && self.clocks.is_some() && read.marks & (LANES | WARPS) == 0 {
            // Reads that this one does not know of stay: a thread that knows of this one need not know of them.
            let several = read.marks & SEVERAL != 0;
            let reads = if several { readers.get(read.beat) } else { &[read][..] };
            let stays = |read: &&Past| read.actor != mine.actor && self.unordered(**read).is_some();
            let staying = || reads.iter().filter(stays);
            let number = match staying().count() {
                0 => return mine,
                all if several && all == reads.len() => readers.and(read.beat, mine),
                _ => {
                    let reads = staying().copied().chain([mine]).collect();
                    readers.number(reads)
                }
            };
            return Past { marks: VALID | SEVERAL, beat: number, ..mine };
        }
        if read.marks & VALID == 0 || read.phase < self.past.phase {
            mine
        } else if read.marks & WARPS != 0 || read.actor / 32 != self.past.actor / 32 {
            Past { marks: read.marks | WARPS, ..read }
        } else if read.marks & LANES != 0 && read.beat >= self.beats.whole {
            read
        } else if self.unordered(read).is_some() {
            Past { marks: read.marks | LANES, ..read }
        } else {
            mine
        }
    }
}

impl Cell {
    /// Accesses a byte: updates its history, or returns the conflict.
    pub(super) fn touch(
        &mut self,
        now: &Now,
        touch: Touch,
        scope: Scope,
        readers: &mut Readers,
    ) -> Result<(), Conflict> {
        if scope.shared && self.write.phase < now.first_phase {
            self.write = Past::default();
        }
        if scope.shared && self.read.phase < now.first_phase {
            self.read = Past::default();
        }
        let Self { write, read } = *self;
        let written = write.marks & VALID != 0;
        if !written && scope.fresh && (touch.reads() || touch == Touch::Atomic) {
            return Err((if scope.shared { Kind::Uninitialised } else { Kind::Undeclared }, write));
        }
        if matches!(touch, Touch::Deliver | Touch::AsyncDeliver) {
            self.write = Past { marks: VALID, ..now.record };
            return Ok(());
        }
        if write.marks & PENDING != 0 {
            return Err((Kind::InFlight, write));
        }
        let atomic = matches!(touch, Touch::Atomic | Touch::AtomicWrite);
        let both_atomic = atomic && write.marks & ATOMIC != 0;
        if written
            && !both_atomic
            && let Some(kind) = now.unordered(write)
        {
            return Err((kind, write));
        }
        let of_barrier = matches!(touch, Touch::BarrierUse | Touch::BarrierInval);
        if (write.marks & BARRIER != 0) != of_barrier {
            return Err((Kind::Phase, write));
        }
        let unfenced =
            || !now.clocks.is_some_and(|clocks| clocks.fenced(now.past.actor.into(), write.actor, write.beat));
        if matches!(touch, Touch::AsyncRead | Touch::AsyncBegin) && written && write.actor < PRODUCTS && unfenced() {
            return Err((Kind::Unfenced, write));
        }
        if touch.reads() {
            self.read = now.and_read(read, readers);
            return Ok(());
        }
        if read.marks & VALID != 0
            && let Some(conflict) = now.unordered_reads(read, readers)
        {
            return Err(conflict);
        }
        let marks = match touch {
            Touch::Atomic | Touch::AtomicWrite => VALID | ATOMIC,
            Touch::Begin | Touch::AsyncBegin => VALID | PENDING,
            Touch::BarrierInit => VALID | BARRIER,
            _ => VALID,
        };
        *self = Self { write: Past { marks, ..now.record }, read: Past::default() };
        Ok(())
    }
}
