//! Requests of very many keys: some have many and most have few, each at random, in phases of more and less.
//!
//! Key `k` of `n` has a share of `1 / k` over the sum of these (Zipf's law with exponent 1). Its requests come at random
//! (a Poisson process) at a rate that changes with its phases, five minutes long on average, between a quarter and twice
//! its mean. Keys are made one after another; each is a random sequence of its own.

use super::random::Random;

/// The mean of a phase, in microseconds.
const PHASE: u64 = 300_000_000;
/// The rate of a phase, in quarters of the mean, drawn evenly: their mean is four.
const QUARTERS: [u64; 6] = [1, 2, 4, 4, 5, 8];

/// How much comes, from how many, in which time.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// About so many requests.
    pub requests: u64,
    /// Sources.
    pub keys: u64,
    /// Microseconds.
    pub length: u64,
    /// Of all that is drawn.
    pub seed: u64,
}

/// The moments of one key's requests, in microseconds.
#[derive(Clone, Debug)]
pub struct Arrivals {
    random: Random,
    /// Between two requests at the mean rate, in 2^-16 us.
    gap: u128,
    quarters: u64,
    phase_ends: u64,
    at: u64,
    end: u64,
}

impl Traffic {
    /// The requests of each key, from the one with the most.
    pub fn by_key(&self) -> impl Iterator<Item = Arrivals> {
        // The harmonic number of all keys, in 2^-32.
        let sum: u128 = (1..=self.keys).map(|key| (1_u128 << 32) / u128::from(key)).sum();
        let traffic = *self;
        (1..=self.keys).map(move |key| {
            // length / (requests / key / harmonic)
            let gap = (u128::from(traffic.length) << 16) * u128::from(key) * sum
                / u128::from(traffic.requests.max(1))
                / (1 << 32);
            Arrivals {
                random: Random::new(traffic.seed, key),
                gap,
                quarters: 4,
                phase_ends: 0,
                at: 0,
                end: traffic.length,
            }
        })
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // What is left of a gap goes on at the rate of the next phase.
        let quarters = (u128::from(self.random.exponential()) * self.gap) >> 46;
        let mut left = u64::try_from(quarters).unwrap_or(u64::MAX);
        loop {
            let next = self.at.saturating_add(left / self.quarters);
            if next < self.phase_ends {
                self.at = next;
                return Some(next);
            }
            if self.phase_ends >= self.end {
                return None;
            }
            left = left.saturating_sub((self.phase_ends - self.at) * self.quarters);
            self.at = self.phase_ends;
            let drawn = usize::try_from(self.random.below(6)).unwrap_or_default();
            self.quarters = QUARTERS.get(drawn).copied().unwrap_or(4);
            // Below 2^5 means, but for once in the age of the universe.
            let length = ((self.random.exponential() >> 12) * PHASE) >> 20;
            self.phase_ends = self.phase_ends.saturating_add(length + 1).min(self.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_come_in_order_and_the_first_key_has_its_share() {
        let traffic = Traffic { requests: 200_000, keys: 1_000, length: 21_600_000_000, seed: 1 };
        let counts: Vec<usize> = traffic
            .by_key()
            .map(|arrivals| {
                let moments: Vec<u64> = arrivals.collect();
                assert!(moments.is_sorted() && moments.iter().all(|at| *at < traffic.length));
                moments.len()
            })
            .collect();
        let all: usize = counts.iter().sum();
        assert!((190_000..210_000).contains(&all), "{all}");
        // 1 / H(1000), and its phases.
        assert!((22_000..32_000).contains(&counts[0]), "{} of {all}", counts[0]);
        assert_eq!(
            traffic.by_key().next().unwrap().take(5).collect::<Vec<_>>(),
            traffic.by_key().next().unwrap().take(5).collect::<Vec<_>>()
        );
    }
}
