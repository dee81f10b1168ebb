//! Both protocols in one process, from its start to its end.

use std::net::TcpStream;

use tidegate_test_servers::ROOT;

use super::stage::{Stage, begun, text};
use crate::support::eventually;

const ANN: (&str, &str) = ("ann", "ann");

#[test]
fn both_protocols_share_groups_and_end_cleanly() {
    let stage = Stage::new("ann", "info");
    assert_eq!(stage.psql(ANN, "select 40 + 2;"), "42\n");
    eventually("the first lease is there", || stage.mysql(ANN, "select 40 + 2;") == "42\n");
    // A definition over one protocol holds for both.
    let admin = "create resource group shop ru_per_sec = 100000; alter user ann resource group shop;";
    stage.psql(ROOT, admin);
    let group = "select current_resource_group();";
    eventually("both are in the group", || {
        stage.psql(ANN, group) == "shop\n" && stage.mysql(ANN, group) == "shop\n"
    });
    let counted = "select count(*) from tidegate.statements where resource_group = 'shop' and calls > 0;";
    stage.psql(ANN, "select 'one of postgresql';");
    stage.mysql(ANN, "select concat('one', 'of', 'mysql');");
    eventually("statements of both are counted", || {
        stage.mysql(ROOT, counted).trim().parse().is_ok_and(|count: u32| count >= 2)
    });
    // Running statements end, sessions without one get the error, and no client is let in any more.
    let idle = begun(&mut stage.psql_client(ANN), b"select 'idle';\n\\! sleep 2\nselect 'not any more';\n");
    let postgres = begun(&mut stage.psql_client(ANN), b"select 'done', pg_sleep(1.5) is null;\n");
    let mysql = begun(&mut stage.mysql_client(ANN), b"select 'done', sleep(1.5);\n");
    // Nothing that an earlier look of this kind would be taken for.
    let running =
        "select count(*) from pg_stat_activity where query like 'select ''done''%' and state = 'active';";
    eventually("it runs", || stage.psql(ROOT, running) == "1\n");
    let running =
        "select count(*) from information_schema.processlist where info like '%sleep(1.5)' and time_ms > 0;";
    eventually("it runs", || stage.mysql(ROOT, running) == "1\n");
    stage.gateway.terminate();
    eventually("nobody is let in", || TcpStream::connect(("127.0.0.1", stage.gateway.mysql)).is_err());
    // Then their sessions have none either.
    for (client, done) in [(postgres, "done|f\n"), (mysql, "done\t0\n")] {
        let heard = text(&client.wait_with_output().unwrap());
        assert!(heard.starts_with(done), "{heard}");
    }
    let (status, log, printed) = stage.gateway.ended();
    assert_eq!((status, printed.as_str()), (Some(0), ""), "{log}");
    let idle = text(&idle.wait_with_output().unwrap());
    assert!(idle.starts_with("idle\n") && idle.contains("shutting down"), "{idle}");
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    // All that was counted is the controller's.
    let usage = stage.controller.ok(&["sql", "select ru from tidegate.usage where resource_group = 'shop'"]);
    assert!(!usage.is_empty(), "{usage}");
}
