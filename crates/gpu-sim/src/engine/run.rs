//! Runs a launch, and the hooks that kernels call.

use super::abi::{EngineView, Hooks, Site};
use super::state::{CURRENT, Engine, LaunchJob, stop};
use super::{block, copies, mbarrier, named_barrier, products, shared, tma, touch, warp_sync};
use crate::error::Error;
use crate::fault::Kind;
use std::ffi::{CStr, c_char};

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
    /// An engine without a launch.
    pub(crate) fn start() -> Result<Box<Self>, std::io::Error> {
        Self::new(&HOOKS)
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
