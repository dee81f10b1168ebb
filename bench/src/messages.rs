//! Messages of the grant stream as they are on the wire in steady state, with as many groups as asked for.

use tidegate_proto::v1;

/// Name of a group; as long as real ones are.
pub fn group_name(number: usize) -> String {
    format!("tenant-{number:05}")
}

/// A node's renewal of the first `groups` groups: an entry and a report for each.
pub fn renew(seq: u64, groups: usize) -> v1::Renew {
    v1::Renew {
        seq,
        entries: (0..groups).map(|number| entry(number, seq)).collect(),
        reports: (0..groups).map(|number| report(number, seq)).collect(),
        node: Some(v1::NodeStats {
            process_cpu_ns: 80_000_000_000,
            metered_cpu_ns: 60_000_000_000,
            resident_bytes: 1 << 30,
        }),
        // The clock of the messages is not that of the run: none is to be late.
        sent_us: 80_000_000_000 + seq,
        answer_within_us: 3_600_000_000,
        counts_requests: true,
        counts_rolling: true,
    }
}

fn entry(number: usize, seq: u64) -> v1::RenewEntry {
    v1::RenewEntry {
        group: group_name(number),
        acked_seq: seq.saturating_sub(1),
        held_rate: 20_000_000,
        held_cap_micro_ru: 20_000_000,
        demand_rate: 10_000_000 + i64::try_from(seq % 1_000).unwrap_or(0),
        proof: vec![7; PROOF_BYTES],
        ..v1::RenewEntry::default()
    }
}

fn report(number: usize, seq: u64) -> v1::Report {
    let grown = i64::try_from(seq).unwrap_or(0);
    v1::Report {
        group: group_name(number),
        incarnation: 0,
        total: Some(v1::Consumption {
            cpu_micro_ru: 10_000_000 * grown,
            read_micro_ru: 4_000_000 * grown,
            network_micro_ru: 1_000_000 * grown,
            operations: 1_000 * seq,
            usage: Some(v1::Usage {
                cpu_ns: 30_000_000 * seq,
                read_bytes: 262_144 * seq,
                net_out_bytes: 65_536 * seq,
                ..v1::Usage::default()
            }),
            ..v1::Consumption::default()
        }),
        ..v1::Report::default()
    }
}

/// The controller's answer to such a renewal.
pub fn granted(seq: u64, groups: usize) -> v1::Granted {
    let entry = |number| v1::GrantEntry {
        group: group_name(number),
        status: v1::GrantStatus::Leased.into(),
        rate: 20_000_000,
        cap_micro_ru: 20_000_000,
        fill_micro_ru: 1_000_000,
        ttl_us: 5_000_000,
        renew_after_us: 1_000_000,
        ask_again_us: 250_000,
        max_fit_micro_ru: 100_000_000,
        max_debt_micro_ru: 1_000_000_000,
        proof: vec![7; PROOF_BYTES],
        ..v1::GrantEntry::default()
    };
    v1::Granted {
        seq,
        epoch: 1,
        entries: (0..groups).map(entry).collect(),
        durable_seq: seq.saturating_sub(1),
        ..v1::Granted::default()
    }
}

/// Length of a proof: 41 bytes of claim and 16 of code.
const PROOF_BYTES: usize = 57;
