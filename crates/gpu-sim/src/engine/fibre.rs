//! Fibres: separate stacks; a host thread switches between them.

use memmap2::{MmapMut, MmapOptions};
use std::arch::naked_asm;

/// Bytes of a stack. Only pages that are used take memory. The compiler refuses kernels with larger frames.
pub(crate) const STACK: usize = 256 << 10;
/// Distance of two stacks. With a power of two, the used parts of all stacks would share a few cache sets. With 71
/// lines more, the stacks of a block fit into the L2 cache.
const STRIDE: usize = STACK + 71 * 64;
/// Threads of a block, at most.
const THREADS: usize = 1_024;

/// Saves the callee-saved registers and the stack pointer to `save`, and continues where `to` was saved.
///
/// # Safety
/// `to` was saved by this function or made by [`Stacks::prepare`], and is used once.
#[unsafe(naked)]
pub(crate) unsafe extern "sysv64" fn switch(save: *mut *mut u8, to: *mut u8) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// A pool of stacks: one for each thread of the largest block.
#[derive(Debug)]
pub(crate) struct Stacks {
    memory: MmapMut,
    /// Highest addresses of the unused stacks.
    free: Vec<*mut u8>,
}

impl Stacks {
    pub(crate) fn new() -> Result<Self, std::io::Error> {
        let mut memory = MmapOptions::new().len(THREADS * STRIDE).no_reserve_swap().map_anon()?;
        let free = (0..THREADS).rev().map(|i| &raw mut memory[(i + 1) * STRIDE - 64]).collect();
        Ok(Self { memory, free })
    }

    /// The memory of all stacks.
    pub(crate) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Whether an address is on a stack.
    pub(crate) fn hold(&self, at: usize) -> bool {
        self.memory.as_ptr_range().contains(&std::ptr::without_provenance(at))
    }

    /// A stack: its highest address, aligned to 16 bytes.
    pub(crate) fn take(&mut self) -> *mut u8 {
        self.free.pop().expect("there is a stack for each thread of the largest block")
    }

    /// Returns a stack. Its owner may run on it until it switches away.
    pub(crate) fn give(&mut self, stack: *mut u8) {
        self.free.push(stack);
    }

    /// Puts onto a stack what [`switch`] needs to start `run` on it.
    ///
    /// # Safety
    /// `stack` was taken from here and no fibre runs on it.
    pub(crate) unsafe fn prepare(stack: *mut u8, run: extern "sysv64" fn() -> !) -> *mut u8 {
        let top = stack.cast::<usize>();
        // SAFETY: the stack is writable below its highest address. From above: a return address that is never used,
        // so that `run` finds the stack as after a call; `run`; six registers.
        unsafe {
            top.sub(1).write(0);
            top.sub(2).write(run as usize);
            for register in 3..=8 {
                top.sub(register).write(0);
            }
            top.sub(8).cast()
        }
    }
}
