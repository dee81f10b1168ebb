//! Who a client says it is, by the capabilities that it has, and what it is offered.

use super::super::capability::Capabilities;
use super::super::greeting::Greeting;
use super::super::login::{Identity, NAME_LIMIT, Preamble};
use super::captured::{GREETING, LOGIN, MYSQL_GREETING};
use super::link::Link;
use super::{ProtocolError, Settings};
use crate::session::Side;

const PLAIN: Capabilities = Capabilities::PROTOCOL_41;

/// A login behind its preamble.
fn login(rest: &[u8], capabilities: Capabilities) -> Identity {
    Identity::of_login(&[&[0; 32], rest].concat(), capabilities).unwrap()
}

fn identity(user: &str, database: &str, plugin: &str, program: &str) -> Identity {
    let some = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
    Identity {
        user: user.into(),
        database: some(database),
        plugin: some(plugin),
        program_name: some(program),
    }
}

#[test]
fn a_login_is_read_by_its_client_s_capabilities() {
    let names = Capabilities::CONNECT_WITH_DB | Capabilities::PLUGIN_AUTH | Capabilities::CONNECT_ATTRS;
    let attributes = b"\x11\x0cprogram_name\x03job";
    let rest = [b"shop\0plugin\0", &attributes[..]].concat();
    let all = identity("ann", "shop", "plugin", "job");
    // The password with its length in a byte or more, or with a zero behind it.
    let short = [b"ann\0\x03x\0y", &rest[..]].concat();
    let secure = names | Capabilities::SECURE_CONNECTION;
    assert_eq!(login(&short, PLAIN | secure), all);
    let long = [b"ann\0\xfc\x2c\x01", &[b'x'; 300][..], &rest].concat();
    assert_eq!(login(&long, PLAIN | secure | Capabilities::PLUGIN_AUTH_LENENC), all);
    assert_eq!(login(&[b"ann\0xy\0", &rest[..]].concat(), PLAIN | names), all);
    // What a client is not capable of is not there, and the next follows at once.
    for (without, rest, expected) in [
        (Capabilities::CONNECT_WITH_DB, &b"plugin\0"[..], identity("ann", "", "plugin", "job")),
        (Capabilities::PLUGIN_AUTH, b"shop\0", identity("ann", "shop", "", "job")),
        (Capabilities::CONNECT_ATTRS, b"shop\0plugin\0", identity("ann", "shop", "plugin", "")),
    ] {
        let bytes = [b"ann\0\0", rest, attributes].concat();
        assert_eq!(login(&bytes, PLAIN | secure.without(without)), expected);
    }
    // Empty names are none.
    assert_eq!(login(b"ann\0\0\0\0\0", PLAIN | secure), identity("ann", "", "", ""));
    let change = Identity::of_change(b"bob\0\0\0\x2d\0\0\0", PLAIN | secure);
    assert_eq!(change.unwrap(), identity("bob", "", "", ""));
}

#[test]
fn the_longest_name_is_taken_and_a_longer_one_refused() {
    for (len, taken) in [(NAME_LIMIT, true), (NAME_LIMIT + 1, false)] {
        let named = [&vec![b'a'; len][..], b"\0\0"].concat();
        let read = Identity::of_change(&named, PLAIN);
        assert_eq!(read.is_ok(), taken, "{read:?}");
        let mut link = super::link::logged_in(Settings::default(), |_| None);
        let heard = link.hear(Side::Client, &super::link::packet(0, &[&[0x11], &named[..]].concat()));
        let long = ProtocolError::LongName { what: "user", len, limit: NAME_LIMIT };
        assert_eq!(heard, if taken { Ok(()) } else { Err(long) });
    }
}

#[test]
fn a_client_is_offered_what_the_gateway_understands() {
    let hidden = Capabilities::COMPRESS | Capabilities::OPTIONAL_METADATA | Capabilities::ZSTD;
    for greeting in [GREETING, MYSQL_GREETING] {
        let mut link = Link::new(Settings::default());
        link.hear(Side::Server, greeting).unwrap();
        let (server, client) =
            (Greeting::parse(&greeting[4..]).unwrap(), Greeting::parse(&link.to_client[4..]).unwrap());
        let expected = server.offered.and(Capabilities::UNDERSTOOD).without(Capabilities::SSL);
        assert_eq!(client.offered, expected);
        assert_eq!(client.offered.and(hidden), Capabilities(0));
    }
    assert!(!Greeting::parse(&MYSQL_GREETING[4..]).unwrap().offered.and(hidden).eq(&Capabilities(0)));
}

#[test]
fn a_server_that_is_no_mysql_by_its_capabilities_is_none_whatever_it_calls_itself() {
    let mut payload = GREETING[4..].to_vec();
    let end = payload.iter().position(|&byte| byte == 0).unwrap();
    payload.splice(1..end, *b"9.7.4-2");
    assert!(!Greeting::parse(&payload).unwrap().is_mysql());
    payload[9 + 4 + 8 + 1] |= 1;
    assert!(Greeting::parse(&payload).unwrap().is_mysql());
}

#[test]
fn the_server_hears_what_the_gateway_understands_and_mysql_no_more_than_it_knows() {
    let preamble = Preamble::parse(&LOGIN[4..]).unwrap();
    let fewer = preamble.capabilities().without(Capabilities::CACHE_METADATA | Capabilities::SESSION_TRACK);
    let edited = preamble.with(fewer);
    assert_eq!(edited[..4], [LOGIN[4], LOGIN[5], LOGIN[6] & 0x7f, LOGIN[7]]);
    assert_eq!(
        (edited[28], &edited[4..28], &edited[29..]),
        (LOGIN[32] & !0x10, &LOGIN[8..32], &LOGIN[33..36])
    );
    // A client of MySQL has bytes of no meaning there, which stay.
    let mut mysql = LOGIN[4..36].to_vec();
    mysql[0] |= 1;
    let preamble = Preamble::parse(&mysql).unwrap();
    assert_eq!(preamble.with(preamble.capabilities())[..], mysql[..]);
}

#[test]
fn a_login_that_is_whole_is_one_also_where_it_speaks_of_tls() {
    // To a server without it, through a gateway without it.
    let mut link = Link::new(Settings::default());
    link.hear(Side::Server, GREETING).unwrap();
    let mut secure = LOGIN.to_vec();
    secure[5] |= 8;
    link.hear(Side::Client, &secure).unwrap();
    assert!(link.to_server == LOGIN, "and the server does not hear of it");
}
