//! etcd, from 3.4 on, over its v3 API: the messages of `consensus/proto` without protoc, by HTTP/2 and TLS as tidegate's
//! other clients.
//!
//! One member is asked until a call to it has an unknown outcome; the next call goes to the next one. So a caller that
//! tries again finds a member that lives after at most as many calls as there are members.
//!
//! An answer may have 9 MiB, which 16 rows with values of 512 KiB fit into: one with more is [`Unknown`], so callers ask
//! for pages of that many. etcd itself refuses requests beyond 1.5 MiB, and more than 128 guards or steps of a list
//! (`--max-request-bytes`, `--max-txn-ops`).
//!
//! [`Unknown`]: ConsensusError::Unknown

mod fault;
mod message;
mod once;
mod session;
mod settings;
mod wire;

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::{Consensus, ConsensusError, Outcome, Page, Transaction};
use fault::Fault;
use message::Reading;
use session::{Cluster, Turn};
pub use settings::{EtcdError, EtcdSettings, Written};
use wire::{Ask, CompactionRequest, StatusRequest};

/// A cluster of etcd. Its calls block, and may come from any thread that may: what waits for the network is a thread of
/// its own.
pub struct Etcd {
    cluster: Arc<Cluster>,
    turn: Mutex<Arc<Turn>>,
    handle: Handle,
    /// Until it is dropped.
    runtime: Option<Runtime>,
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its address.
    pub member: String,
    /// Its version.
    pub version: String,
    /// Bytes of its file.
    pub size: u64,
    /// Of these, bytes that are in use; the others are for new rows.
    pub in_use: u64,
    /// Bytes that its file may have, if it says so: from 3.6 on.
    pub quota: Option<u64>,
}

