//! What every [`Consensus`] does, as rules: run against etcd and against the model, so that what is proved with the
//! one holds with the other. A rule works below a prefix of its own, on a store that nobody else writes to.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use tidegate_consensus::{Consensus, ConsensusError, Guard, Outcome, Page, Row, Step, Transaction, end_of};

/// A rule.
pub(crate) type Rule = fn(&dyn Consensus);

/// All of them.
pub(crate) const RULES: [(&str, Rule); 17] = [
    ("a guard of a revision holds at this revision alone", guards_of_revisions),
    ("a guard of a value holds for this value alone", guards_of_values),
    ("all guards have to hold", all_guards_have_to_hold),
    ("steps happen in order and see those before them", steps_happen_in_order),
    ("what gets found is in the order of the gets", found_in_order),
    ("a transaction without anything holds", a_transaction_without_anything_holds),
    ("no step happens of a transaction that sets a key twice", keys_are_set_once),
    ("a key has at least one byte", keys_are_not_empty),
    ("the revision grows by one with each transaction that changes something", revisions_grow_by_one),
    ("a row says when it was created and changed", rows_have_revisions),
    ("a delete removes what lies in its range", deletes_are_half_open),
    ("a range is read in pages as of one revision", pages_of_one_revision),
    ("a range has the keys from its begin to before its end", ranges_are_half_open),
    ("what was before a compaction is gone", compaction_forgets),
    ("keys and values have any bytes", any_bytes),
    ("values of 512 KiB, transactions of two, pages of 16, and 128 steps are taken", sizes),
    ("of those that guard one revision one wins", one_wins),
];

/// Long enough for a machine that does other work: what has no fault to wait for answers at once.
const WITHIN: Duration = Duration::from_secs(60);

fn key(name: &str) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn put(name: &str, value: &str) -> Step {
    Step::Put(key(name), key(value))
}

fn get(name: &str) -> Step {
    Step::Get(key(name))
}

fn delete(from: &str, to: &str) -> Step {
    Step::Delete(key(from), key(to))
}

fn changed(name: &str, revision: u64) -> Guard {
    Guard::Changed(key(name), revision)
}

fn has(name: &str, value: &str) -> Guard {
    Guard::Value(key(name), key(value))
}

fn run(store: &dyn Consensus, when: Vec<Guard>, then: Vec<Step>, otherwise: Vec<Step>) -> Outcome {
    store.transact(&Transaction { when, then, otherwise }, WITHIN).unwrap()
}

fn does(store: &dyn Consensus, then: Vec<Step>) -> Outcome {
    run(store, vec![], then, vec![])
}

/// Whether these guards hold.
fn holds(store: &dyn Consensus, when: Vec<Guard>) -> bool {
    run(store, when, vec![], vec![]).held
}

fn read(store: &dyn Consensus, name: &str) -> Option<Row> {
    does(store, vec![get(name)]).found.remove(0)
}

fn value(row: &Option<Row>) -> Option<&str> {
    row.as_ref().map(|row| std::str::from_utf8(&row.value).unwrap())
}

fn page(store: &dyn Consensus, from: &str, to: &str, most: usize, at: Option<u64>) -> Page {
    store.range(from.as_bytes(), to.as_bytes(), most, at, WITHIN).unwrap()
}

fn names(page: &Page) -> Vec<&str> {
    page.rows.iter().map(|row| std::str::from_utf8(&row.key).unwrap()).collect()
}

fn guards_of_revisions(store: &dyn Consensus) {
    assert!(holds(store, vec![changed("revision/k", 0)]));
    assert!(!holds(store, vec![changed("revision/k", 1)]));
    let first = does(store, vec![put("revision/k", "1")]).revision;
    let second = does(store, vec![put("revision/k", "1")]).revision;
    for (revision, expected) in
        [(0, false), (first, false), (second, true), (second + 1, false), (u64::MAX, false)]
    {
        assert_eq!(holds(store, vec![changed("revision/k", revision)]), expected, "{revision} of {second}");
    }
    does(store, vec![delete("revision/k", "revision/l")]);
    assert!(
        holds(store, vec![changed("revision/k", 0)]) && !holds(store, vec![changed("revision/k", second)])
    );
}

fn guards_of_values(store: &dyn Consensus) {
    assert!(!holds(store, vec![has("value/k", "")]), "an absent key has no value");
    does(store, vec![put("value/k", "v"), put("value/empty", "")]);
    assert!(holds(store, vec![has("value/k", "v")]) && holds(store, vec![has("value/empty", "")]));
    assert!(!holds(store, vec![has("value/k", "")]) && !holds(store, vec![has("value/k", "vv")]));
}

