//! Rules against runaway statements and the list of watched ones, as the controller has them.
//!
//! In: the controller's stream, whole at once and again after every change. Out: one immutable book that sessions
//! read without a lock.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use tidegate_client::Ru;
use tidegate_proto::v1;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status, Streaming};

use super::controller::Controller;
use crate::clock;

/// Most rules of a list: a controller has no more groups. A list with more is refused whole, since a rule that is left
/// out is a limit that does not hold.
const MAX_RULES: usize = 1_000_000;
/// Most watches of a list: ten times what a controller keeps, so that one that keeps more can be followed, too.
const MAX_WATCHES: usize = 100_000;
/// Between two attempts to follow the controller.
const RETRY: Duration = Duration::from_secs(1);

/// What is done about a runaway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is recorded.
    DryRun,
    /// Its result is taken from the server slowly.
    Cooldown,
    /// It is ended.
    Kill,
    /// Another group is charged from then on.
    Switch(String),
}

/// A group's limits of one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) elapsed: Option<Duration>,
    pub(crate) ru: Option<Ru>,
    pub(crate) rows: Option<u64>,
    pub(crate) action: Action,
}

/// A statement that is convicted before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) id: u64,
    pub(crate) action: Action,
    /// The moment at which it ends.
    ends: Option<Instant>,
}

/// All of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Book {
    limits: HashMap<String, Arc<Limit>, RandomState>,
    max_waits: HashMap<String, Duration, RandomState>,
    watches: HashMap<String, HashMap<String, Watch, RandomState>, RandomState>,
    /// Groups in which texts are watched, which must be hashed then.
    exact: HashSet<String, RandomState>,
}

/// What has arrived of a list, which comes in parts.
#[derive(Default)]
struct Listing {
    groups: Vec<v1::GroupRule>,
    watches: Vec<v1::Watch>,
}

/// The book in force.
#[derive(Debug, Default)]
pub(crate) struct Rules(ArcSwap<Book>);

impl Action {
    /// As the wire spells it; an unknown one ends the statement, which is what most rules are for.
    fn of(name: &str, switch_group: &str) -> Self {
        match name {
            "dryrun" => Self::DryRun,
            "cooldown" => Self::Cooldown,
            "switch_group" => Self::Switch(switch_group.to_owned()),
            _ => Self::Kill,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::DryRun => "dryrun",
            Self::Cooldown => "cooldown",
            Self::Kill => "kill",
            Self::Switch(_) => "switch_group",
        }
    }

    pub(crate) fn switch_group(&self) -> &str {
        match self {
            Self::Switch(group) => group,
            _ => "",
        }
    }
}

impl Limit {
    fn of(wire: &v1::QueryLimit) -> Self {
        let positive = |number: u64| (number > 0).then_some(number);
        Self {
            elapsed: positive(wire.exec_elapsed_us).map(Duration::from_micros),
            ru: amount(&wire.ru).filter(|ru| ru.is_positive()),
            rows: positive(wire.rows),
            action: Action::of(&wire.action, &wire.switch_group),
        }
    }

    /// The limit that is broken, as a record shows it.
    pub(crate) fn broken(&self, elapsed: Duration, ru: Ru, rows: u64) -> Option<String> {
        if let Some(most) = self.elapsed.filter(|most| elapsed >= *most) {
            return Some(format!("ElapsedTime = {elapsed:.3?} (limit {most:?})"));
        }
        if let Some(most) = self.ru.filter(|most| ru >= *most) {
            return Some(format!("RequestUnit = {ru} (limit {most})"));
        }
        self.rows.filter(|most| rows >= *most).map(|most| format!("Rows = {rows} (limit {most})"))
    }
}

