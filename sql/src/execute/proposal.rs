//! A change that is proposed: stored, shown beside what is in force, made, and withdrawn.

use tidegate_proto::v1;

use super::group::warnings;
use crate::answer::{Answer, Column, Kind, Table, Value};
use crate::controller::{Controller, missing};
use crate::error::SqlError;
use crate::print::changes_text;
use crate::tables::{date_text, outcome};

/// The columns of a comparison.
const COLUMNS: [(&str, Kind); 12] = [
    ("settings", Kind::Text),
    ("operations_come", Kind::Text),
    ("ru_per_sec", Kind::Text),
    ("burst", Kind::Text),
    ("policy", Kind::Text),
    ("quota", Kind::Text),
    ("admitted_ru", Kind::Float),
    ("throttled_ru", Kind::Float),
    ("throttled_percent", Kind::Float),
    ("throttled_time_percent", Kind::Float),
    ("p99_wait_seconds", Kind::Float),
    ("use_percent", Kind::Float),
];

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
    let mut rows = Vec::new();
    if let Some(compared) = &reply.comparison {
        for (settings, of) in [("live", &compared.current), ("proposed", &compared.proposed)] {
            match of {
                Some(of) => rows.extend(outcome(settings, of)),
                None => rows.push(unlimited(settings)),
            }
        }
    }
    let columns = COLUMNS.map(|(name, kind)| Column { name: name.to_owned(), kind }).to_vec();
    Ok(Table { columns, rows, notes: said })
}

/// The row of settings that limit nothing.
fn unlimited(settings: &str) -> Vec<Value> {
    let mut row = vec![Value::Text(settings.to_owned()), Value::Null, Value::Text("UNLIMITED".to_owned())];
    row.resize(COLUMNS.len(), Value::Null);
    row
}

fn notes(notes: Vec<String>) -> Vec<String> {
    notes.into_iter().map(|note| format!("note: {note}")).collect()
}