fn all_guards_have_to_hold(store: &dyn Consensus) {
    let revision = does(store, vec![put("all/k", "v")]).revision;
    let both = vec![changed("all/k", revision), has("all/k", "v"), changed("all/none", 0)];
    let done = run(store, both, vec![put("all/a", "then")], vec![put("all/a", "otherwise")]);
    assert!(done.held && value(&read(store, "all/a")) == Some("then"));
    let one_fails = vec![changed("all/k", revision), has("all/k", "w"), changed("all/none", 0)];
    let otherwise = vec![get("all/k"), put("all/a", "otherwise")];
    let done = run(store, one_fails, vec![get("all/none"), put("all/b", "then")], otherwise);
    assert!(!done.held && done.found.len() == 1 && value(&done.found[0]) == Some("v"));
    assert_eq!(value(&read(store, "all/a")), Some("otherwise"));
    assert_eq!(read(store, "all/b"), None);
}

fn steps_happen_in_order(store: &dyn Consensus) {
    let done = does(store, vec![get("order/k"), put("order/k", "1"), get("order/k")]);
    let row = Row { key: key("order/k"), value: key("1"), created: done.revision, changed: done.revision };
    assert_eq!(done.found, [None, Some(row)]);
    let done = does(store, vec![get("order/k"), delete("order/", "order0"), get("order/k")]);
    assert_eq!(done.found.iter().map(value).collect::<Vec<_>>(), [Some("1"), None]);
    // Guards look at what was before the steps.
    let done = run(store, vec![changed("order/k", 0)], vec![put("order/k", "2"), get("order/k")], vec![]);
    assert!(done.held && value(&done.found[0]) == Some("2"));
}

fn found_in_order(store: &dyn Consensus) {
    does(store, vec![put("found/a", "1"), put("found/b", "2")]);
    let gets = vec![get("found/b"), get("found/none"), put("found/c", "3"), get("found/a"), get("found/b")];
    let done = does(store, gets);
    assert_eq!(done.found.iter().map(value).collect::<Vec<_>>(), [Some("2"), None, Some("1"), Some("2")]);
}

fn a_transaction_without_anything_holds(store: &dyn Consensus) {
    let before = does(store, vec![put("without/k", "v")]).revision;
    assert_eq!(does(store, vec![]), Outcome { held: true, revision: before, found: vec![] });
}

fn refused(store: &dyn Consensus, transaction: &Transaction) {
    let before = does(store, vec![]).revision;
    let said = store.transact(transaction, WITHIN);
    assert!(matches!(said, Err(ConsensusError::Refused { .. })), "{transaction:?}: {said:?}");
    assert_eq!(does(store, vec![]).revision, before, "{transaction:?}");
}

fn keys_are_set_once(store: &dyn Consensus) {
    let of = |then| Transaction { then, ..Transaction::default() };
    let other = put("once/other", "1");
    refused(store, &of(vec![other.clone(), put("once/k", "1"), put("once/k", "1")]));
    refused(store, &of(vec![other.clone(), put("once/k", "1"), delete("once/", "once0")]));
    refused(store, &of(vec![other, delete("once/", "once0"), put("once/k", "1")]));
    // Also where it would not happen.
    let otherwise = vec![put("once/k", "1"), put("once/k", "2")];
    refused(store, &Transaction { otherwise, ..of(vec![put("once/k", "1")]) });
    assert_eq!(read(store, "once/other"), None);
    // What does not happen together may be the same, and removing twice is no contradiction.
    let done = run(store, vec![], vec![put("once/k", "1")], vec![put("once/k", "2")]);
    assert!(done.held);
    does(store, vec![delete("once/", "once0"), delete("once/k", "once/l"), put("twice/k", "1")]);
    assert_eq!(read(store, "once/k"), None);
    does(store, vec![delete("twice/l", "twice/l"), put("twice/l", "1")]);
}

fn keys_are_not_empty(store: &dyn Consensus) {
    for then in [vec![get("")], vec![put("", "v")]] {
        refused(store, &Transaction { then, ..Transaction::default() });
    }
    for guard in [changed("", 0), has("", "")] {
        refused(store, &Transaction { when: vec![guard], ..Transaction::default() });
    }
}

