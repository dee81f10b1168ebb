//! Passwords of `caching_sha2_password` where one side is private and the other is not.

use super::captured::{GREETING, LOGIN};
use super::link::{Heard, Link, OK, packet};
use super::step::Event;
use super::{ClientTls, ProtocolError, Settings};
use crate::session::Side;

const SSL: u8 = 0x08;
const SHA2: &[u8] = b"\xfecaching_sha2_password\0aaaaaaaabbbbbbbbcccc\0";
const NATIVE: &[u8] = b"\xfemysql_native_password\0aaaaaaaabbbbbbbbcccc\0";
const WHOLE: &[u8] = b"\x01\x04";
const FAST: &[u8] = b"\x01\x03";

fn login(sequence: u8, tls: bool) -> Vec<u8> {
    let mut login = LOGIN.to_vec();
    (login[3], login[5]) = (sequence, login[5] | if tls { SSL } else { 0 });
    login
}

/// As far as the server's question, with its number: a client under TLS, a server in the clear.
fn asked(question: &[u8]) -> Link {
    let mut link = Link::new(Settings { client_tls: ClientTls::Always, ..Settings::default() });
    link.hear(Side::Server, GREETING).unwrap();
    link.hear(Side::Client, &packet(1, &login(1, true)[4..36])).unwrap();
    link.hear(Side::Client, &login(2, true)).unwrap();
    link.hear(Side::Server, &packet(2, question)).unwrap();
    link.to_client.clear();
    link.to_server.clear();
    link
}

/// As far as the question for the whole password, which is the sixth packet of the client's to answer.
fn wanted() -> Link {
    let mut link = asked(SHA2);
    link.hear(Side::Client, &packet(4, &[7; 32])).unwrap();
    link.hear(Side::Server, &packet(4, WHOLE)).unwrap();
    link.to_client.clear();
    link.to_server.clear();
    link
}

fn number(link: &Link) -> Option<u8> {
    link.machine.farewell(&(&ProtocolError::ClientTls).into()).map(|packet| packet[3])
}

#[test]
fn a_plain_client_of_a_private_server_is_refused_for_its_password_only() {
    let secure = Settings { server_tls: true, ..Settings::default() };
    let mut greeting = GREETING.to_vec();
    let at = GREETING.windows(4).position(|window| window == [0xfe, 0xf7, 0x08, 0x02]).unwrap();
    greeting[at + 1] |= SSL;
    // The server may know the password, and another plugin may have a question of the same bytes.
    for (plugin, question, refused) in [(SHA2, FAST, false), (NATIVE, WHOLE, false), (SHA2, WHOLE, true)] {
        let mut link = Link::new(secure);
        link.hear(Side::Server, &greeting).unwrap();
        link.hear(Side::Client, &login(1, false)).unwrap();
        link.hear(Side::Server, &packet(3, plugin)).unwrap();
        link.hear(Side::Client, &packet(3, &[7; 32])).unwrap();
        let heard = link.hear(Side::Server, &packet(5, question));
        assert_eq!(heard, if refused { Err(ProtocolError::PlainPassword) } else { Ok(()) });
        assert!(refused || link.to_client.ends_with(&packet(4, question)));
    }
}

#[test]
fn packets_of_the_server_that_come_together_are_numbered_each() {
    let mut link = asked(SHA2);
    link.hear(Side::Client, &packet(4, &[7; 32])).unwrap();
    link.hear(Side::Server, &[packet(4, FAST), packet(5, OK)].concat()).unwrap();
    assert_eq!(link.to_client, [packet(5, FAST), packet(6, OK)].concat());
    assert!(matches!(link.told()[..], [Event::Login(_)]) && link.machine.is_idle());
}

