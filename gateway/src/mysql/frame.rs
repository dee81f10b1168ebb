//! Frames: a header of four bytes (payload length in 24 bits, sequence id) and the payload. A payload of exactly
//! [`MAX_PAYLOAD`] bytes says that the packet goes on in the next frame, which may be empty.
//!
//! *Source*: MySQL client/server protocol, "Packets"; the same for MariaDB.

/// Length of a frame's header, in bytes.
pub(super) const HEADER: usize = 4;
/// Longest payload of one frame, in bytes: what 24 bits can say.
pub(super) const MAX_PAYLOAD: usize = 0xff_ffff;

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of payload that follow.
    pub(super) len: usize,
    /// Counts the frames of one command and its response, modulo 256.
    pub(super) sequence: u8,
}

impl Header {
    /// The header at the start of `input`, once it is there as a whole.
    pub(super) fn parse(input: &[u8]) -> Option<Self> {
        let &[low, middle, high, sequence] = input.first_chunk::<HEADER>()?;
        let len = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        Some(Self { len, sequence })
    }

    /// The header as it is sent.
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let [low, middle, high, ..] = self.len.min(MAX_PAYLOAD).to_le_bytes();
        [low, middle, high, self.sequence]
    }
}

/// The payload that has arrived of the frame at the start of `input`, whose header has been read.
pub(super) fn arrived(input: &[u8], header: Header) -> &[u8] {
    let payload = input.get(HEADER..).unwrap_or_default();
    payload.get(..header.len).unwrap_or(payload)
}

/// Where one direction stands within its packets.
#[derive(Debug, Default)]
pub(super) struct Frames {
    left: usize,
    continues: bool,
    sequence: u8,
}

impl Frames {
    /// A frame begins: the caller takes its header.
    pub(super) fn begin(&mut self, header: Header) {
        self.left = header.len;
        self.continues = header.len == MAX_PAYLOAD;
        self.sequence = header.sequence;
    }

    /// Whether the next byte is the first of a packet.
    pub(super) fn at_packet(&self) -> bool {
        self.left == 0 && !self.continues
    }

    /// Sequence id of the last frame that began.
    pub(super) fn sequence(&self) -> u8 {
        self.sequence
    }

    /// How many bytes of `input` belong to the packet that has begun; they count as taken. Headers of further frames
    /// are among them, but never a part of a header.
    pub(super) fn drain(&mut self, input: &[u8]) -> usize {
        let mut at: usize = 0;
        loop {
            let here = self.left.min(input.len().saturating_sub(at));
            self.left -= here;
            at += here;
            if self.left > 0 || !self.continues {
                return at;
            }
            let Some(header) = Header::parse(input.get(at..).unwrap_or_default()) else { return at };
            self.begin(header);
            at += HEADER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_is_written() {
        for len in [0, 1, 255, 256, 65_536, MAX_PAYLOAD] {
            let header = Header { len, sequence: 7 };
            assert_eq!(Header::parse(&header.to_bytes()), Some(header));
        }
        assert_eq!(Header::parse(&[1, 0, 0]), None);
    }

    #[test]
    fn a_full_frame_is_followed_by_the_rest_of_its_packet() {
        let mut stream = vec![7; MAX_PAYLOAD];
        stream.extend([3, 0, 0, 6, 1, 2, 3, 9, 9]);
        let mut frames = Frames::default();
        frames.begin(Header { len: MAX_PAYLOAD, sequence: 5 });
        let first = frames.drain(&stream[..MAX_PAYLOAD + 2]);
        assert_eq!((first, frames.at_packet()), (MAX_PAYLOAD, false));
        let second = frames.drain(&stream[first..]);
        assert_eq!((second, frames.at_packet(), frames.sequence()), (7, true, 6));
    }

    #[test]
    fn an_empty_frame_ends_a_packet_that_fills_its_frames() {
        let mut frames = Frames::default();
        frames.begin(Header { len: MAX_PAYLOAD, sequence: 0 });
        assert_eq!(frames.drain(&vec![1; MAX_PAYLOAD]), MAX_PAYLOAD);
        assert!(!frames.at_packet());
        assert_eq!(frames.drain(&[0, 0, 0, 1, 5]), HEADER);
        assert!(frames.at_packet());
    }
}
