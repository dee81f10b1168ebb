//! A whole run: set up, let faults happen, calm down, see everything go on, stop, and judge.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::units::Span;
use tokio::sync::watch;

use super::cluster;
use super::console::Console;
use super::definitions::Definitions;
use super::fault::Schedule;
use super::outcome::Outcome;
use super::progress::Progress;
use super::scene::Scene;
use super::verdict::{Run, all_go_on, compare_ledger, set_up};
use super::{NODES, Settings};
use crate::process::error::{ClusterError, PATIENCE, io, refused};

/// Time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(20);
/// Runs to the end and judges. The outcome lists what is violated; it is also written to `outcome.txt`.
///
/// # Errors
/// The run cannot go on: a process ended by itself or did not obey.
pub async fn run(settings: &Settings) -> Result<Outcome, ClusterError> {
    let outcome = if settings.cluster { cluster::run(settings).await } else { run_all(settings).await };
    let text = match &outcome {
        Ok(outcome) => outcome.to_string(),
        Err(error) => error.to_string(),
    };
    let text = format!("seed {}\n{text}\n", settings.seed);
    fs::write(settings.folder.join("outcome.txt"), text).map_err(io("write outcome.txt"))?;
    outcome
}

async fn run_all(settings: &Settings) -> Result<Outcome, ClusterError> {
    let mut scene = Scene::new(settings).await?;
    scene.start_controller().await?;
    let console = Console {
        tidegate: scene.cluster.tidegate().get_program().into(),
        endpoint: scene.cluster.endpoint(),
    };
    set_up(&console).await?;
    // A clean start forgets the longer lease that the group `default` had, and with it long recoveries.
    let mut controller = scene.cluster.controller.take();
    if let Some(controller) = &mut controller {
        controller.terminate();
        controller.end_within(PATIENCE).await?;
    }
    scene.crash_controller().await?;
    scene.start_nodes()?;

    let (stop, stopped) = watch::channel(false);
    let definitions = Definitions::new(console, settings.seed).run(scene.starts.clone(), stopped);
    let mut definitions = tokio::spawn(definitions);
    let mut violations = Vec::new();
    let mut progress = Progress::new(&scene.cluster, settings);
    let mut schedule = Schedule::new(settings.seed);
    let limit_us = u64::try_from(settings.limit.as_micros()).unwrap_or(u64::MAX);
    let begun_us = scene.tally.now_us();
    while scene.tally.kills() < settings.kills && scene.tally.now_us() - begun_us < limit_us {
        scene.mend()?;
        while schedule.next_us() <= scene.tally.now_us() - begun_us && scene.tally.kills() < settings.kills {
            if let Some(event) = schedule.take() {
                scene.suffer(event).await?;
            }
        }
        if definitions.is_finished() {
            break;
        }
        progress.tell(&scene)?;
        tokio::time::sleep(LOOK).await;
    }
    let took = Span(scene.tally.now_us() - begun_us);

    scene.calm().await?;
    stop.send_replace(true);
    let definitions = match (&mut definitions).await {
        Ok(Ok(definitions)) => Some(definitions),
        Ok(Err(violation)) => {
            violations.push(violation);
            None
        }
        Err(error) => return Err(refused("change definitions", error)),
    };
    let logs: Vec<PathBuf> = (0..NODES).map(|node| scene.cluster.node_log(node)).collect();
    all_go_on(&logs, &mut violations).await?;
    scene.cluster.stop_nodes().await?;
    // A start sums the totals up again, so the running controller is compared before it is killed.
    compare_ledger(&mut scene.cluster.admin().await?, &logs, &mut violations).await?;
    scene.crash_controller().await?;
    let mut admin = scene.cluster.admin().await?;
    let run = Run { tally: scene.tally, took, definitions, leadership: None, violations };
    run.judged(&mut admin, &logs).await
}
