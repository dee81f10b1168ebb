//! The two payloads of the journal: the file's header and one group's cumulative consumption.
//!
//! Header: magic, format, incarnation of the newest start, client identity. Entry: incarnation, the counters of `Total`
//! in a fixed order, group name. All integers are little endian and 8 bytes wide; where a counter has no room in that, a
//! zero byte, which no name has, and the upper halves of all counters stand before the name.

use tidegate_core::usage::Total;

use crate::names::GroupName;

/// First bytes of every journal.
const MAGIC: &[u8; 8] = b"tidegate";
/// Layout of the file; grows when it changes.
const FORMAT: u64 = 1;

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) incarnation: u64,
    pub(super) identity: String,
}

/// One group's consumption under one incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) incarnation: u64,
    pub(super) group: GroupName,
    pub(super) total: Total,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(self.incarnation.to_le_bytes());
        bytes.extend(self.identity.as_bytes());
        bytes
    }

    /// `None` when the payload is not a header of this format.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader(payload.strip_prefix(MAGIC)?);
        if reader.u64()? != FORMAT {
            return None;
        }
        let incarnation = reader.u64()?;
        Some(Self { incarnation, identity: std::str::from_utf8(reader.0).ok()?.to_owned() })
    }
}

impl Entry {
    pub(super) fn encode(incarnation: u64, group: &GroupName, total: &Total) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(super::slot::PAYLOAD_BYTES);
        bytes.extend(incarnation.to_le_bytes());
        let words = total.to_words();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes().into_iter().take(8)));
        if words.iter().any(|word| word >> 64 != 0) {
            bytes.push(0);
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes().into_iter().skip(8)));
        }
        bytes.extend(group.as_bytes());
        bytes
    }

    /// `None` when the payload is not an entry.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let incarnation = reader.u64()?;
        let mut words = [0; Total::WORDS];
        for word in &mut words {
            *word = u128::from(reader.u64()?);
        }
        if let Some(wide) = reader.0.strip_prefix(&[0]) {
            reader = Reader(wide);
            for word in &mut words {
                *word |= u128::from(reader.u64()?) << 64;
            }
        }
        let total = Total::from_words(words);
        let group = GroupName::new(std::str::from_utf8(reader.0).ok()?).ok()?;
        Some(Self { incarnation, group, total })
    }
}

/// Takes integers off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Ru;
    use tidegate_core::usage::{Consumption, RuParts, Usage};

    use super::*;
    use crate::journal::slot::PAYLOAD_BYTES;
    use crate::names::MAX_GROUP_NAME;

    #[test]
    fn entries_survive_the_round_trip() {
        let group = GroupName::new(&"g".repeat(MAX_GROUP_NAME)).unwrap();
        let total = Total::from(Consumption {
            charged: RuParts { cpu: Ru(1), read: Ru(2), write: Ru(3), network: Ru(4), flat: Ru(i64::MAX) },
            shadow: Ru(6),
            operations: 7,
            throttled: 8,
            waited_us: u64::MAX,
            usage: Usage { cpu_ns: 10, write_bytes: 11, cross_zone_bytes: 12, ..Usage::default() },
        });
        let wide = Total::from_words(total.to_words().map(|word| word + (1 << 90)));
        for total in [total, wide] {
            let bytes = Entry::encode(9, &group, &total);
            assert!(bytes.len() <= PAYLOAD_BYTES, "{} bytes", bytes.len());
            assert_eq!(Entry::decode(&bytes), Some(Entry { incarnation: 9, group: group.clone(), total }));
            assert_eq!(Entry::decode(&bytes[..100]), None);
        }
    }

    #[test]
    fn counters_are_written_in_eight_bytes_each_unless_one_has_no_room_in_that() {
        let group = GroupName::new("g").unwrap();
        let narrow = Total::from_words([u128::from(u64::MAX); Total::WORDS]);
        let bytes = Entry::encode(9, &group, &narrow);
        assert_eq!(bytes.len(), 8 + 8 * Total::WORDS + 1);
        for wide in 0..Total::WORDS {
            let mut words = [1; Total::WORDS];
            words[wide] <<= 64;
            let total = Total::from_words(words);
            let bytes = Entry::encode(9, &group, &total);
            assert_eq!(Entry::decode(&bytes).map(|entry| entry.total), Some(total));
        }
    }

    #[test]
    fn headers_survive_the_round_trip() {
        let header = Header { incarnation: 3, identity: "node-1".into() };
        assert_eq!(Header::decode(&header.encode()), Some(header.clone()));
        assert_eq!(Header::decode(b"tidegateXXXXXXXXYYYYYYYY"), None);
        assert_eq!(Header::decode(b""), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            if let Some(Entry { incarnation, group, total }) = Entry::decode(&bytes) {
                assert_eq!(Entry::encode(incarnation, &group, &total), bytes);
            }
            Header::decode(&bytes);
        }
    }
}
