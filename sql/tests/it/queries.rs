//! SELECTs from tidegate's tables.

use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_sql::{Answer, Code, Context, Kind, Table, Value};

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
async fn an_answer_is_cut_at_its_bytes_within_a_row_as_well() {
    let lab = Lab::start().await;
    let rows = ["(1)"; 20].join(",");
    let text = "SELECT hex(zeroblob(500000)), current_resource_group() FROM";
    let table = lab.table(&format!("{text} (VALUES {rows}) v")).await;
    let note = |rows: usize| {
        format!(
            "note: the answer has more rows than these {rows}; narrow it with WHERE or LIMIT, or to fewer columns"
        )
    };
    assert_eq!((table.rows.len(), table.notes), (16, vec![note(16)]));
    let table = lab.table(&format!("{text} (VALUES {}) v", ["(1)"; 16].join(","))).await;
    assert_eq!((table.rows.len(), table.notes), (16, Vec::new()));
    // A byte that is none of a text becomes three.
    for (cells, rows) in [
        (["v"; 16].join(","), 1),
        (["v"; 17].join(","), 0),
        (["unhex(v)"; 11].join(","), 1),
        (["unhex(v)"; 12].join(","), 0),
    ] {
        let value = "replace(hex(zeroblob(500000)), '0', 'F')";
        let table =
            lab.table(&format!("SELECT {cells}, current_resource_group() FROM (SELECT {value} v) t")).await;
        let notes = if rows == 0 { vec![note(0)] } else { Vec::new() };
        assert_eq!((table.rows.len(), table.notes), (rows, notes), "{cells}");
    }
}

/// Beside rows of a table a query may put others, of which SQLite types each value.
#[tokio::test]
async fn a_column_has_the_kind_of_its_table_where_all_its_values_have() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    lab.charge("shop").await;
    let (int, float, text, moment) = (Kind::Int, Kind::Float, Kind::Text, Kind::Timestamp);
    for (beside, kinds, line) in [
        ("7, 8, '2026-01-31 23:59:58.250'", [int, float, moment], "7|8|2026-01-31 23:59:58.250"),
        ("7, 8, '12026-01-31 23:59:58.250'", [int, float, moment], "7|8|12026-01-31 23:59:58.250"),
        ("NULL, NULL, NULL", [int, float, moment], "NULL|NULL|NULL"),
        ("7.5, 8.5, 9.5", [float, float, float], "7.5|8.5|9.5"),
        ("7, 8, 9", [int, float, int], "7|8|9"),
        ("'all', 'some', 'never'", [text, text, text], "all|some|never"),
        ("7, 8, '2026-01-31 23:59:58'", [int, float, text], "7|8|2026-01-31 23:59:58"),
        ("7, 8, '2026-01-31T23:59:58.250'", [int, float, text], "7|8|2026-01-31T23:59:58.250"),
    ] {
        let query = "SELECT calls, ru, last_time FROM tidegate.statements UNION ALL SELECT";
        let table = lab.table(&format!("{query} {beside}")).await;
        let found: Vec<Kind> = table.columns.iter().map(|column| column.kind).collect();
        assert_eq!(
            (&found[..], crate::support::lines(&table)),
            (&kinds[..], vec![line.to_owned()]),
            "{beside}"
        );
    }
    // A number among texts becomes one.
    let table =
        lab.table("SELECT messages FROM tidegate.clients UNION ALL SELECT 'sum' UNION ALL SELECT 1.5").await;
    let texts = ["1", "sum", "1.5"].map(|text| vec![Value::Text(text.into())]);
    assert_eq!((table.columns[0].kind, &table.rows[..]), (Kind::Text, &texts[..]));
}

#[tokio::test]
async fn a_query_has_so_many_columns_parts_and_levels_and_no_more() {
    let lab = Lab::start().await;
    let columns = |count| format!("SELECT {}, current_resource_group()", vec!["1"; count].join(","));
    let parts = |count: usize| vec!["SELECT 1, current_resource_group()"; count].join(" UNION ALL ");
    let sum =
        |count: usize| format!("SELECT {} + length(current_resource_group())", vec!["1"; count].join("+"));
    assert_eq!(lab.table(&columns(127)).await.columns.len(), 128);
    assert_eq!(lab.table(&parts(20)).await.rows.len(), 20);
    assert_eq!(lab.rows(&sum(90)).await, ["97"]);
    for (text, said) in [
        (columns(128), "too many columns"),
        (parts(21), "too many terms in compound SELECT"),
        (sum(200), "Expression tree is too large"),
    ] {
        let error = lab.refused(&text).await;
        assert!(error.code() == Code::FULL && error.to_string().contains(said), "{error}");
    }
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
