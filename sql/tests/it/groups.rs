//! Groups, bindings and sessions.

use std::collections::BTreeMap;

use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_sql::{Answer, Code, Context, SessionChange, Table, Value};

use crate::support::{Lab, context};

#[tokio::test]
async fn groups_come_change_and_go() {
    let lab = Lab::start().await;
    let text = "CREATE RESOURCE GROUP Shop RU_PER_SEC=2000 PRIORITY=HIGH, QUERY_LIMIT=(EXEC_ELAPSED='20s' ACTION=KILL)";
    assert_eq!(lab.done(text).await, (1, String::new()));
    let error = lab.refused("CREATE RESOURCE GROUP SHOP RU_PER_SEC=5").await;
    assert_eq!((error.code(), error.code().mysql), (Code::EXISTS, 8248));
    let (affected, notes) = lab.done("CREATE RESOURCE GROUP IF NOT EXISTS shop RU_PER_SEC=5").await;
    assert!(affected == 0 && notes.contains("8248") && notes.contains("shop exists already"), "{notes}");

    assert_eq!(lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=0.5 BURSTABLE").await.0, 1);
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=0.5").await.0, 0);
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop BURST_RU_PER_SEC=9").await.0, 1);
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop BURSTABLE=OFF").await.0, 1);
    let error = lab.refused("ALTER RESOURCE GROUP nowhere PRIORITY=LOW").await;
    assert_eq!(error.code(), Code::UNKNOWN);
    let (_, notes) = lab.done("ALTER RESOURCE GROUP IF EXISTS nowhere PRIORITY=LOW").await;
    assert!(notes.contains("8249") && notes.contains("nowhere does not exist"), "{notes}");
    let error = lab.refused("ALTER RESOURCE GROUP IF EXISTS shop PARENT=nowhere").await;
    assert!(error.to_string().contains("nowhere"), "{error}");
    let error = lab.refused("ALTER RESOURCE GROUP shop WEIGHT=99999").await;
    assert!(error.code() == Code::INVALID && error.to_string().contains("weight"), "{error}");
    let error = lab.refused("CREATE RESOURCE GROUP `a b` RU_PER_SEC=1").await;
    assert!(error.code() == Code::INVALID && error.to_string().contains("a b"), "{error}");

    assert_eq!(
        lab.rows("select * from information_schema.resource_groups order by name").await,
        [
            "default|UNLIMITED|MEDIUM|UNLIMITED|NULL|NULL",
            "shop|0.5|HIGH|OFF|EXEC_ELAPSED='20s', ACTION=KILL|NULL"
        ]
    );
    let shown = lab.rows("SHOW RESOURCE GROUPS").await;
    assert_eq!(shown.len(), 2);
    let error = lab.refused("DROP RESOURCE GROUP default").await;
    assert_eq!(error.code(), Code::REFUSED);
    assert_eq!(lab.done("DROP RESOURCE GROUP shop").await, (1, String::new()));
    assert_eq!(lab.refused("DROP RESOURCE GROUP shop").await.code(), Code::UNKNOWN);
    let (affected, notes) = lab.done("DROP RESOURCE GROUP IF EXISTS shop").await;
    assert!(affected == 0 && notes.contains("8249"), "{notes}");
}

#[tokio::test]
async fn without_a_rate_there_is_nothing_to_burst_above() {
    let lab = Lab::start().await;
    let mut admin = AdminClient::new(lab.channel.clone());
    let mut state = async || {
        let request = v1::GetGroupRequest { name: "shop".into() };
        let group = admin.get_group(request).await.unwrap().into_inner().group.unwrap();
        [group.ru_per_sec, group.burstable, group.burst_ru_per_sec].join(" ")
    };
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5 BURSTABLE=MODERATED BURST_RU_PER_SEC=9").await;
    let (affected, notes) = lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=UNLIMITED").await;
    assert!(affected == 1 && notes.contains("warning: BURSTABLE is OFF"), "{notes}");
    assert_eq!(state().await, "unlimited off ");
    let (affected, notes) = lab.done("ALTER RESOURCE GROUP shop BURSTABLE").await;
    assert!(affected == 0 && notes.contains("warning: BURSTABLE is OFF"), "{notes}");
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=5 BURSTABLE").await, (1, String::new()));
    assert_eq!(state().await, "5 moderated ");
    // Above a rate there is, and what does not burst needs none.
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop BURSTABLE=OFF").await, (1, String::new()));
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop BURSTABLE").await, (1, String::new()));
    assert_eq!(state().await, "5 moderated ");
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop BURSTABLE=OFF").await, (1, String::new()));
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=UNLIMITED").await, (1, String::new()));
    assert_eq!(state().await, "unlimited off ");
    lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=5").await;
    // What bursts otherwise stays as it is, and a statement that contradicts itself is refused.
    lab.done("ALTER RESOURCE GROUP shop BURSTABLE=UNLIMITED").await;
    assert_eq!(lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=UNLIMITED").await, (1, String::new()));
    assert_eq!(state().await, "unlimited unlimited ");
    let error = lab.refused("ALTER RESOURCE GROUP shop BURSTABLE BURST_RU_PER_SEC=9").await;
    assert!(
        error.code() == Code::INVALID && error.to_string().contains("needs a limited ru_per_sec"),
        "{error}"
    );
    assert_eq!(lab.refused("ALTER RESOURCE GROUP nowhere RU_PER_SEC=UNLIMITED").await.code(), Code::UNKNOWN);
}

#[tokio::test]
async fn what_the_controller_warns_of_is_beside_every_answer_about_a_group() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP top RU_PER_SEC=5").await;
    let warned = |rate: &str| {
        format!("warning: group shop: {rate} RU/s cannot be guaranteed below top, which is limited to 5 RU/s")
    };
    let (affected, notes) = lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=50 PARENT=top").await;
    assert_eq!((affected, notes), (1, warned("50")));
    let (affected, notes) = lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=60").await;
    assert_eq!((affected, notes), (1, warned("60")));
    assert_eq!(lab.table("SHOW CREATE RESOURCE GROUP shop").await.notes, [warned("60")]);
    lab.done("ALTER RESOURCE GROUP shop PROPOSE RU_PER_SEC=70").await;
    let (affected, notes) = lab.done("ALTER RESOURCE GROUP shop APPLY PROPOSAL").await;
    assert_eq!((affected, notes), (1, warned("70")));
}

#[tokio::test]
async fn what_show_create_prints_makes_the_same_group() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP top RU_PER_SEC=UNLIMITED").await;
    lab.done(
        "CREATE RESOURCE GROUP `a.b-c` RU_PER_SEC=12.5 PARENT=top BURST=3 BURSTABLE=MODERATED BURST_RU_PER_SEC=20 \
         WEIGHT=7 TTL='4s' RENEW='700ms' FALLBACK=2 MAX_DEBT=9 COMMENT='it''s \\\\ free' PRIORITY=LOW \
         QUERY_LIMIT=(ROWS=9, RU=1.5, ACTION=SWITCH_GROUP(top), WATCH=EXACT DURATION='90s')",
    )
    .await;
    let mut admin = AdminClient::new(lab.channel.clone());
    for dialect in [SqlDialect::MySql, SqlDialect::PostgreSql] {
        let request = v1::GetGroupRequest { name: "a.b-c".into() };
        let before = admin.get_group(request.clone()).await.unwrap().into_inner().group.unwrap();
        let context = Context { dialect, ..context() };
        let quoted = if dialect == SqlDialect::MySql { "`a.b-c`" } else { "\"a.b-c\"" };
        let show = format!("SHOW CREATE RESOURCE GROUP {quoted}");
        let Ok(Answer::Table(Table { columns, rows, .. })) = lab.send_as(&context, &show).await else {
            panic!()
        };
        assert_eq!(
            (columns[0].name.as_str(), columns[1].name.as_str()),
            ("Resource_Group", "Create Resource Group")
        );
        let Value::Text(text) = &rows[0][1] else { panic!() };
        lab.send_as(&context, &format!("DROP RESOURCE GROUP {quoted}")).await.unwrap();
        lab.send_as(&context, text).await.unwrap();
        let after = admin.get_group(request).await.unwrap().into_inner().group.unwrap();
        assert_eq!(v1::Group { revision: 0, ..after }, v1::Group { revision: 0, ..before }, "{text}");
    }
    assert_eq!(lab.refused("SHOW CREATE RESOURCE GROUP nowhere").await.code(), Code::UNKNOWN);
}

