//! Statements that another group pays for: the rules are those of their own.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_a_watch_switched_waits_as_long_as_its_own_group_says() {
    let stage = Stage::new().await;
    let busy = stage.group("busy", "max_wait = '1ms'").await;
    let patient = stage.group("patient", "max_wait = '1h'").await;
    let hasty = stage.group("hasty", "max_wait = '1ms'").await;
    for group in [&patient, &hasty] {
        let watched = format!(
            "resource group {} action = switch_group(busy) sql text similar to 'select 1'",
            group.name()
        );
        stage.own(&format!("query watch add {watched}")).await;
    }
    for (group, wait) in [(&patient, 3_600_000), (&hasty, 1), (&busy, 1)] {
        let known = async {
            // Each takes of what the group has, which is not to run out.
            let mut again = interval(Duration::from_millis(20));
            loop {
                again.tick().await;
                let before = busy.consumption();
                let running = stage.begun(group).await;
                let waits = running.patience();
                drop(running.end(cpu(1), rows(1), false));
                if waits == Duration::from_millis(wait) && busy.consumption() != before {
                    return;
                }
            }
        };
        timeout(PATIENCE, known).await.expect("the rules are known");
    }
    // At 1,000 RU/s, for some seconds.
    busy.charge_ru(RuParts::flat(Ru::whole(3_000)));
    eventually("it owes", || busy.remaining().is_some_and(|left| !left.is_positive())).await;
    assert!(stage.answered(&hasty, "select 1", false).await.is_err(), "its own group waits for 1 ms");
    let admitted = stage.answered(&patient, "select 1", false).await;
    assert!(admitted.is_ok(), "the group that pays waits for 1 ms, and its own for an hour");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_statement_is_held_to_the_rule_of_its_own_group() {
    let stage = Stage::new().await;
    let spill = stage.group("spill", "priority = low").await;
    let own = stage.group("own", &format!("{} demote_to = spill", ruled("kill"))).await;
    lead_into_debt(&own).await;
    let before = spill.consumption();
    let mut running = stage.begun(&own).await;
    assert_eq!(running.look(cpu(1), rows(TOO_MANY - 1)), Verdict::Goes);
    let verdict = running.look(cpu(1), rows(TOO_MANY));
    assert!(matches!(verdict, Verdict::Dies(_)), "{verdict:?}");
    drop(running.end(cpu(1), rows(TOO_MANY), true));
    assert!(spill.consumption() != before, "the other group pays");
}
