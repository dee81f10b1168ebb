//! The fields of a usage vector as values, so that a table, a price and a page can walk them.
//!
//! In: a `Usage`. Out: one of its ten amounts, in the unit its name ends in (nanoseconds, bytes, or a plain count).
//! `Field::ALL` is in the declaration order of `Usage`; a test holds the two together, since a field without a
//! coefficient would be free for ever without anyone having decided so.

use std::fmt;

use tidegate_core::usage::Usage;

/// The part of a charge that a field counts towards; the parts of `tidegate_core::usage::RuParts` that are priced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// CPU time.
    Cpu,
    /// Read requests, batches and bytes.
    Read,
    /// Write requests, batches and bytes, times replicas.
    Write,
    /// Ingress, egress and cross-zone bytes.
    Network,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident $name:ident $part:ident,)*) => {
        /// One field of [`Usage`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Field {
            $($(#[$doc])* $variant,)*
        }

        impl Field {
            /// All fields, in the order of [`Usage`].
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant,)*];
            /// How many fields a usage vector has.
            pub const COUNT: usize = [$(stringify!($name),)*].len();

            /// The name, as in [`Usage`] and as the key in a table's text.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($name),)* }
            }

            /// The part of the charge it counts towards.
            pub const fn part(self) -> Part {
                match self { $(Self::$variant => Part::$part,)* }
            }

            /// Its amount in `usage`.
            pub const fn of(self, usage: &Usage) -> u64 {
                match self { $(Self::$variant => usage.$name,)* }
            }

            /// Its amount in `usage`, to be set.
            pub const fn of_mut(self, usage: &mut Usage) -> &mut u64 {
                match self { $(Self::$variant => &mut usage.$name,)* }
            }
        }
    };
}

fields! {
    /// CPU time, in nanoseconds.
    CpuNs cpu_ns Cpu,
    /// Read requests.
    ReadRequests read_requests Read,
    /// Read batches.
    ReadBatches read_batches Read,
    /// Bytes read.
    ReadBytes read_bytes Read,
    /// Write requests, before replication.
    WriteRequests write_requests Write,
    /// Write batches, before replication.
    WriteBatches write_batches Write,
    /// Bytes written, before replication.
    WriteBytes write_bytes Write,
    /// Bytes received from the caller.
    NetInBytes net_in_bytes Network,
    /// Bytes sent to the caller.
    NetOutBytes net_out_bytes Network,
    /// Bytes that crossed an availability zone.
    CrossZoneBytes cross_zone_bytes Network,
}

impl Field {
    /// The field of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_usage_in_its_order() {
        let mut usage = Usage::default();
        for (amount, field) in (1..).zip(Field::ALL) {
            *field.of_mut(&mut usage) = amount;
        }
        let here: Vec<_> = Field::ALL.into_iter().map(|field| (field.name(), field.of(&usage))).collect();
        assert_eq!(here, usage.fields().collect::<Vec<_>>());
        for field in Field::ALL {
            assert_eq!(Field::named(field.name()), Some(field));
        }
        assert_eq!(Field::named("cpu"), None);
    }
}
