//! Finds who pays, admits statements, and keeps what is learnt of them. One per gateway process.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_client::{Client, Group, LeaseState, Permit, Refused, Ru, Unconfirmed};
use tidegate_cost_model::{Aim, CostTable, Estimator, Fingerprinter, SqlDialect, Template};
use tidegate_sql::Naming;
use tidegate_traces::{TraceId, Traces};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::book::RuleBook;
use super::case::{Case, Grounds};
use super::controller::Controller;
use super::denied::Denied;
use super::known::{Known, SqlText, fingerprint};
use super::outcomes::Outcomes;
use super::policy::{InTransaction, Policy};
use super::report;
use super::rules::{Action, Rules};
use super::running::{Admitted, Running};
use super::statements::Statements;
use super::subject::{Login, Subject};
use super::traced::Traced;
use crate::clock;
use crate::metrics::Metrics;

/// Convictions on their way to the controller; more are dropped, with a warning.
const MAX_CONVICTIONS: usize = 1_024;
/// Longest wait for the last report when the gateway ends.
const LAST_REPORT: Duration = Duration::from_secs(5);

/// What sessions of all protocols share.
pub(crate) struct Governor {
    controller: Controller,
    postgres: Fingerprinter,
    mysql: Fingerprinter,
    book: Arc<RuleBook>,
    outcomes: Arc<Outcomes>,
}

/// The tasks behind a governor.
pub(crate) struct Tasks {
    end_reports: oneshot::Sender<oneshot::Sender<()>>,
    tasks: Vec<JoinHandle<()>>,
}

/// Whether a statement may run.
pub(crate) enum Admission {
    /// It may.
    Now(Box<Running>),
    /// It will be known.
    Wait(Pin<Box<dyn Future<Output = Result<Box<Running>, Denied>> + Send>>),
    /// It may not.
    Denied(Denied),
}

impl fmt::Debug for Governor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Governor").field("name", &self.outcomes.name).finish_non_exhaustive()
    }
}

/// A statement that asks to run.
struct Request {
    case: Case,
    convicted: Option<Action>,
    estimate: Ru,
    in_transaction: bool,
    /// That it ends a transaction, and may be let through for it: where its session remembers that it was.
    ends: Option<Arc<AtomicBool>>,
    /// Its spans, if its trace is recorded.
    traced: Option<Box<Traced>>,
}

impl Governor {
    /// A governor called `name`, with the tasks that keep it up to date. Needs a tokio runtime.
    pub(crate) fn start(
        client: Client,
        controller: Controller,
        name: &str,
        policy: Policy,
        metrics: Arc<Metrics>,
        traces: Option<Traces>,
    ) -> (Arc<Self>, Tasks) {
        let (convictions, waiting) = mpsc::channel(MAX_CONVICTIONS);
        let (end_reports, end) = oneshot::channel();
        let book = Arc::new(RuleBook { client, policy, rules: Rules::default() });
        let counted = Arc::<Statements>::default();
        let outcomes = Arc::new(Outcomes {
            name: name.to_owned(),
            estimator: Estimator::new(&CostTable::tidb_v1(), Aim::default()),
            statements: Arc::clone(&counted),
            convictions,
            metrics,
            traces,
        });
        let governor = Arc::new(Self {
            controller: controller.clone(),
            postgres: Fingerprinter::new(SqlDialect::PostgreSql),
            mysql: Fingerprinter::new(SqlDialect::MySql),
            book: Arc::clone(&book),
            outcomes,
        });
        let (follower, named) = (controller.clone(), name.to_owned());
        let tasks = vec![
            tokio::spawn(async move { book.rules.follow(follower, named).await }),
            tokio::spawn(report::statements(controller.clone(), name.to_owned(), counted, end)),
            tokio::spawn(report::convictions(controller, waiting)),
        ];
        (governor, Tasks { end_reports, tasks })
    }

