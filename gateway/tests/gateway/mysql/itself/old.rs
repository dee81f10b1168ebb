//! Version 5.6, which npm has. It does not say which of its threads serves a connection, so costs are estimated.

use mysql_async::ChangeUserOpts;
use mysql_async::prelude::Queryable as _;
use tidegate_test_servers::{MySql, ROOT};

use super::super::passed::SCRIPT;
use super::super::stage::{self, value};
use super::{Stage, are_governed};
use crate::{common, drivers};

#[tokio::test(flavor = "multi_thread")]
async fn its_clients_get_what_they_get_without_the_gateway() {
    let stage = Stage::of(MySql::old).await;
    drop(stage.session(("ann", "ann")).await);
    let (direct, through) = (stage.server.port(), stage.port());
    let said = [direct, through].map(|port| stage::script(port, SCRIPT.as_bytes()));
    assert!(said[0].len() > 20_000_000, "{} bytes", said[0].len());
    common::same(&said[0], &said[1]);
    drivers::of_mysql(direct, through);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_statements_are_governed() {
    let stage = Stage::of(MySql::old).await;
    let (mut admin, mut ann) = (stage.session(ROOT).await, stage.session(("ann", "ann")).await);
    let version = value::<String>(&mut ann, "select version()").await;
    assert!(version.starts_with("5.6."), "{version}");
    let told: Vec<(String, f64, String)> = ann.query("explain ru select 1").await.unwrap();
    assert!(told[4].2.contains("in group default, estimated"), "{told:?}");
    let asks = ann.prep("select current_resource_group()").await.unwrap();
    assert_eq!(ann.exec_first::<String, _, _>(&asks, ()).await.unwrap().as_deref(), Some("default"));
    // A session is made new in the older way, by logging in again.
    ann.query_drop("set @mine = 1").await.unwrap();
    assert!(!ann.reset().await.unwrap());
    ann.change_user(ChangeUserOpts::default()).await.unwrap();
    assert_eq!(value::<Option<u32>>(&mut ann, "select @mine").await, None);
    are_governed(&mut admin, &mut ann).await;
}
