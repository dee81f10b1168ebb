//! Names of statements, given by the protocol and by SQL: they stand for what the server has under them, or for nothing.

use std::collections::{BTreeMap, HashMap};

use super::line::done;
use super::*;

/// The client sends this, and the server says that; both in whole.
fn exchange(machine: &mut Tested, sent: &[u8], said: &[Vec<u8>]) -> Decider {
    let mut decider = Decider::default();
    client(machine, sent, 1_000, &mut decider);
    server(machine, &said.concat(), &mut Vec::new());
    decider
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

fn failed() -> Vec<u8> {
    message(b'E', b"C42P05\0\0")
}

/// A text in the extended protocol, and what the server says before it runs.
fn extended(text: &str) -> (Vec<u8>, Vec<u8>) {
    let sent = [parse("", text), bind("", ""), execute(""), message(b'S', &[])].concat();
    (sent, [message(b'1', &[]), message(b'2', &[])].concat())
}

/// A simple query that succeeds with this tag.
fn succeeds(machine: &mut Tested, text: &str, tag: &str) {
    exchange(machine, &query(text), &[done(tag), ready(b'I')]);
}

/// What runs by this text.
fn runs(machine: &mut Tested, text: &str) -> String {
    exchange(machine, &query(text), &[failed(), ready(b'I')]).asked.pop().unwrap()
}

/// What runs by a `Bind` of this name.
fn bound(machine: &mut Tested, name: &str) -> String {
    let sent = [bind("", name), execute(""), message(b'S', &[])].concat();
    exchange(machine, &sent, &[failed(), ready(b'I')]).asked.pop().unwrap()
}

#[test]
fn what_sql_prepares_is_found_by_sql_and_by_the_protocol() {
    let mut machine = machine();
    succeeds(&mut machine, "prepare S (int) as select a", "PREPARE");
    assert_eq!(runs(&mut machine, "execute s(1)"), "SELECT a");
    assert_eq!(bound(&mut machine, "s"), "SELECT a");
    let (sent, said) = extended("prepare t as select b");
    exchange(&mut machine, &sent, &[said, done("PREPARE"), ready(b'I')]);
    assert_eq!(runs(&mut machine, "execute t"), "SELECT b");
    let (sent, said) = extended("execute T");
    let decider = exchange(&mut machine, &sent, &[said, done("SELECT 1"), ready(b'I')]);
    assert_eq!(decider.asked, ["SELECT b"]);
    assert_eq!(runs(&mut machine, "execute u"), "execute u", "of which nothing is known");
}

#[test]
fn what_the_protocol_prepares_is_found_by_sql() {
    let mut machine = machine();
    let sync = message(b'S', &[]);
    let long = "x".repeat(70);
    let sent =
        [parse("S", "select a"), parse("e", "explain ru select b"), parse(&long, "select c"), sync].concat();
    exchange(&mut machine, &sent, &[message(b'1', &[]).repeat(3), ready(b'I')]);
    assert_eq!(runs(&mut machine, "execute \"S\""), "SELECT a");
    assert_eq!(runs(&mut machine, "execute S"), "execute S", "which is another name");
    assert_eq!(runs(&mut machine, "execute e"), "SELECT b", "its result is the statement's");
    assert_eq!(runs(&mut machine, &format!("execute {long}")), "SELECT c", "as far as names go");
}

#[test]
fn what_fails_leaves_names_as_they_were() {
    let mut machine = machine();
    succeeds(&mut machine, "prepare s as select a", "PREPARE");
    for text in ["prepare s as select b", "deallocate s", "deallocate all", "prepare n as select c"] {
        exchange(&mut machine, &query(text), &[failed(), ready(b'I')]);
        let (sent, said) = extended(text);
        exchange(&mut machine, &sent, &[said, failed(), ready(b'I')]);
        assert_eq!(runs(&mut machine, "execute s"), "SELECT a", "{text}");
    }
    assert_eq!(runs(&mut machine, "execute n"), "execute n");
    // Refused before it goes to the server.
    let mut refusing = Decider { refuse: true, ..Decider::default() };
    client(&mut machine, &query("deallocate s"), 1_000, &mut refusing);
    assert_eq!(runs(&mut machine, "execute s"), "SELECT a");
}

#[test]
fn what_is_given_up_is_forgotten() {
    let mut machine = machine();
    succeeds(&mut machine, "prepare s as select a", "PREPARE");
    succeeds(&mut machine, "deallocate prepare s", "DEALLOCATE");
    assert_eq!(
        (runs(&mut machine, "execute s"), bound(&mut machine, "s")),
        ("execute s".into(), String::new())
    );
    for (text, tag) in [
        ("deallocate all", "DEALLOCATE ALL"),
        ("discard all", "DISCARD ALL"),
        ("select 1; deallocate s", "DEALLOCATE"),
        ("close all; deallocate all", "DEALLOCATE ALL"),
    ] {
        succeeds(&mut machine, "prepare s as select a", "PREPARE");
        let sent = [parse("o", "own"), parse("", "select b"), message(b'S', &[])].concat();
        exchange(&mut machine, &sent, &[message(b'1', &[]), ready(b'I')]);
        succeeds(&mut machine, text, tag);
        assert_eq!(bound(&mut machine, "s"), "", "{text}");
        assert_eq!(bound(&mut machine, ""), "SELECT b", "it has no name");
        assert!(
            matches!(machine.wire.statements.get(b"o"), Some(Prepared::Ours(_))),
            "the server has not heard of it"
        );
    }
    succeeds(&mut machine, "prepare s as select a", "PREPARE");
    exchange(
        &mut machine,
        &[message(b'C', b"Ss\0"), message(b'S', &[])].concat(),
        &[message(b'3', &[]), ready(b'I')],
    );
    assert_eq!(runs(&mut machine, "execute s"), "execute s", "the protocol closed it");
}

#[test]
fn several_statements_in_one_text_give_no_names() {
    let mut machine = machine();
    succeeds(&mut machine, "prepare s as select a", "PREPARE");
    succeeds(&mut machine, "prepare t as select b; execute t", "PREPARE");
    succeeds(&mut machine, "select 1; prepare u as select b", "PREPARE");
    assert_eq!(runs(&mut machine, "execute s"), "SELECT a");
    assert_eq!(
        (runs(&mut machine, "execute t"), runs(&mut machine, "execute u")),
        ("execute t".into(), "execute u".into())
    );
}

#[test]
fn names_of_statements_about_names_are_followed() {
    let mut machine = machine();
    succeeds(&mut machine, "prepare s as select a", "PREPARE");
    let texts = [("e", "execute s"), ("f", "execute e"), ("d", "deallocate s"), ("l", "execute l")];
    let parses: Vec<u8> = texts.iter().flat_map(|(name, text)| parse(name, text)).collect();
    exchange(
        &mut machine,
        &[parses, message(b'S', &[])].concat(),
        &[message(b'1', &[]).repeat(texts.len()), ready(b'I')],
    );
    assert_eq!(
        (runs(&mut machine, "execute f"), bound(&mut machine, "f")),
        ("SELECT a".into(), "SELECT a".into())
    );
    assert_eq!(runs(&mut machine, "execute l"), "execute l", "without an end");
    exchange(&mut machine, &query("execute d"), &[done("DEALLOCATE"), ready(b'I')]);
    assert_eq!(runs(&mut machine, "execute s"), "execute s");
    let known = machine.wire.statements.get(b"e").is_some();
    assert!(known, "only the one that was named is gone");
}

#[test]
fn what_was_sent_ahead_of_a_word_on_all_names_stays() {
    let mut machine = machine();
    succeeds(&mut machine, "prepare s as select a", "PREPARE");
    let ahead = [query("deallocate all"), query("prepare s as select b"), query("prepare s as select c")];
    let said = [done("DEALLOCATE ALL"), ready(b'I'), done("PREPARE"), ready(b'I'), failed(), ready(b'I')];
    exchange(&mut machine, &ahead.concat(), &said);
    assert_eq!(runs(&mut machine, "execute s"), "SELECT b");
}

#[test]
fn what_was_sent_ahead_and_succeeds_is_known_and_what_fails_leaves_the_gateway_s_own() {
    let mut machine = machine();
    exchange(&mut machine, &[parse("o", "own"), message(b'S', &[])].concat(), &[ready(b'I')]);
    succeeds(&mut machine, "prepare s as select a", "PREPARE");
    let ahead = [
        query("deallocate all"),
        query("prepare s as select b"),
        parse("o", "selec"),
        parse("", "select c"),
        message(b'S', &[]),
    ];
    let said = [done("DEALLOCATE ALL"), ready(b'I'), done("PREPARE"), ready(b'I'), failed(), ready(b'I')];
    exchange(&mut machine, &ahead.concat(), &said);
    assert_eq!(bound(&mut machine, "s"), "SELECT b");
    assert!(
        matches!(machine.wire.statements.get(b"o"), Some(Prepared::Ours(_))),
        "the server has nothing under its name"
    );
}

/// What the client may do, and the name it is about.
#[derive(Clone, Debug)]
enum Does {
    Prepare(String, bool),
    Deallocate(String, bool),
    All(bool),
    /// As one of several statements.
    Among(String),
    PrepareAmong(String),
    Parse(String),
    Close(String),
}

fn does() -> impl Strategy<Value = Does> {
    let name = || "[abc]";
    prop_oneof![
        4 => (name(), any::<bool>()).prop_map(|(name, simple)| Does::Prepare(name, simple)),
        2 => (name(), any::<bool>()).prop_map(|(name, simple)| Does::Deallocate(name, simple)),
        1 => any::<bool>().prop_map(Does::All),
        1 => name().prop_map(Does::Among),
        1 => name().prop_map(Does::PrepareAmong),
        3 => name().prop_map(Does::Parse),
        2 => name().prop_map(Does::Close),
    ]
}

/// A server's names, and what it says.
#[derive(Default)]
struct Server {
    names: HashMap<String, String>,
    next: u32,
}

impl Server {
    /// The statement for another name, and whether the name is free.
    fn prepare(&mut self, name: &str, statement: &str) -> bool {
        let free = !self.names.contains_key(name);
        if free {
            self.names.insert(name.to_owned(), statement.to_owned());
        }
        free
    }

    /// What the client sends for this in one unit, and the server's answers.
    fn unit(&mut self, all: &[Does]) -> (Vec<u8>, Vec<u8>) {
        let (mut sent, mut said, mut fails) = (Vec::new(), Vec::new(), false);
        for does in all {
            self.next += 1;
            let statement = format!("select c{}", self.next);
            let (text, tag, simple): (String, &str, bool) = match does {
                Does::Prepare(name, simple) => (format!("prepare {name} as {statement}"), "PREPARE", *simple),
                Does::Deallocate(name, simple) => (format!("deallocate {name}"), "DEALLOCATE", *simple),
                Does::All(simple) => ("deallocate all".into(), "DEALLOCATE ALL", *simple),
                Does::Among(name) => (format!("select 1; deallocate {name}"), "DEALLOCATE", true),
                Does::PrepareAmong(name) => {
                    (format!("select 1; prepare {name} as {statement}"), "PREPARE", true)
                }
                Does::Parse(name) => {
                    sent.extend(parse(name, &statement));
                    if !fails {
                        fails = !self.prepare(name, &statement);
                        said.extend(if fails { failed() } else { message(b'1', &[]) });
                    }
                    continue;
                }
                Does::Close(name) => {
                    sent.extend(message(b'C', format!("S{name}\0").as_bytes()));
                    if !fails {
                        self.names.remove(name);
                        said.extend(message(b'3', &[]));
                    }
                    continue;
                }
            };
            let simple = simple && all.len() == 1;
            let (before, word) = if simple { (query(&text), Vec::new()) } else { extended(&text) };
            sent.extend(before.strip_suffix(&message(b'S', &[])[..]).unwrap_or(&before));
            if fails {
                continue;
            }
            let works = match does {
                // Several statements have no place in the extended protocol.
                Does::Among(_) | Does::PrepareAmong(_) if !simple => false,
                Does::Prepare(name, _) | Does::PrepareAmong(name) => self.prepare(name, &statement),
                Does::Deallocate(name, _) | Does::Among(name) => self.names.remove(name).is_some(),
                _ => {
                    self.names.clear();
                    true
                }
            };
            said.extend(word);
            said.extend(if works { done(tag) } else { failed() });
            fails = !works;
            if simple {
                said.extend(ready(b'I'));
                return (sent, said);
            }
        }
        ([sent, message(b'S', &[])].concat(), [said, ready(b'I')].concat())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// However many units are sent ahead, once all is answered a name stands for what the server has under it, or for
    /// nothing that is known.
    #[test]
    fn no_name_stands_for_another_statement(
        batches in prop::collection::vec(prop::collection::vec(prop::collection::vec(does(), 1..4), 1..4), 1..8),
    ) {
        let (mut machine, mut server) = (machine(), Server::default());
        for batch in batches {
            let units: Vec<(Vec<u8>, Vec<u8>)> = batch.iter().map(|unit| server.unit(unit)).collect();
            let sent: Vec<u8> = units.iter().flat_map(|(sent, _)| sent.clone()).collect();
            exchange(&mut machine, &sent, &units.into_iter().map(|(_, said)| said).collect::<Vec<_>>());
            prop_assert_eq!(machine.wire.statements.unconfirmed(), 0);
            let believed: BTreeMap<&str, &str> = ["a", "b", "c"].into_iter().filter_map(|name| {
                let Some(Prepared::Theirs(known)) = machine.wire.statements.get(name.as_bytes()) else { return None };
                Some((name, known.template.text()))
            }).collect();
            for (name, text) in believed {
                let at_server = server.names.get(name).map(|text| text.to_uppercase());
                prop_assert_eq!(Some(text.to_uppercase()), at_server, "{}", name);
            }
        }
    }
}

/// What the gateway answers itself is no affair of the server's, whose word about an earlier unit may come later.
#[test]
fn a_statement_of_the_gateway_keeps_its_name_when_the_server_fails_in_a_unit_before_it() {
    let is_own =
        |machine: &Tested, name: &[u8]| matches!(machine.wire.statements.get(name), Some(Prepared::Ours(_)));
    let sync = || message(b'S', &[]);
    let mut machine = machine();
    let sent = [parse("s", "selec"), sync(), parse("s", "own"), sync()].concat();
    exchange(&mut machine, &sent, &[failed(), ready(b'I')]);
    assert!(is_own(&machine, b"s"));
    exchange(&mut machine, &[], &[ready(b'I')]);
    assert!(is_own(&machine, b"s"), "the client has read that it is prepared");
    // Also where it stood for a statement of the server's, and where that was to go first.
    for gone in [parse("t", "select b"), message(b'C', b"St\0")] {
        exchange(
            &mut machine,
            &[parse("t", "select a"), sync()].concat(),
            &[message(b'1', &[]), ready(b'I')],
        );
        let sent = [parse("x", "selec"), gone, sync(), parse("t", "own"), sync()].concat();
        exchange(&mut machine, &sent, &[failed(), ready(b'I'), ready(b'I')]);
        assert!(is_own(&machine, b"t"));
        let closed = [message(b'C', b"St\0"), sync()].concat();
        exchange(&mut machine, &closed, &[message(b'3', &[]), ready(b'I')]);
        assert!(machine.wire.statements.get(b"t").is_none());
    }
}

/// Its client hears nothing of it.
#[test]
fn a_statement_of_the_gateway_behind_a_failure_of_its_own_unit_is_not_prepared() {
    for (before, stays) in [("select a", true), ("own", false)] {
        let mut machine = machine();
        let given = [parse("s", before), message(b'S', &[])].concat();
        let said = if stays { [message(b'1', &[]), ready(b'I')].concat() } else { ready(b'I') };
        exchange(&mut machine, &given, &[said]);
        let sent = [parse("x", "selec"), parse("n", "own"), parse("s", "own"), message(b'S', &[])].concat();
        exchange(&mut machine, &sent, &[failed(), ready(b'I')]);
        assert!(machine.wire.statements.get(b"n").is_none());
        assert_eq!(matches!(machine.wire.statements.get(b"s"), Some(Prepared::Theirs(_))), stays);
        assert_eq!(machine.wire.statements.unconfirmed(), 0);
    }
    // What was answered before the failure stays, and is not kept in mind for it.
    let mut machine = machine();
    let sent = [parse("a", "select a"), parse("n", "own"), parse("x", "selec"), message(b'S', &[])].concat();
    exchange(&mut machine, &sent, &[message(b'1', &[]), failed(), ready(b'I')]);
    assert!(matches!(machine.wire.statements.get(b"n"), Some(Prepared::Ours(_))));
    let many: Vec<u8> = (0..100).flat_map(|number| parse(&format!("o{number}"), "own")).collect();
    exchange(&mut machine, &many, &[]);
    assert_eq!(machine.wire.statements.unconfirmed(), 0);
}
