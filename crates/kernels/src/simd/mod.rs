//! The vector operations that kernels and formats are written in, once, generic over the CPU level.
//!
//! A vector always has 16 lanes, whatever the width of a register: lane `r` is row `r` of a tile of 16 weight rows.
//! [`Simd::Codes`] holds 4 bytes for each lane: four consecutive columns of that row. So an integer dot product
//! needs no horizontal sum, and a kernel is the same source for AVX-512 (one register), AVX2 (two), NEON (four) and
//! plain Rust.
//!
//! Implementors are tokens. Holding one proves that the CPU has the features, which is why the operations are safe to
//! call. They are `#[inline(always)]` and must be inlined into a function with the level's `#[target_feature]`: see
//! [`Simd::run`]. [`Portable`] is here; the levels that need instructions of a CPU are the CPU backend's.

/// `[e(0), e(1)]`, written out. Vector code avoids closures (and so `array::from_fn` and `map`): a closure that is not
/// inlined is compiled without the level's instructions and is 50 times slower.
#[doc(hidden)]
#[macro_export]
macro_rules! two {
    ($j:ident => $e:expr) => {
        [
            {
                let $j = 0_usize;
                $e
            },
            {
                let $j = 1_usize;
                $e
            },
        ]
    };
}

/// `[e(0), …, e(3)]`, written out for the same reason.
#[doc(hidden)]
#[macro_export]
macro_rules! four {
    ($j:ident => $e:expr) => {{
        let [[a, b], [c, d]] = $crate::two!(half => $crate::two!(one => {
            let $j = 2 * half + one;
            $e
        }));
        [a, b, c, d]
    }};
}

/// `[e(0), …, e(7)]`, written out for the same reason.
#[doc(hidden)]
#[macro_export]
macro_rules! eight {
    ($j:ident => $e:expr) => {{
        let [[a, b, c, d], [e, f, g, h]] = $crate::two!(half => $crate::four!(one => {
            let $j = 4 * half + one;
            $e
        }));
        [a, b, c, d, e, f, g, h]
    }};
}

/// The bfloat16 methods of a level without [`Simd::dot_bf16`].
#[doc(hidden)]
#[macro_export]
macro_rules! no_bf16 {
    () => {
        type Bf16 = std::convert::Infallible;

        #[inline(always)]
        fn bf16(self) -> Option<Self::Bf16> {
            None
        }
        #[inline(always)]
        fn run_bf16<K: $crate::simd::Kernel>(self, proof: Self::Bf16, _: K) -> K::Output {
            match proof {}
        }
        #[inline(always)]
        fn dot_bf16(self, proof: Self::Bf16, _: Self::F32, _: Self::I32, _: u32) -> Self::F32 {
            match proof {}
        }
    };
}

/// Methods of [`Simd`] that do the same in all lanes, by signature: `(F32, F32) -> F32 { add: instruction }`. The macro
/// `$apply` applies an instruction to each register of its arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! lanewise {
    ($apply:ident: $($arguments:tt -> $out:ident { $($name:ident: $f:expr),* $(,)? })*) => {
        $($($crate::lanewise!(@method $apply, $arguments -> $out, $name, $f);)*)*
    };
    (@method $apply:ident, ($a:ident) -> $out:ident, $name:ident, $f:expr) => {
        #[inline(always)]
        fn $name(self, a: Self::$a) -> Self::$out {
            $apply!($f, a)
        }
    };
    (@method $apply:ident, ($a:ident, $b:ident) -> $out:ident, $name:ident, $f:expr) => {
        #[inline(always)]
        fn $name(self, a: Self::$a, b: Self::$b) -> Self::$out {
            $apply!($f, a, b)
        }
    };
}

// After the macros, which they use.
mod level;
mod portable;
mod slice;

pub use level::{Kernel, Simd};
pub use portable::Portable;
pub use slice::{Int8Block, WeightSlice};
