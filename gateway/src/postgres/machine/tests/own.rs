//! Statements of the gateway's own and the server's, portals and what they stand for.

use super::line::{Line, sync};
use super::*;

fn close(kind: &str) -> Vec<u8> {
    message(b'C', format!("{kind}\0").as_bytes())
}

/// Rows and notices of the server are no answers that its turn could come after.
#[test]
fn an_answer_of_the_gateway_waits_for_the_end_of_the_result_before_it() {
    let mut line = Line::new();
    let first = [parse("", "select a"), bind("", ""), execute("")].concat();
    line.client(&[first, parse("o", "own"), bind("p", "o"), execute("p"), sync()].concat());
    let (row, note) = (message(b'D', b"\0\0"), message(b'N', b"\0"));
    let begins = [message(b'1', &[]), row.clone(), note.clone(), message(b'2', &[]), row, note].concat();
    line.server(&begins);
    assert_eq!(line.told, begins);
    let done = message(b'C', b"SELECT 1\0");
    line.server(&done);
    let own = [message(b'1', &[]), message(b'2', &[]), message(b'C', b"OWN\0")].concat();
    assert_eq!(line.told, [begins, done, own].concat());
}

/// As a driver that takes results in binary asks for them.
#[test]
fn a_statement_of_the_gateway_is_described_and_run_in_the_formats_of_its_portal() {
    let mut machine = machine();
    client(&mut machine, &[parse("o", "own"), bind_for("o", &[1, 0])].concat(), 100, &mut Decider::default());
    let formats_asked = |machine: &mut Tested, bytes: &[u8]| {
        let (formats, whose) = match machine.client(bytes).unwrap() {
            Step::Ask(Ask::Describe { formats, parameters, .. }) => (formats, Some(parameters)),
            Step::Ask(Ask::Run { formats, .. }) => (formats, None),
            step => panic!("{step:?}"),
        };
        machine.decide(bytes, Decision::Answer(Vec::new())).unwrap();
        while let Step::Skip(_) = machine.client(bytes).unwrap() {}
        (formats.to_vec(), whose)
    };
    for (asks, formats, parameters) in [
        (describe("So"), vec![], Some(true)),
        (describe("P"), vec![true, false], Some(false)),
        (execute(""), vec![true, false], None),
    ] {
        assert_eq!(formats_asked(&mut machine, &asks), (formats, parameters), "{asks:?}");
    }
}

/// Formats, limits of rows and long parameters are the client's affair.
#[test]
fn messages_about_plain_statements_pass_as_they_are() {
    let (mut machine, mut decider) = (machine(), Decider::default());
    let parameter = [&b"\0s\0\0\0\0\x01\0\x02\0\0"[..], &[b'x'; 0x20000], b"\0\x01\0\x01"].concat();
    let all = [
        parse("s", "select $1"),
        bind_for("s", &[1, 0]),
        describe("Ss"),
        describe("P"),
        execute_for(6),
        message(b'B', &parameter),
        execute_for(0),
        sync(),
    ];
    assert_eq!(client(&mut machine, &all.concat(), 1_000, &mut decider), all.concat());
    assert_eq!(decider.asked, ["SELECT ?"]);
}

/// A portal and a statement may have the same name.
#[test]
fn a_close_is_of_a_statement_or_of_a_portal() {
    let runs = |closed: &str| {
        let (mut machine, mut decider) = (machine(), Decider::default());
        let named = [parse("n", "select a"), bind("n", "n"), close(closed)].concat();
        client(&mut machine, &[&named[..], &execute("n"), &sync()].concat(), 100, &mut decider);
        let again = [bind("", "n"), execute(""), sync()].concat();
        client(&mut machine, &again, 100, &mut decider);
        decider.asked
    };
    assert_eq!(runs("Sn"), ["SELECT a", ""]);
    assert_eq!(runs("Pn"), ["", "SELECT a"]);
    assert_eq!(runs("Po"), ["SELECT a", "SELECT a"]);
}