    /// Its counters.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.outcomes.metrics
    }

    /// Whether a controller is there.
    pub(crate) fn is_connected(&self) -> bool {
        self.book.client.is_connected()
    }

    /// The controller's services.
    pub(super) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The governed side of a session, once the bindings are known.
    pub(crate) async fn subject(&self, login: Login) -> Result<Subject, Denied> {
        let began = clock::now();
        let bound = self.book.client.resolve(&login.tenant, &login.user).await;
        let bound = bound.map_err(|error| Denied::no_group(&error, began.elapsed()))?;
        let is_admin = self.book.policy.admins.contains(&login.tenant, &login.user);
        let switches = self.book.policy.switchers.contains(&login.tenant, &login.user);
        let may_switch = is_admin || switches || self.book.policy.anybody_switches;
        // A hint at a group that does not exist is ignored, as in a statement.
        let named = match login.hint().filter(|_| may_switch) {
            Some(name) => self.book.client.group(&name).await.ok(),
            None => None,
        };
        let ended = Arc::default();
        Ok(Subject { login: Arc::new(login), bound, named, chosen: None, is_admin, may_switch, ended })
    }

    /// A handle of a group that probably exists.
    pub(crate) fn group(&self, name: &str) -> Option<Group> {
        self.book.group(name)
    }

    /// The template of a text.
    pub(crate) fn template(&self, dialect: SqlDialect, text: &[u8]) -> Arc<Template> {
        match dialect {
            SqlDialect::MySql => self.mysql.fingerprint(text),
            _ => self.postgres.fingerprint(text),
        }
    }

    /// The part of a prepared statement that is kept.
    pub(crate) fn known(&self, dialect: SqlDialect, seen: &[u8], whole: bool) -> Known {
        let naming = if whole { self.naming(dialect, seen, true) } else { None };
        Known { naming, ..self.prepared(self.template(dialect, seen), SqlText::of(seen, whole)) }
    }

    /// A statement that is prepared.
    pub(crate) fn prepared(&self, template: Arc<Template>, text: SqlText<'_>) -> Known {
        Known { caller: self.outcomes.caller(text).map(Arc::new), ..Known::new(template, text) }
    }

    /// What a whole text does with names that SQL gives to statements; see [`Naming::parse`].
    pub(crate) fn naming(
        &self,
        dialect: SqlDialect,
        text: &[u8],
        escapes: bool,
    ) -> Option<Arc<Naming<Known>>> {
        let naming = Naming::parse(text, dialect, escapes)?;
        // A statement prepared by SQL gives no names: servers refuse that.
        let known = |text: String| {
            Known::new(self.template(dialect, text.as_bytes()), SqlText::Whole(text.as_bytes()))
        };
        Some(Arc::new(naming.map(known)))
    }

    /// Asks for admission of a statement of `subject`; `text` is looked at where texts are watched.
    pub(crate) fn admit(
        &self,
        subject: &Subject,
        dialect: SqlDialect,
        template: &Arc<Template>,
        text: SqlText<'_>,
        in_transaction: bool,
    ) -> Admission {
        let ended_before = subject.ended.swap(false, Ordering::Relaxed);
        let hint = template.resource_group().filter(|_| subject.may_switch);
        let hinted = hint.and_then(|name| self.group(name));
        let must_not_wait = in_transaction || self.book.policy.admit_without_lease;
        // Without a controller nobody says whether there is such a group.
        let hinted = hinted.filter(|group| !must_not_wait || self.is_connected() || is_there(group));
        let group = hinted.clone().unwrap_or_else(|| subject.group());
        // A hint may lead nowhere, and then it is the rules of another group.
        let needs_text = hinted.is_some() || self.book.rules.book().needs_texts(group.name());
        let mut request = Request {
            case: Case {
                book: Arc::clone(&self.book),
                outcomes: Arc::clone(&self.outcomes),
                login: Arc::clone(&subject.login),
                template: Arc::clone(template),
                digest: if needs_text { text.digest() } else { None },
            },
            convicted: None,
            estimate: self.outcomes.estimate(group.name(), template),
            in_transaction,
            ends: None,
            traced: self.traced(subject, dialect, template, text),
        };
        if let Err(denied) = request.judge(&group) {
            return Admission::Denied(request.denied(&group, denied));
        }
        let payer = request.payer(&group);
        if let Some(permit) = payer.take(request.estimate).map(Permit::into_owned) {
            return Admission::Now(Box::new(request.run(group, payer, permit, Duration::ZERO, false)));
        }
        let obstacle = payer.check(request.estimate).err().map(Refused::into_owned);
        if let Some(refused @ Refused::ShutDown { .. }) = obstacle {
            let denied = Denied::refused(&refused, &payer, Duration::ZERO);
            return Admission::Denied(request.denied(&payer, denied));
        }
        if in_transaction && !ended_before && ends_transaction(template) {
            request.ends = Some(Arc::clone(&subject.ended));
        }
        let no_lease = matches!(obstacle, Some(Refused::Unavailable { .. }));
        // Nobody would pay what a group owes that does not exist: whether it does is asked first.
        if (hinted.is_none() || is_there(&group)) && request.may_owe(&payer, no_lease) {
            return Admission::Now(Box::new(request.run_on_debt(group, payer, Duration::ZERO)));
        }
        // A hint at a group that does not exist is ignored, as TiDB does.
        let fallback = hinted.is_some().then(|| subject.group());
        Admission::Wait(Box::pin(request.wait(group, payer, fallback)))
    }

    /// The spans of a statement that begins now, if its trace is recorded.
    fn traced(
        &self,
        subject: &Subject,
        dialect: SqlDialect,
        template: &Arc<Template>,
        text: SqlText<'_>,
    ) -> Option<Box<Traced>> {
        let traces = self.outcomes.traces.as_ref()?;
        let open = traces.begin(self.outcomes.caller(text), clock::wall_us())?;
        Some(Traced::new(open, dialect, &subject.login, template))
    }

    /// Ends the session with the controller. Returns what it did not confirm.
    pub(crate) async fn shutdown(&self, tasks: Tasks) -> Vec<Unconfirmed> {
        let (done, last) = oneshot::channel();
        if tasks.end_reports.send(done).is_ok() {
            // The report is tried once more; what it held is statistics only.
            let _ = clock::within(LAST_REPORT, last).await;
        }
        for task in tasks.tasks {
            task.abort();
        }
        self.book.client.shutdown().await.unconfirmed
    }
}

