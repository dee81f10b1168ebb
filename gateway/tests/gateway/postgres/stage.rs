//! Everything together: a database, a controller in this process, gateways between clients and the database.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tempfile::TempDir;
use tidegate_controller::Running;
use tidegate_gateway::{Config, Gateway, Listener, Policy, Principals, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::block_in_place;
use tokio_postgres::{Client, NoTls};

use crate::common::{self, eventually};
use tidegate_test_servers::{Postgres, ROOT};

/// A database with a user `ann`, who owns the database `shop`.
pub(crate) struct Stage {
    pub(crate) postgres: Postgres,
    pub(crate) controller: Running,
    pub(crate) gateway: Gateway,
    _folder: TempDir,
}

/// As the tests want it: the superuser is admin, and no statement waits for long.
pub(crate) fn policy() -> Policy {
    Policy {
        max_wait: Duration::from_secs(5),
        admins: Principals::parse([ROOT.0]).unwrap(),
        ..Policy::default()
    }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings of the gateway.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::made(&[], change).await
    }

    /// And of the server.
    pub(crate) async fn made(settings: &[&str], change: impl FnOnce(&mut Config)) -> Self {
        let settings = [&["max_connections=300"], settings].concat();
        let postgres = block_in_place(|| Postgres::start(&settings)).unwrap();
        let (controller, folder) = common::controller().await;
        let gateway = gateway(&controller, postgres.port(), "gw", change).await;
        let stage = Self { postgres, controller, gateway, _folder: folder };
        let root = stage.direct().await;
        root.batch_execute("create user ann password 'ann'").await.unwrap();
        root.batch_execute("create database shop owner ann").await.unwrap();
        stage
    }

    pub(crate) fn port(&self) -> u16 {
        self.gateway.addresses[0].port()
    }

    /// The superuser, past the gateway.
    pub(crate) async fn direct(&self) -> Client {
        login(self.postgres.port(), "postgres", ROOT).await
    }

    /// The superuser, through the gateway.
    pub(crate) async fn admin(&self) -> Client {
        login(self.port(), "postgres", ROOT).await
    }

    /// Ann, in her database, through the gateway.
    pub(crate) async fn ann(&self) -> Client {
        login(self.port(), "shop", ("ann", "ann")).await
    }

    /// The output of `psql` for a script, with errors among the results, as ann at this port.
    pub(crate) fn psql(&self, port: u16, script: &[u8]) -> Vec<u8> {
        let mut psql = self.postgres.program("psql");
        psql.args(["-X", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", "ann", "shop"])
            .env("PGPASSWORD", "ann");
        common::says(&mut psql, script)
    }
}

/// A gateway in front of the server at `port`.
pub(crate) async fn gateway(
    controller: &Running,
    port: u16,
    identity: &str,
    change: impl FnOnce(&mut Config),
) -> Gateway {
    let upstream = Upstream::parse(&format!("postgres://127.0.0.1:{port}")).unwrap();
    let mut config = Config {
        endpoints: vec![format!("http://{}", controller.grpc_addr)],
        identity: identity.to_owned(),
        listeners: vec![Listener { listen: "127.0.0.1:0".parse().unwrap(), upstream }],
        policy: policy(),
        ..Config::default()
    };
    change(&mut config);
    Gateway::start(config).await.unwrap()
}

/// A session.
pub(crate) async fn login(port: u16, database: &str, (user, password): (&str, &str)) -> Client {
    try_login(port, database, (user, password)).await.unwrap()
}

pub(crate) async fn try_login(
    port: u16,
    database: &str,
    (user, password): (&str, &str),
) -> Result<Client, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(port).dbname(database).user(user).password(password);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The SQLSTATE of what failed.
#[track_caller]
pub(crate) fn state<T: std::fmt::Debug>(answer: Result<T, tokio_postgres::Error>) -> String {
    let error = answer.expect_err("it should have failed");
    error.code().map(|code| code.code().to_owned()).unwrap_or_else(|| error.to_string())
}

/// The first column of the first row, as text.
pub(crate) async fn value(client: &Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
        _ => None,
    });
    row.unwrap_or_else(|| panic!("no row for {sql}"))
}