impl Book {
    /// These rules and watches, which the controller sent at `sent_ms` by its clock.
    fn of(groups: &[v1::GroupRule], watches: &[v1::Watch], sent_ms: u64) -> Self {
        let mut book = Self::default();
        let now = clock::now();
        // Controllers of earlier builds do not say when.
        let sent_ms = if sent_ms == 0 { clock::wall_ms() } else { sent_ms };
        // An end beyond any clock is none.
        let end = |watch: &v1::Watch| {
            let left = (watch.end_unix_ms > 0).then(|| watch.end_unix_ms.saturating_sub(sent_ms));
            left.and_then(|ms| now.checked_add(Duration::from_millis(ms)))
        };
        for rule in groups {
            if let Some(limit) = &rule.limit {
                book.limits.insert(rule.group.clone(), Arc::new(Limit::of(limit)));
            }
            if rule.max_wait_us > 0 {
                book.max_waits.insert(rule.group.clone(), Duration::from_micros(rule.max_wait_us));
            }
        }
        for watch in watches {
            // Without an action of its own it takes that of the group's rule, and without one it is only recorded.
            let action = match (watch.action.as_str(), book.limits.get(&watch.group)) {
                ("", Some(limit)) => limit.action.clone(),
                ("", None) => Action::DryRun,
                (name, _) => Action::of(name, &watch.switch_group),
            };
            if watch.r#match == "exact" {
                book.exact.insert(watch.group.clone());
            }
            let entry = Watch { id: watch.id, action, ends: end(watch) };
            book.watches.entry(watch.group.clone()).or_default().insert(watch.digest.clone(), entry);
        }
        book
    }

    /// The rule of a group.
    pub(crate) fn limit(&self, group: &str) -> Option<Arc<Limit>> {
        if self.limits.is_empty() { None } else { self.limits.get(group).cloned() }
    }

    /// Longest wait of a statement of a group, where the group has one of its own.
    pub(crate) fn max_wait(&self, group: &str) -> Option<Duration> {
        self.max_waits.get(group).copied()
    }

    /// Whether a rule or a watch of a group may need the digests of its statements' texts.
    pub(crate) fn needs_texts(&self, group: &str) -> bool {
        !(self.limits.is_empty() && self.exact.is_empty())
            && (self.limits.contains_key(group) || self.exact.contains(group))
    }

    /// The watch that covers a statement: by its text, else by its template. Both are worked out when they are needed.
    pub(crate) fn watch(
        &self,
        group: &str,
        fingerprint: impl FnOnce() -> Option<String>,
        text_digest: impl FnOnce() -> Option<String>,
    ) -> Option<&Watch> {
        if self.watches.is_empty() {
            return None;
        }
        let watches = self.watches.get(group)?;
        let in_force = |digest: String| {
            watches.get(&digest).filter(|found| found.ends.is_none_or(|ends| clock::now() < ends))
        };
        let exact = if self.exact.contains(group) { text_digest().and_then(in_force) } else { None };
        exact.or_else(|| fingerprint().and_then(in_force))
    }
}

impl Listing {
    /// The book of the whole list, with its last part.
    ///
    /// # Errors
    /// A list that is longer than a controller's can be.
    fn add(&mut self, part: v1::Rules) -> Result<Option<Book>, Status> {
        self.groups.extend(part.groups);
        self.watches.extend(part.watches);
        let (rules, watches) = (self.groups.len(), self.watches.len());
        if rules > MAX_RULES || watches > MAX_WATCHES {
            let message = format!(
                "{rules} rules and {watches} watches are too many: at most {MAX_RULES} and {MAX_WATCHES}"
            );
            return Err(Status::resource_exhausted(message));
        }
        if part.more {
            return Ok(None);
        }
        let Self { groups, watches } = std::mem::take(self);
        tracing::info!(rules = groups.len(), watches = watches.len(), "rules received");
        Ok(Some(Book::of(&groups, &watches, part.unix_ms)))
    }
}

impl Rules {
    pub(crate) fn book(&self) -> arc_swap::Guard<Arc<Book>> {
        self.0.load()
    }

