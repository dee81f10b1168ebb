//! Random numbers from a seed: SplitMix64. Every purpose has its own stream, so that one more draw for one purpose
//! does not change the others.
//! Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a purpose under a seed.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        random.bits();
        random
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.bits() % (high.saturating_sub(low) + 1)
    }

    /// Uniform below `n`, which is not zero.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.bits() % n.max(1) as u64).unwrap_or(0)
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.bits().is_multiple_of(n)
    }

    /// Exponential with this mean: the gaps of a Poisson process.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a gap of microseconds needs no more than the 53 bits"
    )]
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let unit = ((self.bits() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        (-unit.ln() * mean as f64) as u64
    }
}
