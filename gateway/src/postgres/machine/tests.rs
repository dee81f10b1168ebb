//! Conversations with a server that is played here: everything in any pieces, and answers in their order.

mod bounds;
mod copying;
mod line;
mod mixed;
mod names;
mod own;
mod skipped;
mod units;

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_cost_model::{SqlDialect, Template};

use super::*;
use crate::govern::{SqlText, explained_columns};

type Tested = Machine<u32, &'static str>;

fn machine() -> Tested {
    let mut machine = Machine::new(known(""), false);
    let mut out = Vec::new();
    let login =
        [&message(b'R', &[0, 0, 0, 0])[..], &message(b'K', &[0, 0, 0, 7, 0, 0, 0, 9]), &ready(b'I')].concat();
    assert!(matches!(server(&mut machine, &login, &mut out)[..], [Event::Login]));
    assert_eq!((out, machine.key()), (login, Key::read(&[0, 0, 0, 7, 0, 0, 0, 9]).as_ref()));
    machine
}

fn known(text: &str) -> Known {
    let plain = |text: &str| {
        Known::new(Arc::new(Template::new(SqlDialect::PostgreSql, text)), SqlText::of(text.as_bytes(), true))
    };
    let naming = Naming::parse(text.as_bytes(), SqlDialect::PostgreSql, true);
    let naming = naming.map(|naming| Arc::new(naming.map(|text| plain(&text))));
    Known { naming, ..plain(text) }
}

