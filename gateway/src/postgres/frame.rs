//! The frame of a message of the PostgreSQL protocol 3: a kind, a length, a body.
//!
//! *Source*: PostgreSQL 15 documentation, chapters 55.2 (message flow) and 55.7 (formats).

use tidegate_sql::POSTGRES_NAME_BYTES;

/// Kind and length: what precedes a body.
pub(super) const HEADER: usize = 5;
/// Longest message PostgreSQL takes, its length included.
const MAX_LENGTH: usize = 0x3fff_ffff;

/// The beginning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    /// Length of the whole message, this header included.
    pub(super) total: usize,
}

/// What does not follow the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    /// A length no message can have.
    #[error("message {kind:?} declares a length of {length} bytes; 4 to {MAX_LENGTH} are possible")]
    Length {
        /// The message's kind.
        kind: char,
        /// What it declares.
        length: u32,
    },
    /// A message that is too long to be looked at where it must be.
    #[error("{what} of {length} bytes is longer than the {max} bytes that are taken")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// A body that cannot be read.
    #[error("{what} is malformed")]
    Malformed {
        /// What it is.
        what: &'static str,
    },
    /// The client sends on without reading answers.
    #[error("more than {max} messages are on their way without an answer")]
    TooMany {
        /// The limit.
        max: usize,
    },
}

impl Header {
    /// Reads the header; `None` when there are too few bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let Some((&[kind, a, b, c, d], _)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let declared = u32::from_be_bytes([a, b, c, d]);
        match usize::try_from(declared) {
            Ok(length @ 4..=MAX_LENGTH) => Ok(Some(Self { kind, total: length.saturating_add(1) })),
            _ => Err(ProtocolError::Length { kind: char::from(kind), length: declared }),
        }
    }
}

/// The text up to the first zero byte, and what follows it.
pub(super) fn c_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// As much of a name as the server looks at: of a statement, a portal, a user or a database.
pub(super) fn looked_up(name: &[u8]) -> &[u8] {
    name.get(..POSTGRES_NAME_BYTES).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_needs_five_bytes_and_a_possible_length() {
        assert_eq!(Header::read(b"Q\0\0\0"), Ok(None));
        assert_eq!(Header::read(b"Q\0\0\0\x04"), Ok(Some(Header { kind: b'Q', total: 5 })));
        assert_eq!(Header::read(b"Q\0\0\0\x03"), Err(ProtocolError::Length { kind: 'Q', length: 3 }));
        assert!(Header::read(b"Q\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn strings_end_with_a_zero() {
        assert_eq!(c_string(b"ab\0c"), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!(c_string(b"ab"), None);
    }
}
