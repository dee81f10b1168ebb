//! Following the log with a local store, and taking it over.
//!
//! A follower reads every segment from behind its place on, and applies whole batches only. It takes the log over in one
//! transaction that compares the owner and the beat that were seen; the revision of that is its epoch, under which all
//! later writes stand. Only then it reads the rest: nobody else can write any more, so the rest is all there is. First
//! parts of a batch that has no end stay in the log: the new owner goes on behind them, and its first segment begins a
//! batch, at which every reader skips them. So no number is used twice, and nobody's reading is undone.

use std::fmt;
use std::sync::Arc;
use std::thread;

use tidegate_consensus::{Consensus, ConsensusError, Guard, Row, Step, Transaction};

use super::super::{Store, StoreError, Write};
use super::applied::{Applied, bound, cluster_row, has_content};
use super::calls::{Calls, Settings, unfit};
use super::checkpoint::Checkpoint;
use super::comparing::{Compared, Comparing};
use super::keys::head_value;
use super::known::Known;
use super::owned::ReplicatedStore;
use super::owner::{Owner, Seen, named, says_leave};
use super::place::Place;
use super::ready::Ready;
use super::restore::{newest, rebuild};
use super::segment::{Joining, Segment};
use super::{set_back, writing};

/// The version of keys, segments and checkpoints.
const FORMAT: &str = "1";
/// Segments that one read brings: with 256 KiB each they stay below what a message may have.
const SEGMENTS: usize = 8;
/// Bytes of entries after which they are committed locally: fewer would sync the disk too often, more would only take
/// memory.
const READY: usize = 1 << 20;
/// Times that a follower may fall behind the oldest segment while it builds on a checkpoint.
const TRIES: usize = 5;

/// What its holder keeps of the local store in memory, as that follows the log.
pub trait Picture: Send + Sync {
    /// Begins with all that a local store has.
    fn read(&self, local: &dyn Store);

    /// Takes in what was committed there.
    fn changed(&self, batch: &[Write]);
}

/// A local store that follows the log.
pub struct Follower {
    calls: Calls,
    place: Arc<dyn Place>,
    cluster: String,
    local: Arc<dyn Store>,
    applied: Applied,
    /// The local store has content that the log is to begin with.
    seeds: bool,
    /// The hash of the local store at a place that the owner marked.
    comparing: Option<Comparing>,
    /// Rows of counters as the local store has them; `None`: they are read there.
    known: Option<Known>,
    picture: Option<Arc<dyn Picture>>,
}

/// The end of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// The number of the next segment.
    pub(super) next: u64,
    /// Bytes of all segments.
    pub(super) logged: u64,
}

/// A log that was not taken over.
#[derive(Debug)]
pub struct NotTaken {
    /// The follower, which may try again.
    pub follower: Follower,
    /// Why not.
    pub error: StoreError,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("place", &self.place.name()).field("applied", &self.applied).finish()
    }
}

impl Follower {
    /// Follows the log under `prefix` with the store in `place`, up to where the log ends now. A store that is missing,
    /// damaged, of another log, or too old is built again. With `seeds`, a log without content begins with what is
    /// there.
    ///
    /// # Errors
    /// The shared store cannot be read, is of another version, or does not fit the local store.
    pub fn follow(
        consensus: Arc<dyn Consensus>,
        prefix: &str,
        place: Arc<dyn Place>,
        settings: Settings,
        seeds: bool,
    ) -> Result<Self, StoreError> {
        let calls = Calls::new(consensus, prefix, settings)?;
        let cluster = cluster(&calls)?;
        let begun = has_begun(&calls)?;
        let (local, applied, seeds) = match found(&*place) {
            Ok((local, Some((of, applied)))) if of == cluster => (local, applied, false),
            Ok((local, None)) if !has_content(&*local)? => {
                local.commit(&[cluster_row(&cluster), Applied::default().row()])?;
                (local, Applied::default(), false)
            }
            Ok((_, None)) if begun => return Err(stray(&calls, &*place, OF_ONE)),
            Ok((local, _)) if !begun && seeds => (local, Applied::default(), true),
            Ok(_) if !begun => return Err(stray(&calls, &*place, UNSEEDED)),
            Err(error) if !(begun && is_damage(&error)) => return Err(error),
            useless => {
                let reason =
                    useless.err().map_or_else(|| "of another log".to_owned(), |error| error.to_string());
                tracing::warn!(reason, "the local store is put aside and built again");
                let (local, applied) = rebuild(&calls, &*place, &cluster, 0, true)?;
                (local, applied, false)
            }
        };
        let mut follower = Self {
            calls,
            place,
            cluster,
            local,
            applied,
            seeds,
            comparing: None,
            known: None,
            picture: None,
        };
        follower.check_place()?;
        follower.catch_up()?;
        Ok(follower)
    }

