//! The resources that an operation used, its charge, and the totals of both, which only grow.
//!
//! A meter fills in `Usage`, the resource vector; a cost model prices it. `Consumption` is one operation's, or that of
//! a few: 64 bits a counter. `Total` is what a node reports for a group and what a controller adds up: RU charged (with
//! its parts) and the usage behind it, in 128 bits a counter, since 10^9 RU/s exceed 64 bits of micro-RU within five
//! hours. All fields of a report are cumulative, so repeating one is harmless.

use crate::units::{Ru, RuTotal};

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident [$fields:ident] { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        /// Number of counters of a usage vector.
        pub const $fields: usize = [$(stringify!($field),)*].len();

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name<N> {
            $($(#[$field_doc])* pub $field: N,)*
        }
        impl<N: Copy> $name<N> {
            /// The values, in declaration order.
            #[inline]
            pub const fn to_array(&self) -> [N; $fields] {
                [$(self.$field,)*]
            }

            /// From values in declaration order.
            pub const fn from_array(values: [N; $fields]) -> Self {
                let [$($field,)*] = values;
                Self { $($field,)* }
            }

            /// Names and values, in declaration order.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, N)> {
                [$(stringify!($field),)*].into_iter().zip(self.to_array())
            }
        }
    };
}

counters! {
    /// Resources used by one operation, or the sum over many.
    Resources [USAGE_FIELDS] {
        /// CPU time, in nanoseconds.
        cpu_ns,
        /// Read requests.
        read_requests,
        /// Read batches (round trips to storage).
        read_batches,
        /// Bytes read.
        read_bytes,
        /// Write requests, before replication.
        write_requests,
        /// Write batches, before replication.
        write_batches,
        /// Bytes written, before replication.
        write_bytes,
        /// Bytes received from the caller.
        net_in_bytes,
        /// Bytes sent to the caller.
        net_out_bytes,
        /// Bytes that crossed an availability zone.
        cross_zone_bytes,
    }
}

/// Resources used by one operation.
pub type Usage = Resources<u64>;

impl Usage {
    /// Number of fields.
    pub const FIELDS: usize = USAGE_FIELDS;

    /// Field by field sum, saturating.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.to_array();
        sum.iter_mut().zip(other.to_array()).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        Self::from_array(sum)
    }

    /// Field by field difference; `None` when any field would go below zero.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        let mut left = self.to_array();
        for (left, less) in left.iter_mut().zip(other.to_array()) {
            *left = left.checked_sub(less)?;
        }
        Some(Self::from_array(left))
    }
}

/// RU charged, by the resource that caused it. The parts add up to the charge exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parts<A> {
    /// For CPU time.
    pub cpu: A,
    /// For reads: requests, batches and bytes.
    pub read: A,
    /// For writes: requests, batches and bytes, times replicas.
    pub write: A,
    /// For network: ingress, egress and cross-zone bytes.
    pub network: A,
    /// Charged without a usage vector: a flat estimate, a dropped permit, a direct charge.
    pub flat: A,
}

/// The charge of one operation.
pub type RuParts = Parts<Ru>;

impl<A: Copy + Default + std::ops::Add<Output = A>> Parts<A> {
    /// The charge.
    #[inline]
    pub fn total(&self) -> A {
        self.cpu + self.read + self.write + self.network + self.flat
    }

    /// A charge without a usage vector behind it.
    pub fn flat(amount: A) -> Self {
        Self { flat: amount, ..Self::default() }
    }

    /// Part by part sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            read: self.read + other.read,
            write: self.write + other.write,
            network: self.network + other.network,
            flat: self.flat + other.flat,
        }
    }
}

/// Consumption: amounts `A` and counters `N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account<A, N> {
    /// RU charged.
    pub charged: Parts<A>,
    /// The charge by a second cost table, priced in parallel.
    pub shadow: A,
    /// Operations settled or charged.
    pub operations: N,
    /// Operations refused or timed out while waiting.
    pub throttled: N,
    /// Time operations waited for admission, in microseconds.
    pub waited_us: N,
    /// Resources used.
    pub usage: Resources<N>,
}

/// The consumption of one operation, or of a few together.
pub type Consumption = Account<Ru, u64>;

/// Cumulative consumption of one client incarnation in one group, or a sum of such. Every counter of a report stays
/// below 2^96 ([`Total::LIMIT`]), so that no sum of them comes near 2^128.
pub type Total = Account<RuTotal, u128>;

