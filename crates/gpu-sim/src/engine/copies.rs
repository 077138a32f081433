//! Copies to shared memory that a thread has started and not waited for. They are delayed until the wait, so a missing
//! wait exposes the old bytes.

use super::abi::{EngineView, Site};
use super::state::{Engine, stop};
use super::touch::check;
use crate::check::Touch;
use crate::fault::Kind;
use std::ffi::c_void;

/// The copies of one thread.
#[derive(Debug, Default)]
pub(super) struct Copies {
    started: Vec<Copy>,
    /// The end of each group in `started`.
    groups: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    /// Number of bytes that are copied; the others become zero.
    valid: usize,
}

impl Copies {
    pub(super) fn clear(&mut self) {
        self.started.clear();
        self.groups.clear();
    }
}

impl Engine {
    /// The running thread has ended. Its copies without a wait are discarded.
    pub(super) fn discard_copies(&mut self) {
        if self.copying {
            let thread = self.thread().view.linear as usize;
            self.copies[thread].clear();
        }
    }
}

/// The hook: starts a copy.
pub(super) unsafe extern "C" fn copy(
    view: *mut EngineView,
    to: *mut c_void,
    from: *const c_void,
    bytes: u32,
    valid: u32,
    site: *const Site,
) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field; the site comes from `sim.h`.
    unsafe {
        let size = bytes as usize;
        if !to.addr().is_multiple_of(size) || valid > 0 && !from.addr().is_multiple_of(size) {
            let message = format!("a copy of {bytes} bytes, from {from:p} to {to:p}, is not aligned to them");
            (*engine).blame(Kind::Misaligned, message, *site);
            stop(engine);
        }
        if !(*engine).shared.holds(to.addr(), size) {
            let message = format!("a copy of {bytes} bytes to {to:p}, which is not in the block's shared memory");
            (*engine).blame(Kind::OutOfBounds, message, *site);
            stop(engine);
        }
        if (*engine).checks.is_some() {
            if valid > 0 {
                check(engine, from.addr(), valid as usize, Touch::Read, *site);
            }
            check(engine, to.addr(), size, Touch::Begin, *site);
        }
        let thread = (*engine).thread().view.linear as usize;
        (*engine).copying = true;
        let copy = Copy { to: to.cast(), from: from.cast(), bytes: size, valid: valid as usize };
        (&mut (*engine).copies)[thread].started.push(copy);
    }
}

/// The hook: commits the copies since the last group as a group.
pub(super) unsafe extern "C" fn commit(view: *mut EngineView) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field.
    unsafe {
        let thread = (*engine).thread().view.linear as usize;
        (*engine).copying = true;
        let copies = &mut (&mut (*engine).copies)[thread];
        copies.groups.push(copies.started.len());
    }
}

/// The hook: completes all groups of the thread except the last `left`.
pub(super) unsafe extern "C" fn wait(view: *mut EngineView, left: u32, site: *const Site) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field. The kernel's author vouches for the addresses, as for those of any
    // other access.
    unsafe {
        (*engine).pass(*site);
        let thread = (*engine).thread().view.linear as usize;
        let groups = &(&(*engine).copies)[thread].groups;
        let done = groups.len().saturating_sub(left as usize);
        let Some(&end) = groups[..done].last() else { return };
        for i in 0..end {
            let copy = (&(*engine).copies)[thread].started[i];
            if (*engine).checks.is_some() {
                check(engine, copy.to.addr(), copy.bytes, Touch::Deliver, *site);
            }
            copy.to.copy_from_nonoverlapping(copy.from, copy.valid);
            copy.to.add(copy.valid).write_bytes(0, copy.bytes - copy.valid);
        }
        let copies = &mut (&mut (*engine).copies)[thread];
        copies.started.drain(..end);
        copies.groups.drain(..done);
        copies.groups.iter_mut().for_each(|group| *group -= end);
    }
}
