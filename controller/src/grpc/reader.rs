//! The peer of a stream: it gets one message at a time, and its stream ends when it does not read.

use std::sync::Arc;

use tidegate_listener::Connection;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;
use tonic::{Code, Extensions, Status};

use crate::clock::duration;
use crate::limits::{ANSWER_QUEUE, DRAIN_WITHIN, READ_WITHIN};
use crate::metrics::Metrics;

/// The sender of one stream's messages.
pub(super) struct Reader<T> {
    answers: Sender<Result<T, Status>>,
    /// `None` in a test without a connection.
    connection: Option<Arc<Connection>>,
    metrics: Arc<Metrics>,
}

impl<T> Reader<T> {
    /// The peer of a request with these extensions, and the messages that it will read.
    pub(super) fn of(extensions: &Extensions, metrics: &Arc<Metrics>) -> (Self, Receiver<Result<T, Status>>) {
        let (answers, messages) = mpsc::channel(ANSWER_QUEUE);
        let connection = extensions.get::<Arc<Connection>>().cloned();
        (Self { answers, connection, metrics: Arc::clone(metrics) }, messages)
    }

    /// Sends a message, or gives up on a peer that does not read.
    pub(super) async fn tell(&self, message: T) -> Result<(), Status> {
        match timeout(duration(READ_WITHIN), self.answers.send(Ok(message))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Status::cancelled("the peer went away")),
            Err(_) => Err(Status::resource_exhausted(format!(
                "the stream was not read for {READ_WITHIN}; read it, and begin again"
            ))),
        }
    }

    /// Waits until the peer is gone.
    pub(super) async fn closed(&self) {
        self.answers.closed().await;
    }

    /// Ends the stream. If the peer does not even read that, its connection is cut, with everything that waits for it.
    pub(super) async fn end(self, status: Status) {
        let unread = status.code() == Code::ResourceExhausted;
        if unread {
            self.metrics.watchers_dropped.inc();
        }
        // The peer may be gone or asleep.
        let told = timeout(duration(DRAIN_WITHIN), self.answers.send(Err(status))).await;
        if let (true, Err(_), Some(connection)) = (unread, told, &self.connection) {
            connection.cut();
        }
    }
}
