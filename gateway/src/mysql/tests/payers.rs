//! Who pays: the database in use is the tenant, and a session that begins again has chosen no group.

use super::super::capability::Capabilities;
use super::super::login::NAME_LIMIT;
use super::link::{Link, OK, ROWS, logged_in, packet, packets, query};
use super::step::{Event, Login};
use super::{Decision, Settings};
use crate::session::Side;

const ERROR: &[u8] = b"\xff\x19\x04#42000Unknown database";

/// OK, with another default database among the changes of the session, behind others or not.
pub(in crate::mysql) fn changed(status: u8, before: &[u8], database: &str) -> Vec<u8> {
    let name = [&[u8::try_from(database.len()).unwrap()], database.as_bytes()].concat();
    let change = [&[1, u8::try_from(name.len()).unwrap()][..], &name].concat();
    let changes = [before, &change].concat();
    let [low, high] = u16::try_from(changes.len()).unwrap().to_le_bytes();
    [&[0, 0, 0, status | 2, 0x40, 0, 0, 0, 0xfc, low, high][..], &changes].concat()
}

fn databases(link: &Link) -> Vec<String> {
    let told = link.told().into_iter().filter_map(|event| match event {
        Event::DatabaseChanged { database } => Some(database),
        _ => None,
    });
    told.collect()
}

/// A client that does not ask the server to report changes.
fn untold() -> Link {
    let mut link = logged_in(Settings::default(), |asked| {
        asked.sql.strip_prefix("explain ru ").map(|inner| Decision::Explain(inner.as_bytes().to_vec()))
    });
    link.machine.forbid(Capabilities::SESSION_TRACK);
    link
}

#[test]
fn the_database_is_known_by_the_command_where_the_server_does_not_report_it() {
    for (command, database) in [
        (&b"\x02other"[..], Some("other")),
        (b"\x03use other", Some("other")),
        (b"\x03explain ru use other", Some("other")),
        // To prepare one changes nothing.
        (b"\x16use other", None),
    ] {
        let mut link = untold();
        link.hear(Side::Client, &packet(0, command)).unwrap();
        assert_eq!(link.machine.may_change_payer(), database.is_some());
        link.hear(Side::Server, &packet(1, ERROR)).unwrap();
        assert_eq!(databases(&link), [""; 0], "the server refuses it");
        assert!(!link.machine.may_change_payer());
        link.hear(Side::Client, &packet(0, command)).unwrap();
        let answer = if command[0] == 0x16 { &b"\0\x07\0\0\0\0\0\0\0\0\0\0"[..] } else { OK };
        link.hear(Side::Server, &packet(1, answer)).unwrap();
        assert_eq!(databases(&link).first().map(String::as_str), database, "{command:?}");
        // The next statement leaves it.
        link.hear(Side::Client, &query("select 1")).unwrap();
        assert!(!link.machine.may_change_payer());
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        assert_eq!(databases(&link).len(), usize::from(database.is_some()));
    }
}

#[test]
fn a_name_that_is_cut_is_no_database_s() {
    for (len, count) in [(NAME_LIMIT, 1), (NAME_LIMIT + 1, 0), (NAME_LIMIT + 900, 0)] {
        let mut link = untold();
        link.hear(Side::Client, &packet(0, &[&[0x02], &vec![b'd'; len][..]].concat())).unwrap();
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        assert_eq!(databases(&link).len(), count, "{len} bytes");
    }
}

#[test]
fn the_server_s_word_about_the_database_is_heard_in_any_result_and_behind_much_else() {
    // Of several results the first reports it, and the last reports nothing, or is an error.
    for last in [OK, ERROR] {
        let mut link = logged_in(Settings::default(), |_| None);
        link.hear(Side::Client, &query("use other; use shop; select 1")).unwrap();
        for (sequence, packet_of) in [(1, changed(0x08, &[], "other")), (2, changed(0x08, &[], "shop"))] {
            link.hear(Side::Server, &packet(sequence, &packet_of)).unwrap();
        }
        assert_eq!(databases(&link), [""; 0]);
        link.hear(Side::Server, &packet(3, last)).unwrap();
        assert_eq!(databases(&link), ["shop"]);
    }
    // Whatever results are between.
    let rows: [&[u8]; 4] = [ROWS[0], ROWS[1], ROWS[2], b"\xfe\0\0\x0a\0\0\0"];
    for between in [&[&b"\0\0\0\x0a\0\0\0"[..]; 2][..], &rows] {
        let mut link = logged_in(Settings::default(), |_| None);
        link.hear(Side::Client, &query("use other; select 1; select 2; select 3")).unwrap();
        link.hear(Side::Server, &packet(1, &changed(0x08, &[], "other"))).unwrap();
        link.hear(Side::Server, &packets(2, between)).unwrap();
        assert_eq!(databases(&link), [""; 0]);
        link.hear(Side::Server, &packet(9, OK)).unwrap();
        assert_eq!(databases(&link), ["other"]);
    }
    // Its own word counts before that of the command.
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &query("use Other")).unwrap();
    link.hear(Side::Server, &packet(1, &changed(0, &[], "other"))).unwrap();
    assert_eq!(databases(&link), ["other"]);
    // With more changes behind it than the gateway looks at.
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &query("call p()")).unwrap();
    let mut long = changed(0, &[], "other");
    let more = [&[0, 0xfc, 0, 8][..], &[b'x'; 2048]].concat();
    let [low, high] = u16::try_from(7 + 1 + more.len()).unwrap().to_le_bytes();
    (long[9], long[10]) = (low, high);
    long.extend(more);
    link.hear(Side::Server, &packet(1, &long)).unwrap();
    assert_eq!(databases(&link), ["other"]);
}