/// In any pieces: an offer to bind the login to TLS is kept from clients without TLS only.
#[test]
fn a_client_without_tls_is_offered_no_login_that_is_bound_to_it() {
    let offer = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    let without = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let rest = [&message(b'R', &[0, 0, 0, 0])[..], &ready(b'I')].concat();
    for (unbound, expected) in [(true, &without), (false, &offer)] {
        for split in 0..offer.len() {
            let mut machine: Tested = Machine::new(known(""), unbound);
            let (mut held, mut out) = (Vec::new(), Vec::new());
            for piece in [&offer[..split], &[&offer[split..], &rest].concat()] {
                held.extend_from_slice(piece);
                while let (used, event) = machine.server(&held, &mut out, usize::MAX / 2).unwrap()
                    && (used > 0 || event.is_some())
                {
                    held.drain(..used);
                }
            }
            assert_eq!(out, [&expected[..], &rest].concat(), "{split}");
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
}

fn bind(portal: &str, name: &str) -> Vec<u8> {
    message(b'B', format!("{portal}\0{name}\0\0\0\0\0\0\0").as_bytes())
}

fn execute(portal: &str) -> Vec<u8> {
    message(b'E', format!("{portal}\0\0\0\0\0").as_bytes())
}

/// Everything the server says, and what happened.
fn server(machine: &mut Tested, bytes: &[u8], out: &mut Vec<u8>) -> Vec<Event<u32>> {
    let (mut events, mut at) = (Vec::new(), 0);
    loop {
        let (used, event) = machine.server(&bytes[at..], out, usize::MAX / 2).unwrap();
        at += used;
        match event {
            Some(event) => events.push(event),
            None => return events,
        }
    }
}

/// What is refused, by the text or template it begins with.
#[derive(Default)]
struct Decider {
    next: u32,
    refuse: bool,
    /// Texts and templates, as they were asked about.
    asked: Vec<String>,
}

/// Everything the client says, in pieces of `piece` bytes; returns what goes on to the server.
fn client(machine: &mut Tested, bytes: &[u8], piece: usize, decider: &mut Decider) -> Vec<u8> {
    let (mut out, mut inbox, mut rest) = (Vec::new(), Vec::new(), bytes);
    loop {
        match machine.client(&inbox).unwrap() {
            Step::Pass(count) => {
                out.extend(inbox.drain(..count));
            }
            Step::Skip(count) => drop(inbox.drain(..count)),
            Step::Send(bytes) => out.extend(bytes),
            Step::More(_) if rest.is_empty() => {
                if machine.take_flush() {
                    out.extend(message(b'H', &[]));
                }
                return out;
            }
            Step::More(_) => {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                inbox.extend_from_slice(now);
                rest = later;
            }
            Step::Ask(ask) => decide(machine, &inbox, ask, decider),
            Step::Ends => drop(machine.part().unwrap()),
            Step::Wait => panic!("the client is to wait for the server"),
        }
    }
}

fn decide(machine: &mut Tested, inbox: &[u8], ask: Ask<&'static str>, decider: &mut Decider) {
    let text = |text: Text| String::from_utf8_lossy(&inbox[text.place]).into_owned();
    decider.next += 1;
    let running = decider.next;
    let decision = match ask {
        Ask::Query(place) => {
            let text = text(place);
            let refused = decider.refuse || text.starts_with("own");
            let known = known(&text);
            let named = known.naming.as_deref().and_then(|naming| machine.executed(naming)).cloned();
            decider.asked.push(named.as_ref().map_or(text, |named| named.template.text().to_owned()));
            match refused {
                true => Decision::Answer(message(b'E', b"no\0")),
                false => Decision::Go(running, Goes { inner: None, naming: named.unwrap_or(known).naming }),
            }
        }
        Ask::Parse(place) => {
            let text = text(place);
            match text.strip_prefix("explain ru ") {
                Some(inner) => Decision::Prepare(Prepared::Explained(known(inner)), Some(inner.to_owned())),
                None if text.starts_with("own") => Decision::Prepare(Prepared::Ours(Arc::new("own")), None),
                None => Decision::Prepare(Prepared::Theirs(known(&text)), None),
            }
        }
        Ask::Execute(known) => {
            decider.asked.push(known.template.text().to_owned());
            match decider.refuse {
                true => Decision::Refuse(message(b'E', b"no\0")),
                false => Decision::Go(running, Goes::default()),
            }
        }
        Ask::Describe { .. } => Decision::Answer(message(b'n', &[])),
        Ask::Run { .. } => Decision::Answer(message(b'C', b"OWN\0")),
    };
    machine.decide(inbox, decision).unwrap();
}

#[test]
fn a_simple_query_passes_and_its_rows_are_counted() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let query = message(b'Q', b"select 1\0");
    assert_eq!(client(&mut machine, &query, 100, &mut decider), query);
    assert_eq!(decider.asked, ["select 1"]);
    let reply = [
        message(b'T', b"\0\0"),
        message(b'D', b"\0\0"),
        message(b'D', b"\0\0"),
        message(b'C', b"SELECT 2\0"),
        ready(b'T'),
    ]
    .concat();
    let events = server(&mut machine, &reply, &mut out);
    let [Event::Ended(unit)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((unit.running, unit.failed, unit.progress.sent_rows), (Some(1), false, 2));
    assert_eq!(unit.progress.bytes_in, u64::try_from(query.len()).unwrap());
    assert!(machine.in_transaction() && machine.is_quiet());
    assert_eq!(out, reply);
}

#[test]
fn a_refused_query_is_answered_in_its_place_among_pipelined_ones() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let first = message(b'Q', b"select 1\0");
    client(&mut machine, &first, 100, &mut decider);
    decider.refuse = true;
    assert_eq!(client(&mut machine, &message(b'Q', b"select 2\0"), 3, &mut decider), b"");
    decider.refuse = false;
    client(&mut machine, &first, 100, &mut decider);
    assert!(
        server(&mut machine, b"", &mut out).is_empty() && out.is_empty(),
        "not before the first has ended"
    );
    let reply = [message(b'C', b"SELECT 1\0"), ready(b'T')].concat();
    server(&mut machine, &reply, &mut out);
    server(&mut machine, &reply, &mut out);
    let refusal = [message(b'E', b"no\0"), ready(b'T')].concat();
    assert_eq!(out, [&reply[..], &refusal, &reply].concat());
}

#[test]
fn the_extended_protocol_is_asked_about_once_a_unit() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let one = [bind("", "s"), execute("")].concat();
    let sent = [parse("s", "update t set a = 1"), one.repeat(3), message(b'S', &[])].concat();
    assert_eq!(client(&mut machine, &sent, 7, &mut decider), sent);
    assert_eq!(decider.asked, ["UPDATE t SET a = ?"]);
    let done = [message(b'2', &[]), message(b'C', b"UPDATE 2\0")].concat();
    let reply = [message(b'1', &[]), done.repeat(3), ready(b'I')].concat();
    let events = server(&mut machine, &reply, &mut out);
    assert!(matches!(&events[..], [Event::Ended(unit)] if unit.progress.changed_rows == 6));
    assert_eq!(out, reply);
}