impl<A: Copy + Default + std::ops::Add<Output = A>, N> Account<A, N> {
    /// RU charged.
    #[inline]
    pub fn ru(&self) -> A {
        self.charged.total()
    }
}

impl Total {
    /// Number of words.
    pub const WORDS: usize = 9 + USAGE_FIELDS;
    /// Bound of every counter of a report: 2^96, in micro-RU 7.9 * 10^22 RU, which 10^9 RU/s take 2.5 million years to
    /// reach. With 2^128 the sum of two reports could overflow; with 2^64 a total ends after five hours at that rate.
    pub const LIMIT: u128 = 1 << 96;

    /// All counters, in declaration order, which is also the order in stores and journals.
    pub fn to_words(&self) -> [u128; Self::WORDS] {
        let Self { charged, shadow, operations, throttled, waited_us, usage } = self;
        let Parts { cpu, read, write, network, flat } = charged;
        let amounts = [cpu, read, write, network, flat, shadow].map(|ru| ru.0);
        let mut words = [0; Self::WORDS];
        let all = amounts.into_iter().chain([*operations, *throttled, *waited_us]).chain(usage.to_array());
        words.iter_mut().zip(all).for_each(|(word, value)| *word = value);
        words
    }

    /// From counters in declaration order.
    pub fn from_words(words: [u128; Self::WORDS]) -> Self {
        let [cpu, read, write, network, flat, shadow, operations, throttled, waited_us, usage @ ..] = words;
        let [cpu, read, write, network, flat, shadow] =
            [cpu, read, write, network, flat, shadow].map(RuTotal);
        let charged = Parts { cpu, read, write, network, flat };
        Self { charged, shadow, operations, throttled, waited_us, usage: Resources::from_array(usage) }
    }

    /// Adds the consumption of an operation. An amount below zero counts as zero.
    #[inline]
    pub fn count(&mut self, more: &Consumption) {
        // No process comes near the end of 128 bits by steps of 64, so a check would cost instructions for nothing.
        let ru = |sum: &mut RuTotal, more: Ru| sum.0 = sum.0.wrapping_add(RuTotal::from(more).0);
        let number = |sum: &mut u128, more: u64| *sum = sum.wrapping_add(u128::from(more));
        ru(&mut self.charged.cpu, more.charged.cpu);
        ru(&mut self.charged.read, more.charged.read);
        ru(&mut self.charged.write, more.charged.write);
        ru(&mut self.charged.network, more.charged.network);
        ru(&mut self.charged.flat, more.charged.flat);
        ru(&mut self.shadow, more.shadow);
        number(&mut self.operations, more.operations);
        number(&mut self.throttled, more.throttled);
        number(&mut self.waited_us, more.waited_us);
        number(&mut self.usage.cpu_ns, more.usage.cpu_ns);
        number(&mut self.usage.read_requests, more.usage.read_requests);
        number(&mut self.usage.read_batches, more.usage.read_batches);
        number(&mut self.usage.read_bytes, more.usage.read_bytes);
        number(&mut self.usage.write_requests, more.usage.write_requests);
        number(&mut self.usage.write_batches, more.usage.write_batches);
        number(&mut self.usage.write_bytes, more.usage.write_bytes);
        number(&mut self.usage.net_in_bytes, more.usage.net_in_bytes);
        number(&mut self.usage.net_out_bytes, more.usage.net_out_bytes);
        number(&mut self.usage.cross_zone_bytes, more.usage.cross_zone_bytes);
    }

    /// Adds field by field. Sums of reports stay far below 2^128.
    #[inline]
    pub fn add(&mut self, more: &Self) {
        self.charged = self.charged.plus(&more.charged);
        self.shadow += more.shadow;
        self.operations = self.operations.saturating_add(more.operations);
        self.throttled = self.throttled.saturating_add(more.throttled);
        self.waited_us = self.waited_us.saturating_add(more.waited_us);
        let mut usage = self.usage.to_array();
        usage.iter_mut().zip(more.usage.to_array()).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.usage = Resources::from_array(usage);
    }

