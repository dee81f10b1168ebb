//! Statements that wait for others, or for their group.

use super::*;
use crate::postgres::key::Key;

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_is_cancelled_by_its_client_or_goes_when_its_group_has_paid() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    scene.owes_ru(3_000).await;
    talk.client.write_all(&query("select 1")).await.unwrap();
    eventually("it waits", || scene.group.state().waiting == 1).await;
    scene.shared.cancels.tell(&Key::read(KEY).unwrap());
    let said = unit(&mut talk.client).await;
    assert!(said.windows(7).any(|field| field == b"C57014\0"), "{said:?}");
    eventually("it waits no longer", || scene.group.state().waiting == 0).await;
    // At 1,000 RU/s, some seconds. A request to cancel holds for what waited then.
    talk.asks(&query("select 2")).await;
    talk.server.write_all(&done("SELECT 1")).await.unwrap();
    hears(&mut talk.client, &done("SELECT 1")).await;
}
