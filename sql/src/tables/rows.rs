//! What the controller says, as rows of tables: cells in the order of [`VirtualTable::columns`].
//!
//! Amounts become RU, durations seconds, moments UTC text.
//!
//! [`VirtualTable::columns`]: super::schema::VirtualTable::columns

use tidegate_proto::v1;

use super::time::timestamp_text;
use crate::answer::Value;
use crate::print::{changes_text, query_limit_text};

/// The cells of a row.
pub(crate) type Row = Vec<Value>;

/// Micro-RU in an RU, and microseconds in a second.
const MICRO: f64 = 1e6;
/// Nanoseconds in a second.
const NANO: f64 = 1e9;

pub(super) fn group(group: &v1::Group) -> Row {
    let unlimited = group.ru_per_sec.is_empty() || group.ru_per_sec == "unlimited";
    vec![
        text(&group.name),
        if unlimited { text("UNLIMITED") } else { text(&group.ru_per_sec) },
        text(&group.priority.to_ascii_uppercase()),
        // As TiDB has it: without a rate there is no bound to what it bursts to.
        if unlimited { text("UNLIMITED") } else { text(&group.burstable.to_ascii_uppercase()) },
        group.query_limit.as_ref().map_or(Value::Null, |limit| Value::Text(query_limit_text(limit))),
        Value::Null,
    ]
}

pub(super) fn binding(binding: &v1::Binding) -> Row {
    vec![optional(&binding.tenant), optional(&binding.user), text(&binding.group)]
}

pub(super) fn watch(watch: &v1::Watch) -> Row {
    let end = if watch.end_unix_ms == 0 { "UNLIMITED".to_owned() } else { timestamp_text(watch.end_unix_ms) };
    vec![
        int(watch.id),
        text(&watch.group),
        moment(watch.start_unix_ms),
        Value::Text(end),
        text(match watch.r#match.as_str() {
            "exact" => "Exact",
            "similar" => "Similar",
            other => other,
        }),
        // A watch that was made from a digest has no text.
        text(if watch.text.is_empty() { &watch.digest } else { &watch.text }),
        text(&watch.source),
        text(&action(&watch.action, &watch.switch_group)),
        text(&watch.rule),
    ]
}

