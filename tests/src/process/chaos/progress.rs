//! How far a run is, from the logs that the nodes are writing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use tidegate_core::units::Ru;

use super::scene::Scene;
use super::{NODES, Settings};
use crate::process::cluster::Cluster;
use crate::process::error::{ClusterError, io};

/// Time between two lines of progress.
const PROGRESS_US: u64 = 10_000_000;

/// What has been added to a node's log.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    at: u64,
    /// Operations admitted so far, by group.
    pub admitted: BTreeMap<String, u64>,
    micro: i64,
}

impl Tail {
    /// Reads from the beginning.
    pub fn new(path: PathBuf) -> Self {
        Self { path, at: 0, admitted: BTreeMap::new(), micro: 0 }
    }

    /// Reads what is new.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&mut self) -> Result<(), ClusterError> {
        // A node that was never started for long enough has none.
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(());
        };
        let mut text = String::new();
        file.seek(SeekFrom::Start(self.at))
            .and_then(|_| file.read_to_string(&mut text))
            .map_err(io("read a node's log"))?;
        // A line that is not finished is read again.
        let whole = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
        self.at += whole.len() as u64;
        for line in whole.lines() {
            if let ["A", group, _, _, estimate, ..] = line.split(' ').collect::<Vec<_>>().as_slice() {
                *self.admitted.entry((*group).to_owned()).or_default() += 1;
                self.micro += estimate.parse::<i64>().unwrap_or(0);
            }
        }
        Ok(())
    }
}

/// Prints how far a run is.
#[derive(Debug)]
pub struct Progress {
    wanted: bool,
    kills: u64,
    tails: Vec<Tail>,
    next_us: u64,
}

impl Progress {
    /// The progress of a run that has not begun.
    pub fn new(cluster: &Cluster, settings: &Settings) -> Self {
        let tails = (0..NODES).map(|node| Tail::new(cluster.node_log(node))).collect();
        Self { wanted: settings.progress, kills: settings.kills, tails, next_us: PROGRESS_US }
    }

    /// Prints progress, if it is wanted and time.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn tell(&mut self, scene: &Scene) -> Result<(), ClusterError> {
        let now_us = scene.tally.now_us();
        if !self.wanted || now_us < self.next_us {
            return Ok(());
        }
        self.next_us = now_us + PROGRESS_US;
        for tail in &mut self.tails {
            tail.read()?;
        }
        let operations: u64 = self.tails.iter().flat_map(|tail| tail.admitted.values()).sum();
        let admitted = Ru(self.tails.iter().map(|tail| tail.micro).sum());
        let (kills, seconds) = (scene.tally.kills(), now_us / 1_000_000);
        let left = self.kills.saturating_sub(kills) * seconds / kills.max(1);
        eprintln!(
            "{seconds} s: {kills} of {} kills, {operations} operations, {admitted}, {left} s left",
            self.kills
        );
        Ok(())
    }
}
