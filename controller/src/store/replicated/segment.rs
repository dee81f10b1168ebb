//! A segment of the log as bytes, and batches that take several.
//!
//! Layout, numbers big-endian: version (1 byte), n, epoch (8 each), part and parts of the batch (4 each), wall second,
//! bytes of all segments before this one (8 each), a piece of the batch's entries, CRC-32 (4). Version 1 has neither
//! growth nor marks among its entries. A batch counts when all its parts are there, one after another. The part that
//! comes first ends whatever was before it: an owner that gave a batch up, or that died within one, leaves its first
//! parts behind, and every reader skips them.

use super::bytes::{LONGEST, cut_off, sealed, unsealed};

const VERSION: u8 = 2;
/// Bytes of a segment without entries.
pub(super) const FRAME: usize = 1 + 2 * 8 + 2 * 4 + 2 * 8 + 4;

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    /// Its number: one more than the one before, over all owners.
    pub(super) n: u64,
    /// The revision of `own` under which it was written.
    pub(super) epoch: u64,
    /// Which part of its batch it is, from 0.
    pub(super) part: u32,
    /// The parts of its batch.
    pub(super) of: u32,
    /// When it was written, in seconds since the Unix epoch: for people.
    pub(super) second: u64,
    /// Bytes of all segments before it.
    pub(super) before: u64,
    /// A piece of the entries.
    pub(super) piece: &'a [u8],
}

impl<'a> Segment<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME + self.piece.len());
        out.push(VERSION);
        out.extend(self.n.to_be_bytes());
        out.extend(self.epoch.to_be_bytes());
        out.extend(self.part.to_be_bytes());
        out.extend(self.of.to_be_bytes());
        out.extend(self.second.to_be_bytes());
        out.extend(self.before.to_be_bytes());
        out.extend_from_slice(self.piece);
        sealed(out)
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let mut cursor = unsealed(bytes, VERSION)?;
        let mut word = || cursor.word().ok_or_else(cut_off);
        let (n, epoch) = (word()?, word()?);
        let (part, of) = (cursor.half().ok_or_else(cut_off)?, cursor.half().ok_or_else(cut_off)?);
        let mut word = || cursor.word().ok_or_else(cut_off);
        let (second, before) = (word()?, word()?);
        if n == 0 || epoch == 0 || part >= of {
            return Err(format!("it is part {part} of {of}, number {n}, of epoch {epoch}, which cannot be"));
        }
        Ok(Self { n, epoch, part, of, second, before, piece: cursor.0 })
    }
}

/// The pieces of a batch, each of which fits a segment of so many bytes.
pub(super) fn pieces(batch: &[u8], segment: usize) -> Vec<&[u8]> {
    if batch.is_empty() {
        return vec![batch];
    }
    batch.chunks(segment.saturating_sub(FRAME).max(1)).collect()
}

/// The parts of a batch that have been read.
#[derive(Debug, Default)]
pub(super) struct Joining {
    parts: u32,
    of: u32,
    epoch: u64,
    entries: Vec<u8>,
}

impl Joining {
    /// Takes the next segment of the log; returns the entries of its batch when that is whole.
    pub(super) fn push(&mut self, segment: &Segment<'_>) -> Result<Option<Vec<u8>>, String> {
        if segment.epoch < self.epoch {
            return Err(format!("it is of epoch {} and comes after epoch {}", segment.epoch, self.epoch));
        }
        if segment.part == 0 {
            *self = Self { of: segment.of, epoch: segment.epoch, ..Self::default() };
        } else if (segment.part, segment.of, segment.epoch) != (self.parts, self.of, self.epoch) {
            return Err(format!(
                "it is part {} of {}, and does not follow those before",
                segment.part, segment.of
            ));
        }
        if self.entries.len().saturating_add(segment.piece.len()) > LONGEST {
            return Err(format!("its batch has more than {LONGEST} bytes"));
        }
        self.entries.extend_from_slice(segment.piece);
        self.parts += 1;
        if self.parts < self.of {
            return Ok(None);
        }
        self.parts = 0;
        self.of = 0;
        Ok(Some(std::mem::take(&mut self.entries)))
    }

