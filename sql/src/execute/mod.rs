//! Does a statement: checks what the session may, calls the controller, makes the answer.

mod binding;
mod group;
mod proposal;
mod watch;

use tonic::transport::Channel;

use crate::answer::{Answer, Table};
use crate::context::Context;
use crate::controller::Controller;
use crate::error::SqlError;
use crate::statement::Statement;
use crate::tables::{load, query};

/// Does `statement` on behalf of `context`, through a channel to the controller.
///
/// It refuses [`Statement::ExplainRu`], which only a gateway in front of the database can run.
pub async fn execute(channel: Channel, statement: &Statement, context: &Context) -> Result<Answer, SqlError> {
    permit(statement, context)?;
    let controller = Controller::new(channel, context);
    match statement {
        Statement::CreateGroup { group, if_not_exists } => {
            group::create(&controller, group, *if_not_exists).await
        }
        Statement::AlterGroup { group, fields, if_exists } => {
            group::alter(&controller, group, fields, *if_exists).await
        }
        Statement::Propose { group, fields } => proposal::propose(&controller, group, fields).await,
        Statement::ApplyProposal { name } => proposal::apply(&controller, name).await,
        Statement::WithdrawProposal { name } => proposal::withdraw(&controller, name).await,
        Statement::ShowProposal { name } => proposal::show(&controller, name).await.map(Answer::Table),
        Statement::DropGroup { name, if_exists } => group::delete(&controller, name, *if_exists).await,
        Statement::ShowCreateGroup { name } => {
            group::show_create(&controller, name, context.dialect).await.map(Answer::Table)
        }
        Statement::ShowGroups => group::show_all(&controller, context).await.map(Answer::Table),
        Statement::SetGroup { name } => group::set(&controller, name).await.map(Answer::Session),
        Statement::CurrentGroup { column } => {
            Ok(Answer::Table(Table::of_texts([(column, context.group.clone())])))
        }
        Statement::Bind { principal, group } => binding::bind(&controller, principal, group).await,
        Statement::AddWatch { group, action, switch_group, watched, watch_us } => {
            let asked =
                watch::Asked { group: group.as_deref(), action, switch_group, watched, watch_us: *watch_us };
            watch::add(&controller, asked, context).await.map(Answer::Table)
        }
        Statement::RemoveWatch { id } => watch::remove(&controller, *id).await,
        Statement::RemoveWatches { group } => watch::remove_all(&controller, group).await,
        Statement::ResetStatements => watch::reset_statements(&controller).await,
        Statement::Select(select) => {
            let (contents, notes) = load(&controller, select.tables()).await?;
            query(select.clone(), contents, notes, context.group.clone()).await.map(Answer::Table)
        }
        Statement::ExplainRu(_) => {
            let instead = "it runs on a database; send it through a gateway";
            Err(SqlError::unsupported("EXPLAIN RU", instead))
        }
    }
}

/// Refuses what the session may not do.
fn permit(statement: &Statement, context: &Context) -> Result<(), SqlError> {
    let (allowed, what, needs) = match statement {
        Statement::ShowCreateGroup { .. }
        | Statement::ShowGroups
        | Statement::CurrentGroup { .. }
        | Statement::ExplainRu(_) => return Ok(()),
        Statement::SetGroup { .. } => (
            context.may_switch,
            "change the resource group of the session",
            "the gateway's configuration says who may, or ask an administrator to bind the user to the group",
        ),
        // Nothing but the session's own group is read.
        Statement::Select(select) if select.tables().is_empty() => return Ok(()),
        Statement::Select(_) | Statement::ShowProposal { .. } => {
            (false, "read tidegate's tables", "an administrator of tidegate may")
        }
        _ => (false, "change resource groups, bindings or watches", "an administrator of tidegate may"),
    };
    if allowed || context.is_admin {
        return Ok(());
    }
    Err(SqlError::Denied {
        user: if context.user.is_empty() { "this session".to_owned() } else { context.user.clone() },
        what: what.to_owned(),
        needs: needs.to_owned(),
    })
}
