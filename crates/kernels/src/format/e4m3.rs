//! E4M3 floats (OCP 8-bit floating point 1.0): a sign, four bits of exponent with bias 7, three of mantissa, no
//! infinity. They are scales of `NVFP4`, and codes of folders whose weights have 8 bits.

/// The codes of NaN, without their signs.
pub const NAN: u8 = 0x7f;

/// The largest number.
const LARGEST: f32 = 448.0;

/// The smallest number above 0, and the step between subnormal numbers.
const SUBNORMAL: f32 = 1.0 / 512.0;

/// The number of these bits.
pub fn decode(bits: u8) -> f32 {
    let magnitude = bits & 0x7f;
    let number = match magnitude {
        NAN => f32::NAN,
        0..8 => f32::from(magnitude) * SUBNORMAL,
        // The exponent gets the bias of f32.
        _ => f32::from_bits((u32::from(magnitude) << 20) + (120 << 23)),
    };
    if bits < 128 { number } else { -number }
}

/// The bits of the number nearest to `x ≥ 0`; of two that are equally near the even one.
pub(super) fn encode(x: f32) -> u8 {
    let x = x.min(LARGEST);
    if x < 8.0 * SUBNORMAL {
        return (x / SUBNORMAL).round_ties_even() as u8;
    }
    let bits = x.to_bits();
    let rounded = bits + 0x7_ffff + (bits >> 20 & 1);
    ((rounded >> 20) - (120 << 3)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_the_nearest_ones() {
        for bits in 0..NAN {
            let exponent = i32::from(bits >> 3);
            let mantissa = f32::from(bits & 7) / 8.0;
            let value = if exponent == 0 { mantissa / 64.0 } else { (1.0 + mantissa) * 2f32.powi(exponent - 7) };
            assert_eq!(decode(bits), value, "{bits}");
            assert_eq!(decode(bits | 128).to_bits(), (-value).to_bits(), "{bits}");
            assert_eq!(encode(value), bits);
            if bits + 1 < NAN {
                let middle = f32::midpoint(value, decode(bits + 1));
                assert_eq!(encode(middle), bits + bits % 2, "{middle}");
                assert_eq!(encode(f32::from_bits(middle.to_bits() - 1)), bits);
                assert_eq!(encode(f32::from_bits(middle.to_bits() + 1)), bits + 1);
            }
        }
        assert!(decode(NAN).is_nan() && decode(NAN | 128).is_nan());
        assert_eq!(decode(encode(1e9)), LARGEST);
    }
}