/// Whether the controller has said that it has this group.
fn is_there(group: &Group) -> bool {
    !matches!(group.state().lease, LeaseState::None | LeaseState::Unknown)
}

/// Whether this ends a transaction, and is all of its text: a statement behind it has to be admitted by itself.
fn ends_transaction(template: &Template) -> bool {
    let text = template.text();
    let mut words = text.split_ascii_whitespace().map(str::to_ascii_uppercase);
    let first = words.next().unwrap_or_default();
    let ends = matches!(first.as_str(), "COMMIT" | "ROLLBACK" | "END" | "ABORT");
    ends && !text.contains(';') && !words.any(|word| word == "TO" || word == "CHAIN")
}

impl Request {
    /// Whether it is watched in `group`; an `Err` is the error for its client. A conviction that lets it run is recorded
    /// once it runs: until then it may be given up, or asked about again.
    fn judge(&mut self, group: &Group) -> Result<(), Denied> {
        self.convicted = None;
        let case = &self.case;
        let book = case.book.rules.book();
        let text = || case.digest.map(|digest| digest.to_string());
        let Some(watch) = book.watch(group.name(), || fingerprint(&case.template), text) else {
            return Ok(());
        };
        if watch.action == Action::Kill {
            case.convict(group.name(), &watch.action, Grounds::Watch);
            case.outcomes.count_throttled(group, &case.template, Duration::ZERO, self.trace());
            return Err(Denied::watched(group.name(), watch.id));
        }
        self.convicted = Some(watch.action.clone());
        Ok(())
    }

    /// The group that pays for it in `group`: a watch may have switched it already.
    fn payer(&self, group: &Group) -> Group {
        let switched = match &self.convicted {
            Some(Action::Switch(target)) => self.case.book.group(target),
            _ => None,
        };
        switched.unwrap_or_else(|| group.clone())
    }

