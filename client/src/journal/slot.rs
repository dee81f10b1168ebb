//! One record of the journal: 512 bytes, checksummed, in two alternating copies.
//!
//! A write always goes to the copy that is *not* the newest, so that a torn write leaves the previous state readable.
//! The checksum is FNV-1a over everything behind it, which is enough to distinguish torn from whole; it does not guard
//! against someone who edits the file.
//!
//! Layout of a copy, little endian: checksum u64, version u64 (grows by one from write to write, 0 never written),
//! length u16, payload, zeros.

use crate::checksum::checksum;

/// Bytes of one copy; divides the page and sector size, so that a copy never straddles two of them.
pub(super) const COPY_BYTES: usize = 512;
/// Bytes of a record: two copies.
pub(super) const RECORD_BYTES: usize = 2 * COPY_BYTES;
/// Checksum, version and length.
const HEAD_BYTES: usize = 8 + 8 + 2;
/// Room for the payload.
pub(super) const PAYLOAD_BYTES: usize = COPY_BYTES - HEAD_BYTES;

/// What a record holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// All zeros: never written, or dropped.
    Free,
    /// The newest whole copy.
    Whole { version: u64, payload: &'a [u8] },
    /// The slot is not free, and neither copy is whole.
    Damaged,
}

/// One copy ready to be written; `None` when the payload does not fit.
pub(super) fn encode(version: u64, payload: &[u8]) -> Option<[u8; COPY_BYTES]> {
    let length = u16::try_from(payload.len()).ok()?;
    let mut copy = [0; COPY_BYTES];
    copy.get_mut(8..16)?.copy_from_slice(&version.to_le_bytes());
    copy.get_mut(16..18)?.copy_from_slice(&length.to_le_bytes());
    copy.get_mut(HEAD_BYTES..HEAD_BYTES.checked_add(payload.len())?)?.copy_from_slice(payload);
    let sum = checksum(copy.get(8..)?);
    copy.get_mut(..8)?.copy_from_slice(&sum.to_le_bytes());
    Some(copy)
}

/// Reads both copies of a record.
pub(super) fn decode(record: &[u8]) -> Record<'_> {
    if record.iter().all(|byte| *byte == 0) {
        return Record::Free;
    }
    record
        .chunks_exact(COPY_BYTES)
        .filter_map(decode_copy)
        .max_by_key(|(version, _)| *version)
        .map_or(Record::Damaged, |(version, payload)| Record::Whole { version, payload })
}

/// Where the copy with this version goes, from the beginning of the record.
pub(super) const fn copy_offset(version: u64) -> u64 {
    (version % 2) * (COPY_BYTES as u64)
}

fn decode_copy(copy: &[u8]) -> Option<(u64, &[u8])> {
    let sum = u64::from_le_bytes(copy.get(..8)?.try_into().ok()?);
    let version = u64::from_le_bytes(copy.get(8..16)?.try_into().ok()?);
    let length = u16::from_le_bytes(copy.get(16..18)?.try_into().ok()?);
    let payload = copy.get(HEAD_BYTES..)?.get(..usize::from(length))?;
    (version > 0 && sum == checksum(copy.get(8..)?)).then_some((version, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(newer: &[u8], older: &[u8]) -> Vec<u8> {
        [newer, older].concat()
    }

    #[test]
    fn the_newest_whole_copy_wins() {
        let (one, two) = (encode(1, b"one").unwrap(), encode(2, b"two").unwrap());
        assert_eq!(decode(&record(&two, &one)), Record::Whole { version: 2, payload: b"two" });
        assert_eq!(decode(&record(&[0; COPY_BYTES], &one)), Record::Whole { version: 1, payload: b"one" });
        assert_eq!(decode(&[0; RECORD_BYTES]), Record::Free);
    }

    #[test]
    fn a_write_torn_at_any_byte_falls_back_to_the_previous_copy() {
        let (one, two) = (encode(1, b"one").unwrap(), encode(3, b"three").unwrap());
        let older = encode(2, b"two").unwrap();
        // Copy 1 is being overwritten by version 3, up to `torn` bytes of it.
        for torn in 0..COPY_BYTES {
            let mut copy = one;
            copy[..torn].copy_from_slice(&two[..torn]);
            match decode(&record(&older, &copy)) {
                Record::Whole { version: 2, payload: b"two" } => {}
                // All bytes that differ have arrived.
                Record::Whole { version: 3, payload: b"three" } => assert_eq!(copy, two),
                other => panic!("torn at {torn}: {other:?}"),
            }
        }
    }

    #[test]
    fn garbage_is_damage_not_data() {
        assert_eq!(decode(&[7; RECORD_BYTES]), Record::Damaged);
        let mut copy = encode(1, b"x").unwrap();
        copy[20] ^= 1;
        assert_eq!(decode(&record(&[0; COPY_BYTES], &copy)), Record::Damaged);
        let never_written = encode(0, b"x").unwrap();
        assert_eq!(decode(&record(&never_written, &[0; COPY_BYTES])), Record::Damaged);
        assert_eq!(encode(1, &[0; PAYLOAD_BYTES + 1]), None);
        assert!(encode(1, &[0; PAYLOAD_BYTES]).is_some());
    }
}
