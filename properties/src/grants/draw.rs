//! Messages and changes drawn from an input: mostly what a node would say, with lies and nonsense in between.

use tidegate_core::units::{Rate, Ru};
use tidegate_proto::v1;

use super::lab::Lab;
use super::stream::Phase;
use crate::input::Input;

const NODES: [&str; 4] = ["a", "b", "n.1", "not a name"];
const GROUPS: [&str; 8] = ["child", "top", "beside", "free", "default", "CHILD", "nosuch", "!"];
const RATES: [&str; 6] = ["100", "1", "0.000001", "1000000000", "unlimited", ""];

/// The first message of a stream.
pub(super) fn hello(lab: &Lab, input: &mut Input<'_>) -> v1::Hello {
    let client_id = input.pick(&NODES).unwrap_or_default().to_owned();
    let known = lab.seqs.keys().filter(|(name, _)| *name == client_id).map(|(_, number)| *number).max();
    let incarnation = match input.below(8) {
        0 => input.number(),
        1 | 2 => known.unwrap_or(0).saturating_add(1),
        _ => known.unwrap_or(1),
    };
    let odd = input.below(16) == 15;
    let (protocol_min, protocol_max) =
        if odd { (u32::from(input.byte()), u32::from(input.byte())) } else { (1, 1) };
    let agent = String::from_utf8_lossy(input.piece()).into_owned();
    v1::Hello { protocol_min, protocol_max, client_id, incarnation, agent, ..v1::Hello::default() }
}

/// A renewal of the node that was welcomed on this stream.
pub(super) fn renew(lab: &mut Lab, slot: usize, input: &mut Input<'_>) -> Option<v1::Renew> {
    let (name, incarnation) = who(lab, slot)?;
    let seq = seq(lab, &name, incarnation, input);
    let entries = (0..input.below(4)).map(|_| entry(lab, &name, input)).collect();
    let mut reports = reports(lab, &name, incarnation, input);
    let node = (input.below(8) == 0).then(|| v1::NodeStats {
        process_cpu_ns: input.number(),
        metered_cpu_ns: input.number(),
        resident_bytes: input.number(),
    });
    // Read last, so that inputs of before mean what they meant.
    let (sent_us, answer_within_us) =
        if input.below(2) == 0 { (0, 0) } else { (input.number(), input.number()) };
    reports
        .iter_mut()
        .for_each(|report| report.waited = (0..input.below(3)).map(|_| waited(input)).collect());
    let counts_requests = input.flag();
    Some(v1::Renew {
        seq,
        entries,
        reports,
        node,
        sent_us,
        answer_within_us,
        counts_requests,
        counts_rolling: counts_requests,
    })
}

/// Waits that ended.
fn waited(input: &mut Input<'_>) -> v1::Waited {
    let numbers = |input: &mut Input<'_>| (0..input.below(4)).map(|_| u32::from(input.byte())).collect();
    v1::Waited {
        since_us: input.number(),
        lengths: numbers(input),
        waits: numbers(input),
        in_vain: u32::from(input.byte()),
    }
}

/// The last message of a stream.
pub(super) fn goodbye(lab: &mut Lab, slot: usize, input: &mut Input<'_>) -> Option<v1::Goodbye> {
    let (name, incarnation) = who(lab, slot)?;
    let seq = seq(lab, &name, incarnation, input);
    Some(v1::Goodbye { seq, reports: reports(lab, &name, incarnation, input) })
}

fn who(lab: &Lab, slot: usize) -> Option<(String, u64)> {
    match &lab.streams.get(slot)?.as_ref()?.phase {
        Phase::Open { name, incarnation, .. } => Some((name.clone(), *incarnation)),
        Phase::Fresh => Some(("a".to_owned(), 1)),
    }
}

/// Mostly the next number.
fn seq(lab: &mut Lab, name: &str, incarnation: u64, input: &mut Input<'_>) -> u64 {
    let newest = lab.seqs.entry((name.to_owned(), incarnation)).or_default();
    if input.below(16) == 15 {
        return input.number();
    }
    *newest = newest.saturating_add(1);
    *newest
}

fn entry(lab: &Lab, name: &str, input: &mut Input<'_>) -> v1::RenewEntry {
    let group = input.pick(&GROUPS).unwrap_or_default().to_owned();
    let (seq, last) = lab.granted.get(&(name.to_owned(), group.clone())).cloned().unwrap_or_default();
    let wants = input.amount(Rate::MAX.0);
    let backlog = if input.flag() { input.amount(Ru::MAX.0) } else { 0 };
    let mut entry = v1::RenewEntry {
        group,
        acked_seq: seq,
        held_rate: last.rate,
        held_cap_micro_ru: last.cap_micro_ru,
        held_lump_micro_ru: last.lump_micro_ru,
        demand_rate: wants,
        backlog_micro_ru: backlog,
        head_micro_ru: backlog / 2,
        waiting: u64::from(backlog > 0),
        proof: last.proof,
        ..v1::RenewEntry::default()
    };
    lie(&mut entry, input);
    entry
}

