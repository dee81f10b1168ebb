//! Runs SQL operations under governance: estimate, admission, metering, settlement.
//!
//! An operation is one statement or one transaction. A transaction is admitted as a whole before its `BEGIN`, for the
//! sum of its statements' estimates, so that no lock of the database is held while waiting for admission; each
//! statement is metered by itself and teaches the estimator.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tidegate_client::{Client, Group, GroupName, Refused, Resolved, Ru, RuParts, Usage};
use tidegate_controller::quantity::Count;
use tidegate_cost_model::{Aim, CostTable, Estimator, Fingerprint, Fingerprinter, SqlDialect, Template};

use super::admission_log::AdmissionLog;
use super::final_counters::{CountersOf, FinalCounters};
use crate::error::CliError;
use crate::sql::{Measured, Statement, run};

/// One statement, or the statements of one transaction from `BEGIN` to `COMMIT`.
pub(crate) type Operation = Vec<Statement>;

/// Longest text kept of a template, in bytes.
const MAX_TEMPLATE_TEXT: usize = 512;

/// What runs operations; shared by the threads of a node.
pub(crate) struct Governor {
    client: Client,
    fingerprinter: Fingerprinter,
    estimator: Estimator,
    log: AdmissionLog,
    /// Every group charged here, to read its counters at the end.
    groups: Mutex<BTreeMap<String, Group>>,
    templates: Mutex<BTreeMap<u64, String>>,
    failed: AtomicU64,
}

/// An operation that ran.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) group: String,
    pub(crate) estimate: Ru,
    pub(crate) waited_us: u64,
    pub(crate) charged: RuParts,
    /// What each statement used.
    pub(crate) statements: Vec<Measured>,
    /// Why a statement failed; those behind it did not run.
    pub(crate) failure: Option<String>,
}

/// An operation that did not run.
#[derive(Debug)]
pub(crate) struct NotRun {
    pub(crate) refused: Refused,
    pub(crate) waited_us: u64,
}

impl Governor {
    /// A governor that admits through `client` and logs to `log`.
    pub(crate) fn new(client: Client, log: AdmissionLog) -> Self {
        Self {
            client,
            fingerprinter: Fingerprinter::new(SqlDialect::SQLite),
            estimator: Estimator::new(&CostTable::tidb_v1(), Aim::default()),
            log,
            groups: Mutex::new(BTreeMap::new()),
            templates: Mutex::new(BTreeMap::new()),
            failed: AtomicU64::new(0),
        }
    }

    /// Teaches the estimator a cost that was measured elsewhere, for the statements of `who`'s group.
    pub(crate) fn learn(&self, who: &Resolved, sql: &str, ru: Ru) {
        let template = self.fingerprinter.fingerprint(sql);
        self.estimator.observe(who.group().name(), template.fingerprint(), template.kind(), ru);
    }

    /// The group that pays for `user` of `tenant`, followed over re-bindings.
    pub(crate) async fn resolve(&self, tenant: &str, user: &str) -> Result<Resolved, CliError> {
        let resolved = self.client.resolve(tenant, user).await?;
        self.remember(&resolved.group());
        Ok(resolved)
    }

    fn remember(&self, group: &Group) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if !groups.contains_key(&**group.name()) {
            groups.insert(group.name().to_string(), group.clone());
        }
    }

    /// Waits for admission, at most `max_wait`.
    pub(crate) async fn admit(
        &self,
        who: &Resolved,
        operation: &[Statement],
        max_wait: Duration,
    ) -> Result<Admitted, NotRun> {
        let templates: Vec<Arc<Template>> =
            operation.iter().map(|statement| self.fingerprinter.fingerprint(&statement.sql)).collect();
        let group = who.group();
        let estimates =
            templates.iter().map(|t| self.estimator.estimate(group.name(), t.fingerprint(), t.kind()));
        let estimate: Ru = estimates.sum();
        self.remember(&group);
        let (answer, waited_us) = self.log.admit(&group, estimate, max_wait).await;
        match answer {
            Ok(permit) => {
                self.remember(&permit.payer());
                Ok(Admitted { group: group.name().clone(), permit, templates, waited_us })
            }
            Err(refused) => Err(NotRun { refused, waited_us }),
        }
    }

    /// Runs what was admitted on the calling thread, and settles it. A failed transaction is rolled back and pays
    /// for what it did.
    pub(crate) fn run(&self, connection: &Connection, operation: &[Statement], admitted: Admitted) -> Ran {
        let Admitted { group: asked, permit, templates, waited_us } = admitted;
        let mut statements = Vec::with_capacity(operation.len());
        let (mut usage, mut failure) = (Usage::default(), None);
        let mut parts = Vec::with_capacity(operation.len());
        for (statement, template) in operation.iter().zip(&templates) {
            let (done, measured) = run(connection, statement);
            let ru = permit.price(&measured.usage).total();
            usage = usage.plus(&measured.usage);
            parts.push((template.fingerprint().0, ru.0));
            statements.push(measured);
            self.keep_text(template);
            match done {
                Ok(()) => {
                    let (fingerprint, kind) = (template.fingerprint(), template.kind());
                    self.estimator.observe(&asked, fingerprint, kind, ru);
                }
                Err(error) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    failure = Some(error.to_string());
                    break;
                }
            }
        }
        if failure.is_some() && !connection.is_autocommit() {
            let (_, measured) = run(connection, &Statement::new("ROLLBACK", []));
            usage = usage.plus(&measured.usage);
        }
        let (group, estimate) = (permit.group().to_string(), permit.estimate());
        let charged = self.log.settle(permit, &usage, parts);
        Ran { group, estimate, waited_us, charged, statements, failure }
    }

    fn keep_text(&self, template: &Template) {
        let mut templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
        let Fingerprint(fingerprint) = template.fingerprint();
        if templates.len() < Estimator::MAX_TEMPLATES && !templates.contains_key(&fingerprint) {
            let text = template.text();
            let text = text.get(..text.floor_char_boundary(MAX_TEMPLATE_TEXT)).unwrap_or(text);
            templates.insert(fingerprint, text.to_owned());
        }
    }

    /// Ends the session gracefully and returns what was charged here. No operation may be under way.
    pub(crate) async fn finish(&self, client_name: &str) -> FinalCounters {
        let shutdown = self.client.shutdown().await;
        let stats = self.client.stats();
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = |group: &Group| {
            let consumed = group.consumption();
            CountersOf { charged_micro_ru: Count(consumed.ru().0), operations: Count(consumed.operations) }
        };
        let templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
        let unconfirmed = shutdown.unconfirmed.iter();
        FinalCounters {
            client: client_name.to_owned(),
            incarnation: stats.incarnation,
            groups: groups.iter().map(|(name, group)| (name.clone(), counters(group))).collect(),
            templates: templates.iter().map(|(key, text)| (format!("{key:016x}"), text.clone())).collect(),
            unconfirmed: unconfirmed
                .map(|report| format!("{} in group {}", report.ru, report.group))
                .collect(),
            process_cpu_ns: stats.process.map(|process| process.cpu_ns).unwrap_or_default(),
            metered_cpu_ns: stats.metered_cpu_ns,
            failed: self.failed.load(Ordering::Relaxed),
            log_failure: self.log.failure().unwrap_or_default(),
        }
    }
}

/// The right to run one operation.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// The group that was asked, whose costs are learnt; another one may pay.
    group: GroupName,
    permit: tidegate_client::Permit<'static>,
    templates: Vec<Arc<Template>>,
    waited_us: u64,
}
