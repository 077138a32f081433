//! Which instructions a CPU backend uses, chosen once at run time.

use crate::error::{Error, Result};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Kernel, Portable, Simd};

/// A CPU level. Having one proves that the CPU has its features.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Level {
    /// What every CPU of the architecture has.
    Portable(Portable),
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512 F, BW, VL and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

/// Runs generic code with the token of a level: `with_level!(level, s => expression)`.
macro_rules! with_level {
    ($level:expr, $s:ident => $e:expr) => {
        match $level {
            $crate::cpu::Level::Portable($s) => $e,
            #[cfg(target_arch = "x86_64")]
            $crate::cpu::Level::Avx2($s) => $e,
            #[cfg(target_arch = "x86_64")]
            $crate::cpu::Level::Avx512($s) => $e,
        }
    };
}
pub(crate) use with_level;

impl Level {
    /// Names of all levels of this architecture, slowest first.
    #[cfg(target_arch = "x86_64")]
    pub const NAMES: &'static [&'static str] = &["portable", "avx2", "avx512"];
    /// Names of all levels of this architecture, slowest first.
    #[cfg(not(target_arch = "x86_64"))]
    pub const NAMES: &'static [&'static str] = &["portable"];

    /// The level of a name in [`Level::NAMES`], if this CPU has it.
    pub fn named(name: &'static str) -> Result<Self> {
        match name {
            "portable" => Some(Level::Portable(Portable)),
            #[cfg(target_arch = "x86_64")]
            "avx2" => Avx2::detect().map(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            "avx512" => Avx512::detect().map(Level::Avx512),
            _ => None,
        }
        .ok_or(Error::Level(name))
    }

    /// The fastest level of this CPU.
    pub fn best() -> Self {
        Self::NAMES.iter().rev().find_map(|name| Self::named(name).ok()).unwrap_or(Level::Portable(Portable))
    }

    /// Runs a kernel compiled for the level.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        with_level!(self, s => s.run(kernel))
    }

    /// The name in [`Level::NAMES`].
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => "avx512",
        }
    }
}
