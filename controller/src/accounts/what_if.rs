//! What a group would have met under other settings: its history, replayed by the core.

use std::ops::Range;

use tidegate_core::group::{GroupId, Policy};
use tidegate_core::quota::Unit;
use tidegate_core::replay::{
    Budget, Comparison, Counted, MOST_SAMPLES, Outcome, Outcomes, Record, RecordError, ReplayError, Settings,
    Shape, Windows, compare,
};
use tidegate_core::units::{Rate, RuTotal, Span, Time};
use tidegate_core::usage::Total;
use tidegate_proto::v1;
use tokio::sync::SemaphorePermit;

use super::usage::{Point, Step};
use crate::accounts::AccountCalls;
use crate::definitions::definition::Definition;
use crate::definitions::quota::Quota;
use crate::error::{AdminError, InField};
use crate::limits::{MAX_REPLAYS, MOST_BELOW};
use crate::name::GroupName;
use crate::quantity::{amount_text, rate_text, total_text};
use crate::service::Service;

/// How long operations wait if neither the request nor the group says: as long as a person hardly notices. A limit is
/// judged by what it refuses in the end: with half, more would be called refused that callers wait for; with twice as
/// long, less.
const PATIENCE: Span = Span::secs(1);
/// A p99 wait that is bearable if nobody says otherwise: half of it asks for idle room, twice of it people see.
const BEARABLE: Span = Span::millis(100);
/// The longest of either, an hour: a group's longest wait can be that.
const LONGEST_WAIT_US: u64 = 3_600_000_000;

impl AccountCalls<'_> {
    /// Replays the history of a group and of those below it. Takes some seconds of a processor at most.
    ///
    /// # Errors
    /// Settings or a range that make no replay, an unknown group, no history, or as many replays at once as there may
    /// be.
    pub fn what_if(&self, wish: &v1::WhatIfRequest) -> Result<v1::WhatIfReply, AdminError> {
        let name = GroupName::parse(&wish.group).in_field("group")?;
        let step = Step::parse(&wish.resolution)?;
        let group = self.service.lock().definitions.in_force(self.sight, &name)?.text();
        let asked = Asked::of(&group, wish)?;
        let range = self.range(step, wish.from_unix_s, wish.to_unix_s);
        self.replayed(&name, step, &range, asked)
    }

    /// The same of a group as it would be after a change, with all that bears on its limit; from then until now.
    ///
    /// # Errors
    /// As of `what_if`, and a definition that no group can have.
    pub(crate) fn what_if_changed(
        &self,
        changed: &v1::Group,
        resolution: &str,
        from_unix_s: u64,
        bearable: Span,
    ) -> Result<v1::WhatIfReply, AdminError> {
        let changed = Definition::parse(changed)?;
        let step = Step::parse(resolution)?;
        let before = self.service.lock().definitions.in_force(self.sight, &changed.name)?.clone();
        let asked = Asked::between(&before, &changed, None, Some(bearable))?;
        self.replayed(&changed.name, step, &self.range(step, from_unix_s, 0), asked)
    }

    pub(super) fn replayed(
        &self,
        name: &GroupName,
        step: Step,
        range: &Range<u64>,
        asked: Asked,
    ) -> Result<v1::WhatIfReply, AdminError> {
        let groups = self.with_those_below(name)?;
        let _room = room_for_replay(self.service)?;
        let points = self.points(groups.iter().copied(), step, range)?;
        let counted: Vec<Counted> = points.iter().map(counted).collect();
        let record = Record::of(&asked.wanted(counted)).map_err(|error| match error {
            RecordError::Empty => AdminError::NothingRecorded { name: name.clone(), step: step.word() },
            other => AdminError::invalid("from_unix_s", other),
        })?;
        let asked = asked.over(&record)?;
        let Asked { current, proposed, bearable, .. } = &asked;
        let compared = compare(&record, current.as_ref(), proposed, *bearable, &mut Budget::default());
        let compared = compared.map_err(|error| match error {
            ReplayError::Setting(setting) => AdminError::invalid("ru_per_sec", setting),
            ReplayError::Uncounted => AdminError::invalid("quota", error),
            ReplayError::TooLong => AdminError::invalid("burst", error),
        })?;
        Ok(v1::WhatIfReply {
            group: name.to_string(),
            resolution: step.word().to_owned(),
            groups: u32::try_from(groups.len()).unwrap_or(u32::MAX),
            ..answer(&points, &record, &asked, &compared)
        })
    }

    /// A group and all below it that are seen: what they consume counts against its limit.
    pub(super) fn with_those_below(&self, name: &GroupName) -> Result<Vec<GroupId>, AdminError> {
        let state = self.service.lock();
        let (catalog, seen) = (state.definitions.catalog(), state.definitions.seen(self.sight));
        let top = state.definitions.require(self.sight, name)?;
        let mut groups = vec![top];
        match seen.names() {
            // They may be below groups that are not seen.
            Some(names) => {
                let ids = names.iter().filter_map(|name| catalog.id(name));
                groups.extend(ids.filter(|id| *id != top && catalog.path(*id).contains(&top)));
            }
            None => {
                let mut at = 0;
                while let Some(group) = groups.get(at).copied().filter(|_| groups.len() <= MOST_BELOW + 1) {
                    groups.extend(catalog.children(group));
                    at += 1;
                }
            }
        }
        if groups.len() > MOST_BELOW + 1 {
            let message = format!(
                "{name} has more than {MOST_BELOW} groups below it, too many to replay; ask about one of them"
            );
            return Err(AdminError::invalid("group", message));
        }
        Ok(groups)
    }
}

