//! A controller without listeners, and nodes that report to it.

use std::path::Path;
use std::sync::Arc;

use tidegate_client::{Consumption, Ru, RuParts, Usage};
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{RenewIn, ReportIn, Service, ServiceConfig};
use tidegate_controller::store::Store;
use tidegate_core::group::ClientId;

use crate::error::{BenchError, failed};
use crate::messages;
use crate::site::capped;
use crate::stock::Stock;

/// Nodes and groups; every node uses every group.
pub(super) const CLIENTS: usize = 100;
pub(super) const GROUPS: usize = 1_000;

/// A controller and its nodes.
pub(super) struct Ledger {
    pub(super) service: Service,
    pub(super) nodes: Vec<Node>,
}

/// A node.
pub(super) struct Node {
    client: ClientId,
    session: u64,
    /// The number of its last renewal.
    seq: u64,
}

/// Writes a store with the groups.
pub(super) fn stock(path: &Path) -> Result<(), BenchError> {
    let groups = (0..GROUPS).map(|number| capped(messages::group_name(number), "100000"));
    Stock { groups, tenants: Vec::new() }.fill(path)
}

impl Ledger {
    /// A controller on a store with the groups, and so many nodes.
    pub(super) fn start(
        store: Arc<dyn Store>,
        settings: ServiceConfig,
        nodes: usize,
    ) -> Result<Self, BenchError> {
        let service = Service::load(store, settings, Clock::start()).map_err(failed("load a store"))?;
        let connect = |number| {
            let session = service.leasing().hello(&format!("node-{number}"), 1, "bench");
            let session = session.map_err(failed("say hello"))?;
            Ok(Node { client: session.client, session: session.session, seq: 0 })
        };
        let nodes = (0..nodes).map(connect).collect::<Result<_, BenchError>>()?;
        Ok(Self { service, nodes })
    }

    /// Every node reports more of every group.
    pub(super) fn consume(&mut self) -> Result<(), BenchError> {
        let Self { service, nodes } = self;
        nodes.iter_mut().try_for_each(|node| node.report(service))
    }

    pub(super) fn commit(&self) -> Result<(), BenchError> {
        commit(&self.service)
    }
}

/// Stores what was reported so far.
pub(super) fn commit(service: &Service) -> Result<(), BenchError> {
    service.upkeep().flush().map_err(failed("commit the ledger"))
}

impl Node {
    /// Reports more of every group.
    pub(super) fn report(&mut self, service: &Service) -> Result<(), BenchError> {
        self.seq += 1;
        // Reads of some rows a second: nine counters grow.
        let operations = 1_000 * self.seq;
        let ru = |each: u64| Ru(i64::try_from(each * operations).unwrap_or(i64::MAX));
        let total = Consumption {
            charged: RuParts {
                cpu: ru(333_333),
                read: ru(270_000),
                network: ru(4_096),
                ..RuParts::default()
            },
            operations,
            usage: Usage {
                cpu_ns: 1_000_000 * operations,
                read_requests: operations,
                read_batches: operations,
                read_bytes: 1_300 * operations,
                net_out_bytes: 900 * operations,
                ..Usage::default()
            },
            ..Consumption::default()
        };
        let reports = (0..GROUPS).map(|number| ReportIn {
            group: messages::group_name(number),
            incarnation: 0,
            total: Ok(total.into()),
            waited: Vec::new(),
        });
        let request = RenewIn { seq: self.seq, reports: reports.collect(), ..RenewIn::default() };
        let renewed = service.leasing().renew(self.client, self.session, request);
        renewed.map(drop).map_err(|error| BenchError::Wrong(error.to_string()))
    }
}
