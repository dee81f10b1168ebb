//! Deleted groups that still have leases, and the depth of the tree with them.

use tidegate_proto::v1;

use crate::support::{Lab, Node, entry};

fn child(name: &str, parent: &str) -> v1::CreateGroupRequest {
    let group = v1::Group {
        name: name.to_owned(),
        parent: parent.to_owned(),
        ru_per_sec: "10".to_owned(),
        // A lease outlasts the test on a busy machine.
        ttl_us: 60_000_000,
        ..v1::Group::default()
    };
    v1::CreateGroupRequest { group: Some(group), if_not_exists: false }
}

fn below(name: &str, parent: &str) -> v1::AlterGroupRequest {
    let group = v1::Group { name: name.to_owned(), parent: parent.to_owned(), ..v1::Group::default() };
    let update_mask = vec!["parent".to_owned()];
    v1::AlterGroupRequest { group: Some(group), update_mask, ..v1::AlterGroupRequest::default() }
}

#[tokio::test]
async fn a_group_is_not_moved_deeper_than_the_leases_of_deleted_ones_allow() {
    // Seven groups, each in the one before, and `a` with `b` below it, which has a lease.
    let lab = Lab::start().await;
    let mut admin = lab.admin().await;
    for level in 1..=7 {
        let parent = if level == 1 { String::new() } else { format!("p{}", level - 1) };
        admin.create_group(child(&format!("p{level}"), &parent)).await.unwrap();
    }
    admin.create_group(child("a", "")).await.unwrap();
    admin.create_group(child("b", "a")).await.unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.renew(vec![entry("b", 5)], Vec::new()).await.unwrap();
    lab.delete("b").await;
    let refused = admin.alter_group(below("a", "p7")).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("9 groups deep with deleted groups"), "{refused}");
    let (status, answer) = lab
        .http(
            "POST",
            "/v1/apply",
            Some(r#"{"steps":[{"group":{"name":"a","parent":"p7","ru_per_sec":"10"}}]}"#),
        )
        .await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("9 groups deep with deleted groups"), "{answer}");
    // One level higher there is room for the rest of b.
    admin.alter_group(below("a", "p6")).await.unwrap();
}
