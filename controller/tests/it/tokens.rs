//! Tokens over real sockets: what they open, their end, and the first one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_controller::config::{Access, Authentication, Config};
use tidegate_controller::{Controller, Running};
use tidegate_proto::v1;
use tidegate_tls::Clients;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use v1::admin_client::AdminClient;
use v1::grants_client::GrantsClient;
use v1::statements_client::StatementsClient;

use super::certificates::{Site, channel};
use super::support::{PATIENCE, config, group, store_path};

/// Shows a token with each call.
#[derive(Clone)]
pub(crate) struct Bearer(pub(crate) String);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.0).parse().unwrap());
        Ok(request)
    }
}

pub(crate) type Shown = InterceptedService<Channel, Bearer>;

pub(crate) fn by_tokens(folder: &TempDir) -> Config {
    let access = Access { authentication: Some(Authentication::Required), ..Access::default() };
    Config { access, ..config(folder) }
}

pub(crate) async fn plain(running: &Running) -> Channel {
    Channel::from_shared(format!("http://{}", running.grpc_addr)).unwrap().connect().await.unwrap()
}

pub(crate) fn admin(channel: &Channel, token: &str) -> AdminClient<Shown> {
    AdminClient::with_interceptor(channel.clone(), Bearer(token.to_owned()))
}

/// The first token, once it is there.
async fn first(folder: &TempDir) -> String {
    let path = store_path(folder).with_extension("redb.first-token");
    let mut again = interval(Duration::from_millis(20));
    let read = async {
        loop {
            again.tick().await;
            if let Ok(text) = fs::read_to_string(&path) {
                return text.trim().to_owned();
            }
        }
    };
    timeout(PATIENCE, read).await.unwrap()
}

async fn create(admin: &mut AdminClient<Shown>, name: &str, role: &str, ttl_us: u64) -> (u64, String) {
    let request =
        v1::CreateTokenRequest { name: name.to_owned(), role: role.to_owned(), ttl_us, ..Default::default() };
    let reply = admin.create_token(request).await.unwrap().into_inner();
    (reply.token.unwrap().id, reply.secret)
}

async fn is_known(admin: &mut AdminClient<Shown>) -> bool {
    admin.list_groups(v1::ListGroupsRequest::default()).await.is_ok()
}

