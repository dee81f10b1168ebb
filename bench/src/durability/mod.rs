//! The ledger on disk: what a commit of 100,000 active (client, group) pairs costs, once a second, beside a redb batch
//! of as many rows of the same size.
//!
//! Every row is one that was there before, as in a controller whose nodes are at work. The share is CPU time of the
//! process over a period of a second; a commit waits for the disk besides.

mod ledger;
pub mod shared;

use std::path::Path;
use std::sync::Arc;

use redb::{Database, Durability, TableDefinition};
use tidegate_controller::service::ServiceConfig;
use tidegate_controller::store::RedbStore;
use tidegate_controller::store::records::{CONSUMPTION_BYTES, ledger_key};
use tidegate_core::group::{ClientId, GroupId};

use crate::clock::{Stopwatch, process_cpu};
use crate::error::{BenchError, failed};
use crate::row::{Kind, MS, Mark, PERCENT, Row};
use crate::samples::Samples;
use crate::setting::Setting;
use ledger::{CLIENTS, GROUPS, Ledger};

const ROWS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("rows");

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
    let clients = setting.size(CLIENTS, CLIENTS / 10);
    let path = folder.path().join("store.redb");
    ledger::stock(&path)?;
    let store = RedbStore::open(&path).map_err(failed("open a store"))?;
    let mut ledger = Ledger::start(Arc::new(store), ServiceConfig::default(), clients)?;
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
