//! Renewals and streams by the calls of the service, in driven time: what is counted, refused, shed, lowered and shown.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::leasing::clients::NodeStats;
use tidegate_controller::name::GroupName;
use tidegate_controller::service::{
    Answer, EntryIn, EntryOut, Push, RenewIn, Renewed, ReportIn, Sent, Service, ServiceConfig, Session,
    SessionError, Silence,
};
use tidegate_controller::store::Store;
use tidegate_core::exchange::{Ask, Grant, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::Consumption;
use tidegate_proto::v1;

use crate::support::{MemoryStore, group, started};

const SECOND: u64 = 1_000_000;

struct Room {
    service: Service,
    now: Arc<AtomicU64>,
}

impl Room {
    fn with(config: ServiceConfig, groups: &[v1::Group]) -> Self {
        let (store, now) = (Arc::new(MemoryStore::default()), Arc::<AtomicU64>::default());
        let clock = Clock::driven(Arc::clone(&now));
        let service = Service::load(store as Arc<dyn Store>, config, clock).unwrap();
        let room = Self { service, now };
        groups.iter().for_each(|group| room.makes(group));
        room
    }

    fn new(groups: &[v1::Group]) -> Self {
        Self::with(ServiceConfig::default(), groups)
    }

    fn makes(&self, group: &v1::Group) {
        self.service.definitions().create_group(&Actor::new(None, "test"), group, false).unwrap();
    }

    fn pass(&self, us: u64) {
        self.now.fetch_add(us, Ordering::SeqCst);
    }

    fn hello(&self, node: &str, start: u64) -> Session {
        self.service.leasing().hello(node, start, "test").unwrap()
    }

    fn sends(&self, session: &Session, request: RenewIn) -> Result<Renewed, SessionError> {
        self.service.leasing().renew(session.client, session.session, request)
    }

    fn renews(&self, session: &Session, seq: u64, entries: Vec<EntryIn>) -> Renewed {
        self.sends(session, RenewIn { seq, entries, ..RenewIn::default() }).unwrap()
    }

    /// The lease that a node gets.
    fn leased(&self, session: &Session, seq: u64, entry: EntryIn) -> LeaseTerms {
        lease(&self.renews(session, seq, vec![entry]).entries[0])
    }

    fn leases(&self, group: &str) -> usize {
        self.service.leasing().leases(group).unwrap().leases.len()
    }

    fn has_metric(&self, line: &str) {
        let page = self.service.metrics_page().unwrap();
        assert!(page.lines().any(|of| of == line), "{line}: {page}");
    }
}

fn lease(entry: &EntryOut) -> LeaseTerms {
    match &entry.answer {
        Answer::Grant(Grant::Leased(terms), _) => *terms,
        other => panic!("a lease was expected: {other:?}"),
    }
}

fn is_unknown(entry: &EntryOut) -> bool {
    matches!(entry.answer, Answer::Grant(Grant::UnknownGroup, _))
}

fn wants(group: &str, ru_per_sec: i64) -> EntryIn {
    let (demand, largest) = (Rate::whole(ru_per_sec), Ru::whole(1));
    EntryIn { group: group.into(), ask: Ok((Ask { demand, largest, ..Ask::default() }, Vec::new())) }
}

/// With operations that wait, so that others lower at once.
fn waits(group: &str, ru_per_sec: i64) -> EntryIn {
    let (demand, largest) = (Rate::whole(ru_per_sec), Ru::whole(1));
    let backlog = Ru::whole(50);
    EntryIn {
        group: group.into(),
        ask: Ok((Ask { demand, largest, backlog, waiting: 50, ..Ask::default() }, Vec::new())),
    }
}

#[test]
fn leases_end_at_their_time_and_not_before_and_each_moment_is_counted() {
    let room = Room::new(&[group("web", "1000"), group("api", "1000")]);
    let session = room.hello("node", 1);
    let ttl = room.leased(&session, 1, wants("web", 10)).ttl.0;
    room.pass(SECOND);
    room.leased(&session, 2, wants("api", 10));
    assert_eq!(room.service.leasing().expire(), Time(SECOND + SECOND / 2), "it looks again soon");
    let ends = room.service.leasing().leases("web").unwrap().leases[0].expires_in.0;
    assert!(ends >= ttl - SECOND, "{ends}");
    room.pass(ends - 1);
    assert_eq!(room.service.leasing().expire(), Time(SECOND + ends));
    assert_eq!((room.leases(""), room.service.metrics.expired.get()), (2, 0));
    room.pass(1);
    room.service.leasing().expire();
    assert_eq!((room.leases("web"), room.leases("api"), room.service.metrics.expired.get()), (0, 1, 1));
    let table = room.service.leasing().leases("").unwrap();
    assert_eq!(table.groups.len(), 1, "a group without leases or waits is not listed");
    // Several moments at once.
    room.leased(&session, 3, wants("web", 10));
    room.pass(60 * SECOND);
    room.service.leasing().expire();
    assert_eq!((room.leases(""), room.service.metrics.expired.get()), (0, 3));
    assert!(room.service.leasing().leases("").unwrap().groups.is_empty());
    // A renewal does the same, though nobody looked.
    room.leased(&session, 4, wants("web", 1_000));
    room.pass(60 * SECOND);
    let rate = room.leased(&room.hello("other", 1), 1, wants("web", 1_000)).rate;
    assert!(rate > Rate::whole(900), "{rate:?}");
    assert_eq!((room.leases("web"), room.service.metrics.expired.get()), (1, 4));
}

#[test]
fn only_the_newest_stream_of_a_node_is_served() {
    let room = Room::new(&[group("web", "1000")]);
    let (first, second) = (room.hello("node", 1), room.hello("node", 1));
    assert_eq!(first.client, second.client);
    let refused = room.sends(&first, RenewIn { seq: 1, ..RenewIn::default() });
    assert_eq!(refused.unwrap_err(), SessionError::Replaced);
    assert_eq!(room.service.leasing().goodbye(first.client, first.session, 1, &[]), None);
    // What the end of the first does is not done to the second.
    room.service.leasing().confine(first.client, first.session, Arc::new(BTreeSet::new()));
    room.service.leasing().disconnect(first.client, first.session);
    assert!(room.leased(&second, 1, wants("web", 10)).rate.0 > 0);
    room.has_metric("tidegate_clients 1");
    room.service.leasing().disconnect(second.client, second.session);
    room.has_metric("tidegate_clients 0");
    let refused = room.sends(&second, RenewIn { seq: 2, ..RenewIn::default() });
    assert_eq!(refused.unwrap_err(), SessionError::Replaced, "it has ended");
}

#[test]
fn a_goodbye_ends_leases_at_once() {
    let room = Room::new(&[group("web", "1000")]);
    let session = room.hello("node", 1);
    room.leased(&session, 1, wants("web", 1_000));
    assert_eq!(room.leases("web"), 1);
    assert_eq!(room.service.leasing().goodbye(session.client, session.session, 2, &[]), Some(Vec::new()));
    assert_eq!(room.leases("web"), 0);
    assert!(room.leased(&room.hello("other", 1), 1, wants("web", 1_000)).rate > Rate::whole(900));
}

#[test]
fn an_order_to_lower_goes_to_the_nodes_stream_and_is_counted_if_there_is_none() {
    for is_there in [true, false] {
        let room = Room::new(&[group("web", "1000")]);
        let mut greedy = room.hello("greedy", 1);
        let held = room.leased(&greedy, 1, wants("web", 2_000)).rate;
        if !is_there {
            room.service.leasing().disconnect(greedy.client, greedy.session);
        }
        room.leased(&room.hello("other", 1), 1, waits("web", 2_000));
        let counts = (room.service.metrics.lowers.get(), room.service.metrics.lowers_dropped.get());
        assert_eq!(counts, if is_there { (1, 0) } else { (0, 1) });
        let Ok(Push::Lower(lowers)) = greedy.pushes.try_recv() else {
            assert!(!is_there);
            continue;
        };
        assert!(is_there && lowers[0].0 == GroupName::parse("web").unwrap() && lowers[0].1 < held);
    }
}

#[test]
fn who_holds_a_lease_of_a_group_that_goes_is_told_to_lower_it_to_nothing() {
    let room = Room::new(&[group("web", "1000"), group("other", "1000")]);
    let mut holder = room.hello("holder", 1);
    assert!(room.leased(&holder, 1, wants("web", 500)).rate > Rate::ZERO);
    room.service.definitions().delete_group(&Actor::new(None, "test"), "web", "", 0, false).unwrap();
    let Ok(Push::Lower(lowers)) = holder.pushes.try_recv() else { panic!("an order to lower was expected") };
    assert_eq!(lowers, [(GroupName::parse("web").unwrap(), Rate::ZERO)]);
    assert_eq!(room.service.metrics.lowers.get(), 1);
    assert!(holder.pushes.try_recv().is_err());
}

/// A node that reads slowly loses orders, not its stream.
#[test]
fn an_order_to_lower_for_which_a_stream_has_no_room_is_dropped_and_counted() {
    let room = Room::new(&[group("web", "1000")]);
    let mut greedy = room.hello("greedy", 1);
    greedy.pushes.close();
    room.leased(&greedy, 1, wants("web", 2_000));
    room.leased(&room.hello("other", 1), 1, waits("web", 2_000));
    assert_eq!((room.service.metrics.lowers.get(), room.service.metrics.lowers_dropped.get()), (0, 1));
}

#[test]
fn what_a_node_says_of_itself_is_shown_and_every_renewal_is_a_sign_of_life() {
    let room = Room::new(&[group("web", "1000")]);
    let shown = |room: &Room| {
        let (rows, truncated) = room.service.leasing().clients();
        assert!(!truncated);
        rows.into_iter().next().unwrap()
    };
    let session = room.hello("node", 1);
    room.pass(7 * SECOND);
    assert_eq!((shown(&room).silent, shown(&room).messages, shown(&room).leases), (Span::secs(7), 0, 0));
    let node = NodeStats { process_cpu_ns: 3, metered_cpu_ns: 2, resident_bytes: 1 };
    let request = RenewIn { seq: 1, entries: vec![wants("web", 1)], node: Some(node), ..RenewIn::default() };
    room.sends(&session, request).unwrap();
    room.renews(&session, 2, Vec::new());
    let row = shown(&room);
    assert_eq!((row.silent, row.messages, row.leases, row.node), (Span(0), 2, 1, node));
    assert_eq!(room.service.metrics.renewals.get(), 2);
    room.pass(9 * SECOND);
    room.hello("node", 1);
    assert_eq!((shown(&room).silent, shown(&room).leases), (Span(0), 1), "so is its hello");
    room.service.definitions().delete_group(&Actor::new(None, "test"), "web", "", 0, false).unwrap();
    assert_eq!(shown(&room).leases, 0, "of groups that there are");
}

#[test]
fn a_node_is_silent_for_as_long_as_passes_whatever_the_wall_clock_shows() {
    let (now, ahead) = (Arc::<AtomicU64>::default(), Arc::new(AtomicU64::new(3_600 * SECOND)));
    let clock = Clock::driven(Arc::clone(&now)).with_wall(Arc::clone(&ahead));
    let store = Arc::new(MemoryStore::default()) as Arc<dyn Store>;
    let room = Room { service: Service::load(store, ServiceConfig::default(), clock).unwrap(), now };
    room.hello("node", 1);
    for set in [7_200 * SECOND, 0] {
        ahead.store(set, Ordering::SeqCst);
        assert_eq!(room.service.leasing().clients().0[0].silent, Span(0), "{set} us ahead");
    }
}

#[test]
fn a_renewal_has_come_too_late_after_half_of_the_time_that_its_node_waits() {
    // The second renewal waits for ten seconds, as far as clocks that drift may show.
    let waited = 10 * SECOND - 10 * SECOND / 500;
    for (half, entries, shed) in [(waited, 1, true), (waited + 1, 1, false), (waited, 0, false)] {
        let room = Room::new(&[group("web", "1000")]);
        let session = room.hello("node", 1);
        let sent = Some(Sent { at: Time(99 * SECOND), answer_within: Span(2 * half) });
        let late = |seq, entries| RenewIn { seq, sent, entries, ..RenewIn::default() };
        assert!(!room.sends(&session, late(1, vec![wants("web", 1)])).unwrap().shed);
        room.pass(10 * SECOND);
        let entries = std::iter::repeat_n(wants("web", 1), entries).collect();
        assert_eq!(room.sends(&session, late(2, entries)).unwrap().shed, shed, "{half} us");
        assert_eq!(room.service.metrics.shed.get(), u64::from(shed));
    }
}

#[test]
fn answers_and_what_is_refused_are_counted_by_their_reasons() {
    let room = Room::new(&[group("web", "1000"), group("api", "1000")]);
    let requests = v1::Group { quota: "50 requests per day".into(), ..group("shop", "100") };
    room.makes(&requests);
    let session = room.hello("node", 1);
    let malformed = EntryIn { group: "web".into(), ask: Err("held_rate: -1".into()) };
    let entries = vec![malformed, wants("no such name!", 1), wants("none", 1), wants("default", 1)];
    room.renews(&session, 1, entries);
    room.renews(&session, 2, vec![wants("web", 1), wants("shop", 1)]);
    // Answered already.
    assert!(room.renews(&session, 2, vec![wants("web", 1)]).entries.is_empty());
    let given = BTreeSet::from([GroupName::parse("api").unwrap()]);
    room.service.leasing().confine(session.client, session.session, Arc::new(given));
    let answers = room.renews(&session, 3, vec![wants("web", 1), wants("api", 1)]).entries;
    assert!(is_unknown(&answers[0]) && !is_unknown(&answers[1]), "{answers:?}");
    for (status, count) in
        [("leased", 2), ("unlimited", 1), ("unknown_group", 2), ("recovering", 0), ("refused", 3)]
    {
        room.has_metric(&format!("tidegate_grants_total{{status=\"{status}\"}} {count}"));
    }
    for (reason, count) in [("malformed", 2), ("stale", 1), ("not_given", 1), ("counts_no_requests", 1)] {
        room.has_metric(&format!("tidegate_refused_total{{reason=\"{reason}\"}} {count}"));
    }
    room.has_metric("tidegate_renewals_total 4");
}

#[test]
fn a_group_that_a_node_was_not_given_says_nothing_of_where_it_demotes_to() {
    let low = v1::Group { priority: "low".into(), ..group("low", "10") };
    let web = v1::Group { demote_to: "low".into(), ..group("web", "1000") };
    let room = Room::new(&[low, web]);
    let session = room.hello("node", 1);
    let demotes_to = |seq| room.renews(&session, seq, vec![wants("web", 1)]).entries[0].demote_to.clone();
    assert_eq!(demotes_to(1), Some(GroupName::parse("low").unwrap()));
    let given = BTreeSet::from([GroupName::parse("low").unwrap()]);
    room.service.leasing().confine(session.client, session.session, Arc::new(given));
    assert_eq!(demotes_to(2), None);
}

#[test]
fn a_node_that_was_not_given_the_group_to_go_on_in_hears_nothing_of_it() {
    let low = v1::Group { priority: "low".into(), ..group("low", "10") };
    let web = v1::Group { demote_to: "low".into(), ..group("web", "1000") };
    let room = Room::new(&[low, web]);
    let session = room.hello("node", 1);
    let given = BTreeSet::from([GroupName::parse("web").unwrap()]);
    room.service.leasing().confine(session.client, session.session, Arc::new(given));
    let renewed = room.renews(&session, 1, vec![wants("web", 1)]);
    assert!(lease(&renewed.entries[0]).rate > Rate::ZERO);
    assert_eq!(renewed.entries[0].demote_to, None);
}

/// Its process may go on under a newer stream, with the leases that it has.
#[test]
fn the_last_words_on_an_older_stream_end_no_leases_and_count_nothing() {
    let room = Room::new(&[group("web", "1000")]);
    let older = room.hello("node", 1);
    let newer = room.hello("node", 1);
    room.leased(&newer, 1, wants("web", 10));
    let total = Ok(Consumption { operations: 7, ..Consumption::default() }.into());
    let report = ReportIn { group: "web".into(), incarnation: 0, total, waited: Vec::new() };
    assert_eq!(room.service.leasing().goodbye(older.client, older.session, 9, &[report]), None);
    assert_eq!(room.leases("web"), 1);
    assert_eq!(room.service.accounts().usage("web", false).unwrap().0[0].total.operations, 0);
    assert_eq!(room.service.leasing().goodbye(newer.client, newer.session, 2, &[]), Some(Vec::new()));
    assert_eq!(room.leases("web"), 0);
}

#[test]
fn a_silent_controller_answers_no_renewal() {
    let fence = Some(Span::secs(2));
    let room = Room::with(ServiceConfig { fence, ..ServiceConfig::default() }, &[group("web", "1000")]);
    let session = room.hello("node", 1);
    room.leased(&session, 1, wants("web", 1));
    room.pass(2 * SECOND);
    let refused = room.sends(&session, RenewIn { seq: 2, ..RenewIn::default() });
    assert_eq!(refused.unwrap_err(), SessionError::Silent(Silence::CutOff(Span::secs(2))));
    room.service.upkeep().flush().unwrap();
    assert!(room.sends(&session, RenewIn { seq: 2, ..RenewIn::default() }).is_ok(), "it has written again");
}

#[test]
fn a_stop_ends_all_streams_and_nothing_is_granted_any_more() {
    let room = Room::new(&[group("web", "1000")]);
    let mut session = room.hello("node", 1);
    room.leased(&session, 1, wants("web", 1));
    room.service.shut_down().unwrap();
    let ended = session.pushes.try_recv().unwrap_err();
    assert_eq!(ended, tokio::sync::mpsc::error::TryRecvError::Disconnected);
    assert_eq!(room.service.silence(), Some(Silence::Left));
    let refused = room.service.leasing().hello("other", 1, "test").err();
    assert_eq!(refused, Some(SessionError::Silent(Silence::Left)));
}

#[test]
fn the_capacity_of_the_server_holds_for_all_groups_together() {
    let capacity = Some(Rate::whole(100));
    let room = Room::with(
        ServiceConfig { capacity, ..ServiceConfig::default() },
        &[group("web", "60"), group("api", "60")],
    );
    let session = room.hello("node", 1);
    let rates = ["web", "api"].map(|of| wants(of, 60)).to_vec();
    let sum: i64 = room.renews(&session, 1, rates).entries.iter().map(|entry| lease(entry).rate.0).sum();
    assert!(sum <= 100_000_000 && sum > 50_000_000, "{sum}");
}

#[test]
fn a_window_of_a_quota_that_ends_between_two_commits_ends_for_a_renewal() {
    let web = v1::Group { quota: "600 per minute".into(), ..group("web", "100") };
    let room = Room::new(&[web]);
    let session = room.hello("node", 1);
    let share = |seq| room.leased(&session, seq, waits("web", 100)).allowance.unwrap();
    let first = share(1);
    assert_eq!(first.ceiling, Ru::ZERO, "before its row is on disk");
    room.service.upkeep().flush().unwrap();
    let before = share(2);
    assert!(before.ceiling.is_positive() && before.window == first.window, "{before:?}");
    room.pass(60 * SECOND);
    let after = share(3);
    assert_ne!(after.window, before.window);
    assert!(after.ceiling.is_positive(), "the first of the next window is on disk already: {after:?}");
}

/// The bound that operators read: the limit, and what nodes may use that are cut off.
#[test]
fn the_bound_of_a_group_includes_what_cut_off_nodes_may_use() {
    let each = v1::Group { fallback: "5".into(), ..group("each", "100") };
    let divided = v1::Group { fallback_total: "90".into(), ..group("divided", "100") };
    let room = Room::new(&[group("stop", "100"), each, divided]);
    let bound = |group: &str| room.service.leasing().leases(group).unwrap().groups[0].bound;
    for (node, seq) in [("a", 1), ("b", 1)] {
        let session = room.hello(node, 1);
        room.renews(&session, seq, vec![wants("stop", 1), wants("each", 1), wants("divided", 1)]);
    }
    assert_eq!(bound("stop"), Some(Rate::whole(100)));
    assert_eq!(bound("each"), Some(Rate::whole(110)), "5 of each of two nodes");
    assert_eq!(bound("divided"), Some(Rate::whole(190)));
    let lowered = v1::Group { fallback_total: "10".into(), ..group("divided", "100") };
    let mask = ["fallback_total".to_owned()];
    room.service.definitions().alter_group(&Actor::new(None, "test"), &lowered, &mask, 0).unwrap();
    let sum = bound("divided").unwrap();
    assert!(sum > Rate::whole(150), "parts from before count as long as they are out: {sum:?}");
}

/// The part of the fallback of `web` that a node hears of; each renewal acknowledges the one before.
fn part(room: &Room, session: &Session, seq: u64) -> Rate {
    let mut entry = wants("web", 1);
    entry.ask.as_mut().unwrap().0.acked_seq = seq - 1;
    let fallback = match room.renews(session, seq, vec![entry]).entries.remove(0).answer {
        Answer::Grant(Grant::Leased(terms), _) => terms.fallback,
        Answer::Grant(Grant::Recovering { fallback, .. }, _) => fallback.unwrap(),
        other => panic!("{other:?}"),
    };
    match fallback {
        Fallback::Part(rate, _) => rate,
        _ => Rate::ZERO,
    }
}

#[test]
fn a_part_of_a_fallback_is_given_once_it_is_on_disk_and_counts_after_a_crash_and_not_after_a_replacement() {
    let (store, now) = (Arc::new(MemoryStore::default()), Arc::<AtomicU64>::default());
    let service = started(&store, &now);
    let room = Room { service, now: Arc::clone(&now) };
    room.makes(&v1::Group { fallback_total: "90".into(), ..group("web", "1000") });
    let first = room.hello("node", 1);
    assert_eq!(part(&room, &first, 1), Rate::ZERO, "a crash would forget it");
    room.service.upkeep().flush().unwrap();
    assert_eq!(part(&room, &first, 2), Rate::whole(90));
    room.service.upkeep().flush().unwrap();
    let room = Room { service: started(&store, &now), now };
    let other = room.hello("other", 1);
    for seq in 1..4 {
        assert_eq!(part(&room, &other, seq), Rate::ZERO, "all of it may be in use");
        room.service.upkeep().flush().unwrap();
    }
    // Another process under the first one's identity takes its place.
    let second = room.hello("node", 2);
    let mut parts = Vec::new();
    for seq in 1..4 {
        parts.push(part(&room, &second, seq));
        room.service.upkeep().flush().unwrap();
    }
    assert!(parts.last().unwrap().0 > 0, "{parts:?}");
}

/// Its process is gone as surely as one with a lower number.
#[test]
fn the_part_of_a_start_that_was_ahead_of_the_clock_is_free_when_the_next_one_replaces_it() {
    let room = Room::new(&[v1::Group { fallback_total: "90".into(), ..group("web", "1000") }]);
    let wrong = room.hello("node", u64::MAX);
    part(&room, &wrong, 1);
    room.service.upkeep().flush().unwrap();
    assert_eq!(part(&room, &wrong, 2), Rate::whole(90));
    let right = room.hello("node", room.service.clock().unix_us());
    let mut parts = Vec::new();
    for seq in 1..4 {
        parts.push(part(&room, &right, seq));
        room.service.upkeep().flush().unwrap();
    }
    assert!(parts.last().unwrap().0 > 0, "{parts:?}");
}