fn revisions_grow_by_one(store: &dyn Consensus) {
    let first = does(store, vec![put("grow/a", "1")]).revision;
    let idle = [
        vec![],
        vec![get("grow/a")],
        vec![delete("grow/b", "grow/c")],
        vec![delete("grow/b", "grow/a"), delete("grow/a", "grow/a")],
    ];
    for steps in idle {
        assert_eq!(does(store, steps).revision, first);
    }
    assert_eq!(run(store, vec![changed("grow/a", 0)], vec![put("grow/b", "1")], vec![]).revision, first);
    assert_eq!(page(store, "grow/", "grow0", 9, None).revision, first);
    // Several changes are one, and setting what is there already is one.
    let several = vec![put("grow/b", "1"), put("grow/c", "1"), delete("grow/a", "grow/b")];
    assert_eq!(does(store, several).revision, first + 1);
    assert_eq!(does(store, vec![put("grow/b", "1")]).revision, first + 2);
    assert_eq!(does(store, vec![delete("grow/", "grow0")]).revision, first + 3);
}

fn rows_have_revisions(store: &dyn Consensus) {
    let first = does(store, vec![put("row/k", "1"), put("row/l", "1")]).revision;
    let second = does(store, vec![put("row/k", "2")]).revision;
    let row = |name, value, created, changed| Row { key: key(name), value: key(value), created, changed };
    let rows = [row("row/k", "2", first, second), row("row/l", "1", first, first)];
    assert_eq!(page(store, "row/", "row0", 9, None).rows, rows);
    assert_eq!(read(store, "row/k").as_ref(), rows.first());
    does(store, vec![delete("row/k", "row/l")]);
    let third = does(store, vec![put("row/k", "3")]).revision;
    assert_eq!(read(store, "row/k"), Some(row("row/k", "3", third, third)));
}

fn deletes_are_half_open(store: &dyn Consensus) {
    let all = ["del/", "del/a", "del/a0", "del/b", "del/c", "dem"];
    does(store, all.map(|name| put(name, "v")).to_vec());
    let left = |to| page(store, "del/", to, 9, None);
    for (from, to) in
        [("del/b", "del/a"), ("del/b", "del/b"), ("del/b", ""), ("del/b", "\0"), ("", "\0"), ("", "")]
    {
        does(store, vec![delete(from, to)]);
        assert_eq!(names(&left("dem0")), all, "{from:?} to {to:?}");
    }
    does(store, vec![delete("del/a", "del/b")]);
    assert_eq!(names(&left("dem0")), ["del/", "del/b", "del/c", "dem"]);
    let end = String::from_utf8(end_of(b"del/").unwrap()).unwrap();
    does(store, vec![delete("del/", &end)]);
    assert_eq!(names(&left("dem0")), ["dem"]);
}

fn pages_of_one_revision(store: &dyn Consensus) {
    let all = ["page/a", "page/b", "page/c", "page/d", "page/e"];
    let written = does(store, all.map(|name| put(name, "1")).to_vec()).revision;
    let first = page(store, "page/", "page0", 2, None);
    assert_eq!((names(&first), first.more, first.revision), (all[..2].to_vec(), true, written));
    // What happens between two pages is not in them.
    let later =
        does(store, vec![put("page/c", "2"), put("page/cc", "2"), delete("page/d", "page/e")]).revision;
    let second = page(store, "page/b\0", "page0", 2, Some(first.revision));
    assert_eq!((names(&second), second.more, second.revision), (all[2..4].to_vec(), true, written));
    assert_eq!(second.rows[0].value, b"1");
    let third = page(store, "page/d\0", "page0", 2, Some(first.revision));
    assert_eq!((names(&third), third.more, third.revision), (all[4..].to_vec(), false, written));
    let now = page(store, "page/c", "page0", 9, None);
    assert_eq!((names(&now), now.more, now.revision), (vec!["page/c", "page/cc", "page/e"], false, later));
    // One that ends with the range has no more.
    assert!(!page(store, "page/", "page0", 5, None).more && page(store, "page/", "page0", 4, None).more);
    let none = page(store, "page/", "page0", 0, None);
    assert_eq!((none.rows.len(), none.more), (0, true));
    let ahead = store.range(b"page/", b"page0", 9, Some(later + 1_000), WITHIN);
    assert!(matches!(ahead, Err(ConsensusError::Refused { .. })), "{ahead:?}");
}

fn ranges_are_half_open(store: &dyn Consensus) {
    let revision = does(store, vec![put("half/a", "1"), put("half/b", "1"), put("half/b0", "1")]).revision;
    assert_eq!(names(&page(store, "half/a", "half/b", 9, None)), ["half/a"]);
    assert_eq!(names(&page(store, "half/a\0", "half/b0", 9, None)), ["half/b"]);
    for (from, to) in
        [("half/b", "half/a"), ("half/a", "half/a"), ("half/a", ""), ("half/a", "\0"), ("", "\0"), ("", "")]
    {
        let empty = page(store, from, to, 9, None);
        assert_eq!(empty, Page { rows: vec![], more: false, revision }, "{from:?} to {to:?}");
    }
    // The empty key is before all.
    let first = page(store, "", "half/b", 10_000, None);
    assert_eq!(names(&first).last(), Some(&"half/a"));
}

