//! Hints at other groups, and at groups that do not exist: those are ignored, whatever else is true of a statement.

use tidegate_sql::Code;

use super::*;

/// The statement with a hint at this group.
fn hinted(group: &str, rest: &str) -> String {
    format!("select /*+ RESOURCE_GROUP({group}) */ {rest}")
}

/// The group `own` has its statements wait for a millisecond, and the gateway knows.
async fn be_hasty(stage: &Stage, group: &Group) {
    stage.own("alter resource group own max_wait = '1ms'").await;
    let known = async {
        while stage.begun(group).await.patience() > Duration::from_millis(1) {
            yield_now().await;
        }
    };
    timeout(PATIENCE, known).await.expect("its longest wait is known");
}

/// Its group is charged for what it did, by a statement that counts in it.
async fn pays(stage: &Stage, group: &Group, text: &str, in_transaction: bool) {
    let before = group.consumption();
    let ended = stage.answered(group, text, in_transaction).await.expect(text).end(cpu(30), rows(1), false);
    let own = group.consumption().minus(&before).unwrap();
    assert_eq!((&ended.group, own.operations), (group.name(), 1), "{text}");
    assert!(ended.charged.total() >= Ru::whole(10), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_a_transaction_a_hint_that_leads_nowhere_is_ignored_as_well() {
    for in_transaction in [InTransaction::OweSome, InTransaction::Owe, InTransaction::Wait] {
        let stage = Stage::with(Policy { in_transaction, ..Policy::default() }, None).await;
        let group = stage.group("own", "").await;
        stage
            .own("query watch add resource group own action = kill sql text similar to 'select 2 from b'")
            .await;
        let watched = |text: &str| matches!(stage.asked(&group, text, false), Admission::Denied(_));
        eventually("it is watched", || watched("select 2 from b")).await;
        // A name that the gateway has heard of before, and one that it has not.
        for name in ["nowhere", "nowhere", "elsewhere"] {
            pays(&stage, &group, &hinted(name, "1 from a"), true).await;
        }
        for name in ["nowhere", "somewhere"] {
            let answer = stage.answered(&group, &hinted(name, "2 from b"), true).await;
            assert_eq!(answer.err().expect("it is watched").code, Code::WATCHED);
        }
    }
}

/// It must not hold its locks until its group has paid, where it would not without the hint.
#[tokio::test(flavor = "multi_thread")]
async fn inside_a_transaction_a_statement_owes_its_own_group_though_its_hint_leads_nowhere() {
    let owing = Policy { in_transaction: InTransaction::Owe, ..Policy::default() };
    let stage = Stage::with(owing, None).await;
    let group = stage.group("own", "").await;
    lead_into_debt(&group).await;
    for text in ["select 1 from a".to_owned(), hinted("nowhere", "1 from a"), hinted("nowhere", "1 from a")] {
        pays(&stage, &group, &text, true).await;
    }
    // Its own group's limit of what may be owed holds, and outside of transactions it waits.
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    be_hasty(&stage, &group).await;
    lead_into_debt(&group).await;
    for (name, in_transaction) in [("nowhere", true), ("nowhere", false), ("elsewhere", true)] {
        let answer = stage.answered(&group, &hinted(name, "1 from a"), in_transaction).await;
        let denied = answer.err().expect("it waits in vain");
        assert_eq!(denied.code, Code::QUOTA);
        let open = "The transaction is still open and holds its locks; COMMIT and ROLLBACK do not wait.";
        assert_eq!(denied.hint.ends_with(open), in_transaction, "{denied:?}");
    }
}

/// Of the group at which it hints no text is watched.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_hint_that_leads_nowhere_the_own_group_s_watches_of_exact_texts_hold() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    let text = hinted("nowhere", "1 from a");
    stage.own(&format!("query watch add resource group own action = kill sql text exact to '{text}'")).await;
    // The list of watches is known with the later one.
    stage.watch(&group, "select 2 from b").await;
    let subject = Subject { chosen: Some(group.clone()), ..stage.subject.clone() };
    let dialect = SqlDialect::PostgreSql;
    for (text, refused) in [(text, true), (hinted("nowhere", "2 from a"), false)] {
        let template = Arc::new(Template::new(dialect, text.as_str()));
        let whole = SqlText::Whole(text.as_bytes());
        let answer = match stage.governor.admit(&subject, dialect, &template, whole, false) {
            Admission::Now(running) => Ok(running),
            Admission::Wait(waits) => timeout(PATIENCE, waits).await.expect("it is decided"),
            Admission::Denied(denied) => Err(denied),
        };
        assert_eq!(answer.err().map(|denied| denied.code), refused.then_some(Code::WATCHED), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_hint_that_leads_nowhere_the_watches_of_the_own_group_say_who_pays() {
    let stage = Stage::new().await;
    let (own, other) = (stage.group("own", "").await, stage.group("other", "").await);
    let text = "select /*+ RESOURCE_GROUP(nowhere) */ 1 from a";
    let watch = "query watch add resource group own action = switch_group(other) sql text similar to";
    stage.own(&format!("{watch} '{text}'")).await;
    let pays = async {
        while other.consumption().operations == 0 {
            drop(stage.answered(&own, text, false).await.unwrap().end(cpu(1), rows(1), false));
        }
    };
    timeout(PATIENCE, pays).await.expect("the watch is known, and the other group pays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_new_here_is_charged_for_what_hints_at_it() {
    let stage = Stage::new().await;
    let own = stage.group("own", "").await;
    for (name, in_transaction) in [("one", false), ("two", true)] {
        stage.own(&format!("create resource group {name} ru_per_sec = 1000")).await;
        let text = hinted(name, "1");
        let ended = stage.answered(&own, &text, in_transaction).await.unwrap().end(cpu(1), rows(1), false);
        assert_eq!(&*ended.group, name);
        let subject = Subject { may_switch: false, chosen: Some(own.clone()), ..stage.subject.clone() };
        let template = Arc::new(Template::new(SqlDialect::PostgreSql, text));
        match stage.governor.admit(&subject, SqlDialect::PostgreSql, &template, SqlText::Unseen, true) {
            Admission::Now(running) => assert_eq!(running.end(cpu(1), rows(1), false).group, *own.name()),
            _ => panic!("nobody asks who may not choose"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_hint_that_leads_nowhere_a_statement_waits_as_long_as_its_own_group_says() {
    let patient = Policy { max_wait: Duration::from_secs(3_600), ..Policy::default() };
    let stage = Stage::with(patient, None).await;
    let group = stage.group("own", "").await;
    be_hasty(&stage, &group).await;
    // A quarter of an hour, which the policy would let it wait.
    lead_into_debt(&group).await;
    for text in ["select 1 from a".to_owned(), hinted("nowhere", "1 from a"), hinted("nowhere", "1 from a")] {
        let denied = stage.answered(&group, &text, false).await.err().expect("it waits in vain");
        assert_eq!(denied.code, Code::QUOTA, "{denied:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_s_group_that_does_not_exist_is_named_to_its_client() {
    let stage = Stage::new().await;
    let group = stage.governor.group("never").unwrap();
    for text in ["select 1", "select /*+ RESOURCE_GROUP(nowhere) */ 1"] {
        let denied = stage.answered(&group, text, false).await.err().expect("nobody pays");
        assert_eq!(
            (denied.code, denied.message.as_str()),
            (Code::UNKNOWN, "resource group never does not exist")
        );
        assert_eq!(denied.hint, "Create it, or bind the user to another group.");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_controller_statements_run_where_that_is_wanted_and_a_hint_at_an_unknown_group_is_ignored()
{
    for admit_without_lease in [true, false] {
        let policy = Policy { admit_without_lease, max_wait: Duration::from_millis(1), ..Policy::default() };
        let stage = Stage::with(policy, None).await;
        let known = stage.group("known", "").await;
        // Where there is a lease, its limit holds.
        lead_into_debt(&known).await;
        assert_eq!(stage.answered(&known, "select 1", false).await.err().unwrap().code, Code::QUOTA);
        let Stage { governor, subject, controller, _tasks, _folder } = stage;
        controller.expect("it is there").shutdown().await.unwrap();
        eventually("it is away", || !governor.is_connected()).await;
        let fresh = governor.group("fresh").unwrap();
        let subject = Subject { chosen: Some(fresh.clone()), ..subject };
        // Where it waits, it waits for what the controller will say of the group at which it hints.
        let unheard = if admit_without_lease { "fresh" } else { "nowhere" };
        for (text, group) in [
            ("select 1".to_owned(), "fresh"),
            (hinted("nowhere", "1"), unheard),
            (hinted("known", "1"), "known"),
        ] {
            let template = Arc::new(Template::new(SqlDialect::PostgreSql, text));
            let admission =
                governor.admit(&subject, SqlDialect::PostgreSql, &template, SqlText::Unseen, false);
            let answer = match admission {
                Admission::Now(running) => Ok(running),
                Admission::Wait(waits) => timeout(PATIENCE, waits).await.expect("it is decided"),
                Admission::Denied(denied) => Err(denied),
            };
            match answer {
                Ok(running) => {
                    assert!(admit_without_lease, "{group}");
                    assert_eq!(&*running.end(cpu(1), rows(1), false).group, group);
                }
                Err(denied) => {
                    assert!(group == "known" || !admit_without_lease, "{denied:?}");
                    assert!(denied.message.starts_with(&format!("resource group {group} ")), "{denied:?}");
                }
            }
        }
    }
}

/// The group that a session chose comes before the one that its client's name hints at, and both before its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_its_own_group_s_unless_it_may_choose_and_has_chosen() {
    let stage = Stage::new().await;
    for name in ["named", "chosen"] {
        stage.own(&format!("create resource group {name} ru_per_sec = 1000")).await;
    }
    let chosen = stage.governor.group("chosen");
    for (user, application, named, first) in [
        ("root", "reports /*+ RESOURCE_GROUP(named) */", true, "named"),
        ("root", "reports /*+ RESOURCE_GROUP(nowhere) */", false, "default"),
        ("ann", "reports /*+ RESOURCE_GROUP(named) */", false, "default"),
        ("root", "reports", false, "default"),
    ] {
        let login = Login { tenant: "shop".into(), user: user.into(), application: application.into() };
        let subject = stage.governor.subject(login).await.unwrap();
        assert_eq!(
            (subject.named.is_some(), &**subject.group().name()),
            (named, first),
            "{user} {application}"
        );
        let subject = Subject { chosen: chosen.clone(), ..subject };
        assert_eq!(&**subject.group().name(), "chosen");
    }
}

/// It would be charged when nobody tells the controller any more.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_shutdown_no_statement_runs_on_debt() {
    let owing = Policy { in_transaction: InTransaction::Owe, ..Policy::default() };
    let stage = Stage::with(owing, None).await;
    let group = stage.group("own", "").await;
    lead_into_debt(&group).await;
    assert!(matches!(stage.asked(&group, "select 1", true), Admission::Now(_)));
    let Stage { governor, subject, _tasks, controller: _controller, _folder } = stage;
    governor.shutdown(_tasks).await;
    let (subject, dialect) = (Subject { chosen: Some(group), ..subject }, SqlDialect::PostgreSql);
    let template = Arc::new(Template::new(dialect, "select 1"));
    match governor.admit(&subject, dialect, &template, SqlText::Unseen, true) {
        Admission::Denied(denied) => assert!(denied.message.contains("is shutting down"), "{denied:?}"),
        Admission::Now(_) | Admission::Wait(_) => panic!("it is not refused"),
    }
}

/// Only one of the statements that a client sends at once is taken for the end of its transaction.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_transaction_does_not_wait_and_a_second_one_behind_it_does() {
    for (in_transaction, waits) in [
        (InTransaction::OweSome, [false, true, false]),
        (InTransaction::Owe, [false; 3]),
        (InTransaction::Wait, [true; 3]),
    ] {
        let stage = Stage::with(Policy { in_transaction, ..Policy::default() }, None).await;
        let group = stage.group("own", "").await;
        lead_into_debt(&group).await;
        let waited = [(); 3].map(|()| match stage.asked(&group, "commit", true) {
            Admission::Now(running) => {
                drop(running.end(cpu(0), rows(0), false));
                false
            }
            Admission::Wait(_) => true,
            Admission::Denied(denied) => panic!("{denied:?}"),
        });
        assert_eq!(waited, waits, "{in_transaction:?}");
        // Outside of one there is nothing to end.
        assert!(matches!(stage.asked(&group, "commit", false), Admission::Wait(_)));
        assert_eq!(
            matches!(stage.asked(&group, "select 1", true), Admission::Wait(_)),
            in_transaction != InTransaction::Owe
        );
    }
}

/// What goes on in the group to which its own demotes is held by that group's tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_was_demoted_is_held_for_the_group_that_pays() {
    let stage = Stage::new().await;
    let spill = stage.group("spill", "priority = low").await;
    let own = stage.group("own", "demote_to = 'spill'").await;
    lead_into_debt(&own).await;
    let mut running = timeout(PATIENCE, async {
        loop {
            if let Admission::Now(running) = stage.asked(&own, "select 1", false) {
                return running;
            }
            yield_now().await;
        }
    })
    .await
    .expect("it goes on elsewhere");
    let before = spill.consumption();
    assert_eq!(running.look(cpu(300), rows(1)), Verdict::Goes);
    lead_into_debt(&spill).await;
    assert_eq!(running.look(cpu(1), rows(1)), Verdict::Holds);
    let ended = running.end(cpu(1), rows(1), false);
    assert_eq!(ended.group, *own.name(), "its rule and its statistics are its own group's");
    let paid = spill.consumption().minus(&before).unwrap();
    assert_eq!(paid.operations, 1 + 1);
    assert_eq!(paid.charged.cpu, tidegate_client::RuTotal::from(ended.charged.cpu));
}

/// Its own group admits it, and pays.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_the_group_it_was_switched_to_runs_in_its_own_when_that_group_is_gone() {
    let patient = Policy { max_wait: Duration::from_secs(3_600), ..Policy::default() };
    let stage = Stage::with(patient, None).await;
    let (own, other) = (stage.group("own", "").await, stage.group("other", "").await);
    let watch = "query watch add resource group own action = switch_group(other) sql text similar to";
    stage.own(&format!("{watch} 'select 1 from a'")).await;
    let switched = async {
        while other.consumption().operations == 0 {
            drop(stage.answered(&own, "select 1 from a", false).await.unwrap().end(cpu(1), rows(1), false));
        }
    };
    timeout(PATIENCE, switched).await.expect("the watch is known, and the other group pays");
    lead_into_debt(&other).await;
    let Admission::Wait(waits) = stage.asked(&own, "select 1 from a", false) else {
        panic!("it waits for the other group")
    };
    let before = own.consumption();
    let goes = async {
        let running = waits.await.expect("its own group admits it");
        running.end(cpu(30), rows(1), false)
    };
    let drops = async {
        stage.own("query watch remove 1").await;
        stage.own("drop resource group other").await;
    };
    let (ended, ()) = timeout(PATIENCE, async { tokio::join!(goes, drops) }).await.expect("it runs");
    assert_eq!(ended.group, *own.name());
    assert_eq!(own.consumption().minus(&before).unwrap().operations, 1);
}
