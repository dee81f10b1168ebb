//! Tells one webhook, in a task of its own: what waits for it, a delivery at a time, again until it arrives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::delivery::{self, Told};
use super::message;
use super::queue::{Batch, Entry, Queue};
use super::settings::Webhook;
use crate::clock::Clock;
use crate::metrics::Metrics;

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
        let told = self.post(batch).await;
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
        let id = format!("{:016x}-{}-{}", self.instance, self.settings.name, batch.number);
        let events = batch.entries.into_iter().map(|entry| entry.json).collect();
        let body = message::body(&id, &self.controller, events);
        delivery::send(&self.settings, &id, body, self.clock.unix_ms() / 1_000).await
    }
}

#[cfg(test)]
mod tests;
