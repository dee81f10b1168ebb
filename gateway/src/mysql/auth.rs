//! The conversation in which a server finds out who a client is: at the login, and at `COM_CHANGE_USER`.
//!
//! The gateway passes its packets on untouched, and keeps only whose turn it is. A client may send a packet when the
//! server has asked for one, and no sooner: the server would take a packet sent ahead for a command, and the gateway
//! for a password.
//!
//! One conversation depends on the connection: asked by `caching_sha2_password` for the whole password, a client sends
//! it in the clear under TLS, and otherwise under the server's RSA key; the server expects what fits its side. Where
//! only the client's side is private, the gateway asks for the key and encrypts the password, so that the server gets
//! two packets more. Where only the server's side is private, the gateway has no key to offer, and refuses the client.
//!
//! *Source*: MySQL "Connection Phase"; `sql/auth/sha2_password.cc` for the one packet of `caching_sha2_password` that
//! informs and does not ask; MariaDB's plugins (ed25519, dialog, gssapi) speak in packets of any beginning.

use super::capability::Capabilities;
use super::ending::Ending;
use super::login::Identity;
use super::reader::Reader;
use super::step::Bytes;

/// Most bytes of a packet that are looked at: the name of a plugin.
pub(super) const AUTH_LOOK: usize = 256;
/// Bytes of a scramble.
pub(super) const SCRAMBLE: usize = 20;
/// Longest packet of a client in the conversation, in bytes; a ticket or a certificate is far shorter. It is also
/// the longest login, whose attributes are the better part.
pub(super) const AUTH_LIMIT: usize = 64 * 1024;
/// The plugin with a packet that asks for nothing. Servers compare its name without regard to case.
const CACHING_SHA2: &str = "caching_sha2_password";

/// A conversation.
#[derive(Debug)]
pub(super) struct Auth {
    pub(super) identity: Identity,
    /// The first on its connection, whose packets the gateway may renumber.
    pub(super) is_login: bool,
    /// Packets that the server got from the gateway itself, and sent to it.
    pub(super) ahead: u8,
    pub(super) password: Password,
    /// The scramble of the server's last question; `None` when it is still the greeting's.
    pub(super) scramble: Option<Vec<u8>>,
    asked: bool,
}

/// How far a password has come that the gateway encrypts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Password {
    None,
    /// The client is asked for the whole password.
    Wanted,
    /// The server is asked for its key; this is the password with its zero.
    Key(Bytes),
}

/// What a packet of the server's is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The conversation goes on.
    Undecided,
    Accepted(Ending),
    Rejected(Ending),
}

impl Auth {
    /// The client has said who it is, and waits.
    pub(super) fn new(identity: Identity, is_login: bool) -> Self {
        Self { identity, is_login, ahead: 0, password: Password::None, scramble: None, asked: false }
    }

    /// Whether a packet of the server's asks for the whole password.
    pub(super) fn asks_for_password(&self, payload: &[u8], len: usize) -> bool {
        payload == [0x01, 0x04] && len == 2 && self.is_caching_sha2()
    }

    fn is_caching_sha2(&self) -> bool {
        self.identity.plugin.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(CACHING_SHA2))
    }

    /// Whether the server has spoken last.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// A packet of the server's begins.
    pub(super) fn read(&mut self, payload: &[u8], len: usize, capabilities: Capabilities) -> Verdict {
        match payload.first() {
            Some(0x00) => return Verdict::Accepted(Ending::parse(payload, capabilities)),
            Some(0xff) => return Verdict::Rejected(Ending::parse(payload, capabilities)),
            Some(0xfe) => {
                let mut reader = Reader::new(payload.get(1..).unwrap_or_default());
                let plugin = reader.until_zero_or_end();
                self.scramble = reader.take(SCRAMBLE).map(<[u8]>::to_vec);
                self.identity.plugin = Some(String::from_utf8_lossy(plugin).into_owned());
                self.asked = true;
            }
            _ => {
                let tells = payload == [0x01, 0x03] && len == 2 && self.is_caching_sha2();
                self.asked = self.asked || !tells;
            }
        }
        Verdict::Undecided
    }

    /// The client sends a packet, if it is its turn.
    pub(super) fn answer(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_answers_once_when_asked() {
        let mut auth = Auth::new(Identity::default(), true);
        assert!(!auth.answer());
        let switch = b"\xfecaching_sha2_password\0scramble";
        assert_eq!(auth.read(switch, switch.len(), Capabilities(0)), Verdict::Undecided);
        assert!(auth.answer() && !auth.answer());
        auth.read(&[1, 3], 2, Capabilities(0));
        assert!(!auth.answer(), "the fast way needs no answer");
        auth.read(&[1, 4], 2, Capabilities(0));
        assert!(auth.answer());
        auth.read(b"\x04Password: ", 11, Capabilities(0));
        assert!(auth.answer(), "a question of a plugin's own");
    }

    #[test]
    fn the_last_packet_says_how_it_ended() {
        let mut auth = Auth::new(Identity::default(), true);
        let ok = auth.read(b"\x00\x00\x00\x02\x00\x00\x00", 7, Capabilities(0));
        assert!(matches!(ok, Verdict::Accepted(Ending { status: Some(_), .. })));
        let no = auth.read(b"\xff\x15\x04#28000Access denied", 22, Capabilities(0));
        assert!(matches!(no, Verdict::Rejected(Ending { error: Some(1045), .. })));
    }
}