    /// Keeps a picture of the local store as long as it follows, also while it reads the rest of a log that it takes.
    pub fn draw(&mut self, picture: Arc<dyn Picture>) {
        picture.read(&*self.local);
        self.picture = Some(picture);
    }

    /// The last segment that the local store has.
    pub fn applied(&self) -> u64 {
        self.applied.n
    }

    /// The local store.
    pub fn local(&self) -> &dyn Store {
        &*self.local
    }

    /// Who owns the log now, in one attempt: who judges by it must know of every failure.
    ///
    /// # Errors
    /// The shared store cannot be read.
    pub fn look(&self) -> Result<Seen, StoreError> {
        look(&self.calls)
    }

    /// The same before anything is followed.
    ///
    /// # Errors
    /// As of [`Self::look`], or the prefix is none.
    pub fn look_once(
        consensus: Arc<dyn Consensus>,
        prefix: &str,
        settings: Settings,
    ) -> Result<Seen, StoreError> {
        look(&Calls::new(consensus, prefix, settings)?)
    }

    /// Applies what was logged meanwhile.
    ///
    /// # Errors
    /// The shared store cannot be read, or the local one not written, or that is found to have other rows.
    pub fn catch_up(&mut self) -> Result<(), StoreError> {
        self.read_on()?;
        self.compare()
    }

    /// Whether it knows a place at which a checkpoint is made, and has not compared its rows with that.
    #[cfg(test)]
    pub(super) fn is_comparing(&self) -> bool {
        self.comparing.is_some()
    }

    /// Compares the local store with a checkpoint, if there is one to compare it with.
    fn compare(&mut self) -> Result<(), StoreError> {
        let Some(mut comparing) = self.comparing.take() else { return Ok(()) };
        if comparing.is_ready(!self.calls.settings.hashes_beside)? {
            let newest = match newest(&self.calls) {
                Ok(newest) => newest.map(|(checkpoint, _)| checkpoint),
                Err(error) => {
                    // The next call compares.
                    self.comparing = Some(comparing);
                    return Err(error);
                }
            };
            match (comparing.with(newest.as_ref()), newest) {
                (Compared::Over, _) => return Ok(()),
                (Compared::Differs, Some(Checkpoint { n, .. })) => {
                    let (path, prefix) = (self.place.name(), self.calls.keys.prefix().to_owned());
                    return Err(StoreError::Differs { path, prefix, n });
                }
                (Compared::Differs | Compared::NotYet, _) => {}
            }
        }
        self.comparing = Some(comparing);
        Ok(())
    }

    /// Takes the log over from the owner that was seen, if neither it nor its beat has changed.
    ///
    /// # Errors
    /// Something has changed, or a store failed. A failure may leave the log with this owner, which
    /// [`look`](Self::look) shows.
    pub fn take(mut self, seen: &Seen, owner: &Owner) -> Result<ReplicatedStore, Box<NotTaken>> {
        match self.taken(seen, owner) {
            Ok(store) => {
                // Many rows, which are freed beside the start that waits for the store.
                let known = self.known.take();
                drop(thread::Builder::new().spawn(move || drop(known)));
                Ok(store)
            }
            Err(error) => Err(Box::new(NotTaken { follower: self, error })),
        }
    }

    fn taken(&mut self, seen: &Seen, owner: &Owner) -> Result<ReplicatedStore, StoreError> {
        let record = Owner { clean: false, ..owner.clone() }.record(rand::random());
        let epoch = self.claim(seen, &record)?;
        tracing::debug!(epoch, "the log is claimed");
        let head = if self.seeds { self.seed(epoch)? } else { self.read_on()? };
        tracing::info!(epoch, next = head.next, "the log is taken over");
        let last = newest(&self.calls)?.map(|(checkpoint, _)| checkpoint);
        let (calls, local, at) = (self.calls.clone(), Arc::clone(&self.local), (head, self.applied.n));
        Ok(ReplicatedStore::new(calls, local, owner.clone(), epoch, at, last, seen.owner.as_ref()))
    }

