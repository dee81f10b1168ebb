//! Who may do what, over real sockets: every call in every role, sessions under names of others, and the audit log.

use std::collections::BTreeSet;
use std::time::Duration;

use http_body_util::BodyExt as _;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tidegate_controller::config::{Access, Config};
use tidegate_controller::identity::matrix::{self, Call, Who, allows};
use tidegate_controller::identity::{Role, Rule, Rules};
use tidegate_controller::{Controller, Running};
use tidegate_proto::v1;
use tidegate_tls::{ClientFiles, Clients, Name};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use v1::admin_client::AdminClient;
use v1::client_message::Kind as Ask;
use v1::grants_client::GrantsClient;
use v1::server_message::Kind as Answer;
use v1::statements_client::StatementsClient;

use super::certificates::{Site, channel, channel_to};
use super::support::{PATIENCE, config, group};

/// What the guard says, and no handler does.
const BY_GUARD: [&str; 2] = ["it needs the role ", "no role may make it"];
/// The rule of the node that may use one group.
const CONFINED: &str = "spiffe://prod/ns/shop/sa/till";
/// The name of a tenant by a rule.
const BOARD: &str = "board.example";

fn own(role: Role, name: &str) -> Name {
    Name::Uri(format!("spiffe://tidegate/{role}/{name}"))
}

/// A site with a certificate for each role, of the role's name, and some that have none.
pub(crate) fn site() -> Site {
    let site = Site::new();
    Role::ALL.into_iter().for_each(|role| site.certify(role.name(), &[own(role, role.name())]));
    site.certify("other", &[Name::Uri("spiffe://prod/ns/x/sa/y".to_owned())]);
    site.certify("till", &[Name::Uri(CONFINED.to_owned())]);
    site.certify("board", &[Name::Dns(BOARD.to_owned())]);
    site
}

async fn start(site: &Site, clients: Clients, access: Access) -> Running {
    let tls = Some(site.files(clients));
    Controller::start(Config { tls, access, ..config(&site.folder) }).await.unwrap()
}

pub(crate) async fn guarded(site: &Site) -> Running {
    let till = Rule::new(CONFINED, "gateway", None, Some(&["shop".to_owned()]), None).unwrap();
    let board = Rule::new("dns:board.example", "tenant", None, None, Some("hidden-co")).unwrap();
    let access = Access { rules: Rules::new(vec![till, board]), ..Access::default() };
    start(site, Clients::Optional(site.path("ca.pem")), access).await
}

/// All callers: their certificate, and their role.
pub(crate) fn callers() -> Vec<(Option<&'static str>, Option<Role>)> {
    let mut callers: Vec<_> = Role::ALL.into_iter().map(|role| (Some(role.name()), Some(role))).collect();
    callers.extend([(None, None), (Some("other"), None)]);
    callers
}

/// The paths of all methods that the listener serves.
fn methods() -> BTreeSet<String> {
    let sets = [
        tidegate_proto::DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let files = sets.into_iter().flat_map(|set| FileDescriptorSet::decode(set).unwrap().file);
    let services = files.flat_map(|file| {
        let package = file.package().to_owned();
        file.service.into_iter().map(move |service| (package.clone(), service))
    });
    let paths = services.flat_map(|(package, service)| {
        let of = format!("/{package}.{}", service.name());
        service.method.into_iter().map(move |method| format!("{of}/{}", method.name())).collect::<Vec<_>>()
    });
    paths.collect()
}

/// Calls a method with an empty message; returns the refusal of the guard, if it was one.
async fn refusal(channel: &Channel, path: &str) -> Option<Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let request = Request::new(tokio_stream::once(()));
    let answer = timeout(PATIENCE, grpc.streaming(request, path.parse().unwrap(), codec)).await.unwrap();
    let status = answer.err()?;
    BY_GUARD.iter().any(|said| status.message().contains(said)).then_some(status)
}

