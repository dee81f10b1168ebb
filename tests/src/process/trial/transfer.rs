//! Planned transfers in a cluster: the controller that leads is drained, again and again, while nodes hold many leases.
//!
//! The nodes are clients of this process, so all times are of one clock. A node renews ten times a second at most, so one
//! alone has grants 100 ms apart while nothing is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_client::{Client, Group, GroupError, Ru, RuParts};
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Setting;
use super::times::{Times, length, span};
use crate::process::controllers::Controllers;
use crate::process::error::{ClusterError, refused, within};
use crate::process::finding::found;

/// Controllers.
const THREE: usize = 3;
/// Definitions of one change.
const CHANGE: u64 = 1_000;
/// How long a drained controller leaves the lead to others: until the next transfer, to a third one.
const REST_US: u64 = 2_000_000;
/// Between two transfers: a node takes a session that lasted for less than 5 s for a failure.
const SETTLES: Duration = Duration::from_millis(5_500);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);
/// An operation of a group that has a lease waits for less than this.
const WAIT: Duration = Duration::from_millis(500);

/// What transfers came to.
#[derive(Clone, Debug, Default)]
pub struct Transfers {
    /// Leases that the nodes held.
    pub leases: u64,
    /// Nodes that held them.
    pub nodes: u64,
    /// From the last grant of one controller to the first of the next, to any node.
    pub without_grants: Times,
    /// From the last grant of one controller until each node has one of the next.
    pub all_granted: Times,
    /// From the answer to the drain until the next one says that it leads.
    pub led: Times,
    /// How often the next one recovered, or began another epoch.
    pub recoveries: u64,
    /// Operations that nodes were refused, of all.
    pub refused: (u64, u64),
}

/// Drains the controller that leads so many times, while so many nodes hold so many leases together.
///
/// # Errors
/// A process does not do what it should.
pub async fn transfers(
    setting: &Setting,
    leases: u64,
    nodes: u64,
    times: u64,
) -> Result<Transfers, ClusterError> {
    let mut controllers = Controllers::new(&setting.folder, &setting.load_node, THREE)?;
    (0..THREE).try_for_each(|index| controllers.start(index))?;
    let (leader, _) = controllers.successor(None).await?;
    define(&controllers, leader, leases).await?;
    let client = |number| Client::builder(controllers.endpoints(), format!("holder-{number}")).start();
    let clients: Result<Vec<Client>, _> = (0..nodes.max(1)).map(client).collect();
    let clients = clients.map_err(|error| refused("start a node", error))?;
    // Side by side: each waits for an answer, and for a lease.
    let mut finding = JoinSet::new();
    for (number, client) in (0..leases).zip(clients.iter().cycle()) {
        let client = client.clone();
        finding.spawn(async move {
            let group = found(&client, &name(number)).await?;
            while group.acquire(Ru::whole(1), WAIT).await.is_err() {}
            Ok::<_, GroupError>(group)
        });
    }
    let mut groups = Vec::new();
    while let Some(group) = finding.join_next().await {
        let group = group.map_err(|error| refused("find a group", error))?;
        groups.push(group.map_err(|error| refused("find a group", error))?);
    }
    let (stop, counts) = (Arc::<AtomicBool>::default(), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
    let task = tokio::spawn(use_all(groups, Arc::clone(&stop), Arc::clone(&counts)));
    let mut outcome = Transfers { leases, nodes: nodes.max(1), ..Transfers::default() };
    for _ in 0..times {
        tokio::time::sleep(SETTLES).await;
        let (leader, epoch) = controllers.successor(None).await?;
        let gap = tokio::spawn(gap(clients.clone()));
        let wish = v1::DrainControllerRequest { controller: format!("c{leader}"), rest_us: REST_US };
        let drained = controllers.admin(leader).await?.drain_controller(wish).await;
        drained.map_err(|status| refused("drain", status))?;
        let from = Instant::now();
        let (next, later) = controllers.successor(Some(leader)).await?;
        outcome.led.add(span(from));
        let status = controllers.admin(next).await?.status(v1::StatusRequest {}).await;
        let status = status.map_err(|status| refused("ask for the status", status))?.into_inner();
        outcome.recoveries += u64::from(status.recovery_us > 0 || later != epoch);
        let gap = within("a grant", gap).await?;
        let [first, all] = gap.map_err(|error| refused("wait for a grant", error))?;
        outcome.without_grants.add(first);
        outcome.all_granted.add(all);
    }
    stop.store(true, Ordering::Relaxed);
    let _ = task.await;
    for client in clients {
        let _ = client.shutdown().await;
    }
    let [admitted, lost] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    outcome.refused = (lost, lost + admitted);
    Ok(outcome)
}

fn name(number: u64) -> String {
    format!("g{number}")
}

/// Defines the groups, many in each change.
async fn define(controllers: &Controllers, leader: usize, leases: u64) -> Result<(), ClusterError> {
    let step = |number: u64| {
        let group = v1::Group { name: name(number), ru_per_sec: "100".to_owned(), ..v1::Group::default() };
        v1::Step { kind: Some(Kind::Group(Box::new(group))) }
    };
    let mut admin = controllers.admin(leader).await?;
    for first in (0..leases).step_by(usize::try_from(CHANGE).unwrap_or(1)) {
        let steps = (first..leases.min(first + CHANGE)).map(step).collect();
        let applied = admin.apply(v1::ApplyRequest { steps, ..v1::ApplyRequest::default() }).await;
        applied.map_err(|status| refused("define groups", status))?;
    }
    Ok(())
}

/// Operations in all groups in turn, as the machine has time, so that each keeps its lease.
async fn use_all(groups: Vec<Group>, stop: Arc<AtomicBool>, counts: Arc<[AtomicU64; 2]>) {
    let [admitted, lost] = &*counts;
    for (number, group) in groups.iter().cycle().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match group.acquire(Ru::whole(1), WAIT).await {
            Ok(permit) => {
                permit.settle_ru(RuParts::flat(Ru::whole(1)));
                admitted.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => drop(lost.fetch_add(1, Ordering::Relaxed)),
        }
        // 2,000 a second.
        if number.is_multiple_of(10) {
            tokio::time::sleep(5 * LOOK).await;
        }
    }
}

/// From the last grant of the controller that is in use to the first of the next one, and until each node has one.
async fn gap(clients: Vec<Client>) -> [tidegate_core::units::Span; 2] {
    let before: Vec<_> = clients.iter().map(|client| client.link().endpoint).collect();
    let mut grants: Vec<u64> = clients.iter().map(|client| client.counts().grants).collect();
    let (mut last, mut first, mut waiting) = (Instant::now(), None, vec![true; clients.len()]);
    while waiting.contains(&true) {
        for (((client, before), grants), waits) in
            clients.iter().zip(&before).zip(&mut grants).zip(&mut waiting)
        {
            let granted = client.counts().grants;
            if granted <= *grants {
                continue;
            }
            *grants = granted;
            let now = Instant::now();
            if client.link().endpoint == *before {
                last = now;
            } else {
                *waits = false;
                first.get_or_insert(now);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    [first.unwrap_or(last), Instant::now()].map(|at| length(at.saturating_duration_since(last)))
}
