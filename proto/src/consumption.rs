//! Consumption as numbers of 128 bits, in the order of the message's fields and then of those of its usage.
//!
//! A message has fields of 64 bits. If one of them is too small for its counter, all counters are in `exact`, and such
//! fields have their largest value: a reader that does not know `exact` never takes a large number for a small one, and
//! an older controller refuses such a report.

use crate::v1::{Consumption, Exact, Usage};

/// Counters of a [`Consumption`].
pub const WORDS: usize = 19;
/// Counters are below this.
const LIMIT: u128 = 1 << 96;

impl Consumption {
    /// The message of these counters.
    pub fn from_words(words: &[u128; WORDS]) -> Self {
        let amount = |word: u128| i64::try_from(word);
        let number = |word: u128| u64::try_from(word);
        let (amounts, numbers) = words.split_at(6);
        let fits = amounts.iter().all(|word| amount(*word).is_ok())
            && numbers.iter().all(|word| number(*word).is_ok());
        let exact = (!fits).then(|| Exact {
            low: words.iter().map(|word| (word & u128::from(u64::MAX)) as u64).collect(),
            high: words.iter().map(|word| (word >> 64) as u64).collect(),
        });
        let [cpu, read, write, network, flat, shadow, rest @ ..] = *words;
        let [cpu, read, write, network, flat, shadow] =
            [cpu, read, write, network, flat, shadow].map(|word| amount(word).unwrap_or(i64::MAX));
        let [operations, throttled, waited_us, usage @ ..] =
            rest.map(|word| number(word).unwrap_or(u64::MAX));
        Self {
            cpu_micro_ru: cpu,
            read_micro_ru: read,
            write_micro_ru: write,
            network_micro_ru: network,
            flat_micro_ru: flat,
            shadow_micro_ru: shadow,
            operations,
            throttled,
            waited_us,
            usage: Some(Usage::from_words(usage)),
            exact,
        }
    }

    /// The counters of this message.
    ///
    /// # Errors
    /// The name of a field that is out of range.
    pub fn to_words(&self) -> Result<[u128; WORDS], String> {
        if let Some(exact) = &self.exact {
            return exact.to_words();
        }
        let amounts = [
            ("cpu_micro_ru", self.cpu_micro_ru),
            ("read_micro_ru", self.read_micro_ru),
            ("write_micro_ru", self.write_micro_ru),
            ("network_micro_ru", self.network_micro_ru),
            ("flat_micro_ru", self.flat_micro_ru),
            ("shadow_micro_ru", self.shadow_micro_ru),
        ];
        if let Some((field, micro)) = amounts.iter().find(|(_, micro)| *micro < 0) {
            return Err(format!("{field}: {micro} is out of range: 0 to {}", i64::MAX));
        }
        let amounts = amounts.iter().map(|(_, micro)| micro.unsigned_abs());
        let numbers = [self.operations, self.throttled, self.waited_us];
        let usage = self.usage.unwrap_or_default().to_words();
        let mut words = [0; WORDS];
        let all = amounts.chain(numbers).chain(usage);
        words.iter_mut().zip(all).for_each(|(word, value)| *word = u128::from(value));
        Ok(words)
    }
}

impl Exact {
    fn to_words(&self) -> Result<[u128; WORDS], String> {
        let (low, high) = (self.low.len(), self.high.len());
        if (low, high) != (WORDS, WORDS) {
            return Err(format!("exact: {low} and {high} numbers; send {WORDS} of each"));
        }
        let mut words = [0; WORDS];
        for (word, (low, high)) in words.iter_mut().zip(self.low.iter().zip(&self.high)) {
            *word = u128::from(*high) << 64 | u128::from(*low);
        }
        match words.iter().find(|word| **word >= LIMIT) {
            Some(word) => Err(format!("exact: {word} is out of range: 0 to {}", LIMIT - 1)),
            None => Ok(words),
        }
    }
}

impl Usage {
    fn from_words(words: [u64; 10]) -> Self {
        let [
            cpu_ns,
            read_requests,
            read_batches,
            read_bytes,
            write_requests,
            write_batches,
            write_bytes,
            net_in_bytes,
            net_out_bytes,
            cross_zone_bytes,
        ] = words;
        Self {
            cpu_ns,
            read_requests,
            read_batches,
            read_bytes,
            write_requests,
            write_batches,
            write_bytes,
            net_in_bytes,
            net_out_bytes,
            cross_zone_bytes,
        }
    }

    fn to_words(self) -> [u64; 10] {
        [
            self.cpu_ns,
            self.read_requests,
            self.read_batches,
            self.read_bytes,
            self.write_requests,
            self.write_batches,
            self.write_bytes,
            self.net_in_bytes,
            self.net_out_bytes,
            self.cross_zone_bytes,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_the_round_trip_at_every_edge() {
        let edges = [
            0,
            1,
            10_u128.pow(18),
            i64::MAX as u128,
            i64::MAX as u128 + 1,
            u64::MAX as u128,
            u64::MAX as u128 + 1,
            LIMIT - 1,
        ];
        for place in 0..WORDS {
            for edge in edges {
                let mut words: [u128; WORDS] = std::array::from_fn(|at| at as u128 + 1);
                words[place] = edge;
                let message = Consumption::from_words(&words);
                assert_eq!(message.to_words(), Ok(words), "{edge} at {place}");
                let most = if place < 6 { i64::MAX as u128 } else { u64::MAX as u128 };
                assert_eq!(message.exact.is_some(), edge > most, "{edge} at {place}");
                // A reader that ignores `exact` gets the counter or the largest value of its field.
                let narrow = Consumption { exact: None, ..message }.to_words().unwrap();
                assert_eq!(narrow[place], edge.min(most));
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        let negative = Consumption { write_micro_ru: -1, ..Consumption::default() };
        assert!(negative.to_words().unwrap_err().starts_with("write_micro_ru: -1"));
        let exact = |low, high| Consumption { exact: Some(Exact { low, high }), ..Consumption::default() };
        let words = || vec![0_u64; WORDS];
        let mut high = words();
        high[3] = 1 << 32;
        for (message, reason) in [
            (exact(words(), words()[1..].to_vec()), "exact: 19 and 18 numbers"),
            (exact(words(), high), "exact: 79228162514264337593543950336 is out of range"),
        ] {
            let error = message.to_words().unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
