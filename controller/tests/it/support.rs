//! A controller in a scratch directory, and clients for it.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{RenewIn, ReportIn, Service, ServiceConfig, Session};
use tidegate_controller::store::{Store, StoreError, Table, Visit, VisitAll, Write};
use tidegate_controller::{Config, Controller, Running};
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::client_message::Kind as Ask;
use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_proto::v1::server_message::Kind as Answer;
use tidegate_proto::v1::statements_client::StatementsClient;
use tidegate_test_servers::said;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Bound of every wait: nothing here takes long, and a test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The seeds of a test that tells stories: `usual` of them, or as many as `STORIES` says.
pub(crate) fn stories(usual: u64) -> Range<u64> {
    let said = std::env::var("STORIES").ok();
    0..said.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("STORIES={text}: write a number")))
}

/// A controller and its store.
pub(crate) struct Lab {
    pub(crate) folder: TempDir,
    pub(crate) running: Running,
}

/// Settings with free ports and the store in `folder`.
pub(crate) fn config(folder: &TempDir) -> Config {
    said::listen();
    Config {
        store: store_path(folder),
        grpc_listen: "127.0.0.1:0".parse().unwrap(),
        http_listen: "127.0.0.1:0".parse().unwrap(),
        ..Config::default()
    }
}

pub(crate) fn store_path(folder: &TempDir) -> PathBuf {
    folder.path().join("store.redb")
}

impl Lab {
    pub(crate) async fn start() -> Self {
        Self::at(tempfile::tempdir().unwrap()).await
    }

    pub(crate) async fn at(folder: TempDir) -> Self {
        let running = Controller::start(config(&folder)).await.unwrap();
        Self { folder, running }
    }

    /// Stops cleanly and starts again.
    pub(crate) async fn restart(self) -> Self {
        self.running.shutdown().await.unwrap();
        Self::at(self.folder).await
    }

    /// Crashes and starts again.
    pub(crate) async fn crash(self) -> Self {
        self.running.abort().await;
        Self::at(self.folder).await
    }

    pub(crate) async fn channel(&self) -> Channel {
        let address = format!("http://{}", self.running.grpc_addr);
        Channel::from_shared(address).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel().await)
    }

    pub(crate) async fn grants(&self) -> GrantsClient<Channel> {
        GrantsClient::new(self.channel().await)
    }

    pub(crate) async fn statements(&self) -> StatementsClient<Channel> {
        StatementsClient::new(self.channel().await)
    }

    /// Creates a group with a limit.
    pub(crate) async fn group(&self, name: &str, rate: &str) {
        let request = v1::CreateGroupRequest { group: Some(group(name, rate)), if_not_exists: false };
        self.admin().await.create_group(request).await.unwrap();
    }

    /// Deletes a group that nothing uses.
    pub(crate) async fn delete(&self, name: &str) {
        let request = v1::DeleteGroupRequest { name: name.to_owned(), ..v1::DeleteGroupRequest::default() };
        self.admin().await.delete_group(request).await.unwrap();
    }

    /// One REST request.
    pub(crate) async fn http(&self, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
        let (status, text) =
            self.http_text(method, path, "application/json", body.unwrap_or_default().as_bytes()).await;
        let json = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (status, json)
    }

    pub(crate) async fn http_text(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &[u8],
    ) -> (u16, String) {
        let mut stream = TcpStream::connect(self.running.rest_addr).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-tidegate-actor: tester\r\n\
             content-type: {media}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The controller refuses a body that is too large before it has read all of it.
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }
}

pub(crate) fn group(name: &str, rate: &str) -> v1::Group {
    v1::Group { name: name.to_owned(), ru_per_sec: rate.to_owned(), ..v1::Group::default() }
}

/// An open grant stream.
pub(crate) struct Node {
    asks: mpsc::Sender<v1::ClientMessage>,
    answers: Streaming<v1::ServerMessage>,
    pub(crate) welcome: v1::Welcome,
    pub(crate) seq: u64,
}

impl Node {
    pub(crate) async fn connect(lab: &Lab, client: &str, incarnation: u64) -> Result<Self, Status> {
        let hello = v1::Hello {
            protocol_min: 1,
            protocol_max: 1,
            client_id: client.to_owned(),
            incarnation,
            agent: "test/1".to_owned(),
            ..v1::Hello::default()
        };
        Self::open(lab, Ask::Hello(hello)).await
    }

