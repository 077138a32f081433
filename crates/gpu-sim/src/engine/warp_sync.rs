//! Synchronisation of threads: lanes of a warp (a collective operation), threads of a block (the barrier).

use super::abi::{Collective, EngineView, Site, lanes};
use super::block::suspend;
use super::state::{Engine, refuse, stop};
use crate::fault::Kind;
use std::ffi::{CStr, c_void};

/// 32 threads, fewer in a block's last warp.
#[derive(Debug, Default)]
pub(super) struct Warp {
    /// Ready lanes, lanes that have not ended, and all lanes.
    pub(super) ready: u32,
    pub(super) live: u32,
    began: u32,
    /// Pending synchronisations, mostly one, and the operand of each lane.
    collectives: Vec<Begun>,
    brought: [usize; 32],
    /// Lanes that wait at the barrier.
    at_barrier: u32,
}

#[derive(Debug)]
struct Begun {
    collective: *const Collective,
    /// Lanes that must arrive, and lanes that have arrived.
    mask: u32,
    present: u32,
    /// Source line of the first arrival.
    site: Site,
}

/// The block barrier, which waits for all threads that have not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier {
    present: u32,
    /// Number of true predicates, so far and when the barrier last opened.
    trues: u32,
    result: u32,
    /// The kinds of memory that it orders: only those that every thread requested.
    memory: u32,
    /// Source line of the first arrival.
    site: Site,
}

impl Default for Barrier {
    fn default() -> Self {
        Self { present: 0, trues: 0, result: 0, memory: u32::MAX, site: Site::NOWHERE }
    }
}

impl Warp {
    pub(super) fn begin(&mut self, lanes: u32) {
        self.ready = u32::MAX >> (32 - lanes);
        self.live = self.ready;
        self.began = self.ready;
        self.collectives.clear();
        self.at_barrier = 0;
    }

    /// A synchronisation at which all remaining lanes have arrived.
    fn complete(&self) -> Option<usize> {
        self.collectives.iter().position(|started| started.present == started.mask & self.live)
    }
}

/// Completes a synchronisation at which all lanes have arrived: runs its function and resumes the lanes.
unsafe fn hold(engine: *mut Engine, warp: usize, at: usize) {
    // SAFETY: called on a fibre with no other reference to the engine. What lanes have brought lies on their stacks,
    // where they wait.
    unsafe {
        let Begun { collective, present, mask, site } = (&mut (*engine).warps)[warp].collectives.swap_remove(at);
        let brought = (&(*engine).warps)[warp].brought.as_ptr().cast::<*mut c_void>();
        if let Some(message) = missing(&*collective, present, (&(*engine).warps)[warp].began) {
            (*engine).blame(Kind::Collective, message, site);
            stop(engine);
        }
        ((*collective).complete)(engine.cast(), brought, present);
        if let Some(checks) = &mut (*engine).checks
            && (*collective).orders != 0
        {
            checks.synchronise(warp, mask, (*collective).orders);
        }
        (&mut (*engine).warps)[warp].ready |= present;
    }
}

/// The fault of a synchronisation at which some lanes of the warp did not arrive.
fn missing(collective: &Collective, present: u32, began: u32) -> Option<String> {
    // SAFETY: a C string of the kernel.
    let what = || unsafe { CStr::from_ptr(collective.what) }.to_string_lossy();
    if collective.lanes & lanes::WHOLE != 0 && present != u32::MAX {
        Some(format!("{} needs all 32 lanes of the warp; only {present:#010x} take part", what()))
    } else if collective.lanes & lanes::SAME != 0 && present != began {
        Some(format!("{} in which only {present:#010x} of the lanes {began:#010x} take part", what()))
    } else {
        None
    }
}