/// Room for one replay, until it is dropped.
pub(super) fn room_for_replay(service: &Service) -> Result<SemaphorePermit<'_>, AdminError> {
    service.replays().try_acquire().map_err(|_| {
        let message =
            format!("{MAX_REPLAYS} replays run already, which is the limit; repeat this in some seconds");
        AdminError::Refused { message }
    })
}

/// A point of the history as the core counts it.
fn counted((start, length, amount): &Point) -> Counted {
    Counted {
        start: Time(start.saturating_mul(1_000_000)),
        length: Span::secs(*length),
        charged: amount.ru().0,
        operations: amount.operations,
        refused: amount.throttled,
    }
}

fn answer(points: &[Point], record: &Record, asked: &Asked, compared: &Comparison) -> v1::WhatIfReply {
    let mut all = Total::default();
    points.iter().for_each(|(_, _, amount)| all.add(amount));
    let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let [even, at_once] = compared.cheapest.map(|rate| rate.map(rate_text).unwrap_or_default());
    let current = asked.current.as_ref().zip(compared.current.as_ref());
    let [was, will] = asked.quotas.each_ref().map(|quota| quota.as_ref().map(ToString::to_string));
    v1::WhatIfReply {
        from_unix_s: points.first().map_or(0, |(start, _, _)| *start),
        to_unix_s: points.last().map_or(0, |(start, length, _)| start.saturating_add(*length)),
        samples: u32::try_from(points.len()).unwrap_or(u32::MAX),
        recorded_ru: total_text(all.ru()),
        recorded_operations: number(all.operations),
        recorded_throttled: number(all.throttled),
        recorded_wait_us: number(all.waited_us.checked_div(all.operations).unwrap_or(0)),
        wanted_ru: total_text(RuTotal(record.amount())),
        peak_ru_per_sec: rate_text(Rate(i64::try_from(record.peak()).unwrap_or(i64::MAX))),
        current: current.map(|(settings, outcomes)| outcome(settings, was, outcomes)),
        proposed: Some(outcome(&asked.proposed, will, &compared.proposed)),
        cheapest_even: even,
        cheapest_at_once: at_once,
        ..v1::WhatIfReply::default()
    }
}

/// What a group is held to, what it would be, and which wait is bearable.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `None` without a limit.
    pub current: Option<Settings>,
    /// The group with the proposed fields.
    pub proposed: Settings,
    /// The wait that 99 of 100 parts may have.
    pub bearable: Span,
    /// The calendars of both.
    quotas: [Option<Quota>; 2],
    /// Operations over the limit were counted as throttled, and ran all the same.
    is_shadow: bool,
}

impl Asked {
    /// Of a group, checked as a change of it would be.
    ///
    /// # Errors
    /// A field that the group cannot have, or no limit.
    pub fn of(group: &v1::Group, wish: &v1::WhatIfRequest) -> Result<Self, AdminError> {
        let mut text = group.clone();
        for (field, wish) in [
            (&mut text.ru_per_sec, &wish.ru_per_sec),
            (&mut text.burst, &wish.burst),
            (&mut text.policy, &wish.policy),
            (&mut text.quota, &wish.quota),
        ] {
            if !wish.is_empty() {
                field.clone_from(wish);
            }
        }
        if !wish.ru_per_sec.is_empty() {
            // The proposed rate is the limit, whatever the group may borrow now.
            "off".clone_into(&mut text.burstable);
            text.burst_ru_per_sec.clear();
        }
        let patience = wait("patience_us", wish.patience_us)?;
        let bearable = wait("p99_wait_us", wish.p99_wait_us)?;
        Self::between(&Definition::parse(group)?, &Definition::parse(&text)?, patience, bearable)
    }

