//! Consumption in brief: what it takes to see how a group was used, and to replay it under other settings. Without the
//! resources used and the shadow table's charge, which are most of a row and what no limit asks for.

use tidegate_core::units::RuTotal;
use tidegate_core::usage::{Parts, Total};

use crate::store::records::bad;
use crate::store::{StoreError, Table};

/// Counters of a brief.
const WORDS: usize = 8;
/// Version of the rows.
const VERSION: u8 = 1;
/// Minutes of an hour, in a row.
const MINUTES: u64 = 60;

/// Charges by their cause, operations, refused ones and waits; a counter that does not fit has the largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Brief([u64; WORDS]);

impl Brief {
    pub(crate) fn of(total: &Total) -> Self {
        let Parts { cpu, read, write, network, flat } = total.charged;
        let [cpu, read, write, network, flat] = [cpu, read, write, network, flat].map(|ru| ru.0);
        let words = [cpu, read, write, network, flat, total.operations, total.throttled, total.waited_us];
        Self(words.map(|word| u64::try_from(word).unwrap_or(u64::MAX)))
    }

    pub(crate) fn total(&self) -> Total {
        let [cpu, read, write, network, flat, operations, throttled, waited_us] = self.0.map(u128::from);
        let [cpu, read, write, network, flat] = [cpu, read, write, network, flat].map(RuTotal);
        let charged = Parts { cpu, read, write, network, flat };
        Total { charged, operations, throttled, waited_us, ..Total::default() }
    }

    /// What this has more than an earlier one.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut more = *self;
        more.0.iter_mut().zip(earlier.0).for_each(|(word, before)| *word = word.saturating_sub(before));
        more
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.0.iter_mut().zip(more.0).for_each(|(word, more)| *word = word.saturating_add(more));
    }

    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Minutes of an hour as a row: for each that is there its number and its counters, seven bits in a byte, the lowest
/// first.
pub(crate) fn row(minutes: &[(u64, Brief)]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for (minute, Brief(words)) in minutes {
        bytes.extend(u8::try_from(*minute));
        for word in words {
            let mut left = *word;
            loop {
                let [seven, ..] = (left & 0x7f).to_le_bytes();
                left >>= 7;
                if left == 0 {
                    bytes.push(seven);
                    break;
                }
                bytes.push(seven | 0x80);
            }
        }
    }
    bytes
}

/// Reads what [`row`] wrote.
///
/// # Errors
/// Another version, or bytes that no minutes have.
pub(crate) fn minutes(row: &[u8]) -> Result<Vec<(u64, Brief)>, StoreError> {
    let wrong = |reason: &str| bad(Table::PastMinutes, reason);
    let mut bytes = match row.split_first() {
        Some((&VERSION, rest)) => rest.iter().copied(),
        _ => return Err(wrong("its version is not known")),
    };
    let mut minutes: Vec<(u64, Brief)> = Vec::new();
    while let Some(minute) = bytes.next() {
        let minute = u64::from(minute);
        if minute >= MINUTES || minutes.last().is_some_and(|(before, _)| *before >= minute) {
            return Err(wrong("its minutes are out of order"));
        }
        let mut brief = Brief::default();
        for word in &mut brief.0 {
            *word = number(&mut bytes).ok_or_else(|| wrong("a counter is cut off or too large"))?;
        }
        minutes.push((minute, brief));
    }
    Ok(minutes)
}

fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = bytes.next()?;
        let bits = u64::from(byte & 0x7f);
        if (bits << shift) >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_survive_as_a_row_and_damage_is_named() {
        let brief = |word| Brief([word, 0, 127, 128, u64::MAX, 16_384, 3, 1]);
        let all = vec![(0, brief(5)), (7, Brief::default()), (59, brief(u64::MAX - 1))];
        let bytes = row(&all);
        assert_eq!(minutes(&bytes).unwrap(), all);
        for length in 0..bytes.len() {
            let cut = minutes(&bytes[..length]);
            assert!(cut.is_err() || cut.unwrap().len() < all.len());
        }
        for damaged in [vec![2], vec![1, 60], vec![], [row(&all[2..]), row(&all[..1])[1..].to_vec()].concat()]
        {
            assert!(minutes(&damaged).is_err(), "{damaged:?}");
        }
        let too_large = [vec![1, 0], vec![0xff; 9], vec![2], vec![0; 7]].concat();
        assert!(minutes(&too_large).is_err());
    }

    #[test]
    fn a_brief_is_the_total_without_resources() {
        let total = Total { operations: 4, throttled: 2, waited_us: u128::MAX, ..Total::default() };
        let total = Total { charged: Parts { read: RuTotal(7), ..Parts::default() }, ..total };
        let brief = Brief::of(&total);
        assert_eq!(brief.total(), Total { waited_us: u64::MAX.into(), ..total });
        let mut sum = brief.since(&Brief([0, 3, 0, 0, 0, 4, 0, 0]));
        assert_eq!(sum, Brief([0, 4, 0, 0, 0, 0, 2, u64::MAX]));
        sum.add(&brief);
        assert_eq!(sum, Brief([0, 11, 0, 0, 0, 4, 4, u64::MAX]));
        assert!(brief.since(&brief).is_nothing() && !brief.is_nothing());
    }
}