#[test]
fn a_refused_execute_skips_to_the_sync_after_what_the_server_has_to_say() {
    let (mut machine, mut decider, mut out) =
        (machine(), Decider { refuse: true, ..Decider::default() }, Vec::new());
    let before = [parse("", "select 1"), bind("", "")].concat();
    let sent = client(&mut machine, &[&before[..], &execute(""), &bind("", "")].concat(), 5, &mut decider);
    assert_eq!(sent, [&before[..], &message(b'H', &[])].concat(), "the server is asked for what it has");
    server(&mut machine, &[message(b'1', &[]), message(b'2', &[])].concat(), &mut out);
    assert_eq!(out, [message(b'1', &[]), message(b'2', &[]), message(b'E', b"no\0")].concat());
    let sync = message(b'S', &[]);
    assert_eq!(client(&mut machine, &sync, 5, &mut decider), sync);
    out.clear();
    let events = server(&mut machine, &ready(b'I'), &mut out);
    assert!(matches!(&events[..], [Event::Ended(unit)] if unit.running.is_none()));
    assert_eq!(out, ready(b'I'));
}

/// A name in use fails at the server, and still stands for its old statement; messages sent behind it are read again,
/// too.
#[test]
fn a_name_stands_for_what_the_server_took_under_it() {
    let sync = message(b'S', &[]);
    let run = [bind("", "s"), execute(""), sync.clone()].concat();
    let taken = [message(b'1', &[]), ready(b'I')].concat();
    let failed = [message(b'E', b"C42P05\0\0"), ready(b'I')].concat();
    let asked = |texts: &[&str], replies: &[&[u8]]| {
        let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
        for text in texts {
            let unnamed = parse("", "select unnamed").repeat(3);
            client(&mut machine, &[&unnamed[..], &parse("s", text), &sync].concat(), 50, &mut decider);
        }
        for reply in replies {
            server(&mut machine, &[&message(b'1', &[]).repeat(3), *reply].concat(), &mut out);
        }
        client(&mut machine, &run, 50, &mut decider);
        decider.asked.pop().unwrap()
    };
    assert_eq!(asked(&["select a"], &[&taken]), "SELECT a");
    assert_eq!(asked(&["select a", "select b"], &[&taken, &failed]), "SELECT a");
    assert_eq!(asked(&["select a", "select b", "select c"], &[&taken, &failed, &failed]), "SELECT a");
    // It was closed by an SQL statement meanwhile.
    assert_eq!(asked(&["select a", "select b"], &[&taken, &taken]), "SELECT b");
    assert_eq!(asked(&["select a", "select b"], &[&failed, &taken]), "SELECT b");
    assert_eq!(asked(&["select a"], &[&failed]), "");
    assert_eq!(
        asked(&["select a", "select b", "select c"], &[&taken, &failed]),
        "SELECT c",
        "not answered yet"
    );
    assert_eq!(asked(&["select a", "select b", "select c"], &[&taken, &failed, &failed]), "SELECT a");
}

#[test]
fn after_an_error_of_the_server_the_answers_in_the_unit_are_not_waited_for() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let unit = [parse("", "select x"), bind("", ""), execute(""), message(b'S', &[])].concat();
    client(&mut machine, &unit, 100, &mut decider);
    client(&mut machine, &message(b'Q', b"own\0"), 100, &mut decider);
    let failed = [message(b'E', b"C42703\0\0"), ready(b'I')].concat();
    let events = server(&mut machine, &failed, &mut out);
    assert!(matches!(&events[..], [Event::Ended(unit)] if unit.failed));
    assert_eq!(out, [failed, message(b'E', b"no\0"), ready(b'I')].concat());
}

#[test]
fn statements_of_ours_are_answered_between_those_of_the_server() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let theirs = [parse("a", "select 1"), bind("", "a")].concat();
    let ours = [parse("o", "own"), bind("p", "o"), execute("p")].concat();
    let sync = message(b'S', &[]);
    let sent = client(&mut machine, &[&theirs[..], &ours, &execute(""), &sync].concat(), 9, &mut decider);
    assert_eq!(sent, [&theirs[..], &execute(""), &sync].concat());
    let replies = [message(b'1', &[]), message(b'2', &[]), message(b'C', b"SELECT 1\0"), ready(b'I')];
    server(&mut machine, &replies.concat(), &mut out);
    let [one, two, done, end] = &replies;
    let own = [one, two, &message(b'C', b"OWN\0")].map(|message| message.as_slice()).concat();
    assert_eq!(out, [&one[..], two, &own, done, end].concat());
}

