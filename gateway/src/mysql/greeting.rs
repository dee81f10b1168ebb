//! The server's greeting: who it is, and what it offers.
//!
//! Protocol 10: version, thread id, scramble, capabilities in two halves (MariaDB: a third part in bytes that MySQL
//! leaves empty), status, plugin. The gateway changes nothing but the capabilities.

use super::auth::SCRAMBLE;
use super::capability::Capabilities;
use super::reader::Reader;

/// Longest greeting, in bytes; real ones have about 100. All of it has to be seen before it is passed on.
pub(super) const GREETING_LIMIT: usize = 1024;
/// MariaDB's prefix of its version, for replicas that believe in no version above 9.
const VERSION_PREFIX: &str = "5.5.5-";

/// What a greeting says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) server_version: String,
    pub(super) thread_id: u32,
    pub(super) offered: Capabilities,
    /// What the client's answer is mixed with.
    pub(super) scramble: Vec<u8>,
    lower_at: usize,
}

impl Greeting {
    /// Bytes from the first half of the capabilities to the second, and to MariaDB's.
    const UPPER_AFTER: usize = 5;
    const EXTENDED_AFTER: usize = 14;

    /// Reads a payload.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != 10 {
            return None;
        }
        let version = String::from_utf8_lossy(reader.until_zero()?).into_owned();
        let thread_id = reader.u32()?;
        let mut scramble = reader.take(8)?.to_vec();
        reader.take(1)?;
        let lower_at = payload.len() - reader.rest().len();
        let low = reader.u16()?;
        reader.take(1 + 2)?;
        let high = reader.u16()?;
        reader.take(1 + 6)?;
        let extended = reader.u32()?;
        scramble.extend(reader.take(SCRAMBLE - 8).unwrap_or_default());
        let offered = Capabilities::of_halves(u32::from(low) | u32::from(high) << 16, extended);
        let server_version = version.strip_prefix(VERSION_PREFIX).map_or(version.clone(), str::to_owned);
        Some(Self { server_version, thread_id, offered, scramble, lower_at })
    }

    /// Whether the server is MySQL and not MariaDB, which says so in its version, and from 10.2 on by a capability.
    pub(super) fn is_mysql(&self) -> bool {
        self.offered.has(Capabilities::MYSQL) && !self.server_version.contains("MariaDB")
    }

    /// The payload, offering `offered` instead.
    pub(super) fn offering(&self, payload: &[u8], offered: Capabilities) -> Vec<u8> {
        let mut edited = payload.to_vec();
        let (lower, extended) = offered.halves();
        let [a, b, c, d] = lower;
        put(&mut edited, self.lower_at, &[a, b]);
        put(&mut edited, self.lower_at + Self::UPPER_AFTER, &[c, d]);
        if !self.offered.has(Capabilities::MYSQL) {
            put(&mut edited, self.lower_at + Self::EXTENDED_AFTER, &extended);
        }
        edited
    }
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|tail| tail.get_mut(..new.len())) {
        place.copy_from_slice(new);
    }
}

#[cfg(test)]
mod tests {
    use super::super::captured;
    use super::*;

    #[test]
    fn a_greeting_of_mariadb_is_read() {
        let greeting = Greeting::parse(&captured::GREETING[4..]).unwrap();
        assert_eq!(greeting.server_version, "10.11.19-MariaDB-0+deb12u1");
        assert_eq!(greeting.thread_id, captured::THREAD_ID);
        assert!(greeting.offered.has(Capabilities::CACHE_METADATA | Capabilities::DEPRECATE_EOF));
        assert!(!greeting.offered.has(Capabilities::MYSQL) && !greeting.is_mysql());
    }

    #[test]
    fn a_greeting_of_mysql_is_told_from_one_of_an_older_mariadb() {
        let mut payload = captured::MYSQL_GREETING[4..].to_vec();
        let greeting = Greeting::parse(&payload).unwrap();
        assert_eq!(greeting.server_version, "9.7.4-2");
        assert!(greeting.is_mysql() && greeting.offered.has(Capabilities::SSL));
        payload.splice(1..8, *b"10.1.0-MariaDB");
        assert!(!Greeting::parse(&payload).unwrap().is_mysql());
    }

    #[test]
    fn nothing_but_the_capabilities_is_changed() {
        let payload = &captured::GREETING[4..];
        let greeting = Greeting::parse(payload).unwrap();
        assert_eq!(greeting.offering(payload, greeting.offered), payload);
        let fewer = greeting.offered.without(Capabilities::CACHE_METADATA | Capabilities::COMPRESS);
        let edited = greeting.offering(payload, fewer);
        let again = Greeting::parse(&edited).unwrap();
        assert_eq!(again, Greeting { offered: fewer, ..greeting });
        let differ = payload.iter().zip(&edited).filter(|(old, new)| old != new).count();
        assert_eq!(differ, 2);
    }

    #[test]
    fn half_a_greeting_is_none() {
        let payload = &captured::GREETING[4..];
        for len in 0..40 {
            assert_eq!(Greeting::parse(&payload[..len]), None, "{len} bytes");
        }
    }
}
