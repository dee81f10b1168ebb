//! A stage of either protocol, for what must hold of both.

use std::process::{Command, Stdio};

use mysql_async::Value;
use mysql_async::prelude::Queryable as _;
use tidegate_gateway::Config;
use tidegate_test_servers::ROOT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::block_in_place;

use crate::common::eventually;
use crate::{mysql, postgres};

/// A stage of PostgreSQL or of MySQL.
pub(crate) enum Scene {
    Postgres(postgres::stage::Stage),
    MySql(mysql::stage::Stage),
}

/// The name of ann's group once she has one.
const GROUP: &str = "anns";

impl Scene {
    /// Both, with these settings of the gateway.
    pub(crate) async fn both(change: impl Fn(&mut Config)) -> [Self; 2] {
        let both = Self::both_unasked(change).await;
        for scene in &both {
            eventually("the first lease is there", async || scene.answers()).await;
        }
        both
    }

    /// The same where the gateway does not answer at its own port, so that the first lease may not be there yet.
    pub(crate) async fn both_unasked(change: impl Fn(&mut Config)) -> [Self; 2] {
        let postgres = postgres::stage::Stage::with(&change).await;
        let mysql = mysql::stage::Stage::with(&change).await;
        [Self::Postgres(postgres), Self::MySql(mysql)]
    }

