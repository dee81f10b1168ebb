//! Limits in shadow: leases are what they would be, and say that they are not enforced.

use tidegate_core::exchange::Grant;
use tidegate_core::group::Fallback;

use super::*;

/// GROUP below a group of 400 RU/s, beside a group that is enforced.
fn tree(above: bool, group: bool) -> Engine {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let spec = |rate, parent, shadow| GroupSpec { parent, shadow, ..GroupSpec::capped(Rate::whole(rate)) };
    engine.put_group(at(0), GroupId(3), spec(400, None, above)).unwrap();
    engine.put_group(at(0), GROUP, spec(100, Some(GroupId(3)), group)).unwrap();
    engine.put_group(at(0), GroupId(4), spec(300, None, false)).unwrap();
    engine
}

#[test]
fn a_lease_is_in_shadow_with_its_group_or_any_above_and_has_no_bound_past_its_end() {
    for (above, group) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut shadow, mut enforced) = (tree(above, group), tree(false, false));
        let renew = |engine: &mut Engine, id| leased(engine.renew(at(1), A, id, 1, &wants(500), None));
        let (evaluated, usual) = (renew(&mut shadow, GROUP), renew(&mut enforced, GROUP));
        assert_eq!((evaluated.rate, evaluated.cap, evaluated.fill), (usual.rate, usual.cap, usual.fill));
        assert_eq!(evaluated.enforcement.shadow, above || group);
        let fallback = if above || group { Fallback::Unlimited } else { Fallback::Stop };
        assert_eq!(evaluated.fallback, fallback);
        let beside = renew(&mut shadow, GroupId(4));
        assert_eq!((beside.enforcement.shadow, beside.fallback), (false, Fallback::Stop));
    }
}

#[test]
fn a_controller_that_recovers_lets_all_pass_in_shadow() {
    let mut engine = tree(false, true);
    engine.recover_until(at(5_000));
    let grant = engine.renew(at(1), A, GROUP, 1, &wants(500), None);
    assert!(
        matches!(grant, Some(Grant::Recovering { fallback: Some(Fallback::Unlimited), .. })),
        "{grant:?}"
    );
}

#[test]
fn parts_of_the_fallback_are_not_divided_in_shadow() {
    let mut engine = tree(false, false);
    let spec = |shadow| GroupSpec {
        fallback_total: Some(Rate::whole(50)),
        shadow,
        ..GroupSpec::capped(Rate::whole(100))
    };
    engine.put_group(at(0), GROUP, spec(true)).unwrap();
    let terms = leased(engine.renew(at(1), A, GROUP, 1, &wants(5), None));
    assert_eq!(terms.fallback, Fallback::Unlimited);
    assert_eq!(engine.take_parts(at(2)), []);
    engine.put_group(at(3), GROUP, spec(false)).unwrap();
    let terms = leased(engine.renew(at(4), A, GROUP, 2, &holds(wants(5), 1, &terms), None));
    assert!(
        !terms.enforcement.shadow && matches!(terms.fallback, Fallback::Part(..) | Fallback::Stop),
        "{terms:?}"
    );
}
