//! What an operation used and what it was charged: plain counters that only grow.
//!
//! `Usage` is the resource vector a meter fills in; a cost model prices it. `Consumption` is the running total a
//! node reports for a group: RU charged (with its parts) and the usage behind it. All fields are cumulative in a
//! report, so repeating one is harmless.

use crate::units::Ru;

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }
        impl $name {
            /// Number of fields.
            pub const FIELDS: usize = [$(stringify!($field),)*].len();

            /// The values, in declaration order.
            #[inline]
            pub const fn to_array(&self) -> [u64; Self::FIELDS] {
                [$(self.$field,)*]
            }

            /// From values in declaration order.
            pub const fn from_array(values: [u64; Self::FIELDS]) -> Self {
                let [$($field,)*] = values;
                Self { $($field,)* }
            }

            /// Field by field sum, saturating.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($field: self.$field.saturating_add(other.$field),)* }
            }
            /// Field by field difference; `None` when any field would go below zero.
            pub fn minus(&self, other: &Self) -> Option<Self> {
                Some(Self { $($field: self.$field.checked_sub(other.$field)?,)* })
            }
            /// Names and values, in declaration order.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(stringify!($field),)*].into_iter().zip(self.to_array())
            }
        }
    };
}

counters! {
    /// Resources used by one operation, or the sum over many.
    Usage {
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

/// RU charged, by the resource that caused it. The parts add up to the charge exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RuParts {
    /// For CPU time.
    pub cpu: Ru,
    /// For reads: requests, batches and bytes.
    pub read: Ru,
    /// For writes: requests, batches and bytes, times replicas.
    pub write: Ru,
    /// For network: ingress, egress and cross-zone bytes.
    pub network: Ru,
    /// Charged without a usage vector: a flat estimate, a dropped permit, a direct charge.
    pub flat: Ru,
}

impl RuParts {
    /// The charge.
    #[inline]
    pub fn total(&self) -> Ru {
        self.cpu + self.read + self.write + self.network + self.flat
    }

    /// A charge without a usage vector behind it.
    pub fn flat(ru: Ru) -> Self {
        Self { flat: ru, ..Self::default() }
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

    /// Part by part difference; `None` when any part would go below zero.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        let part = |a: Ru, b: Ru| (a >= b).then(|| a - b);
        Some(Self {
            cpu: part(self.cpu, other.cpu)?,
            read: part(self.read, other.read)?,
            write: part(self.write, other.write)?,
            network: part(self.network, other.network)?,
            flat: part(self.flat, other.flat)?,
        })
    }
}

/// Cumulative consumption of one client incarnation in one group, or a sum of such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Consumption {
    /// RU charged.
    pub charged: RuParts,
    /// What a second cost table, priced in parallel, would have charged.
    pub shadow: Ru,
    /// Operations settled or charged.
    pub operations: u64,
    /// Operations refused or timed out while waiting.
    pub throttled: u64,
    /// Time operations waited for admission, in microseconds.
    pub waited_us: u64,
    /// Resources used.
    pub usage: Usage,
}

impl Consumption {
    /// Number of words.
    pub const WORDS: usize = 9 + Usage::FIELDS;

    /// All counters, in declaration order, which is that of stores and journals. No amount is below zero; one that
    /// were counts as none.
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let Self { charged, shadow, operations, throttled, waited_us, usage } = self;
        let RuParts { cpu, read, write, network, flat } = charged;
        let amounts =
            [cpu, read, write, network, flat, shadow].map(|ru| u64::try_from(ru.0).unwrap_or_default());
        let mut words = [0; Self::WORDS];
        let all = amounts.into_iter().chain([*operations, *throttled, *waited_us]).chain(usage.to_array());
        words.iter_mut().zip(all).for_each(|(word, value)| *word = value);
        words
    }

    /// From counters in declaration order; `None` when an amount is out of range.
    pub fn from_words(words: [u64; Self::WORDS]) -> Option<Self> {
        let [cpu, read, write, network, flat, shadow, operations, throttled, waited_us, usage @ ..] = words;
        let ru = |word: u64| i64::try_from(word).ok().map(Ru);
        let charged = RuParts {
            cpu: ru(cpu)?,
            read: ru(read)?,
            write: ru(write)?,
            network: ru(network)?,
            flat: ru(flat)?,
        };
        let shadow = ru(shadow)?;
        Some(Self { charged, shadow, operations, throttled, waited_us, usage: Usage::from_array(usage) })
    }

    /// RU charged.
    #[inline]
    pub fn ru(&self) -> Ru {
        self.charged.total()
    }

    /// Field by field sum.
    #[must_use]
    #[inline]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            charged: self.charged.plus(&other.charged),
            shadow: self.shadow + other.shadow,
            operations: self.operations.saturating_add(other.operations),
            throttled: self.throttled.saturating_add(other.throttled),
            waited_us: self.waited_us.saturating_add(other.waited_us),
            usage: self.usage.plus(&other.usage),
        }
    }

    /// Field by field difference; `None` when any field would go below zero.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        Some(Self {
            charged: self.charged.minus(&other.charged)?,
            shadow: (self.shadow >= other.shadow).then(|| self.shadow - other.shadow)?,
            operations: self.operations.checked_sub(other.operations)?,
            throttled: self.throttled.checked_sub(other.throttled)?,
            waited_us: self.waited_us.checked_sub(other.waited_us)?,
            usage: self.usage.minus(&other.usage)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_the_order_of_stores_and_journals() {
        let consumption = Consumption {
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
        };
        let mut words = consumption.to_words();
        assert!(words.into_iter().eq(1..=19), "{words:?}");
        assert_eq!(Consumption::from_words(words), Some(consumption));
        words[5] = u64::MAX;
        assert_eq!(Consumption::from_words(words), None);
    }

    #[test]
    fn minus_undoes_plus_and_refuses_to_go_below_zero() {
        let a = Consumption {
            charged: RuParts { cpu: Ru(3), write: Ru(4), ..RuParts::default() },
            operations: 2,
            usage: Usage { cpu_ns: 9, net_out_bytes: 1, ..Usage::default() },
            ..Consumption::default()
        };
        let b = Consumption { charged: RuParts::flat(Ru(5)), throttled: 1, ..Consumption::default() };
        assert_eq!(a.plus(&b).minus(&b), Some(a));
        assert_eq!(a.minus(&b), None);
        assert_eq!(a.ru(), Ru(7));
    }
}
