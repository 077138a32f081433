//! What checked mode knows of memory: which a kernel may touch, and who has touched it.

mod memory;
mod past;

pub(crate) use memory::Buffer;
pub(crate) use past::Touch;

use crate::fault::Kind;
use crate::launch::Access;
use memory::{Extents, Shadow};
use past::{Beats, Cell, Now, Past, Scope, VALID};
use std::ops::Range;

/// The state of the checks in a launch.
#[derive(Debug)]
pub(crate) struct Checks {
    /// Barriers and blocks so far. It never begins anew, so shared memory needs no cleaning.
    phase: u32,
    first_phase: u32,
    /// Of each warp of the block.
    beats: Vec<Beats>,
    shared: Shadow,
    extents: Extents,
}

/// Who touches what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// Number in the block.
    pub(crate) thread: u32,
    /// Offset of the return address in the code.
    pub(crate) code: u32,
}

/// The block's shared memory: where it begins, its size, and the parts that are in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) begin: usize,
    pub(crate) bytes: usize,
    pub(crate) stretches: &'a [Range<usize>],
}

/// What is wrong with an access; the earlier one, if there is one: thread and offset in the code.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    pub(crate) earlier: Option<(u32, u32)>,
}

impl Checks {
    /// For a launch; `last` was for the one before.
    pub(crate) fn new(last: Option<Box<Self>>, buffers: &[Buffer], warps: usize) -> Result<Box<Self>, std::io::Error> {
        let extents = Extents::new(buffers)?;
        let beats = vec![Beats::default(); warps];
        Ok(match last {
            // Half of all phases are left: enough for a launch of two billion barriers.
            Some(last) if last.phase < 1 << 31 => Box::new(Self { beats, extents, ..*last }),
            _ => Box::new(Self { phase: 0, first_phase: 0, beats, shared: Shadow::default(), extents }),
        })
    }

    pub(crate) fn begin_block(&mut self) {
        self.phase += 1;
        self.first_phase = self.phase;
        self.beats.fill(Beats::default());
    }

    /// All threads of the block have met.
    pub(crate) fn barrier(&mut self) {
        self.phase += 1;
    }

    /// Lanes of a warp have met.
    pub(crate) fn synchronise(&mut self, warp: usize, mask: u32) {
        self.beats[warp].synchronise(mask);
    }

    /// A thread touches some bytes, or must not.
    pub(crate) fn touch(
        &mut self,
        who: Who,
        at: usize,
        bytes: usize,
        touch: Touch,
        shared: Shared,
    ) -> Result<(), Wrong> {
        let past = Past {
            phase: self.phase,
            beat: self.beats[who.thread as usize / 32].beat,
            code: who.code,
            thread: who.thread as u16,
            marks: VALID,
        };
        let now = Now { past, first_phase: self.first_phase, beats: &self.beats[who.thread as usize / 32] };
        if (shared.begin..shared.begin + shared.bytes).contains(&at) {
            let at = at - shared.begin;
            if !shared.stretches.iter().any(|stretch| stretch.start <= at && at + bytes <= stretch.end) {
                return Err(outside_shared(at, bytes, shared.stretches));
            }
            let cells = self.shared.cells(shared.bytes, at, bytes).map_err(no_memory)?;
            let scope = Scope { shared: true, fresh: true };
            return each(cells, &now, touch, scope, None);
        }
        let found = self.extents.find(at, bytes, touch != Touch::Read)?;
        match found.cells {
            Some(cells) => each(cells, &now, touch, Scope { shared: false, fresh: found.fresh }, Some(found.argument)),
            None => Ok(()),
        }
    }
}

/// Touches the cells of one access, to shared memory or an argument. Mostly they are all alike, then one is looked at for all.
fn each(cells: &mut [Cell], now: &Now, touch: Touch, scope: Scope, argument: Option<usize>) -> Result<(), Wrong> {
    let mut last: Option<(Cell, Cell)> = None;
    for cell in cells {
        if let Some((before, after)) = last
            && before == *cell
        {
            *cell = after;
            continue;
        }
        let before = *cell;
        cell.touch(now, touch, scope).map_err(|(kind, earlier)| wrong(kind, earlier, touch, argument))?;
        last = Some((before, *cell));
    }
    Ok(())
}

fn wrong(kind: Kind, earlier: Past, touch: Touch, argument: Option<usize>) -> Wrong {
    let name = argument.map_or("shared memory".to_owned(), |argument| format!("argument {argument}"));
    let does = match touch {
        Touch::Read => "reads",
        Touch::Atomic => "changes atomically",
        _ => "writes",
    };
    let what = match kind {
        Kind::Uninitialised => format!("{does} {name} that the block has not written"),
        Kind::Undeclared => format!("{does} {name}, which is declared as written, where the launch has not written it"),
        Kind::InFlight => format!("{does} {name} to which a copy is on its way that was not waited for"),
        Kind::RaceInWarp => format!("{does} {name} that another lane of the warp has touched, without __syncwarp"),
        Kind::RaceInBlock => format!("{does} {name} that another warp has touched, without a barrier"),
        _ => format!("{does} {name} that another block has touched"),
    };
    let earlier = (earlier.marks & VALID != 0).then_some((u32::from(earlier.thread), earlier.code));
    Wrong { kind, what, earlier }
}

fn outside_shared(at: usize, bytes: usize, stretches: &[Range<usize>]) -> Wrong {
    // The last one that begins before the access is the one that was meant.
    let index = stretches.iter().rposition(|stretch| stretch.start <= at && !stretch.is_empty());
    let what = match index {
        Some(index) => {
            let name = if index == 0 { "dynamic shared memory" } else { "a shared variable" };
            let size = stretches[index].len();
            format!("touches {bytes} bytes at byte {} of {name} of {size} bytes", at - stretches[index].start)
        }
        None => format!("touches {bytes} bytes of shared memory, of which the block has none"),
    };
    Wrong { kind: Kind::OutOfBounds, what, earlier: None }
}

fn no_memory(error: std::io::Error) -> Wrong {
    Wrong { kind: Kind::Limit, what: format!("no memory to remember accesses: {error}"), earlier: None }
}

/// Whether a kernel may write.
fn writes(access: Access) -> bool {
    access != Access::Read
}