/// The hook: a lane synchronises with the lanes in `mask`, with an operand, and returns when all have arrived.
pub(super) unsafe extern "C" fn converge(
    view: *mut EngineView,
    collective: *const Collective,
    mask: u32,
    brought: *mut c_void,
    site: *const Site,
) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field, the rest comes from `sim.h`. References end before the switches.
    unsafe {
        (*engine).pass(*site);
        let thread = (*engine).thread();
        thread.what = (*collective).what;
        thread.site = *site;
        let warp = thread.view.warp as usize;
        let lane = thread.view.lane;
        if mask >> lane & 1 == 0 {
            let message = format!("lane {lane} is not in the mask {mask:#010x} that it names");
            (*engine).blame(Kind::Collective, message, *site);
            stop(engine);
        }
        let this = &mut (&mut (*engine).warps)[warp];
        this.brought[lane as usize] = brought as usize;
        let at = match this
            .collectives
            .iter()
            .position(|started| started.collective == collective && started.mask == mask)
        {
            Some(at) => at,
            None => {
                this.collectives.push(Begun { collective, mask, present: 0, site: *site });
                this.collectives.len() - 1
            }
        };
        // Lanes of another operation will not come.
        let elsewhere = match (*collective).lanes & lanes::SAME {
            0 => None,
            _ => this.collectives.iter().find(|started| started.collective != collective).map(|started| started.site),
        };
        let started = &mut this.collectives[at];
        started.present |= 1 << lane;
        // Instructions of a whole warp are `.aligned`: all lanes execute the same one.
        let apart = (*engine).checks.is_some() && (*collective).lanes != 0 && !(*engine).code.same(started.site, *site);
        if let Some(other) = elsewhere.or(apart.then_some(started.site)) {
            let what = CStr::from_ptr((*collective).what).to_string_lossy();
            let message = format!("this lane is at {what}, others are at {}", (*engine).code.place(other));
            (*engine).blame(Kind::Divergence, message, *site);
            stop(engine);
        }
        if started.present == mask & this.live {
            hold(engine, warp, at);
            // The last to come continues at once.
            (&mut (*engine).warps)[warp].ready &= !(1 << lane);
        } else {
            suspend(engine);
        }
    }
}

/// The hook: waits for all threads of the block. Returns the number of true predicates.
pub(super) unsafe extern "C" fn barrier(view: *mut EngineView, predicate: u32, memory: u32, site: *const Site) -> u32 {
    let engine: *mut Engine = view.cast();
    // SAFETY: as in `converge`.
    unsafe {
        (*engine).pass(*site);
        let thread = (*engine).thread();
        thread.what = c"a barrier".as_ptr();
        thread.site = *site;
        let warp = thread.view.warp as usize;
        let lane = thread.view.lane;
        if (*engine).barrier.present == 0 {
            (*engine).barrier.site = *site;
        }
        if (*engine).checks.is_some()
            && let Some(message) = divergence(&*engine, *site)
        {
            (*engine).blame(Kind::Divergence, message, *site);
            stop(engine);
        }
        (*engine).barrier.present += 1;
        (*engine).barrier.trues += predicate;
        (*engine).barrier.memory &= memory;
        (&mut (*engine).warps)[warp].at_barrier |= 1 << lane;
        if (*engine).barrier.present == (*engine).live {
            open(&mut *engine);
        }
        suspend(engine);
        (*engine).barrier.result
    }
}

/// The fault of a thread that arrives at the barrier at `site`, if any.
fn divergence(engine: &Engine, site: Site) -> Option<String> {
    let ended = engine.threads.len() as u32 - engine.live;
    if ended > 0 {
        return Some(format!("a barrier to which {ended} threads of the block will not come: they have ended"));
    }
    let first = engine.barrier.site;
    (!engine.code.same(first, site))
        .then(|| format!("this thread is at this barrier, others are at {}", engine.code.place(first)))
}

/// Resumes all threads that wait at the barrier.
fn open(engine: &mut Engine) {
    let memory = engine.barrier.memory;
    engine.barrier = Barrier { result: engine.barrier.trues, ..Barrier::default() };
    for warp in &mut engine.warps {
        warp.ready |= std::mem::take(&mut warp.at_barrier);
    }
    if let Some(checks) = &mut engine.checks {
        checks.barrier(memory);
    }
    engine.turns.again();
}

/// The running thread has ended, which may release a barrier.
pub(super) unsafe fn leave(engine: *mut Engine) {
    // SAFETY: called on a fibre with no other reference to the engine.
    unsafe {
        let warp = (*engine).thread().view.warp as usize;
        let lane = (*engine).thread().view.lane;
        (*engine).discard_copies();
        if (*engine).multiplies(warp) {
            let message = "a thread has ended while a product to its registers was under way".to_owned();
            let site = (*engine).thread().site;
            refuse(engine, Kind::InFlight, message, site);
        }
        (*engine).live -= 1;
        (&mut (*engine).warps)[warp].live &= !(1 << lane);
        if let Some((message, site)) = (*engine).leave_named(warp, lane) {
            refuse(engine, Kind::Divergence, message, site);
        }
        while !(&(*engine).warps)[warp].collectives.is_empty() {
            let Some(at) = (&(*engine).warps)[warp].complete() else { break };
            hold(engine, warp, at);
        }
        let Barrier { present, site, .. } = (*engine).barrier;
        if present > 0 {
            if (*engine).checks.is_some() {
                let message = format!("{present} threads wait at this barrier, and this one has ended");
                (*engine).blame(Kind::Divergence, message, site);
                stop(engine);
            }
            if present == (*engine).live {
                open(&mut *engine);
            }
        }
    }
}
