//! What the controller says besides answers: renewals shed, orders to lower a lease, changed definitions.

use tidegate_core::exchange::Grant;
use tidegate_core::group::Fallback;
use tidegate_core::node::{NodeConfig, NodeGroup};
use tidegate_core::units::{Rate, Span};

use super::{at, free, node, terms};

#[test]
fn a_changed_definition_is_asked_about_at_once() {
    let mut node = node(terms(100, 50, 0));
    assert_eq!(node.due(at(500)), Some(at(1_000)));
    node.renew_now(at(500));
    assert_eq!(node.due(at(500)), Some(at(500)));
    node.ask(at(500), 2);
    assert_eq!(node.due(at(500)), Some(at(1_500)), "once");
}

#[test]
fn a_renewal_that_was_shed_is_measured_like_an_answer_and_one_that_nobody_sent_is_not() {
    let mut node = node(terms(100, 50, 0));
    let changes = |node: &mut NodeGroup, seq, shed: u64| {
        let before = node.look().round_trip();
        node.on_shed(at(shed), seq);
        node.look().round_trip() != before
    };
    node.ask(at(1_000), 2);
    assert!(!changes(&mut node, 7, 1_800), "nobody sent it");
    assert!(!changes(&mut node, 1, 1_800), "it has its answer");
    assert!(changes(&mut node, 2, 1_900));
    assert!(node.look().answer_wait() > Span::secs(1), "900 ms, much more than before");
    assert_eq!(node.due(at(1_900)), Some(at(2_000)), "this one is waited for as long as before");
    node.ask(at(2_000), 3);
    let wait = node.look().answer_wait();
    assert_eq!(node.due(at(2_000)), Some(at(2_000).after(wait)), "and the next one in full");
    node.on_grant(at(2_100), 3, &Grant::Leased(terms(100, 50, 0)));
    assert!(!changes(&mut node, 3, 2_200), "it has its answer");
}

#[test]
fn nearby_each_order_to_lower_is_answered_though_a_renewal_is_under_way() {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    for seq in [1, 2] {
        node.ask(at(seq * 100), seq);
        node.on_grant(at(seq * 100 + 80), seq, &Grant::Leased(terms(100, 50, 0)));
    }
    // Nearly all answers take no longer than the interval of orders.
    assert_eq!(node.look().round_trip().nearly_all(), Span::millis(200));
    node.ask(at(500), 3);
    node.on_lower(at(510), Rate::whole(100));
    assert_eq!(node.due(at(510)), Some(at(510)));
}

#[test]
fn at_a_distance_an_order_to_lower_is_answered_if_no_renewal_is_under_way() {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    node.ask(at(0), 1);
    node.on_grant(at(300), 1, &Grant::Leased(terms(100, 50, 0)));
    node.on_lower(at(400), Rate::whole(100));
    assert_eq!(node.due(at(400)), Some(at(400)), "the controller sees that it holds no more");
}

#[test]
fn what_comes_up_while_a_renewal_is_under_way_is_sent_after_any_answer_to_it() {
    type Event = fn(&mut NodeGroup);
    let events: [(&str, Event); 2] = [
        ("a changed definition", |node| node.renew_now(at(510))),
        ("an order to lower", |node| node.on_lower(at(510), Rate::whole(50))),
    ];
    let recovering = Grant::Recovering { ask_again: Span::secs(1), fallback: Some(Fallback::Stop) };
    let answers = [Grant::Leased(terms(100, 50, 0)), free(5), recovering, Grant::UnknownGroup];
    for (what, happens) in events {
        for answer in &answers {
            let mut node = node(terms(100, 50, 0));
            node.ask(at(500), 2);
            happens(&mut node);
            node.on_grant(at(520), 2, answer);
            assert_eq!(node.due(at(520)), Some(at(520)), "{what} before {answer:?}");
            node.ask(at(520), 3);
            node.on_grant(at(540), 3, answer);
            assert!(node.due(at(540)) > Some(at(540)), "{what} is said once: {answer:?}");
        }
    }
}

#[test]
fn what_comes_up_while_a_renewal_is_under_way_is_sent_though_it_gets_no_answer() {
    type End = fn(&mut NodeGroup);
    let ends: [(&str, End); 3] = [
        ("it is shed", |node| node.on_shed(at(520), 2)),
        ("its stream is lost", |node| node.on_session_lost(at(520))),
        ("an earlier answer comes", |node| {
            node.on_grant(at(520), 1, &Grant::Leased(terms(100, 50, 0)));
        }),
    ];
    for (what, happens) in ends {
        let mut node = node(terms(100, 50, 0));
        node.ask(at(500), 2);
        node.renew_now(at(510));
        happens(&mut node);
        assert_eq!(node.due(at(520)), Some(at(520)), "{what}");
    }
}
