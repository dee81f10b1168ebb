//! The controller's engine, one rule a test. Times are in milliseconds, rates and amounts in whole RU.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "../common/mod.rs"]
mod common;
mod given_up;
mod heard;
mod moved;
mod paced;
mod restart;
mod room;
mod shadow;
mod shares;
mod warm_up;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Held, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::Rate;

use common::{at, leased};

const GROUP: GroupId = GroupId(2);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

/// An engine with a group of 100 RU/s and 100 RU of burst.
fn engine() -> Engine {
    engine_with(EngineConfig::default())
}

fn engine_with(config: EngineConfig) -> Engine {
    let mut engine = Engine::new(at(0), config);
    engine.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    engine
}

fn wants(ru: i64) -> Ask {
    Ask { demand: Rate::whole(ru), ..Ask::default() }
}

fn holds(ask: Ask, acked_seq: u64, terms: &LeaseTerms) -> Ask {
    let held = Held { rate: terms.rate, cap: terms.cap, lump: terms.lump };
    Ask { acked_seq, held, ..ask }
}
