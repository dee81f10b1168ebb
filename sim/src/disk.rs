//! A disk that loses what was not synced: the medium under the shipped store.
//!
//! Sectors written since the last sync reach the platter or not, each on its own, when the power is cut; a killed
//! process loses none, because the system keeps what was written. A cut can be armed to fall on a later sync, which is
//! the way to stop between two writes of one commit.

use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;
use tidegate_controller::store::Seal;
use tidegate_core::units::{Span, Time};

use super::random::Random;

/// What a device writes as a whole.
const SECTOR: usize = 512;

/// How a controller ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process is killed: what was written is there.
    Killed,
    /// The power is cut: of what was not synced, some is there.
    PowerCut,
}

/// The disk; clones are handles of one and the same.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    platter: Arc<Mutex<Platter>>,
    /// The machine it is attached to, as far as this handle knows.
    machine: u64,
    /// The clock of that machine: it goes on while a sync takes its time.
    clock: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Platter {
    /// As the process sees it, and as it was at the last sync.
    written: Vec<u8>,
    synced: Vec<u8>,
    unsynced: BTreeSet<usize>,
    /// The machine it is attached to.
    machine: u64,
    /// The seal beside the store, and how many there were.
    seal: Option<u64>,
    seals: u64,
    /// The process is dead: it reads and writes nothing.
    dead: bool,
    /// Writes fail: the device is full or broken.
    failing: bool,
    /// A sync takes so long, until then.
    slow: Option<(Span, Time)>,
    /// Syncs until the process dies in one.
    syncs_left: Option<u32>,
    syncs: u64,
}

impl Disk {
    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.platter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The platter, for a process that runs and has the disk.
    fn reach(&self) -> Result<MutexGuard<'_, Platter>> {
        let platter = self.platter();
        match platter.machine == self.machine {
            true => platter.alive()?,
            false => return Err(Error::other("the disk is at another machine")),
        }
        Ok(platter)
    }

    /// The same, to write.
    fn reach_to_write(&self) -> Result<MutexGuard<'_, Platter>> {
        let platter = self.reach()?;
        if platter.failing { Err(Error::from(ErrorKind::StorageFull)) } else { Ok(platter) }
    }

    /// The disk at the next machine. All handles so far reach it no more; of what was not synced any part is lost.
    pub fn move_on(&self, random: &mut Random) -> Self {
        self.revive(Death::PowerCut, random);
        let mut platter = self.platter();
        platter.machine += 1;
        let now = self.clock.load(Ordering::Relaxed);
        let clock = Arc::new(AtomicU64::new(now));
        Self { platter: Arc::clone(&self.platter), machine: platter.machine, clock }
    }

    /// The clock of the machine it is attached to, in microseconds.
    pub fn clock(&self) -> &Arc<AtomicU64> {
        &self.clock
    }

    /// Until then every sync takes so long.
    pub fn slow(&self, sync: Span, until: Time) {
        self.platter().slow = Some((sync, until));
    }

    /// The process dies in the `nth` sync from now on, counted from 1.
    pub fn die_in_sync(&self, nth: u32) {
        self.platter().syncs_left = Some(nth.max(1));
    }

    /// No sync is armed, or takes time, any more.
    pub fn disarm(&self) {
        let mut platter = self.platter();
        (platter.syncs_left, platter.slow) = (None, None);
    }

    /// Writes succeed again.
    pub fn recover(&self) {
        self.platter().failing = false;
    }

    /// From now on every write fails, until the controller starts again.
    pub fn fail(&self) {
        self.platter().failing = true;
    }

    /// The process dies now, unless it is dead.
    pub fn die(&self) {
        self.platter().dead = true;
    }

    /// The process died in a sync.
    pub fn is_dead(&self) -> bool {
        self.platter().dead
    }

    /// Writes fail.
    pub fn is_failing(&self) -> bool {
        self.platter().failing
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.platter().syncs
    }

    /// A copy of the store's file, as it is.
    pub fn copy(&self) -> Vec<u8> {
        self.platter().written.clone()
    }

    /// Puts a copy in place of the file, while no process has it open. What lies beside it stays.
    pub fn put_back(&self, copy: &[u8]) {
        let mut platter = self.platter();
        platter.written = copy.to_vec();
        platter.synced = copy.to_vec();
        platter.unsynced.clear();
    }

    /// Prepares what is left for the next start. The sectors that a cut leaves behind are drawn one by one.
    pub fn revive(&self, death: Death, random: &mut Random) {
        let mut platter = self.platter();
        if death == Death::PowerCut {
            platter.cut(random);
        }
        platter.synced = platter.written.clone();
        platter.unsynced.clear();
        (platter.dead, platter.failing, platter.syncs_left) = (false, false, None);
    }
}

impl Platter {
    fn cut(&mut self, random: &mut Random) {
        // A file that grew may have kept its old length.
        if self.written.len() > self.synced.len() && random.one_in(2) {
            self.written.truncate(self.synced.len());
        }
        let written = std::mem::take(&mut self.written);
        let mut left = written.clone();
        for sector in std::mem::take(&mut self.unsynced) {
            let range = sector * SECTOR..(sector * SECTOR + SECTOR).min(written.len());
            if random.one_in(2) || range.start >= range.end {
                continue;
            }
            if let Some(lost) = left.get_mut(range.clone()) {
                lost.fill(0);
                if let Some(before) = self.synced.get(range.start..range.end.min(self.synced.len())) {
                    lost.iter_mut().zip(before).for_each(|(byte, before)| *byte = *before);
                }
            }
        }
        self.written = left;
    }

