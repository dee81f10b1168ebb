//! Chaos with a cluster: three controllers on three members of etcd, with nodes under load. Faults follow each other,
//! now and then two at once; after each, somebody leads again soon, if two controllers and a majority of members live.
//! At the end everything is judged as with one controller.

pub mod fault;
pub mod looks;
mod nodes;
mod scene;
mod suffer;

use std::time::Duration;

use tidegate_core::units::Span;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::fault::Bag;
use self::looks::Tenure;
use self::scene::Scene;
use super::console::Console;
use super::definitions::Definitions;
use super::outcome::Outcome;
use super::verdict::{Run, all_go_on, compare_ledger, set_up};
use super::{NODES, Settings};
use crate::process::error::{ClusterError, refused};
use crate::process::log::{self, machine_micros};

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(10);
/// Somebody leads again within this time. It takes one to three seconds on a machine with time to spare, and tests run
/// on others, too; nobody who waits for an operator would lead in it.
const LEADS_WITHIN_US: u64 = 20_000_000;
/// Every so many faults, all nodes are to be admitted something in every group.
const ALL_GO_ON_EVERY: u64 = 25;

/// Runs to the end and judges.
pub(super) async fn run(settings: &Settings) -> Result<Outcome, ClusterError> {
    let mut scene = Scene::new(settings).await?;
    let console = Console {
        tidegate: scene.controllers.binary().to_owned(),
        endpoint: scene.controllers.endpoints().join(","),
    };
    set_up(&console).await?;
    (0..NODES).try_for_each(|node| scene.nodes.start(node))?;
    let (stop, stopped) = watch::channel(false);
    let definitions = Definitions::new(console, settings.seed).run(scene.all_starts.clone(), stopped);
    let mut definitions = tokio::spawn(definitions);
    let mut violations = Vec::new();
    let begun_us = scene.tally.now_us();
    let silent = play(settings, &mut scene, &definitions, &mut violations).await?;
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
    let logs = scene.nodes.logs();
    all_go_on(&logs, &mut violations).await?;
    scene.nodes.end_all().await?;
    let (leader, _) = scene.controllers.successor(None).await?;
    compare_ledger(&mut scene.controllers.admin(leader).await?, &logs, &mut violations).await?;
    // The next one has all of it from the log.
    scene.controllers.kill(leader);
    let (next, _) = scene.controllers.successor(Some(leader)).await?;
    let lives = logs.iter().map(|path| log::read(path)).collect::<Result<Vec<_>, _>>();
    let lives = lives.map_err(crate::process::error::io("read a node's log"))?;
    let leadership = Some(looks::judge(&scene.looks.tenures(), &lives, silent, &mut violations));
    let mut admin = scene.controllers.admin(next).await?;
    let run = Run { tally: scene.tally, took, definitions, leadership, violations };
    run.judged(&mut admin, &logs).await
}

/// Lets all faults happen. Returns how long it took until another one
/// spoke, where another one did.
async fn play<T>(
    settings: &Settings,
    scene: &mut Scene,
    definitions: &JoinHandle<T>,
    violations: &mut Vec<String>,
) -> Result<Vec<Span>, ClusterError> {
    let mut bag = Bag::new(settings.seed);
    let mut silent = Vec::new();
    let limit_us = u64::try_from(settings.limit.as_micros()).unwrap_or(u64::MAX);
    let begun_us = scene.tally.now_us();
    let mut next_check = ALL_GO_ON_EVERY;
    while scene.tally.happened() < settings.kills
        && scene.tally.now_us() - begun_us < limit_us
        && !definitions.is_finished()
    {
        let (event, beside) = (bag.draw(), bag.beside());
        let (fault, before) = (event.fault, scene.tally.happened());
        let led_before = scene.looks.speaks(0);
        scene.suffer(event).await?;
        let since_us = machine_micros();
        let other = beside.map(|after| (since_us + after * 1_000, bag.draw()));
        if scene.tally.happened() > before {
            let led = until_led(scene, other, since_us).await?;
            match led {
                Some((_, by)) if led_before.is_some_and(|before| before.is_of(by)) => {}
                Some((span, _)) => silent.push(span),
                None => {
                    violations.push(format!("nobody led within {LEADS_WITHIN_US} us of: {}", fault.name()))
                }
            }
            if settings.progress {
                let (count, seconds) = (scene.tally.happened(), scene.tally.now_us() / 1_000_000);
                let led = led.map_or_else(|| "never".to_owned(), |(span, _)| span.to_string());
                eprintln!(
                    "{seconds} s: {count} of {} faults; {}: led after {led}",
                    settings.kills,
                    fault.name()
                );
            }
        }
        if scene.tally.happened() >= next_check {
            next_check += ALL_GO_ON_EVERY;
            all_go_on(&scene.nodes.logs(), violations).await?;
        }
        if !violations.is_empty() {
            break;
        }
    }
    Ok(silent)
}

/// Waits until everything is mended and somebody has spoken since, and lets another fault happen meanwhile. Returns how
/// long it took until somebody spoke, and who; nothing when nobody did in time.
async fn until_led(
    scene: &mut Scene,
    mut other: Option<(u64, fault::Event)>,
    since_us: u64,
) -> Result<Option<(Span, Tenure)>, ClusterError> {
    let (mut led, mut able_us) = (None, machine_micros());
    loop {
        if let Some((_, event)) = other.take_if(|(at_us, _)| *at_us <= machine_micros()) {
            scene.suffer(event).await?;
        }
        scene.mend()?;
        if let Some(tenure) = scene.looks.speaks(since_us)
            && led.is_none()
        {
            led = Some((Span(tenure.asked_us.saturating_sub(since_us)), tenure));
        }
        if !scene.can_lead() {
            able_us = machine_micros();
        }
        let is_whole = other.is_none() && scene.is_whole();
        if is_whole && scene.looks.speaks(able_us.max(since_us)).is_some() {
            return Ok(led);
        }
        if machine_micros() - able_us > LEADS_WITHIN_US && scene.looks.speaks(able_us).is_none() {
            return Ok(None);
        }
        tokio::time::sleep(LOOK).await;
    }
}
