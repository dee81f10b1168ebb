//! Capabilities: what both sides of a connection have agreed to, and which of it the gateway lets them agree to.
//!
//! 64 bits: the lower half is MySQL's, the upper half MariaDB's extension of it, which stands in bytes that MySQL
//! leaves empty and counts only where [`Capabilities::MYSQL`] is not set. A capability may change the shape of
//! packets, so that only those in [`Capabilities::UNDERSTOOD`] are offered to a client; one from the future is not.
//!
//! *Source*: MySQL "Capabilities Flags"; MariaDB "Connecting", "Capabilities".

use std::ops::BitOr;

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities(pub(super) u64);

impl Capabilities {
    /// To MariaDB: the other side is MySQL and has no extended capabilities. To MySQL: long passwords.
    pub(super) const MYSQL: Self = Self(1);
    pub(super) const CONNECT_WITH_DB: Self = Self(1 << 3);
    pub(super) const COMPRESS: Self = Self(1 << 5);
    pub(super) const PROTOCOL_41: Self = Self(1 << 9);
    pub(super) const SSL: Self = Self(1 << 11);
    /// The answer to the scramble has its length in a byte before it.
    pub(super) const SECURE_CONNECTION: Self = Self(1 << 15);
    pub(super) const PLUGIN_AUTH: Self = Self(1 << 19);
    pub(super) const CONNECT_ATTRS: Self = Self(1 << 20);
    pub(super) const PLUGIN_AUTH_LENENC: Self = Self(1 << 21);
    pub(super) const SESSION_TRACK: Self = Self(1 << 23);
    pub(super) const DEPRECATE_EOF: Self = Self(1 << 24);
    /// MySQL may leave out the columns of a result. Not offered: an omission looks like an OK packet.
    pub(super) const OPTIONAL_METADATA: Self = Self(1 << 25);
    pub(super) const ZSTD: Self = Self(1 << 26);
    pub(super) const QUERY_ATTRIBUTES: Self = Self(1 << 27);
    /// MySQL's name for capabilities that it does not have yet.
    const EXTENSION: Self = Self(1 << 29);
    const PROGRESS: Self = Self(1 << 32);
    const BULK_OPERATIONS: Self = Self(1 << 34);
    /// MariaDB describes a column's type in more detail.
    pub(super) const EXTENDED_METADATA: Self = Self(1 << 35);
    /// MariaDB leaves out the columns of a prepared statement's result if they are as before.
    pub(super) const CACHE_METADATA: Self = Self(1 << 36);
    const BULK_UNIT_RESULTS: Self = Self(1 << 37);

    /// The capabilities that may be offered. Compression would hide the packets; the gateway does not understand the
    /// others that are missing.
    pub(super) const UNDERSTOOD: Self = Self(
        0xffff_ffff & !(Self::COMPRESS.0 | Self::OPTIONAL_METADATA.0 | Self::ZSTD.0 | Self::EXTENSION.0)
            | Self::PROGRESS.0
            | Self::BULK_OPERATIONS.0
            | Self::EXTENDED_METADATA.0
            | Self::CACHE_METADATA.0
            | Self::BULK_UNIT_RESULTS.0,
    );

    /// A set of a lower half and, unless that says MySQL, an upper half.
    pub(super) fn of_halves(lower: u32, upper: u32) -> Self {
        let lower = u64::from(lower);
        let extended = lower & Self::MYSQL.0 == 0;
        Self(if extended { lower | u64::from(upper) << 32 } else { lower })
    }

    /// Lower and upper half, as they are sent.
    pub(super) fn halves(self) -> ([u8; 4], [u8; 4]) {
        let [a, b, c, d, e, f, g, h] = self.0.to_le_bytes();
        ([a, b, c, d], [e, f, g, h])
    }

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// This set, with `other` in it or not.
    pub(super) fn with(self, other: Self, present: bool) -> Self {
        if present { self | other } else { self.without(other) }
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_half_counts_for_mariadb_only() {
        let extended = Capabilities::of_halves(0x200, 0x10);
        assert!(extended.has(Capabilities::CACHE_METADATA));
        assert!(!Capabilities::of_halves(0x201, 0x10).has(Capabilities::CACHE_METADATA));
        assert_eq!(extended.halves(), ([0, 2, 0, 0], [0x10, 0, 0, 0]));
    }

    #[test]
    fn compression_and_what_is_not_known_are_not_offered() {
        let offered = Capabilities(u64::MAX).and(Capabilities::UNDERSTOOD);
        for hidden in [
            Capabilities::COMPRESS,
            Capabilities::ZSTD,
            Capabilities::OPTIONAL_METADATA,
            Capabilities(1 << 33),
            Capabilities(1 << 38),
            Capabilities(1 << 63),
        ] {
            assert_eq!(offered.and(hidden), Capabilities(0));
        }
        assert!(offered.has(Capabilities::QUERY_ATTRIBUTES | Capabilities::CACHE_METADATA));
    }
}