    /// Begins behind a batch of this epoch.
    pub(super) fn after(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(n: u64, epoch: u64, part: u32, of: u32, piece: &[u8]) -> Segment<'_> {
        Segment { n, epoch, part, of, second: 5, before: 70, piece }
    }

    proptest! {
        #[test]
        fn segments_are_read_as_they_were_written(
            n in 1..u64::MAX, epoch in 1..u64::MAX, part in 0..100_u32, more in 1..100_u32, second: u64, before: u64,
            piece in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let segment = Segment { n, epoch, part, of: part + more, second, before, piece: &piece };
            let bytes = segment.encode();
            prop_assert_eq!(bytes.len(), FRAME + piece.len());
            prop_assert_eq!(Segment::decode(&bytes).unwrap(), segment);
        }

        #[test]
        fn segments_of_any_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), one: bool) {
            if one && !bytes.is_empty() {
                bytes[0] = VERSION;
            }
            prop_assert!(Segment::decode(&bytes).is_err());
            // With a checksum that matches, too: they are read or refused.
            let _ = Segment::decode(&sealed(bytes));
        }

        #[test]
        fn a_turned_bit_and_a_cut_are_found(bit in 0..8 * (FRAME + 5), keep in 0..FRAME + 5) {
            let mut bytes = segment(3, 4, 0, 1, b"12345").encode();
            prop_assert!(Segment::decode(&bytes[..keep]).is_err());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Segment::decode(&bytes).is_err());
        }

        #[test]
        fn pieces_make_the_batch_again(batch in proptest::collection::vec(any::<u8>(), 0..500), size in 1..200_usize) {
            let (pieces, mut joining) = (pieces(&batch, size), Joining::default());
            let of = u32::try_from(pieces.len()).unwrap();
            for (part, piece) in (0..of).zip(&pieces) {
                prop_assert!(piece.len() + FRAME <= size.max(FRAME + 1));
                let joined = joining.push(&segment(u64::from(part) + 1, 1, part, of, piece)).unwrap();
                prop_assert_eq!(joined, (part + 1 == of).then(|| batch.clone()));
            }
        }
    }

    #[test]
    fn a_batch_is_as_long_as_its_owner_may_log_and_no_longer() {
        for (piece, fits) in [(&b"a"[..], true), (b"ab", false)] {
            let entries = vec![0; LONGEST - 1];
            let mut joining = Joining { parts: 1, of: 2, epoch: 7, entries };
            let joined = joining.push(&segment(2, 7, 1, 2, piece));
            assert_eq!(joined.is_ok_and(|batch| batch.unwrap().len() == LONGEST), fits);
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = segment(3, 4, 0, 1, b"").encode();
        bytes[0] = 3;
        assert_eq!(Segment::decode(&bytes).unwrap_err(), "it has version 3, this build reads up to 2");
        // What the version before wrote is read.
        bytes[0] = 1;
        let content = bytes.split_last_chunk::<4>().unwrap().0.to_vec();
        assert_eq!(Segment::decode(&sealed(content)).unwrap(), segment(3, 4, 0, 1, b""));
    }

    #[test]
    fn an_incomplete_batch_is_skipped_and_a_part_without_those_before_it_is_damage() {
        let mut joining = Joining::default();
        assert_eq!(joining.push(&segment(1, 7, 0, 3, b"a")).unwrap(), None);
        assert_eq!(joining.push(&segment(2, 7, 1, 3, b"b")).unwrap(), None);
        assert_eq!(joining.push(&segment(3, 8, 0, 2, b"c")).unwrap(), None);
        assert!(joining.push(&segment(4, 8, 1, 3, b"d")).unwrap_err().contains("does not follow"));
        assert_eq!(joining.push(&segment(4, 8, 1, 2, b"d")).unwrap(), Some(b"cd".to_vec()));
        assert!(joining.push(&segment(5, 8, 1, 2, b"e")).is_err());
        assert!(joining.push(&segment(5, 7, 0, 1, b"e")).unwrap_err().contains("epoch 7"));
        assert!(Joining::after(9).push(&segment(5, 8, 0, 1, b"e")).is_err());
        assert_eq!(Joining::after(8).push(&segment(5, 8, 0, 1, b"e")).unwrap(), Some(b"e".to_vec()));
    }
}
