//! Bytes of statements: what the server is sent for one, and what it answers, whatever the client gets.

use super::link::{Link, OK, ROWS, explain, logged_in, logged_in_to, packet, packets, query};
use super::step::Event;
use super::{Refusal, Settings, captured};
use crate::session::Side;

/// Bytes of requests and of responses of the statements that have ended.
fn bytes(link: &Link) -> Vec<(usize, usize)> {
    let told = link.told().into_iter().filter_map(|event| match event {
        Event::StatementEnds(ends) => Some((ends.request_bytes, ends.response_bytes)),
        _ => None,
    });
    told.map(|(request, response)| (request.try_into().unwrap(), response.try_into().unwrap())).collect()
}

/// Both sides speak in pieces of this length.
fn converse(link: &mut Link, piece: usize, said: &[u8], answered: &[u8]) {
    for piece in said.chunks(piece) {
        link.hear(Side::Client, piece).unwrap();
    }
    for piece in answered.chunks(piece) {
        link.hear(Side::Server, piece).unwrap();
    }
}

#[test]
fn a_statement_has_the_bytes_that_went_to_the_server_and_came_from_it() {
    for piece in [1, 7, 1_000] {
        let mut link = logged_in(Settings::default(), explain);
        let (plain, rows) = (query("select a"), packets(1, &ROWS));
        converse(&mut link, piece, &plain, &rows);
        // In place of the text the one that is explained, of which the client gets nothing, or its error.
        let failed = packets(1, &[b"\x01", b"\x03def", b"\xff\x15\x04#28000no"]);
        converse(&mut link, piece, &query("explain ru select a"), &rows);
        converse(&mut link, piece, &query("explain ru select a"), &failed);
        // Prepared: its description is replaced, and so is the result.
        let described = packets(1, &[&[0, 7, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0], b"\x03def?", b"\x03defx"]);
        converse(&mut link, piece, &packet(0, b"\x16explain ru select ?"), &described);
        let run = packet(0, &[&[0x17, 7, 0, 0, 0, 1, 1, 0, 0, 0][..], &[5; 20]].concat());
        converse(&mut link, piece, &run, &rows);
        let prepare = packet(0, b"\x16select ?").len();
        let expected = [
            (plain.len(), rows.len()),
            (plain.len(), rows.len()),
            (plain.len(), failed.len()),
            (prepare, described.len()),
            (run.len(), rows.len()),
        ];
        assert_eq!(bytes(&link), expected, "in pieces of {piece} bytes");
    }
}

#[test]
fn what_a_killed_statement_s_client_does_not_get_is_counted() {
    for piece in [1, 1_000] {
        let mut link = logged_in(Settings::default(), |_| None);
        let sleep = query("select sleep(9)");
        link.hear(Side::Client, &sleep).unwrap();
        assert!(link.machine.kill(1, Refusal { code: 8253, state: *b"HY000", message: "killed".into() }));
        let rows = packets(1, &ROWS);
        converse(&mut link, piece, &[], &rows);
        assert_eq!(bytes(&link), [(sleep.len(), rows.len())]);
    }
}

#[test]
fn a_file_is_counted_with_its_statement() {
    let mut link = logged_in(Settings { local_infile: true, ..Settings::default() }, |_| None);
    let load = query("load data local infile 'f' into table t");
    link.hear(Side::Client, &load).unwrap();
    let request = packet(1, b"\xfbf");
    link.hear(Side::Server, &request).unwrap();
    let file = packets(2, &[b"line\nline\n", b""]);
    converse(&mut link, 3, &file, &packet(4, OK));
    assert_eq!(bytes(&link), [(load.len() + file.len(), request.len() + packet(4, OK).len())]);
}

#[test]
fn an_explained_text_goes_without_attributes_where_there_may_be_some() {
    // MySQL, and a client of it that sends attributes.
    let mut login = captured::LOGIN.to_vec();
    login[4] |= 1;
    login[4 + 3] |= 1 | 8;
    login[32..36].fill(0);
    let mut link = logged_in_to(captured::MYSQL_GREETING, &login, Settings::default(), explain);
    let text = |sql: &str| packet(0, &[b"\x03\0\x01", sql.as_bytes()].concat());
    link.hear(Side::Client, &text("explain ru select a")).unwrap();
    assert_eq!(link.to_server, text("select a"));
    assert_eq!(link.asked()[0].sql, "explain ru select a");
}
