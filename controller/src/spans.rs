//! Spans of the controller: renewals, and commits of the store. Without a collector, either costs a branch.
//!
//! The header `traceparent` of a call of REST or gRPC names the caller's place in a trace: commits that the call makes
//! are below it, on whatever thread they run. A stream of renewals outlives any trace, so each renewal begins its own.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use tidegate_core::exchange::Grant;
use tidegate_core::group::ClientId;
use tidegate_core::units::Span as Time;
use tidegate_traces::{Context, Kind, Open, Span};

use crate::metrics::units;
use crate::service::{Answer, RenewIn, Renewed, Service, SessionError};
use crate::store::{StoreError, Write};

tokio::task_local! {
    /// Who asked for what this task does.
    static CALLER: Context;
}

thread_local! {
    /// Who asked for the blocking call that this thread does.
    static HERE: Cell<Option<Context>> = const { Cell::new(None) };
}

/// The thread's caller, until this is dropped.
struct Here;

impl Drop for Here {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

/// These routes, whose calls know their callers; as they are where no spans are recorded.
pub(crate) fn called(routes: Router, service: &Service) -> Router {
    let Some(traces) = service.beside().traces.get().cloned().map(Arc::new) else { return routes };
    routes.layer(from_fn(move |request: Request, next: Next| {
        let caller = traces.caller_of(request.headers());
        async move {
            match caller {
                Some(caller) => CALLER.scope(caller, next.run(request)).await,
                None => next.run(request).await,
            }
        }
    }))
}

/// A blocking call that knows on its thread who asked for it.
pub(crate) fn carried<T>(call: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let caller = CALLER.try_with(|caller| *caller).ok();
    move || {
        let _here = caller.map(|caller| {
            HERE.set(Some(caller));
            Here
        });
        call()
    }
}

/// The span of a commit that begins now, if it is recorded.
pub(crate) fn commit(service: &Service) -> Option<Open> {
    let traces = service.beside().traces.get()?;
    traces.begin(HERE.get(), service.clock().unix_us())
}

/// Ends it.
pub(crate) fn committed(open: Open, batch: &[Write], took: Time, failed: Option<&StoreError>) {
    let tables: BTreeSet<_> = batch.iter().map(Write::table).collect();
    let span = Span::new("store commit", Kind::Internal)
        .with("db.system.name", "redb")
        .with("db.operation.name", "COMMIT")
        .with("tidegate.store.rows", batch.len())
        .with("tidegate.store.tables", tables.len());
    let span = match failed {
        None => span,
        Some(error) => span.failed("store", error.to_string()),
    };
    open.end(span, took.0);
}

/// Answers a renewal, in a span of its own if that is recorded.
pub(crate) fn renew(
    service: &Service,
    client: ClientId,
    session: u64,
    request: RenewIn,
) -> Result<Renewed, SessionError> {
    let traces = service.beside().traces.get();
    let Some(open) = traces.and_then(|traces| traces.begin(None, service.clock().unix_us())) else {
        return service.leasing().renew(client, session, request);
    };
    let began = service.clock().now();
    let (entries, reports) = (request.entries.len(), request.reports.len());
    let renewed = service.leasing().renew(client, session, request);
    let took = service.clock().now().since(began);
    let node = service.lock().leasing.clients().identity(client).map(|(name, _)| name);
    let span = Span::new("renewal", Kind::Server)
        .with("tidegate.node", node.unwrap_or_default())
        .with("tidegate.groups", entries)
        .with("tidegate.reports", reports);
    let span = match &renewed {
        Ok(renewed) => granted(span, renewed),
        Err(error) => span.failed("session", error.to_string()),
    };
    open.end(span, took.0);
    renewed
}

/// What was granted, in sum.
fn granted(span: Span, renewed: &Renewed) -> Span {
    let (mut leases, mut refused, mut rate, mut tokens) = (0_u64, 0_u64, 0_i64, 0_i64);
    for entry in &renewed.entries {
        match &entry.answer {
            Answer::Grant(Grant::Leased(terms), _) => {
                leases = leases.saturating_add(1);
                rate = rate.saturating_add(terms.rate.0);
                tokens = tokens.saturating_add(terms.fill.0).saturating_add(terms.lump.0);
            }
            Answer::Grant(Grant::Unlimited { .. }, _) => leases = leases.saturating_add(1),
            Answer::Grant(Grant::UnknownGroup | Grant::Recovering { .. }, _) => {}
            Answer::Refused(_) => refused = refused.saturating_add(1),
        }
    }
    span.with("tidegate.leases", leases)
        .with("tidegate.ru.granted", units(tokens))
        .with("tidegate.ru_per_second.granted", units(rate))
        .with("tidegate.groups.refused", refused)
        .with("tidegate.reports.refused", renewed.refused.len())
        .with("tidegate.renewal.shed", renewed.shed)
}
