//! The shipped controller in the simulated world: its service on its store, without sockets, on a driven clock and a
//! disk with faults.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::definition::{Bursting, Definition};
use tidegate_controller::group_fields::alterable;
use tidegate_controller::name::GroupName;
use tidegate_controller::quota::{Period, Quota, Zone};
use tidegate_controller::service::{
    LeaseRow, Push, RenewIn, Renewed, ReportIn, Seen, Service, ServiceConfig, Session, SessionError,
};
use tidegate_controller::store::{RedbStore, StoreError};
use tidegate_core::group::{Burstable, GroupId, GroupSpec};
use tidegate_core::quota::QuotaView;
use tidegate_core::units::{Rate, Ru, RuTotal, Span, Time};

use super::disk::{Death, Disk};
use super::random::Random;
use tidegate_proto::v1;

/// A lease to be lowered: node, group, most it may use.
pub(super) type LowerOrder = (usize, GroupId, Rate);

/// The controller, up or down.
pub(super) struct Controller {
    service: Option<Service>,
    pub(super) disk: Disk,
    /// True time; its machine's clock is ahead of it while a commit takes its time.
    now: Cell<Time>,
    /// Streams by node and number of the connection; none where the node has said goodbye. Those before a node's newest
    /// still carry what is on its way.
    streams: BTreeMap<(usize, u64), Option<Session>>,
    random: Random,
    /// Numbers of starts.
    instances: Random,
    fence: Option<Span>,
    /// How far the wall clock is ahead of midnight and the time of the world, in microseconds.
    wall: Arc<AtomicU64>,
    /// Something was done to the engine since the last check.
    touched: Cell<bool>,
}

/// The stream over which a message came has ended, and the node hears of it.
pub(super) struct Ended;

impl Controller {
    /// A first start on an empty disk.
    pub(super) fn new(seed: u64, fence: Option<Span>) -> Result<Self, StoreError> {
        let mut controller = Self {
            service: None,
            disk: Disk::default(),
            now: Cell::new(Time(0)),
            streams: BTreeMap::new(),
            random: Random::new(seed, 2),
            instances: Random::new(seed, 3),
            fence,
            wall: Arc::default(),
            touched: Cell::new(false),
        };
        controller.start()?;
        Ok(controller)
    }

    pub(super) fn set_time(&self, now: Time) {
        self.now.set(now);
        self.disk.clock().fetch_max(now.0, Ordering::Relaxed);
    }

    /// How far the wall clock is ahead of midnight and the time of the world.
    pub(super) fn wall(&self) -> Span {
        Span(self.wall.load(Ordering::Relaxed))
    }

    /// Sets the wall clock.
    pub(super) fn set_wall(&self, ahead: Span) {
        self.wall.store(ahead.0, Ordering::Relaxed);
    }

    /// The controller is at a commit until then, and does nothing else.
    pub(super) fn busy_until(&self) -> Time {
        Time(self.disk.clock().load(Ordering::Relaxed))
    }

    pub(super) fn is_up(&self) -> bool {
        self.service.is_some()
    }

    /// The process died in a sync, which the simulation has not noticed yet.
    pub(super) fn has_died(&self) -> bool {
        self.service.is_some() && self.disk.is_dead()
    }

    /// Starts on what is on the disk.
    pub(super) fn start(&mut self) -> Result<(), StoreError> {
        let store = RedbStore::open_on(self.disk.clone(), self.disk.clone(), Path::new("simulated"))?;
        let instance = Some(self.instances.bits());
        let config = ServiceConfig { fence: self.fence, instance, ..ServiceConfig::default() };
        let clock = Clock::driven(Arc::clone(self.disk.clock())).with_wall(Arc::clone(&self.wall));
        self.service = Some(Service::load(Arc::new(store), config, clock)?);
        self.touched.set(true);
        Ok(())
    }

    /// Another machine gets the disk, and a controller starts there in place of this one, which runs on without it.
    pub(super) fn succeed(&mut self) -> (Self, Result<(), StoreError>) {
        let successor = Self {
            service: None,
            disk: self.disk.move_on(&mut self.random),
            now: self.now.clone(),
            streams: BTreeMap::new(),
            random: self.random.clone(),
            instances: self.instances.clone(),
            fence: self.fence,
            wall: Arc::clone(&self.wall),
            touched: Cell::new(false),
        };
        let old = std::mem::replace(self, successor);
        // Its machine is at no commit.
        self.disk.clock().store(self.now.get().0, Ordering::Relaxed);
        (old, self.start())
    }

    /// Ends without warning.
    pub(super) fn die(&mut self, death: Death) {
        self.disk.die();
        self.streams.clear();
        self.service = None;
        self.disk.clock().store(self.now.get().0, Ordering::Relaxed);
        self.disk.revive(death, &mut self.random);
    }

    /// Ends in order: leases and consumption are stored first.
    pub(super) fn stop(&mut self) -> Result<(), StoreError> {
        if let Some(service) = &self.service {
            service.shut_down()?;
        }
        self.streams.clear();
        self.service = None;
        Ok(())
    }

