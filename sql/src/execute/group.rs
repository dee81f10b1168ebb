//! Groups: created, altered, dropped, shown, and chosen for a session.

use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;
use tonic::Code as Grpc;

use crate::answer::{Answer, SessionChange, Table};
use crate::context::Context;
use crate::controller::{Controller, missing};
use crate::error::SqlError;
use crate::print::create_group_text;
use crate::tables::{Select, VirtualTable, load, query};

pub(super) async fn create(
    controller: &Controller,
    group: &v1::Group,
    if_not_exists: bool,
) -> Result<Answer, SqlError> {
    let request = v1::CreateGroupRequest { group: Some(group.clone()), if_not_exists: false };
    match controller.admin().create_group(request).await {
        Ok(reply) => Ok(Answer::Done { affected: 1, notes: warnings(reply.into_inner().warnings) }),
        Err(status) if status.code() == Grpc::AlreadyExists => {
            let error = SqlError::Exists { name: group.name.clone() };
            if if_not_exists { Ok(Answer::note(note(&error, "left as it is"))) } else { Err(error) }
        }
        Err(status) => Err(status.into()),
    }
}

pub(super) async fn alter(
    controller: &Controller,
    group: &v1::Group,
    fields: &[&'static str],
    if_exists: bool,
) -> Result<Answer, SqlError> {
    // A group above that is missing is no reason to say nothing, so the group itself is asked for.
    if if_exists && let Some(answer) = missing_group(controller, &group.name).await? {
        return Ok(answer);
    }
    let rateless = rateless(controller, group, fields).await?;
    let mut notes = Vec::new();
    let (mut group, mut fields) = (group.clone(), fields.to_vec());
    if rateless.is_some() {
        "off".clone_into(&mut group.burstable);
        "default".clone_into(&mut group.burst_ru_per_sec);
        fields.retain(|field| *field != "burstable");
        fields.extend(["burstable", "burst_ru_per_sec"]);
        notes.push("warning: BURSTABLE is OFF, as without a rate there is nothing to burst above".to_owned());
    }
    let request = v1::AlterGroupRequest {
        group: Some(group),
        update_mask: fields.into_iter().map(str::to_owned).collect(),
        // The other half was read before.
        expected_revision: rateless.unwrap_or_default(),
    };
    let reply = controller.admin().alter_group(request).await?.into_inner();
    notes.extend(warnings(reply.warnings));
    Ok(Answer::Done { affected: u64::from(reply.changed), notes })
}

/// The revision of a group to which an alteration leaves no rate and MODERATED, of which it says one half and the group
/// has the other. TiDB takes each option by itself, and the group is unlimited; here it is as where a statement says
/// both.
async fn rateless(
    controller: &Controller,
    group: &v1::Group,
    fields: &[&'static str],
) -> Result<Option<u64>, SqlError> {
    let lifts = group.ru_per_sec == "unlimited" && !fields.contains(&"burstable");
    let bursts = group.burstable == "moderated" && !fields.contains(&"ru_per_sec");
    if !(lifts || bursts) || fields.contains(&"burst_ru_per_sec") {
        return Ok(None);
    }
    let request = v1::GetGroupRequest { name: group.name.clone() };
    let known = controller.admin().get_group(request).await?.into_inner().group;
    let known = known.ok_or_else(|| missing("the group"))?;
    let is_left = (lifts && known.burstable == "moderated") || (bursts && known.ru_per_sec == "unlimited");
    Ok(is_left.then_some(known.revision))
}

pub(super) async fn delete(controller: &Controller, name: &str, if_exists: bool) -> Result<Answer, SqlError> {
    let request =
        v1::DeleteGroupRequest { name: name.to_owned(), if_exists, ..v1::DeleteGroupRequest::default() };
    let reply = controller.admin().delete_group(request).await?.into_inner();
    if !reply.deleted {
        return Ok(Answer::note(note(&unknown(name), "nothing to drop")));
    }
    Ok(Answer::Done { affected: 1, notes: warnings(reply.warnings) })
}

pub(super) async fn show_create(
    controller: &Controller,
    name: &str,
    dialect: SqlDialect,
) -> Result<Table, SqlError> {
    let request = v1::GetGroupRequest { name: name.to_owned() };
    let reply = controller.admin().get_group(request).await?.into_inner();
    let group = reply.group.ok_or_else(|| missing("the group"))?;
    let text = create_group_text(&group, dialect);
    let table = Table::of_texts([("Resource_Group", group.name), ("Create Resource Group", text)]);
    Ok(Table { notes: warnings(reply.warnings), ..table })
}

/// All groups, as the table of TiDB.
pub(super) async fn show_all(controller: &Controller, context: &Context) -> Result<Table, SqlError> {
    let select = Select::all(VirtualTable::ResourceGroups, context.dialect);
    let (contents, notes) = load(controller, select.tables()).await?;
    query(select, contents, notes, context.group.clone()).await
}

pub(super) async fn set(controller: &Controller, name: &str) -> Result<SessionChange, SqlError> {
    let request = v1::GetGroupRequest { name: name.to_owned() };
    let reply = controller.admin().get_group(request).await?.into_inner();
    Ok(SessionChange::SetGroup(reply.group.ok_or_else(|| missing("the group"))?.name))
}

async fn missing_group(controller: &Controller, name: &str) -> Result<Option<Answer>, SqlError> {
    match controller.admin().get_group(v1::GetGroupRequest { name: name.to_owned() }).await {
        Ok(_) => Ok(None),
        Err(status) if status.code() == Grpc::NotFound => {
            Ok(Some(Answer::note(note(&unknown(name), "nothing to alter"))))
        }
        Err(status) => Err(status.into()),
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::Unknown(format!("resource group {name} does not exist"))
}

/// A note for what would be an error without IF, in the words that clients know.
fn note(error: &SqlError, done: &str) -> String {
    let what = match error {
        SqlError::Exists { name } => format!("resource group {name} exists already"),
        other => other.to_string(),
    };
    format!("note {}: {what}; {done}", error.code().mysql)
}

pub(super) fn warnings(warnings: Vec<String>) -> Vec<String> {
    warnings.into_iter().map(|warning| format!("warning: {warning}")).collect()
}