    /// Follows the controller until the gateway ends. While it is away the last book stays in force. What waiting does not
    /// help against, such as a token that may not follow, is logged once.
    pub(super) async fn follow(&self, controller: Controller, gateway: String) {
        let mut logged = None;
        loop {
            match self.take_in(&controller, &gateway).await {
                Ok(()) => logged = None,
                Err(status)
                    if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) =>
                {
                    tracing::debug!(%status, "no rules");
                }
                Err(status) => {
                    let reason = Some(status.message().to_owned());
                    if logged != reason {
                        let reason = status.message();
                        tracing::warn!(reason, "rules are not followed; those before stay in force");
                    }
                    logged = reason;
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Puts each whole list of one stream in force; what its end leaves unfinished is dropped.
    async fn take_in(&self, controller: &Controller, gateway: &str) -> Result<(), Status> {
        let mut parts = open(controller, gateway).await?;
        let mut listing = Listing::default();
        while let Some(part) = parts.next().await {
            if let Some(book) = listing.add(part?)? {
                self.0.store(Arc::new(book));
            }
        }
        Ok(())
    }
}

async fn open(controller: &Controller, gateway: &str) -> Result<Streaming<v1::Rules>, Status> {
    let request = controller.request(v1::RulesRequest { gateway: gateway.to_owned() }).await?;
    Ok(controller.statements().rules(request).await?.into_inner())
}

/// Decimal RU as the controller writes them, exact to a millionth.
fn amount(text: &str) -> Option<Ru> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let micro = format!("{fraction:0<6}");
    let whole = whole.parse::<i64>().ok()?.checked_mul(1_000_000)?;
    (micro.len() == 6).then(|| micro.parse::<i64>().ok()?.checked_add(whole).map(Ru)).flatten()
}

#[cfg(test)]
mod bounds;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::vec::IntoIter;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use tidegate_proto::v1::statements_server::{Statements, StatementsServer};
    use tokio::net::TcpListener;
    use tokio::time::{interval, timeout};
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::transport::{Endpoint, Server};
    use tonic::{Request, Response};

    use super::*;

    fn limit(action: &str) -> v1::QueryLimit {
        v1::QueryLimit {
            exec_elapsed_us: 60_000_000,
            ru: "10.5".into(),
            rows: 7,
            action: action.into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_limit_is_broken_when_it_is_reached() {
        let limit = Limit::of(&limit("kill"));
        let (second, ru) = (Duration::from_secs(1), Ru::whole(1));
        assert_eq!(limit.broken(second, ru, 6), None);
        assert!(limit.broken(second, ru, 7).unwrap().starts_with("Rows = 7"));
        assert!(limit.broken(second, Ru::whole(11), 7).unwrap().contains("11 RU"));
        assert!(limit.broken(second * 60, ru, 0).unwrap().contains("60s"));
    }

    #[test]
    fn amounts_are_exact() {
        assert_eq!(amount("10.5"), Some(Ru(10_500_000)));
        assert_eq!(amount("7"), Some(Ru(7_000_000)));
        assert_eq!((amount(""), amount("x"), amount("1.0000001")), (None, None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_covers_its_group_until_it_ends() {
        let watch = |r#match: &str, digest: &str, ends: u64| v1::Watch {
            id: 5,
            group: "g".into(),
            r#match: r#match.into(),
            digest: digest.into(),
            end_unix_ms: ends,
            ..Default::default()
        };
        let recorded = v1::Watch { action: "dryrun".into(), ..watch("exact", "t2", 0) };
        let watches = [
            watch("similar", "f1", 0),
            watch("exact", "t1", 0),
            watch("similar", "old", 1_001),
            watch("exact", "told", 1_001),
            watch("exact", "long", u64::MAX),
            recorded,
        ];
        let rule = v1::GroupRule { group: "g".into(), limit: Some(limit("cooldown")), max_wait_us: 0 };
        let waits = v1::GroupRule { group: "w".into(), limit: None, max_wait_us: 1_000 };
        // The controller's clock has its own opinion of the year.
        let book = Book::of(&[rule, waits], &watches, 1_000);
        assert_eq!((book.max_wait("g"), book.max_wait("w")), (None, Some(Duration::from_millis(1))));
        assert!(book.limit("w").is_none());
        let find = |group: &str, f: &str, t: &str| {
            let known = |digest: &str| (!digest.is_empty()).then(|| digest.to_owned());
            book.watch(group, || known(f), || known(t)).map(|w| w.action.clone())
        };
        assert_eq!(find("g", "old", ""), Some(Action::Cooldown), "it lasts for a millisecond more");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(find("g", "f1", ""), Some(Action::Cooldown), "the rule's action");
        assert_eq!(find("g", "", "long"), Some(Action::Cooldown));
        assert_eq!(find("g", "f2", "t1"), Some(Action::Cooldown));
        assert_eq!((find("g", "old", ""), find("h", "f1", "t1"), find("g", "f2", "t3")), (None, None, None));
        assert_eq!(find("g", "old", "t1"), Some(Action::Cooldown), "the other has ended");
        assert_eq!(find("g", "f1", "t2"), Some(Action::DryRun), "its text says more");
        assert_eq!(find("g", "f1", "told"), Some(Action::Cooldown), "its template, after that of its text");
        assert_eq!(find("g", "", ""), None, "of which nothing is known");
        assert!(book.needs_texts("g") && !book.needs_texts("w"));
    }

    const GROUPS: [&str; 3] = ["a", "b", "c"];

    fn rule(group: usize) -> v1::GroupRule {
        v1::GroupRule { group: GROUPS[group].into(), limit: Some(limit("kill")), max_wait_us: 1_000 }
    }

    fn watched(group: usize, digest: u64) -> v1::Watch {
        let r#match = if digest == 0 { "exact" } else { "similar" };
        let (group, digest) = (GROUPS[group].into(), format!("{digest}"));
        v1::Watch {
            id: 1,
            group,
            r#match: r#match.into(),
            digest,
            action: "kill".into(),
            ..Default::default()
        }
    }

    /// A controller that serves the rules alone: each stream of them is the next of these, and ends as that does.
    struct Streams(Mutex<VecDeque<Vec<Result<v1::Rules, Status>>>>);

    macro_rules! of_rules_alone {
        ($($call:ident($request:ident) -> $reply:ident),*) => {
            #[tonic::async_trait]
            impl Statements for Streams {
                type RulesStream = tokio_stream::Iter<IntoIter<Result<v1::Rules, Status>>>;

                async fn rules(
                    &self,
                    _: Request<v1::RulesRequest>,
                ) -> Result<Response<Self::RulesStream>, Status> {
                    let next = self.0.lock().unwrap().pop_front();
                    let parts = next.ok_or_else(|| Status::unavailable("no more of them"))?;
                    Ok(Response::new(tokio_stream::iter(parts)))
                }

                $(async fn $call(&self, _: Request<v1::$request>) -> Result<Response<v1::$reply>, Status> {
                    Err(Status::unimplemented("it serves the rules alone"))
                })*
            }
        };
    }

    of_rules_alone!(
        convict(ConvictRequest) -> ConvictReply,
        report_statements(ReportStatementsRequest) -> ReportStatementsReply,
        list_statements(ListStatementsRequest) -> ListStatementsReply,
        reset_statements(ResetStatementsRequest) -> ResetStatementsReply,
        add_watch(AddWatchRequest) -> AddWatchReply,
        remove_watch(RemoveWatchRequest) -> RemoveWatchReply,
        list_watches(ListWatchesRequest) -> ListWatchesReply,
        list_runaways(ListRunawaysRequest) -> ListRunawaysReply
    );

    #[tokio::test]
    async fn a_list_that_its_stream_leaves_unfinished_is_no_part_of_the_next() {
        let part = |group: usize, more: bool| {
            Ok(v1::Rules { groups: vec![rule(group)], watches: vec![watched(group, 1)], more, unix_ms: 0 })
        };
        let [stopped, lost, whole] = [
            vec![part(0, true)],
            vec![part(1, true), Err(Status::unavailable("lost"))],
            vec![part(2, true), Ok(v1::Rules::default())],
        ];
        let streams = Streams(Mutex::new([stopped, lost, whole].into()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = Server::builder().add_service(StatementsServer::new(streams));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let channel = Endpoint::from_shared(endpoint).unwrap().connect_lazy();
        let rules = Rules::default();
        let known = async {
            let mut again = interval(Duration::from_millis(10));
            while rules.book().limit(GROUPS[2]).is_none() {
                again.tick().await;
            }
        };
        tokio::select! {
            () = rules.follow(Controller::new(channel, None), "gw".to_owned()) => panic!("it follows for ever"),
            known = timeout(Duration::from_secs(30), known) => known.expect("the whole list"),
        }
        let book = rules.book();
        let known = GROUPS.map(|group| (book.limit(group).is_some(), book.watches.contains_key(group)));
        assert_eq!(known, [(false, false), (false, false), (true, true)]);
    }

    #[test]
    fn a_long_list_is_in_force_to_its_last_rule_or_refused_whole() {
        let rules = |from: usize, count: usize| {
            (from..from + count).map(|n| v1::GroupRule {
                group: format!("g{n}"),
                max_wait_us: 1_000,
                ..v1::GroupRule::default()
            })
        };
        let part = |groups, watches, more| v1::Rules { groups, watches, more, unix_ms: 0 };
        let watches = vec![watched(0, 1); MAX_WATCHES];
        let mut listing = Listing::default();
        assert!(listing.add(part(rules(0, 100_000).collect(), watches.clone(), true)).unwrap().is_none());
        let book = listing.add(part(rules(100_000, 1).collect(), Vec::new(), false)).unwrap().unwrap();
        assert!(book.max_wait("g100000").is_some() && book.watches.contains_key(GROUPS[0]));

        let mut listing = Listing::default();
        listing.add(part(Vec::new(), watches, true)).unwrap();
        let refused = listing.add(part(Vec::new(), vec![watched(1, 1)], true)).unwrap_err();
        assert!(refused.message().contains("100001 watches are too many"), "{refused}");
        let refused =
            Listing::default().add(part(vec![v1::GroupRule::default(); MAX_RULES + 1], Vec::new(), true));
        assert!(refused.unwrap_err().message().contains("1000001 rules"));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::with_cases(128)
        })]

        /// However the lists differ from each other, and however each is cut into parts.
        #[test]
        fn the_book_is_the_newest_whole_list_and_nothing_of_those_before(
            lists in vec((btree_set(0_usize..3, 0..3), btree_set((0_usize..3, 0_u64..3), 0..5), 1_usize..4), 1..6),
        ) {
            let (rules, mut listing) = (Rules::default(), Listing::default());
            for (groups, watches, size) in lists {
                let entries = groups.iter().map(|group| Ok(*group)).chain(watches.iter().map(|watch| Err(*watch)));
                let entries: Vec<Result<usize, (usize, u64)>> = entries.collect();
                let mut parts: Vec<v1::Rules> = entries.chunks(size).map(|part| v1::Rules {
                    groups: part.iter().filter_map(|entry| entry.ok()).map(rule).collect(),
                    watches: part.iter().filter_map(|entry| entry.err()).map(|(of, at)| watched(of, at)).collect(),
                    more: true,
                    unix_ms: 0,
                }).collect();
                // An empty list has a part, too.
                match parts.last_mut() {
                    Some(last) => last.more = false,
                    None => parts.push(v1::Rules::default()),
                }
                let count = parts.len();
                for (place, part) in parts.into_iter().enumerate() {
                    let book = listing.add(part).unwrap();
                    prop_assert_eq!(book.is_some(), place + 1 == count, "in force before the list is whole");
                    if let Some(book) = book {
                        rules.0.store(Arc::new(book));
                    }
                }
                let book = rules.book();
                for (place, group) in GROUPS.into_iter().enumerate() {
                    let ruled = groups.contains(&place);
                    prop_assert_eq!((book.limit(group).is_some(), book.max_wait(group).is_some()), (ruled, ruled));
                    let exact = watches.contains(&(place, 0));
                    prop_assert_eq!(book.needs_texts(group), ruled || exact);
                    for digest in 0..3 {
                        let text = || Some(format!("{digest}"));
                        let found = if digest == 0 { book.watch(group, || None, text) }
                            else { book.watch(group, text, || None) };
                        prop_assert_eq!(found.is_some(), watches.contains(&(place, digest)), "{} in {}", digest, group);
                    }
                }
            }
        }
    }
}
