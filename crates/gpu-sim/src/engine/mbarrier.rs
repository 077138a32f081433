//! Barriers in shared memory that count arrivals and copied bytes in phases (PTX ISA, "mbarrier"). Their 8 bytes are
//! opaque to a kernel.

use super::abi::{EngineView, Site, step};
use super::block::suspend;
use super::state::{Engine, refuse};
use super::touch::check;
use crate::check::{COPIES, Clock, Touch};
use crate::fault::Kind;
use std::ffi::c_void;

/// Maximum arrivals and bytes of a phase.
pub(super) const MOST: u32 = (1 << 20) - 1;
/// Bytes of one in memory.
const SIZE: usize = 8;

/// One barrier.
#[derive(Debug)]
pub(super) struct Mbarrier {
    at: usize,
    /// Arrivals of a phase, and its pending arrivals.
    count: u32,
    pending: u32,
    /// Expected bytes minus copied bytes; negative if bytes arrive before they are expected.
    pub(super) bytes: i64,
    /// Number of complete phases.
    pub(super) phase: u32,
    waiting: Vec<u32>,
    /// The clock of the threads that have arrived in this phase.
    arrived: Clock,
    /// The clock for threads that wait for the last complete phase.
    complete: Clock,
    /// The thread that initialised it, and the beat.
    pub(super) made: (u32, u32),
    live: bool,
}

impl Engine {
    /// The index of the barrier at an address.
    pub(super) fn phases_at(&self, at: usize) -> Option<usize> {
        self.phases.iter().rposition(|barrier| barrier.live && barrier.at == at)
    }

    /// Ends a complete phase and resumes the threads that wait for it.
    pub(super) fn end_phase(&mut self, index: usize) {
        let barrier = &mut self.phases[index];
        if barrier.pending != 0 || barrier.bytes != 0 {
            return;
        }
        barrier.phase += 1;
        barrier.pending = barrier.count;
        barrier.complete = std::mem::take(&mut barrier.arrived);
        if let Some(checks) = &mut self.checks {
            checks.publish(COPIES + index as u16, barrier.phase, &mut barrier.complete);
            barrier.waiting.iter().for_each(|&thread| checks.acquire(thread, &barrier.complete));
        }
        for thread in barrier.waiting.drain(..) {
            self.warps[thread as usize / 32].ready |= 1 << (thread % 32);
        }
    }

    /// What the threads at a barrier in shared memory wait for, if any do.
    pub(super) fn lacks(&self) -> String {
        let waited = self.phases.iter().filter(|barrier| !barrier.waiting.is_empty());
        let told = waited.map(|barrier| {
            let Mbarrier { phase, pending, bytes, .. } = barrier;
            format!("; phase {phase} of a barrier lacks {pending} arrivals and {bytes} bytes")
        });
        told.collect()
    }

    /// Initialises a barrier.
    fn make(&mut self, at: usize, count: u32, thread: u32) -> Result<(), (Kind, String)> {
        if !at.is_multiple_of(SIZE) {
            return Err((Kind::Misaligned, "a barrier in shared memory is not aligned to 8 bytes".to_owned()));
        }
        if !self.shared.holds(at, SIZE) {
            return Err((Kind::OutOfBounds, "a barrier outside of shared memory".to_owned()));
        }
        if count == 0 || count > MOST {
            return Err((Kind::Limit, format!("a barrier of {count} arrivals: from 1 to {MOST} are possible")));
        }
        if self.phases.iter().any(|barrier| barrier.live && barrier.at == at) {
            return Err((Kind::Phase, "there is a barrier already, which was not ended".to_owned()));
        }
        if self.phases.len() + usize::from(COPIES) >= usize::from(u16::MAX) {
            return Err((Kind::Limit, "a block that makes more than 64,000 barriers".to_owned()));
        }
        let made = (thread, self.checks.as_ref().map_or(0, |checks| checks.now(thread)));
        let (waiting, arrived, complete) = Default::default();
        let (pending, live) = (count, true);
        self.phases.push(Mbarrier { at, count, pending, bytes: 0, phase: 0, waiting, arrived, complete, made, live });
        Ok(())
    }

