//! What each command says when it is done: a line for people, and a document for programs.

use serde_json::{Value, json};

use crate::support::Controller;

const WATCH: &str = "00000000000000ab";

#[test]
fn each_command_says_what_it_did_and_whether_anything_changed() {
    let controller = Controller::start();
    for (line, said) in [
        ("group create shop --rate 5", "group shop created, revision 2"),
        ("group create shop --rate 5 --if-not-exists", "group shop unchanged, revision 2"),
        ("group alter shop --rate 6", "group shop altered, revision 3"),
        ("group alter shop --rate 6", "group shop unchanged, revision 3"),
        ("group create other --rate 5", "group other created, revision 4"),
        ("bind add shop --tenant t", "tenant t bound to shop"),
        ("bind add shop --tenant t", "tenant t was bound to shop already"),
        ("bind add other --tenant t", "tenant t bound to other, before to shop"),
        ("bind add other --user u", "user u bound to other"),
        ("bind add other --tenant t --user u", "user u of tenant t bound to other"),
        ("resolve --tenant t", "other (by tenant)"),
        ("resolve --user u", "other (by user)"),
        ("resolve --tenant t --user u", "other (by user in tenant)"),
        ("resolve --tenant x", "default (by default)"),
        ("bind remove --user u", "binding of user u removed"),
        ("bind remove --user u --if-exists", "user u had no binding"),
        ("bind remove --tenant x --user u --if-exists", "user u of tenant x had no binding"),
        (
            "watch add --group shop --similar-to 00000000000000ab --action kill",
            "watch 1 of group shop: similar 00000000000000ab, for ever",
        ),
        ("watch remove 1", "1 watches removed"),
        ("watch remove --group shop", "0 watches removed"),
        ("statement reset shop", "0 statements forgotten"),
        (
            "group propose shop --rate 9 --burst 8 --max-wait 7ms",
            "proposed for group shop: ru_per_sec=9, burst=8, max_wait_us=7ms; see tidegate group proposal shop",
        ),
        ("group withdraw shop", "the proposal for group shop is withdrawn"),
        ("group withdraw shop", "nothing was proposed for group shop"),
        (
            "group propose shop --rate 9",
            "proposed for group shop: ru_per_sec=9; see tidegate group proposal shop",
        ),
        ("group apply-proposal shop", "group shop altered as proposed"),
        ("group create board --rate 1 --parent other", "group board created"),
        (
            "group delete other --force-to shop",
            "group other deleted, moved tenant t, user u in tenant t, group board",
        ),
        ("group delete other --if-exists", "group other did not exist"),
        ("group create last --rate 1", "group last created"),
        ("group delete last board --if-exists", "group last deleted\ngroup board deleted"),
        ("group delete last board --if-exists", "group last unchanged\ngroup board unchanged"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let told = controller.ok(&words);
        // What counts in the number of a later revision is not what this is about.
        let ends = if said.contains(", revision ") { None } else { told.find(", revision ") };
        let told = &told[..ends.unwrap_or(told.len())];
        assert_eq!(told.trim_end(), said, "{line}");
    }
}

#[test]
fn each_command_says_the_same_to_programs_with_every_field() {
    let controller = Controller::start();
    let said = |line: &str| controller.json(&line.split(' ').collect::<Vec<_>>());
    let group = |answer: &Value| {
        let group = &answer["group"];
        (
            answer["changed"].clone(),
            group["name"].clone(),
            group["ru_per_sec"].clone(),
            group["revision"].clone(),
        )
    };
    let told = |changed: bool, rate: &str, revision: u64| {
        (json!(changed), json!("shop"), json!(rate), json!(revision))
    };
    assert_eq!(group(&said("group create shop --rate 5")), told(true, "5", 2));
    assert_eq!(group(&said("group create shop --rate 5 --if-not-exists")), told(false, "5", 2));
    assert_eq!(group(&said("group alter shop --rate 6")), told(true, "6", 3));
    assert_eq!(group(&said("group alter shop --rate 6")), told(false, "6", 3));
    said("group create other --rate 5");
    let bound = |changed: bool, group: &str, previous: &str| json!({"changed": changed, "tenant": "t", "user": "u", "group": group, "previous": previous});
    assert_eq!(said("bind add shop --tenant t --user u"), bound(true, "shop", ""));
    assert_eq!(said("bind add shop --tenant t --user u"), bound(false, "shop", "shop"));
    assert_eq!(said("bind add other --tenant t --user u"), bound(true, "other", "shop"));
    assert_eq!(said("bind list"), json!([{"tenant": "t", "user": "u", "group": "other"}]));
    let unbound = |removed: bool| json!({"removed": removed, "tenant": "t", "user": "u"});
    assert_eq!(said("bind remove --tenant t --user u --if-exists"), unbound(true));
    assert_eq!(said("bind remove --tenant t --user u --if-exists"), unbound(false));
    let watch = said(&format!("watch add --group shop --similar-to {WATCH} --switch-group other"));
    let expected = json!({
        "id": 1, "group": "shop", "match": "similar", "digest": WATCH, "text": "", "action": "switch_group",
        "switch_group": "other", "start_unix_ms": watch["start_unix_ms"], "end_unix_ms": 0, "source": "manual",
        "rule": "",
    });
    assert_eq!(watch, expected);
    assert_eq!(said("watch list"), json!([expected]));
    assert_eq!(said("watch remove 1"), json!({"removed": 1}));
    assert_eq!(said("statement reset shop"), json!({"removed": 0}));
    let outcome = |name: &str, outcome: &str| json!({"kind": "binding", "name": name, "outcome": outcome});
    said("bind add shop --tenant t");
    // Nothing but a deletion is a change, too.
    let both = "bind remove --tenant t --tenant x";
    let revision = |removed: &Value| removed["revision"].as_u64().unwrap();
    let (first, again) = (said(both), said(both));
    let expected = |changed: bool, first: &str, revision: u64| {
        json!({
            "dry_run": false, "changed": changed, "revision": revision, "warnings": [],
            "outcomes": [outcome("tenant t", first), outcome("tenant x", "unchanged")],
        })
    };
    assert_eq!(first, expected(true, "deleted", revision(&first)));
    assert_eq!(again, expected(false, "unchanged", revision(&first)));
    said("bind add other --tenant t");
    let deleted = |deleted: bool, moved: &[&str], warnings: &[&str]| json!({"deleted": deleted, "moved": moved, "moved_count": moved.len(), "warnings": warnings});
    let higher = ["what moved from other to shop is limited to 6 RU/s now, not 5 RU/s"];
    assert_eq!(said("group delete other --force-to shop"), deleted(true, &["tenant t"], &higher));
    assert_eq!(said("group delete other --if-exists"), deleted(false, &[], &[]));
}