/// RU that were charged to a group until now, as an admin sees them.
pub(crate) async fn used(admin: &Client, group: &str) -> f64 {
    let sum = format!(
        "select coalesce(sum(ru), 0) from tidegate.usage where resource_group = '{group}' and client is null"
    );
    value(admin, &sum).await.parse().unwrap()
}

/// Until the session is in this group.
pub(crate) async fn is_in(session: &Client, group: &str) {
    eventually("the session is in its group", async || {
        value(session, "select current_resource_group()").await == group
    })
    .await;
}

/// The error that the client gets.
#[track_caller]
pub(crate) fn told<T: std::fmt::Debug>(answer: Result<T, tokio_postgres::Error>) -> String {
    let error = answer.expect_err("it should have failed");
    error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_else(|| error.to_string())
}

/// A superuser's session and one of ann's, once ann's statements are held to this rule of the group `r`.
pub(crate) async fn ruled(stage: &Stage, rule: &str) -> (Client, Client) {
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    let group = format!("create resource group r ru_per_sec = 100000 query_limit = ({rule})");
    admin.batch_execute(&group).await.unwrap();
    admin.batch_execute("alter user ann resource group r").await.unwrap();
    rules_are_known(&admin, &ann).await;
    (admin, ann)
}

/// Until ann's session is in the group `r` and the gateway has the rules and watches that are there now. Rules reach
/// the gateway by another way than bindings, all at once: a watch of its own marks them.
pub(crate) async fn rules_are_known(admin: &Client, ann: &Client) {
    static MARKS: AtomicU32 = AtomicU32::new(0);
    let marked = format!("select 1 from mark{}", MARKS.fetch_add(1, Ordering::Relaxed));
    let watch = format!("query watch add resource group r action kill sql text exact to '{marked}'");
    admin.batch_execute(&watch).await.unwrap();
    eventually("the rules are known", async || told(ann.simple_query(&marked).await).contains("watch")).await;
}

/// A message of the protocol.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// The kinds of what the server says, up to and with `last`, and the number of rows in each run of them.
pub(crate) async fn kinds(server: &mut TcpStream, last: u8) -> String {
    let (mut bytes, mut said) = (BytesMut::new(), String::new());
    loop {
        while bytes.len() > 4 {
            let total = 1 + u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
            if bytes.len() < total {
                break;
            }
            let kind = bytes.split_to(total)[0];
            said.push(char::from(kind));
            if kind == last {
                assert!(bytes.is_empty(), "{said}");
                return said;
            }
        }
        assert!(server.read_buf(&mut bytes).await.unwrap() > 0, "{said}");
    }
}

/// Ann's session through the gateway, over a raw socket.
pub(crate) async fn trusted(stage: &Stage) -> TcpStream {
    let trust = "do $$ begin execute format('copy (select %L) to %L', 'host all all all trust',
        current_setting('hba_file')); end $$; select pg_reload_conf()";
    stage.direct().await.batch_execute(trust).await.unwrap();
    let startup = b"\0\0\0\x20\0\x03\0\0user\0ann\0database\0shop\0\0";
    // The server reads its file again in its own time.
    eventually("anybody is let in", async || {
        let mut server = TcpStream::connect(("127.0.0.1", stage.port())).await.unwrap();
        server.write_all(startup).await.unwrap();
        let mut first = [0; 9];
        server.read_exact(&mut first).await.unwrap();
        first == *b"R\0\0\0\x08\0\0\0\0"
    })
    .await;
    let mut server = TcpStream::connect(("127.0.0.1", stage.port())).await.unwrap();
    server.write_all(startup).await.unwrap();
    kinds(&mut server, b'Z').await;
    server
}
