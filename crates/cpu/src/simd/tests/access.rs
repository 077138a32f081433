//! Checks that no load or store leaves its slice.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Check, at_every_level, bytes, ints};
use gristmill_kernels::simd::{Kernel, Simd};

/// One load from bytes.
struct Access<'a> {
    op: usize,
    memory: &'a [u8],
    at: usize,
}

/// Bytes that each operation of [`Access`] reads.
const ACCESSES: [usize; 9] = [64, 16, 16, 32, 64, 64, 32, 64, 32];

impl Kernel for Access<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Access { op, memory, at } = self;
        match op {
            0 => _ = bytes(s, s.load_codes(memory, at)),
            1 => _ = ints(s, s.load_u8(memory, at)),
            2 => _ = ints(s, s.load_i8(memory, at)),
            3 => _ = ints(s, s.load_u16(memory, at)),
            4 => _ = ints(s, s.load_i32(memory, at)),
            5 => _ = s.to_array(s.load_f32_bytes(memory, at)),
            6 => _ = s.to_array(s.load_f16(memory, at)),
            7 => _ = ints(s, s.load_pairs(memory, at)),
            _ => _ = s.to_array(s.load_bf16(memory, at)),
        }
    }
}

/// A load or store of 16 floats, or a store of 64 bytes.
struct FloatAccess {
    op: usize,
    at: usize,
    len: usize,
}

impl Kernel for FloatAccess {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut memory = vec![0f32; self.len];
        match self.op {
            0 => _ = s.to_array(s.load_f32(&memory, self.at)),
            1 => s.store_f32(s.splat(1.0), &mut memory, self.at),
            _ => s.store_codes(s.splat_codes(1), &mut vec![0; self.len + 48], self.at),
        }
    }
}

struct Bounds;

impl Check for Bounds {
    /// Not a kernel: unwinding is caught outside the level's function.
    #[inline(never)]
    fn check<S: Simd>(&self, s: S) {
        let panics = |f: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(f)).is_err();
        let memory = vec![7; 80];
        for (op, size) in ACCESSES.into_iter().enumerate() {
            for at in [0, 1, 80 - size] {
                assert!(!panics(&mut || s.run(Access { op, memory: &memory, at })), "op {op} at {at}");
            }
            for at in [80 - size + 1, 79, 80, 81, usize::MAX - size + 1, usize::MAX] {
                assert!(panics(&mut || s.run(Access { op, memory: &memory, at })), "op {op} at {at}");
            }
        }
        for op in 0..3 {
            assert!(!panics(&mut || s.run(FloatAccess { op, at: 3, len: 19 })), "op {op}");
            for at in [4, 19, usize::MAX - 15, usize::MAX - 63, usize::MAX] {
                assert!(panics(&mut || s.run(FloatAccess { op, at, len: 19 })), "op {op} at {at}");
            }
        }
    }
}

#[test]
fn no_access_leaves_the_slice() {
    at_every_level(&Bounds);
}
