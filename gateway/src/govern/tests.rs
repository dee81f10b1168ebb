//! Statements under their groups with a controller and no database: what a server would have counted is said here.

mod counted;
mod hinted;
mod payers;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_client::{Client, Consumption, Group, Ru, RuParts, Total, Usage};
use tidegate_controller::{Config, Controller};
use tidegate_cost_model::{SqlDialect, Template};
use tidegate_test_servers::{Collector, Exported, Manner};
use tidegate_traces::{Source, TraceMetrics, Traces, Written};
use tokio::task::yield_now;
use tokio::time::{interval, timeout};
use tonic::transport::Endpoint;

use super::*;
use crate::metrics::Metrics;

/// Rows of a result that break the rule of every group here.
const TOO_MANY: u64 = 10;
/// Longer than a controller takes for its answer, also on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A controller and a governor, and a session that may do anything.
pub(crate) struct Stage {
    pub(crate) governor: Arc<Governor>,
    subject: Subject,
    _tasks: Tasks,
    controller: Option<tidegate_controller::Running>,
    _folder: TempDir,
}

/// Tries until it is so.
pub(crate) async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let tries = async {
        while !check() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, tries).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A rule against such results.
pub(crate) fn ruled(action: &str) -> String {
    format!("query_limit = (exec_elapsed = '1h', rows = {TOO_MANY}, action = {action})")
}

/// The group owes more than it pays in the time that tests take.
async fn lead_into_debt(group: &Group) {
    group.charge_ru(RuParts::flat(Ru::whole(1_000_000)));
    eventually("it owes", || group.remaining().is_some_and(|left| !left.is_positive())).await;
}

/// The statement has run for so long.
async fn running_for(running: &Running, time: Duration) {
    while running.began().elapsed() < time {
        yield_now().await;
    }
}

fn cpu(milliseconds: u64) -> Option<Usage> {
    Some(Usage { cpu_ns: milliseconds * 1_000_000, ..Usage::default() })
}

fn rows(sent_rows: u64) -> Progress {
    Progress { sent_rows, ..Progress::default() }
}