#[tokio::test]
async fn where_nobody_has_a_certificate_the_first_admin_has_a_file_until_there_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let running = Controller::start(by_tokens(&folder)).await.unwrap();
    let channel = plain(&running).await;
    let refused = AdminClient::new(channel.clone()).status(v1::StatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let path = store_path(&folder).with_extension("redb.first-token");
    let text = first(&folder).await;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut starter = admin(&channel, &text);
    create(&mut starter, "eve", "viewer", 0).await;
    let own = v1::CreateTokenRequest {
        name: "first-admin".into(),
        role: "admin".into(),
        ttl_us: 0,
        ..Default::default()
    };
    assert_eq!(starter.create_token(own).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(is_known(&mut starter).await);
    let (_, of_root) = create(&mut starter, "root", "admin", 0).await;
    let gone = async {
        let mut again = interval(Duration::from_millis(20));
        while path.exists() || is_known(&mut starter).await {
            again.tick().await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    let mut root = admin(&channel, &of_root);
    let names = root.list_tokens(v1::ListTokensRequest::default()).await.unwrap().into_inner().tokens;
    assert_eq!(names.iter().map(|token| token.name.as_str()).collect::<Vec<_>>(), ["eve", "root"]);
    let log = root.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    assert!(log.iter().any(|entry| entry.kind == "token" && entry.identity == "first-admin"), "{log:?}");
    assert!(!format!("{log:?}").contains(text.split_once('.').unwrap().1));
    running.shutdown().await.unwrap();
    // The next start knows them, and needs no first one.
    let bytes = fs::read(store_path(&folder)).unwrap();
    let secret = text.as_bytes();
    assert!(!bytes.windows(secret.len()).any(|window| window == secret), "the store has a secret");
    let running = Controller::start(by_tokens(&folder)).await.unwrap();
    let mut root = admin(&plain(&running).await, &of_root);
    assert!(is_known(&mut root).await && !path.exists());
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_token_does_what_its_role_may_and_its_name_is_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let running = Controller::start(by_tokens(&folder)).await.unwrap();
    let channel = plain(&running).await;
    let mut root = admin(&channel, &first(&folder).await);
    let (_, ann) = create(&mut root, "ann", "operator", 0).await;
    let (_, eve) = create(&mut root, "eve", "viewer", 0).await;
    let request = || v1::CreateGroupRequest { group: Some(group("shop", "1")), if_not_exists: true };
    let refused = admin(&channel, &eve).create_group(request()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("the token of viewer \"eve\" has the role viewer"), "{refused}");
    admin(&channel, &ann).create_group(request()).await.unwrap();
    let wish =
        v1::CreateTokenRequest { name: "x".into(), role: "admin".into(), ttl_us: 0, ..Default::default() };
    assert!(admin(&channel, &ann).create_token(wish).await.is_err());
    let log = root.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    let said = [&log[0].action, &log[0].kind, &log[0].identity, &log[0].role];
    assert_eq!(said, ["create group", "token", "ann", "operator"]);
    for wrong in ["", "tdg_", "tdg_1.0", &format!("{ann}0"), &"x".repeat(5_000)] {
        let refused = admin(&channel, wrong).status(v1::StatusRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{wrong}");
        let said = refused.message();
        assert!(
            said.contains("the token is unknown") && (wrong.is_empty() || !said.contains(wrong)),
            "{said}"
        );
    }
    let page = running.service().metrics_page().unwrap();
    assert!(page.contains("tidegate_turned_away_total{surface=\"grpc\",reason=\"bad_token\"} 5"), "{page}");
    running.shutdown().await.unwrap();
}

type Streams = (tonic::Streaming<v1::WatchEvent>, tonic::Streaming<v1::Rules>);

/// A watch of definitions, and the rules of a gateway.
async fn open(channel: &Channel, token: &str) -> Result<Streams, Status> {
    let token = Bearer(token.to_owned());
    let mut grants = GrantsClient::with_interceptor(channel.clone(), token.clone());
    let watch = grants.watch(v1::WatchRequest::default()).await?.into_inner();
    let mut statements = StatementsClient::with_interceptor(channel.clone(), token);
    let rules = statements.rules(v1::RulesRequest { gateway: "g".into() }).await?.into_inner();
    Ok((watch, rules))
}

/// How both end.
async fn ended((mut watch, mut rules): Streams) -> [Code; 2] {
    let watch = async {
        loop {
            if let Err(status) = watch.message().await {
                return status.code();
            }
        }
    };
    let rules = async {
        loop {
            if let Err(status) = rules.message().await {
                return status.code();
            }
        }
    };
    timeout(PATIENCE, async { <[Code; 2]>::from(tokio::join!(watch, rules)) }).await.unwrap()
}

/// A token of an admin that soon expires, with the streams that it opened before, and its end.
async fn expiring(channel: &Channel, root: &mut AdminClient<Shown>) -> (String, Streams, u64) {
    let mut ttl_us = 1_000_000;
    loop {
        let (id, text) = create(root, "b", "admin", ttl_us).await;
        let tokens = root.list_tokens(v1::ListTokensRequest::default()).await.unwrap().into_inner().tokens;
        let end = tokens.iter().find(|token| token.id == id).map(|token| token.expires_unix_ms);
        match (open(channel, &text).await, end) {
            (Ok(streams), Some(end)) => return (text, streams, end),
            // A machine may be too slow for a short life.
            _ => ttl_us *= 2,
        }
        assert!(Duration::from_micros(ttl_us) < PATIENCE);
    }
}

// Within a second of its end, which a test in driven time looks at.
#[tokio::test]
async fn a_token_that_is_over_ends_its_streams() {
    let folder = tempfile::tempdir().unwrap();
    let running = Controller::start(by_tokens(&folder)).await.unwrap();
    let channel = plain(&running).await;
    // The first token is gone once an admin has another.
    let (id, revoked) = create(&mut admin(&channel, &first(&folder).await), "a", "admin", 0).await;
    let (_, stays) = create(&mut admin(&channel, &revoked), "c", "admin", 0).await;
    let mut root = admin(&channel, &stays);
    let of_revoked = open(&channel, &revoked).await.unwrap();
    let mut of_others = open(&channel, &stays).await.unwrap();
    let known = running.service().tokens().identify(&revoked).unwrap();
    root.revoke_token(v1::RevokeTokenRequest { id, force: false }).await.unwrap();
    assert!(*known.over.borrow(), "at once");
    assert_eq!(ended(of_revoked).await, [Code::Unauthenticated; 2]);
    assert!(!is_known(&mut admin(&channel, &revoked)).await);
    let (expires, of_expired, end) = expiring(&channel, &mut root).await;
    assert_eq!(ended(of_expired).await, [Code::Unauthenticated; 2]);
    assert!(running.service().clock().unix_ms() >= end, "not before its end");
    assert!(!is_known(&mut admin(&channel, &expires)).await);
    // The others go on.
    let binding = v1::Binding { user: "u".into(), group: "default".into(), ..v1::Binding::default() };
    admin(&channel, &stays).bind(v1::BindRequest { binding: Some(binding) }).await.unwrap();
    let seen = async {
        loop {
            let event = of_others.0.message().await.unwrap().unwrap();
            if matches!(event.kind, Some(v1::watch_event::Kind::Binding(_))) {
                return;
            }
        }
    };
    timeout(PATIENCE, seen).await.unwrap();
    drop(of_others);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_token_decides_in_place_of_a_certificate() {
    let site = Site::new();
    let mut settings = config(&site.folder);
    settings.tls = Some(site.files(Clients::Optional(site.path("ca.pem"))));
    let running = Controller::start(settings).await.unwrap();
    // `Site` makes certificates of admins.
    let certified = channel(&running, site.shown(Some("client"))).await.unwrap();
    let wish =
        v1::CreateTokenRequest { name: "eve".into(), role: "viewer".into(), ttl_us: 0, ..Default::default() };
    let made = AdminClient::new(certified.clone()).create_token(wish).await.unwrap().into_inner();
    let nobody = channel(&running, site.shown(None)).await.unwrap();
    for channel in [&certified, &nobody] {
        let mut eve = admin(channel, &made.secret);
        assert!(is_known(&mut eve).await);
        assert!(eve.list_tokens(v1::ListTokensRequest::default()).await.is_err());
        assert!(!is_known(&mut admin(channel, "tdg_9.0")).await);
    }
    assert!(!store_path(&site.folder).with_extension("redb.first-token").exists());
    running.shutdown().await.unwrap();
}

/// One REST request with this token and JSON body: its status, and its answer.
async fn rest(running: &Running, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(running.rest_addr).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn tokens_are_made_listed_and_revoked_by_rest_as_by_grpc() {
    let folder = tempfile::tempdir().unwrap();
    let running = Controller::start(by_tokens(&folder)).await.unwrap();
    let channel = plain(&running).await;
    let mut starter = admin(&channel, &first(&folder).await);
    let (root_id, root) = create(&mut starter, "root", "admin", 0).await;
    let body = r#"{"name": "till", "role": "node", "groups": ["Shop"], "ttl_us": 60000000}"#;
    let (status, made) = rest(&running, &root, "POST", "/v1/tokens", body).await;
    assert_eq!((status, &made["token"]["name"]), (200, &"till".into()), "{made}");
    assert_eq!(
        (&made["token"]["groups"], &made["token"]["role"]),
        (&serde_json::json!(["shop"]), &"node".into())
    );
    let text = made["secret"].as_str().unwrap();
    assert!(text.starts_with("tdg_") && running.service().tokens().identify(text).is_some());
    let (status, list) = rest(&running, &root, "GET", "/v1/tokens", "").await;
    let id = made["token"]["id"].as_u64().unwrap();
    let listed = list["tokens"].as_array().unwrap().iter().find(|token| token["id"] == id);
    assert_eq!((status, listed), (200, Some(&made["token"])));
    assert!(!list.to_string().contains(text.split_once('.').unwrap().1), "{list}");
    // Its role makes none.
    assert_eq!(rest(&running, text, "GET", "/v1/tokens", "").await.0, 403);
    for (body, field) in [
        (r#"{"name": "x"}"#, "role"),
        (r#"{"name": "x", "role": "root"}"#, "role"),
        (r#"{"name": "a.b", "role": "node"}"#, "name"),
        (r#"{"name": "x", "role": "viewer", "groups": ["shop"]}"#, "groups"),
        (r#"{"name": "x", "role": "tenant"}"#, "tenant"),
        (r#"{"name": "first-admin", "role": "admin"}"#, "name"),
    ] {
        let (status, said) = rest(&running, &root, "POST", "/v1/tokens", body).await;
        assert_eq!((status, &said["error"]["field"]), (400, &field.into()), "{body}: {said}");
    }
    let unknown = r#"{"name": "x", "role": "viewer", "secret": "mine"}"#;
    assert_eq!(rest(&running, &root, "POST", "/v1/tokens", unknown).await.0, 400);
    let (status, gone) = rest(&running, &root, "DELETE", &format!("/v1/tokens/{id}"), "").await;
    assert_eq!((status, &gone["token"]), (200, &made["token"]));
    assert!(running.service().tokens().identify(text).is_none());
    for (path, expected) in [
        (format!("/v1/tokens/{id}"), 404),
        ("/v1/tokens/seven".to_owned(), 400),
        ("/v1/tokens/18446744073709551616".to_owned(), 400),
    ] {
        assert_eq!(rest(&running, &root, "DELETE", &path, "").await.0, expected, "{path}");
    }
    // In pages.
    let mut made = Vec::new();
    for _ in 0..3 {
        let viewer = r#"{"name": "x", "role": "viewer"}"#;
        made.push(
            rest(&running, &root, "POST", "/v1/tokens", viewer).await.1["token"]["id"].as_u64().unwrap(),
        );
    }
    let before = made[0] - 1;
    let page = async |after: u64| {
        rest(&running, &root, "GET", &format!("/v1/tokens?after={after}&limit=2"), "").await.1
    };
    let ids = |page: &Value| {
        let tokens = page["tokens"].as_array().unwrap();
        tokens.iter().map(|token| token["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let (first, rest_of) = (page(before).await, page(made[1]).await);
    assert_eq!((ids(&first), first["next_after"].as_u64()), (made[..2].to_vec(), Some(made[1])));
    assert_eq!((ids(&rest_of), rest_of["next_after"].as_u64()), (made[2..].to_vec(), Some(0)));
    assert_eq!(rest(&running, &root, "GET", "/v1/tokens?limit=1001", "").await.0, 400);
    for id in made {
        assert_eq!(rest(&running, &root, "DELETE", &format!("/v1/tokens/{id}"), "").await.0, 200);
    }
    // The last admin's; the first token may take a moment to go.
    let last = async {
        let mut again = interval(Duration::from_millis(20));
        while running.service().tokens().list(0, 0).unwrap().tokens.len() > 1 {
            again.tick().await;
        }
    };
    timeout(PATIENCE, last).await.unwrap();
    let path = format!("/v1/tokens/{root_id}");
    let (status, said) = rest(&running, &root, "DELETE", &path, "").await;
    assert!(status == 409 && said["error"]["message"].as_str().unwrap().contains("last admin"), "{said}");
    assert_eq!(rest(&running, &root, "DELETE", &format!("{path}?force=true"), "").await.0, 200);
    assert_eq!(rest(&running, &root, "GET", "/v1/tokens", "").await.0, 401);
    let log = running.service().definitions().audit_log("", 0, 0).unwrap();
    let revoked =
        log.iter().find(|entry| entry.action == "revoke token" && entry.identity == "root").unwrap();
    assert!(!format!("{log:?}").contains("tdg_") && revoked.kind == "token", "{log:?}");
    running.shutdown().await.unwrap();
}

/// A channel from another address of this machine.
async fn from_another(running: &Running) -> Channel {
    let address = running.grpc_addr;
    let connect = tower::service_fn(move |_: http::Uri| async move {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind("127.0.0.2:0".parse().unwrap())?;
        socket.connect(address).await.map(hyper_util::rt::TokioIo::new)
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
    timeout(PATIENCE, endpoint.connect_with_connector(connect)).await.unwrap().unwrap()
}

#[tokio::test]
async fn who_keeps_showing_wrong_tokens_is_answered_later_and_nobody_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let running = Controller::start(by_tokens(&folder)).await.unwrap();
    let channel = plain(&running).await;
    let mut root = admin(&channel, &first(&folder).await);
    let (_, ann) = create(&mut root, "ann", "viewer", 0).await;
    let other = from_another(&running).await;
    let wrong = |channel: &Channel| {
        let mut stranger = admin(channel, "tdg_1.0");
        async move { stranger.status(v1::StatusRequest {}).await.unwrap_err().code() }
    };
    let began = Instant::now();
    let mut trying = tokio::task::JoinSet::new();
    (0..80).for_each(|_| drop(trying.spawn(wrong(&other))));
    while let Some(code) = trying.join_next().await {
        assert_eq!(code.unwrap(), Code::Unauthenticated);
    }
    // The last of 80 failures within a moment is answered seven seconds later, and on a machine that is slower by some
    // seconds by a tenth of those earlier.
    assert!(began.elapsed() > Duration::from_secs(6), "{:?}", began.elapsed());
    // The same address goes on where it is connected, and is believed before the next wrong one is answered, if the
    // machine is fast enough for that once.
    let at_once = async {
        loop {
            let late = tokio::spawn(wrong(&other));
            assert!(is_known(&mut admin(&other, &ann)).await && is_known(&mut admin(&channel, &ann)).await);
            if !late.is_finished() {
                return;
            }
        }
    };
    timeout(PATIENCE, at_once).await.unwrap();
    // Others find the door open.
    drop(plain(&running).await);
    running.shutdown().await.unwrap();
}
