//! A controller for the client's tests: the real engine behind scripted behaviour, reachable over real sockets
//! ([`listen`]) or over in-memory channels ([`piped`]), which work under paused time.

mod reach;
mod through;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_client::Ru;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::Grant;
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::quota::{Opening, window_number};
use tidegate_core::units::{Span, Time};
use tidegate_proto::v1;
use tidegate_proto::v1::client_message::Kind as Said;
use tidegate_proto::v1::server_message::Kind as Reply;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

pub(crate) use reach::{Pipe, client_and_group, eventually, listen, piped};
pub(crate) use through::Through;
pub(crate) use wire::charged;
use wire::{ask, grant_entry};

type Outbound = mpsc::Sender<Result<v1::ServerMessage, Status>>;
type Tamper = Box<dyn FnMut(&mut v1::Granted) + Send>;

/// The controller's memory, open to the tests.
pub(crate) struct State {
    origin: Instant,
    pub(crate) engine: Engine,
    groups: BTreeMap<String, GroupId>,
    /// Groups that were made, also those that are no more: no two have one number.
    made: u32,
    clients: BTreeMap<(String, u64), ClientId>,
    /// Windows of quotas that were opened.
    windows: u32,
    sessions: Vec<(ClientId, Outbound)>,
    watchers: Vec<mpsc::Sender<Result<v1::WatchEvent, Status>>>,
    pub(crate) revision: u64,
    pub(crate) bindings: Vec<v1::Binding>,
    pub(crate) cost_tables: Option<v1::CostTables>,
    pub(crate) hellos: Vec<v1::Hello>,
    pub(crate) renews: Vec<(Time, v1::Renew)>,
    pub(crate) goodbyes: Vec<v1::Goodbye>,
    pub(crate) watches: Vec<v1::WatchRequest>,
    /// Newest total by incarnation and group.
    pub(crate) totals: BTreeMap<(u64, String), v1::Consumption>,
    pub(crate) epoch: u64,
    /// Sessions are refused.
    pub(crate) down: bool,
    /// Renewals are heard and not answered.
    pub(crate) mute: bool,
    /// Goodbyes are heard and not answered.
    pub(crate) rude: bool,
    /// Reports stay in memory: `durable_seq` does not move.
    pub(crate) forgetful: bool,
    /// Reports of this group are not counted.
    pub(crate) refuses: Option<&'static str>,
    pub(crate) tamper: Option<Tamper>,
    /// Most entries, and most reports, in one message; 0 is no limit.
    pub(crate) max_entries: u32,
}

