//! Random numbers for cases: SplitMix64 of Steele, Lea and Flood (2014). A case is a function of its seed.

/// A generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts at this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that nobody has seen before.
    pub fn fresh_seed() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut rng = Self(now.map_or(0, |t| t.as_nanos() as u64) ^ u64::from(std::process::id()) << 40);
        rng.bits()
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
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

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        self.radius() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Standard normals.
    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        let mut values = Vec::with_capacity(count + 1);
        while values.len() < count {
            let (sin, cos) = (std::f64::consts::TAU * self.unit()).sin_cos();
            let radius = self.radius();
            values.extend([(radius * cos) as f32, (radius * sin) as f32]);
        }
        values.truncate(count);
        values
    }

    fn radius(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt()
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
