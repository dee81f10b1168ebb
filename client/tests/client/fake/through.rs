//! A way to the fake on which messages are late or changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_client::transport::{Inbound, Opening, Transport};
use tidegate_client::{Client, ClientBuilder};
use tidegate_proto::v1;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::{Fake, Pipe};

type Change = Box<dyn FnMut(&mut v1::ServerMessage) + Send>;

/// Reaches the fake by channels on which what it says takes its time.
#[derive(Clone)]
pub(crate) struct Through {
    fake: Fake,
    late: Arc<Mutex<Duration>>,
    change: Arc<Mutex<Change>>,
}

impl Through {
    pub(crate) fn new(fake: &Fake) -> Self {
        let change: Change = Box::new(|_| ());
        Self { fake: fake.clone(), late: Arc::default(), change: Arc::new(Mutex::new(change)) }
    }

    pub(crate) fn client(&self) -> ClientBuilder {
        Client::builder(["pipe"], "node-1").transport(self.clone())
    }

    /// From now on messages come so late.
    pub(crate) fn late(&self, by: Duration) {
        *self.late.lock().unwrap() = by;
    }

    /// From now on messages are changed.
    pub(crate) fn change(&self, change: impl FnMut(&mut v1::ServerMessage) + Send + 'static) {
        *self.change.lock().unwrap() = Box::new(change);
    }

    /// When a message arrives that the fake sends now.
    fn arrival(&self) -> Instant {
        Instant::now() + *self.late.lock().unwrap()
    }
}

impl Transport for Through {
    fn session(
        &self,
        endpoint: &str,
        outbound: mpsc::Receiver<v1::ClientMessage>,
    ) -> Opening<v1::ServerMessage> {
        let (through, opening) = (self.clone(), Pipe(self.fake.clone()).session(endpoint, outbound));
        Box::pin(async move {
            let mut said = opening.await?;
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                loop {
                    let message = tokio::select! {
                        message = said.next() => message,
                        () = sender.closed() => None,
                    };
                    let Some(mut message) = message else { return };
                    message.iter_mut().for_each(|message| through.change.lock().unwrap()(message));
                    drop(sender.send((through.arrival(), message)));
                }
            });
            let arrived = UnboundedReceiverStream::new(receiver).then(|(at, message)| async move {
                sleep_until(at).await;
                message
            });
            Ok(Box::pin(arrived) as Inbound<v1::ServerMessage>)
        })
    }

    fn watch(&self, endpoint: &str, request: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        Pipe(self.fake.clone()).watch(endpoint, request)
    }
}