/// It was decided when the server had not failed yet, and comes when the client has its error.
#[test]
fn an_answer_of_the_gateway_that_comes_behind_an_error_is_dropped() {
    let mut line = Line::new();
    line.client(&[parse("", "selec"), message(b'H', &[]), parse("o", "own"), bind("p", "o")].concat());
    let run = execute("p");
    assert!(matches!(line.machine.client(&run).unwrap(), Step::Ask(Ask::Run { .. })));
    let failed = message(b'E', b"C42601\0\0");
    server(&mut line.machine, &failed, &mut line.told);
    line.machine.decide(&run, Decision::Answer(message(b'C', b"OWN\0"))).unwrap();
    while let Step::Skip(_) = line.machine.client(&run).unwrap() {}
    line.client(&sync());
    line.server(&ready(b'I'));
    assert_eq!(line.told, [failed, ready(b'I')].concat());
    assert!(line.machine.is_quiet());
}

/// The server looks at so much of a portal's name, too, and no more of it is kept.
#[test]
fn a_portal_is_found_by_as_much_of_its_name_as_the_server_looks_at() {
    let (mut machine, mut decider) = (machine(), Decider::default());
    let long = |end: &str| format!("{}{end}", "x".repeat(63));
    let sent = [
        parse("s", "select a"),
        parse("o", "own"),
        parse("e", "explain ru select b"),
        bind(&long("y"), "s"),
        execute(&long("z")),
        bind(&long("y"), "e"),
        describe(&format!("P{}", long("w"))),
        bind(&long(&"y".repeat(60_000)), "o"),
    ];
    client(&mut machine, &sent.concat(), 100_000, &mut decider);
    assert_eq!(decider.asked, ["SELECT a"]);
    let own = execute(&long("v"));
    assert!(matches!(machine.client(&own).unwrap(), Step::Ask(Ask::Run { .. })));
    machine.decide(&own, Decision::Answer(Vec::new())).unwrap();
    while let Step::Skip(_) = machine.client(&own).unwrap() {}
    client(
        &mut machine,
        &[close(&format!("P{}", long("u"))), sync(), execute(&long("v"))].concat(),
        100,
        &mut decider,
    );
    assert_eq!(decider.asked, ["SELECT a", ""], "it is closed");
}

/// In the middle of a long parameter it would be five bytes of that.
#[test]
fn what_is_asked_of_the_server_for_an_answer_of_the_gateway_comes_between_messages() {
    let mut line = Line::new();
    let first = [parse("", "select a"), parse("o", "own")].concat();
    let long = [&b"\0s\0\0\0\0\x01\0\x02\0\0"[..], &[b'x'; 0x20000], b"\0\0"].concat();
    for long in [message(b'B', &long), message(b'd', &long)] {
        let (begins, rest) = long.split_at(0x18000);
        let sent = line.client(&[&first[..], begins].concat());
        assert!(sent == [&parse("", "select a"), begins].concat(), "{:?}", sent.get(..100));
        let sent = line.client(rest);
        assert!(sent == [rest, &message(b'H', &[])].concat(), "{:?}", sent.get(sent.len() - 100..));
        line.server(&message(b'1', &[]));
    }
}

/// Its cost comes where its result would have ended.
#[test]
fn the_cost_of_a_statement_comes_before_the_answers_of_the_gateway_behind_it() {
    let mut line = Line::new();
    let explained = [parse("", "explain ru select 1"), bind("", ""), execute("")].concat();
    line.client(&[explained, parse("o", "own"), bind("p", "o"), execute("p"), sync()].concat());
    let ran = [message(b'D', b"\0\0"), message(b'C', b"SELECT 1\0")].concat();
    line.server(&[message(b'1', &[]), message(b'2', &[]), ran].concat());
    assert!(matches!(&line.events[..], [Event::Costs(_)]), "{:?}", line.events);
    line.server(&ready(b'I'));
    let Some(Event::Ended(unit)) = line.events.last() else { panic!("{:?}", line.events) };
    assert_eq!((unit.running, &unit.explained), (Some(1), &None));
}
