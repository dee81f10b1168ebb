//! A statement from its admission to its end: it is charged as it goes, and its group's rule is checked every time.

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Group, GroupName, Permit, RuParts, Usage};
use tidegate_cost_model::{StatementKind, Template};
use tokio::time::Instant;

use super::case::{Case, Grounds};
use super::denied::Denied;
use super::guess::guess;
use super::rules::{Action, Limit};
use super::share::Work;
use super::statements::{Outcome, Record};
use super::traced::{Ran, Traced};
use crate::clock;

/// What of a statement can be seen on the wire so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Rows sent to the client, and rows the server says it changed.
    pub(crate) sent_rows: u64,
    pub(crate) changed_rows: u64,
    /// Bytes from and to the client.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Progress {
    /// The sum.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            sent_rows: self.sent_rows.saturating_add(other.sent_rows),
            changed_rows: self.changed_rows.saturating_add(other.changed_rows),
            bytes_in: self.bytes_in.saturating_add(other.bytes_in),
            bytes_out: self.bytes_out.saturating_add(other.bytes_out),
        }
    }
}

/// What to do with a statement that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing to do.
    Goes,
    /// Its result is not to be taken from the server for a while.
    Holds,
    /// Cancel it, with this error for the client.
    Dies(Denied),
}

/// What a statement cost.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) group: GroupName,
    pub(crate) charged: RuParts,
    pub(crate) usage: Usage,
    pub(crate) elapsed: Duration,
    pub(crate) waited: Duration,
    /// The server's own counters could not be read.
    pub(crate) estimated: bool,
}

/// An admitted statement.
pub(crate) struct Running {
    case: Case,
    /// The group that admitted it; the rule and the statistics are this group's.
    group: Group,
    /// The group that pays: another one once the statement is switched.
    payer: Group,
    permit: Option<Permit<'static>>,
    limit: Option<Arc<Limit>>,
    /// What was decided about it, once.
    convicted: Option<Action>,
    began: Instant,
    waited: Duration,
    seen: Progress,
    /// CPU and bytes guessed so far, where there are no counters.
    guessed: Usage,
    /// Requests that are charged.
    requested: Usage,
    usage: Usage,
    charged: RuParts,
    /// Its spans, if its trace is recorded.
    traced: Option<Box<Traced>>,
}

/// What a statement is admitted with.
pub(super) struct Admitted {
    pub(super) case: Case,
    pub(super) group: Group,
    /// The group that pays: another one if a watch has switched it.
    pub(super) payer: Group,
    pub(super) permit: Permit<'static>,
    /// The action of a watch that convicted it without ending it.
    pub(super) convicted: Option<Action>,
    pub(super) waited: Duration,
    pub(super) traced: Option<Box<Traced>>,
}

impl Running {
    pub(super) fn new(admitted: Admitted) -> Self {
        let Admitted { case, group, payer, permit, convicted, waited, traced } = admitted;
        let limit = case.book.limit(group.name());
        Self {
            case,
            payer,
            group,
            permit: Some(permit),
            limit,
            convicted,
            began: clock::now(),
            waited,
            seen: Progress::default(),
            guessed: Usage::default(),
            requested: Usage::default(),
            usage: Usage::default(),
            charged: RuParts::default(),
            traced,
        }
    }

