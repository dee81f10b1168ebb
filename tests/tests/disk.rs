//! The disk fills up under a controller: what was acknowledged stays, what cannot be stored is refused and not in
//! force, and all goes on when there is room again.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::path::Path;

use tidegate_proto::v1::{CreateGroupRequest, Group, ListGroupsRequest};
use tidegate_tests::process::cluster::{Cluster, Disk};
use tonic::Code;

/// More than these need; the limit comes first.
const MOST: usize = 20_000;

async fn listed(cluster: &mut Cluster) -> BTreeSet<String> {
    let mut admin = cluster.admin().await.unwrap();
    let mut names = BTreeSet::new();
    let mut after = String::new();
    loop {
        let page = admin.list_groups(ListGroupsRequest { after, limit: 1_000 }).await.unwrap().into_inner();
        names.extend(page.groups.into_iter().map(|group| group.name));
        after = page.next_after;
        if after.is_empty() {
            names.remove("default");
            return names;
        }
    }
}

fn request(index: usize) -> CreateGroupRequest {
    let group = Group {
        name: format!("group-{index}"),
        ru_per_sec: "5".to_owned(),
        comment: "x".repeat(256),
        ..Group::default()
    };
    CreateGroupRequest { group: Some(group), if_not_exists: false }
}

#[tokio::test]
async fn a_full_disk_refuses_changes_and_loses_none() {
    let folder = tempfile::tempdir().unwrap();
    let load_node = Path::new(env!("CARGO_BIN_EXE_load-node"));
    let mut cluster = Cluster::new(folder.path(), load_node, 0, Vec::new()).await.unwrap();
    cluster.start_controller().await.unwrap();
    cluster.kill_controller();
    let used = std::fs::metadata(cluster.store()).unwrap().len();
    cluster.disk = Disk::Full(used / 1_024 + 256);
    cluster.start_controller().await.unwrap();
    let mut admin = cluster.admin().await.unwrap();
    let mut acknowledged = BTreeSet::new();
    let mut refusal = None;
    for index in 0..MOST {
        match admin.create_group(request(index)).await {
            Ok(_) => drop(acknowledged.insert(format!("group-{index}"))),
            Err(status) => {
                refusal = Some(status);
                break;
            }
        }
    }
    let refusal = refusal.unwrap();
    println!("{} groups, then: {refusal}", acknowledged.len());
    assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
    assert_eq!(listed(&mut cluster).await, acknowledged, "what was refused is not in force");
    // There is room again, and the controller dies before it notices.
    cluster.kill_controller();
    cluster.disk = Disk::Free;
    cluster.start_controller().await.unwrap();
    assert_eq!(listed(&mut cluster).await, acknowledged, "what was acknowledged is there");
    cluster.admin().await.unwrap().create_group(request(MOST)).await.unwrap();
}