#[tokio::test]
async fn users_and_databases_are_bound_and_let_go() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    assert_eq!(lab.done("ALTER USER ann@'%' RESOURCE GROUP shop").await.0, 1);
    assert_eq!(lab.done("ALTER USER ann RESOURCE GROUP shop").await.0, 0);
    assert_eq!(lab.done("ALTER DATABASE Store RESOURCE GROUP shop").await.0, 1);
    assert_eq!(lab.done("ALTER USER bob IN DATABASE store RESOURCE GROUP shop").await.0, 1);
    assert_eq!(
        lab.rows("SELECT * FROM tidegate.bindings ORDER BY tenant, user").await,
        ["NULL|ann|shop", "Store|NULL|shop", "store|bob|shop"]
    );
    let error = lab.refused("ALTER USER ann RESOURCE GROUP nowhere").await;
    assert_eq!(error.code(), Code::UNKNOWN);
    let error = lab.refused("DROP RESOURCE GROUP shop").await;
    assert!(error.code() == Code::REFUSED && error.to_string().contains("ann"), "{error}");
    assert_eq!(lab.done("ALTER USER ann RESOURCE GROUP `default`").await.0, 1);
    let (affected, notes) = lab.done("ALTER USER ann RESOURCE GROUP default").await;
    assert!(affected == 0 && notes.contains("user ann was bound to no group"), "{notes}");
    let mut admin = AdminClient::new(lab.channel.clone());
    let log =
        admin.audit_log(v1::AuditLogRequest { limit: 1, ..Default::default() }).await.unwrap().into_inner();
    assert!(log.entries[0].actor.starts_with("ann@store"), "{:?}", log.entries[0]);
    // An actor has the signs that a header may have, and what they can be of any other.
    for (user, tenant, actor) in [("bo b~", "", "bo b~"), ("änn", "störe\n", "?nn@st?re?")] {
        let session = Context { user: user.into(), tenant: tenant.into(), ..context() };
        let group = if tenant.is_empty() { "shop" } else { "default" };
        lab.send_as(&session, &format!("ALTER USER eve RESOURCE GROUP {group}")).await.unwrap();
        let log = admin.audit_log(v1::AuditLogRequest { limit: 1, ..Default::default() }).await.unwrap();
        let said = log.into_inner().entries[0].actor.clone();
        assert!(said.starts_with(actor), "{said}");
    }
}

