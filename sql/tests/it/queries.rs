//! SELECTs from tidegate's tables.

use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_sql::{Answer, Code, Context, Kind, Table};

use crate::support::{Lab, context};

#[tokio::test]
async fn queries_are_typed_by_column_and_by_value() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    let table = lab
        .table(
            "SELECT `NAME`, ru_per_sec + 1, count(*) AS n, 1.5 x, null, current_resource_group() \
             FROM information_schema.resource_groups WHERE name LIKE \"SH%\" GROUP BY name",
        )
        .await;
    let columns: Vec<_> = table.columns.iter().map(|column| (column.name.as_str(), column.kind)).collect();
    assert_eq!(
        columns,
        [
            ("NAME", Kind::Text),
            ("ru_per_sec + 1", Kind::Int),
            ("n", Kind::Int),
            ("x", Kind::Float),
            ("null", Kind::Text),
            ("current_resource_group()", Kind::Text),
        ]
    );
    assert_eq!(crate::support::lines(&table), ["shop|6|1|1.5|NULL|default"]);
    let all = lab.table("SELECT * FROM tidegate.statements").await;
    assert!(all.rows.is_empty() && all.columns.len() == 30, "{:?}", all.columns);
    let kinds: Vec<Kind> = ["template", "calls", "ru", "last_time"]
        .iter()
        .map(|name| all.columns.iter().find(|column| column.name == *name).unwrap().kind)
        .collect();
    assert_eq!(kinds, [Kind::Text, Kind::Int, Kind::Float, Kind::Timestamp]);
    // Names of TiDB's tables are in upper case, but not for PostgreSQL.
    for (dialect, name) in [(SqlDialect::MySql, "NAME"), (SqlDialect::PostgreSql, "name")] {
        let context = Context { dialect, ..context() };
        let text = "SELECT * FROM information_schema.resource_groups";
        let Ok(Answer::Table(Table { columns, .. })) = lab.send_as(&context, text).await else { panic!() };
        assert_eq!(columns[0].name, name);
    }
}

#[tokio::test]
async fn all_groups_are_looked_at_page_by_page() {
    let lab = Lab::forgetful().await;
    let mut admin = AdminClient::new(lab.channel.clone());
    for number in 0..1_050 {
        let group =
            v1::Group { name: format!("g{number:04}"), ru_per_sec: "1".into(), ..v1::Group::default() };
        let request = v1::CreateGroupRequest { group: Some(group), if_not_exists: false };
        admin.create_group(request).await.unwrap();
    }
    let table = lab.table("SELECT count(*), max(name) FROM information_schema.resource_groups").await;
    assert_eq!(crate::support::lines(&table), ["1051|g1049"]);
    assert!(table.notes.is_empty(), "{:?}", table.notes);
    let crossed = lab
        .table(
            "SELECT a.name FROM information_schema.resource_groups a, information_schema.resource_groups b",
        )
        .await;
    assert!(crossed.rows.len() == 10_000 && crossed.notes[0].contains("more rows"), "{:?}", crossed.notes);
    let error = lab
        .refused(
            "SELECT count(*) FROM information_schema.resource_groups a, information_schema.resource_groups b, \
             information_schema.resource_groups c",
        )
        .await;
    assert!(error.code() == Code::FULL && error.to_string().contains("steps"), "{error}");
}

#[tokio::test]
async fn a_query_may_only_read() {
    let lab = Lab::start().await;
    for (text, code, part) in [
        ("SELECT nowhere FROM tidegate.usage", Code::NO_COLUMN, "no such column: nowhere"),
        ("SELECT nowhere() FROM tidegate.usage", Code::NO_FUNCTION, "no such function: nowhere"),
        ("SELECT load_extension('x') FROM tidegate.usage", Code::UNSUPPORTED, "load_extension"),
        (
            "WITH RECURSIVE n AS (SELECT 1 a UNION ALL SELECT a + 1 FROM n) SELECT * FROM n, tidegate.usage",
            Code::UNSUPPORTED,
            "more than read",
        ),
        ("SELECT * FROM tidegate.usage, sqlite_master", Code::UNSUPPORTED, "by the database"),
        ("SELECT * FROM tidegate.usage, pragma_database_list", Code::UNSUPPORTED, "by the database"),
        (
            "SELECT group_concat(hex(zeroblob(1000000))) FROM information_schema.resource_groups",
            Code::FULL,
            "longer than",
        ),
        ("SELECT * FROM tidegate.usage FOR UPDATE", Code::SYNTAX, "near"),
    ] {
        let error = lab.refused(text).await;
        assert!(error.to_string().contains(part), "{text}: {error}");
        assert_eq!(error.code(), code, "{text}: {error}");
    }
}

#[tokio::test]
async fn usage_is_told_per_group_and_client() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    let usage = "SELECT resource_group, client, incarnation, ru, write_ru, operations, waited_seconds, write_bytes \
                 FROM tidegate.usage WHERE ru_per_sec >= 0 ORDER BY client";
    assert!(lab.rows(usage).await.is_empty(), "nothing was used");
    lab.charge("shop").await;
    assert_eq!(
        lab.rows(usage).await,
        ["shop|NULL|NULL|2.75|2.5|3|0.75|9", "shop|node-1|1|2.75|2.5|3|0.75|9"],
        "a row for the group and one for the node"
    );
    let clients = lab.rows("SELECT client, incarnation, agent, leases, messages FROM tidegate.clients").await;
    assert_eq!(clients, ["node-1|1|test/1|0|1"]);
}
