//! Asynchronous copies to shared memory that a barrier counts (PTX ISA, "cp.async.bulk"). The simulator delays a copy
//! until no thread can continue without it. With shuffled threads, some copies complete earlier at random.

use super::abi::{EngineView, Site};
use super::mbarrier::MOST;
use super::state::{Engine, refuse};
use super::touch::{check, check_for};
use crate::check::{COPIES, Touch, Who};
use crate::fault::Kind;
use crate::launch::Order;
use crate::tensor_map::TensorMap;
use std::ffi::c_void;

/// A copy in flight.
#[derive(Debug)]
pub(super) struct Bulk {
    to: *mut u8,
    bytes: usize,
    from: From,
    /// The barrier that counts it, by its index in the block.
    pub(super) barrier: usize,
    /// The thread that started the copy, and its source line.
    thread: u32,
    pub(super) site: Site,
}

#[derive(Debug)]
enum From {
    Line(*const u8),
    Tile { map: TensorMap, column: i32, row: i32 },
}

impl Engine {
    /// Completes one copy, if any is in flight: the first one, the last one, or any.
    pub(super) fn deliver(&mut self) -> bool {
        let at = match self.turns.order {
            _ if self.bulks.is_empty() => return false,
            Order::Ascending => 0,
            Order::Descending => self.bulks.len() - 1,
            Order::Shuffled(_) => self.turns.draw() as usize % self.bulks.len(),
        };
        let bulk = self.bulks.remove(at);
        // SAFETY: the kernel's author vouches for the addresses, as for those of any other access; in checked mode they
        // were looked at when the copy started.
        unsafe {
            match &bulk.from {
                From::Line(from) => bulk.to.copy_from_nonoverlapping(*from, bulk.bytes),
                From::Tile { map, column, row } => {
                    let memory = self.view.shared.addr();
                    let to = std::slice::from_raw_parts_mut(bulk.to, bulk.bytes);
                    let bytes = bulk.to.addr() - memory;
                    map.gather(*column, *row, bytes, to);
                }
            }
        }
        let barrier = &mut self.phases[bulk.barrier];
        barrier.bytes -= bulk.bytes as i64;
        if let Some(checks) = &mut self.checks {
            let actor = COPIES + bulk.barrier as u16;
            let code = self.code.offset(bulk.site.code);
            let who = Who { thread: bulk.thread, on_behalf_of: Some((actor, barrier.phase)), code };
            // It was looked at when it started, so nothing can be wrong now.
            let _ = checks.touch(who, bulk.to.addr(), bulk.bytes, Touch::AsyncDeliver, self.shared.checked());
        }
        self.end_phase(bulk.barrier);
        true
    }
}

/// Starts a copy: checks its target, its barrier and the memory that is `read`.
unsafe fn begin(engine: *mut Engine, bulk: Bulk, align: usize, read: &[(usize, usize)]) {
    let to = bulk.to.addr();
    let bytes = bulk.bytes;
    let site = bulk.site;
    let index = bulk.barrier;
    // SAFETY: called on a fibre with no other reference to the engine.
    unsafe {
        if !to.is_multiple_of(align) {
            refuse(engine, Kind::Misaligned, format!("a copy to {to:#x}, which is not aligned to {align} bytes"), site);
        }
        if !(*engine).shared.holds(to, bytes) {
            refuse(
                engine,
                Kind::OutOfBounds,
                format!("a copy of {bytes} bytes to {to:#x}, which is not in shared memory"),
                site,
            );
        }
        if bytes == 0 || bytes > MOST as usize {
            refuse(engine, Kind::Limit, format!("a copy of {bytes} bytes: from 1 to {MOST} are possible"), site);
        }
        let thread = bulk.thread;
        if let Some(checks) = &mut (*engine).checks {
            let (maker, beat) = (&(*engine).phases)[index].made;
            if !checks.fenced(thread, maker as u16, beat) {
                let message = "a copy to be counted at a barrier that was made without fence.proxy.async since";
                refuse(engine, Kind::Unfenced, message.to_owned(), site);
            }
            for &(at, bytes) in read {
                check(engine, at, bytes, Touch::Read, site);
            }
            let actor = (COPIES + index as u16, (&(*engine).phases)[index].phase);
            check_for(engine, to, bytes, Touch::AsyncBegin, Some(actor), site);
        }
        let bulks = &mut (*engine).bulks;
        bulks.push(bulk);
    }
}

/// The barrier that must count a copy.
unsafe fn barrier_of(engine: *mut Engine, barrier: *mut c_void, site: Site) -> usize {
    // SAFETY: called on a fibre with no other reference to the engine.
    unsafe {
        let Some(index) = (*engine).phases_at(barrier.addr()) else {
            refuse(engine, Kind::Phase, "a copy to be counted at a barrier that is not there".to_owned(), site)
        };
        check(engine, barrier.addr(), 8, Touch::BarrierUse, site);
        index
    }
}

/// The hook: copies some bytes.
pub(super) unsafe extern "C" fn bulk(
    view: *mut EngineView,
    to: *mut c_void,
    from: *const c_void,
    bytes: u32,
    barrier: *mut c_void,
    site: *const Site,
) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field; the site comes from `sim.h`.
    unsafe {
        let size = bytes as usize;
        if !from.addr().is_multiple_of(16) || !size.is_multiple_of(16) {
            let message = format!("a copy of {bytes} bytes from {from:p}: both must be multiples of 16");
            refuse(engine, Kind::Misaligned, message, *site);
        }
        let barrier = barrier_of(engine, barrier, *site);
        let thread = (*engine).thread().view.linear;
        let from_line = From::Line(from.cast());
        let copy = Bulk { to: to.cast(), bytes: size, from: from_line, barrier, thread, site: *site };
        begin(engine, copy, 16, &[(from.addr(), size)]);
    }
}

/// The hook: copies a tile of a matrix that a map describes.
pub(super) unsafe extern "C" fn tile(
    view: *mut EngineView,
    to: *mut c_void,
    map: *const c_void,
    column: i32,
    row: i32,
    barrier: *mut c_void,
    site: *const Site,
) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field; the site comes from `sim.h`, as does the address of 128 bytes.
    unsafe {
        let Some(map) = TensorMap::read(map.cast::<[u64; 16]>().read_unaligned()) else {
            refuse(engine, Kind::Undefined, "a copy by way of what is no tensor map".to_owned(), *site)
        };
        let barrier = barrier_of(engine, barrier, *site);
        let thread = (*engine).thread().view.linear;
        let read = map.reads(column, row);
        let bytes = map.tile_bytes();
        let from = From::Tile { map, column, row };
        begin(engine, Bulk { to: to.cast(), bytes, from, barrier, thread, site: *site }, 128, &read);
    }
}

/// The hook: a proxy fence. Accesses visible to the thread become visible to asynchronous copies and products.
pub(super) unsafe extern "C" fn fence_async(view: *mut EngineView, site: *const Site) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field; the site comes from `sim.h`.
    unsafe {
        (*engine).pass(*site);
        let thread = (*engine).thread().view.linear;
        let threads = (*engine).count();
        if let Some(checks) = &mut (*engine).checks {
            checks.keep_clocks(threads);
            checks.fence(thread);
        }
    }
}