/// Changes an entry in one way or none.
fn lie(entry: &mut v1::RenewEntry, input: &mut Input<'_>) {
    match input.below(30) {
        0 => entry.held_rate = input.hostile(),
        1 => entry.held_cap_micro_ru = input.hostile(),
        2 => entry.held_lump_micro_ru = input.hostile(),
        3 => entry.returned_micro_ru = input.hostile(),
        4 => entry.demand_rate = input.hostile(),
        5 => entry.backlog_micro_ru = input.hostile(),
        6 => entry.head_micro_ru = input.hostile(),
        7 => entry.debt_micro_ru = input.hostile(),
        8 => entry.acked_seq = input.number(),
        9 => entry.waiting = input.number(),
        24 => entry.refunded_micro_ru = input.hostile(),
        25 => entry.running_micro_ru = input.hostile(),
        26 => entry.largest_micro_ru = input.hostile(),
        27 => entry.steady_rate = input.hostile(),
        28 => entry.beside_micro_ru = input.hostile(),
        29 => entry.ahead_us = input.number(),
        15 => {
            entry.requests = Some(v1::RequestSpending {
                window: input.number(),
                used: input.number(),
                ceiling: input.number(),
                offered_rate: input.hostile(),
            });
        }
        10 => entry.proof = input.piece().to_vec(),
        11 => {
            let at = input.below(entry.proof.len());
            if let Some(byte) = entry.proof.get_mut(at) {
                *byte ^= input.byte().max(1);
            }
        }
        12 => entry.group = String::from_utf8_lossy(input.piece()).into_owned(),
        13 => (entry.held_rate, entry.held_cap_micro_ru, entry.held_lump_micro_ru) = (0, 0, 0),
        14 => {
            // All of what was granted comes back, and the node gives up.
            entry.returned_micro_ru = entry.held_cap_micro_ru.saturating_add(entry.held_lump_micro_ru);
            (entry.held_rate, entry.held_cap_micro_ru, entry.held_lump_micro_ru) = (0, 0, 0);
            (entry.demand_rate, entry.backlog_micro_ru, entry.head_micro_ru) = (0, 0, 0);
        }
        _ => {}
    }
}

fn reports(lab: &Lab, name: &str, incarnation: u64, input: &mut Input<'_>) -> Vec<v1::Report> {
    let count = input.below(4);
    let mut reports: Vec<v1::Report> = Vec::new();
    for _ in 0..count {
        let group = input.pick(&GROUPS).unwrap_or_default().to_owned();
        let of = match input.below(8) {
            0 => incarnation,
            1 => incarnation.saturating_sub(1),
            2 => input.number(),
            _ => 0,
        };
        let number = if of == 0 { incarnation } else { of };
        let known = lab.books.of(&(group.to_ascii_lowercase(), name.to_owned(), number));
        let more = u128::from(input.byte()) * 500_000;
        let mut total = v1::Consumption {
            write_micro_ru: i64::try_from(known.charged.write.0 + more).unwrap_or(i64::MAX),
            cpu_micro_ru: known.charged.cpu.clamped().0,
            operations: u64::try_from(known.operations + 1).unwrap_or(u64::MAX),
            ..v1::Consumption::default()
        };
        match input.below(12) {
            0 => total.cpu_micro_ru = input.hostile(),
            1 => total.shadow_micro_ru = input.hostile(),
            2 => total.operations = input.number(),
            3 => total.flat_micro_ru = input.hostile(),
            4 => total.usage = Some(v1::Usage { cpu_ns: input.number(), ..v1::Usage::default() }),
            _ => {}
        }
        let total = (input.below(16) != 15).then_some(total);
        reports.push(v1::Report { group, incarnation: of, total, ..v1::Report::default() });
    }
    reports
}

/// A change of definitions.
pub(super) fn change(lab: &mut Lab, input: &mut Input<'_>) {
    let name = input.pick(&GROUPS).unwrap_or_default().to_owned();
    if input.below(6) == 5 {
        let force_to = input.pick(&["", "default", "top"]).unwrap_or_default();
        let _ = lab.service.definitions().delete_group(&lab.actor, &name, force_to, 0, false);
        lab.prune();
        return;
    }
    let text = v1::Group {
        name,
        parent: input.pick(&["", "top", "child", "free", "nosuch"]).unwrap_or_default().to_owned(),
        ru_per_sec: input.pick(&RATES).unwrap_or_default().to_owned(),
        burst: input.pick(&["", "1", "1000000000000", "0.000001"]).unwrap_or_default().to_owned(),
        burstable: input.pick(&["", "off", "moderated", "unlimited"]).unwrap_or_default().to_owned(),
        priority: input.pick(&["", "low", "high"]).unwrap_or_default().to_owned(),
        weight: u32::from(input.byte()),
        ttl_us: input.pick(&[0, 500_000, 999_999, 60_000_000]).unwrap_or_default(),
        fallback: input.pick(&["", "5", "unlimited"]).unwrap_or_default().to_owned(),
        fallback_total: input.pick(&["", "7"]).unwrap_or_default().to_owned(),
        ..v1::Group::default()
    };
    if lab.service.definitions().create_group(&lab.actor, &text, false).is_err() {
        let mask: Vec<String> = [
            "parent",
            "ru_per_sec",
            "burst",
            "burstable",
            "priority",
            "weight",
            "ttl_us",
            "renew_us",
            "fallback",
            "fallback_total",
        ]
        .map(str::to_owned)
        .into();
        let _ = lab.service.definitions().alter_group(&lab.actor, &text, &mask, 0);
    }
}
