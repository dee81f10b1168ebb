//! What a node that gives its lease up leaves to the others, though its stream breaks as it says so.

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, LeaseTerms};
use tidegate_core::group::GroupSpec;
use tidegate_core::node::{Acquired, Admitted, NodeConfig, NodeGroup};
use tidegate_core::quota::{Opening, window_number};
use tidegate_core::units::{Rate, Ru, Span};

use super::{A, B, GROUP, at, leased};

/// What B is granted a second after A gave its lease up in a renewal that the controller never saw.
fn left_to_another(engine: &mut Engine) -> LeaseTerms {
    let config = NodeConfig { idle_after: Span::millis(500), drift_ppm: 0, ..NodeConfig::default() };
    let mut node = NodeGroup::new(at(0), config);
    assert!(matches!(node.acquire(at(0), Ru::whole(1), at(1_000)), Ok(Acquired::Queued(_))));
    let (mut seq, mut broke) = (0, None);
    for ms in (0..4_000).step_by(10) {
        if broke.is_some_and(|broke| ms > broke + 900) {
            break;
        }
        if node.due(at(ms)).is_none_or(|due| due > at(ms)) {
            continue;
        }
        seq += 1;
        let ask = node.ask(at(ms), seq);
        if ask.gives_up() && broke.is_none() {
            broke = Some(ms);
            node.on_session_lost(at(ms));
            continue;
        }
        let grant = engine.renew(at(ms), A, GROUP, seq, &ask, None).unwrap();
        node.on_grant(at(ms), seq, &grant);
        if ms == 0 {
            assert!(matches!(node.poll(at(0)), Some((_, Ok(Admitted::Paid)))));
        }
    }
    let broke = broke.unwrap();
    let wants = Ru::whole(500);
    let ask = Ask { demand: Rate::whole(500), backlog: wants, largest: Ru::whole(1), ..Ask::default() };
    leased(engine.renew(at(broke + 1_000), B, GROUP, 1, &ask, None))
}

#[test]
fn the_rate_of_a_lease_given_up_as_the_stream_broke_is_there_for_others() {
    let mut engine = super::engine();
    assert_eq!(left_to_another(&mut engine).rate, Rate::whole(100));
}

#[test]
fn the_share_of_a_quota_given_up_as_the_stream_broke_is_there_for_others() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let spec = GroupSpec { quota: Some(Ru::whole(100)), ..GroupSpec::capped(Rate::whole(1_000)) };
    engine.put_group(at(0), GROUP, spec).unwrap();
    let (number, ends) = (window_number(GROUP, 1), at(60_000));
    engine.open_quota(at(0), GROUP, &Opening { number, ends, durable: Ru::whole(100), ..Opening::default() });
    let allowance = left_to_another(&mut engine).allowance.unwrap();
    // Half of what is left, as if nobody else had a share.
    assert_eq!((allowance.left, allowance.ceiling), (Ru::whole(99), Ru(49_500_000)));
}
