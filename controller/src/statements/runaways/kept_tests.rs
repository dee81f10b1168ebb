//! What is kept of records, in memory and in the store.

use super::*;

const MOST: u64 = MAX_RUNAWAYS as u64;

fn conviction(fingerprint: u64) -> Conviction {
    let text = v1::ConvictRequest {
        gateway: "gw-1".into(),
        group: "web".into(),
        r#match: "identify".into(),
        action: "kill".into(),
        fingerprint: format!("{fingerprint:016x}"),
        ..v1::ConvictRequest::default()
    };
    Conviction::parse(&text).unwrap()
}

#[test]
fn statements_without_templates_are_apart_by_their_texts() {
    let bare = |text: &str| Conviction {
        fingerprint: Box::default(),
        text_sha256: text.repeat(32).into(),
        ..conviction(1)
    };
    let mut runaways = Runaways::default();
    runaways.convict(1, bare("ab"));
    runaways.convict(2, bare("cd"));
    let repeats: Vec<u64> = runaways.newest(None, 10).iter().map(|record| record.repeats).collect();
    assert_eq!(repeats, [1, 1]);
}

/// A record that made room would be back after a restart if the store kept it.
#[test]
fn a_record_that_made_room_is_removed_from_the_store_and_nothing_is_left_of_it() {
    let mut runaways = Runaways::default();
    (0..MOST).for_each(|number| runaways.convict(number, conviction(number)));
    assert_eq!(runaways.take_dirty().len(), MAX_RUNAWAYS);
    runaways.convict(MOST, conviction(MOST));
    let written: Vec<(u64, bool)> =
        runaways.take_dirty().into_iter().map(|(id, record)| (id, record.is_some())).collect();
    assert_eq!(written, [(0, false), (MOST, true)]);
    assert_eq!((runaways.len(), runaways.newest.len()), (MAX_RUNAWAYS, MAX_RUNAWAYS));
}

#[test]
fn a_newer_record_of_a_statement_counts_on_when_its_older_one_makes_room() {
    let mut runaways = Runaways::default();
    runaways.convict(0, conviction(0));
    let later = CONVICTION_WINDOW_MS;
    runaways.convict(later, conviction(0));
    (1..MOST).for_each(|number| runaways.convict(later, conviction(number)));
    assert_eq!((runaways.len(), runaways.evicted()), (MAX_RUNAWAYS, 1));
    runaways.convict(later + 1, conviction(0));
    assert_eq!(runaways.newest(None, MAX_RUNAWAYS).last().unwrap().repeats, 2);
    assert_eq!(runaways.evicted(), 1, "it took no other place");
}

#[test]
fn of_a_store_with_too_many_records_the_oldest_go() {
    let mut runaways = Runaways::default();
    for id in 0..MOST + 2 {
        let record = Runaway { conviction: conviction(id), first_unix_ms: 1, last_unix_ms: 1, repeats: 1 };
        runaways.load(id, record);
    }
    assert_eq!(runaways.len(), MAX_RUNAWAYS);
    assert_eq!(runaways.take_dirty(), [(0, None), (1, None)].into());
}

#[test]
fn a_text_of_the_longest_length_is_taken() {
    let long = "ä".repeat(MAX_CONVICTION_TEXT);
    let text = v1::ConvictRequest { user: long.clone(), ..conviction(1).text() };
    assert_eq!(*Conviction::parse(&text).unwrap().user, *long);
}
