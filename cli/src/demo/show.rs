//! Runs the demo second by second: looks, kills and restarts a node, lowers a cap, and gathers the evidence.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::child::WITHIN;
use super::evidence::Evidence;
use super::ledger::{Account, Charges, compare};
use super::nodes::{Leavings, OwnSql};
use super::plan::round_up;
use super::progress::Progress;
use super::report::{CapChange, Findings, Report};
use super::stage::Stage;
use super::takeover::Takeover;
use crate::admin::Admin;
use crate::clock::monotonic_us;
use crate::error::CliError;
use crate::sample::sample;
use crate::view::ConsumptionView;

/// The node that is killed.
const VICTIM: &str = "node-2";
/// The group whose cap is lowered, and by how much.
const LOWERED: &str = "shop";
const LOWERED_TO_PERCENT: i64 = 50;
/// The controller keeps a lease this much longer than its ttl: a thousandth for drift and 50 ms, its defaults.
const MARGIN: Span = Span::millis(60);

/// A run that is over.
pub(crate) struct Show {
    stage: Stage,
    changes: Vec<CapChange>,
    takeover: Option<Takeover>,
    to_us: u64,
}

impl Show {
    /// Runs for `seconds` or until interrupted. `own` is a file of statements and the user to run them as.
    pub(crate) async fn run(
        mut stage: Stage,
        seconds: u64,
        own: Option<(&Path, &str)>,
        progress: &mut Progress,
        interrupted: &mut watch::Receiver<bool>,
    ) -> Result<Self, CliError> {
        let (mut changes, mut takeover) = (Vec::new(), None);
        let mut own_sql = None;
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once.
        ticks.tick().await;
        let mut second = 0;
        while second < seconds {
            tokio::select! {
                _ = ticks.tick() => {}
                line = next_line(&mut own_sql) => {
                    match line? {
                        Some(line) => progress.event(&format!("  own: {line}")),
                        None => give_back(&mut stage, &mut own_sql),
                    }
                    continue;
                }
                _ = interrupted.wait_for(|interrupted| *interrupted) => {
                    progress.event("interrupted; ending");
                    break;
                }
            }
            second += 1;
            progress.show(second, seconds, sample(&stage.admin).await?);
            if second == 1
                && let Some((sql, user)) = own
            {
                own_sql = Some(start_own(&mut stage, sql, user, progress)?);
            }
            if second == (seconds / 3).max(1) {
                progress.event(&format!("killing {VICTIM} with SIGKILL and starting it again"));
                stage.nodes.kill(VICTIM).await?;
                stage.nodes.start(VICTIM).await?;
            }
            if second == (seconds / 2).max(1) {
                takeover = take_over(&mut stage, progress).await?;
            }
            if second == seconds * 2 / 3 {
                changes.extend(lower(&stage, progress).await?);
            }
        }
        if let Some(own) = &mut own_sql {
            // A late part says so when it is stopped.
            own.end();
            let rest = async {
                while let Ok(Some(line)) = own.line().await {
                    progress.event(&format!("  own: {line}"));
                }
            };
            // A node that does not end is found out when it is stopped.
            let _ = tokio::time::timeout(WITHIN, rest).await;
        }
        give_back(&mut stage, &mut own_sql);
        Ok(Self { stage, changes, takeover, to_us: monotonic_us() })
    }

    /// Ends everything and judges.
    pub(crate) async fn report(mut self, progress: &mut Progress) -> Result<Report, CliError> {
        progress.event("ending the nodes and comparing the books ..");
        let left = self.stage.nodes.stop().await?;
        let (controller, consumed) = books(&self.stage.admin).await?;
        if let Some(witness) = self.stage.witness {
            witness.end().await;
        }
        self.stage.controllers.stop().await?;
        let mut evidence: Evidence = self.stage.nodes.evidence()?;
        let takeover = self.takeover.map(|takeover| takeover.with(&evidence));
        let own = self.stage.nodes.own_evidence()?;
        let texts = texts(&left);
        Ok(Report::new(Findings {
            plan: &self.stage.plan,
            from_us: self.stage.from_us,
            to_us: self.to_us,
            changes: &self.changes,
            evidence: &mut evidence,
            own: &own,
            starts: self.stage.nodes.starts(),
            consumed: &consumed,
            ledger: compare(&left.charges, &controller),
            texts: &|fingerprint| texts.get(&fingerprint).cloned(),
            failed_statements: left.finals.iter().map(|last| last.failed).sum(),
            takeover,
        }))
    }
}

