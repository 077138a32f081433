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
//! every level.* Level `amx` multiplies eight or more rows by tiles of bfloat16 (`simd/amx`).

use crate::simd::*;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::simd::{Kernel, Simd};
use std::fmt;

/// Declares every level once, slowest first. Columns: architecture (none: every architecture), type of the token, name.
/// A level that is another level plus something names the method that returns the token of the other: `kernels by` if all
/// of its generic code is compiled for the other, `encoders by` if only code that multiplies no int8 is.
macro_rules! levels {
    ($($(#[doc = $doc:literal])* $(#[cfg($($arch:tt)*)])? $token:ident = $name:ident
        $(, kernels by $kernels:ident)? $(, encoders by $encoders:ident)?;)*) => {
        /// A CPU level. The value proves that the CPU has the level's features.
        #[derive(Clone, Copy, Debug)]
        pub enum Level { $($(#[cfg($($arch)*)])? $(#[doc = $doc])* $token($token),)* }

        /// Runs generic code with the token of a level: `with_level!(level, s => expression)`.
        macro_rules! with_level {
            ($level:expr, $s:ident => $e:expr) => {
                match $level {
                    $($(#[cfg($($arch)*)])? $crate::Level::$token(token) => {
                        let $s = token$(.$kernels())?;
                        $e
                    })*
                }
            };
        }

        /// The same for generic code that multiplies no int8, which some levels share.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! with_encoder_level {
            ($level:expr, $s:ident => $e:expr) => {
                match $level {
                    $($(#[cfg($($arch)*)])? $crate::Level::$token(token) => {
                        let $s = token$(.$kernels())?$(.$encoders())?;
                        $e
                    })*
                }
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
    Portable = portable;
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2 = avx2;
    /// AVX2, FMA, F16C and AVX-VNNI; AVX-512 is not needed.
    #[cfg(target_arch = "x86_64")]
    AvxVnni = avxvnni, encoders by avx2;
    /// AVX-512 F, BW, VL and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512 = avx512;
    /// AVX-512 as in `avx512`, with FP16, BF16 and tiles of AMX.
    #[cfg(target_arch = "x86_64")]
    Amx = amx, kernels by avx512;
    /// NEON with its dot products.
    #[cfg(target_arch = "aarch64")]
    Neon = neon;
}

/// A level that [`Level::best`] does not choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotChosen {
    /// Its name.
    pub level: &'static str,
    /// The CPU has it, but the system does not permit it to this process.
    pub refused: bool,
}

impl fmt::Display for NotChosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, refused } = self;
        match refused {
            true => write!(f, "{level}: found, but refused by the system (a signal stack is too small, or a sandbox)"),
            false => write!(f, "{level}: found, not chosen: never measured"),
        }
    }
}

impl Level {
    /// The levels that this CPU supports, slowest first, except those of [`Level::UNMEASURED`].
    pub fn available() -> impl Iterator<Item = Self> {
        let measured = Self::NAMES.iter().filter(|name| !Self::UNMEASURED.contains(name));
        measured.filter_map(|name| Self::named(name).ok())
    }

    /// The fastest of the available levels.
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Level::Portable(Portable))
    }

    /// Levels that were never measured on a real CPU, only tested in an emulator. Only [`Level::named`] returns them.
    pub const UNMEASURED: &'static [&'static str] = &["amx"];

    /// The level of [`Level::UNMEASURED`] that this CPU has.
    pub fn not_chosen() -> Option<NotChosen> {
        #[cfg(target_arch = "x86_64")]
        if Amx::is_refused() {
            return Some(NotChosen { level: "amx", refused: true });
        }
        let found = Self::NAMES.iter().filter(|name| Self::UNMEASURED.contains(name) && Self::named(name).is_ok());
        found.map(|level| NotChosen { level, refused: false }).next()
    }

    /// The level of which a row has the same bits with any number of rows: this one, or the one that it extends.
    #[must_use]
    pub fn deterministic(self) -> Self {
        match self {
            #[cfg(target_arch = "x86_64")]
            Level::Amx(s) => Level::Avx512(s.avx512()),
            level => level,
        }
    }

    /// Whether a row has the same bits with any number of rows.
    pub fn is_deterministic(self) -> bool {
        self.name() == self.deterministic().name()
    }

    /// The token of a level that multiplies quantised weights with many rows by tiles.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tiles(self) -> Option<Amx> {
        match self {
            Level::Amx(s) => Some(s),
            _ => None,
        }
    }

    /// No level of this architecture multiplies by tiles.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn tiles(self) -> Option<std::convert::Infallible> {
        None
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
