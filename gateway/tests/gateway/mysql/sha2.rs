//! `caching_sha2_password`, which MariaDB has not: a small server that has it, TLS on either side, on both, on none.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use mysql_async::prelude::Queryable as _;
use mysql_async::{ChangeUserOpts, Conn, Error, OptsBuilder, SslOpts};
use tempfile::TempDir;
use tidegate_controller::Running;
use tidegate_gateway::{Certificate, Config, Gateway, Listener, Upstream};
use tokio::task::block_in_place;

use crate::common;
use crate::drivers::{go, mysqld, output, python};

/// The server, and gateways before it.
struct Stage {
    server: Child,
    port: u16,
    /// Without and with a certificate of their own; each has a listener for a plain way to the server, and one for TLS.
    gateways: [Gateway; 2],
    _controller: Running,
    _folders: [TempDir; 2],
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Stage {
    async fn new() -> Self {
        let site = tempfile::tempdir().unwrap();
        let mut server = block_in_place(|| mysqld(&site.path().join("mysqld")));
        server.arg(site.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        let (controller, folder) = common::controller().await;
        let gateway = async |identity: &str, certificate| {
            let listener = |tls: &str| Listener {
                listen: "127.0.0.1:0".parse().unwrap(),
                upstream: Upstream::parse(&format!("mysql://127.0.0.1:{port}?tls={tls}")).unwrap(),
            };
            let config = Config {
                endpoints: vec![format!("http://{}", controller.grpc_addr)],
                identity: identity.to_owned(),
                listeners: vec![listener("disable"), listener("require")],
                certificate,
                ..Config::default()
            };
            Gateway::start(config).await.unwrap()
        };
        let own = Certificate { chain: site.path().join("cert.pem"), key: site.path().join("key.pem") };
        let gateways = [gateway("plain", None).await, gateway("tls", Some(own)).await];
        Self { server, port, gateways, _controller: controller, _folders: [site, folder] }
    }

    /// The gateway's port for clients and a way to the server with TLS or without.
    fn through(&self, client: bool, server: bool) -> u16 {
        self.gateways[usize::from(client)].addresses[usize::from(server)].port()
    }
}

/// A session of `mysql_async`.
pub(super) async fn login(port: u16, tls: bool, password: &str) -> Result<Conn, Error> {
    let trusting =
        SslOpts::default().with_danger_accept_invalid_certs(true).with_danger_skip_domain_validation(true);
    let opts = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some("ann"))
        .pass(Some(password))
        .db_name(Some("shop"))
        .ssl_opts(tls.then_some(trusting))
        .prefer_socket(false);
    Conn::new(opts).await
}

/// How a session was let in, asked as text and prepared; or the error that it got.
pub(super) async fn how(session: Result<Conn, Error>) -> String {
    let mut session = match session {
        Err(Error::Server(error)) => return format!("{} {}", error.code, error.message),
        session => session.unwrap(),
    };
    let (text, sum): (String, u32) = session.query_first("select how(), 42").await.unwrap().unwrap();
    let prepared: Option<(String, u32)> = session.exec_first("select how(), ?", (43,)).await.unwrap();
    assert_eq!((sum, prepared), (42, Some((text.clone(), 43))));
    text
}

/// The server knows the password no more, which it knew at the last login.
async fn forget(session: &mut Conn) {
    session.query_drop("select forget()").await.unwrap();
}

pub(super) async fn change(mut session: Conn, password: &str) -> Result<Conn, Error> {
    let opts = ChangeUserOpts::default()
        .with_user(Some("ann".to_owned()))
        .with_pass(Some(password.to_owned()))
        .with_db_name(Some("shop".to_owned()));
    session.change_user(opts).await.map(|()| session)
}

/// The output of two drivers at a server that knows no password.
pub(super) fn drivers_see(port: u16, tls: bool, expected: [&str; 4]) {
    let lines = ["first", "again", "wrong", "wrong"].into_iter().zip(expected);
    let expected: Vec<String> = lines.map(|(login, how)| format!("{login} {how}")).collect();
    let mode = if tls { "skip-verify" } else { "false" };
    for mut command in [go("./sha2"), python("sha2.py")] {
        command.arg(mode).arg(port.to_string());
        let said = block_in_place(|| output(command));
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "TLS of the client: {mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_gets_past_as_each_side_wants_it() {
    let stage = Stage::new().await;
    // The server's view of its own side: the whole password came, or its hash was enough.
    for (client, server) in [(false, false), (true, false), (true, true)] {
        let port = stage.through(client, server);
        let way = if server { "tls" } else { "plain" };
        let (full, fast) = (format!("full {way}"), format!("fast {way}"));
        drivers_see(port, client, [&format!("{full}, 42"), &format!("{fast}, 42"), "1045", "1045"]);
        assert_eq!(how(login(port, client, "ann").await).await, full);
        assert_eq!(how(login(port, client, "ann").await).await, fast);
        assert!(how(login(port, client, "bob").await).await.starts_with("1045"));
        // As a change of user on the same connection, first with what the server knows.
        let session = change(login(port, client, "ann").await.unwrap(), "ann").await;
        assert_eq!(how(session).await, fast);
        let mut session = login(port, client, "ann").await.unwrap();
        forget(&mut session).await;
        let mut session = change(session, "ann").await.unwrap();
        assert_eq!(session.query_first::<String, _>("select how()").await.unwrap(), Some(full));
        assert!(how(change(session, "bob").await).await.starts_with("1045"));
        let mut session = login(port, client, "ann").await.unwrap();
        forget(&mut session).await;
        assert!(how(change(session, "bob").await).await.starts_with("1045"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_client_of_a_server_under_tls_gets_past_once_its_password_is_known() {
    let stage = Stage::new().await;
    let port = stage.through(false, true);
    drivers_see(port, false, ["3159"; 4]);
    let told = how(login(port, false, "ann").await).await;
    assert!(told.starts_with("3159 the server wants the whole password"), "{told}");
    assert!(told.contains("--tls-cert"), "{told}");
    // A client that need not use TLS gets the same error where it could.
    assert_eq!(how(login(stage.through(true, true), false, "ann").await).await, told);
    assert_eq!(how(login(stage.port, true, "ann").await).await, "full tls");
    for mut command in [go("./sha2"), python("sha2.py")] {
        command.arg("false").arg(port.to_string());
        let said = block_in_place(|| output(command));
        assert_eq!(said, "first fast tls, 42\nagain fast tls, 42\nwrong 1045\nwrong 3159\n");
        assert_eq!(how(login(stage.port, true, "ann").await).await, "full tls");
    }
    let session = change(login(port, false, "ann").await.unwrap(), "ann").await;
    assert_eq!(how(session).await, "fast tls");
    let mut session = login(port, false, "ann").await.unwrap();
    forget(&mut session).await;
    assert_eq!(how(change(session, "ann").await).await, told);
}
