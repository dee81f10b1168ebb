//! TLS on one side, on both, on none: capabilities and sequence ids.

use super::captured::{GREETING, LOGIN, MYSQL_GREETING};
use super::link::{Heard, Link, OK, packet};
use super::step::{Event, Login};
use super::{ClientTls, ProtocolError, Settings};
use crate::session::Side;

/// The bit of TLS in the second byte of the capabilities.
const SSL: u8 = 0x08;
const SWITCH: &[u8] = b"\xfemysql_native_password\x00aaaaaaaabbbbbbbbcccc\x00";

fn settings(client_tls: bool, server_tls: bool) -> Settings {
    let client_tls = if client_tls { ClientTls::Always } else { ClientTls::Never };
    Settings { client_tls, server_tls, ..Settings::default() }
}

/// Where the greeting has its lower capabilities.
fn capabilities_at() -> usize {
    GREETING.windows(4).position(|window| window == [0xfe, 0xf7, 0x08, 0x02]).unwrap()
}

fn greeting(tls: bool) -> Vec<u8> {
    let mut greeting = GREETING.to_vec();
    if tls {
        greeting[capabilities_at() + 1] |= SSL;
    }
    greeting
}

fn login(sequence: u8, tls: bool) -> Vec<u8> {
    let mut login = LOGIN.to_vec();
    login[3] = sequence;
    if tls {
        login[5] |= SSL;
    }
    login
}

fn request() -> Vec<u8> {
    packet(1, &login(1, true)[4..36])
}

/// Logs in, with a change of the plugin, and gives what both sides got.
fn converse(client_tls: bool, server_tls: bool) -> Link {
    let mut link = Link::new(settings(client_tls, server_tls));
    link.hear(Side::Server, &greeting(server_tls)).unwrap();
    assert_eq!(link.to_client[capabilities_at() + 1] & SSL != 0, client_tls);
    link.to_client.clear();
    let client_ahead = u8::from(client_tls);
    let server_ahead = u8::from(server_tls);
    if client_tls {
        link.hear(Side::Client, &request()).unwrap();
        assert!(link.to_server.is_empty());
    }
    link.hear(Side::Client, &login(1 + client_ahead, client_tls)).unwrap();
    let mut expected = if server_tls { request() } else { Vec::new() };
    expected.extend(login(1 + server_ahead, server_tls));
    assert!(link.to_server == expected, "the login with a number and a capability of its own");
    link.to_server.clear();
    for piece in packet(2 + server_ahead, SWITCH).chunks(7) {
        link.hear(Side::Server, piece).unwrap();
    }
    assert_eq!(link.to_client, packet(2 + client_ahead, SWITCH));
    link.to_client.clear();
    for piece in packet(3 + client_ahead, &[7; 20]).chunks(3) {
        link.hear(Side::Client, piece).unwrap();
    }
    assert_eq!(link.to_server, packet(3 + server_ahead, &[7; 20]));
    link.hear(Side::Server, &packet(4 + server_ahead, OK)).unwrap();
    assert_eq!(link.to_client, packet(4 + client_ahead, OK));
    link.to_client.clear();
    link.to_server.clear();
    link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert_eq!((&link.to_server, &link.to_client), (&packet(0, b"\x0e"), &packet(1, OK)));
    link
}

#[test]
fn each_side_is_numbered_as_if_the_other_spoke_as_it_does() {
    for (client, server) in [(false, false), (true, false), (false, true), (true, true)] {
        let link = converse(client, server);
        let secured: Vec<_> = [(client, Side::Client), (server, Side::Server)]
            .into_iter()
            .filter_map(|(tls, side)| tls.then_some(Heard::Tls(side)))
            .collect();
        let (tls, told) = link.heard.split_at(secured.len());
        assert_eq!(tls, secured);
        assert!(matches!(told, [Heard::Told(Event::Login(Login { tls, .. }))] if *tls == client));
    }
}

const SHA2: &[u8] = b"\xfecaching_sha2_password\x00aaaaaaaabbbbbbbbcccc\x00";
const WHOLE: &[u8] = b"\x01\x04";

