//! A whole run: set up, let faults happen, calm down, see everything go on, stop, and judge.

use std::fs;
use std::time::Duration;

use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1::{UsageRequest, UsageRow};
use tokio::sync::watch;

use super::cap::Cap;
use super::console::{Console, Reply};
use super::definitions::Definitions;
use super::fault::Schedule;
use super::outcome::{GroupFigures, Outcome};
use super::progress::{Progress, Tail};
use super::scene::Scene;
use super::{GROUP_RENEW, GROUP_TTL, LEASE_US, LOADED, MOVING, NODES, Settings, charged, judge};
use crate::process::cluster::Cluster;
use crate::process::error::{ClusterError, PATIENCE, io};
use crate::process::log::{self, Life};

/// Time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(20);
/// Violations reported; more say nothing new.
const TOLD: usize = 30;

/// Runs to the end and judges. The outcome lists what is violated; it is also written to `outcome.txt`.
///
/// # Errors
/// The run cannot go on: a process ended by itself or did not obey.
pub async fn run(settings: &Settings) -> Result<Outcome, ClusterError> {
    let outcome = run_all(settings).await;
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
        Err(error) => return Err(refused("change definitions", &error.to_string())),
    };
    all_go_on(&scene, &mut violations).await?;
    scene.cluster.stop_nodes().await?;
    // A start sums the totals up again, so the running controller is compared before it is killed.
    compare_ledger(&mut scene.cluster, &mut violations).await?;
    scene.crash_controller().await?;
    judged(scene, definitions, took, violations).await
}

async fn judged(
    mut scene: Scene,
    mut definitions: Option<Definitions>,
    took: Span,
    mut violations: Vec<String>,
) -> Result<Outcome, ClusterError> {
    if let Some(definitions) = &mut definitions {
        match definitions.compare().await {
            Ok(true) => {}
            Ok(false) => violations.push("the controller did not list its definitions".to_owned()),
            Err(violation) => violations.push(violation),
        }
    }
    let (logs, groups) = compare_ledger(&mut scene.cluster, &mut violations).await?;
    let fixed = Cap::new(Rate::ZERO, LEASE_US);
    let mut bounds = Vec::new();
    for loaded in LOADED.iter().filter(|loaded| !loaded.counts.is_empty()) {
        // The moving rate is known only while definitions were followed.
        let cap = match &definitions {
            Some(definitions) => &definitions.cap,
            None if loaded.name == MOVING => continue,
            None => &fixed,
        };
        bounds.extend(judge::bound(loaded, cap, &logs, &mut violations));
    }
    let stops = judge::stops(&scene.tally, &logs, &mut violations);
    violations.truncate(TOLD);
    Ok(Outcome {
        took,
        incarnations: logs.iter().map(Vec::len).sum(),
        groups,
        bounds,
        stops,
        counts: definitions.as_ref().map(|d| d.counts).unwrap_or_default(),
        there: definitions.as_ref().map(Definitions::there).unwrap_or_default(),
        alterations: definitions.as_ref().map_or(0, |d| d.cap.alterations()),
        tally: scene.tally,
        violations,
    })
}

/// The logs of all nodes, and what the ledger has of them.
async fn compare_ledger(
    cluster: &mut Cluster,
    violations: &mut Vec<String>,
) -> Result<(Vec<Vec<Life>>, Vec<GroupFigures>), ClusterError> {
    let logs = (0..NODES).map(|node| log::read(&cluster.node_log(node)));
    let logs = logs.collect::<Result<Vec<_>, _>>().map_err(io("read a node's log"))?;
    let mut groups = Vec::new();
    for loaded in charged() {
        let rows = usage(cluster, loaded.name).await?;
        groups.push(judge::ledger(loaded, &logs, &rows, violations));
    }
    Ok((logs, groups))
}

fn refused(what: &str, reason: &str) -> ClusterError {
    ClusterError::Refused { what: what.to_owned(), reason: reason.to_owned() }
}

/// Makes the groups under load.
async fn set_up(console: &Console) -> Result<(), ClusterError> {
    let run = async |args: &[&str]| match console.run(args).await {
        Reply::Done => Ok(()),
        other => Err(refused(&args.join(" "), &format!("{other:?}"))),
    };
    run(&["group", "alter", "default", "--ttl", GROUP_TTL, "--renew", GROUP_RENEW]).await?;
    for loaded in LOADED {
        let (rate, burst) = (loaded.rate.to_string(), loaded.burst.to_string());
        let mut args =
            vec!["group", "create", loaded.name, "--rate", &rate, "--burst", &burst, "--ttl", GROUP_TTL];
        args.extend(loaded.settings);
        run(&args).await?;
    }
    Ok(())
}

/// Once the faults are over every node is admitted in every group again.
async fn all_go_on(scene: &Scene, violations: &mut Vec<String>) -> Result<(), ClusterError> {
    let mut tails: Vec<Tail> = (0..NODES).map(|node| Tail::new(scene.cluster.node_log(node))).collect();
    for tail in &mut tails {
        tail.read()?;
    }
    let before: Vec<_> = tails.iter().map(|tail| tail.admitted.clone()).collect();
    let waiting = |tails: &[Tail]| {
        let mut waiting = Vec::new();
        for (node, (tail, before)) in tails.iter().zip(&before).enumerate() {
            let still = |group: &&str| tail.admitted.get(*group) <= before.get(*group);
            waiting.extend(
                charged().map(|l| l.name).filter(still).map(|group| format!("node {node} in {group}")),
            );
        }
        waiting
    };
    let goes_on = async {
        while !waiting(&tails).is_empty() {
            tokio::time::sleep(LOOK).await;
            for tail in &mut tails {
                tail.read()?;
            }
        }
        Ok(())
    };
    match tokio::time::timeout(PATIENCE, goes_on).await {
        Ok(done) => done,
        Err(_) => {
            let waiting = waiting(&tails).join(", ");
            violations.push(format!("progress: nothing admitted within {PATIENCE:?} of calm: {waiting}"));
            Ok(())
        }
    }
}

/// The ledger's totals of a group, by incarnation and in all.
async fn usage(cluster: &mut Cluster, group: &str) -> Result<Vec<UsageRow>, ClusterError> {
    let request = UsageRequest { group: group.to_owned(), per_client: true };
    let reply = cluster.admin().await?.usage(request).await;
    let reply = reply.map_err(|status| refused("tell usage", &status.to_string()))?.into_inner();
    if reply.truncated {
        return Err(refused("tell all usage", "there are more incarnations than fit an answer"));
    }
    Ok(reply.rows)
}
