//! Structs shared between the runtime and compiled kernels; `include/sim.h` has the kernels' side.

use crate::launch::Parameter;
use std::ffi::{c_char, c_void};
use std::ptr::null;

/// The position of a call in the kernel source.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Site {
    pub(crate) file: *const c_char,
    pub(crate) line: u32,
    /// In checked mode: the address in the code to which the call returns.
    pub(crate) code: *const c_void,
}

impl Site {
    pub(crate) const NOWHERE: Self = Self { file: null(), line: 0, code: null() };
}

/// The part of a thread that kernels see.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ThreadView {
    pub(crate) index: [u32; 3],
    /// Number in the block, x first.
    pub(crate) linear: u32,
    pub(crate) lane: u32,
    pub(crate) warp: u32,
}

/// A synchronisation of a warp's lanes. The last lane to arrive runs `complete` for all.
#[repr(C)]
pub(crate) struct Collective {
    pub(crate) complete: unsafe extern "C" fn(*mut EngineView, *const *mut c_void, u32),
    pub(crate) what: *const c_char,
    /// The lanes that must arrive: bits of [`lanes`].
    pub(crate) lanes: u32,
    /// The kinds of memory that it orders.
    pub(crate) orders: u32,
}

/// Lanes that must arrive at a synchronisation: all 32, or all with which the warp started. In both cases they must
/// arrive at one place in the source. In the second, no lane may join another synchronisation meanwhile.
pub(crate) mod lanes {
    pub(crate) const WHOLE: u32 = 1;
    pub(crate) const SAME: u32 = 2;
}

/// Steps of a barrier in shared memory.
pub(crate) mod step {
    pub(crate) const INIT: u32 = 0;
    pub(crate) const INVAL: u32 = 1;
    pub(crate) const ARRIVE: u32 = 2;
    pub(crate) const EXPECT: u32 = 3;
}

/// One warp's part of a product of four warps; see `sim.h`.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Product {
    pub(crate) compute: unsafe extern "C" fn(*const *mut c_void, *const u8, *const u8, u32, u32),
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) columns: u32,
    pub(crate) accumulate: u32,
    pub(crate) from_registers: u32,
    pub(crate) by_columns: u32,
    pub(crate) d: [*mut c_void; 32],
    pub(crate) fragments: [[u32; 4]; 32],
    pub(crate) registers: [*const c_void; 32],
}

/// Functions that a kernel can call in the runtime.
#[repr(C)]
pub(crate) struct Hooks {
    pub(crate) converge: unsafe extern "C" fn(*mut EngineView, *const Collective, u32, *mut c_void, *const Site),
    pub(crate) barrier: unsafe extern "C" fn(*mut EngineView, u32, u32, *const Site) -> u32,
    pub(crate) shared: unsafe extern "C" fn(*mut EngineView, u32, u32, u32, *const Site) -> *mut c_void,
    pub(crate) copy: unsafe extern "C" fn(*mut EngineView, *mut c_void, *const c_void, u32, u32, *const Site),
    pub(crate) commit: unsafe extern "C" fn(*mut EngineView),
    pub(crate) wait: unsafe extern "C" fn(*mut EngineView, u32, *const Site),
    pub(crate) named: unsafe extern "C" fn(*mut EngineView, u32, u32, u32, *const Site),
    pub(crate) phase: unsafe extern "C" fn(*mut EngineView, u32, *mut c_void, u32, *const Site),
    pub(crate) bulk: unsafe extern "C" fn(*mut EngineView, *mut c_void, *const c_void, u32, *mut c_void, *const Site),
    pub(crate) tile:
        unsafe extern "C" fn(*mut EngineView, *mut c_void, *const c_void, i32, i32, *mut c_void, *const Site),
    pub(crate) fence_async: unsafe extern "C" fn(*mut EngineView, *const Site),
    pub(crate) product: unsafe extern "C" fn(*mut EngineView, *const Product, *const Site),
    pub(crate) product_fence: unsafe extern "C" fn(*mut EngineView),
    pub(crate) product_commit: unsafe extern "C" fn(*mut EngineView),
    pub(crate) product_wait: unsafe extern "C" fn(*mut EngineView, u32, *const Site),
    pub(crate) depend: unsafe extern "C" fn(*mut EngineView, *const Site),
    pub(crate) touch: unsafe extern "C" fn(*mut EngineView, *const c_void, u64, u32, *const c_void),
    pub(crate) fail: unsafe extern "C" fn(*mut EngineView, u32, *const c_char, *const Site) -> !,
}

/// The part of an engine that kernels see, at its start.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EngineView {
    pub(crate) thread: *mut ThreadView,
    pub(crate) hooks: *const Hooks,
    pub(crate) variables: *mut *mut c_void,
    pub(crate) dynamic_shared: *mut c_void,
    pub(crate) block: [u32; 3],
    pub(crate) block_size: [u32; 3],
    pub(crate) grid: [u32; 3],
    pub(crate) stacks: *const u8,
    pub(crate) stack_bytes: u64,
    pub(crate) watched: u32,
    pub(crate) shared: *const u8,
}

/// A thread's way through a kernel; it takes the addresses of the arguments.
pub(crate) type Entry = unsafe extern "C" fn(*const *const c_void);

/// A kernel in the list of a compiled source.
#[repr(C)]
pub(crate) struct KernelView {
    pub(crate) name: *const c_char,
    pub(crate) entry: Entry,
    pub(crate) parameters: *const Parameter,
    pub(crate) count: u64,
    pub(crate) next: *const KernelView,
    /// Maximum threads of a block, 0 if it is not declared.
    pub(crate) threads: u32,
}