    /// Ends leases that are past and brings consumption to disk, as the shipped background tasks do.
    pub(super) fn upkeep(&self) {
        if let Some(service) = &self.service {
            self.touched.set(true);
            service.leasing().expire();
            // A failure is tried again by the next call.
            let _ = service.upkeep().flush();
        }
    }

    /// Creates or alters a group.
    pub(super) fn put_group(&self, text: &v1::Group) -> Result<(), String> {
        let service = self.service()?;
        let known = service.definitions().group(&text.name).is_ok();
        let done = if known {
            service.definitions().alter_group(
                &actor(),
                text,
                &alterable().map(str::to_owned).collect::<Vec<_>>(),
                0,
            )
        } else {
            service.definitions().create_group(&actor(), text, false)
        };
        done.map(drop).map_err(|error| error.to_string())
    }

    /// Removes a group that nothing depends on.
    pub(super) fn remove_group(&self, id: GroupId) -> Result<(), String> {
        let removed = self.service()?.definitions().delete_group(&actor(), &name(id), "", 0, false);
        removed.map(drop).map_err(|error| error.to_string())
    }

    /// The stored definition of a group, as text.
    pub(super) fn definition(&self, id: GroupId) -> Option<v1::Group> {
        let reply = self.service.as_ref()?.definitions().group(&name(id)).ok()?;
        Some(v1::Group { revision: 0, ..reply.group })
    }

    /// Binds a user to a group.
    pub(super) fn bind(&self, user: &str, group: GroupId) -> Result<(), String> {
        let bound = self.service()?.definitions().bind(&actor(), "", user, &name(group));
        bound.map(drop).map_err(|error| error.to_string())
    }

    /// The group a user is bound to.
    pub(super) fn bound(&self, user: &str) -> Option<GroupId> {
        group(self.service.as_ref()?.definitions().resolve("", user).ok()?.group.as_str())
    }

    /// The first message of a connection that is newer than the node's stream opens another; its welcome, then.
    pub(super) fn open(
        &mut self,
        node: usize,
        incarnation: u64,
        connection: u64,
        seen: &Seen,
    ) -> Result<Option<Vec<u8>>, Ended> {
        let Some(service) = &self.service else { return Ok(None) };
        if self.streams.range((node, connection)..=(node, u64::MAX)).next().is_some() {
            return Ok(None);
        }
        self.touched.set(true);
        let name = client(node);
        let opened = service
            .leasing()
            .heed(&name, seen)
            .and_then(|()| service.leasing().hello(&name, incarnation, "sim"));
        match opened {
            Ok(session) => {
                let welcome = session.standing.clone();
                self.streams.insert((node, connection), Some(session));
                Ok(Some(welcome))
            }
            Err(SessionError::Silent(_) | SessionError::Behind { .. }) => Err(Ended),
            Err(_) => Ok(None),
        }
    }

    /// Answers a renewal that came over a node's `connection`.
    pub(super) fn renew(
        &mut self,
        node: usize,
        incarnation: u64,
        connection: u64,
        (seen, request): (&Seen, RenewIn),
    ) -> Result<Option<Renewed>, Ended> {
        let welcome = self.open(node, incarnation, connection, seen)?;
        let (Some(service), Some(session)) = (&self.service, self.session(node, connection)) else {
            return Ok(None);
        };
        self.touched.set(true);
        match service.leasing().renew(session.client, session.session, request) {
            // There is no welcome here: its contents come with the first answer.
            Ok(renewed) => Ok(Some(Renewed { standing: renewed.standing.or(welcome), ..renewed })),
            Err(SessionError::Silent(_)) => Err(Ended),
            Err(_) => Ok(None),
        }
    }

    /// Ends a node's stream with its last reports. Whether they are on disk.
    pub(super) fn goodbye(&mut self, node: usize, connection: u64, seq: u64, reports: &[ReportIn]) -> bool {
        let (Some(service), Some(session)) = (&self.service, self.session(node, connection)) else {
            return false;
        };
        self.touched.set(true);
        let counted = service.leasing().goodbye(session.client, session.session, seq, reports);
        let durable = counted.is_some() && service.upkeep().flush().is_ok();
        self.streams.insert((node, connection), None);
        durable
    }

    fn session(&self, node: usize, connection: u64) -> Option<&Session> {
        self.streams.get(&(node, connection))?.as_ref()
    }

    /// How long the controller grants after it lost the disk.
    pub(super) fn fence(&self) -> Span {
        self.fence.unwrap_or_default()
    }

    /// Whether nodes get no more of a group than they prove to hold.
    pub(super) fn is_recovering(&self, id: GroupId) -> bool {
        let left = self.service.as_ref().and_then(|service| service.leasing().recovery_of(&name(id)).ok());
        left.is_some_and(|left| left > Span(0))
    }

    /// The leases of a group as they are counted: by node and incarnation.
    pub(super) fn leases(&self, id: GroupId) -> Vec<LeaseRow> {
        let table = self.service.as_ref().and_then(|service| service.leasing().leases(&name(id)).ok());
        table.map_or_else(Vec::new, |table| table.leases)
    }

