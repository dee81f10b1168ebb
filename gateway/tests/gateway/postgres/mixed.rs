//! Simple queries behind messages of the extended protocol without a `Sync`, as pgjdbc sends them
//! (`preferQueryMode=extendedForPrepared`).

use tokio::io::AsyncWriteExt as _;

use super::stage::{Stage, kinds, message, trusted, value};
use crate::common::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_query_in_place_of_a_sync_is_answered_and_counted_as_the_server_runs_it() {
    let stage = Stage::new().await;
    let admin = stage.admin().await;
    let mut raw = trusted(&stage).await;
    let extended = |sql: &str| {
        let parse = message(b'P', format!("\0{sql}\0\0\0").as_bytes());
        [parse, message(b'B', b"\0\0\0\0\0\0\0\0"), message(b'E', b"\0\0\0\0\0")].concat()
    };
    let query = |sql: &str| message(b'Q', format!("{sql}\0").as_bytes());
    let (close, sync) = (message(b'C', b"Snone\0"), message(b'S', &[]));
    for (sent, said) in [
        ([extended("begin"), query("select 1 as counted")], "12CTDCZ"),
        ([extended("select 2"), query("select current_resource_group()")], "12DCTDCZ"),
        ([close.clone(), query("select 3 as counted")], "3TDCZ"),
        ([close, query("explain ru select 4 as counted")], "3TDDDDDCZ"),
        // What fails before the query takes it along.
        ([extended("select 1 / 0"), [query("select 5 as counted"), sync].concat()], "1EZ"),
        ([extended("rollback"), query("select 6 as counted")], "12CTDCZ"),
    ] {
        raw.write_all(&sent.concat()).await.unwrap();
        assert_eq!(kinds(&mut raw, b'Z').await, said, "{}", String::from_utf8_lossy(&sent.concat()));
    }
    // While the session goes on.
    let calls =
        "select coalesce(sum(calls), 0) from tidegate.statements where template = 'SELECT ? AS counted'";
    eventually("each is counted", async || value(&admin, calls).await == "4").await;
}
