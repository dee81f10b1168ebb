//! Going on with a log that was set back, because etcd was restored from a backup.
//!
//! Controllers whose files are ahead of such a log refuse to start: numbers of epochs, groups and nodes that were given
//! since the backup would be given again with another meaning. This takes the log as a controller does, stores in it that
//! all these numbers are used, and leaves it as after a crash: the next controller leads a later epoch than the one that
//! the file knows, and recovers for the longest lease that either of both knows. Then it gives the log another word, by
//! which each file that follows it until now is of another log: its controller puts it aside, and builds it again. Last
//! of all the file is put aside here, so that this can be repeated wherever it was cut off.
//!
//! Nobody may lead meanwhile, or stand by: a standby that runs on would not notice that the log was set back.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_consensus::Consensus;
use tidegate_consensus::etcd::{Etcd, EtcdError};
use tidegate_core::engine::EngineConfig;
use tidegate_core::units::{Span, Time};

use super::lost::Lost;
use super::observer::{Observer, Sign, Verdict};
use super::roster::GONE;
use super::standby::{fence, shown_as};
use crate::clock::Clock;
use crate::config::{Config, FENCE_OF_A_CLUSTER};
use crate::definitions::audit::{Actor, Audit, Change};
use crate::restore::{CopyError, move_aside};
use crate::server::settings;
use crate::service::meta::Meta;
use crate::store::records::{
    META_CLEAN, META_EPOCH, META_LONGEST_TTL, META_NEXT_CLIENT, META_NEXT_GROUP, META_NEXT_TOKEN,
    META_NEXT_WATCH, META_REVISION, StoredGroup, json, put_json, put_number,
};
use crate::store::replicated::{
    FilePlace, Follower, Footing, MemberRecord, Members, Owner, ReplicatedStore, Seen, Settings,
};
use crate::store::{Batch, RedbStore, Store, StoreError, Table, Write, each};

/// How long etcd may not answer: members elect a leader in a few seconds. With more, an operator who mistyped an address
/// waits for nothing.
const PATIENCE: Span = Span::secs(10);
/// Rows of groups in a batch: some hundred kilobytes.
const ROWS: usize = 1_000;
/// Counters of which the next number is stored.
const COUNTERS: [&[u8]; 4] = [META_NEXT_GROUP, META_NEXT_CLIENT, META_NEXT_WATCH, META_NEXT_TOKEN];

/// A cluster that goes on with a log that was set back.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The new word of the log.
    pub cluster: String,
    /// The next controller leads a later epoch.
    pub epoch: u64,
    /// The last segment of the log as it was restored.
    pub kept: u64,
    /// The last segment that the file had.
    pub had: u64,
    /// What the file had more.
    pub lost: Lost,
    /// Where the file is now.
    pub aside: PathBuf,
}

/// Why a cluster does not go on with its log.
#[derive(Debug, thiserror::Error)]
pub enum RestoredError {
    /// The settings are those of a single controller.
    #[error("no cluster is configured; write the members of etcd to etcd_endpoints (--etcd)")]
    NoCluster,
    /// There is no file.
    #[error(
        "there is no store {path}; name the data of a controller that refuses to start because etcd was set back"
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file is one of a single controller.
    #[error(
        "the store {path} follows no log of a cluster; name the data of one of the cluster's controllers"
    )]
    OfNoLog {
        /// The file.
        path: PathBuf,
    },
    /// Nothing is in etcd.
    #[error(
        "etcd has no log under {prefix}; check the prefix, and that the backup was restored; to begin an empty cluster \
         with {path}, start its controller with --cluster-seed"
    )]
    NoLog {
        /// The file.
        path: PathBuf,
        /// The prefix of the cluster.
        prefix: String,
    },
    /// The file is of another cluster, or this was done before.
    #[error(
        "the store {path} is of the cluster {theirs}, and the log under {prefix} of the cluster {ours}; check the members \
         of etcd and the prefix; if `cluster restored` was run before, start the controllers"
    )]
    OfAnother {
        /// The file.
        path: PathBuf,
        /// The word of its log.
        theirs: String,
        /// The prefix of the cluster.
        prefix: String,
        /// The word of the log there.
        ours: String,
    },
    /// The log was not set back.
    #[error(
        "the log under {prefix} has all that the store {path} has, up to segment {n}, so it was not set back; start the \
         controllers, or name the data of one that refuses to start"
    )]
    NotAhead {
        /// The file.
        path: PathBuf,
        /// The prefix of the cluster.
        prefix: String,
        /// The last segment of the file.
        n: u64,
    },
    /// The owner's record is gone.
    #[error(
        "the log under {prefix} has no owner, so nobody can tell whether one still speaks; start a controller with an empty \
         data folder, stop it once it leads, and run this again"
    )]
    NoOwner {
        /// The prefix of the cluster.
        prefix: String,
    },
    /// A controller leads.
    #[error(
        "controller {leader} leads the cluster under {prefix}; stop all of its controllers, and run this again"
    )]
    Leads {
        /// The controller, and where it is.
        leader: String,
        /// The prefix of the cluster.
        prefix: String,
    },
    /// A controller stands by, or starts again and again.
    #[error(
        "controller {name} at {addresses} of the cluster under {prefix} runs; stop all of its controllers, also what \
         starts them again, and run this again"
    )]
    Runs {
        /// Its name.
        name: String,
        /// Where it is.
        addresses: String,
        /// The prefix of the cluster.
        prefix: String,
    },
    /// The log cannot be built beside the file.
    #[error("the folder {path} cannot be made or emptied: {reason}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        reason: io::Error,
    },
    /// Only the file is left to be moved.
    #[error(
        "the cluster is restored and its controllers can start, which put their files aside themselves; but {0}"
    )]
    Aside(CopyError),
    /// Etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A store failed, or another process has the log or the file.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Lets the cluster of these settings go on with its log, which was set back, by the file of the controller whose settings