#[test]
fn a_sync_sent_before_copied_data_is_not_answered() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let sync = message(b'S', &[]);
    let begin = [parse("", "copy t from stdin"), bind("", ""), execute(""), sync.clone()].concat();
    client(&mut machine, &begin, 100, &mut decider);
    server(
        &mut machine,
        &[message(b'1', &[]), message(b'2', &[]), message(b'G', b"\0\0\0")].concat(),
        &mut out,
    );
    assert!(!machine.is_quiet());
    client(&mut machine, &[message(b'd', b"1\n"), message(b'c', &[]), sync].concat(), 100, &mut decider);
    let events = server(&mut machine, &[message(b'C', b"COPY 1\0"), ready(b'I')].concat(), &mut out);
    assert!(matches!(&events[..], [Event::Ended(unit)] if unit.progress.changed_rows == 1));
    assert!(machine.is_quiet());
}

#[test]
fn rows_that_are_copied_out_are_sent_and_not_changed() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    client(&mut machine, &message(b'Q', b"copy t to stdout; copy t from '/f'\0"), 100, &mut decider);
    let copied = [message(b'H', b"\0\0\0"), message(b'd', b"1\n"), message(b'd', b"2\n"), message(b'c', &[])];
    let ends = [message(b'C', b"COPY 2\0"), message(b'C', b"COPY 5\0"), ready(b'I')].concat();
    let events = server(&mut machine, &[copied.concat(), ends].concat(), &mut out);
    let [Event::Ended(unit)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((unit.progress.sent_rows, unit.progress.changed_rows), (2, 5));
}

#[test]
fn an_explained_query_runs_and_its_result_is_kept_back() {
    let (mut machine, mut out) = (machine(), Vec::new());
    let query = message(b'Q', b"explain ru select 1\0");
    assert!(matches!(machine.client(&query).unwrap(), Step::Ask(Ask::Query(_))));
    let explains = Goes { inner: Some("select 1".into()), naming: None };
    machine.decide(&query, Decision::Go(4, explains)).unwrap();
    let inner = message(b'Q', b"select 1\0");
    assert!(matches!(machine.client(&query).unwrap(), Step::Send(bytes) if bytes == inner));
    assert!(matches!(machine.client(&query).unwrap(), Step::Skip(count) if count == query.len()));
    let note = message(b'N', b"\0");
    let rows = [message(b'T', b"\0\0"), message(b'D', b"\0\0"), message(b'C', b"SELECT 1\0")].concat();
    let events = server(&mut machine, &[&note[..], &rows, &ready(b'I')].concat(), &mut out);
    let [Event::Ended(unit)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((unit.explained.clone(), unit.running), (Some(Explained::Table), Some(4)));
    assert_eq!(out, [note, ready(b'I')].concat());
}

/// A `Bind` with one parameter, for a result in these formats.
fn bind_for(name: &str, formats: &[u8]) -> Vec<u8> {
    let codes: Vec<u8> = formats.iter().flat_map(|code| [0, *code]).collect();
    let count = u8::try_from(formats.len()).unwrap();
    message(b'B', &[format!("\0{name}\0").as_bytes(), b"\0\0\0\x01\0\0\0\x01x\0", &[count], &codes].concat())
}

fn execute_for(limit: u8) -> Vec<u8> {
    message(b'E', &[0, 0, 0, 0, limit])
}

fn describe(kind: &str) -> Vec<u8> {
    message(b'D', format!("{kind}\0").as_bytes())
}

/// What the server says to a `Bind`, a `Describe` and an `Execute`.
fn run_at_server() -> Vec<u8> {
    let rows = [message(b'D', b"\0\x01\0\0\0\x01x"), message(b'C', b"SELECT 1\0")].concat();
    [message(b'2', &[]), message(b'T', b"\0\x01x"), rows].concat()
}

#[test]
fn an_explained_statement_runs_with_its_parameters_and_its_result_is_kept_back() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let sync = message(b'S', &[]);
    let typed = |text: &str| message(b'P', format!("s\0{text}\0\0\x01\0\0\0\x17").as_bytes());
    let prepare = [typed("explain ru select $1"), describe("Ss"), sync.clone()].concat();
    let sent = client(&mut machine, &prepare, 4, &mut decider);
    assert_eq!(
        sent,
        [typed("select $1"), describe("Ss"), sync.clone()].concat(),
        "the types of parameters stay"
    );
    let prepared = sent.len();
    let parameters = message(b't', b"\0\x01\0\0\0\x17");
    let described = [message(b'1', &[]), parameters.clone(), message(b'n', &[]), ready(b'I')].concat();
    server(&mut machine, &described, &mut out);
    let columns = |formats: &[bool]| crate::postgres::message::row_description(&explained_columns(), formats);
    assert_eq!(out, [message(b'1', &[]), parameters, columns(&[]), ready(b'I')].concat());
    out.clear();
    let run = [bind_for("s", &[1, 0, 1]), describe("P"), execute_for(6), sync.clone()].concat();
    let sent = client(&mut machine, &run, 5, &mut decider);
    assert_eq!(decider.asked, ["SELECT ?"]);
    let all = [bind_for("s", &[]), describe("P"), execute_for(0), sync].concat();
    assert_eq!(sent, all, "it has other columns, and costs what all its rows cost");
    let events = server(&mut machine, &[run_at_server(), ready(b'T')].concat(), &mut out);
    let [Event::Ended(unit)] = &events[..] else { panic!("{events:?}") };
    let formats = [true, false, true];
    assert_eq!(unit.explained, Some(Explained::Rows(Arc::new(formats))));
    assert_eq!((unit.progress.sent_rows, unit.failed), (1, false));
    assert_eq!(unit.progress.bytes_in, u64::try_from(prepared + all.len()).unwrap());
    assert_eq!(out, [message(b'2', &[]), columns(&formats), ready(b'T')].concat());
}

