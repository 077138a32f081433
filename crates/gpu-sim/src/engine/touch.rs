//! The hook that precedes each access in checked mode.

use super::abi::{EngineView, Site};
use super::state::{Engine, stop};
use crate::check::{Actor, Touch, Who};
use std::ffi::c_void;

/// The hook: the running thread accesses memory other than its stack.
pub(super) unsafe extern "C" fn touch(
    view: *mut EngineView,
    at: *const c_void,
    bytes: u64,
    touch: u32,
    code: *const c_void,
) {
    let touch = match touch {
        0 => Touch::Read,
        1 => Touch::Write,
        2 => Touch::Atomic,
        3 => Touch::Constant,
        _ => Touch::AtomicWrite,
    };
    let engine: *mut Engine = view.cast();
    let at = at.addr();
    let bytes = bytes as usize;
    let site = Site { code, ..Site::NOWHERE };
    // SAFETY: the view is the engine's first field; `sim.h` calls this on a fibre.
    unsafe {
        match (*engine).stacks.hold(at) {
            true => super::products::touch_own(engine, at, bytes, touch, site),
            false => check(engine, at, bytes, touch, site),
        }
    }
}

/// The hook: the running thread has waited for earlier launches.
pub(super) unsafe extern "C" fn depend(view: *mut EngineView, site: *const Site) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field; the site comes from `sim.h`.
    unsafe {
        (*engine).pass(*site);
        let thread = (*engine).thread().view.linear;
        if let Some(checks) = &mut (*engine).checks {
            checks.depend(thread);
        }
    }
}

/// Ends the launch if an access of the running thread is a fault.
///
/// # Safety
/// Called on a fibre of the engine, with no reference to it.
pub(super) unsafe fn check(engine: *mut Engine, at: usize, bytes: usize, touch: Touch, site: Site) {
    // SAFETY: as the caller says.
    unsafe { check_for(engine, at, bytes, touch, None, site) }
}

/// The same for an asynchronous operation: its actor and beat.
///
/// # Safety
/// As for [`check`].
pub(super) unsafe fn check_for(
    engine: *mut Engine,
    at: usize,
    bytes: usize,
    touch: Touch,
    on_behalf_of: Option<(Actor, u32)>,
    site: Site,
) {
    // SAFETY: as the caller says.
    let this = unsafe { &mut *engine };
    let thread = this.thread().view.linear;
    let Some(checks) = &mut this.checks else { return };
    // Tables of constants are in the library itself.
    if matches!(touch, Touch::Read | Touch::Constant) && this.code.holds(at, bytes) {
        return;
    }
    let shared = this.shared.checked();
    let code = this.code.offset(site.code);
    let Err(wrong) = checks.touch(Who { thread, on_behalf_of, code }, at, bytes, touch, shared) else { return };
    let mut message = wrong.what;
    if let Some((other, code)) = wrong.earlier {
        let place = this.code.place(this.code.site(code));
        message += &match this.threads.get(usize::from(other)) {
            Some(other) => format!("; before: thread {:?} at {place}", other.view.index),
            // A product or a copy: their numbers are past those of all threads.
            None => format!("; started at {place}"),
        };
    }
    this.blame(wrong.kind, message, site);
    // SAFETY: as the caller says; `this` is not used any more.
    unsafe { stop(engine) }
}