/// As far as the server's question for the whole password, which comes to the client.
fn asked_for_password(settings: Settings, tls: bool) -> Result<Link, ProtocolError> {
    let mut link = Link::new(settings);
    link.hear(Side::Server, &greeting(settings.server_tls)).unwrap();
    let (client_ahead, server_ahead) = (u8::from(tls), u8::from(settings.server_tls));
    if tls {
        link.hear(Side::Client, &request()).unwrap();
    }
    link.hear(Side::Client, &login(1 + client_ahead, tls)).unwrap();
    link.hear(Side::Server, &packet(2 + server_ahead, SHA2)).unwrap();
    link.hear(Side::Client, &packet(3 + client_ahead, &[7; 32])).unwrap();
    link.to_client.clear();
    link.to_server.clear();
    link.hear(Side::Server, &packet(4 + server_ahead, WHOLE))?;
    assert_eq!(link.to_client, packet(4 + client_ahead, WHOLE));
    link.to_client.clear();
    Ok(link)
}

#[test]
fn a_password_from_under_tls_goes_to_a_plain_server_under_its_key_only() {
    let mut link = asked_for_password(settings(true, false), true).unwrap();
    for piece in packet(6, b"secret\0").chunks(3) {
        link.hear(Side::Client, piece).unwrap();
    }
    assert_eq!(link.to_server, packet(5, b"\x02"), "the server's key is asked for");
    link.to_server.clear();
    let key = [b"\x01", include_bytes!("../captured/key.pem").as_slice()].concat();
    for piece in packet(6, &key).chunks(50) {
        link.hear(Side::Server, piece).unwrap();
    }
    assert_eq!((link.to_server.len(), &link.to_server[..4]), (260, &[0, 1, 0, 7][..]));
    assert!(link.to_client.is_empty());
    link.hear(Side::Server, &packet(8, OK)).unwrap();
    assert_eq!(link.to_client, packet(7, OK), "as if it had been taken as it was");
    link.to_server.clear();
    link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
    assert_eq!(link.to_server, packet(0, b"\x0e"));
}

#[test]
fn a_server_without_a_usable_key_never_gets_the_password() {
    let mut link = asked_for_password(settings(true, false), true).unwrap();
    link.hear(Side::Client, &packet(6, b"secret\0")).unwrap();
    assert_eq!(
        link.hear(Side::Server, &packet(6, b"\x01nonsense")),
        Err(ProtocolError::ServerKey { len: 9 })
    );
    assert_eq!(link.to_server, packet(5, b"\x02"));
    // It may as well say no.
    let mut link = asked_for_password(settings(true, false), true).unwrap();
    link.hear(Side::Client, &packet(6, b"secret\0")).unwrap();
    link.hear(Side::Server, &packet(6, b"\xff\x15\x04#28000no")).unwrap();
    assert_eq!(link.to_client, packet(7, b"\xff\x15\x04#28000no"));
}

#[test]
fn a_password_passes_as_it_is_where_both_sides_are_alike() {
    let secret = [9; 256];
    for (both, said) in [(true, &b"secret\0"[..]), (false, b"\x02"), (false, &secret)] {
        let mut link = asked_for_password(settings(both, both), both).unwrap();
        let ahead = u8::from(both);
        link.hear(Side::Client, &packet(5 + ahead, said)).unwrap();
        assert_eq!(link.to_server, packet(5 + ahead, said));
    }
    // A client under TLS that asks for the key all the same.
    let mut link = asked_for_password(settings(true, false), true).unwrap();
    link.hear(Side::Client, &packet(6, b"\x02")).unwrap();
    link.hear(Side::Server, &packet(6, b"\x01a key")).unwrap();
    link.hear(Side::Client, &packet(8, &secret)).unwrap();
    assert_eq!(link.to_server, [packet(5, b"\x02"), packet(7, &secret)].concat());
    assert_eq!(link.to_client, packet(7, b"\x01a key"));
}

