//! The `Admin` service.

use std::sync::Arc;

use tidegate_proto::v1;
use tidegate_proto::v1::admin_server::Admin;
use tonic::{Request, Response, Status};

use super::grants::Answers;
use super::{Stopping, actor, admin_status, backup, blocking, by, check_given, convert};
use crate::accounts::proposed::begun;
use crate::definitions::bindings::Principal;
use crate::error::AdminError;
use crate::identity::guard;
use crate::message;
use crate::quantity::{rate_text, total_text};
use crate::service::{Service, UsageRow};

/// The adapter.
pub(crate) struct AdminAdapter {
    pub(super) service: Arc<Service>,
    pub(super) stopping: Stopping,
}

impl AdminAdapter {
    /// Runs one blocking call of the service.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Service) -> Result<T, AdminError> + Send + 'static,
    ) -> Result<T, Status> {
        let service = Arc::clone(&self.service);
        blocking(move || call(&service)).await
    }
}

fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Status> {
    value.ok_or_else(|| Status::invalid_argument(format!("{field}: is missing")))
}

fn reply<T>(message: T) -> Result<Response<T>, Status> {
    Ok(Response::new(message))
}

fn usage_row(row: UsageRow) -> v1::UsageRow {
    let (client, incarnation) = row.client.unwrap_or_default();
    v1::UsageRow {
        group: row.group.to_string(),
        client,
        incarnation,
        live_ru_per_sec: rate_text(row.live),
        total: Some(convert::consumption(&row.total)),
        apart_ru: total_text(row.apart.ru()),
    }
}

