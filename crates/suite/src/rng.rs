//! Random numbers for cases: SplitMix64 of Steele, Lea and Flood (2014), normals by the ziggurat of Marsaglia and Tsang
//! (2000). A case is a function of its seed.

use std::array::from_fn;
use std::sync::LazyLock;

/// A generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    seed: u64,
}

impl Rng {
    /// A generator that starts at this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, seed }
    }

    /// A generator of one part of what a seed decides; parts have different numbers.
    pub fn of_part(seed: u64, part: &str) -> Self {
        // FNV-1a keeps the parts apart.
        let hash =
            part.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Self { state: seed ^ hash, seed }
    }

    /// The seed, which all parts have in common.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A fresh seed.
    pub fn fresh_seed() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut rng = Self::new(now.map_or(0, |t| t.as_nanos() as u64) ^ u64::from(std::process::id()) << 40);
        rng.bits()
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in `low..high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in `0..limit`. `limit > 0`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True this often.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Standard normal.
    pub fn normal(&mut self) -> f64 {
        ZIGGURAT.normal(self)
    }

    /// Standard normals.
    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        let ziggurat = &*ZIGGURAT;
        (0..count).map(|_| ziggurat.normal(self) as f32).collect()
    }

    /// The numbers `0..count` in random order.
    pub fn shuffled(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        for i in (1..count).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

/// Layers of equal area under e^(-x²/2) for x ≥ 0: the lowest is a rectangle and the tail beyond [`TAIL`].
struct Ziggurat {
    /// Right ends of the layers' rectangles, the lowest layer's first; the lowest rectangle would have the tail's area
    /// too.
    right: [f64; LAYERS + 1],
    /// The curve's height there.
    height: [f64; LAYERS + 1],
}

const LAYERS: usize = 256;
/// Start of the tail, for this number of layers.
const TAIL: f64 = 3.654_152_885_361_009;
/// The area of each layer.
const AREA: f64 = 4.928_673_233_974_658e-3;

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(Ziggurat::new);

fn curve(x: f64) -> f64 {
    (-0.5 * x * x).exp()
}

impl Ziggurat {
    fn new() -> Self {
        let mut right = [0.0; LAYERS + 1];
        (right[0], right[1]) = (AREA / curve(TAIL), TAIL);
        for layer in 2..LAYERS {
            let above = curve(right[layer - 1]) + AREA / right[layer - 1];
            right[layer] = (-2.0 * above.ln()).sqrt();
        }
        Self { right, height: from_fn(|layer| curve(right[layer])) }
    }

    fn normal(&self, rng: &mut Rng) -> f64 {
        loop {
            let bits = rng.bits();
            // The layer uses the lowest bits, the position in it the highest 53.
            let layer = bits as usize % LAYERS;
            let place = (bits as i64 >> 11) as f64 / (1_u64 << 52) as f64;
            let x = place * self.right[layer];
            if x.abs() < self.right[layer + 1] {
                return x;
            }
            if layer == 0 {
                return rng.tail().copysign(place);
            }
            let [low, high] = [self.height[layer], self.height[layer + 1]];
            if low + (high - low) * rng.unit() < curve(x) {
                return x;
            }
        }
    }
}

impl Rng {
    /// A normal beyond [`TAIL`] (Marsaglia, 1964).
    fn tail(&mut self) -> f64 {
        loop {
            let [x, y] = [TAIL, 1.0].map(|by| -(1.0 - self.unit()).ln() / by);
            if 2.0 * y >= x * x {
                return TAIL + x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments, the median of the absolute values, and tails: each within five deviations of what a normal has.
    #[test]
    fn normals_are_normal() {
        let seed = Rng::fresh_seed();
        let values = Rng::new(seed).normals(4_000_000);
        let count = values.len() as f64;
        let mean = |of: &dyn Fn(f64) -> f64| values.iter().map(|&x| of(f64::from(x))).sum::<f64>() / count;
        let near = |what: &str, got: f64, expected: f64, variance: f64| {
            let off = (got - expected).abs() / (variance / count).sqrt();
            assert!(off < 5.0, "seed {seed}: {what} is {got}, not {expected}: {off:.1} deviations");
        };
        near("the mean", mean(&|x| x), 0.0, 1.0);
        near("the mean square", mean(&|x| x * x), 1.0, 2.0);
        near("the mean cube", mean(&|x| x.powi(3)), 0.0, 15.0);
        near("the mean fourth power", mean(&|x| x.powi(4)), 3.0, 96.0);
        // Shares of |x| beyond these, by tables of the normal distribution.
        for (limit, share) in [(0.674_489_750_2, 0.5), (1.0, 0.317_310_508), (2.0, 0.045_500_264), (3.0, 2.699_796e-3)]
        {
            near("a share", mean(&|x| f64::from(u8::from(x.abs() > limit))), share, share * (1.0 - share));
        }
        // Within the layer that has the tail, beyond its start, and there.
        for (limit, share) in [(TAIL, 2.580_3e-4), (4.0, 6.334_25e-5)] {
            near("a tail", mean(&|x| f64::from(u8::from(x.abs() > limit))), share, share);
        }
    }

    #[test]
    fn a_seed_decides() {
        let numbers = |mut rng: Rng| [(); 4].map(|()| rng.bits());
        assert_eq!(numbers(Rng::of_part(7, "a")), numbers(Rng::of_part(7, "a")));
        assert_ne!(numbers(Rng::of_part(7, "a")), numbers(Rng::of_part(7, "b")));
        assert_eq!(Rng::of_part(7, "b").seed(), 7);
    }
}
