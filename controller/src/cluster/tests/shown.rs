//! Controllers of a cluster as they run: what they show of themselves, and what they go by.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_consensus::model::{Fault, Model};
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tonic::{Code, Status};

use super::drain::{LOOK, leads, started, until};
use super::forget::record;
use crate::clock::Clock;
use crate::cluster::{EndError, Member};
use crate::server::StartError;
use crate::store::replicated::{Follower, Members, Settings, Wrote};
use crate::{Config, ConfigError};

const FENCE: Span = Span::secs(1);

fn members(model: &Arc<Model>) -> Members {
    let settings = Settings::new(Clock::start(), FENCE);
    Members::new(Arc::<Model>::clone(model), "t/", settings).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_shows_where_it_is_reached_and_leaves_the_list_when_it_stops() {
    let (model, folder) = (Arc::new(Model::new()), tempfile::tempdir().unwrap());
    let members = members(&model);
    let (member, _) = started(&model, folder.path(), "a", FENCE, false).await;
    let first = || {
        let shown = members.all().unwrap().pop();
        async { shown.ok_or_else(|| Status::not_found("none")) }
    };
    let (shown, _) = until(first, Result::is_ok).await.unwrap();
    assert_eq!(shown.addresses, [format!("http://{}", member.grpc_addr)]);
    assert_eq!((shown.controller.as_str(), shown.version.as_str()), ("a", env!("CARGO_PKG_VERSION")));
    member.shutdown().await.unwrap();
    assert!(members.all().unwrap().is_empty());
}

/// By these, one process is told from another of the same name, and one leadership from the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_and_every_leadership_draws_a_number_of_its_own() {
    let (model, folder) = (Arc::new(Model::new()), tempfile::tempdir().unwrap());
    let members = members(&model);
    let mut drawn = Vec::new();
    for name in ["a", "b"] {
        let (member, channel) = started(&model, folder.path(), name, FENCE, false).await;
        leads(&AdminClient::new(channel)).await;
        let shown = || {
            let shown = members.all().unwrap().into_iter().find(|(record, _)| record.controller == name);
            async { shown.ok_or_else(|| Status::not_found("none")) }
        };
        drawn.push(until(shown, Result::is_ok).await.unwrap().0.instance);
        let (consensus, settings) = (Arc::<Model>::clone(&model), Settings::new(Clock::start(), FENCE));
        let owner = Follower::look_once(consensus, "t/", settings).unwrap().owner.unwrap();
        assert_eq!(owner.controller, name);
        drawn.push(owner.instance);
        member.shutdown().await.unwrap();
    }
    let apart: BTreeSet<u64> = drawn.iter().copied().filter(|number| *number > 1).collect();
    assert_eq!(apart.len(), drawn.len(), "{drawn:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_with_the_name_of_one_that_runs_ends_and_says_why() {
    let (model, folder) = (Arc::new(Model::new()), tempfile::tempdir().unwrap());
    let (members, other) = (members(&model), record("a", 0));
    let shows = move |seen| match members.write(&other, seen).unwrap() {
        Wrote::Done(revision) | Wrote::Other(Some((_, revision))) => revision,
        Wrote::Other(None) => 0,
    };
    let mut seen = shows(0);
    let (member, _) = started(&model, folder.path(), "a", FENCE, false).await;
    let mut ended = tokio::spawn(member.run_until(std::future::pending()));
    let mut looks = tokio::time::interval(LOOK);
    let ended = loop {
        tokio::select! {
            ended = &mut ended => break ended.unwrap(),
            _ = looks.tick() => seen = shows(seen),
        }
    };
    let Err(EndError::Start(StartError::Namesake(namesake))) = ended else { panic!("{ended:?}") };
    assert!(namesake.to_string().contains("has the name of this one (a)"), "{namesake}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_setting_of_its_fence_has_one() {
    let (model, folder) = (Arc::new(Model::new()), tempfile::tempdir().unwrap());
    let (member, channel) = started(&model, folder.path(), "a", None, false).await;
    let admin = AdminClient::new(channel);
    leads(&admin).await;
    // Nobody answers for longer than the fence, in which a call is answered.
    model.plan(std::iter::repeat_n(Some(Fault::Away), 10_000));
    let list = || {
        let mut admin = admin.clone();
        async move { admin.list_controllers(v1::ListControllersRequest {}).await }
    };
    let silent = until(list, Result::is_err).await.unwrap_err();
    assert_eq!(silent.code(), Code::Unavailable);
    assert!(silent.message().contains("could not write to its store for 1s (fence)"), "{silent}");
    model.calm();
    member.shutdown().await.unwrap();
}

#[tokio::test]
async fn wrong_settings_are_refused_before_anything_else() {
    let port = "127.0.0.1:7420".parse().unwrap();
    let refused = Member::start(Config { grpc_listen: port, http_listen: port, ..Config::default() }).await;
    let Err(StartError::Config(errors)) = refused else { panic!("it starts") };
    assert!(matches!(errors.as_slice(), [ConfigError::Value { key: "http_listen", .. }]), "{errors:?}");
}
