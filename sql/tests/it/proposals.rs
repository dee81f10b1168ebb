//! Changes that are proposed, by SQL.

use tidegate_sql::{Answer, Code};

use crate::support::{Lab, lines};

#[tokio::test]
async fn a_change_is_proposed_shown_applied_and_withdrawn() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=1000").await;
    let none = lab.refused("SHOW RESOURCE GROUP PROPOSAL shop").await;
    assert!(none.code() == Code::REFUSED && none.to_string().contains("nothing is proposed"), "{none}");
    let text = "ALTER RESOURCE GROUP Shop PROPOSE RU_PER_SEC=2 BURST=1, POLICY=WARM_UP('2s', 4) MAX_WAIT='5ms' QUOTA=9 PER DAY 'Europe/Berlin'";
    let (affected, notes) = lab.done(text).await;
    assert!(affected == 1 && notes.contains("nothing is recorded since"), "{notes}");
    // It is not in force.
    assert!(lab.rows("SHOW RESOURCE GROUPS").await.contains(&"shop|1000|MEDIUM|OFF|NULL|NULL".to_owned()));
    lab.charge("shop").await;

    let table = lab.table("SHOW RESOURCE GROUP PROPOSAL `shop`").await;
    let note = &table.notes[0];
    let settings =
        "RU_PER_SEC=2, BURST=1, POLICY=WARM_UP('2s', 4), QUOTA=9 PER DAY 'Europe/Berlin', MAX_WAIT='5ms'";
    assert!(note.starts_with(&format!("note: proposed for shop: {settings}; compared since 20")), "{note}");
    let rows = lines(&table);
    assert!(rows[0].starts_with("live|even|1000|1000|token_bucket|NULL|2.75|0|0|0|0|0."), "{rows:#?}");
    // Three operations of a third of 2.75 RU in a moment, at half an RU a second to begin with.
    assert!(rows[3].starts_with("proposed|at once|2|1|warm_up(2s, 4)|9 per day Europe/Berlin|"), "{rows:#?}");
    assert_eq!(rows.len(), 4);
    let listed =
        lab.rows("SELECT resource_group, settings, live_revision - revision FROM tidegate.proposals").await;
    assert_eq!(listed, [format!("shop|{settings}|0")]);

    assert_eq!(lab.done("ALTER RESOURCE GROUP shop PRIORITY=HIGH").await.0, 1);
    let changed = lab.refused("ALTER RESOURCE GROUP shop APPLY PROPOSAL").await;
    assert!(changed.to_string().contains("propose it again"), "{changed}");
    lab.done("ALTER RESOURCE GROUP shop PROPOSE RU_PER_SEC=7").await;
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop APPLY PROPOSAL").await, (1, String::new()));
    assert!(lab.rows("SHOW RESOURCE GROUPS").await[1].starts_with("shop|7|HIGH|"));
    assert!(lab.rows("SELECT * FROM tidegate.proposals").await.is_empty());

    lab.done("ALTER RESOURCE GROUP shop PROPOSE RU_PER_SEC=5").await;
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop WITHDRAW PROPOSAL").await, (1, String::new()));
    let (affected, note) = lab.done("ALTER RESOURCE GROUP shop WITHDRAW PROPOSAL").await;
    assert!(affected == 0 && note.contains("nothing was proposed for resource group shop"), "{note}");
}

#[tokio::test]
async fn what_cannot_be_proposed_is_refused_by_name() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=1000").await;
    for (text, code, named) in [
        ("ALTER RESOURCE GROUP shop PROPOSE WEIGHT=5", Code::INVALID, "cannot be judged by a replay"),
        ("ALTER RESOURCE GROUP shop PROPOSE RU_PER_SEC=1000", Code::INVALID, "changes nothing"),
        ("ALTER RESOURCE GROUP shop PROPOSE RU_PER_SEC=0", Code::INVALID, "ru_per_sec"),
        ("ALTER RESOURCE GROUP shop PROPOSE RU_PER_SEC=UNLIMITED", Code::INVALID, "without a limit nothing"),
        ("ALTER RESOURCE GROUP nowhere PROPOSE RU_PER_SEC=5", Code::UNKNOWN, "nowhere"),
        ("ALTER RESOURCE GROUP shop APPLY PROPOSAL", Code::REFUSED, "nothing is proposed for group shop"),
    ] {
        let error = lab.refused(text).await;
        assert!(error.code() == code && error.to_string().contains(named), "{text}: {error}");
    }
    let answer = lab.send("ALTER RESOURCE GROUP shop WITHDRAW PROPOSAL").await;
    assert!(matches!(answer, Ok(Answer::Done { affected: 0, .. })), "{answer:?}");
}
