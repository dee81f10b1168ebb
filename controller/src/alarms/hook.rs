//! Tells one webhook, in a task of its own: what waits for it, a delivery at a time, again until it arrives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use http::{Request, StatusCode, header};
use serde_json::Value;
use tidegate_tls::ClientFiles;
use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout};

use super::message;
use super::queue::{Batch, Entry, Queue};
use super::settings::{Webhook, secret};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::outgoing;

/// Time for one try, from connecting to the head of the answer. Half of it is short for a receiver that is far away or
/// starts; twice of it only waits for one that hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The same in words.
const NO_ANSWER: &str = "no answer within 10 s";

/// A webhook and what waits for it.
pub(super) struct Hook {
    pub(super) settings: Webhook,
    queue: Mutex<Queue>,
    /// Why the last try failed.
    fault: Mutex<Option<String>>,
    wake: Notify,
    /// Which start of the controller this is, in the ids of deliveries, and how bodies show it.
    instance: u64,
    controller: Value,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// What came of a try.
enum Told {
    Arrived,
    /// The receiver does not take this body, and would not if it came again.
    Refused(String),
    Failed(String),
}

impl Hook {
    pub(super) fn new(
        settings: Webhook,
        (instance, controller): (u64, Value),
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (queue, fault, wake) = (Mutex::default(), Mutex::default(), Notify::new());
        Self { settings, queue, fault, wake, instance, controller, clock, metrics }
    }

    /// Adds messages, and wakes the task.
    pub(super) fn push(&self, entries: impl Iterator<Item = Entry>) {
        let mut queue = self.queue();
        let dropped: usize = entries.map(|entry| queue.push(entry)).sum();
        self.metrics.alarms.queued(&self.settings.name, queue.len());
        drop(queue);
        if dropped > 0 {
            self.metrics.alarms.dropped(&self.settings.name, dropped);
            tracing::warn!(webhook = %self.settings.name, dropped, "the queue of a webhook is full");
        }
        self.wake.notify_one();
    }

    /// Why the last try failed; `None` when it did not.
    pub(super) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Messages that are not delivered.
    pub(super) fn waiting(&self) -> usize {
        self.queue().len()
    }

    /// Delivers for ever.
    pub(super) async fn deliver(&self) {
        loop {
            match self.next() {
                None => self.wake.notified().await,
                Some(batch) if batch.due > self.clock.now() => {
                    sleep_until(self.clock.instant(batch.due)).await
                }
                Some(batch) => {
                    self.attempt(batch).await;
                }
            }
        }
    }

    /// Tries once to deliver each message that waits, until one try fails.
    pub(super) async fn deliver_last(&self) {
        while let Some(batch) = self.next() {
            if !self.attempt(batch).await {
                return;
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Batch> {
        let mut queue = self.queue();
        let (batch, expired) = queue.next(self.clock.now());
        self.metrics.alarms.queued(&self.settings.name, queue.len());
        drop(queue);
        if expired > 0 {
            self.metrics.alarms.dropped(&self.settings.name, expired);
            tracing::error!(webhook = %self.settings.name, expired, "messages for a webhook were not delivered in a day and are given up");
        }
        batch
    }

    /// Tries a delivery, and notes what came of it; returns whether there may be another at once.
    async fn attempt(&self, batch: Batch) -> bool {
        let told = match timeout(ANSWER_WITHIN, self.post(batch)).await {
            Ok(told) => told,
            Err(_) => Told::Failed(NO_ANSWER.to_owned()),
        };
        let mut queue = self.queue();
        match &told {
            Told::Arrived | Told::Refused(_) => queue.done(),
            Told::Failed(_) => queue.failed(self.clock.now(), rand::random()),
        }
        self.metrics.alarms.queued(&self.settings.name, queue.len());
        drop(queue);
        let (outcome, fault, goes_on) = match told {
            Told::Arrived => ("delivered", None, true),
            Told::Refused(reason) => ("refused", Some(reason), true),
            Told::Failed(reason) => ("failed", Some(reason), false),
        };
        self.metrics.alarms.tried(&self.settings.name, outcome);
        self.note(outcome, fault);
        goes_on
    }

    /// Logs a fault that is another than before, and its end.
    fn note(&self, outcome: &str, fault: Option<String>) {
        let mut known = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, host) = (&self.settings.name, &self.settings.url);
        match &fault {
            Some(reason) if *known != fault && outcome == "refused" => {
                tracing::error!(webhook = %name, %host, %reason, "a webhook refuses a delivery, which is given up");
            }
            Some(reason) if *known != fault => {
                tracing::warn!(webhook = %name, %host, %reason, "a webhook cannot be told; it is tried again");
            }
            None if known.is_some() => tracing::info!(webhook = %name, %host, "a webhook is told again"),
            _ => {}
        }
        *known = fault;
    }

    async fn post(&self, batch: Batch) -> Told {
        // A secret that was changed counts from the next try on.
        let file = self.settings.secret_file.clone();
        let secret = match tokio::task::spawn_blocking(move || secret(&file)).await {
            Ok(Ok(secret)) => secret,
            Ok(Err(reason)) => return Told::Failed(format!("secret_file: {reason}")),
            Err(error) => return Told::Failed(error.to_string()),
        };
        let delivery = format!("{:016x}-{}-{}", self.instance, self.settings.name, batch.number);
        let events = batch.entries.into_iter().map(|entry| entry.json).collect();
        let body = message::body(&delivery, &self.controller, events);
        let Some(signature) = message::signature(&secret, self.clock.unix_ms() / 1_000, &body) else {
            return Told::Failed("secret_file: no key can be made of it".to_owned());
        };
        let request = Request::post("/")
            .header(header::CONTENT_TYPE, "application/json")
            .header("tidegate-delivery", delivery)
            .header("tidegate-signature", signature);
        let files = ClientFiles { authorities: self.settings.authorities.clone(), identity: None };
        let (uri, place) = (self.settings.url.uri(), ("webhook", ANSWER_WITHIN));
        // The head of the answer says all; its body is not read.
        match outgoing::send(uri, files, place, request, Bytes::from(body)).await {
            Ok(answer) => judged(answer.response.status()),
            Err(reason) => Told::Failed(reason),
        }
    }
}

/// What a status says of a delivery.
fn judged(status: StatusCode) -> Told {
    match status {
        status if status.is_success() => Told::Arrived,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
            Told::Refused(format!("it answers {status}"))
        }
        status if status.is_redirection() => Told::Failed(format!(
            "it answers {status}: write the address that it points to (redirects are not followed)"
        )),
        status => Told::Failed(format!("it answers {status}")),
    }
}
