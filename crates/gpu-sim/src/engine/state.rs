//! The state of the launch that runs.

use super::abi::{EngineView, Entry, Hooks, Site, ThreadView};
use super::block::Turns;
use super::copies::Copies;
use super::fibre::{Stacks, switch};
use super::mbarrier::Mbarrier;
use super::named_barrier::{self, Named};
use super::products::Progress;
use super::shared::Shared;
use super::tma::Bulk;
use super::warp_sync::{Barrier, Warp};
use crate::check::{Buffer, Checks};
use crate::code::Code;
use crate::fault::{Fault, Kind};
use crate::launch::{Limits, Order};
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// A thread of the block that runs.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Thread {
    pub(super) view: ThreadView,
    /// The saved stack pointer; null before it has started.
    pub(super) pointer: *mut u8,
    /// Its stack, null if it has none.
    pub(super) stack: *mut u8,
    /// The reason and source line of its wait, for messages.
    pub(super) what: *const c_char,
    pub(super) site: Site,
}

/// The work of one launch.
#[derive(Debug)]
pub(crate) struct LaunchJob<'a> {
    pub(crate) entry: Entry,
    /// Passes the engine of this host thread to the compiled source.
    pub(crate) enter: unsafe extern "C" fn(*mut EngineView),
    pub(crate) arguments: &'a [*const c_void],
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    /// Shared variables of the whole source.
    pub(crate) variables: u32,
    /// Limits of shared memory.
    pub(crate) limits: Limits,
    pub(crate) order: Order,
    /// Finds source lines.
    pub(crate) code: &'a Arc<Code>,
    /// Whether the launch can overlap earlier launches.
    pub(crate) overlaps: bool,
    /// In checked mode: kernels call a hook before each access, and these are the buffers among the arguments.
    pub(crate) checked: bool,
    pub(crate) buffers: &'a [Buffer],
}

/// The state of the launch that this host thread runs. It is reused for the next launch, with its stacks.
#[repr(C)]
pub(crate) struct Engine {
    /// First, because kernels see it.
    pub(super) view: EngineView,
    /// The host's saved stack pointer, which continues when no thread can.
    pub(super) host: *mut u8,
    pub(super) entry: Entry,
    pub(super) arguments: *const *const c_void,
    pub(super) threads: Vec<Thread>,
    /// Threads that have not ended.
    pub(super) live: u32,
    pub(super) warps: Vec<Warp>,
    pub(super) barrier: Barrier,
    pub(super) turns: Turns,
    pub(super) stacks: Stacks,
    pub(super) shared: Shared,
    pub(super) copies: Vec<Copies>,
    /// Whether a thread of the block has started a copy.
    pub(super) copying: bool,
    /// Barriers of some warps, those in shared memory, the copies that they count, products of each warp.
    pub(super) named: [Named; named_barrier::COUNT],
    pub(super) phases: Vec<Mbarrier>,
    pub(super) bulks: Vec<Bulk>,
    pub(super) products: Vec<Progress>,
    pub(super) code: Arc<Code>,
    /// The checks of checked mode.
    pub(super) checks: Option<Box<Checks>>,
    /// In checked mode: the return addresses of calls that wait, and the last of them.
    pub(super) passed: HashSet<usize>,
    pub(super) last_passed: usize,
    pub(super) fault: Option<Fault>,
}

thread_local! {
    pub(super) static CURRENT: Cell<*mut Engine> = const { Cell::new(null_mut()) };
}

impl Engine {
    pub(super) fn new(hooks: &'static Hooks) -> Result<Box<Self>, std::io::Error> {
        unsafe extern "C" fn nothing(_: *const *const c_void) {}
        let stacks = Stacks::new()?;
        Ok(Box::new(Self {
            view: EngineView {
                thread: null_mut(),
                hooks,
                variables: null_mut(),
                dynamic_shared: null_mut(),
                block: [0; 3],
                block_size: [0; 3],
                grid: [0; 3],
                stacks: stacks.memory().as_ptr(),
                stack_bytes: stacks.memory().len() as u64,
                watched: 0,
                shared: null(),
            },
            host: null_mut(),
            entry: nothing,
            arguments: null(),
            threads: Vec::new(),
            live: 0,
            warps: Vec::new(),
            barrier: Barrier::default(),
            turns: Turns::default(),
            stacks,
            shared: Shared::new()?,
            copies: Vec::new(),
            copying: false,
            named: Default::default(),
            phases: Vec::new(),
            bulks: Vec::new(),
            products: Vec::new(),
            code: Arc::default(),
            checks: None,
            passed: HashSet::new(),
            last_passed: 0,
            fault: None,
        }))
    }

    /// The thread that runs now.
    pub(super) fn thread(&mut self) -> &mut Thread {
        // SAFETY: the view's thread is one of `threads`, of which it is the first field; they do not move in a launch.
        unsafe { &mut *self.view.thread.cast::<Thread>() }
    }

    /// Records a source line at which a thread waits.
    pub(super) fn pass(&mut self, site: Site) {
        let address = site.code.addr();
        // Lane after lane comes to the same place.
        if self.checks.is_some() && self.last_passed != address {
            self.passed.insert(address);
            self.last_passed = address;
        }
    }

    /// How many threads the block has.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Keeps the first fault, of the running thread.
    pub(super) fn blame(&mut self, kind: Kind, message: String, site: Site) {
        let thread = self.thread().view.index;
        let block = self.view.block;
        if self.fault.is_none() {
            self.fault = Some(Fault { kind, message, place: self.code.place(site), thread, block });
        }
    }
}

/// Ends the launch: no thread continues.
///
/// # Safety
/// Called on a fibre of the engine.
pub(super) unsafe fn stop(engine: *mut Engine) -> ! {
    let mut never = null_mut();
    // SAFETY: the host waits in `block::run`; this fibre is given up.
    unsafe { switch(&mut never, (*engine).host) };
    unreachable!("a fibre that was given up went on")
}

/// Ends the launch with a fault of the running thread.
///
/// # Safety
/// Called on a fibre of the engine, with no reference to it.
pub(super) unsafe fn refuse(engine: *mut Engine, kind: Kind, message: String, site: Site) -> ! {
    // SAFETY: as the caller says.
    unsafe {
        (*engine).blame(kind, message, site);
        stop(engine)
    }
}