/// The next line of one's own statements; never, when there are none.
async fn next_line(own: &mut Option<OwnSql>) -> Result<Option<String>, CliError> {
    match own {
        Some(own) => own.line().await,
        None => std::future::pending().await,
    }
}

fn start_own(stage: &mut Stage, sql: &Path, user: &str, progress: &mut Progress) -> Result<OwnSql, CliError> {
    let known = stage.plan.users.iter().find(|(load, _)| load.user == user);
    let (tenant, group) = known.map_or(("", "default"), |(load, group)| (load.tenant.as_str(), *group));
    progress.event(&format!("running {} as user {user}, group {group}", sql.display()));
    let tenant = tenant.to_owned();
    stage.nodes.start_own(sql, "node-1", &tenant, user)
}

fn give_back(stage: &mut Stage, own: &mut Option<OwnSql>) {
    if let Some(own) = own.take() {
        stage.nodes.give_back(own);
    }
}

/// Kills the controller that leads, where there are others, and goes on with the next one.
async fn take_over(stage: &mut Stage, progress: &mut Progress) -> Result<Option<Takeover>, CliError> {
    let Some(witness) = &stage.witness else { return Ok(None) };
    progress.event("killing the controller that leads with SIGKILL");
    let (takeover, admin) = witness.watch(&mut stage.controllers, &stage.admin).await?;
    progress.event(&format!(
        "  {} granted {} ms later; {} is a standby from now on",
        takeover.leads,
        takeover.granted_after_us / 1_000,
        takeover.killed
    ));
    stage.admin = admin;
    Ok(Some(takeover))
}

/// Lowers a cap through the admin service.
async fn lower(stage: &Stage, progress: &mut Progress) -> Result<Option<CapChange>, CliError> {
    let Some(group) = stage.plan.group(LOWERED) else {
        return Ok(None);
    };
    let to: Rate = round_up(group.rate.scale(LOWERED_TO_PERCENT, 100));
    progress.event(&format!("lowering the cap of {LOWERED} from {} to {to}", group.rate));
    let request = v1::AlterGroupRequest {
        group: Some(v1::Group {
            name: LOWERED.to_owned(),
            ru_per_sec: to.number().to_string(),
            ..v1::Group::default()
        }),
        update_mask: vec!["ru_per_sec".to_owned()],
        expected_revision: 0,
    };
    stage.admin.calls().alter_group(request).await.map_err(stage.admin.failed())?;
    Ok(Some(CapChange {
        group: LOWERED,
        from: group.rate,
        to,
        at_us: monotonic_us(),
        grace: stage.plan.ttl + MARGIN,
    }))
}

/// The controller's ledger: charges of each start of each node, and consumption by group.
async fn books(admin: &Admin) -> Result<(Charges, Vec<(String, ConsumptionView)>), CliError> {
    let request = v1::UsageRequest { group: String::new(), per_client: true };
    let reply = admin.calls().usage(request).await.map_err(admin.failed())?.into_inner();
    let (mut charges, mut consumed) = (Charges::new(), Vec::new());
    for row in reply.rows {
        let total = ConsumptionView::from(row.total);
        if row.client.is_empty() {
            consumed.push((row.group, total));
            continue;
        }
        let account = Account { group: row.group, client: row.client, incarnation: row.incarnation };
        charges.insert(account, total.total_micro_ru.0);
    }
    Ok((charges, consumed))
}

/// Statement texts of all nodes, by fingerprint.
fn texts(left: &Leavings) -> BTreeMap<u64, String> {
    let all = left.finals.iter().flat_map(|last| &last.templates);
    all.filter_map(|(key, text)| Some((u64::from_str_radix(key, 16).ok()?, text.clone()))).collect()
}
