//! The hook before each access of a checked text.

use super::abi::{EngineView, Site};
use super::{Engine, stop};
use crate::check::{Shared, Touch, Who};
use std::ffi::c_void;

/// The hook: the thread that runs touches memory that is not its own.
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
        _ => Touch::Atomic,
    };
    // SAFETY: the view is the engine's first field; `sim.h` calls this on a fibre.
    unsafe { check(view.cast(), at.addr(), bytes as usize, touch, Site { code, ..Site::NOWHERE }) }
}

/// Ends the launch if the thread that runs must not touch some memory now.
///
/// # Safety
/// Called on a fibre of the engine, with no reference to it.
pub(super) unsafe fn check(engine: *mut Engine, at: usize, bytes: usize, touch: Touch, site: Site) {
    // SAFETY: as the caller says.
    let this = unsafe { &mut *engine };
    let thread = this.thread().view.linear;
    let Some(checks) = &mut this.checks else { return };
    // Tables of constants lie in the library itself.
    if touch == Touch::Read && this.code.holds(at, bytes) {
        return;
    }
    let (begin, size, stretches) = this.shared.stretches();
    let shared = Shared { begin: begin.addr(), bytes: size, stretches };
    let code = this.code.offset(site.code);
    let Err(wrong) = checks.touch(Who { thread, code }, at, bytes, touch, shared) else { return };
    let mut message = wrong.what;
    if let Some((other, code)) = wrong.earlier {
        let other = this.threads[other as usize].view.index;
        message += &format!("; before: thread {other:?} at {}", this.code.place(this.code.site(code)));
    }
    this.blame(wrong.kind, message, site);
    // SAFETY: as the caller says; `this` is not used any more.
    unsafe { stop(engine) }
}
