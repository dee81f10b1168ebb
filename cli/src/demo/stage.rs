//! Sets the demo up: databases, costs of this machine, controller, groups, users, nodes.

use std::path::Path;

use tidegate_proto::v1;

use super::calibrate::Calibration;
use super::controllers::Controllers;
use super::database::{self, Scale};
use super::nodes::{Nodes, Site};
use super::plan::{NODES, Plan, TTL, TTL_OF_SEVERAL};
use super::progress::Progress;
use super::takeover::Witness;
use super::workload::Workload;
use crate::admin::Admin;
use crate::clock::monotonic_us;
use crate::error::CliError;

/// Everything that runs.
pub(crate) struct Stage {
    pub(crate) plan: Plan,
    pub(crate) controllers: Controllers,
    pub(crate) admin: Admin,
    pub(crate) nodes: Nodes,
    /// With several controllers: a node that sees when the next one grants.
    pub(crate) witness: Option<Witness>,
    /// Before the first node was started, on the machine's clock.
    pub(crate) from_us: u64,
}

impl Stage {
    /// Sets up for a run of `seconds`.
    pub(crate) async fn set(
        dir: &Path,
        orders: u32,
        seconds: u64,
        cluster: bool,
        progress: &mut Progress,
    ) -> Result<Self, CliError> {
        let scale = Scale::of(orders);
        let costs = databases(dir, scale, progress).await?;
        let plan = Plan::new(&costs, seconds, if cluster { TTL_OF_SEVERAL } else { TTL });
        for (job, cost) in &costs.jobs {
            progress.event(&format!(
                "  one {job:?} costs {} (at most {}) and {} us of CPU",
                cost.mean,
                cost.largest,
                cost.cpu_ns / 1_000
            ));
        }
        let controllers = match cluster {
            false => Controllers::alone(dir, plan.capacity).await?,
            true => Controllers::cluster(dir, plan.capacity).await?,
        };
        let admin = controllers.leader().await?;
        let endpoint = controllers.endpoint();
        let which = if cluster { "three controllers on three members of etcd" } else { "a controller" };
        progress.event(&format!("started {which}; the server's capacity is {}", plan.capacity));
        define(&admin, &plan, progress).await?;
        let witness = if cluster { Some(Witness::new(&admin, &endpoint, plan.ttl).await?) } else { None };
        let site = Site { dir: dir.to_owned(), endpoint };
        let mut nodes = Nodes::new(site.clone())?;
        let from_us = monotonic_us();
        for (number, name) in names().enumerate() {
            let workload = Workload {
                scale,
                seed: u64::try_from(number).unwrap_or_default().saturating_add(1),
                users: plan.users.iter().map(|(load, _)| load.clone()).collect(),
                costs: costs.statements.clone(),
            };
            workload.write(&site.workload(&name))?;
            nodes.start(&name).await?;
        }
        progress.event(&format!("started {NODES} nodes, a process each; warming up"));
        Ok(Self { plan, controllers, admin, nodes, witness, from_us })
    }
}

/// Names of the nodes.
pub(crate) fn names() -> impl Iterator<Item = String> {
    (1..=NODES).map(|number| format!("node-{number}"))
}

/// Builds a database, measures costs on it, and copies it for each node.
async fn databases(dir: &Path, scale: Scale, progress: &mut Progress) -> Result<Calibration, CliError> {
    let first = dir.join("node-1.db");
    let (percents, mut told) = tokio::sync::mpsc::unbounded_channel();
    let path = first.clone();
    let building = tokio::task::spawn_blocking(move || {
        // The receiver is gone when the demo was interrupted.
        database::build(&path, scale, |percent| {
            let _ = percents.send(percent);
        })
    });
    while let Some(percent) = told.recv().await {
        progress.percent(&format!("building a database of {} orders ..", scale.orders), percent);
    }
    joined(building.await)?;
    progress.event("measuring what the workload costs on this machine ..");
    let path = first.clone();
    let costs = joined(tokio::task::spawn_blocking(move || Calibration::measure(&path, scale)).await)?;
    for name in names().skip(1) {
        let copy = dir.join(format!("{name}.db"));
        tokio::fs::copy(&first, &copy).await.map_err(CliError::file("copy the database to", &copy))?;
    }
    Ok(costs)
}

fn joined<T>(done: Result<Result<T, CliError>, tokio::task::JoinError>) -> Result<T, CliError> {
    done.map_err(|error| CliError::Process { what: "database".to_owned(), reason: error.to_string() })?
}

/// Creates the groups and binds the users.
async fn define(admin: &Admin, plan: &Plan, progress: &mut Progress) -> Result<(), CliError> {
    for group in &plan.groups {
        let request =
            v1::CreateGroupRequest { group: Some(group.definition(plan.ttl)), if_not_exists: false };
        admin.calls().create_group(request).await.map_err(admin.failed())?;
        let borrowing = group.borrow_to.map(|rate| format!(", may borrow up to {rate}")).unwrap_or_default();
        let parent = if group.parent.is_empty() { String::new() } else { format!(" below {}", group.parent) };
        progress.event(&format!(
            "  group {}{parent}: {}{borrowing}, burst {}, priority {}: {}",
            group.name, group.rate, group.burst, group.priority, group.comment
        ));
    }
    for (load, group) in &plan.users {
        let binding =
            v1::Binding { tenant: load.tenant.clone(), user: load.user.clone(), group: (*group).to_owned() };
        let request = v1::BindRequest { binding: Some(binding) };
        admin.calls().bind(request).await.map_err(admin.failed())?;
    }
    Ok(())
}