#[test]
fn an_answer_that_is_no_password_goes_on_as_it_is() {
    // An empty one; the request for the key; the password under a key that the client has, with a zero in the end.
    let mut secret = [9; 256];
    secret[255] = 0;
    for answer in [&b"\0"[..], b"\x02", &[9; 256]] {
        let mut link = wanted();
        link.hear(Side::Client, &packet(6, answer)).unwrap();
        assert_eq!(link.to_server, packet(5, answer));
        link.to_server.clear();
        link.hear(Side::Server, &packet(6, b"\x01a key")).unwrap();
        link.hear(Side::Client, &packet(8, &secret)).unwrap();
        assert_eq!(link.to_server, packet(7, &secret), "behind {} bytes", answer.len());
    }
    // An empty packet is one.
    let mut link = asked(NATIVE);
    link.hear(Side::Client, &packet(4, b"")).unwrap();
    assert_eq!((&link.to_server, link.kept()), (&packet(3, b""), 0));
}

#[test]
fn behind_a_password_nothing_goes_on_before_the_server_has_decided() {
    let mut link = wanted();
    let query = packet(0, b"\x03select 1");
    link.hear(Side::Client, &[packet(6, b"secret\0"), query.clone()].concat()).unwrap();
    assert_eq!(link.to_server, packet(5, b"\x02"));
    assert_eq!(number(&link), Some(7), "behind the password");
    link.to_server.clear();
    let key = [b"\x01", include_bytes!("../captured/key.pem").as_slice()].concat();
    link.hear(Side::Server, &packet(6, &key)).unwrap();
    assert_eq!((link.to_server.len(), link.asked().len()), (260, 0));
    link.hear(Side::Server, &packet(8, OK)).unwrap();
    assert_eq!(link.asked().len(), 1);
    assert!(link.to_server.ends_with(&query));
}

#[test]
fn a_key_is_short() {
    let mut link = wanted();
    link.hear(Side::Client, &packet(6, b"secret\0")).unwrap();
    let len = 64 * 1024 + 1;
    assert_eq!(link.hear(Side::Server, b"\x01\0\x01\x06\x01"), Err(ProtocolError::ServerKey { len }));
}

#[test]
fn a_later_password_is_mixed_with_the_last_scramble() {
    let mut link = asked(SHA2);
    link.hear(Side::Client, &packet(4, &[7; 32])).unwrap();
    let scramble = |link: &Link| link.machine.wire().handshake.scramble().to_vec();
    assert_ne!(scramble(&link), b"aaaaaaaabbbbbbbbcccc", "not before the server has let the client in");
    link.hear(Side::Server, &packet(4, OK)).unwrap();
    assert_eq!(scramble(&link), b"aaaaaaaabbbbbbbbcccc");
}

/// Of two questions, as of two plugins in turn, the client has answered the second.
#[test]
fn a_password_is_mixed_with_the_scramble_of_the_last_question() {
    let later = b"\xfecaching_sha2_password\0ddddddddeeeeeeeeffff\0";
    let mut link = asked(NATIVE);
    link.hear(Side::Client, &packet(4, &[7; 20])).unwrap();
    link.hear(Side::Server, &packet(4, later)).unwrap();
    link.hear(Side::Client, &packet(6, &[7; 32])).unwrap();
    link.hear(Side::Server, &packet(6, OK)).unwrap();
    assert_eq!(link.machine.wire().handshake.scramble(), b"ddddddddeeeeeeeeffff");
}

#[test]
fn tls_begins_once() {
    let mut link = Link::new(Settings { client_tls: ClientTls::Always, ..Settings::default() });
    link.hear(Side::Server, GREETING).unwrap();
    assert!(link.machine.may_secure(Side::Client) && !link.machine.may_secure(Side::Server));
    link.hear(Side::Client, &packet(1, &login(1, true)[4..36])).unwrap();
    assert!(!link.machine.may_secure(Side::Client));
    assert_eq!(link.heard, [Heard::Tls(Side::Client)]);
    let again = link.hear(Side::Client, &packet(2, &login(2, true)[4..36]));
    assert_eq!(again, Err(ProtocolError::Login { len: 32 }));
    assert_eq!(link.heard.len(), 1);
}