#[test]
fn an_explained_statement_with_more_behind_it_shows_its_cost_between() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let before = [parse("", "begin"), bind("", ""), execute("")].concat();
    let explained =
        [parse("", "explain ru select 1"), bind_for("", &[]), describe("P"), execute("")].concat();
    let flush = message(b'H', &[]);
    client(&mut machine, &[before, explained, flush, message(b'C', b"P\0")].concat(), 9, &mut decider);
    assert_eq!(decider.asked, ["BEGIN"], "they are one unit");
    let prepared = message(b'1', &[]);
    let begun = [prepared.clone(), message(b'2', &[]), message(b'C', b"BEGIN\0")].concat();
    let said = [&begun[..], &prepared, &run_at_server()].concat();
    assert!(
        matches!(&server(&mut machine, &said, &mut out)[..], [Event::Costs(formats)] if formats.is_empty())
    );
    let columns = crate::postgres::message::row_description(&explained_columns(), &[]);
    let told = [&begun[..], &prepared, &message(b'2', &[]), &columns].concat();
    assert_eq!(out, told);
    client(&mut machine, &message(b'S', &[]), 9, &mut decider);
    let events = server(&mut machine, &[message(b'3', &[]), ready(b'T')].concat(), &mut out);
    assert!(
        matches!(&events[..], [Event::Ended(unit)] if unit.explained.is_none() && unit.running == Some(2))
    );
    assert_eq!(out, [told, message(b'3', &[]), ready(b'T')].concat());
}

#[test]
fn an_explained_statement_that_fails_reports_its_error() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    let unit = [parse("", "explain ru selec"), bind("", ""), describe("P"), execute(""), message(b'S', &[])];
    client(&mut machine, &unit.concat(), 100, &mut decider);
    let failed = [message(b'E', b"C42601\0\0"), ready(b'I')].concat();
    let events = server(&mut machine, &failed, &mut out);
    assert!(matches!(&events[..], [Event::Ended(unit)] if unit.failed && unit.explained.is_none()));
    assert_eq!(out, failed);
}

#[test]
fn what_an_explanation_cannot_do_is_refused_with_the_remedy() {
    let refused = |last: &[u8]| {
        let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
        let begin = parse("", "explain ru select $1");
        client(&mut machine, &begin, 100, &mut decider);
        let sent = client(&mut machine, last, 1_000, &mut decider);
        server(&mut machine, &[message(b'1', &[]), message(b'2', &[])].concat(), &mut out);
        (sent, String::from_utf8_lossy(&out).into_owned())
    };
    let (sent, told) = refused(&[bind_for("", &[]), execute_for(5)].concat());
    assert_eq!(sent, [bind_for("", &[]), message(b'H', &[])].concat());
    assert!(told.contains("5 rows at once, and was executed for 5"), "{told}");
    let long = [&b"\0\0\0\0\0\x01\0\x02\0\0"[..], &[b'x'; 0x20000], b"\0\0"].concat();
    let (sent, told) = refused(&message(b'B', &long));
    assert_eq!(sent, message(b'H', &[]));
    assert!(told.contains("at most 65536 bytes of parameters, and was sent 131089"), "{told}");
}