    /// When it was admitted.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// When its group's rule ends it, if it does by time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let most = self.limit.as_ref().filter(|_| self.convicted.is_none())?.elapsed?;
        self.began.checked_add(most)
    }

    /// Charges what was used since the last look; `counted` is what the server's counters say, if they can be read.
    pub(crate) fn look(&mut self, counted: Option<Usage>, progress: Progress) -> Verdict {
        let used = self.used(counted, progress);
        self.charge(&used);
        // A rule may have come or changed since it began.
        self.limit = self.case.book.limit(self.group.name());
        if self.convicted.is_none()
            && let Some(limit) = self.limit.clone()
            && let Some(rule) = limit.broken(self.began.elapsed(), self.charged.total(), progress.sent_rows)
        {
            let action = limit.action.clone();
            self.case.convict(self.group.name(), &action, Grounds::Rule(rule.clone()));
            self.carry_out(action.clone());
            if action == Action::Kill {
                return Verdict::Dies(Denied::runaway(self.group.name(), &rule));
            }
        }
        match &self.convicted {
            Some(Action::Cooldown) => Verdict::Holds,
            _ if self.owes() => Verdict::Holds,
            _ => Verdict::Goes,
        }
    }

    /// Whether it has used more than it was admitted for, of a group that has nothing left.
    fn owes(&self) -> bool {
        let exceeded = self.permit.as_ref().is_some_and(|permit| !permit.estimate().is_positive());
        exceeded && self.payer.remaining().is_some_and(|left| !left.is_positive())
    }

    /// Whether its result is to be taken slowly until it ends.
    pub(crate) fn cools_down(&self) -> bool {
        self.convicted == Some(Action::Cooldown)
    }

    /// Whether it may go on on debt of its group, inside a transaction.
    pub(crate) fn may_owe(&self) -> bool {
        self.case.book.lets_owe(&self.payer)
    }

    /// Longest time for which its group holds it back.
    pub(crate) fn patience(&self) -> Duration {
        self.case.book.max_wait(self.group.name())
    }

    /// What it cost so far; it goes on.
    pub(crate) fn so_far(&mut self, counted: Option<Usage>, progress: Progress) -> Ended {
        let used = self.used(counted, progress).plus(&self.requests(progress));
        self.charge(&used);
        Ended {
            group: self.group.name().clone(),
            charged: self.charged,
            usage: self.usage,
            elapsed: self.began.elapsed(),
            waited: self.waited,
            estimated: counted.is_none(),
        }
    }

    /// Ends it: settles the rest, learns its cost, counts it.
    pub(crate) fn end(mut self, counted: Option<Usage>, progress: Progress, failed: bool) -> Ended {
        let used = self.used(counted, progress).plus(&self.requests(progress));
        self.usage = self.usage.plus(&used);
        if let Some(permit) = self.permit.take() {
            self.charged = self.charged.plus(&permit.settle(&used));
        }
        let estimated = counted.is_none();
        let elapsed = self.began.elapsed();
        self.judge_ended(elapsed, progress);
        self.case.outcomes.learn(self.group.name(), &self.case.template, self.charged.total());
        let rows = progress.sent_rows.saturating_add(progress.changed_rows);
        let (charged, usage) = (self.charged, self.usage);
        let outcome = Outcome::Ran { charged, usage, rows, elapsed, failed, estimated };
        let group = self.group.name().clone();
        let (template, waited) = (&self.case.template, self.waited);
        let trace = self.traced.as_deref().and_then(Traced::trace);
        self.case.outcomes.record(&Record { group: &group, template, outcome, waited }, trace);
        let ended = Ended { group, charged, usage, elapsed, waited, estimated };
        if let Some(traced) = self.traced.take() {
            traced.ended(&ended, &self.ran(progress, failed));
        }
        ended
    }

    /// How it ran, for its spans.
    fn ran(&self, progress: Progress, failed: bool) -> Ran {
        Ran {
            payer: self.payer.name().clone(),
            sent_rows: progress.sent_rows,
            changed_rows: progress.changed_rows,
            failed,
            action: self.convicted.as_ref().map(Action::name),
        }
    }

    /// Most statements end before the first look, and their usage is known at their end: one that broke the rule is
    /// recorded, so that later ones may be watched. Nothing can be done about this execution.
    fn judge_ended(&self, elapsed: Duration, progress: Progress) {
        if self.convicted.is_none()
            && let Some(limit) = &self.limit
            && let Some(rule) = limit.broken(elapsed, self.charged.total(), progress.sent_rows)
        {
            self.case.convict(self.group.name(), &Action::DryRun, Grounds::Rule(rule));
        }
    }

    /// What it has done so far, for the reader of the server's counters.
    pub(crate) fn work(&self, progress: Progress) -> Work {
        let kind = self.case.template.kind();
        Work { kind, rows: progress.changed_rows, sent: progress.bytes_in }
    }

    /// The template of its text.
    pub(crate) fn template(&self) -> &Template {
        &self.case.template
    }

    /// The usage since the last look, without requests.
    fn used(&mut self, counted: Option<Usage>, progress: Progress) -> Usage {
        let server = counted.unwrap_or_else(|| {
            let (sent, changed) = (progress.sent_rows, progress.changed_rows);
            let total =
                guess(self.case.template.kind(), sent, changed, progress.bytes_out, self.began.elapsed());
            let more = total.minus(&self.guessed).unwrap_or_default();
            self.guessed = self.guessed.plus(&more);
            more
        });
        let more = |now: u64, before: u64| now.saturating_sub(before);
        let network = Usage {
            net_in_bytes: more(progress.bytes_in, self.seen.bytes_in),
            net_out_bytes: more(progress.bytes_out, self.seen.bytes_out),
            ..Usage::default()
        };
        self.seen = progress;
        server.plus(&network)
    }

    /// The requests that have not been charged yet.
    fn requests(&mut self, progress: Progress) -> Usage {
        let reads = u64::from(progress.sent_rows > 0 || self.case.template.kind() == StatementKind::Select);
        let all = Usage {
            read_requests: reads,
            read_batches: reads,
            write_requests: progress.changed_rows,
            write_batches: u64::from(progress.changed_rows > 0),
            ..Usage::default()
        };
        let more = all.minus(&self.requested).unwrap_or_default();
        self.requested = all;
        more
    }

    fn charge(&mut self, used: &Usage) {
        self.usage = self.usage.plus(used);
        if let Some(permit) = &mut self.permit {
            self.charged = self.charged.plus(&permit.charge(used));
        }
    }

    fn carry_out(&mut self, action: Action) {
        if let Action::Switch(target) = &action
            && let Some(group) = self.case.book.group(target)
            && let Some(permit) = self.permit.replace(group.owe().into_owned())
        {
            self.payer = group;
            // The usage so far is paid for; the rest of the estimate goes back.
            permit.cancel();
        }
        self.convicted = Some(action);
    }
}
