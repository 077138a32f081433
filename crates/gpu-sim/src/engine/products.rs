//! Asynchronous matrix products of four warps (PTX ISA, "Asynchronous warpgroup level matrix instructions"). The
//! simulator delays a product until a wait covers it, so a missing wait exposes the old sums. Each warp starts its own
//! part (16 rows of a and all of b) and waits for that part only. The wait does not cover the reads of other warps.

use super::abi::{EngineView, Product, Site};
use super::state::{Engine, refuse};
use super::touch::check_for;
use crate::check::{Actor, PRODUCTS, Touch};
use crate::fault::Kind;
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a row of a and b that one product reads.
const ROW: usize = 32;
/// Columns of a column-major b that a product reads, and bytes of an element.
const DEPTH: usize = 16;
const ELEMENT: usize = 2;

/// A warp's products, numbered from the start of the block.
#[derive(Debug, Default)]
pub(super) struct Progress {
    started: usize,
    /// The end of each group in flight.
    groups: Vec<usize>,
    /// Products in flight.
    under_way: VecDeque<(Product, Site)>,
    /// All its products, for comparison with the other three warps.
    told: Vec<(Told, Site)>,
    /// Whether it has executed a fence.
    fenced: bool,
    /// Each lane's accesses to its local memory since then: start, end, whether it wrote.
    touched: [Vec<(usize, usize, bool)>; 32],
}

/// Properties that must be equal in the parts of four warps: the product, the descriptors, whether it accumulates, the
/// layout of b.
type Told = (usize, u64, u64, u32, u32);

fn told(product: &Product) -> Told {
    (product.compute as usize, product.a, product.b, product.accumulate, product.by_columns)
}

/// A matrix in shared memory (PTX ISA, "Matrix Descriptor Format" and "Strides"): rows of 32 bytes, or by columns 16
/// rows of the transpose. Without a swizzle, in pieces of 8 rows of 16 bytes; with one, in rows of 32, 64 or 128 bytes,
/// 8 of them at a time.
#[derive(Clone, Copy, Debug)]
struct Matrix {
    start: usize,
    /// From 16 bytes of a row to the next 16; and from 8 rows to the next 8. By columns without a swizzle the other way
    /// round, with one from this number of bytes of a row as it has to the next.
    leading: usize,
    stride: usize,
    /// Bytes of the swizzle, 0 for none.
    swizzle: usize,
}

impl Matrix {
    fn read(descriptor: u64) -> Result<Self, String> {
        let field = |shift: u32| (descriptor >> shift & 0x3fff) as usize * 16;
        let swizzle = [0, 128, 64, 32][(descriptor >> 62) as usize];
        let matrix = Self { start: field(0), leading: field(16), stride: field(32), swizzle };
        // The field for patterns that start elsewhere is not known here.
        let pattern = 8 * swizzle;
        let begins =
            swizzle == 0 || (matrix.start / 128).is_multiple_of(swizzle / 16) && matrix.stride.is_multiple_of(pattern);
        match begins && descriptor >> 49 & 7 == 0 {
            true => Ok(matrix),
            false => Err(format!("an operand whose swizzle does not begin at a multiple of {pattern} bytes")),
        }
    }

    /// Offset of 16 bytes of a row: its first or second half.
    fn place(&self, row: usize, half: usize) -> usize {
        let group = self.start + row / 8 * self.stride;
        match self.swizzle {
            0 => group + half * self.leading + row % 8 * 16,
            bytes => self.swizzled(group + row % 8 * bytes + half * 16),
        }
    }

    /// The same by columns: 16 bytes of a row of the transpose, `unit` of them after its first.
    fn place_by_columns(&self, row: usize, unit: usize) -> usize {
        match self.swizzle {
            0 => self.start + row / 8 * self.leading + unit * self.stride + row % 8 * 16,
            bytes => {
                let units = bytes / 16;
                let group = self.start + row / 8 * self.stride + unit / units * self.leading;
                self.swizzled(group + row % 8 * bytes + unit % units * 16)
            }
        }
    }

    fn swizzled(&self, at: usize) -> usize {
        at ^ (at >> 7 & (self.swizzle / 16 - 1)) << 4
    }

    /// All 16 bytes of some rows that a product reads, in order; by columns, `rows` are those of the matrix still.
    fn places(self, rows: Range<usize>, by_columns: bool) -> Box<dyn Iterator<Item = usize>> {
        if by_columns {
            let units = rows.start * ELEMENT / 16..rows.end * ELEMENT / 16;
            Box::new((0..DEPTH).flat_map(move |row| units.clone().map(move |unit| self.place_by_columns(row, unit))))
        } else {
            Box::new(rows.flat_map(move |row| [0, 1].map(|half| self.place(row, half))))
        }
    }
}

/// Rows of 16 elements of a matrix of which these are the 16 rows of its transpose.
fn transposed(rows: &[u8], columns: usize) -> Vec<u8> {
    let element = |i: usize| &rows[(i % DEPTH * columns + i / DEPTH) * ELEMENT..][..ELEMENT];
    (0..columns * DEPTH).flat_map(element).copied().collect()
}

