//! The web console: routes, who looks, and what is gathered for its pages. The pages themselves are
//! `tidegate-console`.
//!
//! `admission` lets a request in, by a session of the console's own login or by what the guard knows; `view` is an
//! address of a page that follows the present, `gather` reads what it shows, `live` sends it once a second; `pages` are
//! the other pages; `editing`, `proposing` and `changing` are what people change there, each by one call of a room, as an
//! adapter does, and `replaying` what a change would have met.

mod admission;
mod changing;
mod editing;
mod forms;
mod gather;
mod live;
mod pages;
mod proposing;
mod replaying;
mod reply;
mod sampling;
mod session;
mod typed;
mod view;
mod visitor;

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tidegate_console::link::ROOT;
use tidegate_console::samples::Recent;
use tokio::sync::watch as flag;

use crate::identity::guard::Guard;
use crate::leasing::proof::key_for;
use crate::service::Service;

pub(crate) use sampling::sample;

/// Bytes of a form: each field of a definition at its longest, several times over.
const MAX_FORM_BYTES: usize = 64 * 1024;

/// The console of one controller.
pub(crate) struct Web {
    service: Arc<Service>,
    /// `None` while the controller asks nobody who they are.
    guard: Option<Arc<Guard>>,
    forms: forms::Forms,
    sessions: session::Sessions,
    recent: Mutex<Recent>,
    shared: gather::Shared,
    live: live::Fragments,
    /// Whether the listener speaks TLS.
    is_secure: bool,
    stopped: flag::Receiver<bool>,
}

impl Web {
    pub(crate) fn new(
        service: Arc<Service>,
        guard: Option<Arc<Guard>>,
        is_secure: bool,
        stopped: flag::Receiver<bool>,
    ) -> Arc<Self> {
        let forms = forms::Forms::new(key_for(&service, "forms of the console"));
        Arc::new(Self {
            service,
            guard,
            forms,
            sessions: session::Sessions::default(),
            recent: Mutex::default(),
            shared: gather::Shared::default(),
            live: live::Fragments::default(),
            is_secure,
            stopped,
        })
    }

    /// The last seconds, which every holder of the lock leaves whole.
    fn recent(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The routes of the console. The matrix has a row for each.
pub(crate) fn router(web: &Arc<Web>) -> Router {
    let routes = Router::new()
        // A person who types the address of the listener.
        .route("/", get(|| async { reply::on_to(ROOT) }))
        .route("/console", get(pages::viewed))
        .route("/console/groups", get(pages::viewed))
        .route("/console/groups/new", get(editing::empty).post(editing::create))
        .route("/console/groups/{name}", get(pages::viewed))
        .route("/console/groups/{name}/edit", get(editing::filled).post(editing::alter))
        .route("/console/groups/{name}/delete", get(changing::doomed).post(changing::delete))
        .route("/console/groups/{name}/proposal", get(proposing::shown).post(proposing::decide))
        .route("/console/check", post(editing::check))
        .route("/console/what-if", post(replaying::what_if))
        .route("/console/bind", post(changing::bind))
        .route("/console/unbind", post(changing::unbind))
        .route("/console/statements", get(pages::statements))
        .route("/console/statements/{group}/{fingerprint}", get(pages::statement))
        .route("/console/watches", post(changing::watch))
        .route("/console/unwatch", post(changing::unwatch))
        .route("/console/nodes", get(pages::viewed))
        .route("/console/prices", get(pages::prices))
        .route("/console/audit", get(pages::audit))
        .route("/console/live", get(live::stream))
        .route("/console/login", get(pages::login).post(admission::log_in))
        .route("/console/logout", post(admission::log_out))
        .route("/console/assets/{file}", get(pages::asset));
    routes
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(from_fn_with_state(Arc::clone(web), admission::admit))
        .with_state(Arc::clone(web))
}