    /// A thread arrives, and adds expected bytes.
    fn arrive(&mut self, index: usize, bytes: u32, thread: u32) -> Result<(), (Kind, String)> {
        let barrier = &mut self.phases[index];
        if barrier.pending == 0 {
            let message = format!("more than the {} arrivals that each phase of the barrier counts", barrier.count);
            return Err((Kind::Phase, message));
        }
        barrier.pending -= 1;
        barrier.bytes += i64::from(bytes);
        if barrier.bytes > i64::from(MOST) {
            return Err((Kind::Limit, format!("a phase of more than {MOST} bytes")));
        }
        if let Some(checks) = &mut self.checks {
            checks.release(thread, &mut barrier.arrived);
        }
        self.end_phase(index);
        Ok(())
    }

    /// Invalidates a barrier.
    fn unmake(&mut self, index: usize) -> Result<(), (Kind, String)> {
        if !self.phases[index].waiting.is_empty() || self.bulks.iter().any(|bulk| bulk.barrier == index) {
            return Err((Kind::Phase, "a barrier ends for which threads or copies still need it".to_owned()));
        }
        self.phases[index].live = false;
        Ok(())
    }

    /// Whether the thread has to wait for the end of a phase of this parity.
    fn wait(&mut self, index: usize, parity: u32, thread: u32) -> Result<bool, (Kind, String)> {
        if parity > 1 {
            return Err((Kind::Limit, format!("a phase of parity {parity}: it is 0 or 1")));
        }
        let barrier = &mut self.phases[index];
        let waits = barrier.phase % 2 == parity;
        if waits {
            barrier.waiting.push(thread);
        } else if let Some(checks) = &mut self.checks {
            checks.acquire(thread, &barrier.complete);
        }
        Ok(waits)
    }
}

/// The hook: an operation on the barrier at an address.
pub(super) unsafe extern "C" fn phase(
    view: *mut EngineView,
    what: u32,
    at: *mut c_void,
    value: u32,
    site: *const Site,
) {
    let engine: *mut Engine = view.cast();
    let at = at.addr();
    // SAFETY: the view is the engine's first field, the site comes from `sim.h`. References end before the switches.
    unsafe {
        (*engine).pass(*site);
        let thread = (*engine).thread();
        thread.what = c"a barrier in shared memory".as_ptr();
        thread.site = *site;
        let thread = thread.view.linear;
        let touch = match what {
            step::INIT => Touch::BarrierInit,
            step::INVAL => Touch::BarrierInval,
            _ => Touch::BarrierUse,
        };
        let threads = (*engine).count();
        if let Some(checks) = &mut (*engine).checks {
            checks.keep_clocks(threads);
        }
        let known = (*engine).phases_at(at);
        if what != step::INIT && known.is_none() {
            let message = "there is no barrier: it was not made, or has ended".to_owned();
            refuse(engine, Kind::Phase, message, *site);
        }
        if known.is_some() || (*engine).shared.holds(at, SIZE) {
            check(engine, at, SIZE, touch, *site);
        }
        let index = known.unwrap_or_default();
        let outcome = match what {
            step::INIT => (*engine).make(at, value, thread),
            step::INVAL => (*engine).unmake(index),
            step::ARRIVE => (*engine).arrive(index, 0, thread),
            step::EXPECT => (*engine).arrive(index, value, thread),
            _ => match (*engine).wait(index, value, thread) {
                Ok(false) => Ok(()),
                Err(wrong) => Err(wrong),
                Ok(true) => {
                    let phase = (&(*engine).phases)[index].phase;
                    suspend(engine);
                    // By its parity alone a thread cannot tell a phase from the one after the next.
                    match (&(*engine).phases)[index].phase - phase {
                        1 => Ok(()),
                        ended => Err((Kind::Phase, format!("{ended} phases ended while the thread waited for one"))),
                    }
                }
            },
        };
        if let Err((kind, message)) = outcome {
            refuse(engine, kind, message, *site);
        }
    }
}