    /// Opens a stream with any first message.
    pub(crate) async fn open(lab: &Lab, first: Ask) -> Result<Self, Status> {
        let (asks, stream) = mpsc::channel(16);
        asks.send(v1::ClientMessage { kind: Some(first) }).await.unwrap();
        let answers = lab.grants().await.session(ReceiverStream::new(stream)).await?.into_inner();
        let mut node = Self { asks, answers, welcome: v1::Welcome::default(), seq: 0 };
        match node.next().await? {
            Answer::Welcome(welcome) => node.welcome = welcome,
            other => panic!("a welcome was expected: {other:?}"),
        }
        Ok(node)
    }

    pub(crate) async fn send(&self, kind: Option<Ask>) {
        self.asks.send(v1::ClientMessage { kind }).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Result<Answer, Status> {
        let message = timeout(PATIENCE, self.answers.message()).await.unwrap()?;
        message.and_then(|message| message.kind).ok_or_else(|| Status::ok("the stream ended"))
    }

    /// Sends a renewal and waits for its answer; ignores pushes in between.
    pub(crate) async fn renew(
        &mut self,
        entries: Vec<v1::RenewEntry>,
        reports: Vec<v1::Report>,
    ) -> Result<v1::Granted, Status> {
        self.renew_as(v1::Renew { entries, reports, ..v1::Renew::default() }).await
    }

    /// The same for a given message, whose number is set here.
    pub(crate) async fn renew_as(&mut self, renew: v1::Renew) -> Result<v1::Granted, Status> {
        self.seq += 1;
        self.send(Some(Ask::Renew(v1::Renew { seq: self.seq, ..renew }))).await;
        loop {
            if let Answer::Granted(granted) = self.next().await? {
                assert_eq!(granted.seq, self.seq);
                return Ok(granted);
            }
        }
    }

    /// Renews with reports until they are on disk.
    pub(crate) async fn report(&mut self, reports: Vec<v1::Report>) {
        self.renew(Vec::new(), reports).await.unwrap();
        let wanted = self.seq;
        while self.renew(Vec::new(), Vec::new()).await.unwrap().durable_seq < wanted {}
    }
}

/// An entry that asks for `demand` RU/s.
pub(crate) fn entry(group: &str, demand_ru: i64) -> v1::RenewEntry {
    v1::RenewEntry {
        group: group.to_owned(),
        demand_rate: demand_ru * 1_000_000,
        ..v1::RenewEntry::default()
    }
}

/// A cumulative report of `ru` and as many operations.
pub(crate) fn report(group: &str, incarnation: u64, ru: u32) -> v1::Report {
    let total = v1::Consumption {
        write_micro_ru: i64::from(ru) * 1_000_000,
        operations: u64::from(ru),
        ..v1::Consumption::default()
    };
    v1::Report { group: group.to_owned(), incarnation, total: Some(total), ..v1::Report::default() }
}

/// A controller without a network, over this store and by this clock.
pub(crate) fn started(store: &Arc<impl Store + 'static>, now: &Arc<AtomicU64>) -> Service {
    let store = Arc::clone(store) as Arc<dyn Store>;
    Service::load(store, ServiceConfig::default(), Clock::driven(Arc::clone(now))).unwrap()
}

/// Reports, without a network, what a start has charged to `default` so far.
pub(crate) fn tell(service: &Service, session: &Session, seq: u64, incarnation: u64, ru: i64) {
    let charged = RuParts { write: Ru::whole(ru), ..RuParts::default() };
    let total = Ok(Consumption { charged, operations: 1, ..Consumption::default() }.into());
    let report = ReportIn { group: "default".into(), incarnation, total, waited: Vec::new() };
    let request = RenewIn { seq, reports: vec![report], ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, request).unwrap();
}

/// Who changes definitions.
pub(crate) fn actor() -> Actor {
    Actor::new(None, "test")
}

/// Micro-RU that a group was charged for writes, from the admin API.
pub(crate) async fn charged(lab: &Lab, group: &str) -> i64 {
    let request = v1::UsageRequest { group: group.to_owned(), per_client: false };
    let rows = lab.admin().await.usage(request).await.unwrap().into_inner().rows;
    rows[0].total.as_ref().unwrap().write_micro_ru
}

/// What a store does of which another one is not in the way: all but commits, unless the methods are named.
macro_rules! pass_on {
    ($disk:tt) => {
        pass_on!($disk: scan, get, copy, seal, break_seal);
    };
    ($disk:tt: $($method:ident),+) => {
        $(pass_on!(@$method $disk);)+
    };
    (@commit $disk:tt) => {
        fn commit(
            &self,
            batch: &[tidegate_controller::store::Write],
        ) -> Result<(), tidegate_controller::store::StoreError> {
            self.$disk.commit(batch)
        }
    };
    (@scan $disk:tt) => {
        fn scan(
            &self,
            table: tidegate_controller::store::Table,
            from: &[u8],
            visit: &mut tidegate_controller::store::Visit<'_>,
        ) -> Result<(), tidegate_controller::store::StoreError> {
            self.$disk.scan(table, from, visit)
        }
    };
    (@get $disk:tt) => {
        fn get(
            &self,
            table: tidegate_controller::store::Table,
            keys: &[Vec<u8>],
        ) -> Result<Vec<Option<Vec<u8>>>, tidegate_controller::store::StoreError> {
            self.$disk.get(table, keys)
        }
    };
    (@copy $disk:tt) => {
        fn copy(
            &self,
            visit: &mut tidegate_controller::store::VisitAll<'_>,
        ) -> Result<(), tidegate_controller::store::StoreError> {
            self.$disk.copy(visit)
        }
    };
    (@seal $disk:tt) => {
        fn seal(&self) -> Result<String, tidegate_controller::store::StoreError> {
            self.$disk.seal()
        }
    };
    (@break_seal $disk:tt) => {
        fn break_seal(&self) -> Result<Option<String>, tidegate_controller::store::StoreError> {
            self.$disk.break_seal()
        }
    };
}
pub(crate) use pass_on;

/// A store that fails to write at times: its disk is full, or is at another machine.
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    pub(crate) full: AtomicBool,
    /// Commits that are still written once it is full.
    pub(crate) last: AtomicU64,
    /// What fails is written all the same: only the answer is lost.
    pub(crate) unheard: AtomicBool,
}