/// they are. Blocks, for a fence and some seconds.
///
/// # Errors
/// The file is not ahead of the log, a controller runs, or a store failed. Nothing is changed then, or what is can be
/// done again.
pub fn restored(config: &Config, actor: &str) -> Result<Restored, RestoredError> {
    let cluster = config.cluster.as_ref().ok_or(RestoredError::NoCluster)?;
    let fence = config.fence.unwrap_or(FENCE_OF_A_CLUSTER);
    let restoring = Restoring {
        path: config.store.clone(),
        consensus: Arc::new(Etcd::new(cluster.etcd.clone())?),
        prefix: cluster.prefix.clone(),
        settings: Settings::new(Clock::start(), PATIENCE),
        clocks: settings(config).engine,
        me: Owner {
            controller: cluster.name.clone(),
            instance: rand::random::<u64>().max(1),
            addresses: Vec::new(),
            fence_ms: fence.0.div_ceil(1_000),
            clean: false,
        },
        actor: Actor::new(Some(actor), "cluster restored"),
    };
    restoring.run()
}

/// What it takes.
pub(super) struct Restoring {
    pub(super) path: PathBuf,
    pub(super) consensus: Arc<dyn Consensus>,
    pub(super) prefix: String,
    pub(super) settings: Settings,
    pub(super) clocks: EngineConfig,
    /// The owner of the log meanwhile.
    pub(super) me: Owner,
    pub(super) actor: Actor,
}

impl Restoring {
    pub(super) fn run(&self) -> Result<Restored, RestoredError> {
        if !self.path.exists() {
            return Err(RestoredError::Missing { path: self.path.clone() });
        }
        // Open until the end, so that no controller starts on it meanwhile.
        let file = RedbStore::peek(&self.path)?;
        let had = self.ahead(&file)?;
        let seen = self.quiet()?;
        let work = Work::begin(&self.path)?;
        let place = Arc::new(FilePlace::new(&work.store()));
        let (consensus, settings) = (Arc::clone(&self.consensus), self.settings.clone());
        let follower = Follower::follow(consensus, &self.prefix, place, settings, false)?;
        let kept = follower.applied();
        let log = follower.take(&seen, &self.me).map_err(|not| not.error)?;
        let lost = Lost::between(&file, &log)?;
        let epoch = self.raise(&file, &log, (kept, had))?;
        let cluster = log.rename()?;
        log.leave()?;
        drop(log);
        work.end()?;
        let aside = move_aside(&self.path).map_err(RestoredError::Aside)?;
        Ok(Restored { cluster, epoch, kept, had, lost, aside })
    }

    /// The last segment of a file that is ahead of the log.
    fn ahead(&self, file: &dyn Store) -> Result<u64, RestoredError> {
        let (path, prefix) = (self.path.clone(), self.prefix.clone());
        match Footing::of(file, Arc::clone(&self.consensus), &self.prefix, self.settings.clone())? {
            Footing::Ahead(n) => Ok(n),
            Footing::Within(n) => Err(RestoredError::NotAhead { path, prefix, n }),
            Footing::OfNoLog => Err(RestoredError::OfNoLog { path }),
            Footing::NoLog => Err(RestoredError::NoLog { path, prefix }),
            Footing::OfAnother { theirs, ours } => {
                Err(RestoredError::OfAnother { path, theirs, prefix, ours })
            }
        }
    }

