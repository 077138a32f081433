//! One block: how its threads are started, scheduled, blocked and finished.

use super::abi::{Site, ThreadView};
use super::fibre::{Stacks, switch};
use super::state::{CURRENT, Engine, LaunchJob, Thread};
use crate::check::Checks;
use crate::error::Error;
use crate::fault::{Fault, Kind};
use crate::launch::Order;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::{null, null_mut};

/// The order in which warps and lanes run.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) order: Order,
    /// The block's warps in their order, and the index of the running warp.
    warps: Vec<u32>,
    at: usize,
    random: u64,
}

impl Turns {
    fn begin(&mut self, order: Order, warps: usize) {
        self.order = order;
        self.warps.clear();
        self.warps.extend(0..warps as u32);
        match order {
            Order::Ascending => {}
            Order::Descending => self.warps.reverse(),
            Order::Shuffled(seed) => self.random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
        self.again();
    }

    /// Makes all warps ready, in order or shuffled.
    pub(super) fn again(&mut self) {
        self.at = 0;
        if let Order::Shuffled(_) = self.order {
            for i in (1..self.warps.len()).rev() {
                let j = self.draw() as usize % (i + 1);
                self.warps.swap(i, j);
            }
        }
    }

    /// Chooses one of the lanes whose bits are set.
    fn lane(&mut self, ready: u32) -> u32 {
        match self.order {
            Order::Ascending => ready.trailing_zeros(),
            Order::Descending => 31 - ready.leading_zeros(),
            Order::Shuffled(_) => {
                let turn = self.draw() as u32 % 32;
                (ready.rotate_right(turn).trailing_zeros() + turn) % 32
            }
        }
    }

    /// xorshift64*: a few steps between any two switches.
    pub(super) fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    }
}