impl Faulty {
    pub(crate) fn over(inner: Arc<dyn Store>) -> Self {
        let (full, unheard) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { inner, full, last: AtomicU64::new(0), unheard }
    }

    /// Is full from now on, before the next commit, or has room.
    pub(crate) fn fill(&self, full: bool) {
        self.last.store(0, Ordering::SeqCst);
        self.full.store(full, Ordering::SeqCst);
    }

    fn fails(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        self.full.load(Ordering::SeqCst)
            && self.last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err()
    }
}

impl Store for Faulty {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        if self.fails() {
            if self.unheard.load(Ordering::SeqCst) {
                self.inner.commit(batch)?;
            }
            return Err(StoreError::Failed {
                operation: "commit a change",
                reason: "no space left on device".into(),
            });
        }
        self.inner.commit(batch)
    }

    pass_on!(inner);
}

/// A store without a disk, for tests that make more commits than a disk can in a moment.
#[derive(Default)]
pub(crate) struct MemoryStore(Mutex<Rows>, AtomicBool);

/// What a store has now, in memory.
pub(crate) fn copy(store: &dyn Store) -> Arc<MemoryStore> {
    let copy = Arc::new(MemoryStore::default());
    let mut rows = Vec::new();
    let visited = store.copy(&mut |table, key, value| {
        rows.push(Write::Put(table, key.to_vec(), value.to_vec()));
        Ok(ControlFlow::Continue(()))
    });
    visited.unwrap();
    copy.commit(&rows).unwrap();
    copy
}

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

impl Store for MemoryStore {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let mut rows = self.0.lock().unwrap();
        for write in batch {
            match write.clone() {
                Write::Put(table, key, value) => drop(rows.insert((table, key), value)),
                Write::Delete(table, key) => drop(rows.remove(&(table, key))),
                Write::DeleteBelow(table, below) => rows.retain(|(of, key), _| *of != table || *key >= below),
            }
        }
        Ok(())
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let rows = self.0.lock().unwrap();
        for ((_, key), value) in rows.range((table, from.to_vec())..).take_while(|((of, _), _)| *of == table)
        {
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let rows = self.0.lock().unwrap();
        Ok(keys.iter().map(|key| rows.get(&(table, key.clone())).cloned()).collect())
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        let rows = self.0.lock().unwrap().clone();
        for ((table, key), value) in &rows {
            if visit(*table, key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn seal(&self) -> Result<String, StoreError> {
        self.1.store(true, Ordering::SeqCst);
        Ok("memory".to_owned())
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        Ok(self.1.swap(false, Ordering::SeqCst).then(|| "memory".to_owned()))
    }
}
