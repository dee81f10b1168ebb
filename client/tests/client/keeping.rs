//! When the definitions that a node keeps are on disk.

use std::path::Path;
use std::time::Duration;

use tidegate_client::{Client, Fallback};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tokio::time::sleep;

use crate::fake::{Fake, eventually, piped};

/// Whether the folder's file of definitions has the group.
fn has(folder: &Path, group: &str) -> bool {
    let text = std::fs::read_to_string(folder.join("node-1.definitions")).unwrap_or_default();
    text.contains(&format!("\n{group} rate "))
}

async fn heard(fake: &Fake, client: &Client, group: &str) {
    let fallback = Fallback::Rate(Rate::whole(10));
    fake.group(group, GroupSpec { fallback, ..GroupSpec::capped(Rate::whole(1_000)) });
    client.group(group).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_node_heard_is_kept_soon_and_at_once_when_a_stream_or_the_node_ends() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let client = piped(&fake).journal_dir(folder.path()).connect().await.unwrap();
    heard(&fake, &client, "a").await;
    sleep(Duration::from_secs(5)).await;
    assert!(client.is_connected() && has(folder.path(), "a"));
    heard(&fake, &client, "b").await;
    fake.go_down();
    eventually("the loss is noticed", || !client.is_connected()).await;
    assert!(has(folder.path(), "b"));
    fake.come_back();
    eventually("it is back", || client.is_connected()).await;
    heard(&fake, &client, "c").await;
    assert_eq!(client.shutdown().await.unconfirmed, []);
    assert!(has(folder.path(), "c"));
}

/// It is not written with each answer, but the process may end before its time has come.
#[tokio::test(start_paused = true)]
async fn what_was_heard_just_after_a_write_is_kept_when_the_stream_ends() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let client = piped(&fake).journal_dir(folder.path()).connect().await.unwrap();
    heard(&fake, &client, "a").await;
    eventually("it is written", || has(folder.path(), "a")).await;
    heard(&fake, &client, "b").await;
    assert!(!has(folder.path(), "b"), "it is early");
    fake.go_down();
    eventually("the loss is noticed", || !client.is_connected()).await;
    assert!(has(folder.path(), "b"));
}
