//! The instruction set of a CPU backend, chosen once at run time.
//!
//! # The level chooses registers
//!
//! The level chooses registers: for how many rows it keeps float sums (`TOKENS`) and integer sums (`INT8_ROWS`). A
//! format declares its largest code (`LARGEST`), which determines how many products `avx2` sums in 16 bits. A format
//! also declares whether the scales of a block are integers times one number (`INTEGER_SCALES`). Then `avx2` multiplies
//! sums of pairs by the integer scale instead of by ones (`dot/int8/scaled.rs`). Two loops are assembly. In
//! `simd/avx2/int8.rs` (unsigned codes), the compiler's order needs more registers than there are. In
//! `simd/avx512/int8.rs` (eight rows), the compiler's order needs more instructions. *Sums of integers are exact at
//! every level.*

use crate::simd::*;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::simd::{Kernel, Simd};

/// Declares every level once, slowest first. Columns: architecture (none: every architecture), type of the token, name.
macro_rules! levels {
    ($($(#[doc = $doc:literal])* $(#[cfg($($arch:tt)*)])? $token:ident = $name:ident,)*) => {
        /// A CPU level. The value proves that the CPU has the level's features.
        #[derive(Clone, Copy, Debug)]
        pub enum Level { $($(#[cfg($($arch)*)])? $(#[doc = $doc])* $token($token),)* }

        /// Runs generic code with the token of a level: `with_level!(level, s => expression)`.
        macro_rules! with_level {
            ($level:expr, $s:ident => $e:expr) => {
                match $level { $($(#[cfg($($arch)*)])? $crate::Level::$token($s) => $e,)* }
            };
        }

        /// Passes the names of all levels, of all architectures, to a macro.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! with_levels {
            ($callback:ident) => { $callback! { $($name)* } };
        }

        impl Level {
            /// Names of all levels of this architecture, slowest first.
            pub const NAMES: &'static [&'static str] = &[$($(#[cfg($($arch)*)])? stringify!($name),)*];

            /// The level with a name in [`Level::NAMES`], if this CPU supports it.
            pub fn named(name: &'static str) -> Result<Self> {
                match name {
                    $($(#[cfg($($arch)*)])? _ if name == stringify!($name) => $token::detect().map(Level::$token),)*
                    _ => None,
                }
                .ok_or(Error::Level(name))
            }

            /// The name in [`Level::NAMES`].
            pub fn name(self) -> &'static str {
                match self { $($(#[cfg($($arch)*)])? Level::$token(_) => stringify!($name),)* }
            }
        }
    };
}

levels! {
    /// The baseline instructions of the architecture.
    Portable = portable,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2 = avx2,
    /// AVX2, FMA, F16C and AVX-VNNI; AVX-512 is not needed.
    #[cfg(target_arch = "x86_64")]
    AvxVnni = avxvnni,
    /// AVX-512 F, BW, VL and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512 = avx512,
    /// NEON with its dot products.
    #[cfg(target_arch = "aarch64")]
    Neon = neon,
}

impl Level {
    /// The levels that this CPU supports, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::NAMES.iter().filter_map(|name| Self::named(name).ok())
    }

    /// The fastest level of this CPU.
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Level::Portable(Portable))
    }

    /// Whether the CPU multiplies pairs of bfloat16.
    pub(crate) fn has_bf16(self) -> bool {
        with_level!(self, s => s.bf16().is_some())
    }

    /// Runs a kernel compiled for the level.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        with_level!(self, s => s.run(kernel))
    }

    /// Runs a kernel that multiplies pairs of bfloat16; `None` if the CPU does not support it.
    pub(crate) fn run_bf16<K: Kernel>(self, kernel: K) -> Option<K::Output> {
        with_level!(self, s => s.bf16().map(|proof| s.run_bf16(proof, kernel)))
    }
}
