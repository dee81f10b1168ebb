//! The ledger on disk: what a commit of 100,000 active (client, group) pairs costs, once a second, beside a redb batch
//! of as many rows of the same size.
//!
//! Every row is one that was there before, as in a controller whose nodes are at work. The share is CPU time of the
//! process over a period of a second; a commit waits for the disk besides.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, Durability, TableDefinition};
use tidegate_client::{Consumption, Ru, RuParts};
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{RenewIn, ReportIn, Service, ServiceConfig};
use tidegate_controller::store::RedbStore;
use tidegate_controller::store::records::{CONSUMPTION_BYTES, ledger_key};
use tidegate_core::group::{ClientId, GroupId};

use super::clock::{Stopwatch, process_cpu};
use super::error::{BenchError, failed};
use super::messages;
use super::row::{Kind, MS, Mark, PERCENT, Row};
use super::samples::Samples;
use super::setting::Setting;
use super::site::capped;
use super::stock::Stock;

/// Nodes and groups; every node uses every group.
const CLIENTS: usize = 100;
const GROUPS: usize = 1_000;
const ROWS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("rows");

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
    let clients = setting.size(CLIENTS, CLIENTS / 10);
    let mut ledger = Ledger::start(&folder.path().join("store.redb"), clients)?;
    let batch = Batch::start(&folder.path().join("rows.redb"), clients)?;
    // CPU share of a second in percent, and milliseconds of wall time.
    let (mut ours, mut theirs) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for round in 0..=setting.rounds {
        ledger.consume()?;
        let (own, peer) = (timed(|| ledger.commit())?, timed(|| batch.commit(round))?);
        // The first makes the rows that the others replace.
        if round > 0 {
            ours.0.push(own.0);
            ours.1.push(own.1);
            theirs.0.push(peer.0);
            theirs.1.push(peer.1);
        }
    }
    let pairs = clients * GROUPS;
    let share = Row::new(format!("durability/{pairs} pairs, share of a core"), PERCENT, Samples::new(ours.0));
    let wall = Row::new(format!("durability/{pairs} pairs, commit"), MS, Samples::new(ours.1));
    Ok(vec![
        share.mark(Mark::AtMost(20.0)).beside(Kind::Peer, "redb batch", Samples::new(theirs.0), None),
        wall.beside(Kind::Peer, "redb batch", Samples::new(theirs.1), None),
    ])
}

/// CPU in percent of a second, and wall time in milliseconds.
fn timed(work: impl FnOnce() -> Result<(), BenchError>) -> Result<(f64, f64), BenchError> {
    let (watch, before) = (Stopwatch::start(), process_cpu());
    work()?;
    let cpu = process_cpu().saturating_sub(before);
    Ok((cpu.as_secs_f64() * 100.0, watch.elapsed().as_secs_f64() * 1e3))
}

/// A controller without listeners, and its nodes.
struct Ledger {
    service: Arc<Service>,
    sessions: Vec<(ClientId, u64)>,
    seq: u64,
}

impl Ledger {
    fn start(path: &Path, clients: usize) -> Result<Self, BenchError> {
        let groups = (0..GROUPS).map(|number| capped(messages::group_name(number), "100000"));
        Stock { groups, tenants: Vec::new() }.fill(path)?;
        let store = RedbStore::open(path).map_err(failed("open a store"))?;
        let settings = ServiceConfig::default();
        let service = Service::load(Arc::new(store), settings, Clock::start());
        let service = Arc::new(service.map_err(failed("load a store"))?);
        let mut sessions = Vec::new();
        for number in 0..clients {
            let session = service.leasing().hello(&format!("node-{number}"), 1, "bench");
            let session = session.map_err(failed("say hello"))?;
            sessions.push((session.client, session.session));
        }
        Ok(Self { service, sessions, seq: 0 })
    }

    /// Every node reports more of every group.
    fn consume(&mut self) -> Result<(), BenchError> {
        self.seq += 1;
        let grown = i64::try_from(self.seq).unwrap_or(i64::MAX);
        let total = Consumption {
            charged: RuParts { cpu: Ru::whole(10 * grown), read: Ru::whole(4 * grown), ..RuParts::default() },
            operations: 1_000 * self.seq,
            ..Consumption::default()
        };
        for (client, session) in &self.sessions {
            let reports = (0..GROUPS).map(|number| ReportIn {
                group: messages::group_name(number),
                incarnation: 0,
                total: Ok(total.into()),
                waited: Vec::new(),
            });
            let request = RenewIn { seq: self.seq, reports: reports.collect(), ..RenewIn::default() };
            let renewed = self.service.leasing().renew(*client, *session, request);
            renewed.map_err(|error| BenchError::Wrong(error.to_string()))?;
        }
        Ok(())
    }

    fn commit(&self) -> Result<(), BenchError> {
        self.service.upkeep().flush().map_err(failed("commit the ledger"))
    }
}

/// A table of as many rows.
struct Batch {
    database: Database,
    keys: Vec<Vec<u8>>,
}

impl Batch {
    fn start(path: &Path, clients: usize) -> Result<Self, BenchError> {
        let keys = (1..=clients).flat_map(|client| {
            (1..=GROUPS).filter_map(move |group| {
                let (client, group) = (u64::try_from(client).ok()?, u32::try_from(group).ok()?);
                Some(ledger_key(ClientId(client), GroupId(group)))
            })
        });
        let keys = keys.collect();
        Ok(Self { database: Database::create(path).map_err(failed("make a database"))?, keys })
    }

    fn commit(&self, round: usize) -> Result<(), BenchError> {
        let value = [u8::try_from(round % 251).unwrap_or(0); CONSUMPTION_BYTES];
        let mut transaction = self.database.begin_write().map_err(failed("begin a batch"))?;
        transaction.set_durability(Durability::Immediate).map_err(failed("begin a batch"))?;
        {
            let mut table = transaction.open_table(ROWS).map_err(failed("open a table"))?;
            for key in &self.keys {
                table.insert(key.as_slice(), value.as_slice()).map_err(failed("write a row"))?;
            }
        }
        transaction.commit().map_err(failed("commit a batch"))
    }
}