fn overlap(a: usize, bytes: usize, from: usize, to: usize) -> bool {
    a < to && from < a + bytes
}

impl Engine {
    /// Checks a warp's next product. Returns the fault if it must not start.
    fn refuse_product(&self, warp: usize, product: &Product, site: Site) -> Option<(Kind, String)> {
        if self.threads.len() < (warp / 4 + 1) * 128 {
            return Some((Kind::Collective, "a product needs four warps, the first a multiple of 4".to_owned()));
        }
        let own = &self.products[warp];
        for other in &self.products[warp / 4 * 4..warp / 4 * 4 + 4] {
            let Some((theirs, at)) = other.told.get(own.started) else { continue };
            if *theirs != told(product) || self.checks.is_some() && !self.code.same(*at, site) {
                let place = self.code.place(*at);
                let what =
                    format!("product {} of this warp is another than that of a warp beside it at {place}", own.started);
                return Some((Kind::Divergence, what));
            }
        }
        if self.checks.is_some() && !own.fenced {
            return Some((Kind::Unfenced, "the first product of a warp, without wgmma.fence before".to_owned()));
        }
        for lane in 0..32 {
            let (d, a) = (product.d[lane].addr(), product.registers[lane].addr());
            let d_bytes = product.columns as usize * 2;
            let touches_d = |&(from, to, _): &(usize, usize, bool)| overlap(d, d_bytes, from, to);
            let writes_a = |&(from, to, write): &(usize, usize, bool)| {
                product.from_registers != 0 && write && overlap(a, 16, from, to)
            };
            if own.touched[lane].iter().any(|touched| touches_d(touched) || writes_a(touched)) {
                let what = format!("a product whose registers lane {lane} has touched without wgmma.fence since");
                return Some((Kind::Unfenced, what));
            }
        }
        None
    }

    /// Computes a warp's oldest product in flight.
    unsafe fn compute(&mut self, warp: usize) {
        let Some((product, _)) = self.products[warp].under_way.pop_front() else { return };
        let columns = product.columns as usize;
        let mut a = vec![0_u8; 16 * ROW];
        let mut b = vec![0_u8; columns * ROW];
        let fetch = |descriptor: u64, rows: Range<usize>, by_columns: bool, to: &mut [u8]| {
            let Ok(matrix) = Matrix::read(descriptor) else { return };
            for (piece, place) in to.chunks_mut(16).zip(matrix.places(rows, by_columns)) {
                let at = self.view.shared.wrapping_add(place);
                // SAFETY: it was looked at when the product began.
                piece.copy_from_slice(unsafe { std::slice::from_raw_parts(at, 16) });
            }
        };
        fetch(product.b, 0..columns, product.by_columns != 0, &mut b);
        if product.by_columns != 0 {
            b = transposed(&b, columns);
        }
        match product.from_registers {
            0 => fetch(product.a, warp % 4 * 16..warp % 4 * 16 + 16, false, &mut a),
            _ => spread(&product.fragments, &mut a),
        }
        // SAFETY: the kernel's own function, with sums of 32 threads that have not ended: that would have been a fault.
        unsafe { (product.compute)(product.d.as_ptr(), a.as_ptr(), b.as_ptr(), product.columns, product.accumulate) };
    }

    /// Whether a warp has products in flight.
    pub(super) fn multiplies(&self, warp: usize) -> bool {
        !self.products[warp].under_way.is_empty()
    }

    /// At the end of the block: the fault if a warp has started fewer products than the other three.
    pub(super) fn products_missing(&self) -> Option<(String, Site)> {
        self.products.chunks(4).find_map(|four| {
            let most = four.iter().max_by_key(|warp| warp.started)?;
            let least = four.iter().min_by_key(|warp| warp.started)?;
            let (_, site) = most.told.get(least.started)?;
            let [least, most] = [least, most].map(|warp| warp.started);
            Some((format!("a warp has started {least} products of four warps, one beside it {most}"), *site))
        })
    }

    pub(super) fn begin_products(&mut self) {
        // A block is started often, and has seldom any.
        let used = self.products.iter_mut().filter(|own| own.fenced || own.started > 0);
        used.for_each(|own| *own = Progress::default());
        self.products.resize_with(self.warps.len(), Progress::default);
        self.view.watched = 0;
    }
}

/// Puts the fragments of a of one warp into rows: register i of a lane holds 4 bytes of row g + 8 (i % 2), in half i /
/// 2 (PTX ISA, "Register Fragments" of wgmma; g = lane / 4).
fn spread(fragments: &[[u32; 4]; 32], rows: &mut [u8]) {
    for (lane, registers) in fragments.iter().enumerate() {
        for (i, register) in registers.iter().enumerate() {
            let at = (lane / 4 + 8 * (i % 2)) * ROW + 16 * (i / 2) + 4 * (lane % 4);
            rows[at..at + 4].copy_from_slice(&register.to_le_bytes());
        }
    }
}

