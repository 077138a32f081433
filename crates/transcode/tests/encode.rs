//! Every format is encoded to the same bytes at every level.

use gristmill_cpu::Level;
use gristmill_kernels::format::Format;
use gristmill_transcode::encode_at;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The bytes are the same at every level, and a block's do not depend on how many are encoded with it.
    #[test]
    fn encoding_is_the_same_everywhere(
        bits in prop::collection::vec(any::<u32>(), 20 * 256),
        kind in 0..3,
        scale in -40..40,
    ) {
        let value = |&bits: &u32| match kind {
            0 => (bits as i32 as f32) * f32::powi(2.0, scale - 31),
            // Most are small, and few are large.
            1 => f32::powi(bits as i32 as f32 / 2.0f32.powi(31), 9),
            _ => ((bits >> 29) as f32 - 2.0) * f32::powi(2.0, scale),
        };
        let values: Vec<f32> = bits.iter().map(value).collect();
        for &format in Format::ALL {
            let mut want = vec![0; format.row_bytes(values.len()).unwrap()];
            format.encode(&values, &mut want).unwrap();
            for name in Level::NAMES {
                let Ok(level) = Level::named(name) else { continue };
                let mut got = vec![0xaa; want.len()];
                encode_at(level, format, &values, &mut got).unwrap();
                assert!(got == want, "{format}: {name} and {} differ", Level::best().name());
            }
            let (size, elements) = (format.block_bytes(), format.block_len());
            for i in [0, 3, values.len() / elements - 1] {
                let mut one = vec![0xaa; size];
                format.encode(&values[i * elements..(i + 1) * elements], &mut one).unwrap();
                assert!(one == want[i * size..(i + 1) * size], "{format}: block {i} alone");
            }
        }
    }
}