fn compaction_forgets(store: &dyn Consensus) {
    let first = does(store, vec![put("compact/k", "1")]).revision;
    let second = does(store, vec![put("compact/k", "2")]).revision;
    let third = does(store, vec![put("compact/k", "3")]).revision;
    assert_eq!(page(store, "compact/", "compact0", 9, Some(first)).rows[0].value, b"1");
    store.compact(second, WITHIN).unwrap();
    let gone = |at| store.range(b"compact/", b"compact0", 9, Some(at), WITHIN);
    assert_eq!(gone(first), Err(ConsensusError::Compacted(first)));
    assert_eq!(gone(0), Err(ConsensusError::Compacted(0)));
    assert_eq!(page(store, "compact/", "compact0", 9, Some(second)).rows[0].value, b"2");
    // What is there now stays, with its revisions.
    let row = read(store, "compact/k").unwrap();
    assert_eq!((row.created, row.changed), (first, third));
    // A range without keys asks for a revision, too.
    let empty = store.range(b"compact/", b"", 9, Some(first), WITHIN);
    assert_eq!(empty, Err(ConsensusError::Compacted(first)));
    // Again, and less far, is done already; the future is not there to be forgotten.
    store.compact(second, WITHIN).unwrap();
    store.compact(first, WITHIN).unwrap();
    let ahead = store.compact(third + 1_000, WITHIN);
    assert!(matches!(ahead, Err(ConsensusError::Refused { .. })), "{ahead:?}");
}

fn any_bytes(store: &dyn Consensus) {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let prefix = b"bytes/".to_vec();
    let names: Vec<Vec<u8>> = all.iter().map(|byte| [&prefix[..], &[*byte]].concat()).collect();
    let mut steps: Vec<Step> = names.iter().map(|name| Step::Put(name.clone(), all.clone())).collect();
    steps.push(Step::Put(b"bytes".to_vec(), vec![]));
    for steps in steps.chunks(100) {
        does(store, steps.to_vec());
    }
    let end = end_of(&prefix).unwrap();
    let page = store.range(&prefix, &end, 300, None, WITHIN).unwrap();
    assert_eq!(page.rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), names);
    assert!(page.rows.iter().all(|row| row.value == all));
    assert_eq!(read(store, "bytes").unwrap().value, b"");
    let guard = vec![Guard::Value(names[255].clone(), all)];
    assert!(holds(store, guard));
}

fn sizes(store: &dyn Consensus) {
    let large = vec![b'x'; 512 << 10];
    let name = |i: u32| format!("size/{i:02}").into_bytes();
    for i in 0..9 {
        let two = [name(2 * i), name(2 * i + 1)].map(|name| Step::Put(name, large.clone()));
        does(store, two.to_vec());
    }
    let page = store.range(b"size/", b"size0", 16, None, WITHIN).unwrap();
    assert!(page.more && page.rows.len() == 16 && page.rows.iter().all(|row| row.value == large));
    let gets: Vec<Step> = (0..16).map(|i| Step::Get(name(i))).collect();
    assert!(does(store, gets).found.iter().all(|row| row.as_ref().unwrap().value == large));
    does(store, vec![delete("size/", "size0")]);
    let many = |i: u32| format!("many/{i:03}");
    let when = (0..128).map(|i| changed(&many(i), 0)).collect();
    let then = (0..128).map(|i| put(&many(i), "v")).collect();
    let otherwise = (0..128).map(|i| get(&many(i))).collect();
    assert!(run(store, when, then, otherwise).held);
}

fn one_wins(store: &dyn Consensus) {
    const THREADS: u64 = 4;
    const TURNS: u64 = 25;
    let count = |row: &Option<Row>| value(row).map_or(0, |text| text.parse::<u64>().unwrap());
    let turn = || {
        let mut seen = read(store, "wins/k");
        loop {
            let guard = changed("wins/k", seen.as_ref().map_or(0, |row| row.changed));
            let next = (count(&seen) + 1).to_string();
            let mut done = run(store, vec![guard], vec![put("wins/k", &next)], vec![get("wins/k")]);
            if done.held {
                return;
            }
            seen = done.found.remove(0);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..TURNS).for_each(|_| turn()));
        }
    });
    assert_eq!(count(&read(store, "wins/k")), THREADS * TURNS);
}