    /// Makes this controller the owner; returns its epoch.
    fn claim(&self, seen: &Seen, record: &[u8]) -> Result<u64, StoreError> {
        let (own, beat) = (self.calls.keys.own(), self.calls.keys.beat());
        let transaction = Transaction {
            when: vec![Guard::Changed(own.clone(), seen.own), Guard::Changed(beat.clone(), seen.beat)],
            then: vec![Step::Put(own.clone(), record.to_vec()), Step::Put(beat, b"0".to_vec())],
            otherwise: vec![Step::Get(own)],
        };
        let outcome = self.calls.transact(&transaction).map_err(|error| error.told("take the log over"))?;
        if outcome.held {
            return Ok(outcome.revision);
        }
        match outcome.found.into_iter().next().flatten() {
            // An attempt before this one happened.
            Some(row) if row.value == record => Ok(row.changed),
            row if row.as_ref().map_or(0, |row| row.changed) == seen.own => {
                Err(StoreError::NotTaken { by: format!("{} lives", named(row.as_ref())) })
            }
            row => Err(StoreError::NotTaken { by: format!("{} owns it now", named(row.as_ref())) }),
        }
    }

    /// Begins the log with a checkpoint of the local store. It stands for a segment 1, so that a follower of the empty
    /// log misses that and builds on it.
    fn seed(&mut self, epoch: u64) -> Result<Head, StoreError> {
        if has_begun(&self.calls)? {
            return Err(stray(&self.calls, &*self.place, OF_ONE));
        }
        let applied = Applied { n: 1, epoch, logged: 0 };
        let written = writing::write(&self.calls, epoch, &*self.local, Some(applied), &mut || {})?;
        tracing::info!(pages = written.checkpoint.content.pages, "the log begins with the local store");
        self.local.commit(&[cluster_row(&self.cluster), applied.row()])?;
        (self.applied, self.seeds) = (applied, false);
        Ok(Head { next: 2, logged: 0 })
    }

    fn read_on(&mut self) -> Result<Head, StoreError> {
        if self.seeds {
            if has_begun(&self.calls)? {
                return Err(stray(&self.calls, &*self.place, OF_ONE));
            }
            return Ok(Head { next: 1, logged: 0 });
        }
        for _ in 0..TRIES {
            if let Some(head) = self.replay()? {
                return Ok(head);
            }
            let least = self.applied.n.saturating_add(1);
            // Rows as they were before would count what follows from there.
            self.known = None;
            let built = rebuild(&self.calls, &*self.place, &self.cluster, least, false)?;
            (self.local, self.applied) = built;
            if let Some(picture) = &self.picture {
                picture.read(&*self.local);
            }
        }
        Err(unfit(&self.calls.keys.checkpoint(), "segments behind it are gone before they can be read"))
    }

    /// Applies all segments behind the local store; `None`: the next one is gone, so a checkpoint must have it.
    fn replay(&mut self) -> Result<Option<Head>, StoreError> {
        let begin = self.applied.n.saturating_add(1);
        let mut head = Head { next: begin, logged: self.applied.logged };
        let mut joining = Joining::after(self.applied.epoch);
        // After an error it may be ahead of the local store, and is gone.
        let known = self.known.take().unwrap_or_else(|| Known::new(self.calls.settings.known));
        let mut ready = Ready::new(known, self.applied);
        loop {
            let range = self.calls.keys.segments(head.next);
            let read = self.calls.rows(&range, SEGMENTS).map_err(|error| error.told("read the log"))?;
            for row in &read.rows {
                let number = self.calls.keys.number(&row.key);
                let n = number.ok_or_else(|| unfit(&row.key, "its key is no segment's"))?;
                if n != head.next {
                    self.apply(&mut ready)?;
                    return Ok(None);
                }
                let segment = Segment::decode(&row.value).map_err(|reason| unfit(&row.key, reason))?;
                if segment.n != n {
                    return Err(unfit(&row.key, format!("it is number {}", segment.n)));
                }
                head.next = n.saturating_add(1);
                head.logged = segment.before.saturating_add(row.value.len() as u64);
                let Some(whole) = joining.push(&segment).map_err(|reason| unfit(&row.key, reason))? else {
                    continue;
                };
                let is_marked = ready.take(&whole, &*self.local, &row.key)?;
                ready.applied = Applied { n, epoch: segment.epoch, logged: head.logged };
                if ready.bytes > READY || is_marked {
                    self.apply(&mut ready)?;
                }
                if is_marked {
                    self.comparing = self.hashed(n);
                }
            }
            if !read.more {
                break;
            }
        }
        self.apply(&mut ready)?;
        self.known = Some(ready.known);
        // Without any segment behind it, a checkpoint may still be.
        let behind = head.next == begin && newest(&self.calls)?.is_some_and(|(of, _)| of.n >= begin);
        Ok((!behind).then_some(head))
    }

    /// Begins to hash the local store, as the owner marked this place.
    fn hashed(&self, n: u64) -> Option<Comparing> {
        match Comparing::begin(Arc::clone(&self.local), n, self.calls.settings.segment) {
            Ok(comparing) => Some(comparing),
            Err(error) => {
                tracing::warn!(%error, n, "the local store is not compared with the checkpoint");
                None
            }
        }
    }