    /// Field by field sum.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    /// Field by field difference; `None` when any field would go below zero.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.with(other, u128::checked_sub)
    }

    // Field by field: an iterator over all of them takes several times as many instructions.
    #[inline]
    fn with(&self, other: &Self, each: impl Fn(u128, u128) -> Option<u128>) -> Option<Self> {
        let ru = |one: RuTotal, two: RuTotal| each(one.0, two.0).map(RuTotal);
        let mut usage = self.usage.to_array();
        for (one, two) in usage.iter_mut().zip(other.usage.to_array()) {
            *one = each(*one, two)?;
        }
        Some(Self {
            charged: Parts {
                cpu: ru(self.charged.cpu, other.charged.cpu)?,
                read: ru(self.charged.read, other.charged.read)?,
                write: ru(self.charged.write, other.charged.write)?,
                network: ru(self.charged.network, other.charged.network)?,
                flat: ru(self.charged.flat, other.charged.flat)?,
            },
            shadow: ru(self.shadow, other.shadow)?,
            operations: each(self.operations, other.operations)?,
            throttled: each(self.throttled, other.throttled)?,
            waited_us: each(self.waited_us, other.waited_us)?,
            usage: Resources::from_array(usage),
        })
    }
}

impl From<Consumption> for Total {
    fn from(consumption: Consumption) -> Self {
        let mut total = Self::default();
        total.count(&consumption);
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_the_order_of_stores_and_journals() {
        let consumption = Total::from(Consumption {
            charged: RuParts { cpu: Ru(1), read: Ru(2), write: Ru(3), network: Ru(4), flat: Ru(5) },
            shadow: Ru(6),
            operations: 7,
            throttled: 8,
            waited_us: 9,
            usage: Usage {
                cpu_ns: 10,
                read_requests: 11,
                read_batches: 12,
                read_bytes: 13,
                write_requests: 14,
                write_batches: 15,
                write_bytes: 16,
                net_in_bytes: 17,
                net_out_bytes: 18,
                cross_zone_bytes: 19,
            },
        });
        let words = consumption.to_words();
        assert!(words.into_iter().eq(1..=19), "{words:?}");
        assert_eq!(Total::from_words(words), consumption);
    }

    #[test]
    fn minus_undoes_plus_and_refuses_to_go_below_zero() {
        let a = Total::from(Consumption {
            charged: RuParts { cpu: Ru(3), write: Ru(4), ..RuParts::default() },
            operations: 2,
            usage: Usage { cpu_ns: 9, net_out_bytes: 1, ..Usage::default() },
            ..Consumption::default()
        });
        let b = Consumption { charged: RuParts::flat(Ru(5)), throttled: 1, ..Consumption::default() }.into();
        assert_eq!(a.plus(&b).minus(&b), Some(a));
        assert_eq!(a.minus(&b), None);
        assert_eq!(a.ru(), RuTotal(7));
    }

    #[test]
    fn usage_is_added_and_subtracted_field_by_field() {
        let most = Usage::from_array([u64::MAX; Usage::FIELDS]);
        let one = Usage::from_array([1; Usage::FIELDS]);
        let growing = Usage::from_array(std::array::from_fn(|place| place as u64 + 1));
        let sum = growing.plus(&one);
        assert_eq!((sum.cpu_ns, sum.cross_zone_bytes), (2, Usage::FIELDS as u64 + 1));
        assert_eq!(sum.minus(&growing), Some(one));
        assert_eq!(most.plus(&one), most);
        for field in 0..Usage::FIELDS {
            let mut more = growing.to_array();
            more[field] += 1;
            assert_eq!(growing.minus(&Usage::from_array(more)), None, "field {field}");
        }
    }

    #[test]
    fn a_total_counts_past_every_edge_of_64_bits() {
        let most = Consumption {
            charged: RuParts { cpu: Ru(i64::MAX), write: Ru::MAX, ..RuParts::flat(Ru(-1)) },
            shadow: Ru(i64::MAX),
            operations: u64::MAX,
            usage: Usage { read_bytes: u64::MAX, ..Usage::default() },
            ..Consumption::default()
        };
        let mut total = Total::default();
        (0..1_000).for_each(|_| total.count(&most));
        let of_i64 = 1_000 * u128::from(i64::MAX.unsigned_abs());
        assert_eq!((total.charged.cpu, total.shadow), (RuTotal(of_i64), RuTotal(of_i64)));
        assert_eq!(total.ru(), RuTotal(of_i64 + 1_000_000_000_000_000_000_000));
        assert_eq!((total.charged.flat, total.operations), (RuTotal(0), 1_000 * u128::from(u64::MAX)));
        assert_eq!(total.usage.read_bytes, 1_000 * u128::from(u64::MAX));
        assert_eq!(total.minus(&Total::from(most)).unwrap().plus(&Total::from(most)), total);
    }
}