#[test]
fn what_is_sent_behind_a_change_of_who_pays_can_wait_for_it() {
    for command in [&b"\x1f"[..], b"\x02other"] {
        let mut link = logged_in(Settings::default(), |_| None);
        link.hear(Side::Client, &query("select 1")).unwrap();
        assert!(!link.machine.may_change_payer());
        link.hear(Side::Client, &packet(0, command)).unwrap();
        assert!(link.machine.may_change_payer());
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        assert!(link.machine.may_change_payer());
        // Not before the session has heard of it.
        let answer = packet(1, OK);
        assert!(matches!(link.machine.server(&answer), Ok(super::step::Step::Pass(_))));
        assert!(link.machine.may_change_payer() && !link.machine.is_quiet());
        assert!(matches!(link.machine.server(&[]), Ok(super::step::Step::Tell(_))));
        assert!(!link.machine.may_change_payer() && link.machine.is_quiet());
    }
}

#[test]
fn a_session_that_the_server_does_not_reset_goes_on_as_it_was() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &query("prepare s from 'select 1'")).unwrap();
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    link.heard.clear();
    link.hear(Side::Client, &packet(0, b"\x1f")).unwrap();
    link.hear(Side::Server, &packet(1, b"\xff\x17\x04#08S01no")).unwrap();
    assert_eq!((link.told(), link.machine.names()), (vec![], 1));
}

/// MariaDB gives up the session before it looks who asks, and goes on with the user and the database before.
#[test]
fn a_session_whose_change_of_user_is_refused_is_its_user_s_and_as_if_new() {
    for error in [&b"\xff\x15\x04#28000Access denied"[..], ERROR, b"\xff\x17\x04#08S01Unknown command"] {
        let mut link = logged_in(Settings::default(), |_| None);
        link.hear(Side::Client, &query("prepare s from 'select 1'")).unwrap();
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        link.hear(Side::Client, &packet(0, b"\x16select 1")).unwrap();
        link.hear(Side::Server, &packet(1, b"\0\x07\0\0\0\0\0\0\0\0\0\0")).unwrap();
        // In a transaction, and without escapes.
        link.hear(Side::Client, &query("begin")).unwrap();
        link.hear(Side::Server, &packet(1, b"\0\0\0\x03\x02\0\0")).unwrap();
        assert!(link.machine.in_transaction() && !link.machine.escapes());
        link.heard.clear();
        link.hear(Side::Client, &packet(0, b"\x11bob\0\0other\0\x2d\0mysql_native_password\0\0")).unwrap();
        link.hear(Side::Server, &packet(1, error)).unwrap();
        assert_eq!(link.told(), [Event::SessionReset]);
        assert_eq!((link.machine.names(), link.machine.wire().statements.prepared.len()), (0, 0));
        assert!(!link.machine.in_transaction() && link.machine.escapes(), "as at the login");
        link.hear(Side::Client, &query("select 1")).unwrap();
        assert_eq!(link.asked().len(), 1, "what the client says counts");
    }
}

#[test]
fn what_the_server_says_of_a_new_session_holds_for_the_one_behind_a_refused_change_of_user() {
    const NO_ESCAPES: &[u8] = b"\0\0\0\x02\x02\0\0";
    const CHANGE: &[u8] = b"\x11bob\0\0other\0\x2d\0mysql_native_password\0\0";
    for renews in [&b"\x1f"[..], CHANGE] {
        let mut link = logged_in(Settings::default(), |_| None);
        link.hear(Side::Client, &packet(0, renews)).unwrap();
        link.hear(Side::Server, &packet(1, NO_ESCAPES)).unwrap();
        link.hear(Side::Client, &query("set sql_mode = ''")).unwrap();
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        assert!(link.machine.escapes());
        link.hear(Side::Client, &packet(0, CHANGE)).unwrap();
        link.hear(Side::Server, &packet(1, ERROR)).unwrap();
        assert!(!link.machine.escapes(), "{renews:?}");
    }
}

#[test]
fn a_user_without_a_database_is_of_no_tenant() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x11bob\0\0\0\x2d\0mysql_native_password\0\0")).unwrap();
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    let [Event::UserChanged(Login { user, database, .. })] = &link.told()[..] else {
        panic!("{:?}", link.heard)
    };
    assert_eq!((user.as_str(), database.as_deref()), ("bob", None));
}

#[test]
fn a_transaction_is_open_as_long_as_the_server_says_so() {
    let mut link = logged_in(Settings::default(), |_| None);
    assert!(!link.machine.in_transaction() && link.machine.escapes());
    for (answer, open) in [
        (&b"\0\0\0\x03\0\0\0"[..], true),
        (b"\xff\x28\x04#42000no", true),
        (b"\xff\xbd\x04#40001Deadlock found", false),
        (b"\0\0\0\x03\0\0\0", true),
        (b"\xff\xb5\x04#HY000Lock wait timeout exceeded", true),
        (b"\xff\xb6\x04#HY000The total number of locks exceeds the lock table size", false),
        (b"\0\0\0\x03\0\0\0", true),
        (b"\xff\xfc\x03#HY000Record has changed since last read in table 't'", false),
    ] {
        link.hear(Side::Client, &query("select 1")).unwrap();
        link.hear(Side::Server, &packet(1, answer)).unwrap();
        assert_eq!(link.machine.in_transaction(), open, "{answer:?}");
    }
}
