//! Named barriers for some warps of a block (PTX ISA, "bar, barrier"): warps wait or only arrive. Number 0 is the block
//! barrier, which is in `warp_sync.rs`.

use super::abi::{EngineView, Site};
use super::block::suspend;
use super::state::{Engine, refuse};
use crate::check::Clock;
use crate::fault::Kind;

/// Number of named barriers, including the block barrier.
pub(super) const COUNT: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Named {
    /// Number of threads for which it opens; 0 before the first arrival.
    threads: u32,
    /// Threads of the warps that have arrived completely.
    arrived: u32,
    warps: Vec<Arrived>,
    /// The clock of the arrived threads.
    clock: Clock,
}

/// Arrived lanes of a warp, waiting lanes among them, and the source line of the first.
#[derive(Debug)]
struct Arrived {
    warp: usize,
    present: u32,
    waiting: u32,
    whole: bool,
    site: Site,
}

impl Engine {
    pub(super) fn begin_named(&mut self) {
        let used = self.named.iter_mut().filter(|named| named.threads != 0);
        used.for_each(|named| *named = Default::default());
    }

    /// The fault of an arriving thread, if any.
    fn refuse_named(&self, id: u32, threads: u32, warp: usize, lane: u32, site: Site) -> Option<(Kind, String)> {
        let block = (self.threads.len() as u32).next_multiple_of(32);
        if !(1..COUNT as u32).contains(&id) {
            let most = COUNT - 1;
            return Some((Kind::Limit, format!("barrier {id}: a barrier of some warps has a number from 1 to {most}")));
        }
        if threads == 0 || !threads.is_multiple_of(32) || threads > block {
            let what = format!("barrier {id} of {threads} threads: their number is a multiple of 32 up to {block}");
            return Some((Kind::Limit, what));
        }
        let named = &self.named[id as usize];
        if named.threads != 0 && named.threads != threads {
            let what = format!("barrier {id} of {threads} threads, at which others are as of one of {}", named.threads);
            return Some((Kind::Divergence, what));
        }
        let own = named.warps.iter().find(|arrived| arrived.warp == warp);
        let come = own.map_or(0, |own| own.present);
        if self.checks.is_some() && self.warps[warp].live | come != u32::MAX {
            let what =
                format!("barrier {id}, to which lanes of the warp will not come: they have ended, or are not there");
            return Some((Kind::Divergence, what));
        }
        let own = own?;
        if own.present >> lane & 1 != 0 {
            let what = format!("barrier {id}, at which this thread has arrived already and which has not opened since");
            return Some((Kind::Divergence, what));
        }
        if self.checks.is_some() && !self.code.same(own.site, site) {
            let place = self.code.place(own.site);
            return Some((Kind::Divergence, format!("this lane is at this barrier, others of its warp at {place}")));
        }
        None
    }

    /// Counts a warp when all of its lanes have arrived, and opens the barrier when all warps have.
    fn count_named(&mut self, id: usize, warp: usize) {
        let live = self.warps[warp].live;
        let named = &mut self.named[id];
        let Some(own) = named.warps.iter_mut().find(|arrived| arrived.warp == warp) else { return };
        if own.whole || own.present & live != live {
            return;
        }
        own.whole = true;
        named.arrived += 32;
        if named.arrived < named.threads {
            return;
        }
        let opened = std::mem::take(named);
        for Arrived { warp, waiting, .. } in opened.warps {
            self.warps[warp].ready |= waiting;
            if let Some(checks) = &mut self.checks {
                let lanes = (0..32).filter(|lane| waiting >> lane & 1 != 0);
                lanes.for_each(|lane| checks.acquire(warp as u32 * 32 + lane, &opened.clock));
            }
        }
    }

    /// The running thread has ended. If all other lanes of its warp wait at a barrier, checked mode reports a fault.
    pub(super) fn leave_named(&mut self, warp: usize, lane: u32) -> Option<(String, Site)> {
        let without = |arrived: &&Arrived| arrived.warp == warp && arrived.present >> lane & 1 == 0;
        if let Some(arrived) = self.named.iter().find_map(|named| named.warps.iter().find(without)) {
            if self.checks.is_some() {
                let what = "lanes of the warp wait at this barrier, and this one has ended".to_owned();
                return Some((what, arrived.site));
            }
            (1..COUNT).for_each(|id| self.count_named(id, warp));
        }
        None
    }
}

/// The hook: arrives at a barrier of this number of threads, and waits if `waits` is not 0.
pub(super) unsafe extern "C" fn named(view: *mut EngineView, id: u32, threads: u32, waits: u32, site: *const Site) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field, the site comes from `sim.h`. References end before the switches.
    unsafe {
        let this = &mut *engine;
        this.pass(*site);
        let thread = this.thread();
        thread.what = c"a barrier of some warps".as_ptr();
        thread.site = *site;
        let number = thread.view.linear;
        let warp = thread.view.warp as usize;
        let lane = thread.view.lane;
        if let Some((kind, message)) = this.refuse_named(id, threads, warp, lane, *site) {
            refuse(engine, kind, message, *site);
        }
        let named = &mut this.named[id as usize];
        named.threads = threads;
        if let Some(checks) = &mut this.checks {
            checks.keep_clocks(this.threads.len());
            checks.release(number, &mut named.clock);
        }
        let at = named.warps.iter().position(|arrived| arrived.warp == warp).unwrap_or_else(|| {
            named.warps.push(Arrived { warp, present: 0, waiting: 0, whole: false, site: *site });
            named.warps.len() - 1
        });
        named.warps[at].present |= 1 << lane;
        named.warps[at].waiting |= u32::from(waits != 0) << lane;
        this.count_named(id as usize, warp);
        if waits != 0 {
            suspend(engine);
        }
    }
}