/// All spans, to this collector, until the task is dropped.
fn traces(collector: &Collector) -> (Traces, tidegate_traces::Exporter) {
    let written =
        Written { endpoint: Some(collector.endpoint()), sample: Some("1".to_owned()), ..Written::default() };
    let source = Source { service: "tidegate-gateway", instance: "gw".to_owned() };
    Traces::start(written.check().unwrap().unwrap(), source, TraceMetrics::default())
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(Policy::default(), None).await
    }

    /// One of this policy, with `root` as its admin.
    pub(crate) async fn with(policy: Policy, traces: Option<Traces>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let controller = Controller::start(Config {
            store: folder.path().join("store.redb"),
            grpc_listen: "127.0.0.1:0".parse().unwrap(),
            http_listen: "127.0.0.1:0".parse().unwrap(),
            ..Config::default()
        });
        let controller = controller.await.unwrap();
        let endpoint = format!("http://{}", controller.grpc_addr);
        let client = Client::connect([&endpoint], "gw").await.unwrap();
        let channel = Endpoint::from_shared(endpoint).unwrap().connect_lazy();
        let policy = Policy { admins: Principals::parse(["root"]).unwrap(), ..policy };
        let (governor, tasks) = Governor::start(
            client,
            super::Controller::new(channel, None),
            "gw",
            policy,
            Arc::new(Metrics::new(1, traces.is_some())),
            traces,
        );
        let login = Login { tenant: "shop".into(), user: "root".into(), ..Login::default() };
        let subject = governor.subject(login).await.unwrap();
        Self { governor, subject, _tasks: tasks, controller: Some(controller), _folder: folder }
    }

    /// The controller is gone.
    pub(crate) async fn lose_controller(&mut self) {
        self.controller.take().expect("it is gone already").abort().await;
    }

    /// A statement that the gateway answers itself.
    async fn own(&self, sql: &str) {
        let statement = Arc::new(parse_own(sql.as_bytes(), SqlDialect::PostgreSql).unwrap().unwrap());
        let governor = Arc::clone(&self.governor);
        governor.answer(self.subject.clone(), SqlDialect::PostgreSql, statement).await.unwrap();
    }

    /// The group refuses statements like this one, and the gateway knows.
    pub(crate) async fn watch(&self, group: &Group, text: &str) {
        let watched = format!("resource group {} action = kill sql text similar to '{text}'", group.name());
        self.own(&format!("query watch add {watched}")).await;
        let known = async {
            let mut again = interval(Duration::from_millis(5));
            while !matches!(self.asked(group, text, false), Admission::Denied(_)) {
                again.tick().await;
            }
        };
        timeout(PATIENCE, known).await.expect("it is watched");
    }

    /// A group with this rule, or none, once the gateway has its lease and its rule.
    pub(crate) async fn group(&self, name: &str, rule: &str) -> Group {
        self.own(&format!("create resource group {name} ru_per_sec = 1000 {rule}")).await;
        let group = self.governor.group(name).unwrap();
        eventually("it has tokens", || group.remaining().is_some_and(Ru::is_positive)).await;
        if rule.starts_with("query_limit") {
            let known = async {
                // Each has a span where these are recorded, and an exporter takes so many at once.
                let mut again = interval(Duration::from_millis(5));
                while self.begun(&group).await.deadline().is_none() {
                    again.tick().await;
                }
            };
            timeout(PATIENCE, known).await.expect("the rule is known");
        }
        group
    }

    /// A statement that this group has admitted.
    async fn begun(&self, group: &Group) -> Box<Running> {
        self.answered(group, "select 1", false).await.unwrap()
    }

    /// The answer to a statement that asks this group, once it is known.
    async fn answered(
        &self,
        group: &Group,
        text: &str,
        in_transaction: bool,
    ) -> Result<Box<Running>, Denied> {
        match self.asked(group, text, in_transaction) {
            Admission::Now(running) => Ok(running),
            Admission::Wait(waits) => timeout(PATIENCE, waits).await.expect("it is decided"),
            Admission::Denied(denied) => Err(denied),
        }
    }

    /// A statement that asks this group.
    fn asked(&self, group: &Group, text: &str, in_transaction: bool) -> Admission {
        let subject = Subject { chosen: Some(group.clone()), ..self.subject.clone() };
        let dialect = SqlDialect::PostgreSql;
        let template = Arc::new(Template::new(dialect, text));
        self.governor.admit(&subject, dialect, &template, SqlText::Unseen, in_transaction)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_what_owes_and_what_is_given_up_has_its_spans() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let (traces, exporter) = traces(&collector);
    let stage = Stage::with(Policy::default(), Some(traces)).await;
    let group = stage.group("own", "").await;
    // A statement runs, and nobody ends it.
    drop(stage.begun(&group).await);
    // At 1,000 RU/s, a second or two.
    group.charge_ru(RuParts::flat(Ru::whole(2_000)));
    eventually("it owes", || group.remaining().is_some_and(|left| !left.is_positive())).await;
    let Admission::Now(owing) = stage.asked(&group, "commit", true) else { panic!("it ends a transaction") };
    drop(owing.end(cpu(1), rows(3), false));
    let Admission::Wait(waiting) = stage.asked(&group, "select 1", false) else { panic!("it owes") };
    drop(waiting);
    let Admission::Wait(waiting) = stage.asked(&group, "select 1", false) else { panic!("it owes") };
    let running = timeout(PATIENCE, waiting).await.expect("it is admitted").unwrap();
    let waited = running.end(cpu(1), rows(3), false).waited;
    drop(stage);
    exporter.end().await;
    let spans = collector.taken();
    let outcomes = |key: &str| {
        let values = spans.iter().filter_map(|span: &Exported| span.attributes.get(key).map(String::as_str));
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(outcomes("tidegate.admission"), ["admitted", "owed", "admitted"]);
    assert_eq!(outcomes("error.type"), ["abandoned"; 2]);
    let roots: Vec<_> = spans.iter().filter(|span| span.kind == 2).collect();
    assert_eq!(roots.len(), 4, "{spans:#?}");
    let micros = u64::try_from(waited.as_micros()).unwrap();
    assert!(micros > 0, "it waited");
    let admission = spans.iter().rfind(|span| span.name == "admission").unwrap();
    let run = spans.iter().rfind(|span| span.kind == 3).unwrap();
    assert_eq!((admission.ended - admission.began, run.began), (micros * 1_000, admission.ended));
}

/// The part of a group's consumption that its statements account for.
fn accounted(Total { charged, usage, operations, .. }: Total) -> Total {
    Total { charged, usage, operations, ..Total::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_charged_and_counted_once_whatever_its_rule_does_to_it() {
    let stage = Stage::new().await;
    let other = stage.group("other", "").await;
    for (at, action) in ["dryrun", "cooldown", "kill", "switch_group(other)"].into_iter().enumerate() {
        let own = stage.group(&format!("own{at}"), &ruled(action)).await;
        let consumed = || own.consumption().plus(&other.consumption());
        // Within the estimate of a query of which nothing is known, and beyond it; convicted at a look, or at its end.
        for (used, convicted_at) in [(0, 0), (0, 1), (0, 2), (0, 3), (30, 0), (30, 1), (30, 2), (30, 3)] {
            let (before, mut running) = (consumed(), stage.begun(&own).await);
            let _ = (0..3).find(|look| {
                let sent = if *look >= convicted_at { TOO_MANY } else { 0 };
                matches!(running.look(cpu(used), rows(sent)), Verdict::Dies(_))
            });
            let Ended { charged, usage, .. } = running.end(cpu(1), rows(TOO_MANY), false);
            let mut told = Total::default();
            told.count(&Consumption { charged, usage, operations: 1, ..Consumption::default() });
            let counted = accounted(consumed().minus(&before).unwrap());
            assert_eq!(counted, told, "{action} at look {convicted_at}, {used} ms each");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_pays_for_a_statement_holds_it_and_no_other_group_does() {
    let stage = Stage::new().await;
    for (at, (own_owes, other_owes)) in
        [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
    {
        let other = stage.group(&format!("other{at}"), "").await;
        let own = stage.group(&format!("own{at}"), &ruled(&format!("switch_group({})", other.name()))).await;
        let mut running = stage.begun(&own).await;
        // More than its estimate, and less than either group has.
        let _ = running.look(cpu(300), rows(0));
        for (group, owes) in [(&own, own_owes), (&other, other_owes)] {
            if owes {
                group.charge_ru(RuParts::flat(Ru::whole(100_000)));
            }
            eventually("it is so", || group.remaining().is_some_and(|left| left.is_positive() != owes)).await;
        }
        let mut held = |sent| {
            let holds = running.look(cpu(0), rows(sent)) == Verdict::Holds;
            assert_eq!(running.may_owe(), !holds, "inside a transaction, it is let through on the same debt");
            holds
        };
        assert_eq!((held(0), held(TOO_MANY)), (own_owes, other_owes), "before its switch and behind it");
    }
}

/// The name of a group that does not exist is no way around the watches of a session's own group.
#[tokio::test(flavor = "multi_thread")]
async fn a_hint_that_leads_nowhere_leaves_a_statement_to_the_watches_of_its_own_group() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    let (hinted, plain) = ("select /*+ RESOURCE_GROUP(nowhere) */ 1 from a", "select 2 from b");
    for text in [hinted, plain] {
        stage
            .own(&format!("query watch add resource group own action = kill sql text similar to '{text}'"))
            .await;
    }
    let denied = |text| matches!(stage.asked(&group, text, false), Admission::Denied(_));
    // Both are in the list once the later one is.
    eventually("the watches are known", || denied(plain)).await;
    match stage.asked(&group, hinted, false) {
        Admission::Wait(waits) => {
            let answer =
                timeout(PATIENCE, waits).await.expect("the controller says that there is no such group");
            assert!(answer.is_err(), "it runs");
        }
        Admission::Denied(_) => {}
        Admission::Now(_) => panic!("it runs at once"),
    }
    // Without a watch it runs in its own group.
    let Admission::Wait(waits) = stage.asked(&group, "select /*+ RESOURCE_GROUP(nowhere) */ 1 from c", false)
    else {
        panic!("no group is known under the name")
    };
    let ended = timeout(PATIENCE, waits).await.expect("it is admitted").unwrap().end(cpu(1), rows(1), false);
    assert_eq!(ended.group, *group.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_comes_or_goes_while_a_statement_runs_holds_for_it() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    let mut running = stage.begun(&group).await;
    assert_eq!((running.look(cpu(0), rows(TOO_MANY)), running.deadline()), (Verdict::Goes, None));
    stage.own(&format!("alter resource group own {}", ruled("cooldown"))).await;
    eventually("it is held", || running.look(cpu(0), rows(TOO_MANY)) == Verdict::Holds).await;
    let mut later = stage.begun(&group).await;
    assert!(later.deadline().is_some());
    stage.own("alter resource group own query_limit = null").await;
    let known = async {
        while stage.begun(&group).await.deadline().is_some() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, known).await.expect("the rule is gone");
    assert_eq!((later.look(cpu(0), rows(TOO_MANY)), later.deadline()), (Verdict::Goes, None));
    assert!(running.cools_down(), "what was decided stays");
}
