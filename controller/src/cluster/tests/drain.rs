//! Controllers of a cluster as they run, over a model of the shared store: how the lead is handed over.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_consensus::etcd::Written;
use tidegate_consensus::model::Model;
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::Config;
use crate::cluster::Member;
use crate::config::ClusterSettings;

/// Between two looks.
pub(super) const LOOK: Duration = Duration::from_millis(20);

async fn member(model: &Arc<Model>, folder: &Path, name: &str) -> (Member, AdminClient<Channel>) {
    // A machine that is busy for a second is no reason to take over.
    let (member, channel) = started(model, folder, name, Span::secs(5), false).await;
    (member, AdminClient::new(channel))
}

/// A controller with this fence, or without a setting of one, whose answers to nodes wait for beats or not, and a way to it.
pub(super) async fn started(
    model: &Arc<Model>,
    folder: &Path,
    name: &str,
    fence: impl Into<Option<Span>>,
    strict: bool,
) -> (Member, Channel) {
    let config = Config { fence: fence.into(), ..config(folder, name) };
    let member = begun(model, config, name, strict).await;
    let channel = Channel::from_shared(format!("http://{}", member.grpc_addr)).unwrap().connect_lazy();
    (member, channel)
}

/// The settings of a controller whose file is in this folder.
pub(super) fn config(folder: &Path, name: &str) -> Config {
    Config {
        store: folder.join(name),
        grpc_listen: "127.0.0.1:0".parse().unwrap(),
        http_listen: "127.0.0.1:0".parse().unwrap(),
        ..Config::default()
    }
}

/// A controller of these settings, whose answers to nodes wait for beats or not.
pub(super) async fn begun(model: &Arc<Model>, config: Config, name: &str, strict: bool) -> Member {
    let nowhere = Written { endpoints: vec!["http://127.0.0.1:1".to_owned()], ..Written::default() };
    let cluster = ClusterSettings {
        name: name.to_owned(),
        prefix: "t/".to_owned(),
        address: None,
        seed: false,
        strict,
        etcd: nowhere.check().unwrap(),
    };
    Member::start_on(config, cluster, Arc::<Model>::clone(model)).await.unwrap()
}

/// Calls until an answer is as it should be.
pub(super) async fn until<T, F: Future<Output = Result<T, Status>>>(
    call: impl Fn() -> F,
    is_so: impl Fn(&Result<T, Status>) -> bool,
) -> Result<T, Status> {
    loop {
        let answer = call().await;
        if is_so(&answer) {
            return answer;
        }
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) async fn leads(admin: &AdminClient<Channel>) -> v1::StatusReply {
    // Its status is answered before its first beat, too.
    let list = || {
        let mut admin = admin.clone();
        async move { admin.list_controllers(v1::ListControllersRequest {}).await }
    };
    until(list, Result::is_ok).await.unwrap();
    admin.clone().status(v1::StatusRequest {}).await.unwrap().into_inner()
}

async fn drain(admin: &AdminClient<Channel>, controller: &str, rest_us: u64) -> Result<String, Status> {
    let request = v1::DrainControllerRequest { controller: controller.to_owned(), rest_us };
    admin.clone().drain_controller(request).await.map(|reply| reply.into_inner().controller)
}

async fn list(admin: &AdminClient<Channel>) -> Vec<v1::ControllerInfo> {
    let reply = admin.clone().list_controllers(v1::ListControllersRequest {}).await.unwrap().into_inner();
    assert!(reply.cluster.len() == 32 && reply.prefix == "t/");
    reply.controllers
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_of_a_standby_says_who_leads() {
    let (model, folder) = (Arc::new(Model::new()), tempfile::tempdir().unwrap());
    let (a, to_a) = member(&model, folder.path(), "a").await;
    leads(&to_a).await;
    let (b, to_b) = member(&model, folder.path(), "b").await;
    let said = to_b.clone().status(v1::StatusRequest {}).await.unwrap_err();
    let expected = format!("controller b is a standby of a at http://{}; call that one", a.grpc_addr);
    assert!(said.message().contains(&expected), "{said}");
    b.shutdown().await.unwrap();
    a.shutdown().await.unwrap();
}

#[test]
fn a_controller_that_is_drained_hands_the_lead_over_and_does_not_take_it_back_while_another_one_runs() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let over = runtime.block_on(runtime.spawn(handed_over()));
    // After a failure, controllers that were not stopped stand by for ever.
    runtime.shutdown_background();
    over.unwrap();
}

async fn handed_over() {
    let (model, folder) = (Arc::new(Model::new()), tempfile::tempdir().unwrap());
    let (a, to_a) = member(&model, folder.path(), "a").await;
    let before = leads(&to_a).await;
    let refused = drain(&to_a, "", 0).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("no other controller of the cluster under t/ runs"), "{refused}");

    let (b, to_b) = member(&model, folder.path(), "b").await;
    let refused = drain(&to_a, "b", 0).await.unwrap_err();
    assert!(refused.message().contains("controller b does not lead, a does"), "{refused}");
    let refused = drain(&to_a, "a", 25 * 3_600_000_000).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let group = v1::Group { name: "shop".to_owned(), ru_per_sec: "100".to_owned(), ..v1::Group::default() };
    let create = v1::CreateGroupRequest { group: Some(group), if_not_exists: false };
    to_a.clone().create_group(create).await.unwrap();
    // It is drained once it has seen that the other one runs, and nobody before it may speak any more; on a busy machine
    // the other one may look gone again meanwhile.
    let day = 24 * 3_600_000_000;
    let drained = || async {
        let drained = drain(&to_a, "a", day).await;
        assert!(drained.is_err() || drained.unwrap() == "a");
        to_b.clone().status(v1::StatusRequest {}).await
    };
    until(drained, Result::is_ok).await.unwrap();
    let after = leads(&to_b).await;
    // The epoch stays, as after any stop in order: leases go along.
    assert_eq!((after.epoch, after.groups), (before.epoch, before.groups + 1));
    let log = v1::AuditLogRequest { limit: 1, ..v1::AuditLogRequest::default() };
    let entry = to_b.clone().audit_log(log).await.unwrap().into_inner().entries.remove(0);
    assert_eq!((entry.action.as_str(), entry.subject.as_str()), ("drain controller", "controller a"));
    let status = || {
        let mut admin = to_a.clone();
        async move { admin.status(v1::StatusRequest {}).await }
    };
    let said = |answer: &Result<_, Status>| {
        answer
            .as_ref()
            .is_err_and(|status| status.message().contains("controller a is a standby of b at http://"))
    };
    assert!(until(status, said).await.is_err());
    let controllers = list(&to_b).await;
    let shown: Vec<(&str, bool)> = controllers.iter().map(|of| (of.name.as_str(), of.leads)).collect();
    assert_eq!(shown, [("a", false), ("b", true)]);
    assert_eq!(controllers[0].addresses, [format!("http://{}", a.grpc_addr)]);

    // Where no other one runs, it leads again, though its time is not over.
    b.shutdown().await.unwrap();
    leads(&to_a).await;
    let controllers = list(&to_a).await;
    assert!(controllers.iter().all(|of| of.name != "b"), "it has left: {controllers:?}");
    a.shutdown().await.unwrap();
}
