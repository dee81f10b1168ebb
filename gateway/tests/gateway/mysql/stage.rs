//! Everything together: a database, a controller in this process, a gateway between clients and the database.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mysql_async::prelude::{FromValue, Queryable as _};
use mysql_async::{Conn, Error, OptsBuilder};
use tempfile::TempDir;
use tidegate_controller::Running;
use tidegate_gateway::{Config, Gateway, Listener, Policy, Principals, Upstream};

use crate::common::{self, eventually};
use tidegate_test_servers::{MariaDb, ROOT};
use tokio::task::block_in_place;

/// A database with a user `ann` and the database `shop`.
pub(crate) struct Stage {
    pub(crate) server: MariaDb,
    pub(crate) gateway: Gateway,
    _controller: Running,
    _folder: TempDir,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings of the gateway.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::made(&[], MariaDb::upstream, change).await
    }

    /// With another way to the server.
    pub(crate) async fn by(upstream: impl FnOnce(&MariaDb) -> String) -> Self {
        Self::made(&[], upstream, |_| {}).await
    }

    /// With options of the server, the way to it, and settings of the gateway.
    pub(crate) async fn made(
        options: &[&str],
        upstream: impl FnOnce(&MariaDb) -> String,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let options = [options, &["--max-connections=300"]].concat();
        let server = block_in_place(|| MariaDb::start(&options)).unwrap();
        server
            .root("create database shop; create database other; create user ann identified by 'ann'")
            .unwrap();
        server
            .root("grant all on shop.* to ann; grant all on slap.* to ann; grant all on other.* to ann")
            .unwrap();
        let (controller, folder) = common::controller().await;
        let gateway = gateway(&controller, &upstream(&server), change).await;
        Self { server, gateway, _controller: controller, _folder: folder }
    }

    pub(crate) fn port(&self) -> u16 {
        self.gateway.addresses[0].port()
    }

    /// The superuser, through the gateway.
    pub(crate) async fn admin(&self) -> Conn {
        login(self.port(), "shop", ROOT).await
    }

    /// Ann, through the gateway.
    pub(crate) async fn ann(&self) -> Conn {
        login(self.port(), "shop", ("ann", "ann")).await
    }
}

/// A gateway in front of the server at `upstream`.
pub(crate) async fn gateway(
    controller: &Running,
    upstream: &str,
    change: impl FnOnce(&mut Config),
) -> Gateway {
    let policy = Policy {
        max_wait: Duration::from_millis(700),
        admins: Principals::parse([ROOT.0]).unwrap(),
        ..Policy::default()
    };
    let upstream = Upstream::parse(upstream).unwrap();
    let mut config = Config {
        endpoints: vec![format!("http://{}", controller.grpc_addr)],
        identity: "gw".to_owned(),
        listeners: vec![Listener { listen: "127.0.0.1:0".parse().unwrap(), upstream }],
        policy,
        ..Config::default()
    };
    change(&mut config);
    Gateway::start(config).await.unwrap()
}

/// The output of the `mariadb` client for a script, with errors among the results, as ann at this port.
pub(crate) fn script(port: u16, script: &[u8]) -> Vec<u8> {
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-h127.0.0.1", "-uann", "-pann", "--local-infile=1", "--force", "-t"]);
    client.args(["--column-type-info", "--max-allowed-packet=64M", &format!("-P{port}"), "shop"]);
    common::says(&mut client, script)
}

/// A session.
pub(crate) async fn login(port: u16, database: &str, (user, password): (&str, &str)) -> Conn {
    let opts = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some(user))
        .pass(Some(password))
        .db_name(Some(database))
        .prefer_socket(false);
    // The driver asks for settings at once, and the first lease may take longer than a statement waits.
    let mut session = None;
    eventually("the login is admitted", async || {
        session = Conn::new(opts.clone()).await.ok();
        session.is_some()
    })
    .await;
    session.unwrap()
}

/// The first value of the first row.
pub(crate) async fn value<T: FromValue + Send + 'static>(session: &mut Conn, sql: &str) -> T {
    session.query_first::<T, _>(sql).await.unwrap().unwrap_or_else(|| panic!("no row for {sql}"))
}

/// RU that were charged to a group until now, as an admin sees them.
pub(crate) async fn used(admin: &mut Conn, group: &str) -> f64 {
    let sum = format!("select ru from tidegate.usage where resource_group = '{group}' and client is null");
    admin.query_first(sum).await.unwrap().unwrap_or(0.0)
}

/// Number and message of what failed.
pub(crate) fn error<T: std::fmt::Debug>(answer: Result<T, Error>) -> (u16, String) {
    match answer.expect_err("it should have failed") {
        Error::Server(error) => (error.code, error.message),
        other => panic!("{other}"),
    }
}

/// Until statements of this session are charged to `group`.
pub(crate) async fn is_in(session: &mut Conn, group: &str) {
    eventually("the session is in its group", async || {
        value::<String>(session, "select current_resource_group()").await == group
    })
    .await;
}

/// A superuser's session and one of ann's, once ann's statements are held to this rule of the group `r`.
pub(crate) async fn ruled(stage: &Stage, rule: &str) -> (Conn, Conn) {
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    let group = format!("create resource group r ru_per_sec = 100000 query_limit = ({rule})");
    admin.query_drop(group).await.unwrap();
    admin.query_drop("alter user ann resource group r").await.unwrap();
    rules_are_known(&mut admin, &mut ann).await;
    (admin, ann)
}

/// Until ann's session is in the group `r` and the gateway has the rules and watches that are there now. Rules reach
/// the gateway by another way than bindings, all at once: a watch of its own marks them.
pub(crate) async fn rules_are_known(admin: &mut Conn, ann: &mut Conn) {
    static MARKS: AtomicU32 = AtomicU32::new(0);
    let marked = format!("select 1 from mark{}", MARKS.fetch_add(1, Ordering::Relaxed));
    let watch = format!("query watch add resource group r action kill sql text exact to '{marked}'");
    admin.query_drop(watch).await.unwrap();
    eventually("the rules are known", async || error(ann.query_drop(&marked).await).0 == 8254).await;
}
