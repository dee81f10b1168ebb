//! The verdict on a run.

use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::Total;

use super::system::{NODES, System};

/// # Panics
/// When a promise was broken.
pub(super) fn judge(mut system: System) {
    for node in 0..NODES {
        system.close_books(node);
    }
    if system.steady {
        within_the_bound(&system);
    }
    counted_once(&mut system);
    nothing_is_left(&mut system);
}

/// I5: honest nodes together, in every window, whatever the liars did.
fn within_the_bound(system: &System) {
    for (id, bound) in &system.bounds {
        let Some(depth) = system.specs.get(id).and_then(|spec| spec.depth()) else { continue };
        let overrun = system.overrun.get(id).copied().unwrap_or_default();
        assert!(
            bound.worst() <= depth + overrun,
            "I5: group {}: {} above rate * window, burst {depth}, overrun {overrun}",
            id.0,
            bound.worst()
        );
    }
}

/// I6: after the last reports, each honest row is what the node charged, and totals are sums of rows.
fn counted_once(system: &mut System) {
    let charged = std::mem::take(&mut system.charged);
    for ((client, id), total) in &charged {
        let known = system.ledger.charged(*id).find(|(holder, _)| holder == client).map(|(_, row)| row);
        if known != Some(*total) {
            system
                .ledger
                .report(system.now, *client, *id, total)
                .expect("the last report of a node is its highest");
        }
    }
    for ((client, id), total) in &charged {
        let row = system.ledger.charged(*id).find(|(holder, _)| holder == client).map(|(_, row)| row);
        assert_eq!(row.unwrap_or_default(), *total, "I6: group {}, {client:?}", id.0);
    }
    for id in system.specs.keys().copied() {
        let sum = system.ledger.charged(id).fold(Total::default(), |sum, (_, row)| sum.plus(&row));
        assert_eq!(system.ledger.total(id), sum, "I6: the total of group {}", id.0);
    }
}

/// After every lease and the recovery have ended, the engine holds nothing and its pools are full to the brim at most.
fn nothing_is_left(system: &mut System) {
    let end = system.now.after(Span::secs(300));
    system.engine.expire(end);
    system.engine.check().expect("I1 to I3 at the end");
    assert_eq!(system.engine.next_expiry(), None, "every lease ends");
    for (id, spec) in &system.specs {
        let view = system.engine.group_view(*id).expect("a defined group");
        assert_eq!((view.committed, view.held, view.leases), (Rate::ZERO, Ru::ZERO, 0), "group {}", id.0);
        assert_eq!(view.demand, Rate::ZERO, "group {}: nobody is left who wants anything", id.0);
        assert!(spec.depth().is_none_or(|depth| view.pool <= depth), "group {}: {view:?}", id.0);
    }
    let snapshot = system.engine.snapshot(end);
    assert!(snapshot.leases.is_empty(), "{snapshot:?}");
    let mut pools = snapshot.pools.iter().map(|(id, _)| id);
    assert!(pools.all(|id| system.specs.contains_key(id)), "a removed group is gone: {snapshot:?}");
}
