//! Everything together: a database, a controller in this process, gateways between clients and the database.

use std::time::Duration;

use tempfile::TempDir;
use tidegate_controller::Running;
use tidegate_gateway::{Config, Gateway, Listener, Policy, Principals, Upstream};
use tokio_postgres::{Client, NoTls};

use crate::common;
use tidegate_tests::servers::{Postgres, ROOT};

/// A database with a user `ann`, who owns the database `shop`.
pub(crate) struct Stage {
    pub(crate) postgres: Postgres,
    pub(crate) controller: Running,
    pub(crate) gateway: Gateway,
    _folder: TempDir,
}

/// As the tests want it: admins are the superuser, and nobody waits for long.
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
        let postgres =
            tokio::task::spawn_blocking(|| Postgres::start(&["max_connections=300"])).await.unwrap().unwrap();
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

    /// What `psql` says to a script, with errors among the results, as ann at this port.
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
