//! Encoders compiled for the levels of a CPU.

use gristmill_cpu::Level;
use gristmill_kernels::format::Format;

/// [`Format::encode`] with the instructions of this CPU; the bytes are the same.
///
/// Returns `None` unless `bytes` is exactly the blocks of `values`.
pub fn encode(format: Format, values: &[f32], bytes: &mut [u8]) -> Option<()> {
    encode_at(Level::best(), format, values, bytes)
}

/// [`encode`] with the instructions of a level.
pub fn encode_at(level: Level, format: Format, values: &[f32], bytes: &mut [u8]) -> Option<()> {
    match level {
        Level::Portable(_) => format.encode(values, bytes),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(s) => format.encode_by(s, values, bytes),
        // An encoder multiplies no int8, so both levels share one.
        #[cfg(target_arch = "x86_64")]
        Level::AvxVnni(s) => format.encode_by(s.avx2(), values, bytes),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(s) => format.encode_by(s, values, bytes),
        #[cfg(target_arch = "aarch64")]
        Level::Neon(s) => format.encode_by(s, values, bytes),
    }
}