/// The `at`-th block of a grid.
pub(super) fn index(order: Order, at: u64, blocks: u64, grid: [u32; 3]) -> [u32; 3] {
    let linear = match order {
        Order::Ascending => at,
        Order::Descending => blocks - 1 - at,
        Order::Shuffled(seed) => {
            // A step without a common divisor meets each block once.
            let mut step = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % blocks + 1;
            while gcd(step, blocks) != 1 {
                step += 1;
            }
            (u128::from(at) * u128::from(step) % u128::from(blocks)) as u64
        }
    };
    let (x, y) = (u64::from(grid[0]), u64::from(grid[1]));
    [(linear % x) as u32, (linear / x % y) as u32, (linear / (x * y)) as u32]
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Engine {
    /// Prepares the state that all blocks of a launch share.
    pub(super) fn begin(&mut self, job: &LaunchJob) -> Result<(), Error> {
        let [x, y, z] = job.block;
        let threads = x * y * z;
        self.entry = job.entry;
        self.arguments = job.arguments.as_ptr();
        self.view.grid = job.grid;
        self.view.block_size = job.block;
        self.fault = None;
        self.threads.clear();
        self.threads.extend((0..threads).map(|linear| Thread {
            view: ThreadView {
                index: [linear % x, linear / x % y, linear / (x * y)],
                linear,
                lane: linear % 32,
                warp: linear / 32,
            },
            pointer: null_mut(),
            stack: null_mut(),
            what: null(),
            site: Site::NOWHERE,
        }));
        self.warps.resize_with(threads.div_ceil(32) as usize, Default::default);
        self.turns.begin(job.order, self.warps.len());
        self.copies.resize_with(self.copies.len().max(threads as usize), Default::default);
        self.view.dynamic_shared = self.shared.begin(job.shared, job.variables, job.limits);
        self.view.variables = self.shared.variables();
        self.view.shared = self.view.dynamic_shared.cast();
        self.code = job.code.clone();
        self.checks = match job.checked {
            true => Some(
                Checks::new(self.checks.take(), job.buffers, threads as usize, job.overlaps).map_err(Error::Memory)?,
            ),
            false => None,
        };
        Ok(())
    }

    pub(super) fn begin_block(&mut self, index: [u32; 3]) {
        self.view.block = index;
        self.live = self.threads.len() as u32;
        for (warp, first) in self.warps.iter_mut().zip((0..).step_by(32)) {
            warp.begin((self.live - first).min(32));
        }
        self.barrier = Default::default();
        self.copying = false;
        self.begin_named();
        self.phases.clear();
        self.bulks.clear();
        self.begin_products();
        self.turns.again();
        self.shared.begin_block(self.checks.is_some());
        if let Some(checks) = &mut self.checks {
            checks.begin_block();
        }
    }

    /// The block's fault, if any.
    pub(super) fn end_block(&mut self) -> Option<Fault> {
        if self.fault.is_none() && self.live > 0 {
            self.fault = Some(self.stuck());
        }
        if self.fault.is_none()
            && let Some(bulk) = self.bulks.first()
        {
            let message = "the block has ended while a copy to its shared memory was on its way".to_owned();
            self.blame(Kind::InFlight, message, bulk.site);
        }
        if self.fault.is_none() && self.checks.as_ref().is_some_and(|checks| checks.never_waited()) {
            // A launch that waits for this one relies on its having waited for those before.
            let message =
                "a block that may overlap with launches before it has ended without dependency_wait".to_owned();
            self.blame(Kind::Early, message, Site::NOWHERE);
        }
        if self.fault.is_none()
            && let Some((message, site)) = self.products_missing()
        {
            self.blame(Kind::Divergence, message, site);
        }
        if self.fault.is_some() {
            // The fibres that did not end are given up: kernels own nothing that would have to be dropped.
            for thread in &mut self.threads {
                if !thread.stack.is_null() {
                    self.stacks.give(thread.stack);
                    thread.stack = null_mut();
                }
            }
            self.copies.iter_mut().for_each(|copies| copies.clear());
        }
        self.fault.take()
    }

    /// Describes a deadlock: the waiting threads and their source lines.
    fn stuck(&self) -> Fault {
        let waiting = || self.threads.iter().filter(|thread| !thread.stack.is_null());
        let mut places = BTreeMap::new();
        for thread in waiting() {
            // SAFETY: a waiting thread has set `what` to a C string of the kernel or of the runtime.
            let what = unsafe { CStr::from_ptr(thread.what) }.to_string_lossy();
            *places.entry((self.code.place(thread.site).to_string(), what)).or_insert(0) += 1;
        }
        let places: Vec<String> =
            places.iter().map(|((place, what), threads)| format!("{threads} at {what} ({place})")).collect();
        let message = format!(
            "threads wait for each other: {}; {} of {} have ended{}",
            places.join(", "),
            self.threads.len() as u32 - self.live,
            self.threads.len(),
            self.lacks()
        );
        let first = waiting().next().unwrap_or(&self.threads[0]);
        let place = self.code.place(first.site);
        Fault { kind: Kind::Deadlock, message, place, thread: first.view.index, block: self.view.block }
    }

    /// The next thread: a ready lane of the current warp, else of the next warp that has one. Clears its ready bit.
    pub(super) fn next(&mut self) -> Option<*mut Thread> {
        loop {
            // Now and then a copy comes early.
            if !self.bulks.is_empty()
                && matches!(self.turns.order, Order::Shuffled(_))
                && self.turns.draw().is_multiple_of(8)
            {
                self.deliver();
            }
            if let Some(next) = self.ready() {
                return Some(next);
            }
            if self.live == 0 || !self.deliver() {
                return None;
            }
        }
    }

    fn ready(&mut self) -> Option<*mut Thread> {
        for _ in 0..=self.warps.len() {
            let warp = self.turns.warps[self.turns.at] as usize;
            let ready = self.warps[warp].ready;
            if ready != 0 {
                let lane = self.turns.lane(ready);
                self.warps[warp].ready &= !(1 << lane);
                return Some(&raw mut self.threads[warp * 32 + lane as usize]);
            }
            self.turns.at = (self.turns.at + 1) % self.turns.warps.len();
        }
        None
    }
}

/// Runs threads until none can continue. Called by the host.
///
/// # Safety
/// The engine is ready for a block, and nothing holds a reference to it.
pub(super) unsafe fn run(engine: *mut Engine) {
    // SAFETY: as the caller says.
    unsafe {
        if let Some(next) = (*engine).next() {
            let save = &raw mut (*engine).host;
            resume(engine, save, next);
        }
    }
}

/// Runs other threads until this thread is ready again.
///
/// # Safety
/// Called on a fibre, with no reference to the engine.
pub(super) unsafe fn suspend(engine: *mut Engine) {
    // SAFETY: as the caller says.
    unsafe {
        let this: *mut Thread = (*engine).thread();
        match (*engine).next() {
            Some(next) if next == this => {}
            Some(next) => resume(engine, &raw mut (*this).pointer, next),
            None => switch(&raw mut (*this).pointer, (*engine).host),
        }
    }
}

/// Saves the caller's state to `save`, and starts or resumes `next`.
unsafe fn resume(engine: *mut Engine, save: *mut *mut u8, next: *mut Thread) {
    // SAFETY: the engine's own threads; one that has started left its stack by `switch`, and does so once.
    unsafe {
        if (*next).pointer.is_null() {
            let stack = (*engine).stacks.take();
            (*next).stack = stack;
            (*next).pointer = Stacks::prepare(stack, thread);
        }
        (*engine).view.thread = next.cast();
        switch(save, (*next).pointer);
    }
}

/// A fibre's main: runs its thread, then threads that have not started, as long as they are scheduled.
extern "sysv64" fn thread() -> ! {
    let engine = CURRENT.get();
    // SAFETY: fibres run only while the engine of this host thread runs a block. No reference is held at the switches.
    unsafe {
        loop {
            let this: *mut Thread = (*engine).thread();
            ((*engine).entry)((*engine).arguments);
            super::warp_sync::leave(engine);
            let stack = (*this).stack;
            (*this).stack = null_mut();
            (*this).pointer = null_mut();
            let to = match (*engine).next() {
                Some(next) => {
                    (*engine).view.thread = next.cast();
                    if (*next).pointer.is_null() {
                        (*next).stack = stack;
                        continue;
                    }
                    (*next).pointer
                }
                None => (*engine).host,
            };
            (*engine).stacks.give(stack);
            let mut never = null_mut();
            switch(&mut never, to);
        }
    }
}