#[tokio::test]
async fn every_grpc_method_is_for_the_roles_of_its_row() {
    let methods = methods();
    let rows: BTreeSet<String> = matrix::GRPC.into_iter().map(|(path, _)| path.to_owned()).collect();
    assert_eq!(methods, rows, "every method has a row, and every row a method");
    let (site, mut wrong) = (site(), Vec::new());
    let running = guarded(&site).await;
    for (certificate, role) in callers() {
        let channel = channel(&running, site.shown(certificate)).await.unwrap();
        for path in &methods {
            let refused = refusal(&channel, path).await;
            if refused.is_none() != allows(role, Call::Grpc(path)) {
                wrong.push(format!("{certificate:?} {path}: {refused:?}"));
            }
            let Some(status) = refused else { continue };
            let expected = if role.is_some() { Code::PermissionDenied } else { Code::Unauthenticated };
            assert_eq!(status.code(), expected, "{certificate:?} {path}");
            let has = role.map_or(String::new(), |role| format!("has the role {role}"));
            assert!(status.message().contains(&has), "{certificate:?} {path}: {status}");
        }
        let unknown = refusal(&channel, "/tidegate.v1.Admin/Nothing").await;
        assert!(unknown.is_some(), "{certificate:?}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    running.shutdown().await.unwrap();
}

/// One REST request: its status, and its body.
pub(crate) async fn rest(channel: &Channel, method: &str, path: &str) -> (u16, String) {
    let uri = format!("https://localhost{path}");
    let request = http::Request::builder().method(method).uri(uri).body(tonic::body::Body::empty()).unwrap();
    let answer = tower::ServiceExt::oneshot(channel.clone(), request);
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    let status = answer.status().as_u16();
    let body = timeout(PATIENCE, answer.into_body().collect()).await.unwrap().unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn every_rest_route_is_for_the_roles_of_its_row() {
    let (site, mut wrong) = (site(), Vec::new());
    let running = guarded(&site).await;
    for (certificate, role) in callers() {
        let channel = channel_to(running.rest_addr.port(), site.shown(certificate)).await.unwrap();
        for (method, route, _) in matrix::REST {
            let path = route
                .replace("{name}", "x")
                .replace("{role}", "shadow")
                .replace("{group}", "x")
                .replace("{id}", "0");
            let (status, body) = rest(&channel, method, &path).await;
            let is_refused = [401, 403].contains(&status);
            if is_refused == allows(role, Call::Rest(method, route)) {
                wrong.push(format!("{certificate:?} {method} {path}: {status} {body}"));
            }
            let (expected, code) = if role.is_some() { (403, "denied") } else { (401, "unauthenticated") };
            if is_refused {
                let json: serde_json::Value = serde_json::from_str(&body).unwrap();
                assert_eq!((status, json["error"]["code"].as_str().unwrap()), (expected, code), "{body}");
                assert!(BY_GUARD.iter().any(|said| body.contains(said)), "{body}");
            }
        }
        // What is no route is nobody's; HEAD is as GET.
        for (method, path) in
            [("GET", "/x"), ("GET", "/v1"), ("OPTIONS", "/v1/groups"), ("POST", "/v1/groups/x")]
        {
            assert!(
                [401, 403].contains(&rest(&channel, method, path).await.0),
                "{certificate:?} {method} {path}"
            );
        }
        let is_seen = rest(&channel, "HEAD", "/v1/groups").await.0 == 200;
        assert_eq!(is_seen, allows(role, Call::Rest("GET", "/v1/groups")), "{certificate:?}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let page = running.service().metrics_page().unwrap();
    for reason in ["denied", "unauthenticated"] {
        let counted = format!("tidegate_turned_away_total{{surface=\"rest\",reason=\"{reason}\"}} ");
        assert!(page.contains(&counted), "{reason}");
    }
    running.shutdown().await.unwrap();
}

#[test]
fn the_matrix_of_the_document_is_the_one_in_force() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
    let text = std::fs::read_to_string(document).unwrap();
    let mut wrong = Vec::new();
    let mut check = |name: String, who: Who| {
        let roles: Vec<&str> = match who {
            Who::Anyone => vec!["anyone"],
            Who::Roles(roles) => roles.iter().map(|role| role.name()).collect(),
        };
        let cell = format!("| {} |", roles.join(", "));
        let named = text.lines().filter(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
        let lines: Vec<&str> = named.collect();
        if !matches!(lines.as_slice(), [line] if line.starts_with(&cell)) {
            wrong.push(format!("{name} belongs in the row of {cell} alone"));
        }
    };
    for (path, who) in matrix::GRPC {
        check(path.trim_start_matches("/tidegate.v1.").trim_start_matches('/').to_owned(), who);
    }
    let routes = matrix::REST.into_iter().chain(matrix::CONSOLE);
    routes.for_each(|(method, path, who)| check(format!("{method} {path}"), who));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Opens a grant stream with a hello; returns the answers, or why there is none.
pub(crate) async fn hello(running: &Running, files: ClientFiles, client: &str) -> Result<Session, Status> {
    let hello = v1::Hello {
        protocol_min: 1,
        protocol_max: 1,
        client_id: client.to_owned(),
        incarnation: 1,
        ..v1::Hello::default()
    };
    let (asks, stream) = tokio::sync::mpsc::channel(4);
    asks.send(v1::ClientMessage { kind: Some(Ask::Hello(hello)) }).await.unwrap();
    let mut grants = GrantsClient::new(channel(running, files).await.unwrap());
    let mut answers = grants.session(ReceiverStream::new(stream)).await?.into_inner();
    let first = timeout(PATIENCE, answers.message()).await.unwrap()?;
    assert!(matches!(first.and_then(|message| message.kind), Some(Answer::Welcome(_))));
    Ok(Session { asks, answers, seq: 0 })
}

pub(crate) struct Session {
    asks: tokio::sync::mpsc::Sender<v1::ClientMessage>,
    answers: tonic::Streaming<v1::ServerMessage>,
    seq: u64,
}

impl Session {
    pub(crate) async fn renew(&mut self, groups: &[&str]) -> v1::Granted {
        self.seq += 1;
        let entries = groups.iter().map(|group| v1::RenewEntry {
            group: (*group).to_owned(),
            demand_rate: 1_000_000,
            ..v1::RenewEntry::default()
        });
        let total = v1::Consumption { flat_micro_ru: 7, operations: 1, ..v1::Consumption::default() };
        let reports = groups.iter().map(|group| v1::Report {
            group: (*group).to_owned(),
            total: Some(total.clone()),
            ..v1::Report::default()
        });
        let (entries, reports) = (entries.collect(), reports.collect());
        let renew = v1::Renew { seq: self.seq, entries, reports, ..v1::Renew::default() };
        self.asks.send(v1::ClientMessage { kind: Some(Ask::Renew(renew)) }).await.unwrap();
        loop {
            let message = timeout(PATIENCE, self.answers.message()).await.unwrap().unwrap();
            if let Some(Answer::Granted(granted)) = message.unwrap().kind {
                return granted;
            }
        }
    }
}

async fn with_groups(running: &Running, site: &Site) -> AdminClient<Channel> {
    let mut admin = AdminClient::new(channel(running, site.shown(Some("admin"))).await.unwrap());
    for name in ["shop", "reports"] {
        let request = v1::CreateGroupRequest { group: Some(group(name, "100")), if_not_exists: false };
        admin.create_group(request).await.unwrap();
    }
    admin
}

#[tokio::test]
async fn a_node_is_nobody_but_itself() {
    let site = site();
    let running = guarded(&site).await;
    let mut admin = with_groups(&running, &site).await;
    let mut victim = hello(&running, site.shown(Some("node")), "node").await.unwrap();
    victim.renew(&["shop"]).await;
    for (certificate, client) in [
        ("gateway", "node"),
        ("gateway", "node.1"),
        ("node", "node-1"),
        ("node", "gateway"),
        ("till", "node"),
        ("node", "nodes"),
    ] {
        let refused = hello(&running, site.shown(Some(certificate)), client).await.err().unwrap();
        assert_eq!(refused.code(), Code::PermissionDenied, "{certificate} as {client}");
        let said = refused.message();
        assert!(said.contains(&format!("client id {client:?} does not belong to")), "{said}");
        assert!(said.contains(&format!("use {certificate}, or {certificate}.")), "{said}");
    }
    // Its stream goes on, and its leases and its consumption are its own.
    let granted = victim.renew(&["shop"]).await;
    assert_eq!(granted.entries[0].status, v1::GrantStatus::Leased as i32);
    for (certificate, client) in [("node", "node.pod-7"), ("gateway", "gateway"), ("admin", "anything")] {
        assert!(hello(&running, site.shown(Some(certificate)), client).await.is_ok(), "{certificate}");
    }
    let rows = admin.usage(v1::UsageRequest { per_client: true, ..v1::UsageRequest::default() }).await;
    let rows = rows.unwrap().into_inner().rows;
    let mut clients = rows.iter().map(|row| row.client.as_str()).filter(|client| !client.is_empty());
    assert!(clients.next() == Some("node") && clients.next().is_none(), "{rows:?}");

    let mut gateway = StatementsClient::new(channel(&running, site.shown(Some("gateway"))).await.unwrap());
    let conviction = v1::ConvictRequest { gateway: "node".to_owned(), ..v1::ConvictRequest::default() };
    let report = v1::ReportStatementsRequest { gateway: "node".to_owned(), ..Default::default() };
    let refused = [
        gateway.convict(conviction).await.unwrap_err(),
        gateway.report_statements(report).await.unwrap_err(),
        gateway.rules(v1::RulesRequest { gateway: "node".to_owned() }).await.err().unwrap(),
    ];
    assert!(refused.iter().all(|status| status.message().contains("client id \"node\" does not belong")));
    assert!(gateway.rules(v1::RulesRequest { gateway: "gateway".to_owned() }).await.is_ok());
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_node_with_groups_neither_starves_nor_charges_others() {
    let site = site();
    let running = guarded(&site).await;
    let mut admin = with_groups(&running, &site).await;
    let mut till = hello(&running, site.shown(Some("till")), "till").await.unwrap();
    let granted = till.renew(&["Shop", "reports", "nowhere"]).await;
    let statuses: Vec<i32> = granted.entries.iter().map(|entry| entry.status).collect();
    let (leased, unknown) = (v1::GrantStatus::Leased as i32, v1::GrantStatus::UnknownGroup as i32);
    assert_eq!(statuses, [leased, unknown, unknown], "{granted:?}");
    // The report of the other group is kept by the node; that of none at all is not.
    let refused: Vec<&str> = granted.refused.iter().map(|report| report.group.as_str()).collect();
    assert_eq!(refused, ["reports"]);
    let rows = admin.usage(v1::UsageRequest::default()).await.unwrap().into_inner().rows;
    let charged = rows.iter().filter(|row| row.total.as_ref().is_some_and(|total| total.operations > 0));
    assert_eq!(charged.map(|row| row.group.as_str()).collect::<Vec<_>>(), ["shop"]);
    // Of a target that it was not given it does not hear.
    let demotes = v1::Group { priority: "high".into(), demote_to: "reports".into(), ..group("shop", "100") };
    let update_mask = vec!["priority".to_owned(), "demote_to".to_owned()];
    let alter = v1::AlterGroupRequest { group: Some(demotes), update_mask, ..Default::default() };
    admin.alter_group(alter).await.unwrap();
    let mut node = hello(&running, site.shown(Some("node")), "node").await.unwrap();
    let told = [till.renew(&["shop"]).await, node.renew(&["shop"]).await];
    assert_eq!(told.map(|granted| granted.entries[0].demote_to.clone()), ["", "reports"]);

    let mut gateway = StatementsClient::new(channel(&running, site.shown(Some("till"))).await.unwrap());
    let row = |group: &str| v1::StatementRow {
        group: group.to_owned(),
        fingerprint: "0123456789abcdef".to_owned(),
        kind: "select".to_owned(),
        calls: 1,
        ..v1::StatementRow::default()
    };
    let rows = vec![row("reports"), row("shop")];
    let (gateway_id, incarnation, seq) = ("till".to_owned(), 1, 1);
    let report = v1::ReportStatementsRequest { gateway: gateway_id, incarnation, seq, rows, evicted: 0 };
    gateway.report_statements(report).await.unwrap();
    let mut reader = StatementsClient::new(channel(&running, site.shown(Some("viewer"))).await.unwrap());
    let listed = reader.list_statements(v1::ListStatementsRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.rows.iter().map(|row| row.group.as_str()).collect::<Vec<_>>(), ["shop"]);
    for (group, switch_group) in [("reports", ""), ("shop", "reports")] {
        let conviction = v1::ConvictRequest {
            gateway: "till".to_owned(),
            group: group.to_owned(),
            switch_group: switch_group.to_owned(),
            ..v1::ConvictRequest::default()
        };
        let refused = gateway.convict(conviction).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message().contains("reports does not exist")),
            (Code::NotFound, true)
        );
    }
    let mut reader = AdminClient::new(channel(&running, site.shown(Some("till"))).await.unwrap());
    for (name, code) in [("Shop", None), ("reports", Some(Code::NotFound)), ("nowhere", Some(Code::NotFound))]
    {
        let shown = reader.get_group(v1::GetGroupRequest { name: name.to_owned() }).await;
        assert_eq!(shown.err().map(|status| status.code()), code, "{name}");
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_audit_log_has_who_was_proven_and_what_was_stated_beside() {
    let site = site();
    let running = guarded(&site).await;
    let mut operator = AdminClient::new(channel(&running, site.shown(Some("operator"))).await.unwrap());
    let create = v1::CreateGroupRequest { group: Some(group("a", "1")), if_not_exists: false };
    let mut request = Request::new(create);
    request.metadata_mut().insert("x-tidegate-actor", "root".parse().unwrap());
    operator.create_group(request).await.unwrap();
    let log = operator.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    let [entry] = log.as_slice() else { panic!("{log:?}") };
    let said = [&entry.kind, &entry.identity, &entry.role, &entry.comment];
    assert_eq!(said, ["certificate", "operator", "operator", "root"]);
    assert!(entry.peer.starts_with("127.0.0.1:") && entry.actor == format!("operator ({})", entry.peer));
    running.shutdown().await.unwrap();

    // With authentication off, a certificate is a certificate of anybody.
    let off = Access {
        authentication: Some(tidegate_controller::config::Authentication::Off),
        ..Access::default()
    };
    let running = start(&site, Clients::Required(site.path("ca.pem")), off).await;
    let mut other = AdminClient::new(channel(&running, site.shown(Some("other"))).await.unwrap());
    let create = v1::CreateGroupRequest { group: Some(group("b", "1")), if_not_exists: false };
    let mut request = Request::new(create);
    request.metadata_mut().insert("x-tidegate-actor", "ann".parse().unwrap());
    other.create_group(request).await.unwrap();
    let log = other.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    let [entry, _] = log.as_slice() else { panic!("{log:?}") };
    assert_eq!((entry.kind.as_str(), entry.identity.as_str(), entry.role.as_str()), ("anonymous", "", ""));
    assert!(entry.actor == format!("ann ({})", entry.peer) && entry.comment == "ann");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_caller_without_a_certificate_has_the_role_that_was_named_for_it() {
    let site = site();
    let access = Access { anonymous_role: Some(Role::Viewer), ..Access::default() };
    let running = start(&site, Clients::Optional(site.path("ca.pem")), access).await;
    let mut nobody = AdminClient::new(channel(&running, site.shown(None)).await.unwrap());
    assert!(nobody.list_groups(v1::ListGroupsRequest::default()).await.is_ok());
    let create = v1::CreateGroupRequest { group: Some(group("a", "1")), if_not_exists: false };
    let refused = nobody.create_group(create).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let said = "it needs the role admin or operator, and a caller without a certificate or a token has the role viewer";
    assert!(refused.message().contains(said), "{refused}");
    // One that shows a certificate is judged by it alone.
    let mut other = AdminClient::new(channel(&running, site.shown(Some("other"))).await.unwrap());
    let refused = other.list_groups(v1::ListGroupsRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    for said in ["URI:spiffe://prod/ns/x/sa/y", "[[identity]] san = \"spiffe://prod/ns/x/sa/y\", role = "] {
        assert!(refused.message().contains(said), "{refused}");
    }
    timeout(Duration::from_secs(20), running.shutdown()).await.unwrap().unwrap();
}