/// Users, databases and users of databases are bound and let go in any order, beside a map of them.
#[tokio::test]
async fn a_binding_is_of_exactly_the_user_and_the_database_that_a_statement_names() {
    let lab = Lab::forgetful().await;
    for group in ["one", "two"] {
        lab.done(&format!("CREATE RESOURCE GROUP {group} RU_PER_SEC=5")).await;
    }
    let principals =
        [("", "ann"), ("", "bob"), ("x", ""), ("y", ""), ("x", "ann"), ("y", "ann"), ("y", "bob")];
    let mut model: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    // All pairs of what is named and what it becomes, each with whatever the others are bound to by then.
    for step in 0..126 {
        let (tenant, user) = principals[step * 5 % principals.len()];
        let group = ["one", "default", "two", "one", "default", "two", "two", "default", "one"][step % 9];
        let who = match (tenant, user) {
            ("", user) => format!("USER {user}"),
            (tenant, "") => format!("DATABASE {tenant}"),
            (tenant, user) => format!("USER {user} IN DATABASE {tenant}"),
        };
        let text = format!("ALTER {who} RESOURCE GROUP {group}");
        let before = match group {
            "default" => model.remove(&(tenant, user)),
            group => model.insert((tenant, user), group),
        };
        let changes = if group == "default" { before.is_some() } else { before != Some(group) };
        let (affected, notes) = lab.done(&text).await;
        assert_eq!(affected, u64::from(changes), "{text} at step {step}: {notes}");
        let shown = |name: &'static str| if name.is_empty() { "NULL" } else { name };
        let expected =
            model.iter().map(|((tenant, user), group)| format!("{}|{}|{group}", shown(tenant), shown(user)));
        let mut found = lab.rows("SELECT * FROM tidegate.bindings").await;
        found.sort_unstable();
        let mut expected: Vec<String> = expected.collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "after {text} at step {step}");
    }
}