    pub(crate) fn between(
        before: &Definition,
        after: &Definition,
        patience: Option<Span>,
        bearable: Option<Span>,
    ) -> Result<Self, AdminError> {
        let settings = |definition: &Definition| {
            let (spec, quota) = (definition.spec(None), None);
            let patience = patience.or(definition.max_wait).unwrap_or(PATIENCE);
            let (shape, burst) = (shape(spec.policy), spec.burst);
            spec.limit().map(|rate| Settings { shape, rate, burst, patience, quota })
        };
        let proposed = settings(after).ok_or_else(|| {
            let message = "without a limit nothing is throttled; give a rate such as \"2000\"";
            AdminError::invalid("ru_per_sec", message)
        })?;
        Ok(Self {
            current: settings(before),
            proposed,
            bearable: bearable.unwrap_or(BEARABLE),
            quotas: [before.quota.clone(), after.quota.clone()],
            is_shadow: before.shadow,
        })
    }

    /// What was wanted: in shadow, operations that count as throttled were charged, too.
    pub fn wanted(&self, mut counted: Vec<Counted>) -> Vec<Counted> {
        if self.is_shadow {
            counted.iter_mut().for_each(|at| at.refused = 0);
        }
        counted
    }

    /// With the windows of the quotas in the time of a record.
    ///
    /// # Errors
    /// More windows than a record has samples.
    pub fn over(mut self, record: &Record) -> Result<Self, AdminError> {
        let [was, will] = self.quotas.each_ref().map(|quota| quota.as_ref().map(|of| windows(of, record)));
        self.proposed.quota = will.transpose()?;
        if let Some(current) = &mut self.current {
            current.quota = was.transpose()?;
        }
        Ok(self)
    }
}

/// The windows of a quota in the time of a record.
fn windows(quota: &Quota, record: &Record) -> Result<Windows, AdminError> {
    let (first, last) = (record.samples().first(), record.samples().last());
    let from = first.map_or(0, |sample| sample.start.0 / 1_000_000);
    let requests = || quota.amount.0.checked_div(Unit::REQUEST.0).unwrap_or(0).unsigned_abs();
    if quota.rolls {
        let length = Span::secs(quota.window_length(from));
        return Ok(match quota.unit {
            Unit::Ru => Windows::rolling(quota.amount, length),
            Unit::Requests => Windows::rolling_requests(requests(), length),
        });
    }
    let to = last.map_or(0, |sample| sample.end().0.div_ceil(1_000_000));
    let mut begins = Vec::new();
    let mut begin = quota.window_end(from);
    while begin < to {
        if begins.len() == MOST_SAMPLES {
            let message =
                format!("{quota} has more than {MOST_SAMPLES} windows in that time; choose a shorter time");
            return Err(AdminError::invalid("quota", message));
        }
        begins.push(Time(begin.saturating_mul(1_000_000)));
        begin = quota.window_end(begin);
    }
    Ok(match quota.unit {
        Unit::Ru => Windows::new(quota.amount, begins),
        Unit::Requests => Windows::requests(requests(), begins),
    })
}

/// A wait; 0 is not said.
fn wait(field: &str, us: u64) -> Result<Option<Span>, AdminError> {
    if us > LONGEST_WAIT_US {
        return Err(AdminError::invalid(
            field,
            format!("{us} is out of range: 1 to {LONGEST_WAIT_US}, or 0"),
        ));
    }
    Ok((us > 0).then_some(Span(us)))
}

fn shape(policy: Policy) -> Shape {
    match policy {
        Policy::TokenBucket => Shape::TokenBucket,
        Policy::Paced => Shape::Paced,
        Policy::WarmUp { period, factor } => Shape::WarmUp { period, factor },
    }
}

fn outcome(settings: &Settings, quota: Option<String>, [even, at_once]: &Outcomes) -> v1::WhatIfOutcome {
    v1::WhatIfOutcome {
        ru_per_sec: rate_text(settings.rate),
        burst: amount_text(settings.burst()),
        policy: settings.shape.to_string(),
        even: Some(figures(even)),
        at_once: Some(figures(at_once)),
        quota: quota.unwrap_or_default(),
    }
}

fn figures(outcome: &Outcome) -> v1::WhatIfFigures {
    v1::WhatIfFigures {
        throttled_ppm: outcome.refused_ppm(),
        delayed_ppm: outcome.delayed_ppm(),
        throttled_time_ppm: outcome.refusing_ppm(),
        use_ppm: outcome.use_ppm(),
        p50_wait_us: outcome.p50.0,
        p99_wait_us: outcome.p99.0,
        admitted_ru: total_text(RuTotal(outcome.admitted())),
        throttled_ru: total_text(RuTotal(outcome.refused)),
    }
}