    fn apply(&mut self, ready: &mut Ready) -> Result<(), StoreError> {
        if ready.applied != self.applied {
            let mut batch = std::mem::take(&mut ready.batch);
            batch.push(ready.applied.row());
            self.local.commit(&batch)?;
            if let Some(picture) = &self.picture {
                picture.changed(&batch);
            }
            ready.known.committed();
            (self.applied, ready.bytes) = (ready.applied, 0);
        }
        Ok(())
    }

    /// Checks that the local store is at a place that the log has: the log may have been set back.
    fn check_place(&self) -> Result<(), StoreError> {
        let there = set_back::has(&self.calls, self.applied)?;
        if there { Ok(()) } else { Err(stray(&self.calls, &*self.place, AHEAD)) }
    }
}

fn look(calls: &Calls) -> Result<Seen, StoreError> {
    let (own, beat) = (calls.keys.own(), calls.keys.beat());
    let both = Transaction { then: vec![Step::Get(own.clone()), Step::Get(beat)], ..Transaction::default() };
    let failed = |error: ConsensusError| StoreError::Shared {
        operation: "look at the owner",
        reason: error.to_string(),
    };
    let read = calls.once(&both).map_err(failed)?;
    let mut found = read.found.into_iter();
    let (row, beat) = (found.next().flatten(), found.next().flatten());
    let owner = row.as_ref().map(|row| Owner::read(&row.value)).transpose();
    let owner = owner.map_err(|reason| unfit(&own, reason))?;
    let changed = |row: &Row| row.changed;
    Ok(Seen {
        owner,
        own: row.as_ref().map_or(0, changed),
        beat: beat.as_ref().map_or(0, changed),
        leaves: beat.is_some_and(|beat| says_leave(&beat.value)),
    })
}

const OF_ONE: &str =
    "it has content, and so has the log; move the file away, and the next start builds it from the log";
const UNSEEDED: &str = "it has content, and the log has none; begin the log with it by asking for that explicitly, or \
                        move the file away to begin an empty one";
const AHEAD: &str = "it has changes that the log does not have, because the shared store was set back; stop all \
                     controllers and run `tidegate cluster restored` with this one's data to go on without them";

fn stray(calls: &Calls, place: &dyn Place, reason: &str) -> StoreError {
    let (path, prefix) = (place.name(), calls.keys.prefix().to_owned());
    StoreError::Stray { path, prefix, reason: reason.to_owned() }
}

/// A store, and what it says of a log.
type Found = (Arc<dyn Store>, Option<(String, Applied)>);

fn found(place: &dyn Place) -> Result<Found, StoreError> {
    let local = place.open()?;
    let bound = bound(&*local)?;
    Ok((local, bound))
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Unreadable { .. } | StoreError::Damaged { .. } | StoreError::Record { .. })
}

/// Which log it is; draws that, and the format, if nobody has.
fn cluster(calls: &Calls) -> Result<String, StoreError> {
    let (format, cluster) = (calls.keys.format(), calls.keys.cluster());
    let drawn = word();
    let transaction = Transaction {
        when: vec![Guard::Changed(format.clone(), 0)],
        then: vec![
            Step::Put(format.clone(), FORMAT.into()),
            Step::Put(cluster.clone(), drawn.clone().into_bytes()),
            Step::Put(calls.keys.head(), head_value(0)),
        ],
        otherwise: vec![Step::Get(format.clone()), Step::Get(cluster.clone())],
    };
    let outcome = calls.transact(&transaction).map_err(|error| error.told("read its format"))?;
    if outcome.held {
        return Ok(drawn);
    }
    let mut found = outcome.found.into_iter().map(|row| row.map(|row| row.value));
    match (found.next().flatten(), found.next().flatten()) {
        (Some(found), Some(word)) if found == FORMAT.as_bytes() => {
            String::from_utf8(word).map_err(|_| unfit(&cluster, "it is no text"))
        }
        (Some(found), None) if found == FORMAT.as_bytes() => Err(unfit(&cluster, "it is missing")),
        (found, _) => {
            let found =
                String::from_utf8_lossy(&found.unwrap_or_default()).chars().take(40).collect::<String>();
            Err(unfit(&format, format!("it says {found:?}, this version knows {FORMAT:?}")))
        }
    }
}

/// A word that no log has yet.
pub(super) fn word() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Whether the log has any content.
fn has_begun(calls: &Calls) -> Result<bool, StoreError> {
    let first = calls.rows(&calls.keys.segments(0), 1).map_err(|error| error.told("read the log"))?;
    Ok(!first.rows.is_empty() || newest(calls)?.is_some())
}