pub(super) fn runaway(runaway: &v1::Runaway) -> Row {
    let last = runaway.conviction.clone().unwrap_or_default();
    vec![
        text(&last.group),
        moment(runaway.first_unix_ms),
        moment(runaway.last_unix_ms),
        int(runaway.repeats),
        text(&last.r#match),
        text(&action(&last.action, "")),
        optional(&last.switch_group),
        optional(&last.rule),
        text(&last.template),
        text(&last.fingerprint),
        text(&last.text_sha256),
        text(&last.tenant),
        text(&last.user),
        text(&last.gateway),
    ]
}

pub(super) fn statement(row: &v1::StatementRow) -> Row {
    let parts = [row.cpu_micro_ru, row.read_micro_ru, row.write_micro_ru, row.network_micro_ru];
    let total: i64 = parts.into_iter().fold(0, i64::saturating_add);
    let average =
        if row.calls == 0 { Value::Null } else { Value::Float(float(total) / MICRO / count(row.calls)) };
    let mut cells = vec![
        text(&row.group),
        text(&row.fingerprint),
        text(&row.kind),
        text(&row.template),
        int(row.calls),
        ru(total),
        average,
        ru(row.max_micro_ru),
    ];
    cells.extend(parts.map(ru));
    cells.extend([
        int(row.rows),
        seconds(row.elapsed_us),
        seconds(row.waited_us),
        int(row.errors),
        int(row.throttled),
        int(row.estimated),
        moment(row.first_unix_ms),
        moment(row.last_unix_ms),
    ]);
    cells.extend(used(&row.usage.unwrap_or_default()));
    cells
}

pub(super) fn usage(row: &v1::UsageRow) -> Row {
    // A controller sends none that is out of range.
    let words = row.total.as_ref().map(|total| total.to_words().unwrap_or_default()).unwrap_or_default();
    let [parts @ .., shadow] = *words.first_chunk::<6>().unwrap_or(&[0; 6]);
    let [operations, throttled, waited_us, cpu_ns, counts @ ..] =
        words.last_chunk::<13>().copied().unwrap_or_default();
    let whole = row.client.is_empty();
    let mut cells = vec![
        text(&row.group),
        optional(&row.client),
        if whole { Value::Null } else { int(row.incarnation) },
        row.live_ru_per_sec.parse().map_or(Value::Null, Value::Float),
        scaled(parts.iter().sum(), MICRO),
    ];
    cells.extend(parts.map(|part| scaled(part, MICRO)));
    cells.extend([scaled(shadow, MICRO), large(operations), large(throttled), scaled(waited_us, MICRO)]);
    cells.push(scaled(cpu_ns, NANO));
    cells.extend(counts.map(large));
    cells
}

pub(super) fn client(client: &v1::ClientInfo) -> Row {
    let node = client.node.unwrap_or_default();
    vec![
        text(&client.client),
        int(client.incarnation),
        text(&client.agent),
        Value::Int(i64::from(client.connected)),
        seconds(client.silent_us),
        int(u64::from(client.leases)),
        int(client.messages),
        Value::Float(count(node.process_cpu_ns) / NANO),
        Value::Float(count(node.metered_cpu_ns) / NANO),
        int(node.resident_bytes),
    ]
}

pub(super) fn proposal(proposal: &v1::Proposal) -> Row {
    let group = proposal.group.clone().unwrap_or_default();
    let at = |unix_s: u64| moment(unix_s.saturating_mul(1_000));
    vec![
        text(&group.name),
        text(&changes_text(&group, &proposal.fields)),
        at(proposal.proposed_unix_s),
        at(proposal.since_unix_s),
        int(proposal.revision),
        int(proposal.live_revision),
    ]
}

/// The resources, in the order of both tables that have them.
fn used(usage: &v1::Usage) -> [Value; 10] {
    [
        Value::Float(count(usage.cpu_ns) / NANO),
        int(usage.read_requests),
        int(usage.read_batches),
        int(usage.read_bytes),
        int(usage.write_requests),
        int(usage.write_batches),
        int(usage.write_bytes),
        int(usage.net_in_bytes),
        int(usage.net_out_bytes),
        int(usage.cross_zone_bytes),
    ]
}

/// An action as TiDB's tables show it.
fn action(action: &str, switch_group: &str) -> String {
    match action {
        "dryrun" => "DryRun".to_owned(),
        "cooldown" => "CoolDown".to_owned(),
        "kill" => "Kill".to_owned(),
        "switch_group" if switch_group.is_empty() => "SwitchGroup".to_owned(),
        "switch_group" => format!("SwitchGroup({switch_group})"),
        "" => "NoneAction".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

pub(super) fn optional(value: &str) -> Value {
    if value.is_empty() { Value::Null } else { text(value) }
}

fn int(value: u64) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A counter that may be more than an integer of SQL, and is the nearest double then: a total is never cut.
fn large(value: u128) -> Value {
    i64::try_from(value).map_or(scaled(value, 1.0), Value::Int)
}

fn scaled(value: u128, by: f64) -> Value {
    Value::Float(value as f64 / by)
}

fn ru(micro: i64) -> Value {
    Value::Float(float(micro) / MICRO)
}

pub(super) fn seconds(us: u64) -> Value {
    Value::Float(count(us) / MICRO)
}

fn moment(unix_ms: u64) -> Value {
    if unix_ms == 0 { Value::Null } else { Value::Text(timestamp_text(unix_ms)) }
}

// Floats are for display: beyond 2^53 the last digits are lost.
fn float(value: i64) -> f64 {
    value as f64
}

pub(super) fn count(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_more_than_an_integer_is_the_nearest_double_and_never_cut() {
        let most = i64::MAX.unsigned_abs();
        assert_eq!(large(u128::from(most)), Value::Int(i64::MAX));
        assert_eq!(large(u128::from(most) + 1), Value::Float(9_223_372_036_854_775_808.0));
        assert_eq!(large(1 << 100), Value::Float(2_f64.powi(100)));
    }
}
