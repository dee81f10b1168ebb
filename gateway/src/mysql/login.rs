//! What a client says of itself: the response to the greeting, and `COM_CHANGE_USER`.
//!
//! In: a payload, of which the beginning may be all there is. Out: user, database, program. The password's answer
//! is stepped over and never kept.
//!
//! *Source*: MySQL "HandshakeResponse41", "COM_CHANGE_USER"; MariaDB's extended capabilities stand in the last four
//! bytes of the filler.

use super::capability::Capabilities;
use super::protocol_error::ProtocolError;
use super::reader::Reader;

/// Longest name of a user or database, in bytes: 128 characters of four bytes (MariaDB; MySQL has 32 and 64).
pub(super) const NAME_LIMIT: usize = 512;
/// Longest name of a program that is kept, in bytes; the rest is cut off.
pub(super) const PROGRAM_LIMIT: usize = 256;
/// Bytes of a response before the user: capabilities, packet size, character set, filler. `SSLRequest` is these.
pub(super) const PREAMBLE: usize = 32;

/// The fixed beginning of a response to the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    bytes: [u8; PREAMBLE],
}

impl Preamble {
    /// The beginning of `payload`.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        payload.first_chunk::<PREAMBLE>().map(|&bytes| Self { bytes })
    }

    /// What the client can do.
    pub(super) fn capabilities(&self) -> Capabilities {
        let mut reader = Reader::new(&self.bytes);
        let lower = reader.u32().unwrap_or_default();
        reader.skip(4 + 1 + 19);
        Capabilities::of_halves(lower, reader.u32().unwrap_or_default())
    }

    /// The same bytes, with other capabilities.
    pub(super) fn with(&self, capabilities: Capabilities) -> [u8; PREAMBLE] {
        let (lower, extended) = capabilities.halves();
        let mut bytes = self.bytes;
        if let Some(place) = bytes.first_chunk_mut::<4>() {
            *place = lower;
        }
        if !self.capabilities().has(Capabilities::MYSQL)
            && let Some(place) = bytes.last_chunk_mut::<4>()
        {
            *place = extended;
        }
        bytes
    }
}

/// The identity that a client claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) user: String,
    pub(super) database: Option<String>,
    pub(super) program_name: Option<String>,
    /// How the client answers the first scramble.
    pub(super) plugin: Option<String>,
}

impl Identity {
    /// The login in a response to the greeting, behind its preamble.
    pub(super) fn of_login(payload: &[u8], capabilities: Capabilities) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(payload.get(PREAMBLE..).unwrap_or_default());
        let user = reader.until_zero().ok_or(ProtocolError::Login { len: payload.len() })?;
        skip_password(&mut reader, capabilities, capabilities.has(Capabilities::PLUGIN_AUTH_LENENC));
        let database =
            if capabilities.has(Capabilities::CONNECT_WITH_DB) { reader.until_zero_or_end() } else { b"" };
        Self::of_parts(user, database, reader, capabilities)
    }

    /// The login in a `COM_CHANGE_USER`, behind the command.
    pub(super) fn of_change(payload: &[u8], capabilities: Capabilities) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(payload);
        let user = reader.until_zero_or_end();
        skip_password(&mut reader, capabilities, false);
        let database = reader.until_zero_or_end();
        reader.skip(2);
        Self::of_parts(user, database, reader, capabilities)
    }

    fn of_parts(
        user: &[u8],
        database: &[u8],
        mut reader: Reader<'_>,
        capabilities: Capabilities,
    ) -> Result<Self, ProtocolError> {
        let mut identity = Self {
            user: name("user", user)?,
            database: Some(name("database", database)?).filter(|name| !name.is_empty()),
            ..Self::default()
        };
        if capabilities.has(Capabilities::PLUGIN_AUTH) {
            let plugin = name("plugin", reader.until_zero_or_end())?;
            identity.plugin = Some(plugin).filter(|name| !name.is_empty());
        }
        if capabilities.has(Capabilities::CONNECT_ATTRS) {
            identity.program_name = program_name(reader);
        }
        Ok(identity)
    }
}