#[test]
fn a_plain_client_is_told_what_a_private_server_wants() {
    let socket = Settings { server_socket: true, ..settings(true, false) };
    for (settings, tls) in [(settings(true, true), false), (settings(false, true), false), (socket, false)] {
        let refused = asked_for_password(settings, tls).map(drop).unwrap_err();
        assert_eq!(refused, ProtocolError::PlainPassword);
    }
    asked_for_password(socket, true).unwrap();
    let mut link = Link::new(settings(false, true));
    link.hear(Side::Server, &greeting(true)).unwrap();
    link.hear(Side::Client, &login(1, false)).unwrap();
    link.hear(Side::Server, &packet(3, SHA2)).unwrap();
    let number =
        |link: &Link| link.machine.farewell(&(&ProtocolError::PlainPassword).into()).map(|packet| packet[3]);
    assert_eq!(number(&link), Some(3), "behind what the server said");
    link.hear(Side::Client, &packet(3, &[7; 32])).unwrap();
    assert!(link.hear(Side::Server, &packet(5, WHOLE)).is_err());
    assert_eq!(number(&link), Some(4), "behind what the client said");
}

#[test]
fn a_client_may_do_without_tls_that_it_was_offered() {
    let mut link = Link::new(settings(true, false));
    link.hear(Side::Server, &greeting(false)).unwrap();
    link.hear(Side::Client, &login(1, false)).unwrap();
    assert!(link.to_server == login(1, false) && link.heard.is_empty());
}

#[test]
fn tls_of_the_gateway_s_own_is_offered_where_mysql_itself_offers_it() {
    let lower_at = 4 + 1 + "9.7.4-2\0".len() + 4 + 8 + 1;
    let mut without = MYSQL_GREETING.to_vec();
    without[lower_at + 1] &= !SSL;
    let mariadb = greeting(true);
    for (greeting, at, offers) in [
        (MYSQL_GREETING, lower_at, true),
        (without.as_slice(), lower_at, false),
        (mariadb.as_slice(), capabilities_at(), false),
    ] {
        let mut link = Link::new(Settings { client_tls: ClientTls::LikeServer, ..Settings::default() });
        link.hear(Side::Server, greeting).unwrap();
        assert_eq!(link.to_client[at + 1] & SSL != 0, offers);
        let begins = link.hear(Side::Client, &request());
        assert_eq!(begins, if offers { Ok(()) } else { Err(ProtocolError::ClientTls) });
        assert_eq!(link.heard, if offers { vec![Heard::Tls(Side::Client)] } else { vec![] });
    }
}

#[test]
fn a_change_of_user_is_numbered_as_it_is() {
    let mut link = converse(true, false);
    link.to_client.clear();
    link.to_server.clear();
    let change = packet(0, b"\x11bob\0\0other\0\x2d\0mysql_native_password\0\0");
    link.hear(Side::Client, &change).unwrap();
    link.hear(Side::Server, &packet(1, SWITCH)).unwrap();
    link.hear(Side::Client, &packet(2, &[7; 20])).unwrap();
    link.hear(Side::Server, &packet(3, OK)).unwrap();
    assert_eq!(link.to_server, [change, packet(2, &[7; 20])].concat());
    assert_eq!(link.to_client, [packet(1, SWITCH), packet(3, OK)].concat());
    assert!(matches!(link.told().last(), Some(Event::UserChanged(Login { user, .. })) if user == "bob"));
}

#[test]
fn tls_that_cannot_be_had_is_an_error() {
    let mut link = Link::new(settings(false, false));
    link.hear(Side::Server, &greeting(true)).unwrap();
    assert_eq!(link.hear(Side::Client, &request()), Err(ProtocolError::ClientTls));
    let mut link = Link::new(settings(false, true));
    link.hear(Side::Server, &greeting(false)).unwrap();
    assert_eq!(link.hear(Side::Client, &login(1, false)), Err(ProtocolError::ServerTls));
    assert!(link.to_server.is_empty());
}

#[test]
fn nothing_that_is_shown_has_a_password_in_it() {
    let mut link = Link::new(settings(false, true));
    link.hear(Side::Server, &greeting(true)).unwrap();
    link.hear(Side::Client, &login(1, false)[..100]).unwrap();
    let login = login(1, false);
    let step = link.machine.client(&login).unwrap();
    assert_eq!(format!("{step:?}"), "Send(Server, 36 bytes)");
    let _ = link.machine.client(&login).unwrap();
    let step = link.machine.client(&login).unwrap();
    assert_eq!(format!("{step:?}"), "Swap(36, 36 bytes)");
    let mut link = asked_for_password(settings(true, false), true).unwrap();
    link.hear(Side::Client, &packet(6, b"secret\0")).unwrap();
    let shown = format!("{:?}", link.machine);
    assert!(shown.contains("Key(7 bytes)"), "{shown}");
}
