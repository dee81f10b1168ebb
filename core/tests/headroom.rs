//! The rate that a client should have, by its load, its distance and what the pool holds: one rule a test. Times are in
//! milliseconds, rates and amounts in whole RU.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Held, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span};

use common::{at, leased};

const GROUP: GroupId = GroupId(2);
const CLIENT: ClientId = ClientId(1);
const OTHER: ClientId = ClientId(2);

/// A load of so many RU/s, at this distance.
fn load(rate: i64, ahead_ms: u64) -> Ask {
    Ask {
        demand: Rate::whole(rate),
        steady: Rate::whole(rate),
        ahead: Span::millis(ahead_ms),
        ..Ask::default()
    }
}

/// With an operation that waits.
fn waits(cost: i64, ask: Ask) -> Ask {
    Ask { backlog: Ru::whole(cost), head: Ru::whole(cost), ..ask }
}

/// A client, its group, and the newest answer that it has.
struct Client {
    id: ClientId,
    seq: u64,
    terms: LeaseTerms,
}

impl Client {
    fn new(id: ClientId) -> Self {
        Self { id, seq: 0, terms: LeaseTerms::default() }
    }

    /// Renews, applies the answer, and spends the lump; returns what the clients but [`OTHER`] want.
    fn renews(&mut self, engine: &mut Engine, ask: Ask) -> Rate {
        let held = Held { rate: self.terms.rate, cap: self.terms.cap, lump: Ru::ZERO };
        let ask = Ask { acked_seq: self.seq, held, ..ask };
        self.seq += 1;
        self.terms = leased(engine.renew(at(0), self.id, GROUP, self.seq, &ask, None));
        let mut alone = engine.clone();
        alone.release(at(0), OTHER);
        alone.group_view(GROUP).unwrap().demand
    }
}

/// A group of 1,000 RU/s and as much burst, in which another client uses 300 RU/s and has spent so much more.
fn beside(spent: i64) -> (Engine, Client) {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(1_000))).unwrap();
    let mut other = Client::new(OTHER);
    other.renews(&mut engine, waits(spent, load(300, 0)));
    other.renews(&mut engine, load(300, 0));
    other.renews(&mut engine, load(300, 0));
    (engine, other)
}

#[test]
fn twice_a_load_is_wanted_unless_tokens_are_few_at_a_distance() {
    // At a distance, headroom that is not used stays lost for as long as an answer takes.
    for (spent, ahead, times_8) in [(0, 0, 16), (0, 100, 16), (500, 0, 16), (500, 100, 9)] {
        let (mut engine, _) = beside(spent);
        let mut client = Client::new(CLIENT);
        for _ in 0..3 {
            let wanted = client.renews(&mut engine, load(80, ahead));
            assert_eq!(wanted, Rate::whole(10 * times_8), "{spent} RU spent, {ahead} ms away");
            assert!(client.terms.cap.is_positive());
        }
    }
}

#[test]
fn while_others_wait_a_backlog_at_a_distance_raises_a_rate_only_before_it_has_covered_the_load() {
    for (covers, quarters) in [(false, 5), (true, 4)] {
        let (mut engine, mut other) = beside(0);
        let mut client = Client::new(CLIENT);
        client.renews(&mut engine, load(80, 100));
        if covers {
            client.renews(&mut engine, load(80, 100));
        }
        let held = client.terms.rate;
        assert!(held > Rate::whole(30), "{held}");
        other.renews(&mut engine, waits(900, load(0, 0)));
        let wanted = client.renews(&mut engine, waits(1, load(80, 100)));
        assert_eq!(wanted, held.scale(quarters, 4), "covered before: {covers}");
    }
}