#[test]
fn names_of_plain_statements_make_room_first() {
    let (mut machine, mut decider) = (machine(), Decider::default());
    let sync = message(b'S', &[]);
    client(&mut machine, &[parse("kept", "explain ru select 1"), sync.clone()].concat(), 1_000, &mut decider);
    for number in 0..5_000 {
        client(
            &mut machine,
            &[parse(&format!("n{number}"), "select 1"), sync.clone()].concat(),
            1_000,
            &mut decider,
        );
    }
    let sent = client(&mut machine, &bind_for("kept", &[1]), 1_000, &mut decider);
    assert_eq!(sent, bind_for("kept", &[]), "it is still known as explained");
}

#[test]
fn a_cancelled_runaway_is_told_in_the_gateway_s_words() {
    let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
    client(&mut machine, &message(b'Q', b"select 1\0"), 100, &mut decider);
    machine.kill(b"ours".to_vec());
    server(&mut machine, &[message(b'E', b"SERROR\0C57014\0\0"), ready(b'I')].concat(), &mut out);
    assert_eq!(out, [&b"ours"[..], &ready(b'I')].concat());
}

proptest! {
    /// A client's bytes pass whole and unchanged in whatever pieces they come, and so do the server's.
    #[test]
    fn pieces_do_not_matter(texts in prop::collection::vec("[a-z ']{0,20}", 1..8), piece in 1_usize..40, back in 1_usize..40) {
        let (mut machine, mut decider, mut out) = (machine(), Decider::default(), Vec::new());
        let texts: Vec<String> = texts.into_iter().filter(|text| !text.starts_with("own")).collect();
        let mut sent = Vec::new();
        let mut said = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            if at % 2 == 0 {
                sent.extend(message(b'Q', format!("{text}\0").as_bytes()));
                said.extend([message(b'D', &[1; 30]), message(b'C', b"SELECT 1\0"), ready(b'I')].concat());
            } else {
                sent.extend([parse("n", text), bind("", "n"), execute(""), message(b'S', &[])].concat());
                let replies = [message(b'1', &[]), message(b'2', &[]), message(b'I', &[]), ready(b'I')];
                said.extend(replies.concat());
            }
        }
        prop_assert_eq!(client(&mut machine, &sent, piece, &mut decider), sent);
        prop_assert_eq!(decider.asked.len(), texts.len());
        let (mut inbox, mut events) = (Vec::new(), Vec::new());
        for bytes in said.chunks(back) {
            inbox.extend_from_slice(bytes);
            loop {
                let (used, event) = machine.server(&inbox, &mut out, 10).unwrap();
                inbox.drain(..used);
                match event {
                    Some(event) => events.push(event),
                    None if used == 0 => break,
                    None => {}
                }
            }
        }
        prop_assert_eq!(events.len(), texts.len());
        prop_assert_eq!(out, said);
    }

    /// Nothing either side sends panics, and what is remembered stays bounded.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600), kinds in "[QPBEDCSHdcfXpF1ZTDCEKGIn]{1,40}") {
        let mut machine = machine();
        let framed: Vec<u8> = kinds.bytes().flat_map(|kind| {
            let take = usize::from(kind) % (bytes.len() + 1);
            message(kind, &bytes[..take])
        }).collect();
        for input in [&bytes, &framed] {
            let (mut at, mut next, mut out) = (0, 0, Vec::new());
            while let Ok(step) = machine.client(&input[at..]) {
                match step {
                    Step::Pass(count) | Step::Skip(count) => at += count,
                    Step::Send(_) => {}
                    Step::More(_) | Step::Wait => break,
                    Step::Ends => drop(machine.part().unwrap()),
                    Step::Ask(ask) => {
                        next += 1;
                        let mut decider = Decider { next, refuse: next % 3 == 0, ..Decider::default() };
                        decide(&mut machine, &input[at..], ask, &mut decider);
                    }
                }
            }
            let mut at = 0;
            while let Ok((used, event)) = machine.server(&input[at..], &mut out, 1_000) {
                at += used;
                if used == 0 && event.is_none() {
                    break;
                }
            }
        }
    }
}
