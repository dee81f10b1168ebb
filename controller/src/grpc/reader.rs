//! The peer of a stream: handed one message at a time, and given up when it does not read.

use std::sync::Arc;

use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;
use tonic::{Code, Extensions, Status};

use crate::clock::duration;
use crate::limits::{ANSWER_QUEUE, DRAIN_WITHIN, READ_WITHIN};
use crate::listener::Connection;
use crate::metrics::Metrics;

/// Where the messages of one stream go.
pub(super) struct Reader<T> {
    answers: Sender<Result<T, Status>>,
    /// `None` where a test has no connection.
    connection: Option<Arc<Connection>>,
    metrics: Arc<Metrics>,
}

impl<T> Reader<T> {
    /// The peer of a request with these extensions, and what it is to read.
    pub(super) fn of(extensions: &Extensions, metrics: &Arc<Metrics>) -> (Self, Receiver<Result<T, Status>>) {
        let (answers, messages) = mpsc::channel(ANSWER_QUEUE);
        let connection = extensions.get::<Arc<Connection>>().cloned();
        (Self { answers, connection, metrics: Arc::clone(metrics) }, messages)
    }

    /// Hands a message over, or gives up on a peer that does not read.
    pub(super) async fn tell(&self, message: T) -> Result<(), Status> {
        match timeout(duration(READ_WITHIN), self.answers.send(Ok(message))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Status::cancelled("the peer went away")),
            Err(_) => Err(Status::resource_exhausted(format!(
                "the stream was not read for {READ_WITHIN}; read it, and begin again"
            ))),
        }
    }

    /// Waits until the peer went away.
    pub(super) async fn closed(&self) {
        self.answers.closed().await;
    }

    /// Ends the stream. Where that cannot be told, what waits for the peer is let go of with its connection.
    pub(super) async fn end(self, status: Status) {
        let unread = status.code() == Code::ResourceExhausted;
        if unread {
            self.metrics.watchers_dropped.inc();
        }
        // The peer may be gone or asleep, and then nobody wants to know.
        let told = timeout(duration(DRAIN_WITHIN), self.answers.send(Err(status))).await;
        if let (true, Err(_), Some(connection)) = (unread, told, &self.connection) {
            connection.cut();
        }
    }
}
