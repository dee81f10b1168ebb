//! The live parts of pages, once a second as server-sent events. Whatever the number of viewers, each part is made once
//! a second for all who see the same.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;

use super::view::{Part, Shown, View};
use super::visitor::Visitor;
use super::{Web, reply};
use crate::accounts::live::second;
use crate::clock::duration;
use crate::error::{AdminError, ErrorKind};
use crate::identity::matrix::{Call, allows};
use crate::leasing::fence::{Silence, silence_of_a_member};
use crate::limits::{DRAIN_WITHIN, READ_WITHIN};

/// Time between two parts. People do not read faster; reports of nodes come once a second, too.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// Streams at once. Half of it is short for a room of screens; twice of it takes places from scrapers and tools.
const MOST: usize = 200;
/// Parts made in one second that are kept: more views than streams there cannot be.
const MOST_KEPT: usize = MOST;
/// Time after which a stream ends, and the page opens another one: so it is judged again who looks. Half of it asks for
/// nothing; twice of it shows a page for longer to those whose certificate has ended.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The data of events that say all by their names: browsers drop those without any.
const SIGN: &str = "-";

/// What tells two parts apart: the address, whose groups are seen, and what the viewer may do.
type Key = (String, Option<String>, bool, bool);

/// Parts that were made in this second.
#[derive(Default)]
pub(super) struct Fragments {
    made: Mutex<BTreeMap<Key, (u64, Arc<str>)>>,
    open: Arc<AtomicUsize>,
}

/// A stream that is counted.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Takes a place; `None` when there is none.
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let taken =
            open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < MOST).then_some(open + 1));
        taken.is_ok().then(|| Self(Arc::clone(open)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The page whose live part is asked for.
#[derive(Deserialize)]
pub(super) struct Of {
    view: String,
}

/// Sends the live part of a page.
pub(super) async fn stream(State(web): State<Arc<Web>>, visitor: Visitor, Query(of): Query<Of>) -> Response {
    let (path, query) = of.view.split_once('?').unwrap_or((&of.view, ""));
    let Some(view) = View::parse(path, query) else {
        let error = AdminError::NotFound { what: format!("a live page {}", crate::quantity::cut(&of.view)) };
        return reply::refused(&error, &visitor.viewer);
    };
    // Who may open a stream may not see each page.
    let role = visitor.identity().map(|identity| identity.role);
    if web.guard.is_some() && !allows(role, Call::Rest("GET", view.route())) {
        let error = AdminError::Refused { message: "your role may not see this page".to_owned() };
        return (StatusCode::FORBIDDEN, reply::refused(&error, &visitor.viewer)).into_response();
    }
    let Some(place) = Counted::take(&web.live.open) else {
        let message = format!("{MOST} live pages are open, and no more can be; close one");
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    // A part waits until the one before is taken.
    let (send, parts) = mpsc::channel(1);
    tokio::spawn(follow(web, visitor, view, of.view, place, send));
    Sse::new(ReceiverStream::new(parts)).into_response()
}

/// Sends parts until the page is gone, or what its viewer has shown is over. What is not read holds up none of these.
async fn follow(
    web: Arc<Web>,
    visitor: Visitor,
    view: View,
    address: String,
    _place: Counted,
    to: mpsc::Sender<Result<Event, Infallible>>,
) {
    let mut stopped = web.stopped.clone();
    let is_over = tokio::select! {
        () = parts(&web, &visitor, &view, &address, &to) => false,
        () = visitor.ends(&web) => true,
        _ = stopped.wait_for(|stopped| *stopped) => false,
        () = tokio::time::sleep(LONGEST) => false,
        () = to.closed() => false,
    };
    if is_over {
        // A page that does not read it asks again once it does, and is told then.
        let _ = timeout(duration(DRAIN_WITHIN), to.send(Ok(gone()))).await;
    }
}

/// Makes and sends parts as long as there are any and they are read.
async fn parts(
    web: &Arc<Web>,
    visitor: &Visitor,
    view: &View,
    address: &str,
    to: &mpsc::Sender<Result<Event, Infallible>>,
) {
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<Arc<str>> = None;
    loop {
        tick.tick().await;
        if silence_of_a_member(&web.service).is_some_and(Silence::may_have_successor) {
            // The page says how old its figures are, and its next one is refused.
            continue;
        }
        let made = {
            let (web, visitor, view, address) =
                (Arc::clone(web), visitor.clone(), view.clone(), address.to_owned());
            tokio::task::spawn_blocking(move || web.part(&visitor, &view, address)).await
        };
        let (event, is_last) = match made {
            Ok(Ok(part)) => {
                // The same again is a sign of life only.
                let is_same = before.as_ref().is_some_and(|before| *before == part);
                let event = Event::default();
                let event =
                    if is_same { event.event("same").data(SIGN) } else { event.event("part").data(&*part) };
                before = Some(part);
                (event, false)
            }
            // The page says how old its figures are until the store can be read again.
            Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => continue,
            // A group that was deleted.
            Ok(Err(_)) => (gone(), true),
            Err(error) => {
                tracing::error!(%error, "a live page failed");
                return;
            }
        };
        let sent = timeout(duration(READ_WITHIN), to.send(Ok(event))).await;
        if is_last || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// The page follows nothing any more.
fn gone() -> Event {
    Event::default().event("gone").data(SIGN)
}

impl Web {
    /// The live part of a view, made once in a second.
    fn part(&self, visitor: &Visitor, view: &View, address: String) -> Result<Arc<str>, AdminError> {
        let second = second(self.service.clock().now());
        let viewer = &visitor.viewer;
        let key = (address, visitor.tenant().map(str::to_owned), viewer.may_see_all, viewer.may_change);
        // Held while it is made: who waits wants the same, or would wait for a processor.
        let mut made = self.live.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, part)) = made.get(&key).filter(|(of, _)| *of == second) {
            return Ok(Arc::clone(part));
        }
        let part: Arc<str> = match view.show(self, visitor, Part::Live)? {
            Shown::Markup(markup) => markup.into_string().into(),
            Shown::Csv(..) => Arc::default(),
        };
        made.retain(|_, (of, _)| *of == second);
        if made.len() < MOST_KEPT {
            made.insert(key, (second, Arc::clone(&part)));
        }
        Ok(part)
    }
}
