//! Consumption across a kill of the node: reported exactly once, under its own incarnation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_client::{
    Client, ConnectError, Group, JournalError, Permit, Ru, RuParts, RuTotal, Total, Usage,
};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::fake::{Fake, State, eventually, listen, piped};

const SECOND: Duration = Duration::from_secs(1);

/// The totals reported under all incarnations.
fn counted(totals: &BTreeMap<(u64, String), v1::Consumption>) -> Total {
    let of_one = |total: &v1::Consumption| Total::from_words(total.to_words().unwrap());
    totals.values().map(of_one).fold(Total::default(), |sum, total| sum.plus(&total))
}

#[tokio::test(start_paused = true)]
async fn consumption_survives_a_kill_exactly_once() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    let start = || piped(&fake).journal_dir(dir.path()).connect();

    let client = start().await.unwrap();
    let group = client.group("g").await.unwrap();
    drop(group.acquire(Ru::whole(3), SECOND).await.unwrap());
    fake.until("the first is reported", |state| state.total("g") == Ru::whole(3)).await;
    // From here on nothing arrives.
    fake.state().mute = true;
    fake.go_down();
    eventually("the loss is noticed", || !client.stats().link.connected).await;
    for _ in 0..4 {
        drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
    }
    assert_eq!(fake.total("g"), Ru::whole(3));
    let first = client.stats().incarnation;
    // A kill with a permit in flight: the page cache keeps what the file holds at this moment.
    let in_flight = group.acquire(Ru::whole(1), SECOND).await.unwrap();
    let file = "node-1.journal";
    let after = tempfile::tempdir().unwrap();
    std::fs::copy(dir.path().join(file), after.path().join(file)).unwrap();
    drop(in_flight);
    drop((client, group));
    let start = || piped(&fake).journal_dir(after.path()).connect();

    fake.state().mute = false;
    fake.come_back();
    let client = start().await.unwrap();
    let second = client.stats().incarnation;
    assert!(second > first, "incarnations grow");
    fake.until("the old total arrives", |state| state.total("g") == Ru::whole(7)).await;
    assert!(fake.state().totals.contains_key(&(first, "g".into())));
    let group = client.group("g").await.unwrap();
    drop(group.acquire(Ru::whole(10), SECOND).await.unwrap());
    fake.until("both are there", |state| state.total("g") == Ru::whole(17)).await;
    assert_eq!(client.shutdown().await.unconfirmed, []);
    drop((client, group));
    tokio::task::yield_now().await;

    // Everything is confirmed, so a third start has nothing to report.
    let renews = fake.state().renews.len();
    let client = start().await.unwrap();
    client.group("g").await.unwrap();
    fake.until("it renews", |state| state.renews.len() >= renews + 5).await;
    assert!(fake.state().renews[renews..].iter().all(|(_, renew)| renew.reports.is_empty()));
    assert_eq!(fake.total("g"), Ru::whole(17));
}

/// A node with a journal, which has reported 3 RU of the group `g`.
async fn reported(fake: &Fake, journal: &Path) -> (Client, Group) {
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    let client = piped(fake).journal_dir(journal).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    drop(group.acquire(Ru::whole(3), SECOND).await.unwrap());
    fake.until("it is reported", |state| state.total("g") == Ru::whole(3)).await;
    (client, group)
}

#[tokio::test(start_paused = true)]
async fn what_was_charged_without_a_permit_survives_a_kill_too() {
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fake = Fake::new();
    let (client, group) = reported(&fake, before.path()).await;
    fake.state().mute = true;
    fake.go_down();
    eventually("the loss is noticed", || !client.stats().link.connected).await;
    group.charge_ru(RuParts::flat(Ru::whole(5)));
    let file = "node-1.journal";
    std::fs::copy(before.path().join(file), after.path().join(file)).unwrap();
    drop((client, group));

    fake.state().mute = false;
    fake.come_back();
    let heir = piped(&fake).journal_dir(after.path()).connect().await.unwrap();
    assert_eq!(heir.shutdown().await.unconfirmed, []);
    assert_eq!(fake.total("g"), Ru::whole(8));
}

