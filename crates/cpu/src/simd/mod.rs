//! SIMD levels for CPU features: implementations of [`gristmill_kernels::simd::Simd`].
//!
//! # No closures in vector code
//!
//! Unless it is inlined, a closure is compiled without the level's target features, and is then many times slower.
//! *Vectors pass through no closure, `array::from_fn` or `map`; `two!`, `four!` and `eight!` write arrays out.*

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
pub use amx::Amx;
#[cfg(target_arch = "x86_64")]
pub(crate) use amx::{TileProduct, TileRows};
#[cfg(target_arch = "x86_64")]
pub use avx2::{Avx2, AvxVnni};
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use gristmill_kernels::simd::Portable;
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;

#[cfg(test)]
mod tests;