/// The hook: starts a warp's part of a product.
pub(super) unsafe extern "C" fn product(view: *mut EngineView, product: *const Product, site: *const Site) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field, the rest comes from the kernel; called on a fibre.
    unsafe {
        let product = (*product).clone();
        let site = *site;
        let warp = (*engine).thread().view.warp as usize;
        if let Some((kind, message)) = (*engine).refuse_product(warp, &product, site) {
            refuse(engine, kind, message, site);
        }
        let threads = (*engine).count();
        if let Some(checks) = &mut (*engine).checks {
            checks.keep_clocks(threads);
        }
        let actor = (PRODUCTS + warp as Actor, (&(*engine).products)[warp].started as u32);
        let a_rows = if product.from_registers == 0 { warp % 4 * 16..warp % 4 * 16 + 16 } else { 0..0 };
        let b_rows = 0..product.columns as usize;
        for (descriptor, rows, by_columns) in [(product.a, a_rows, false), (product.b, b_rows, product.by_columns != 0)]
        {
            let matrix =
                Matrix::read(descriptor).unwrap_or_else(|message| refuse(engine, Kind::Misaligned, message, site));
            for (i, place) in matrix.places(rows, by_columns).enumerate() {
                let at = (*engine).view.shared.addr() + place;
                if !(*engine).shared.holds(at, 16) {
                    let message = format!("16 bytes of an operand, number {i}, are outside of shared memory");
                    refuse(engine, Kind::OutOfBounds, message, site);
                }
                check_for(engine, at, 16, Touch::AsyncRead, Some(actor), site);
            }
        }
        let own = &mut (&mut (*engine).products)[warp];
        own.started += 1;
        own.told.push((told(&product), site));
        own.under_way.push_back((product, site));
    }
}

/// The hook: a warp's registers are ready for products.
pub(super) unsafe extern "C" fn product_fence(view: *mut EngineView) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field.
    unsafe {
        let warp = (*engine).thread().view.warp as usize;
        (*engine).view.watched = u32::from((*engine).checks.is_some());
        let own = &mut (&mut (*engine).products)[warp];
        own.fenced = true;
        own.touched.iter_mut().for_each(Vec::clear);
    }
}

/// The hook: commits a warp's products since the last group as a group.
pub(super) unsafe extern "C" fn product_commit(view: *mut EngineView) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field.
    unsafe {
        let warp = (*engine).thread().view.warp as usize;
        let own = &mut (&mut (*engine).products)[warp];
        own.groups.push(own.started);
    }
}

/// The hook: completes all groups of the thread's warp except the last `left`. Each lane calls it after a
/// synchronisation of the warp.
pub(super) unsafe extern "C" fn product_wait(view: *mut EngineView, left: u32, site: *const Site) {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field; called on a fibre.
    unsafe {
        (*engine).pass(*site);
        let view = (*engine).thread().view;
        let thread = view.linear;
        let warp = view.warp as usize;
        let own = &mut (&mut (*engine).products)[warp];
        let ended = own.groups.len().saturating_sub(left as usize);
        let end = own.groups.drain(..ended).next_back().unwrap_or(0);
        while (&(*engine).products)[warp].under_way.len() + end > (&(*engine).products)[warp].started {
            (*engine).compute(warp);
        }
        let own = &(&(*engine).products)[warp];
        let done = (own.started - own.under_way.len()) as u32;
        if let Some(checks) = &mut (*engine).checks {
            checks.learn(thread, PRODUCTS + warp as Actor, done);
        }
    }
}

/// Records an access of a thread to its local memory while products are in use.
///
/// # Safety
/// Called on a fibre of the engine, with no reference to it.
pub(super) unsafe fn touch_own(engine: *mut Engine, at: usize, bytes: usize, touch: Touch, site: Site) {
    // SAFETY: as the caller says.
    unsafe {
        let view = (*engine).thread().view;
        let warp = view.warp as usize;
        let lane = view.lane as usize;
        let write = touch != Touch::Read;
        let own = &mut (&mut (*engine).products)[warp];
        for (product, started_at) in &own.under_way {
            let d = product.d[lane].addr();
            let of_d = overlap(at, bytes, d, d + product.columns as usize * 2);
            let a = product.registers[lane].addr();
            if of_d || write && product.from_registers != 0 && overlap(at, bytes, a, a + 16) {
                let place = (*engine).code.place(*started_at);
                let what = if of_d { "sums" } else { "operands" };
                let message = format!("touches {what} of a product that was not waited for, started at {place}");
                refuse(engine, Kind::InFlight, message, site);
            }
        }
        let touched = &mut own.touched[lane];
        let seen = |&&mut (from, to, wrote): &&mut (usize, usize, bool)| wrote == write && from <= at && at <= to;
        match touched.iter_mut().find(seen) {
            Some((_, to, _)) => *to = (*to).max(at + bytes),
            None => touched.push((at, at + bytes, write)),
        }
    }
}
