//! What is remembered of each byte, and which two accesses nothing orders.
//!
//! Two accesses of one thread are ordered. So are two of one block with a barrier between, and two of one warp with a
//! `__syncwarp` between to which both lanes came. Nothing orders blocks of one launch, except that atomic operations may
//! meet each other.

use crate::fault::Kind;

/// One access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// Barriers and blocks before it.
    pub(super) phase: u32,
    /// Synchronisations of its warp before it.
    pub(super) beat: u32,
    /// Where in the code: the offset of a return address.
    pub(super) code: u32,
    /// Number of the thread in its block.
    pub(super) thread: u16,
    pub(super) marks: u16,
}

/// There was an access.
pub(super) const VALID: u16 = 1;
/// An atomic operation.
pub(super) const ATOMIC: u16 = 2;
/// A copy that nobody has waited for.
pub(super) const PENDING: u16 = 4;
/// Reads: of several lanes of the warp, of several warps of the block, of earlier blocks too.
const LANES: u16 = 8;
const WARPS: u16 = 16;
const BLOCKS: u16 = 32;

/// The last write of a byte, and the reads since. All zero: nobody has touched it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Cell {
    write: Past,
    read: Past,
}

/// How memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
    Atomic,
    /// A copy to it begins, and has been waited for.
    Begin,
    Deliver,
}

/// What memory it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Shared memory: every block has its own.
    pub(super) shared: bool,
    /// It may be read only where the launch (for shared memory: the block) has written it.
    pub(super) fresh: bool,
}

/// The synchronisations of a warp.
#[derive(Clone, Debug, Default)]
pub(super) struct Beats {
    /// How many there were.
    pub(super) beat: u32,
    /// The last of all lanes.
    whole: u32,
    /// Those of some lanes since: beat and lanes.
    parts: Vec<(u32, u32)>,
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

    /// Whether `to` knows what `from` did at a beat.
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

/// Who touches memory now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now<'a> {
    pub(super) past: Past,
    /// The phase in which this block began.
    pub(super) first_phase: u32,
    pub(super) beats: &'a Beats,
}

/// Two accesses that must not be: the kind, and the earlier one.
pub(super) type Conflict = (Kind, Past);

impl Now<'_> {
    /// Which order is missing between an access and now.
    fn unordered(&self, past: Past) -> Option<Kind> {
        let (thread, me) = (u32::from(past.thread), u32::from(self.past.thread));
        if past.phase < self.first_phase {
            Some(Kind::RaceInGrid)
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

    /// The same for all reads that a cell remembers.
    fn unordered_reads(&self, read: Past) -> Option<Kind> {
        if read.marks & BLOCKS != 0 || read.phase < self.first_phase {
            Some(Kind::RaceInGrid)
        } else if read.phase == self.past.phase && read.marks & WARPS != 0 {
            Some(Kind::RaceInBlock)
        } else if read.phase == self.past.phase && read.marks & LANES != 0 && read.thread / 32 == self.past.thread / 32
        {
            (read.beat >= self.beats.whole).then_some(Kind::RaceInWarp)
        } else {
            self.unordered(read)
        }
    }

    /// What a cell remembers after one more read.
    fn and_read(&self, read: Past) -> Past {
        let earlier =
            if read.marks & VALID != 0 && read.phase < self.first_phase { BLOCKS } else { read.marks & BLOCKS };
        let mine = Past { marks: VALID | earlier, ..self.past };
        if read.marks & VALID == 0 || read.phase < self.past.phase {
            mine
        } else if read.marks & WARPS != 0 || read.thread / 32 != self.past.thread / 32 {
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
    /// Touches a byte: changes what is remembered, or says with what it conflicts.
    pub(super) fn touch(&mut self, now: &Now, touch: Touch, scope: Scope) -> Result<(), Conflict> {
        if scope.shared && self.write.phase < now.first_phase {
            self.write = Past::default();
        }
        if scope.shared && self.read.phase < now.first_phase {
            self.read = Past::default();
        }
        let Self { write, read } = *self;
        let written = write.marks & VALID != 0;
        if !written && scope.fresh && matches!(touch, Touch::Read | Touch::Atomic) {
            return Err((if scope.shared { Kind::Uninitialised } else { Kind::Undeclared }, write));
        }
        if touch == Touch::Deliver {
            self.write = Past { marks: VALID, ..now.past };
            return Ok(());
        }
        if write.marks & PENDING != 0 {
            return Err((Kind::InFlight, write));
        }
        let both_atomic = touch == Touch::Atomic && write.marks & ATOMIC != 0;
        if written
            && !both_atomic
            && let Some(kind) = now.unordered(write)
        {
            return Err((kind, write));
        }
        if touch == Touch::Read {
            self.read = now.and_read(read);
            return Ok(());
        }
        if read.marks & VALID != 0
            && let Some(kind) = now.unordered_reads(read)
        {
            return Err((kind, read));
        }
        let marks = match touch {
            Touch::Atomic => VALID | ATOMIC,
            Touch::Begin => VALID | PENDING,
            _ => VALID,
        };
        *self = Self { write: Past { marks, ..now.past }, read: Past::default() };
        Ok(())
    }
}
