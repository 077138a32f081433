//! Where threads wait for each other: lanes of a warp at a meeting, threads of a block at a barrier.

use super::abi::{EngineView, Meeting, Site};
use super::block::suspend;
use super::{Engine, stop};
use crate::fault::Kind;
use std::ffi::{CStr, c_void};

/// 32 threads, fewer in a block's last warp.
#[derive(Debug, Default)]
pub(super) struct Warp {
    /// Lanes that can go on, and lanes that have not ended.
    pub(super) ready: u32,
    live: u32,
    /// Meetings that have begun, mostly one; and what each lane has brought.
    meetings: Vec<Begun>,
    brought: [usize; 32],
    /// Lanes that wait at each barrier.
    at_barrier: [u32; 16],
}

#[derive(Debug)]
struct Begun {
    meeting: *const Meeting,
    /// Lanes that must come, and that have come.
    mask: u32,
    present: u32,
}

/// A barrier of the block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Barrier {
    /// How many must come; 0: all that have not ended.
    wanted: u32,
    present: u32,
    /// How many of them brought a true predicate, now and when the barrier last opened.
    trues: u32,
    result: u32,
}

impl Warp {
    pub(super) fn begin(&mut self, lanes: u32) {
        self.ready = u32::MAX >> (32 - lanes);
        self.live = self.ready;
        self.meetings.clear();
        self.at_barrier = [0; 16];
    }

    /// A meeting to which everybody has come who will.
    fn complete(&self) -> Option<usize> {
        self.meetings.iter().position(|begun| begun.present == begun.mask & self.live)
    }
}

/// Holds a meeting to which everybody has come: does its work and lets its lanes go on.
unsafe fn hold(engine: *mut Engine, warp: usize, at: usize) {
    // SAFETY: called on a fibre with no other reference to the engine. What lanes have brought lies on their stacks,
    // where they wait.
    unsafe {
        let Begun { meeting, present, .. } = (&mut (*engine).warps)[warp].meetings.swap_remove(at);
        let brought = (&(*engine).warps)[warp].brought.as_ptr().cast::<*mut c_void>();
        if (*meeting).whole != 0 && present != u32::MAX {
            let what = CStr::from_ptr((*meeting).what).to_string_lossy();
            let message = format!("{what} needs all 32 lanes of the warp; only {present:#010x} take part");
            let first = (&(*engine).threads)[warp * 32 + present.trailing_zeros() as usize].site;
            (*engine).blame(Kind::Collective, message, first);
            stop(engine);
        }
        ((*meeting).complete)(engine.cast(), brought, present);
        (&mut (*engine).warps)[warp].ready |= present;
    }
}

/// The hook: brings something to a meeting of the lanes in `mask`, and returns when it has been held.
pub(super) unsafe extern "C" fn meet(
    view: *mut EngineView,
    meeting: *const Meeting,
    mask: u32,
    brought: *mut c_void,
    site: *const Site,
) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field, the rest comes from `sim.h`. References end before the switches.
    unsafe {
        let thread = (*engine).thread();
        thread.what = (*meeting).what;
        thread.site = *site;
        let (warp, lane) = (thread.view.warp as usize, thread.view.lane);
        if mask >> lane & 1 == 0 {
            let message = format!("lane {lane} is not in the mask {mask:#010x} that it names");
            (*engine).blame(Kind::Collective, message, *site);
            stop(engine);
        }
        let this = &mut (&mut (*engine).warps)[warp];
        this.brought[lane as usize] = brought as usize;
        let at = match this.meetings.iter().position(|begun| begun.meeting == meeting && begun.mask == mask) {
            Some(at) => at,
            None => {
                this.meetings.push(Begun { meeting, mask, present: 0 });
                this.meetings.len() - 1
            }
        };
        this.meetings[at].present |= 1 << lane;
        if this.meetings[at].present == mask & this.live {
            hold(engine, warp, at);
            // The last to come goes on at once.
            (&mut (*engine).warps)[warp].ready &= !(1 << lane);
        } else {
            suspend(engine);
        }
    }
}

/// The hook: waits for `threads` threads of the block, 0 for all; how many of them brought a true predicate.
pub(super) unsafe extern "C" fn barrier(
    view: *mut EngineView,
    id: u32,
    threads: u32,
    predicate: u32,
    site: *const Site,
) -> u32 {
    let engine: *mut Engine = view.cast();
    // SAFETY: as in `meet`.
    unsafe {
        let thread = (*engine).thread();
        thread.what = c"a barrier".as_ptr();
        thread.site = *site;
        let (warp, lane) = (thread.view.warp as usize, thread.view.lane);
        let barriers = &mut (*engine).barriers;
        let Some(barrier) = barriers.get_mut(id as usize) else {
            (*engine).blame(Kind::Limit, format!("a block has barriers 0 to 15, not {id}"), *site);
            stop(engine);
        };
        if barrier.present > 0 && barrier.wanted != threads {
            let message =
                format!("barrier {id}: this thread waits for {threads} threads, others for {}", barrier.wanted);
            (*engine).blame(Kind::Divergence, message, *site);
            stop(engine);
        }
        barrier.wanted = threads;
        barrier.present += 1;
        barrier.trues += predicate;
        (*engine).begun_barriers |= 1 << id;
        let complete = barrier.present == if threads == 0 { (*engine).live } else { threads };
        (&mut (*engine).warps)[warp].at_barrier[id as usize] |= 1 << lane;
        if complete {
            open(engine, id as usize);
        }
        suspend(engine);
        (&(*engine).barriers)[id as usize].result
    }
}

/// Lets all go on that wait at a barrier.
unsafe fn open(engine: *mut Engine, id: usize) {
    // SAFETY: called on a fibre with no other reference to the engine.
    let engine = unsafe { &mut *engine };
    let barrier = &mut engine.barriers[id];
    engine.begun_barriers &= !(1 << id);
    *barrier = Barrier { result: barrier.trues, ..Barrier::default() };
    for warp in &mut engine.warps {
        warp.ready |= std::mem::take(&mut warp.at_barrier[id]);
    }
    engine.turns.again();
}

/// The thread that runs has ended: others may have waited for nobody else.
pub(super) unsafe fn leave(engine: *mut Engine) {
    // SAFETY: called on a fibre with no other reference to the engine.
    unsafe {
        let (warp, lane) = ((*engine).thread().view.warp as usize, (*engine).thread().view.lane);
        (*engine).forget_copies();
        (*engine).live -= 1;
        (&mut (*engine).warps)[warp].live &= !(1 << lane);
        while !(&(*engine).warps)[warp].meetings.is_empty() {
            let Some(at) = (&(*engine).warps)[warp].complete() else { break };
            hold(engine, warp, at);
        }
        let mut begun = (*engine).begun_barriers;
        while begun != 0 {
            let id = begun.trailing_zeros() as usize;
            begun &= begun - 1;
            let barrier = (&(*engine).barriers)[id];
            if barrier.wanted == 0 && barrier.present == (*engine).live {
                open(engine, id);
            }
        }
    }
}
