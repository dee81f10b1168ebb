//! Alarms, and the webhooks that are told of them.
//!
//! `look` reads the state of the controller once a second; `book`, which is pure, says which alarms are open and what
//! changed; `message` writes that; `queue`, pure, keeps it for each webhook until `hook`, a task of its own, has
//! delivered it. So a receiver that is slow or gone holds up nothing but its own queue.

mod book;
mod delivery;
mod hook;
mod kind;
mod look;
mod message;
mod queue;
mod settings;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use tokio::sync::watch as flag;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use book::{Book, Change, Event, MOST_OPEN, Moment, REPEAT, Thresholds};
pub use kind::{Facts, Key, Kind, Seen};
pub use settings::{AlarmSettings, Webhook, address};

use crate::clock::{Clock, duration};
use crate::limits::LAST_DELIVERIES_WITHIN;
use crate::service::Service;
use delivery::Told;
use hook::Hook;
use look::Eyes;
use queue::Entry;

/// Open alarms that the status shows: nobody reads more of them there.
const MOST_SHOWN: usize = 20;

/// All alarms, and who is told. The lock of the book is taken before that of the service.
pub(crate) struct Alarms {
    book: Mutex<(Book, Eyes)>,
    hooks: Vec<Arc<Hook>>,
}

impl Alarms {
    /// Without alarms; each webhook is told that those from before are void.
    pub(crate) fn begin(settings: AlarmSettings, service: &Service) -> Self {
        let (clock, instance) = (service.clock(), service.instance());
        let controller = json!({
            "instance": format!("{instance:016x}"),
            "epoch": service.epoch(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        let mut hooks = Vec::new();
        for webhook in settings.webhooks {
            let of = (instance, controller.clone());
            let hook = Hook::new(webhook, of, clock.clone(), Arc::clone(&service.metrics));
            let json = message::started(clock.unix_ms());
            hook.push(std::iter::once(Entry { at: clock.now(), of: None, json }));
            hooks.push(Arc::new(hook));
        }
        let book = Book::new(settings.thresholds, MOST_OPEN);
        Self { book: Mutex::new((book, Eyes::default())), hooks }
    }

    /// Looks at the state, and passes on what changed.
    pub(crate) fn look(&self, service: &Service) {
        let mut book = self.book();
        let (book, eyes) = &mut *book;
        let seen = eyes.look(service);
        let at = Moment { now: service.clock().now(), unix_ms: service.clock().unix_ms() };
        let events = book.look(at, seen);
        for kind in Kind::ALL {
            let open = book.open().filter(|(key, ..)| key.kind == kind).count();
            service.metrics.alarms.open(kind.as_str(), open);
        }
        for event in &events {
            let (alarm, change) = (event.key.id(), event.change.as_str());
            tracing::info!(%alarm, change, "{}", message::text(event.key.kind, &event.key.group, &event.facts));
        }
        if self.hooks.is_empty() {
            return;
        }
        let entries: Vec<(&Event, Entry)> =
            events.iter().map(|event| (event, entry(service, at, event))).collect();
        for hook in self.hooks.iter().filter(|_| !entries.is_empty()) {
            let wanted = entries.iter().filter(|(event, _)| hook.settings.wants(&event.key));
            hook.push(wanted.map(|(_, entry)| entry.clone()));
        }
    }

    /// Open alarms that the status does not know otherwise, and webhooks that cannot be told.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let book = self.book();
        let open = book.0.open().filter(|(key, ..)| key.kind != Kind::Recovery);
        let alarms = open.take(MOST_SHOWN).map(|(key, facts, _)| {
            format!("alarm {}: {}", key.id(), message::text(key.kind, &key.group, facts))
        });
        let failing = self.hooks.iter().filter_map(|hook| {
            let (name, waiting, fault) = (&hook.settings.name, hook.waiting(), hook.fault()?);
            Some(format!("webhook {name}: {fault}; {waiting} messages wait"))
        });
        alarms.chain(failing).collect()
    }

    /// Tells all webhooks until the flag shows a stop, and then once more, within a bounded time.
    pub(crate) fn deliver(&self, stopped: &flag::Receiver<bool>) -> Vec<JoinHandle<()>> {
        let one = |hook: &Arc<Hook>| {
            let (hook, mut stopped) = (Arc::clone(hook), stopped.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = hook.deliver() => {}
                    // An error means that the sender is gone, which is a stop, too.
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                }
                let _ = timeout(duration(LAST_DELIVERIES_WITHIN), hook.deliver_last()).await;
                let left = hook.waiting();
                if left > 0 {
                    tracing::warn!(webhook = %hook.settings.name, left, "messages for a webhook are given up at the stop");
                }
            })
        };
        self.hooks.iter().map(one).collect()
    }

    fn book(&self) -> MutexGuard<'_, (Book, Eyes)> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a webhook one message that says that it is a test, and waits for the answer.
///
/// # Errors
/// Why it did not arrive.
pub async fn try_out(webhook: &Webhook) -> Result<(), String> {
    let unix_ms = Clock::start().unix_ms();
    let id = format!("test-{}-{unix_ms}", webhook.name);
    // It is of no start of a controller.
    let controller = json!({"instance": "test", "epoch": 0, "version": env!("CARGO_PKG_VERSION")});
    let body = message::body(&id, &controller, vec![message::test(unix_ms, &webhook.name)]);
    match delivery::send(webhook, &id, body, unix_ms / 1_000).await {
        Told::Arrived => Ok(()),
        Told::Refused(reason) | Told::Failed(reason) => Err(reason),
    }
}

/// The message of what happened to an alarm.
fn entry(service: &Service, at: Moment, event: &Event) -> Entry {
    let is_asked = event.key.kind == Kind::Throttled && event.change != Change::Resolved;
    let why = is_asked.then(|| look::why(service, &event.key)).flatten();
    let of = Some((event.change, event.key.id()));
    Entry { at: at.now, of, json: message::changed(event, why.as_ref()) }
}