/// A group that refuses charges nothing, and what it reports of that must not shrink either.
#[tokio::test(start_paused = true)]
async fn the_journal_has_whatever_a_report_says_also_of_refusals() {
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fake = Fake::new();
    let (client, group) = reported(&fake, before.path()).await;
    for _ in 0..7 {
        group.try_acquire(Ru::whole(1_000_000)).unwrap_err();
    }
    let key = (client.stats().incarnation, "g".to_owned());
    fake.until("refusals are reported", |state| state.totals[&key].throttled == 7).await;
    let file = "node-1.journal";
    std::fs::copy(before.path().join(file), after.path().join(file)).unwrap();
    drop((client, group));

    let reported = fake.state().totals.remove(&key).unwrap();
    let _heir = piped(&fake).journal_dir(after.path()).connect().await.unwrap();
    fake.until("the heir reports", |state| state.totals.contains_key(&key)).await;
    assert_eq!(fake.state().totals[&key], reported);
}

/// Every call that charges, in any order: a kill after any of them loses nothing, and nothing is there before it.
#[tokio::test(start_paused = true)]
async fn after_every_call_the_journal_has_what_was_charged_and_no_more() {
    const FILE: &str = "node-1.journal";
    for seed in 0..8 {
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let fake = Fake::new();
        fake.group("g", GroupSpec::capped(Rate::whole(100_000)));
        let client = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
        let group = client.group("g").await.unwrap();
        drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
        fake.until("it is reported", |state| state.total("g") == Ru::whole(1)).await;
        // No report arrives from here on, and no answer.
        fake.state().mute = true;
        fake.go_down();
        eventually("the loss is noticed", || !client.stats().link.connected).await;
        group.charge_ru(RuParts::flat(Ru::whole(1)));
        let mut charged = Ru::whole(2);
        let mut permits: Vec<Permit<'static>> = Vec::new();
        for step in 0..20 {
            let some = random.random_range(0..9_u64);
            let usage = Usage { write_bytes: some * 1_000, ..Usage::default() };
            let parts = RuParts::flat(Ru::whole(i64::try_from(some).unwrap()));
            let kind = random.random_range(0..9);
            let place = random.random_range(0..permits.len().max(1));
            match kind {
                0..3 => permits.extend(group.try_acquire(parts.total()).ok().map(Permit::into_owned)),
                3 => charged += group.charge_ru(parts).total(),
                4 => charged += group.charge(&usage).total(),
                _ if permits.is_empty() => permits.push(group.owe().into_owned()),
                5 => charged += permits[place].charge(&usage).total(),
                6 => charged += permits.swap_remove(place).settle(&usage).total(),
                7 => permits.swap_remove(place).cancel(),
                _ => {
                    let permit = permits.swap_remove(place);
                    charged += permit.estimate();
                    drop(permit);
                }
            }
            let after = tempfile::tempdir().unwrap();
            std::fs::copy(dir.path().join(FILE), after.path().join(FILE)).unwrap();
            let other = Fake::new();
            let heir = piped(&other).journal_dir(after.path()).connect().await.unwrap();
            assert_eq!(heir.shutdown().await.unconfirmed, []);
            let told = counted(&other.state().totals);
            let what = format!("step {step} of seed {seed}, a call of kind {kind}");
            assert_eq!(told.ru().clamped(), charged, "{what}");
            assert_eq!(told.charged, group.consumption().charged, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_inheritance_is_kept_over_several_starts() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    fake.state().forgetful = true;
    for start in 1..=3_i64 {
        let client = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
        let group = client.group("g").await.unwrap();
        drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
        fake.until("reported", |state| state.total("g") == Ru::whole(start)).await;
        drop((client, group));
        tokio::task::yield_now().await;
    }
    assert_eq!(fake.state().totals.len(), 3);
    let client = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
    fake.state().forgetful = false;
    assert_eq!(client.shutdown().await.unconfirmed, []);
    assert_eq!(fake.total("g"), Ru::whole(3));
}

#[tokio::test(start_paused = true)]
async fn what_the_controller_refused_is_kept_and_reported_by_the_heir_whichever_message_said_so() {
    for refused_from in ["a renewal", "the goodbye"] {
        let dir = tempfile::tempdir().unwrap();
        let fake = Fake::new();
        ["a", "b"].into_iter().for_each(|name| fake.group(name, GroupSpec::capped(Rate::whole(1_000))));
        // What is not in a goodbye is not on disk yet.
        fake.state().forgetful = true;
        fake.state().refuses = (refused_from == "a renewal").then_some("a");
        let start = || piped(&fake).journal_dir(dir.path()).connect();
        let client = start().await.unwrap();
        for name in ["a", "b"] {
            let group = client.group(name).await.unwrap();
            drop(group.acquire(Ru::whole(5), SECOND).await.unwrap());
        }
        fake.until("both are reported", |state| {
            let reports = state.renews.iter().flat_map(|(_, renew)| &renew.reports);
            reports.map(|report| &*report.group).collect::<BTreeSet<_>>().len() == 2
        })
        .await;
        fake.state().totals.remove(&(client.stats().incarnation, "a".into()));
        fake.state().refuses = Some("a");
        let left = client.shutdown().await.unconfirmed;
        let left: Vec<_> = left.iter().map(|left| (&*left.group, left.ru.clamped())).collect();
        assert_eq!(left, [("a", Ru::whole(5))], "refused from {refused_from} on");
        assert_eq!((fake.total("a"), fake.total("b")), (Ru::ZERO, Ru::whole(5)));
        drop(client);
        tokio::task::yield_now().await;

        fake.state().refuses = None;
        assert_eq!(start().await.unwrap().shutdown().await.unconfirmed, []);
        assert_eq!(fake.total("a"), Ru::whole(5), "refused from {refused_from} on");
    }
}

/// What earlier starts left goes out again with each message until it is confirmed, and takes nobody's room by that.
#[tokio::test(start_paused = true)]
async fn what_this_start_used_goes_ahead_of_a_goodbye_beside_what_earlier_starts_left() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    fake.state().max_entries = 2;
    // Nothing is confirmed before the goodbye.
    fake.state().forgetful = true;
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| fake.group(name, GroupSpec::capped(Rate::whole(1_000))));
    let reported = |state: &State, ru| names.iter().all(|name| state.total(name) == Ru::whole(ru));
    for (start, reported_then) in [(1, 5), (2, 10)] {
        let client = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
        let mut groups = Vec::new();
        for name in names {
            let group = client.group(name).await.unwrap();
            group.charge_ru(RuParts::flat(Ru::whole(5)));
            groups.push(group);
        }
        fake.until("each is reported", |state| reported(state, reported_then)).await;
        if start == 2 {
            groups.iter().for_each(|group| _ = group.charge_ru(RuParts::flat(Ru::whole(2))));
            assert_eq!(client.shutdown().await.unconfirmed, []);
            assert!(reported(&fake.state(), 12));
        }
        drop((client, groups));
        tokio::task::yield_now().await;
    }
    let renews = fake.state().renews.len();
    let client = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
    client.group("a").await.unwrap();
    let reports = |state: &State| state.renews[renews..].iter().any(|(_, renew)| !renew.reports.is_empty());
    assert!(!reports(&fake.state()), "all of it was confirmed");
}

#[tokio::test(start_paused = true)]
async fn what_was_confirmed_is_reported_by_no_heir_also_when_the_goodbye_is_not_answered() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let (client, group) = reported(&fake, dir.path()).await;
    let is_confirmed = |state: &State| state.renews.last().is_some_and(|(_, renew)| renew.reports.is_empty());
    fake.until("it is confirmed", is_confirmed).await;
    fake.state().rude = true;
    assert_eq!(client.shutdown().await.unconfirmed, []);
    drop((client, group));
    tokio::task::yield_now().await;
    let renews = fake.state().renews.len();
    let heir = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
    heir.group("g").await.unwrap();
    fake.until("it renews", |state| state.renews.len() >= renews + 3).await;
    assert!(fake.state().renews[renews..].iter().all(|(_, renew)| renew.reports.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn what_ends_behind_the_shutdown_is_reported_by_the_heir() {
    let journal = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let (client, group) = reported(&fake, journal.path()).await;
    let outlasts = group.acquire(Ru::whole(4), SECOND).await.unwrap();
    // It waits in vain for the operation; all that was charged is confirmed.
    assert_eq!(client.shutdown().await.unconfirmed, []);
    drop(outlasts);
    drop((client, group));
    tokio::task::yield_now().await;
    let heir = piped(&fake).journal_dir(journal.path()).connect().await.unwrap();
    assert_eq!(heir.shutdown().await.unconfirmed, []);
    assert_eq!(fake.total("g"), Ru::whole(7));
}

#[tokio::test]
async fn a_journal_that_cannot_be_used_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    std::fs::write(dir.path().join("node-1.journal"), "not a journal").unwrap();
    let start = || piped(&fake).journal_dir(dir.path()).start();
    let error = start().unwrap_err();
    assert!(matches!(error, ConnectError::Journal(JournalError::NotAJournal { .. })), "{error}");
    std::fs::remove_file(dir.path().join("node-1.journal")).unwrap();
    let _first = start().unwrap();
    let error = start().unwrap_err();
    assert!(matches!(error, ConnectError::Journal(JournalError::InUse { .. })), "{error}");
}

/// The settings of the process to be killed: endpoint and journal directory.
const CHILD: &str = "TIDEGATE_TEST_CHILD";

/// Runs as a process of its own; see the next test.
#[tokio::test]
async fn the_process_that_is_killed() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (endpoint, dir) = told.split_once(' ').unwrap();
    let client = Client::builder([endpoint], "node-1").journal_dir(dir).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    loop {
        drop(group.acquire(Ru::whole(1), 60 * SECOND).await.unwrap());
        println!("settled 1 RU");
    }
}

#[tokio::test]
async fn a_process_killed_in_full_flight_loses_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(10_000)));
    let endpoint = listen(&fake).await;
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["journal::the_process_that_is_killed", "--exact", "--nocapture"])
        .env(CHILD, format!("{endpoint} {}", dir.path().display()))
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut settled = 0;
    while let Some(line) = lines.next_line().await.unwrap() {
        settled += i64::from(line.ends_with("settled 1 RU"));
        if settled == 500 {
            // SIGKILL; what was printed before is still read.
            child.start_kill().unwrap();
        }
    }
    assert!(settled >= 500, "the child ended early, after {settled}");
    child.wait().await.unwrap();
    let heir = Client::builder([endpoint], "node-1").journal_dir(dir.path()).connect().await.unwrap();
    assert_eq!(heir.shutdown().await.unconfirmed, []);
    // It may have died between a settlement and its line.
    let total = fake.total("g");
    assert!(
        (Ru::whole(settled)..=Ru::whole(settled + 1)).contains(&total),
        "{settled} settled, {total} reported"
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_charges_past_every_edge_of_64_bits_and_its_heir_tells_all_of_it() {
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fake = Fake::new();
    fake.group("g", GroupSpec::unlimited());
    let client = piped(&fake).journal_dir(before.path()).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    // 10^12 RU is the largest charge; the tenth is past 2^63 micro-RU, the nineteenth past 2^64.
    for charges in 1..=20_u128 {
        group.charge_ru(RuParts { cpu: Ru(1), ..RuParts::flat(Ru::MAX) });
        let total = group.consumption();
        assert_eq!(total.charged.flat, RuTotal(charges * 1_000_000_000_000_000_000));
        assert_eq!((total.charged.cpu, total.operations), (RuTotal(charges), charges));
        if charges % 3 == 0 {
            fake.until("it is reported", |state| counted(&state.totals) == total).await;
        }
    }
    fake.state().mute = true;
    fake.go_down();
    eventually("the loss is noticed", || !client.stats().link.connected).await;
    group.charge_ru(RuParts::flat(Ru(7)));
    let total = group.consumption();
    let file = "node-1.journal";
    std::fs::copy(before.path().join(file), after.path().join(file)).unwrap();
    drop((client, group));

    fake.state().mute = false;
    fake.come_back();
    let heir = piped(&fake).journal_dir(after.path()).connect().await.unwrap();
    assert_eq!(heir.shutdown().await.unconfirmed, []);
    assert_eq!(counted(&fake.state().totals), total);
}
