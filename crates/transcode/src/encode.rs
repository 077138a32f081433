//! Encoders compiled for the levels of a CPU.

use gristmill_cpu::{Level, with_encoder_level};
use gristmill_kernels::format::Format;

/// [`Format::encode`] with the instructions of this CPU; the bytes are the same.
///
/// Returns `None` unless `bytes` is exactly the blocks of `values`.
pub fn encode(format: Format, values: &[f32], bytes: &mut [u8]) -> Option<()> {
    encode_at(Level::best(), format, values, bytes)
}

/// [`encode`] with the instructions of a level.
pub fn encode_at(level: Level, format: Format, values: &[f32], bytes: &mut [u8]) -> Option<()> {
    with_encoder_level!(level, s => format.encode_by(s, values, bytes))
}
