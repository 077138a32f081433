//! Runs the blocks of a launch, one after another, with each thread of a block as a fibre. It is independent of CUDA
//! and Metal.
//!
//! A thread runs until it waits for lanes of its warp (`converge`), for threads of its block (`barrier`, `named_barrier`), or for a
//! phase of a barrier in shared memory (`mbarrier`). Then the next ready thread runs. If no thread is ready, an
//! asynchronous copy completes (`tma`). A new thread reuses the stack of a finished thread, so a kernel without
//! barriers is a loop on one stack.
//!
//! Several fibres access the engine through one pointer. Invariant: no reference into the engine lives across a switch.

pub(crate) mod abi;
mod block;
mod copies;
mod fibre;
mod mbarrier;
mod named_barrier;
mod products;
mod shared;
mod tma;
mod touch;
mod warp_sync;

pub(crate) use abi::{EngineView, Entry, KernelView};

use crate::check::{Buffer, Checks};
use crate::code::Code;
use crate::error::Error;
use crate::fault::{Fault, Kind};
use crate::launch::{Limits, Order};
use abi::{Hooks, Site, ThreadView};
use copies::Copies;
use fibre::{Stacks, switch};
use mbarrier::Mbarrier;
use named_barrier::Named;
use products::Progress;
use shared::Shared;
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use tma::Bulk;
use warp_sync::{Barrier, Warp};

/// A thread of the block that runs.
#[derive(Debug)]
#[repr(C)]
struct Thread {
    view: ThreadView,
    /// The saved stack pointer; null before it has started.
    pointer: *mut u8,
    /// Its stack, null if it has none.
    stack: *mut u8,
    /// The reason and source line of its wait, for messages.
    what: *const c_char,
    site: Site,
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
    view: EngineView,
    /// The host's saved stack pointer, which continues when no thread can.
    host: *mut u8,
    entry: Entry,
    arguments: *const *const c_void,
    threads: Vec<Thread>,
    /// Threads that have not ended.
    live: u32,
    warps: Vec<Warp>,
    barrier: Barrier,
    turns: block::Turns,
    stacks: Stacks,
    shared: Shared,
    copies: Vec<Copies>,
    /// Whether a thread of the block has started a copy.
    copying: bool,
    /// Barriers of some warps, those in shared memory, the copies that they count, products of each warp.
    named: [Named; named_barrier::COUNT],
    phases: Vec<Mbarrier>,
    bulks: Vec<Bulk>,
    products: Vec<Progress>,
    code: Arc<Code>,
    /// The checks of checked mode.
    checks: Option<Box<Checks>>,
    /// In checked mode: the return addresses of calls that wait, and the last of them.
    passed: HashSet<usize>,
    last_passed: usize,
    fault: Option<Fault>,
}

thread_local! {
    static CURRENT: Cell<*mut Engine> = const { Cell::new(null_mut()) };
}

static HOOKS: Hooks = Hooks {
    converge: warp_sync::converge,
    barrier: warp_sync::barrier,
    shared: shared::variable,
    copy: copies::copy,
    commit: copies::commit,
    wait: copies::wait,
    named: named_barrier::named,
    phase: mbarrier::phase,
    bulk: tma::bulk,
    tile: tma::tile,
    fence_async: tma::fence_async,
    product: products::product,
    product_fence: products::product_fence,
    product_commit: products::product_commit,
    product_wait: products::product_wait,
    depend: touch::depend,
    touch: touch::touch,
    fail,
};

impl Engine {
    pub(crate) fn new() -> Result<Box<Self>, std::io::Error> {
        unsafe extern "C" fn nothing(_: *const *const c_void) {}
        let stacks = Stacks::new()?;
        Ok(Box::new(Self {
            view: EngineView {
                thread: null_mut(),
                hooks: &HOOKS,
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
            turns: block::Turns::default(),
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

    /// Runs a launch to its end or to its first fault.
    ///
    /// # Safety
    /// `job` has the arguments that its kernel takes, and the kernel may touch what they point to.
    pub(crate) unsafe fn run(&mut self, job: &LaunchJob) -> Result<(), Error> {
        self.begin(job)?;
        // SAFETY: as the caller says.
        let result = unsafe { self.run_blocks(job) };
        job.code.pass(self.passed.drain());
        self.last_passed = 0;
        result
    }

    /// # Safety
    /// As for `run`, which has started.
    unsafe fn run_blocks(&mut self, job: &LaunchJob) -> Result<(), Error> {
        let this: *mut Self = self;
        CURRENT.set(this);
        let blocks = u64::from(job.grid[0]) * u64::from(job.grid[1]) * u64::from(job.grid[2]);
        for at in 0..blocks {
            // SAFETY: nothing else holds a reference to the engine. Fibres run only inside of `block::run`.
            unsafe {
                (job.enter)(this.cast());
                (*this).begin_block(block::index(job.order, at, blocks, job.grid));
                block::run(this);
                if let Some(fault) = (*this).end_block() {
                    return Err(Error::Fault(Box::new(fault)));
                }
            }
        }
        Ok(())
    }

    /// The thread that runs now.
    fn thread(&mut self) -> &mut Thread {
        // SAFETY: the view's thread is one of `threads`, of which it is the first field; they do not move in a launch.
        unsafe { &mut *self.view.thread.cast::<Thread>() }
    }

    /// Records a source line at which a thread waits.
    fn pass(&mut self, site: Site) {
        let address = site.code.addr();
        // Lane after lane comes to the same place.
        if self.checks.is_some() && self.last_passed != address {
            self.passed.insert(address);
            self.last_passed = address;
        }
    }

    /// How many threads the block has.
    fn count(&self) -> usize {
        self.threads.len()
    }

    /// Keeps the first fault, of the running thread.
    fn blame(&mut self, kind: Kind, message: String, site: Site) {
        let (thread, block) = (self.thread().view.index, self.view.block);
        if self.fault.is_none() {
            self.fault = Some(Fault { kind, message, place: self.code.place(site), thread, block });
        }
    }
}

/// Ends the launch: no thread continues.
///
/// # Safety
/// Called on a fibre of the engine.
unsafe fn stop(engine: *mut Engine) -> ! {
    let mut never = null_mut();
    // SAFETY: the host waits in `block::run`; this fibre is given up.
    unsafe { switch(&mut never, (*engine).host) };
    unreachable!("a fibre that was given up went on")
}

/// Ends the launch with a fault of the running thread.
///
/// # Safety
/// Called on a fibre of the engine, with no reference to it.
unsafe fn refuse(engine: *mut Engine, kind: Kind, message: String, site: Site) -> ! {
    // SAFETY: as the caller says.
    unsafe {
        (*engine).blame(kind, message, site);
        stop(engine)
    }
}

/// The hook with which a kernel reports a fault.
unsafe extern "C" fn fail(view: *mut EngineView, kind: u32, message: *const c_char, site: *const Site) -> ! {
    let engine: *mut Engine = view.cast();
    let kind = match kind {
        1 => Kind::Misaligned,
        2 => Kind::OutOfBounds,
        3 => Kind::Undefined,
        _ => Kind::Collective,
    };
    // SAFETY: the view is the engine's first field; the kernel's messages are C strings.
    unsafe {
        let message = CStr::from_ptr(message).to_string_lossy().into_owned();
        (*engine).blame(kind, message, *site);
        stop(engine)
    }
}