#[tonic::async_trait]
impl Admin for AdminAdapter {
    type BackupStream = Answers<v1::BackupPart>;

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        backup::check_peer(request.remote_addr())?;
        let stopping = self.stopping.of(request.extensions());
        reply(backup::stream(stopping, Arc::clone(&self.service), actor(&request)))
    }

    async fn create_group(
        &self,
        request: Request<v1::CreateGroupRequest>,
    ) -> Result<Response<v1::GroupReply>, Status> {
        let actor = actor(&request);
        let message = request.into_inner();
        let group = required(message.group, "group")?;
        let created = self
            .call(move |service| service.definitions().create_group(&actor, &group, message.if_not_exists))
            .await?;
        reply(message::group_reply(created))
    }

    async fn alter_group(
        &self,
        request: Request<v1::AlterGroupRequest>,
    ) -> Result<Response<v1::GroupReply>, Status> {
        let actor = actor(&request);
        let message = request.into_inner();
        let group = required(message.group, "group")?;
        let (mask, expected) = (message.update_mask, message.expected_revision);
        let altered = self
            .call(move |service| service.definitions().alter_group(&actor, &group, &mask, expected))
            .await?;
        reply(message::group_reply(altered))
    }

    async fn delete_group(
        &self,
        request: Request<v1::DeleteGroupRequest>,
    ) -> Result<Response<v1::DeleteGroupReply>, Status> {
        let actor = actor(&request);
        let m = request.into_inner();
        let deleted = self
            .call(move |service| {
                service.definitions().delete_group(
                    &actor,
                    &m.name,
                    &m.force_to,
                    m.expected_revision,
                    m.if_exists,
                )
            })
            .await?;
        reply(message::deleted(deleted))
    }

    async fn get_group(
        &self,
        request: Request<v1::GetGroupRequest>,
    ) -> Result<Response<v1::GroupReply>, Status> {
        check_given(guard::of(request.extensions()), &request.get_ref().name)?;
        let (caller, message) = by(request);
        let found = self.service.definitions().seen_by(caller.as_deref()).group(&message.name);
        let found = found.map_err(admin_status)?;
        reply(message::group_reply(found))
    }

    async fn list_groups(
        &self,
        request: Request<v1::ListGroupsRequest>,
    ) -> Result<Response<v1::ListGroupsReply>, Status> {
        let (caller, m) = by(request);
        let page = self.service.definitions().seen_by(caller.as_deref()).groups(&m.after, m.limit);
        reply(message::groups_reply(page.map_err(admin_status)?))
    }

    async fn bind(&self, request: Request<v1::BindRequest>) -> Result<Response<v1::BindReply>, Status> {
        let actor = actor(&request);
        let b = required(request.into_inner().binding, "binding")?;
        let bound = self
            .call(move |service| service.definitions().bind(&actor, &b.tenant, &b.user, &b.group))
            .await?;
        reply(message::bind_reply(bound))
    }

    async fn unbind(&self, request: Request<v1::UnbindRequest>) -> Result<Response<v1::UnbindReply>, Status> {
        let actor = actor(&request);
        let message = request.into_inner();
        let removed = self
            .call(move |service| service.definitions().unbind(&actor, &message.tenant, &message.user, None))
            .await?;
        reply(v1::UnbindReply { removed })
    }

    async fn list_bindings(
        &self,
        request: Request<v1::ListBindingsRequest>,
    ) -> Result<Response<v1::ListBindingsReply>, Status> {
        let (caller, m) = by(request);
        let from_start = m.after_tenant.is_empty() && m.after_user.is_empty();
        let after = if from_start { None } else { Some(Principal::parse(&m.after_tenant, &m.after_user)) };
        let after = after.transpose().map_err(admin_status)?;
        let seen = self.service.definitions().seen_by(caller.as_deref());
        let (bound, more) = seen.bindings(&m.group, after.as_ref(), m.limit).map_err(admin_status)?;
        reply(message::bindings_reply(&bound, more))
    }

    async fn resolve(
        &self,
        request: Request<v1::ResolveRequest>,
    ) -> Result<Response<v1::ResolveReply>, Status> {
        let message = request.into_inner();
        let resolved =
            self.service.definitions().resolve(&message.tenant, &message.user).map_err(admin_status)?;
        reply(message::resolve_reply(resolved))
    }

    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Result<Response<v1::ApplyReply>, Status> {
        let actor = actor(&request);
        let wish = request.into_inner();
        let applied = self.call(move |service| service.definitions().apply(&actor, &wish)).await?;
        reply(message::apply_reply(applied))
    }

    async fn put_cost_table(
        &self,
        request: Request<v1::PutCostTableRequest>,
    ) -> Result<Response<v1::CostTables>, Status> {
        let actor = actor(&request);
        let m = request.into_inner();
        let costs =
            self.call(move |service| service.definitions().put_cost_table(&actor, &m.role, m.table)).await?;
        reply(message::cost_tables(&costs))
    }

    async fn get_cost_tables(
        &self,
        _: Request<v1::GetCostTablesRequest>,
    ) -> Result<Response<v1::CostTablesReply>, Status> {
        reply(message::cost_tables_reply(&self.service.definitions().cost_tables()))
    }

    async fn usage(&self, request: Request<v1::UsageRequest>) -> Result<Response<v1::UsageReply>, Status> {
        let (caller, message) = by(request);
        let seen = self.service.accounts().seen_by(caller.as_deref());
        let (rows, truncated) = seen.usage(&message.group, message.per_client).map_err(admin_status)?;
        reply(v1::UsageReply { rows: rows.into_iter().map(usage_row).collect(), truncated })
    }

    async fn usage_history(
        &self,
        request: Request<v1::UsageHistoryRequest>,
    ) -> Result<Response<v1::UsageHistoryReply>, Status> {
        let (caller, wish) = by(request);
        let answer =
            self.call(move |service| service.accounts().seen_by(caller.as_deref()).history_of(&wish));
        let (points, groups) = answer.await?;
        let points = points.into_iter().map(|(start_unix_s, length_s, amount)| v1::HistoryPoint {
            start_unix_s,
            length_s,
            amount: Some(convert::consumption(&amount)),
        });
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        reply(v1::UsageHistoryReply { points: points.collect(), groups })
    }

    async fn what_if(
        &self,
        request: Request<v1::WhatIfRequest>,
    ) -> Result<Response<v1::WhatIfReply>, Status> {
        let (caller, wish) = by(request);
        let answer = self.call(move |service| service.accounts().seen_by(caller.as_deref()).what_if(&wish));
        reply(answer.await?)
    }

    async fn put_proposal(
        &self,
        request: Request<v1::PutProposalRequest>,
    ) -> Result<Response<v1::ProposalReply>, Status> {
        let actor = actor(&request);
        let v1::PutProposalRequest { group, update_mask, expected_revision } = request.into_inner();
        let group = required(group, "group")?;
        let proposed = self.call(move |service| {
            service.definitions().put_proposal(&actor, &group, &update_mask, expected_revision)
        });
        reply(begun(proposed.await?))
    }

    async fn get_proposal(
        &self,
        request: Request<v1::GetProposalRequest>,
    ) -> Result<Response<v1::ProposalReply>, Status> {
        let v1::GetProposalRequest { group } = request.into_inner();
        reply(self.call(move |service| service.accounts().proposal(&group)).await?)
    }

    async fn list_proposals(
        &self,
        _: Request<v1::ListProposalsRequest>,
    ) -> Result<Response<v1::ListProposalsReply>, Status> {
        reply(v1::ListProposalsReply { proposals: self.service.definitions().proposals() })
    }

    async fn apply_proposal(
        &self,
        request: Request<v1::ApplyProposalRequest>,
    ) -> Result<Response<v1::GroupReply>, Status> {
        let actor = actor(&request);
        let v1::ApplyProposalRequest { group, expected_id } = request.into_inner();
        let altered =
            self.call(move |service| service.definitions().apply_proposal(&actor, &group, expected_id));
        reply(message::group_reply(altered.await?))
    }

    async fn delete_proposal(
        &self,
        request: Request<v1::DeleteProposalRequest>,
    ) -> Result<Response<v1::DeleteProposalReply>, Status> {
        let actor = actor(&request);
        let v1::DeleteProposalRequest { group } = request.into_inner();
        let deleted = self.call(move |service| service.definitions().delete_proposal(&actor, &group)).await?;
        reply(v1::DeleteProposalReply { deleted })
    }

    async fn list_clients(
        &self,
        _: Request<v1::ListClientsRequest>,
    ) -> Result<Response<v1::ListClientsReply>, Status> {
        reply(message::clients_reply(self.service.leasing().clients()))
    }

    async fn forget_client(
        &self,
        request: Request<v1::ForgetClientRequest>,
    ) -> Result<Response<v1::ForgetClientReply>, Status> {
        let actor = actor(&request);
        let v1::ForgetClientRequest { client, mut clients } = request.into_inner();
        if clients.is_empty() || !client.is_empty() {
            clients.insert(0, client);
        }
        let counts = self.call(move |service| service.accounts().forget_clients(&actor, &clients)).await?;
        reply(message::forget_reply(&counts))
    }

    async fn list_leases(
        &self,
        request: Request<v1::ListLeasesRequest>,
    ) -> Result<Response<v1::ListLeasesReply>, Status> {
        let (caller, message) = by(request);
        let table = self.service.leasing().seen_by(caller.as_deref()).leases(&message.group);
        reply(message::leases_reply(table.map_err(admin_status)?))
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenReply>, Status> {
        let actor = actor(&request);
        let wish = request.into_inner();
        let (token, secret) = self.call(move |service| service.tokens().create(&actor, &wish)).await?;
        reply(v1::CreateTokenReply { token: Some(token.message()), secret: secret.reveal().to_owned() })
    }

    async fn list_tokens(
        &self,
        request: Request<v1::ListTokensRequest>,
    ) -> Result<Response<v1::ListTokensReply>, Status> {
        let v1::ListTokensRequest { after, limit } = request.into_inner();
        reply(self.service.tokens().list(after, limit).map_err(admin_status)?)
    }

    async fn revoke_token(
        &self,
        request: Request<v1::RevokeTokenRequest>,
    ) -> Result<Response<v1::RevokeTokenReply>, Status> {
        let actor = actor(&request);
        let v1::RevokeTokenRequest { id, force } = request.into_inner();
        let token = self.call(move |service| service.tokens().revoke(&actor, id, force)).await?;
        reply(v1::RevokeTokenReply { token: Some(token.message()) })
    }

    async fn list_controllers(
        &self,
        _: Request<v1::ListControllersRequest>,
    ) -> Result<Response<v1::ListControllersReply>, Status> {
        reply(self.service.cluster().list().map_err(admin_status)?)
    }

    async fn drain_controller(
        &self,
        request: Request<v1::DrainControllerRequest>,
    ) -> Result<Response<v1::DrainControllerReply>, Status> {
        let actor = actor(&request);
        let wish = request.into_inner();
        reply(self.call(move |service| service.cluster().drain(&actor, &wish)).await?)
    }

    async fn forget_controller(
        &self,
        request: Request<v1::ForgetControllerRequest>,
    ) -> Result<Response<v1::ForgetControllerReply>, Status> {
        let actor = actor(&request);
        let name = request.into_inner().controller;
        reply(self.call(move |service| service.cluster().forget(&actor, &name)).await?)
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        reply(message::status(self.service.status()))
    }

    async fn audit_log(
        &self,
        request: Request<v1::AuditLogRequest>,
    ) -> Result<Response<v1::AuditLogReply>, Status> {
        let message = request.into_inner();
        let entries = self
            .call(move |service| {
                service.definitions().audit_log(&message.group, message.before_id, message.limit)
            })
            .await?;
        reply(v1::AuditLogReply { entries })
    }
}