    /// Whether it runs on debt of this group, of which there may be no lease.
    fn may_owe(&self, payer: &Group, no_lease: bool) -> bool {
        let Policy { in_transaction, admit_without_lease, .. } = self.case.book.policy;
        let ends = self.ends.is_some() && in_transaction == InTransaction::OweSome;
        (self.in_transaction && (self.case.book.lets_owe(payer) || ends)) || (no_lease && admit_without_lease)
    }

    fn run_on_debt(self, group: Group, payer: Group, waited: Duration) -> Running {
        if let Some(ended) = &self.ends {
            ended.store(true, Ordering::Relaxed);
        }
        let permit = payer.owe().into_owned();
        self.run(group, payer, permit, waited, true)
    }

    fn run(
        mut self,
        group: Group,
        payer: Group,
        permit: Permit<'static>,
        waited: Duration,
        owes: bool,
    ) -> Running {
        let payer = if permit.is_demoted() { permit.payer() } else { payer };
        if let Some(traced) = &mut self.traced {
            traced.admitted(payer.name(), self.estimate, waited, owes);
        }
        let Self { case, convicted, traced, .. } = self;
        if let Some(action) = &convicted {
            case.convict(group.name(), action, Grounds::Watch);
        }
        Running::new(Admitted { case, group, payer, permit, convicted, waited, traced })
    }

    /// Its trace, if that is recorded.
    fn trace(&self) -> Option<TraceId> {
        self.traced.as_deref().and_then(Traced::trace)
    }

    /// This group did not admit it, for this reason.
    fn denied(&mut self, group: &Group, denied: Denied) -> Denied {
        if let Some(traced) = self.traced.take() {
            traced.denied(group.name(), self.estimate, &denied);
        }
        denied
    }

    /// Waits its turn, at most as long as the policy says.
    async fn wait(
        mut self,
        mut group: Group,
        mut payer: Group,
        mut fallback: Option<Group>,
    ) -> Result<Box<Running>, Denied> {
        let began = clock::now();
        loop {
            let deadline = clock::after(began, self.case.book.max_wait(group.name()));
            let answer = payer.acquire_estimated_by(self.estimate, deadline).await.map(Permit::into_owned);
            let waited = began.elapsed();
            match answer {
                Ok(permit) => return Ok(Box::new(self.run(group, payer, permit, waited, false))),
                // The group it was switched to is gone meanwhile.
                Err(Refused::UnknownGroup { .. }) if payer.name() != group.name() => payer = group.clone(),
                Err(Refused::UnknownGroup { .. }) if fallback.is_some() => {
                    if let Some(own) = fallback.take() {
                        group = own;
                        self.estimate = self.case.outcomes.estimate(group.name(), &self.case.template);
                        self.judge(&group).map_err(|denied| self.denied(&group, denied))?;
                        payer = self.payer(&group);
                        let obstacle = payer.check(self.estimate).err();
                        let no_lease = matches!(obstacle, Some(Refused::Unavailable { .. }));
                        if obstacle.is_some() && self.may_owe(&payer, no_lease) {
                            return Ok(Box::new(self.run_on_debt(group, payer, waited)));
                        }
                    }
                }
                Err(refused) => {
                    self.case.outcomes.count_throttled(&group, &self.case.template, waited, self.trace());
                    let denied = Denied::refused(&refused, &payer, waited);
                    let end_waits = self.case.book.policy.in_transaction == InTransaction::Wait;
                    let denied = self.denied(&payer, denied);
                    return Err(if self.in_transaction { denied.in_transaction(end_waits) } else { denied });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_transaction_and_nothing_else_is_told_by_its_text() {
        let ends = |text: &str| {
            [SqlDialect::PostgreSql, SqlDialect::MySql]
                .map(|dialect| ends_transaction(&Template::new(dialect, text)))
        };
        for text in ["commit", "COMMIT WORK", "rollback", " /* x */ Rollback ; ", "commit transaction"] {
            assert_eq!(ends(text), [true; 2], "{text}");
        }
        assert!(ends("end")[0] && ends("abort")[0]);
        for text in [
            "commit; select 1",
            "rollback; begin; select 1",
            "rollback to savepoint a",
            "commit and chain",
            "begin",
            "select 'commit'",
            "",
        ] {
            assert_eq!(ends(text), [false; 2], "{text}");
        }
    }
}