    /// The owner of the log, once it is silent and no controller has shown for a while that it runs.
    fn quiet(&self) -> Result<Seen, RestoredError> {
        let members = Members::new(Arc::clone(&self.consensus), &self.prefix, self.settings.clone())?;
        let clock = &self.settings.clock;
        let (mut observer, mut watched) = (Observer::default(), None);
        let mut answered = clock.now();
        loop {
            let read = Follower::look_once(Arc::clone(&self.consensus), &self.prefix, self.settings.clone());
            match read.and_then(|seen| Ok((seen, members.all()?))) {
                Ok((seen, records)) => {
                    // Not before the read has ended: the wait for the owner's fence begins here.
                    let now = clock.now();
                    answered = now;
                    let first = watched.get_or_insert_with(|| (seen.clone(), records.clone(), now));
                    let since = self.same(first, &seen, &records)?;
                    if self.is_silent(&seen, &mut observer, now)? && now.since(since) >= GONE {
                        return Ok(seen);
                    }
                }
                Err(error @ StoreError::Shared { .. }) => {
                    observer.failed();
                    watched = None;
                    if clock.now().since(answered) >= PATIENCE {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
            (self.settings.pause)();
        }
    }

    /// Since when neither the owner nor a record has changed.
    fn same(&self, watched: &Watched, seen: &Seen, records: &Records) -> Result<Time, RestoredError> {
        let (first, before, since) = watched;
        let prefix = self.prefix.clone();
        if (first.own, first.beat) != (seen.own, seen.beat) {
            let leader = seen.owner.as_ref().map_or_else(|| "of no name".to_owned(), shown_as);
            return Err(RestoredError::Leads { leader, prefix });
        }
        let before: BTreeMap<&str, u64> =
            before.iter().map(|(record, changed)| (record.controller.as_str(), *changed)).collect();
        let moved = |(record, changed): &&(MemberRecord, u64)| {
            before.get(record.controller.as_str()) != Some(changed)
        };
        match records.iter().find(moved) {
            Some((record, _)) => {
                let (name, addresses) = (record.controller.clone(), record.addresses.join(", "));
                Err(RestoredError::Runs { name, addresses, prefix })
            }
            None => Ok(*since),
        }
    }

    fn is_silent(&self, seen: &Seen, observer: &mut Observer, now: Time) -> Result<bool, RestoredError> {
        let Some(owner) = &seen.owner else {
            return Err(RestoredError::NoOwner { prefix: self.prefix.clone() });
        };
        let sign = Sign { own: seen.own, beat: seen.beat };
        Ok(observer.saw(sign, now, fence(owner), self.clocks) == Verdict::Dead || owner.clean)
    }

    /// Stores that all numbers of the file are used and its leases may be out, and that there was no clean stop; returns
    /// the epoch.
    fn raise(
        &self,
        file: &dyn Store,
        log: &ReplicatedStore,
        (kept, had): (u64, u64),
    ) -> Result<u64, StoreError> {
        let (theirs, ours) = (Meta::load(file)?, Meta::load(log)?);
        let most = |key| Ok::<_, StoreError>(theirs.number(key)?.max(ours.number(key)?));
        let longest = theirs.longest_ttl()?.max(ours.longest_ttl()?);
        let mut groups = longer(log, longest)?;
        while !groups.is_empty() {
            let rest = groups.split_off(groups.len().min(ROWS));
            log.commit(&std::mem::replace(&mut groups, rest))?;
        }
        let epoch = most(META_EPOCH)?.unwrap_or_default().saturating_add(1);
        let mut batch: Batch = vec![
            Write::Delete(Table::Meta, META_CLEAN.to_vec()),
            put_number(META_EPOCH, epoch),
            put_number(META_LONGEST_TTL, longest.0),
            put_number(META_REVISION, most(META_REVISION)?.unwrap_or_default().saturating_add(1)),
        ];
        for counter in COUNTERS {
            batch.extend(most(counter)?.map(|next| put_number(counter, next)));
        }
        let change = Change {
            action: "restore cluster",
            subject: format!("cluster under {}", self.prefix),
            before: format!(
                "{{\"segment\":{had},\"epoch\":{}}}",
                theirs.number(META_EPOCH)?.unwrap_or_default()
            ),
            after: format!("{{\"segment\":{kept},\"epoch\":{epoch}}}"),
        };
        let unix_ms = self.settings.clock.unix_ms();
        Audit::load(log)?.record(&mut batch, unix_ms, &self.actor, vec![change])?;
        log.commit(&batch)?;
        Ok(epoch)
    }
}

type Records = Vec<(MemberRecord, u64)>;
/// What was read first, and when.
type Watched = (Seen, Records, Time);

/// The rows of all groups that do not say yet that leases of this length may be out.
fn longer(log: &dyn Store, longest: Span) -> Result<Batch, StoreError> {
    let mut rows = Batch::new();
    each(log, Table::Groups, |key, value| {
        let group: StoredGroup = json(Table::Groups, value)?;
        if group.longest_ttl_us.is_none_or(|us| us < longest.0) {
            let group = StoredGroup { longest_ttl_us: Some(longest.0), ..group };
            rows.push(put_json(Table::Groups, key.to_vec(), &group)?);
        }
        Ok(())
    })?;
    Ok(rows)
}

/// A folder beside the file in which the log is built, until the next controller builds it for itself.
struct Work(PathBuf);

impl Work {
    fn begin(store: &Path) -> Result<Self, RestoredError> {
        let mut name = store.as_os_str().to_owned();
        name.push(".restoring");
        let work = Self(PathBuf::from(name));
        work.empty()?;
        // What is in it holds the key that signs leases.
        DirBuilder::new().mode(0o700).create(&work.0).map_err(|reason| work.failed(reason))?;
        Ok(work)
    }

    fn store(&self) -> PathBuf {
        self.0.join("log.redb")
    }

    fn empty(&self) -> Result<(), RestoredError> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, reason: io::Error) -> RestoredError {
        RestoredError::Folder { path: self.0.clone(), reason }
    }

    fn end(self) -> Result<(), RestoredError> {
        self.empty()
    }
}