    /// For messages of assertions.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "PostgreSQL",
            Self::MySql(_) => "MySQL",
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Postgres(stage) => stage.port(),
            Self::MySql(stage) => stage.port(),
        }
    }

    pub(crate) fn kill_server(&mut self) {
        block_in_place(|| match self {
            Self::Postgres(stage) => stage.postgres.kill(),
            Self::MySql(stage) => stage.server.kill(),
        });
    }

    pub(crate) fn run_server(&mut self) {
        block_in_place(|| match self {
            Self::Postgres(stage) => stage.postgres.run().unwrap(),
            Self::MySql(stage) => stage.server.run().unwrap(),
        });
    }

    /// Ends the gateway; whether the controller knows of all that was charged.
    pub(crate) async fn settles(self) -> bool {
        match self {
            Self::Postgres(stage) => stage.gateway.shutdown().await.is_empty(),
            Self::MySql(stage) => stage.gateway.shutdown().await.is_empty(),
        }
    }

    /// One of two, by the protocol.
    pub(crate) fn pick<T>(&self, postgres: T, mysql: T) -> T {
        match self {
            Self::Postgres(_) => postgres,
            Self::MySql(_) => mysql,
        }
    }

    /// `psql` or `mariadb` with one statement of ann's, through the gateway; large results come as they are.
    pub(crate) fn client(&self, sql: &str) -> Command {
        self.client_at(self.port(), sql)
    }

    fn client_at(&self, port: u16, sql: &str) -> Command {
        let port = port.to_string();
        let mut client = match self {
            Self::Postgres(stage) => {
                let mut psql = stage.postgres.program("psql");
                psql.args(["-X", "-A", "-t", "-h", "127.0.0.1", "-U", "ann", "-p", &port, "-c", sql, "shop"]);
                psql.env("PGPASSWORD", "ann");
                psql
            }
            Self::MySql(_) => {
                let mut mariadb = Command::new("mariadb");
                mariadb.args(["--no-defaults", "-h127.0.0.1", "-uann", "-pann", "-N", "--quick"]);
                mariadb.args(["--local-infile=1", "-P", &port, "-e", sql, "shop"]);
                mariadb
            }
        };
        client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        client
    }

    /// What that prints, errors behind.
    pub(crate) fn says(&self, sql: &str) -> String {
        self.says_at(self.port(), sql)
    }

    /// The same at another port that leads to the gateway.
    pub(crate) fn says_at(&self, port: u16, sql: &str) -> String {
        let output = block_in_place(|| self.client_at(port, sql).output().unwrap());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Whether a session of ann's is let in and answered.
    pub(crate) fn answers(&self) -> bool {
        self.says("select 40 + 2") == "42\n"
    }

    /// The first value of a statement of the superuser, through the gateway; none of what gives none.
    pub(crate) async fn admin(&self, sql: &str) -> Option<String> {
        match self {
            Self::Postgres(stage) => {
                let messages = stage.admin().await.simple_query(sql).await.unwrap();
                messages.into_iter().find_map(|message| match message {
                    tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                })
            }
            Self::MySql(stage) => {
                let mut admin = stage.admin().await;
                let value = admin.query_first::<Value, _>(sql).await.unwrap();
                value.filter(|value| *value != Value::NULL).map(|value| match value {
                    Value::Bytes(text) => String::from_utf8(text).unwrap(),
                    number => number.as_sql(true),
                })
            }
        }
    }

    /// Puts ann into a group of so many RU/s.
    pub(crate) async fn group(&self, ru_per_sec: &str) {
        self.admin(&format!("create resource group {GROUP} ru_per_sec = {ru_per_sec}")).await;
        self.admin(&format!("alter user ann resource group {GROUP}")).await;
        eventually("ann is in her group", async || {
            self.says("select current_resource_group()").trim() == GROUP
        })
        .await;
    }

    /// Sessions of this user at the server.
    pub(crate) async fn sessions(&self, user: &str) -> u32 {
        match self {
            Self::Postgres(stage) => {
                let count = format!("select count(*) from pg_stat_activity where usename = '{user}'");
                postgres::stage::value(&stage.direct().await, &count).await.parse().unwrap()
            }
            Self::MySql(stage) => {
                let mut root = mysql::stage::login(stage.server.port(), "shop", ROOT).await;
                let count =
                    format!("select count(*) from information_schema.processlist where user = '{user}'");
                mysql::stage::value(&mut root, &count).await
            }
        }
    }

    /// Lets a user `raw` in without a password, for sessions over raw sockets.
    pub(crate) async fn open_to_raw(&self) {
        match self {
            Self::Postgres(stage) => {
                let root = stage.direct().await;
                root.batch_execute("create user raw").await.unwrap();
                let trust =
                    "do $$ begin execute format('copy (values (%L), (%L)) to %L', 'host all raw all trust',
                    'host all all all scram-sha-256', current_setting('hba_file')); end $$";
                root.batch_execute(trust).await.unwrap();
                root.batch_execute("select pg_reload_conf()").await.unwrap();
                // The server reads its file again in its own time.
                eventually("it is let in", async || self.try_raw().await.is_some()).await;
            }
            Self::MySql(stage) => {
                stage.server.root("create user raw; grant all on shop.* to raw").unwrap();
            }
        }
    }

    /// A session of that user.
    pub(crate) async fn raw(&self) -> TcpStream {
        self.try_raw().await.unwrap()
    }

    async fn try_raw(&self) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).await.unwrap();
        match self {
            Self::Postgres(_) => {
                stream.write_all(b"\0\0\0\x20\0\x03\0\0user\0raw\0database\0shop\0\0").await.unwrap();
                let mut said = Vec::new();
                // ReadyForQuery, idle.
                while !said.ends_with(b"Z\0\0\0\x05I") {
                    if said.starts_with(b"E") || stream.read_buf(&mut said).await.unwrap() == 0 {
                        return None;
                    }
                }
            }
            Self::MySql(_) => {
                read_packet(&mut stream).await;
                // Protocol 4.1, transactions, secure connection, a database, LOCAL INFILE, plugins; no password.
                let capabilities = 0x0008_0000_u32 | 0x0000_8000 | 0x2000 | 0x0200 | 0x0080 | 0x0008;
                let rest = b"raw\0\0shop\0mysql_native_password\0";
                let sizes = [&capabilities.to_le_bytes()[..], &[0, 0, 0, 8, 45], &[0; 23]].concat();
                stream.write_all(&packet(1, &[&sizes[..], rest].concat())).await.unwrap();
                assert_eq!(read_packet(&mut stream).await.first(), Some(&0), "no OK");
            }
        }
        Some(stream)
    }
}

/// A packet of MySQL's.
pub(crate) fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&length[..3], &[sequence], payload].concat()
}

/// The payload of the next one.
pub(crate) async fn read_packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).await.unwrap();
    let mut payload = vec![0; u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize];
    stream.read_exact(&mut payload).await.unwrap();
    payload
}

/// A message of PostgreSQL's.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}
