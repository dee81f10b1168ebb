//! A change that is proposed: stored, shown beside what is in force, made, and withdrawn.

use tidegate_proto::v1;

use super::group::warnings;
use crate::answer::{Answer, Table};
use crate::controller::{Controller, missing};
use crate::error::SqlError;
use crate::print::changes_text;
use crate::tables::{compared, date_text};

pub(super) async fn propose(
    controller: &Controller,
    group: &v1::Group,
    fields: &[&'static str],
) -> Result<Answer, SqlError> {
    let request = v1::PutProposalRequest {
        group: Some(group.clone()),
        update_mask: fields.iter().map(|field| (*field).to_owned()).collect(),
        expected_revision: 0,
    };
    let reply = controller.admin().put_proposal(request).await?.into_inner();
    Ok(Answer::Done { affected: 1, notes: notes(reply.notes) })
}

pub(super) async fn apply(controller: &Controller, name: &str) -> Result<Answer, SqlError> {
    let request = v1::ApplyProposalRequest { group: name.to_owned(), expected_id: 0 };
    let reply = controller.admin().apply_proposal(request).await?.into_inner();
    Ok(Answer::Done { affected: 1, notes: warnings(reply.warnings) })
}

pub(super) async fn withdraw(controller: &Controller, name: &str) -> Result<Answer, SqlError> {
    let request = v1::DeleteProposalRequest { group: name.to_owned() };
    let reply = controller.admin().delete_proposal(request).await?.into_inner();
    if reply.deleted {
        return Ok(Answer::done(1));
    }
    Ok(Answer::note(format!("note: nothing was proposed for resource group {name}")))
}

/// Both settings, each as if operations had come evenly and as if all had come at once.
pub(super) async fn show(controller: &Controller, name: &str) -> Result<Table, SqlError> {
    let request = v1::GetProposalRequest { group: name.to_owned() };
    let reply = controller.admin().get_proposal(request).await?.into_inner();
    let proposal = reply.proposal.ok_or_else(|| missing("the proposal"))?;
    let group = proposal.group.unwrap_or_default();
    let mut said = vec![format!(
        "note: proposed for {name}: {}; compared since {}",
        changes_text(&group, &proposal.fields),
        date_text(proposal.since_unix_s)
    )];
    said.extend(notes(reply.notes));
    let (columns, rows) = compared(reply.comparison.as_ref());
    Ok(Table { columns, rows, notes: said })
}

fn notes(notes: Vec<String>) -> Vec<String> {
    notes.into_iter().map(|note| format!("note: {note}")).collect()
}
