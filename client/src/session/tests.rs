//! What the session leaves of groups that fell asleep.

use std::time::Duration;

use tidegate_proto::v1::client_message::Kind as Said;
use tidegate_proto::v1::server_message::Kind as Reply;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::*;
use crate::client::Client;
use crate::transport::Opening;

/// A controller under which all groups are free.
struct Free;

fn reply(said: Said) -> Reply {
    let granted = |renew: v1::Renew| {
        let entries = renew.entries.into_iter().map(|entry| v1::GrantEntry {
            group: entry.group,
            status: v1::GrantStatus::Unlimited.into(),
            ttl_us: 60_000_000,
            renew_after_us: 1_000_000,
            ..v1::GrantEntry::default()
        });
        v1::Granted {
            seq: renew.seq,
            epoch: 1,
            durable_seq: renew.seq,
            entries: entries.collect(),
            ..Default::default()
        }
    };
    match said {
        Said::Hello(_) => Reply::Welcome(v1::Welcome { protocol: 1, epoch: 1, ..v1::Welcome::default() }),
        Said::Renew(renew) => Reply::Granted(granted(renew)),
        Said::Goodbye(goodbye) => {
            Reply::Farewell(v1::Farewell { seq: goodbye.seq, ..v1::Farewell::default() })
        }
    }
}

impl Transport for Free {
    fn session(&self, _: &str, outbound: mpsc::Receiver<v1::ClientMessage>) -> Opening<v1::ServerMessage> {
        let replies = ReceiverStream::new(outbound).filter_map(|message| message.kind).map(reply);
        let messages = replies.map(|kind| Ok(v1::ServerMessage { kind: Some(kind) }));
        Box::pin(async { Ok(Box::pin(messages) as Inbound<v1::ServerMessage>) })
    }

    fn watch(&self, _: &str, _: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        Box::pin(async { Err(Status::unavailable("there is nothing to watch")) })
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_group_that_fell_asleep_and_that_nobody_holds_only_its_memory_is_left() {
    let second = Duration::from_secs(1);
    let client = Client::builder(["free"], "node-1").idle_after(second).transport(Free).start().unwrap();
    let [held, left] = ["held", "left"].map(|name| client.group_now(name).unwrap());
    for group in [&held, &left] {
        drop(group.acquire(tidegate_core::units::Ru(5), second).await.unwrap());
    }
    let gone = Arc::downgrade(&left.cell);
    drop(left);
    tokio::time::sleep(20 * second).await;
    assert_eq!(client.stats().awake, 0);
    assert!(client.hub().registry.get("left").is_none() && gone.upgrade().is_none());
    assert!(client.hub().registry.get("held").is_some_and(|cell| Arc::ptr_eq(&cell, &held.cell)));
    assert_eq!(client.group_now("left").unwrap().consumption().ru(), tidegate_core::units::RuTotal(5));
}