/// A name as text; one that no server takes is refused, since a cut one could be another's.
pub(super) fn name(what: &'static str, bytes: &[u8]) -> Result<String, ProtocolError> {
    if bytes.len() > NAME_LIMIT {
        return Err(ProtocolError::LongName { what, len: bytes.len(), limit: NAME_LIMIT });
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn skip_password(reader: &mut Reader<'_>, capabilities: Capabilities, lenenc: bool) {
    if lenenc {
        reader.lenenc_bytes();
    } else if capabilities.has(Capabilities::SECURE_CONNECTION) {
        let len = reader.u8().unwrap_or_default();
        reader.skip(usize::from(len));
    } else {
        reader.until_zero_or_end();
    }
}

/// The attribute `program_name`, as far as the attributes have been seen.
fn program_name(mut reader: Reader<'_>) -> Option<String> {
    let total = usize::try_from(reader.lenenc()?).ok()?;
    let rest = reader.rest();
    let mut attributes = Reader::new(rest.get(..total).unwrap_or(rest));
    loop {
        let key = attributes.lenenc_bytes()?;
        let value = attributes.lenenc_bytes()?;
        if key == b"program_name" {
            let kept = value.get(..PROGRAM_LIMIT).unwrap_or(value);
            return Some(String::from_utf8_lossy(kept).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::captured;
    use super::*;

    fn login(packet: &[u8]) -> Identity {
        let preamble = Preamble::parse(&packet[4..]).unwrap();
        Identity::of_login(&packet[4..], preamble.capabilities()).unwrap()
    }

    #[test]
    fn a_login_of_the_mariadb_client_is_read() {
        let identity = login(captured::LOGIN);
        assert_eq!(identity.user, "gate");
        assert_eq!(identity.database.as_deref(), Some("shop"));
        assert_eq!(identity.program_name.as_deref(), Some("mysql"));
        assert_eq!(identity.plugin.as_deref(), Some("mysql_native_password"));
    }

    #[test]
    fn no_beginning_of_a_login_panics() {
        let payload = &captured::LOGIN[4..];
        let capabilities = Preamble::parse(payload).unwrap().capabilities();
        for len in 0..payload.len() {
            let _ = Identity::of_login(&payload[..len], capabilities);
            let _ = Identity::of_change(&payload[..len], capabilities);
        }
    }

    #[test]
    fn a_preamble_with_its_own_capabilities_is_the_same() {
        let preamble = Preamble::parse(&captured::LOGIN[4..]).unwrap();
        assert_eq!(preamble.with(preamble.capabilities()), captured::LOGIN[4..36]);
        let secure = preamble.with(preamble.capabilities() | Capabilities::SSL);
        assert_eq!(secure[1] & 0x08, 0x08);
    }

    #[test]
    fn a_change_of_user_is_read() {
        let capabilities = Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::PLUGIN_AUTH
            | Capabilities::CONNECT_ATTRS;
        let payload = b"bob\0\x02xxshop\0\x2d\0mysql_native_password\0\x11\x0cprogram_name\x03job";
        let identity = Identity::of_change(payload, capabilities).unwrap();
        assert_eq!(
            identity,
            Identity {
                user: "bob".into(),
                database: Some("shop".into()),
                program_name: Some("job".into()),
                plugin: Some("mysql_native_password".into()),
            }
        );
    }

    #[test]
    fn a_name_that_no_server_takes_is_refused() {
        assert!(matches!(
            name("user", &[b'a'; NAME_LIMIT + 1]),
            Err(ProtocolError::LongName { len: 513, .. })
        ));
        assert_eq!(name("user", b"a\xff").unwrap(), "a\u{fffd}");
    }
}
