//! Random numbers that are the same everywhere: integers only, from a seed.

/// A generator of the family xorshift64*, seeded by splitmix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The numbers of a seed; `stream` makes as many sequences of it as are needed.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
            mixed = (mixed ^ (mixed >> 30)).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(factor);
        }
        // Zero would stay zero.
        Self { state: (mixed ^ (mixed >> 31)) | 1 }
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`, which is above zero.
    pub fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.bits()) * u128::from(end)) >> 64).unwrap_or_default()
    }

    /// A multiple of the mean, in 2^-32, distributed as times between events that do not know of each other.
    ///
    /// By von Neumann's method, which compares and never computes a logarithm: a run of falling numbers of odd length
    /// begins with a number `x` with a chance of `e^-x`; each run that is even adds one.
    pub fn exponential(&mut self) -> u64 {
        let mut whole = 0;
        loop {
            let first = self.bits() >> 32;
            let (mut last, mut is_odd) = (first, true);
            loop {
                let next = self.bits() >> 32;
                if next >= last {
                    break;
                }
                (last, is_odd) = (next, !is_odd);
            }
            if is_odd {
                return (whole << 32) + first;
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_events_have_the_mean_and_the_tail_of_chance() {
        let mut random = Random::new(1, 0);
        let draws: Vec<u64> = (0..200_000).map(|_| random.exponential()).collect();
        let mean = draws.iter().sum::<u64>() / 200_000;
        assert!((4_250_000_000..4_340_000_000).contains(&mean), "{mean} beside 2^32");
        // e^-1, e^-2 and e^-3 of them are above 1, 2 and 3.
        for (times, share) in [(1, 73_576), (2, 27_067), (3, 9_957)] {
            let above = draws.iter().filter(|draw| **draw > times << 32).count();
            assert!(above.abs_diff(share) < 800, "{above} beside {share}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_numbers_and_a_stream_others() {
        let first = |seed, stream| Random::new(seed, stream).bits();
        assert_eq!(first(7, 1), first(7, 1));
        assert!(first(7, 1) != first(7, 2) && first(7, 1) != first(8, 1));
    }
}