impl Etcd {
    /// Checks the files that the settings name, and starts the thread. The first call connects.
    ///
    /// # Errors
    /// A file cannot be used, or there is no thread.
    pub fn new(settings: EtcdSettings) -> Result<Self, EtcdError> {
        settings.check_files()?;
        let runtime = Builder::new_multi_thread()
            // It only moves bytes between sockets and callers.
            .worker_threads(1)
            .thread_name("tidegate-etcd")
            .enable_all()
            .build()
            .map_err(|error| EtcdError::Thread(error.to_string()))?;
        Ok(Self {
            cluster: Arc::new(Cluster::new(settings)),
            turn: Mutex::new(Arc::new(Turn::of(0))),
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Which cluster answers, by etcd's own number; nothing before the first answer.
    pub fn cluster_id(&self) -> Option<u64> {
        self.cluster.id()
    }

    /// How the member is whose turn it is. With users, newer versions answer that to administrators only.
    ///
    /// # Errors
    /// As any call.
    pub fn status(&self, within: Duration) -> Result<MemberStatus, ConsensusError> {
        let turn = self.turn();
        let size = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        let status = self.call(&turn, StatusRequest {}, within, Ok);
        let status = status.map_err(|fault| self.error(&turn, fault, 0))?;
        Ok(MemberStatus {
            member: self.cluster.name(turn.member),
            version: status.version,
            size: size(status.db_size),
            in_use: size(status.db_size_in_use),
            quota: Some(size(status.db_size_quota)).filter(|quota| *quota > 0),
        })
    }

    /// One attempt. If it may have happened without an answer, the turn is the next member's.
    fn call<Q: Ask, T>(
        &self,
        turn: &Arc<Turn>,
        question: Q,
        within: Duration,
        read: impl FnOnce(Q::Answer) -> Result<T, String>,
    ) -> Result<T, Fault> {
        let (cluster, asked) = (Arc::clone(&self.cluster), Arc::clone(turn));
        let (answer, answered) = sync_channel(1);
        let task = self.handle.spawn(async move {
            // A caller whose time is over takes no answer.
            drop(answer.send(cluster.ask(&asked, question).await));
        });
        let answer = answered.recv_timeout(within).unwrap_or_else(|error| {
            task.abort();
            Err(Fault::Unknown(match error {
                RecvTimeoutError::Timeout => format!("no answer within {within:?}"),
                RecvTimeoutError::Disconnected => "the call was given up".to_owned(),
            }))
        });
        let answer = answer.and_then(|answer| read(answer).map_err(Fault::Unknown));
        if let Err(Fault::Unknown(_)) = &answer {
            self.move_on(turn);
        }
        answer
    }

    fn turn(&self) -> Arc<Turn> {
        Arc::clone(&self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the turn to the next member, over a new connection, unless another caller has.
    fn move_on(&self, failed: &Arc<Turn>) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&turn, failed) {
            let next = (failed.member + 1) % self.cluster.settings.members.len().max(1);
            *turn = Arc::new(Turn::of(next));
        }
    }

    fn error(&self, turn: &Turn, fault: Fault, revision: u64) -> ConsensusError {
        let member = self.cluster.name(turn.member);
        match fault {
            Fault::Unknown(reason) => ConsensusError::Unknown { member, reason },
            Fault::Refused(reason) => ConsensusError::Refused { member, reason },
            Fault::Full(reason) => ConsensusError::Full { member, reason },
            Fault::Compacted => ConsensusError::Compacted(revision),
        }
    }
}

impl Consensus for Etcd {
    fn transact(&self, transaction: &Transaction, within: Duration) -> Result<Outcome, ConsensusError> {
        let turn = self.turn();
        let question = message::transaction(transaction);
        let read = |answer| message::outcome(transaction, answer);
        self.call(&turn, question, within, read).map_err(|fault| self.error(&turn, fault, 0))
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        most: usize,
        at: Option<u64>,
        within: Duration,
    ) -> Result<Page, ConsensusError> {
        let turn = self.turn();
        let reading = Reading::new(from, to, most, at);
        // To etcd, revision 0 is the newest; to us it is what was before all others.
        let page = match at {
            Some(0) => Err(Fault::Compacted),
            _ => self.call(&turn, reading.request(), within, |answer| reading.page(answer)),
        };
        page.map_err(|fault| self.error(&turn, fault, at.unwrap_or_default()))
    }

    fn compact(&self, revision: u64, within: Duration) -> Result<(), ConsensusError> {
        let turn = self.turn();
        let question = CompactionRequest { revision: message::signed(revision) };
        match self.call(&turn, question, within, |_| Ok(())) {
            // It was done before.
            Err(Fault::Compacted) => Ok(()),
            done => done.map_err(|fault| self.error(&turn, fault, revision)),
        }
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = self.cluster_id().map(|id| format!("{id:016x}"));
        f.debug_struct("Etcd")
            .field("members", &self.cluster.settings.members)
            .field("cluster", &cluster)
            .finish_non_exhaustive()
    }
}

impl Drop for Etcd {
    /// Where a runtime must not wait for its threads, as in an async function, one must not be dropped.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_files_that_cannot_be_used_does_not_start() {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let (user, password_file) = (Some("u".to_owned()), Some("/nowhere/password".into()));
        let settings = Written { endpoints, user, password_file, ..Written::default() }.check().unwrap();
        let (key, said) = Etcd::new(settings).unwrap_err().parts();
        assert!(key == "etcd_password_file" && said.contains("/nowhere/password"), "{key}: {said}");
    }

    /// Both asked the member that failed. The next one keeps its connection, and its turn as well when it fails itself
    /// before the second of them comes.
    #[test]
    fn callers_that_fail_together_give_the_turn_away_once() {
        let endpoints = (1..=3).map(|port| format!("http://127.0.0.1:{port}")).collect();
        let settings = Written { endpoints, ..Written::default() }.check().unwrap();
        let store = Etcd::new(settings).unwrap();
        let first = store.turn();
        store.move_on(&first);
        let second = store.turn();
        store.move_on(&first);
        assert!(Arc::ptr_eq(&second, &store.turn()) && second.member == 1);
        store.move_on(&second);
        store.move_on(&first);
        assert_eq!(store.turn().member, 2);
        store.move_on(&store.turn());
        assert_eq!(store.turn().member, 0);
    }
}
