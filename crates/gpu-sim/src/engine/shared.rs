//! The shared memory of a block.

use super::abi::{EngineView, Site};
use super::state::{Engine, stop};
use crate::fault::Kind;
use crate::launch::{Limits, SHARED_LIMIT, STATIC_SHARED_LIMIT};
use memmap2::MmapMut;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;

/// Content of shared memory before a kernel has written to it: as f32, f16 and bf16 a NaN.
const POISON: u8 = 0xff;

/// First the dynamic part, then the variables in the order of their first use.
#[derive(Debug)]
pub(super) struct Shared {
    memory: MmapMut,
    dynamic: usize,
    limits: Limits,
    /// Bytes in use.
    used: usize,
    /// Address of each shared variable, null before its first use.
    variables: Vec<*mut c_void>,
    /// The ranges in use: offsets.
    ranges: Vec<Range<usize>>,
    /// Bytes between ranges, in checked mode, so that an access past one range does not hit the next.
    gap: usize,
}

const GAP: usize = 64;

impl Shared {
    pub(super) fn new() -> Result<Self, std::io::Error> {
        // The smallest variables need the most memory for gaps.
        let memory = MmapMut::map_anon(SHARED_LIMIT as usize + STATIC_SHARED_LIMIT as usize * (1 + GAP))?;
        Ok(Self {
            memory,
            dynamic: 0,
            limits: Limits::default(),
            used: 0,
            variables: Vec::new(),
            ranges: Vec::new(),
            gap: 0,
        })
    }

    /// Prepares it for a launch. Returns the address of the dynamic part.
    pub(super) fn begin(&mut self, dynamic: u32, variables: u32, limits: Limits) -> *mut c_void {
        self.limits = limits;
        self.dynamic = dynamic as usize;
        self.variables.clear();
        self.variables.resize(variables as usize, null_mut());
        self.memory.as_mut_ptr().cast()
    }

    pub(super) fn variables(&mut self) -> *mut *mut c_void {
        self.variables.as_mut_ptr()
    }

    pub(super) fn begin_block(&mut self, checked: bool) {
        self.memory[..self.dynamic].fill(POISON);
        self.used = self.dynamic;
        self.gap = if checked { GAP } else { 0 };
        self.ranges.clear();
        self.ranges.push(0..self.dynamic);
        self.variables.fill(null_mut());
    }

    /// Whether the bytes are in shared memory.
    pub(super) fn holds(&self, at: usize, bytes: usize) -> bool {
        let begin = self.memory.as_ptr().addr();
        begin <= at && at + bytes <= begin + self.memory.len()
    }

    /// For the checks.
    pub(super) fn checked(&self) -> crate::check::Shared<'_> {
        let begin = self.memory.as_ptr().addr();
        let bytes = self.memory.len();
        crate::check::Shared { begin, bytes, ranges: &self.ranges }
    }

    /// Allocates a variable; `None` if that is more than a block can have.
    fn place(&mut self, variable: u32, bytes: u32, align: u32) -> Option<*mut c_void> {
        let at = (self.used + self.gap).next_multiple_of((align as usize).max(16));
        let end = at + bytes as usize;
        let variables: usize = self.ranges[1..].iter().map(Range::len).sum::<usize>() + bytes as usize;
        if variables > self.limits.variables as usize || self.dynamic + variables > self.limits.shared as usize {
            return None;
        }
        self.ranges.push(at..end);
        self.memory[at..end].fill(POISON);
        self.used = end;
        let address = (&raw mut self.memory[at]).cast();
        self.variables[variable as usize] = address;
        Some(address)
    }
}

/// The hook: allocates a shared variable at its first use, and returns the address.
pub(super) unsafe extern "C" fn variable(
    view: *mut EngineView,
    variable: u32,
    bytes: u32,
    align: u32,
    site: *const Site,
) -> *mut c_void {
    let engine: *mut Engine = view.cast();
    // SAFETY: the view is the engine's first field; the site comes from `sim.h`.
    unsafe {
        if let Some(address) = (*engine).shared.place(variable, bytes, align) {
            return address;
        }
        let Limits { variables, shared } = (*engine).shared.limits;
        let message = format!(
            "a shared variable of {bytes} bytes does not fit: variables have {variables} bytes, with the dynamic part \
             {shared}"
        );
        (*engine).blame(Kind::Limit, message, *site);
        stop(engine)
    }
}
