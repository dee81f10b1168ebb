//! A controller in a scratch directory, and sessions that send it text.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use prost::Message;
use tempfile::TempDir;
use tidegate_controller::config::Access;
use tidegate_controller::store::{Store, StoreError, Table as Rows, Visit, VisitAll, Write};
use tidegate_controller::{Config, Controller, Running};
use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;
use tidegate_proto::v1::client_message::Kind;
use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_sql::{Answer, Context, SqlError, Statement, Table, Value, execute};
use tokio::net::TcpListener;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::service::Routes;
use tonic::transport::{Channel, Server};

/// A controller with a channel to it.
pub(crate) struct Lab {
    pub(crate) running: Running,
    pub(crate) channel: Channel,
    _folder: TempDir,
}

fn config(folder: &TempDir) -> Config {
    Config {
        store: folder.path().join("store.redb"),
        grpc_listen: "127.0.0.1:0".parse().unwrap(),
        http_listen: "127.0.0.1:0".parse().unwrap(),
        ..Config::default()
    }
}

/// An administrator.
pub(crate) fn context() -> Context {
    Context {
        tenant: "store".into(),
        user: "ann".into(),
        group: "default".into(),
        dialect: SqlDialect::MySql,
        is_admin: true,
        may_switch: false,
        now_unix_ms: 0,
        token: None,
    }
}

/// A store that forgets, for tests that make more commits than a disk does in a moment.
struct Forgetful;

impl Store for Forgetful {
    fn commit(&self, _: &[Write]) -> Result<(), StoreError> {
        Ok(())
    }

    fn scan(&self, _: Rows, _: &[u8], _: &mut Visit<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn get(&self, _: Rows, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        Ok(vec![None; keys.len()])
    }

    fn copy(&self, _: &mut VisitAll<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn seal(&self) -> Result<String, StoreError> {
        Ok(String::new())
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }
}

impl Lab {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let running = Controller::start(config(&folder)).await.unwrap();
        Self::with(running, folder).await
    }

    /// Asks callers who they are.
    pub(crate) async fn asking(access: Access) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let running = Controller::start(Config { access, ..config(&folder) }).await.unwrap();
        Self::with(running, folder).await
    }

    /// Keeps nothing on disk.
    pub(crate) async fn forgetful() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let running = Controller::start_with(config(&folder), Arc::new(Forgetful)).await.unwrap();
        Self::with(running, folder).await
    }

    async fn with(running: Running, folder: TempDir) -> Self {
        let address = format!("http://{}", running.grpc_addr);
        let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
        Self { running, channel, _folder: folder }
    }

    pub(crate) async fn send_as(&self, context: &Context, text: &str) -> Result<Answer, SqlError> {
        let statement = Statement::parse(text, context.dialect)?.expect(text);
        execute(self.channel.clone(), &statement, context).await
    }

    pub(crate) async fn send(&self, text: &str) -> Result<Answer, SqlError> {
        self.send_as(&context(), text).await
    }

    /// Things changed, and notes.
    pub(crate) async fn done(&self, text: &str) -> (u64, String) {
        match self.send(text).await {
            Ok(Answer::Done { affected, notes }) => (affected, notes.join("; ")),
            other => panic!("{text}: {other:?}"),
        }
    }

    pub(crate) async fn table(&self, text: &str) -> Table {
        match self.send(text).await {
            Ok(Answer::Table(table)) => table,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// A node reports that three operations of 2.75 RU together are settled.
    pub(crate) async fn charge(&self, group: &str) {
        let hello = v1::Hello {
            protocol_min: 1,
            protocol_max: 1,
            client_id: "node-1".into(),
            incarnation: 1,
            agent: "test/1".into(),
            ..v1::Hello::default()
        };
        let total = v1::Consumption {
            write_micro_ru: 2_500_000,
            cpu_micro_ru: 250_000,
            operations: 3,
            waited_us: 750_000,
            usage: Some(v1::Usage { write_bytes: 9, ..v1::Usage::default() }),
            ..v1::Consumption::default()
        };
        let report = v1::Report { group: group.into(), total: Some(total), ..v1::Report::default() };
        let renew = v1::Renew { seq: 1, reports: vec![report], ..v1::Renew::default() };
        let (asks, stream) = tokio::sync::mpsc::channel(2);
        for kind in [Kind::Hello(hello), Kind::Renew(renew)] {
            asks.send(v1::ClientMessage { kind: Some(kind) }).await.unwrap();
        }
        let mut grants = GrantsClient::new(self.channel.clone());
        let mut answers = grants.session(ReceiverStream::new(stream)).await.unwrap().into_inner();
        // The welcome, and the answer to the report.
        for _ in 0..2 {
            answers.message().await.unwrap().unwrap();
        }
    }

    /// The rows as text, with `|` between cells.
    pub(crate) async fn rows(&self, text: &str) -> Vec<String> {
        lines(&self.table(text).await)
    }

    pub(crate) async fn refused(&self, text: &str) -> SqlError {
        self.send(text).await.expect_err(text)
    }
}

/// A server of these calls in place of a controller, for as long as the test runs.
pub(crate) async fn serve(router: Router) -> Channel {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder().add_routes(Routes::from(router));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Channel::from_shared(address).unwrap().connect().await.unwrap()
}

/// A message as the answer to a call.
pub(crate) fn reply(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat()
}

/// A controller that has these answers to the calls of a SELECT, one after another, and the last of them ever again.
pub(crate) async fn select(answers: Vec<Vec<u8>>, text: &str) -> Table {
    let mut answers = answers.into_iter().peekable();
    let mut last = answers.peek().cloned().unwrap();
    let next = std::sync::Mutex::new(move || {
        last = answers.next().unwrap_or_else(|| last.clone());
        last.clone()
    });
    let next = Arc::new(next);
    let answer = async move |_: Request| {
        let body = (next.lock().unwrap())();
        let head = Response::builder().header("content-type", "application/grpc");
        head.header("grpc-status", "0").body(Body::from(body)).unwrap()
    };
    let channel = serve(Router::new().fallback(answer)).await;
    let statement = Statement::parse(text, SqlDialect::MySql).unwrap().expect(text);
    match execute(channel, &statement, &context()).await {
        Ok(Answer::Table(table)) => table,
        other => panic!("{text}: {other:?}"),
    }
}

pub(crate) fn lines(table: &Table) -> Vec<String> {
    let cell = |value: &Value| match value {
        Value::Null => "NULL".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Text(text) => text.clone(),
    };
    table.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}