#[tokio::test]
async fn sessions_may_do_what_they_may() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    let user = Context { is_admin: false, group: "shop".into(), ..context() };
    for text in [
        "SELECT CURRENT_RESOURCE_GROUP()",
        "SELECT 1, CURRENT_RESOURCE_GROUP()",
        "SHOW RESOURCE GROUPS",
        "SHOW CREATE RESOURCE GROUP shop",
    ] {
        assert!(matches!(lab.send_as(&user, text).await, Ok(Answer::Table(_))), "{text}");
    }
    let switch = "change the resource group of the session; the gateway's configuration says who may, or ask an \
                  administrator to bind the user to the group";
    let change = "change resource groups, bindings or watches; an administrator of tidegate may";
    let read = "read tidegate's tables; an administrator of tidegate may";
    for (text, what) in [
        ("SET RESOURCE GROUP shop", switch),
        ("CREATE RESOURCE GROUP x RU_PER_SEC=1", change),
        ("ALTER RESOURCE GROUP shop RU_PER_SEC=9", change),
        ("ALTER RESOURCE GROUP shop PROPOSE RU_PER_SEC=9", change),
        ("ALTER RESOURCE GROUP shop APPLY PROPOSAL", change),
        ("ALTER RESOURCE GROUP shop WITHDRAW PROPOSAL", change),
        ("DROP RESOURCE GROUP shop", change),
        ("ALTER USER ann RESOURCE GROUP shop", change),
        ("QUERY WATCH ADD ACTION=KILL SQL DIGEST 00000000000000ab", change),
        ("QUERY WATCH REMOVE 1", change),
        ("QUERY WATCH REMOVE RESOURCE GROUP shop", change),
        ("TRUNCATE TABLE tidegate.statements", change),
        ("SHOW RESOURCE GROUP PROPOSAL shop", read),
        ("SELECT * FROM information_schema.resource_groups", read),
    ] {
        let error = lab.send_as(&user, text).await.expect_err(text);
        assert_eq!(
            (error.code(), error.to_string()),
            (Code::DENIED, format!("ann may not {what}")),
            "{text}"
        );
        let nobody = Context { user: String::new(), ..user.clone() };
        let error = lab.send_as(&nobody, text).await.expect_err(text);
        assert_eq!(error.to_string(), format!("this session may not {what}"), "{text}");
        // Who may choose a group may do that alone.
        let switcher = Context { may_switch: true, ..user.clone() };
        let answer = lab.send_as(&switcher, text).await;
        assert_eq!(answer.is_ok(), what == switch, "{text}: {answer:?}");
        assert!(answer.is_ok() || answer.is_err_and(|error| error.code() == Code::DENIED), "{text}");
    }
    let explained = lab.send_as(&user, "EXPLAIN RU SELECT 1").await.unwrap_err();
    assert_eq!(explained.code(), Code::UNSUPPORTED, "it is for everybody: {explained}");
    let user = Context { may_switch: true, ..user };
    let changed = lab.send_as(&user, "SET RESOURCE GROUP SHOP").await;
    assert_eq!(changed, Ok(Answer::Session(SessionChange::SetGroup("shop".into()))));
    let error = lab.send_as(&user, "SET RESOURCE GROUP nowhere").await.unwrap_err();
    assert_eq!(error.code(), Code::UNKNOWN);
    let error = lab.refused("EXPLAIN RU SELECT 1").await;
    assert!(error.to_string().contains("gateway"), "{error}");
}

#[tokio::test]
async fn a_controller_that_is_gone_is_told() {
    let lab = Lab::start().await;
    lab.running.abort().await;
    let statement =
        tidegate_sql::Statement::parse("SHOW RESOURCE GROUPS", SqlDialect::MySql).unwrap().unwrap();
    let error = tidegate_sql::execute(lab.channel, &statement, &context()).await.unwrap_err();
    assert!(error.code() == Code::UNAVAILABLE && error.to_string().contains("does not answer"), "{error}");
}
