//! The `Statements` service: the calls of gateways and operators about statements.

use std::sync::Arc;

use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::statements_server::Statements;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::grants::Answers;
use super::reader::Reader;
use super::{
    Stopping, actor, admin_status, blocking, by, check_given, check_own, rules, statement_shapes as shapes,
};
use crate::identity::{Narrowed, guard};
use crate::message;
use crate::service::Service;

/// The adapter.
pub(crate) struct StatementsAdapter {
    pub(super) service: Arc<Service>,
    pub(super) stopping: Stopping,
}

fn reply<T>(message: T) -> Result<Response<T>, Status> {
    Ok(Response::new(message))
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[tonic::async_trait]
impl Statements for StatementsAdapter {
    type RulesStream = Answers<v1::Rules>;

    async fn rules(&self, request: Request<v1::RulesRequest>) -> Result<Response<Self::RulesStream>, Status> {
        check_own(guard::of(request.extensions()), &request.get_ref().gateway)?;
        let changes = self.service.statements().follow_rules();
        let changes = changes.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        let (peer, stream) = Reader::of(request.extensions(), &self.service.metrics);
        let stopping = self.stopping.of(request.extensions());
        let narrowed = Narrowed::to(guard::of(request.extensions()));
        let gateway = crate::quantity::cut(&request.into_inner().gateway);
        tracing::info!(gateway, "a gateway follows the rules");
        tokio::spawn(rules::serve(stopping, Arc::clone(&self.service), changes, narrowed, peer));
        reply(Box::pin(ReceiverStream::new(stream)))
    }

    async fn convict(
        &self,
        request: Request<v1::ConvictRequest>,
    ) -> Result<Response<v1::ConvictReply>, Status> {
        let identity = guard::of(request.extensions());
        let conviction = request.get_ref();
        check_own(identity, &conviction.gateway)?;
        [&conviction.group, &conviction.switch_group]
            .into_iter()
            .try_for_each(|group| check_given(identity, group))?;
        let watch = self.service.statements().convict(conviction).map_err(admin_status)?;
        reply(v1::ConvictReply { watch_id: watch.unwrap_or_default() })
    }

    async fn report_statements(
        &self,
        request: Request<v1::ReportStatementsRequest>,
    ) -> Result<Response<v1::ReportStatementsReply>, Status> {
        let (_, extensions, message) = request.into_parts();
        let identity = guard::of(&extensions);
        check_own(identity, &message.gateway)?;
        let mut report = shapes::report_in(message).map_err(admin_status)?;
        if let Some(identity) = identity {
            let before = report.rows.len();
            report.rows.retain(|row| identity.is_given(row.group.as_str()));
            (report.rows.len()..before).for_each(|_| self.service.metrics.refuse("not_given"));
        }
        self.service.statements().report_statements(report);
        reply(v1::ReportStatementsReply {})
    }

    async fn list_statements(
        &self,
        request: Request<v1::ListStatementsRequest>,
    ) -> Result<Response<v1::ListStatementsReply>, Status> {
        let (caller, m) = by(request);
        let seen = self.service.statements().seen_by(caller.as_deref());
        let list = seen.list_statements(&m).map_err(admin_status)?;
        reply(v1::ListStatementsReply {
            rows: list.rows.iter().map(shapes::row).collect(),
            total: count(list.total),
            evicted: list.evicted,
            since_unix_ms: list.since_unix_ms,
        })
    }

    async fn reset_statements(
        &self,
        request: Request<v1::ResetStatementsRequest>,
    ) -> Result<Response<v1::ResetStatementsReply>, Status> {
        let (actor, service) = (actor(&request), Arc::clone(&self.service));
        let group = request.into_inner().group;
        let removed = blocking(move || service.statements().reset_statements(&actor, &group)).await?;
        reply(message::reset_statements_reply(removed))
    }

    async fn add_watch(
        &self,
        request: Request<v1::AddWatchRequest>,
    ) -> Result<Response<v1::AddWatchReply>, Status> {
        let (actor, service) = (actor(&request), Arc::clone(&self.service));
        let v1::AddWatchRequest { watch, watch_us } = request.into_inner();
        let watch = watch.ok_or_else(|| Status::invalid_argument("watch: is missing"))?;
        let lasts = Span(watch_us);
        let added = blocking(move || service.statements().add_watch_for(&actor, &watch, lasts)).await?;
        reply(v1::AddWatchReply { watch: Some(added.text()) })
    }

    async fn remove_watch(
        &self,
        request: Request<v1::RemoveWatchRequest>,
    ) -> Result<Response<v1::RemoveWatchReply>, Status> {
        let (actor, service) = (actor(&request), Arc::clone(&self.service));
        let m = request.into_inner();
        let removed = blocking(move || service.statements().remove_watch(&actor, m.id, &m.group)).await?;
        reply(message::remove_watch_reply(removed))
    }

    async fn list_watches(
        &self,
        request: Request<v1::ListWatchesRequest>,
    ) -> Result<Response<v1::ListWatchesReply>, Status> {
        let watches = self.service.statements().watches(&request.into_inner().group).map_err(admin_status)?;
        reply(v1::ListWatchesReply { watches })
    }

    async fn list_runaways(
        &self,
        request: Request<v1::ListRunawaysRequest>,
    ) -> Result<Response<v1::ListRunawaysReply>, Status> {
        let m = request.into_inner();
        reply(self.service.statements().list_runaways(&m.group, m.limit).map_err(admin_status)?)
    }
}
