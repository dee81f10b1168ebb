//! Streams, one after the other: what is shown of them, how soon the next one comes, and what goes first on it.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_client::transport::{Inbound, Opening, Transport};
use tidegate_client::{Client, Link, Ru, RuParts};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1;
use tidegate_proto::v1::server_message::Kind as Reply;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::fake::{Fake, Through, client_and_group, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);

fn usual() -> GroupSpec {
    GroupSpec::capped(Rate::whole(1_000))
}

#[tokio::test(start_paused = true)]
async fn the_link_shows_the_stream_that_is_open_or_why_there_is_none() {
    let fake = Fake::new();
    fake.state().epoch = 3;
    // It has no group, so that only the welcome says which epoch it is.
    let client = piped(&fake).connect().await.unwrap();
    let open = Link {
        connected: true,
        endpoint: "pipe".into(),
        server: "fake/1".into(),
        epoch: 3,
        protocol: 1,
        last_error: String::new(),
    };
    assert_eq!(client.link(), open);
    fake.go_down();
    eventually("the loss is noticed", || !client.is_connected()).await;
    let lost = client.link();
    assert!(lost.last_error.starts_with("pipe: "), "{lost:?}");
    assert_eq!(lost, Link { connected: false, last_error: lost.last_error.clone(), ..open.clone() });
    fake.come_back();
    eventually("it is back", || client.is_connected()).await;
    assert_eq!(client.link(), open);
    assert_eq!(fake.state().hellos.iter().map(|hello| hello.seen_epoch).collect::<Vec<_>>(), [0, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_chooses_an_unknown_protocol_is_not_followed() {
    let (fake, group) = (Fake::new(), usual());
    fake.group("g", group);
    let through = Through::new(&fake);
    through.change(|message| {
        if let Some(Reply::Welcome(welcome)) = &mut message.kind {
            welcome.protocol = 99;
        }
    });
    let client = through.client().start().unwrap();
    eventually("it is refused twice", || client.counts().session_failures >= 2).await;
    let (link, counts) = (client.link(), client.counts());
    assert!(!link.connected && link.last_error.contains("protocol 99"), "{link:?}");
    assert_eq!(counts.sessions, 0);
    through.change(|_| ());
    eventually("it is open", || client.is_connected()).await;
}

#[tokio::test(start_paused = true)]
async fn each_welcome_of_an_older_epoch_counts_as_one() {
    let fake = Fake::new();
    fake.state().epoch = 7;
    let (client, _group) = client_and_group(&fake, usual()).await;
    fake.go_down();
    eventually("the loss is noticed", || !client.is_connected()).await;
    fake.state().epoch = 6;
    fake.come_back();
    let before = client.counts();
    eventually("it was left thrice", || client.counts().session_failures >= before.session_failures + 3)
        .await;
    let after = client.counts();
    let failures = after.session_failures - before.session_failures;
    assert_eq!(after.old_epochs - before.old_epochs, failures, "{after:?}");
    assert_eq!(after.sessions, before.sessions);
}

#[tokio::test(start_paused = true)]
async fn a_newer_epoch_on_the_stream_makes_the_former_one_old() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    let lower = |epoch| Reply::Lower(v1::Lower { epoch, entries: Vec::new() });
    fake.push(lower(5));
    eventually("it is seen", || client.link().epoch == 5).await;
    assert_eq!(client.counts().old_epochs, 0);
    fake.push(lower(4));
    eventually("it is old", || client.counts().old_epochs == 1).await;
    fake.go_down();
    fake.state().epoch = 5;
    fake.come_back();
    fake.until("it says hello again", |state| state.hellos.len() == 2).await;
    assert_eq!(fake.state().hellos[1].seen_epoch, 5);
}

/// After a long time alone, the first loss of a stream that lasted is no failure like those before.
#[tokio::test(start_paused = true)]
async fn who_lost_a_stream_that_lasted_is_back_at_once() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    fake.go_down();
    sleep(60 * SECOND).await;
    fake.come_back();
    for turn in 0..4 {
        sleep(10 * SECOND).await;
        assert!(client.is_connected());
        let hellos = fake.state().hellos.len();
        let watches = fake.state().watches.len();
        let lost = Instant::now();
        fake.go_down();
        fake.come_back();
        fake.until("both streams are opened again", |state| state.hellos.len() > hellos).await;
        eventually("both streams are opened again", || fake.state().watches.len() > watches).await;
        // The first pause is 50 ms at most.
        assert!(lost.elapsed() <= Duration::from_millis(60), "turn {turn}: {:?}", lost.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_on_a_stream_that_broke_is_asked_at_once_on_the_next() {
    let fake = Fake::new();
    let (client, _group) = client_and_group(&fake, usual()).await;
    fake.state().mute = true;
    let before = fake.state().renews.len();
    fake.until("it asks", |state| state.renews.len() > before).await;
    fake.go_down();
    eventually("the loss is noticed", || !client.is_connected()).await;
    let (renews, lost) = (fake.state().renews.len(), Instant::now());
    fake.state().mute = false;
    fake.come_back();
    fake.until("it asks again", |state| state.renews.len() > renews).await;
    assert_eq!(fake.state().renews[renews].1.entries.len(), 1);
    assert!(lost.elapsed() <= Duration::from_millis(300), "{:?}", lost.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_process_left_is_the_first_thing_on_a_stream() {
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fake = Fake::new();
    fake.group("g", usual());
    let client = piped(&fake).journal_dir(before.path()).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    fake.go_down();
    eventually("the loss is noticed", || !client.is_connected()).await;
    group.charge_ru(RuParts::flat(Ru::whole(5)));
    let file = "node-1.journal";
    std::fs::copy(before.path().join(file), after.path().join(file)).unwrap();
    drop((client, group));
    fake.come_back();
    let begun = Instant::now();
    let _heir = piped(&fake).journal_dir(after.path()).connect().await.unwrap();
    fake.until("it is told", |state| state.total("g") == Ru::whole(5)).await;
    assert!(begun.elapsed() <= Duration::from_millis(20), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_nothing_is_counted_for_each_group_and_once_where_it_names_none() {
    let fake = Fake::new();
    let (client, _group) = client_and_group(&fake, usual()).await;
    let mut stale = client.counts().stale_grants;
    for (groups, counted) in [(0, 1), (1, 1), (3, 3)] {
        let entries = vec![v1::GrantEntry { group: "g".into(), ..v1::GrantEntry::default() }; groups];
        fake.push(Reply::Granted(v1::Granted { seq: 9_999, epoch: 1, entries, ..v1::Granted::default() }));
        eventually("it is counted", || client.counts().stale_grants > stale).await;
        stale += counted;
        assert_eq!(client.counts().stale_grants, stale, "{groups} groups");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_follows_a_goodbye_and_what_fits_it_goes_with_it() {
    let fake = Fake::new();
    fake.state().max_entries = 2;
    let client = piped(&fake).patience(10 * SECOND).connect().await.unwrap();
    let mut groups = Vec::new();
    for name in ["a", "b"] {
        fake.group(name, usual());
        groups.push(client.group(name).await.unwrap());
    }
    (fake.state().rude, fake.state().forgetful) = (true, true);
    groups.iter().for_each(|group| _ = group.charge_ru(RuParts::flat(Ru::whole(3))));
    let renews = fake.state().renews.len();
    let end = client.shutdown().await;
    assert_eq!(end.unconfirmed.len(), 2);
    let state = fake.state();
    let [goodbye] = &state.goodbyes[..] else { panic!("{:?}", state.goodbyes) };
    assert_eq!(goodbye.reports.len(), 2);
    assert_eq!(state.renews.len(), renews, "{:?} beside {goodbye:?}", state.renews.last());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_as_soon_as_the_last_permit_is_settled() {
    let fake = Fake::new();
    fake.group("g", usual());
    let client = piped(&fake).patience(60 * SECOND).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    let [first, last] = [(); 2].map(|()| group.try_acquire(Ru::whole(1)).unwrap().into_owned());
    let begun = fake.state().now();
    let settled = tokio::spawn(async move {
        sleep(SECOND).await;
        drop(first);
        sleep(SECOND).await;
        drop(last);
    });
    let end = client.shutdown().await;
    assert_eq!((end.unconfirmed.len(), end.open_permits), (0, 0));
    let took = fake.state().now().since(begun);
    assert!((Span::secs(2)..Span::millis(2_100)).contains(&took), "{took}");
    settled.await.unwrap();
}

/// A controller that takes two seconds to welcome a node, and ends each stream at once.
struct Fleeting(Arc<AtomicUsize>);

impl Transport for Fleeting {
    fn session(&self, _: &str, _: mpsc::Receiver<v1::ClientMessage>) -> Opening<v1::ServerMessage> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            sleep(2 * SECOND).await;
            let welcome = v1::Welcome { protocol: 1, epoch: 1, ..v1::Welcome::default() };
            let message = v1::ServerMessage { kind: Some(Reply::Welcome(welcome)) };
            Ok(Box::pin(tokio_stream::once(Ok(message))) as Inbound<v1::ServerMessage>)
        })
    }

    fn watch(&self, _: &str, _: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        Box::pin(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_at_once_is_a_failure_however_long_it_took_to_open() {
    let opened = Arc::new(AtomicUsize::new(0));
    let client = Client::builder(["fleeting"], "node-1").transport(Fleeting(Arc::clone(&opened))).start();
    sleep(300 * SECOND).await;
    // Pauses are half of five seconds on the average, after the first ones.
    let opened = opened.load(Ordering::SeqCst);
    assert!((40..110).contains(&opened), "{opened}");
    assert!(client.unwrap().counts().sessions > 30);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_an_older_epoch_confirms_no_report() {
    let fake = Fake::new();
    fake.state().epoch = 7;
    let (client, group) = client_and_group(&fake, usual()).await;
    fake.state().tamper = Some(Box::new(|granted: &mut v1::Granted| granted.epoch = 6));
    group.charge_ru(RuParts::flat(Ru::whole(5)));
    fake.until("it is reported", |state| state.total("g") == Ru::whole(5)).await;
    eventually("it is answered", || client.counts().old_epochs > 0).await;
    fake.state().rude = true;
    let left = client.shutdown().await.unconfirmed;
    assert_eq!(left.iter().map(|left| left.ru.clamped()).collect::<Vec<_>>(), [Ru::whole(5)]);
}

/// A node that was idle has not shown its totals for long, and owes none for the time between.
#[tokio::test(start_paused = true)]
async fn node_totals_are_sent_once_after_a_long_pause() {
    let fake = Fake::new();
    fake.group("g", usual());
    let client = piped(&fake).idle_after(SECOND).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    eventually("it sleeps", || client.stats().awake == 0).await;
    sleep(60 * SECOND).await;
    let before = fake.state().renews.len();
    for _ in 0..30 {
        drop(group.acquire(Ru::whole(30), SECOND).await.unwrap());
        sleep(SECOND / 10).await;
    }
    let state = fake.state();
    let with_totals = state.renews[before..].iter().filter(|(_, renew)| renew.node.is_some()).count();
    assert!(state.renews.len() > before + 5 && with_totals == 1, "{with_totals}");
}