#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    /// Counts how often every stream was cut.
    cuts: watch::Sender<u64>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let state = State {
            origin: Instant::now(),
            engine: Engine::new(Time(0), EngineConfig::default()),
            groups: BTreeMap::new(),
            made: 0,
            clients: BTreeMap::new(),
            windows: 0,
            sessions: Vec::new(),
            watchers: Vec::new(),
            revision: 1,
            bindings: Vec::new(),
            cost_tables: None,
            hellos: Vec::new(),
            renews: Vec::new(),
            goodbyes: Vec::new(),
            watches: Vec::new(),
            totals: BTreeMap::new(),
            epoch: 1,
            down: false,
            mute: false,
            rude: false,
            forgetful: false,
            refuses: None,
            tamper: None,
            max_entries: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut(&State) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            while !condition(&self.state()) {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    pub(crate) fn group(&self, name: &str, spec: GroupSpec) {
        let mut state = self.state();
        let now = state.now();
        let id = state.groups.get(name).copied().unwrap_or_else(|| {
            state.made += 1;
            GroupId(state.made + 9)
        });
        state.groups.insert(name.into(), id);
        state.engine.put_group(now, id, spec).unwrap();
        state.tell(v1::watch_event::Kind::GroupsChanged(v1::GroupsChanged { groups: vec![name.into()] }));
    }

    /// Opens a window of a group's quota that ends after so long.
    pub(crate) fn open_quota(&self, name: &str, ends: Span, length: Span) {
        let ends = self.state().now().after(ends);
        self.open_window(name, Opening { ends, length, ..Opening::default() });
    }

    /// Opens a window of a group's quota that rolls.
    pub(crate) fn open_rolling_quota(&self, name: &str, length: Span) {
        self.open_window(name, Opening { length, rolls: true, ..Opening::default() });
    }

    fn open_window(&self, name: &str, opening: Opening) {
        let mut state = self.state();
        let (now, group) = (state.now(), state.groups[name]);
        state.windows += 1;
        let (number, durable) = (window_number(group, state.windows), Ru::MAX);
        state.engine.open_quota(now, group, &Opening { number, durable, ..opening });
    }

    pub(crate) fn remove_group(&self, name: &str) {
        let mut state = self.state();
        let now = state.now();
        let id = state.groups.remove(name).unwrap();
        state.engine.remove_group(now, id).unwrap();
        state.tell(v1::watch_event::Kind::GroupsChanged(v1::GroupsChanged { groups: vec![name.into()] }));
    }

    pub(crate) fn bind(&self, tenant: &str, user: &str, group: &str) {
        self.bind_all(tenant, &[user], group);
    }

    /// One change of several bindings, each in a message of its own.
    pub(crate) fn bind_all(&self, tenant: &str, users: &[&str], group: &str) {
        let mut state = self.state();
        for (left, user) in (0..users.len()).rev().zip(users) {
            let binding = v1::Binding { tenant: tenant.into(), user: (*user).into(), group: group.into() };
            state.bindings.retain(|old| (&old.tenant, &old.user) != (&binding.tenant, &binding.user));
            state.bindings.push(binding.clone());
            let change = v1::BindingChange { binding: Some(binding), removed: false };
            // Only the last part of a change carries its revision.
            state.revision += u64::from(left == 0);
            state.send(v1::watch_event::Kind::Binding(change));
        }
    }

    pub(crate) fn set_cost_tables(&self, tables: v1::CostTables) {
        let mut state = self.state();
        state.cost_tables = Some(tables.clone());
        state.tell(v1::watch_event::Kind::CostTables(tables));
    }

    /// Ends every stream and refuses new ones until `down` is cleared.
    pub(crate) fn go_down(&self) {
        let mut state = self.state();
        state.down = true;
        state.sessions.clear();
        state.watchers.clear();
        drop(state);
        self.cuts.send_modify(|count| *count += 1);
    }

    pub(crate) fn come_back(&self) {
        self.state().down = false;
    }

    pub(crate) fn push(&self, reply: Reply) {
        let state = self.state();
        for (_, session) in &state.sessions {
            session.try_send(Ok(v1::ServerMessage { kind: Some(reply.clone()) })).unwrap();
        }
    }

    /// RU reported for a group, over all incarnations.
    pub(crate) fn total(&self, group: &str) -> Ru {
        self.state().total(group)
    }

    fn note(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    async fn serve(
        self,
        mut inbound: impl Stream<Item = Result<v1::ClientMessage, Status>> + Unpin,
        outbound: Outbound,
    ) {
        let mut hello = v1::Hello::default();
        let mut cuts = self.cuts.subscribe();
        loop {
            let message = tokio::select! {
                message = inbound.next() => message,
                () = outbound.closed() => None,
                _ = cuts.changed() => None,
            };
            let Some(Ok(v1::ClientMessage { kind: Some(said) })) = message else {
                break;
            };
            self.state().hear(&mut hello, said, &outbound);
            self.note();
        }
    }
}

impl Drop for Fake {
    /// A controller that panics within its task would be one that is gone, and some tests would pass beside it.
    fn drop(&mut self) {
        assert!(
            std::thread::panicking() || !self.state.is_poisoned(),
            "the controller of the test has panicked"
        );
    }
}

impl State {
    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.origin.elapsed().as_micros()).unwrap())
    }

    pub(crate) fn total(&self, group: &str) -> Ru {
        let of_group = self.totals.iter().filter(|((_, name), _)| name == group);
        of_group.map(|(_, total)| charged(total)).sum()
    }

    fn tell(&mut self, kind: v1::watch_event::Kind) {
        self.revision += 1;
        self.send(kind);
    }

    fn send(&mut self, kind: v1::watch_event::Kind) {
        let event = v1::WatchEvent { revision: self.revision, kind: Some(kind), ..v1::WatchEvent::default() };
        self.watchers.retain(|watcher| watcher.try_send(Ok(event.clone())).is_ok());
    }

    fn hear(&mut self, hello: &mut v1::Hello, said: Said, outbound: &Outbound) {
        let reply = match said {
            Said::Hello(said) => {
                *hello = said.clone();
                let next = ClientId(u64::try_from(self.clients.len()).unwrap() + 1);
                let id = *self.clients.entry((said.client_id.clone(), said.incarnation)).or_insert(next);
                self.sessions.push((id, outbound.clone()));
                self.hellos.push(said);
                Some(Reply::Welcome(v1::Welcome {
                    protocol: 1,
                    epoch: self.epoch,
                    server: "fake/1".into(),
                    max_entries: self.max_entries,
                    ..v1::Welcome::default()
                }))
            }
            Said::Renew(renew) => {
                let now = self.now();
                self.renews.push((now, renew.clone()));
                let refused = self.report(hello, &renew.reports);
                (!self.mute).then(|| Reply::Granted(self.grant(now, hello, &renew, refused)))
            }
            Said::Goodbye(goodbye) => {
                let refused = self.report(hello, &goodbye.reports);
                let (now, client) = (self.now(), self.client(hello));
                self.engine.release(now, client);
                self.goodbyes.push(goodbye.clone());
                (!self.rude).then_some(Reply::Farewell(v1::Farewell { seq: goodbye.seq, refused }))
            }
        };
        if let Some(reply) = reply {
            drop(outbound.try_send(Ok(v1::ServerMessage { kind: Some(reply) })));
        }
        self.push_lowers();
    }

    fn client(&self, hello: &v1::Hello) -> ClientId {
        self.clients[&(hello.client_id.clone(), hello.incarnation)]
    }

    /// Counts reports; returns those that it refuses.
    fn report(&mut self, hello: &v1::Hello, reports: &[v1::Report]) -> Vec<v1::RefusedReport> {
        let limit =
            if self.max_entries == 0 { usize::MAX } else { usize::try_from(self.max_entries).unwrap() };
        assert!(reports.len() <= limit, "{} reports in one message", reports.len());
        let (refused, counted): (Vec<_>, Vec<_>) =
            reports.iter().partition(|report| self.refuses == Some(&*report.group));
        for report in counted {
            let incarnation = if report.incarnation == 0 { hello.incarnation } else { report.incarnation };
            let total = report.total.clone().unwrap();
            let before = self.totals.insert((incarnation, report.group.clone()), total.clone());
            assert!(
                before.is_none_or(|before| charged(&before) <= charged(&total)),
                "a total shrank: {report:?}"
            );
        }
        let refusal = |report: &v1::Report| v1::RefusedReport {
            group: report.group.clone(),
            incarnation: report.incarnation,
            message: "refused".into(),
        };
        refused.into_iter().map(refusal).collect()
    }

    fn grant(
        &mut self,
        now: Time,
        hello: &v1::Hello,
        renew: &v1::Renew,
        refused: Vec<v1::RefusedReport>,
    ) -> v1::Granted {
        let client = self.client(hello);
        let entries = renew.entries.iter().map(|entry| {
            let grant = match self.groups.get(&entry.group) {
                None => Grant::UnknownGroup,
                Some(id) => self.engine.renew(now, client, *id, renew.seq, &ask(entry), None).expect("fresh"),
            };
            grant_entry(&entry.group, &grant)
        });
        let entries = entries.collect();
        let durable_seq = if self.forgetful { 0 } else { renew.seq };
        let (seq, epoch) = (renew.seq, self.epoch);
        let mut granted = v1::Granted { seq, epoch, entries, durable_seq, refused, ..v1::Granted::default() };
        if let Some(tamper) = &mut self.tamper {
            tamper(&mut granted);
        }
        granted
    }

    fn push_lowers(&mut self) {
        for order in self.engine.take_lowers() {
            // One that was removed has no name any more to lower it by.
            let Some((group, _)) = self.groups.iter().find(|(_, id)| **id == order.group) else { continue };
            let group = group.clone();
            let entries = vec![v1::LowerEntry { group, rate_at_most: order.rate_at_most.0 }];
            let lower = Reply::Lower(v1::Lower { epoch: self.epoch, entries });
            for (_, session) in self.sessions.iter().filter(|(id, _)| *id == order.client) {
                drop(session.try_send(Ok(v1::ServerMessage { kind: Some(lower.clone()) })));
            }
        }
    }

    fn watch(
        &mut self,
        request: v1::WatchRequest,
    ) -> Result<ReceiverStream<Result<v1::WatchEvent, Status>>, Status> {
        self.watches.push(request);
        if self.down {
            return Err(Status::unavailable("down"));
        }
        let (sender, receiver) = mpsc::channel(1_000);
        // One binding a message, as a large snapshot comes in parts.
        for binding in &self.bindings {
            let part =
                v1::Snapshot { bindings: vec![binding.clone()], more: true, ..v1::Snapshot::default() };
            let kind = Some(v1::watch_event::Kind::Snapshot(part));
            sender.try_send(Ok(v1::WatchEvent { revision: 0, kind, ..v1::WatchEvent::default() })).unwrap();
        }
        let last = v1::Snapshot { cost_tables: self.cost_tables.clone(), ..v1::Snapshot::default() };
        let kind = Some(v1::watch_event::Kind::Snapshot(last));
        sender
            .try_send(Ok(v1::WatchEvent { revision: self.revision, kind, ..v1::WatchEvent::default() }))
            .unwrap();
        self.watchers.push(sender);
        Ok(ReceiverStream::new(receiver))
    }
}
