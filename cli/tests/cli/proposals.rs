//! A change is proposed, seen beside what is in force, applied and withdrawn.

use serde_json::json;

use crate::support::Controller;

#[test]
fn a_change_is_proposed_compared_applied_and_withdrawn() {
    let mut controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "1000"]);
    let said = controller.refused(&["group", "proposal", "shop"]);
    assert!(said.contains("nothing is proposed for group shop"), "{said}");
    let said = controller.ok(&["group", "propose", "shop", "--rate", "2", "--policy", "warm_up(2s, 4)"]);
    assert!(said.contains("ru_per_sec=2, policy=warm_up(2s, 4)"), "{said}");
    controller.ok(&["bind", "add", "shop", "--user", "ann"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.sql");
    std::fs::write(&file, "create table t(a); insert into t values (1);").unwrap();
    controller.ok(&["node", "--user", "ann", "--sql", file.to_str().unwrap()]);
    let shown = controller.ok(&["group", "proposal", "shop", "-o", "wide"]);
    for part in
        ["proposed for group shop", "RU wanted", "live", "proposed", "even", "at once", "warm_up(2s, 4)"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = controller.json(&["group", "proposal", "shop"]);
    assert_eq!(json["comparison"]["recorded_operations"], json!(2));
    controller.kill();
    controller.again();
    let listed = controller.ok(&["group", "proposals"]);
    assert!(listed.contains("shop") && listed.contains("ru_per_sec=2"), "{listed}");

    controller.ok(&["group", "alter", "shop", "--weight", "7"]);
    let said = controller.refused(&["group", "apply-proposal", "shop"]);
    assert!(said.contains("changed since this was proposed") && said.contains("propose it again"), "{said}");
    let said = controller.ok(&["group", "propose", "shop", "--rate", "3"]);
    assert!(said.contains("ru_per_sec=3"), "{said}");
    let said = controller.ok(&["group", "apply-proposal", "SHOP"]);
    assert!(said.contains("altered as proposed"), "{said}");
    let group = controller.json(&["group", "show", "shop"]);
    assert_eq!((&group["ru_per_sec"], &group["weight"]), (&json!("3"), &json!(7)));
    let said = controller.refused(&["group", "apply-proposal", "shop"]);
    assert!(said.contains("nothing is proposed for group shop"), "{said}");

    controller.ok(&["group", "propose", "shop", "--burst", "5"]);
    let said = controller.ok(&["group", "withdraw", "shop"]);
    assert!(said.contains("the proposal for group shop is withdrawn"), "{said}");
    let said = controller.ok(&["group", "withdraw", "shop"]);
    assert!(said.contains("nothing was proposed"), "{said}");
    for (wrong, named) in [
        (
            &["--weight", "5"][..],
            "tidegate: \"--weight\" cannot be judged by a replay; these can: --rate, --burst, --burstable, --policy, \
             --quota, --max-wait",
        ),
        (&["--rate", "0"], "--rate"),
        (&["--rate", "3"], "changes nothing"),
        (&[], "name at least one setting"),
    ] {
        let said = controller.wrong(&[&["group", "propose", "shop"], wrong].concat());
        assert!(said.contains(named), "{said}");
    }
}
