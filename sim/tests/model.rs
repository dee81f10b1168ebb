//! Every state of small systems, with smaller bounds than the `model` binary's, so that it fits into an ordinary test.

use tidegate_core::units::Span;
use tidegate_sim::model::Model;
use tidegate_sim::model::search::{Limits, Outcome, search, tell};
use tidegate_sim::model::setting::{Bounds, Setting};

/// Searches a named setting within smaller bounds, to the end.
#[expect(clippy::unwrap_used, clippy::panic, reason = "the test fails with the path to the broken promise")]
fn visit(name: &str, smaller: impl FnOnce(&mut Bounds)) -> Outcome {
    let mut setting = Setting::named(name).unwrap();
    smaller(&mut setting.bounds);
    let model = Model::new(setting);
    let outcome = search(&model, Limits::NONE, |_| {});
    if let Some((broken, steps)) = &outcome.violation {
        panic!("{name}: {broken}\n{}", tell(&model, steps));
    }
    assert!(outcome.complete);
    outcome
}

#[test]
fn no_order_of_operations_renewals_and_time_breaks_a_promise() {
    let outcome = visit("grants", |bounds| (bounds.ticks, bounds.operations, bounds.delays) = (3, 2, 0));
    assert!(outcome.progress.states > 2_000, "{:?}", outcome.progress);
}

#[test]
fn no_late_or_lost_message_breaks_a_promise() {
    let outcome = visit("grants", |bounds| (bounds.ticks, bounds.operations) = (2, 1));
    assert!(outcome.progress.states > 2_000, "{:?}", outcome.progress);
}

#[test]
fn no_crash_of_the_controller_breaks_a_promise() {
    let outcome = visit("crashes", |bounds| (bounds.ticks, bounds.operations) = (3, 1));
    assert!(outcome.progress.states > 2_000, "{:?}", outcome.progress);
}

#[test]
fn no_end_of_a_node_loses_a_charge() {
    let outcome = visit("ends", |bounds| (bounds.ticks, bounds.operations, bounds.leaves) = (1, 1, 0));
    assert!(outcome.progress.states > 1_000, "{:?}", outcome.progress);
}

#[test]
fn no_order_of_events_in_two_levels_breaks_a_promise() {
    let outcome = visit("tree", |bounds| (bounds.ticks, bounds.operations, bounds.delays) = (3, 2, 0));
    assert!(outcome.progress.states > 1_000, "{:?}", outcome.progress);
}

#[test]
fn clocks_beyond_what_is_allowed_for_are_found_with_a_shortest_path() {
    let mut setting = Setting::named("drift").unwrap();
    (setting.engine.drift_ppm, setting.node.drift_ppm) = (0, 0);
    setting.engine.margin = Span(0);
    setting.bounds.operations = 1;
    let model = Model::new(setting);
    let outcome = search(&model, Limits::NONE, |_| {});
    let (broken, steps) = outcome.violation.unwrap();
    assert!(broken.starts_with("I"), "{broken}");
    let told = tell(&model, &steps);
    assert!(told.ends_with(&broken), "{told}");
    // A renewal, time until the fast clock's node has earned too much or the slow one's lease outlives the ledger's.
    assert!((2..=6).contains(&steps.len()), "{told}");
}