    fn alive(&self) -> Result<()> {
        if self.dead { Err(Error::other("the process is dead")) } else { Ok(()) }
    }

    fn mark(&mut self, from: usize, to: usize) {
        self.unsynced.extend(from / SECTOR..to.div_ceil(SECTOR));
    }
}

impl Seal for Disk {
    fn set(&self) -> Result<String> {
        let mut platter = self.reach_to_write()?;
        platter.seals += 1;
        platter.seal = Some(platter.seals);
        Ok(platter.seals.to_string())
    }

    fn take(&self) -> Result<Option<String>> {
        Ok(self.reach()?.seal.take().map(|seal| seal.to_string()))
    }
}

fn position(offset: u64, length: usize) -> Result<(usize, usize)> {
    let from = usize::try_from(offset).map_err(Error::other)?;
    Ok((from, from.checked_add(length).ok_or(ErrorKind::InvalidInput)?))
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64> {
        Ok(self.reach()?.written.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let platter = self.reach()?;
        let (from, to) = position(offset, out.len())?;
        let bytes = platter.written.get(from..to).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let mut platter = self.reach_to_write()?;
        let (before, (after, _)) = (platter.written.len(), position(length, 0)?);
        platter.written.resize(after, 0);
        platter.mark(before.min(after), after);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        let mut platter = self.reach_to_write()?;
        platter.syncs += 1;
        if let Some(left) = platter.syncs_left {
            platter.syncs_left = Some(left - 1);
            if left <= 1 {
                platter.dead = true;
                return Err(Error::other("the process died in this sync"));
            }
        }
        if let Some((sync, until)) = platter.slow
            && self.clock.load(Ordering::Relaxed) < until.0
        {
            self.clock.fetch_add(sync.0, Ordering::Relaxed);
        }
        let unsynced = std::mem::take(&mut platter.unsynced);
        let Platter { written, synced, .. } = &mut *platter;
        synced.resize(written.len(), 0);
        for sector in unsynced {
            let range = sector * SECTOR..(sector * SECTOR + SECTOR).min(written.len());
            if let (Some(to), Some(from)) = (synced.get_mut(range.clone()), written.get(range)) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut platter = self.reach_to_write()?;
        let (from, to) = position(offset, data.len())?;
        platter.written.get_mut(from..to).ok_or(ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        platter.mark(from, to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_sectors() -> Disk {
        let disk = Disk::default();
        disk.set_len(2 * SECTOR as u64).unwrap();
        disk.sync_data().unwrap();
        disk.write(0, &[1; 2 * SECTOR]).unwrap();
        disk
    }

    fn first_bytes(disk: &Disk) -> (u8, u8) {
        let mut bytes = [0; 2 * SECTOR];
        disk.read(0, &mut bytes).unwrap();
        (bytes[0], bytes[SECTOR])
    }

    #[test]
    fn a_cut_keeps_some_sectors_and_a_kill_all() {
        let mut seen = BTreeSet::new();
        for seed in 0..64 {
            let disk = two_sectors();
            disk.die();
            assert!(disk.len().is_err());
            disk.revive(Death::PowerCut, &mut Random::new(seed, 0));
            seen.insert(first_bytes(&disk));
        }
        assert_eq!(seen.len(), 4, "{seen:?}");
        let disk = two_sectors();
        disk.die();
        disk.revive(Death::Killed, &mut Random::new(0, 0));
        assert_eq!(first_bytes(&disk), (1, 1));
    }

    #[test]
    fn a_slow_sync_takes_its_time_on_the_clock_of_its_machine() {
        let disk = two_sectors();
        disk.slow(Span(30), Time(50));
        [30, 60, 60].into_iter().for_each(|now| {
            disk.sync_data().unwrap();
            assert_eq!(disk.clock().load(Ordering::Relaxed), now);
        });
        let next = disk.move_on(&mut Random::new(1, 0));
        next.clock().store(70, Ordering::Relaxed);
        assert_eq!(disk.clock().load(Ordering::Relaxed), 60);
        assert!(disk.sync_data().is_err() && next.sync_data().is_ok());
    }

    #[test]
    fn what_was_synced_stays_and_an_armed_cut_falls_on_its_sync() {
        let disk = two_sectors();
        disk.sync_data().unwrap();
        disk.die_in_sync(2);
        disk.sync_data().unwrap();
        disk.write(0, &[2; SECTOR]).unwrap();
        assert!(disk.sync_data().is_err() && disk.is_dead());
        disk.revive(Death::PowerCut, &mut Random::new(1, 0));
        assert_eq!(first_bytes(&disk).1, 1);
        disk.fail();
        assert_eq!(disk.write(0, &[3]).unwrap_err().kind(), ErrorKind::StorageFull);
        disk.recover();
        assert!(disk.write(0, &[3]).is_ok());
    }
}
