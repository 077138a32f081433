//! A counter-based generator: number `i` of a stream is a function of the seed and `i` alone.

/// A stream of random numbers (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Random {
    seed: u64,
    counter: u64,
}

impl Random {
    /// The stream of a seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random { seed: mix(seed), counter: 0 }
    }

    /// The stream of a text (FNV-1a).
    pub(crate) fn named(name: &str) -> Random {
        Self::new(name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)))
    }

    /// Number `i` of the stream.
    pub(crate) fn at(&self, i: u64) -> u64 {
        mix(self.seed.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        let number = self.at(self.counter);
        self.counter += 1;
        number
    }

    /// A number in `0..n`, `n > 0`, with negligible bias for `n` below 2³².
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        scale(self.next(), n)
    }

    /// About standard normal: the sum of four uniforms, which stays within ±3.5.
    pub(crate) fn normal(&mut self) -> f32 {
        let x = self.next();
        let sum: u32 = (0..4).map(|i| (x >> (16 * i) & 0xffff) as u32).sum();
        (sum as f32 / 65536.0 - 2.0) * 3f32.sqrt()
    }
}

/// `x` of 0..2⁶⁴ scaled to `0..n`.
pub(crate) fn scale(x: u64, n: u64) -> u64 {
    (u128::from(x) * u128::from(n) >> 64) as u64
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
