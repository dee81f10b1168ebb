//! Changes of others that come between what a statement reads and what it writes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_sql::{Answer, Code, SqlError, Statement, execute};
use tonic::transport::Channel;
use tower::ServiceExt as _;

use crate::support::{Lab, context, serve};

type Changes = Arc<Mutex<VecDeque<v1::AlterGroupRequest>>>;

fn change(group: v1::Group, field: &str) -> v1::AlterGroupRequest {
    let group = v1::Group { name: "shop".into(), ..group };
    v1::AlterGroupRequest { group: Some(group), update_mask: vec![field.into()], expected_revision: 0 }
}

/// Hands a call on, and makes one of the changes once a group was looked at.
async fn hand_on(channel: Channel, changes: Changes, request: Request) -> axum::http::Response<Body> {
    let is_look = request.uri().path().ends_with("/GetGroup");
    let answer = channel.clone().oneshot(request.map(tonic::body::Body::new)).await.unwrap();
    let change = if is_look { changes.lock().unwrap().pop_front() } else { None };
    if let Some(change) = change {
        AdminClient::new(channel).alter_group(change).await.unwrap();
    }
    answer.map(Body::new)
}

/// Sends a statement to a controller whose groups others change after each look at one. How many changes were not made.
async fn among(
    lab: &Lab,
    text: &str,
    changes: Vec<v1::AlterGroupRequest>,
) -> (Result<Answer, SqlError>, usize) {
    let changes = Arc::new(Mutex::new(VecDeque::from(changes)));
    let (channel, to_make) = (lab.channel.clone(), Arc::clone(&changes));
    let router = Router::new().fallback(move |request| hand_on(channel, to_make, request));
    let channel = serve(router).await;
    let context = context();
    let statement = Statement::parse(text, context.dialect).unwrap().unwrap();
    let answer = execute(channel, &statement, &context).await;
    let left = changes.lock().unwrap().len();
    (answer, left)
}

async fn state(lab: &Lab) -> String {
    let request = v1::GetGroupRequest { name: "shop".into() };
    let group = AdminClient::new(lab.channel.clone()).get_group(request).await.unwrap().into_inner().group;
    let group = group.unwrap();
    format!("{} {} {}", group.ru_per_sec, group.burstable, group.weight)
}

#[tokio::test]
async fn an_alteration_holds_for_the_other_half_as_it_is_and_not_as_it_was_read() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5 WEIGHT=2").await;
    let burstable =
        |word: &str| change(v1::Group { burstable: word.into(), ..v1::Group::default() }, "burstable");
    let lift = "ALTER RESOURCE GROUP shop RU_PER_SEC=UNLIMITED";
    // It became MODERATED, of which nothing is left without a rate.
    let (answer, left) = among(&lab, lift, vec![burstable("moderated")]).await;
    let Ok(Answer::Done { affected: 1, notes }) = answer else { panic!("{answer:?}") };
    assert!(notes.join("").contains("warning: BURSTABLE is OFF") && left == 0, "{notes:?}");
    assert_eq!(state(&lab).await, "unlimited off 2");
    // It was MODERATED, and became UNLIMITED, which it may stay.
    lab.done("ALTER RESOURCE GROUP shop RU_PER_SEC=5 BURSTABLE").await;
    let (answer, left) = among(&lab, lift, vec![burstable("unlimited")]).await;
    assert_eq!((answer, left), (Ok(Answer::Done { affected: 1, notes: Vec::new() }), 0));
    assert_eq!(state(&lab).await, "unlimited unlimited 2");
}

#[tokio::test]
async fn among_changes_without_end_an_alteration_gives_up_and_leaves_the_group_alone() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5 WEIGHT=2").await;
    let weights = (3..20).map(|weight| change(v1::Group { weight, ..v1::Group::default() }, "weight"));
    let (answer, left) =
        among(&lab, "ALTER RESOURCE GROUP shop RU_PER_SEC=UNLIMITED", weights.collect()).await;
    let error = answer.unwrap_err();
    assert!(error.code() == Code::REFUSED && error.to_string().contains("repeat the change"), "{error}");
    // One at first, and four more.
    assert_eq!((left, state(&lab).await.as_str()), (12, "5 off 7"));
}