    /// What the controller makes of a group's quota.
    pub(super) fn quota(&self, id: GroupId) -> Option<QuotaView> {
        let table = self.service.as_ref()?.leasing().leases(&name(id)).ok()?;
        table.groups.into_iter().find(|row| row.group.as_str() == name(id))?.quota
    }

    /// What is to be pushed to nodes.
    pub(super) fn lowers(&mut self) -> Vec<LowerOrder> {
        let mut orders = Vec::new();
        for ((node, _), session) in &mut self.streams {
            let Some(session) = session else { continue };
            while let Ok(Push::Lower(lowers)) = session.pushes.try_recv() {
                let named = |(name, rate): (GroupName, Rate)| Some((*node, group(name.as_str())?, rate));
                orders.extend(lowers.into_iter().filter_map(named));
            }
        }
        orders
    }

    /// I1 to I3, if anything was done since the last time.
    pub(super) fn check(&self) -> Result<(), String> {
        let service = self.service.as_ref().filter(|_| self.touched.take());
        service.map_or(Ok(()), Service::check)
    }

    /// The ledger's charges of a group from nodes for which `counts` is true.
    pub(super) fn charged(&self, id: GroupId, counts: impl Fn(usize) -> bool) -> Ru {
        let rows = self.service.as_ref().and_then(|service| service.accounts().usage(&name(id), true).ok());
        let by_node = rows.into_iter().flat_map(|(rows, _)| rows).filter_map(|row| {
            let node = row.client?.0.strip_prefix("node-")?.parse().ok()?;
            counts(node).then(|| row.total.ru().clamped())
        });
        by_node.sum()
    }

    /// The ledger's total of a group, and the sum over all nodes; nothing is folded in a run.
    pub(super) fn totals(&self, id: GroupId) -> (RuTotal, RuTotal) {
        let rows = self.service.as_ref().and_then(|service| service.accounts().usage(&name(id), true).ok());
        let (mut total, mut sum) = (RuTotal(0), RuTotal(0));
        for row in rows.into_iter().flat_map(|(rows, _)| rows) {
            let side = if row.client.is_none() { &mut total } else { &mut sum };
            *side += row.total.ru();
        }
        (total, sum)
    }

    /// What a group would have met under other settings.
    pub(super) fn what_if(&self, id: GroupId, wish: v1::WhatIfRequest) -> Result<v1::WhatIfReply, String> {
        let wish = v1::WhatIfRequest { group: name(id), ..wish };
        self.service()?.accounts().what_if(&wish).map_err(|error| error.to_string())
    }

    /// Counts reports as a last message of a node would.
    pub(super) fn report(&mut self, node: usize, incarnation: u64, reports: Vec<ReportIn>) {
        let newest = self.streams.range((node, 0)..=(node, u64::MAX)).next_back();
        let connection = newest.map_or(0, |((_, connection), _)| connection + 1);
        let request = RenewIn { reports, ..RenewIn::default() };
        let _ = self.renew(node, incarnation, connection, (&Seen::default(), request));
    }

    /// The service, to be asked for a change.
    fn service(&self) -> Result<&Service, String> {
        self.touched.set(true);
        self.service.as_ref().ok_or_else(|| "the controller is down".to_owned())
    }
}

/// The actor that changes definitions.
fn actor() -> Actor {
    Actor::new(None, "sim")
}

/// A node, as the controller knows it.
pub(super) fn client(node: usize) -> String {
    format!("node-{node}")
}

/// A group, as the controller knows it.
pub(super) fn name(id: GroupId) -> String {
    format!("g{}", id.0)
}

/// The group of a name.
pub(super) fn group(name: &str) -> Option<GroupId> {
    name.strip_prefix('g')?.parse().ok().map(GroupId)
}

/// The definition that says what a specification says, and whether the quota rolls.
pub(super) fn text(id: GroupId, spec: &GroupSpec, rolls: bool) -> v1::Group {
    let named = |id: GroupId| GroupName::parse(&name(id)).ok();
    let definition = Definition {
        parent: spec.parent.and_then(named),
        rate: spec.rate,
        burst: spec.burst,
        burstable: match spec.burstable {
            Burstable::Off => Bursting::Off,
            Burstable::Moderated(rate) => Bursting::Moderated(Some(rate)),
            Burstable::Unlimited => Bursting::Unlimited,
        },
        priority: spec.priority,
        weight: spec.weight,
        ttl: spec.ttl,
        renew_every: spec.renew_every.min(Span(spec.ttl.0 / 2)),
        fallback: spec.fallback,
        fallback_total: spec.fallback_total,
        max_debt: spec.max_debt,
        shadow: spec.shadow,
        policy: spec.policy,
        quota: spec.quota.map(|amount| Quota {
            amount,
            unit: spec.quota_unit,
            per: Period::Minute,
            rolls,
            zone: Zone::utc(),
        }),
        ..Definition::named(named(id).unwrap_or_else(GroupName::default_group))
    };
    definition.text()
}
