//! The node's state machine, one rule a test. Times are in milliseconds, rates and amounts in whole RU.

#![expect(clippy::panic, reason = "a test stops at the first surprise")]

mod answers;
mod beside;
mod distance;
mod fallback;
mod idling;
mod lumps;
mod orders;
mod paced;
mod passing;
mod shadow;
mod spending;
mod surplus;
mod unlimited;
mod views;
mod waiting;
mod wakeups;

use tidegate_core::exchange::{Enforcement, Grant, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Acquired, Admitted, Estimate, Heard, NodeConfig, NodeGroup, Refusal, WaiterId};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

fn at(ms: u64) -> Time {
    Time(ms * 1_000)
}

fn terms(rate: i64, cap: i64, lump: i64) -> LeaseTerms {
    LeaseTerms {
        rate: Rate::whole(rate),
        cap: Ru::whole(cap),
        lump: Ru::whole(lump),
        ttl: Span::secs(5),
        renew_after: Span::secs(1),
        max_fit: Ru::whole(1_000),
        max_debt: Ru::whole(100),
        ..LeaseTerms::default()
    }
}

/// A lease without a rate for so many seconds, and nothing past it.
fn free(seconds: u64) -> Grant {
    Grant::Unlimited { ttl: Span::secs(seconds), renew_after: Span::secs(1), fallback: Fallback::Stop }
}

/// A node that asked at 0 ms and was granted at 1 ms.
fn node(terms: LeaseTerms) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    node.ask(at(0), 1);
    assert_eq!(node.on_grant(at(1), 1, &Grant::Leased(terms)), Heard::Applied);
    node
}

fn used(ru: i64) -> Consumption {
    Consumption { charged: RuParts::flat(Ru::whole(ru)), operations: 1, ..Consumption::default() }
}

fn queued(outcome: Result<Acquired, Refusal>) -> WaiterId {
    match outcome {
        Ok(Acquired::Queued(id)) => id,
        other => panic!("not queued: {other:?}"),
    }
}
