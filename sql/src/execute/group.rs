//! Groups: created, altered, dropped, shown, and chosen for a session.

use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;
use tonic::{Code as Grpc, Status};

use crate::answer::{Answer, SessionChange, Table};
use crate::context::Context;
use crate::controller::{Controller, missing};
use crate::error::SqlError;
use crate::print::create_group_text;
use crate::tables::{Select, VirtualTable, load, query};

/// Changes of others that may come between the look at a group and its alteration, each of which makes it look again.
/// Half of it gives up in a busy hour; twice of it waits for an answer for longer than a session does.
const MOST_CHANGES_BETWEEN: u32 = 4;

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
    let mut left = MOST_CHANGES_BETWEEN;
    loop {
        let look = rateless(controller, group, fields).await?;
        match alter_after(controller, group, fields, look).await {
            Err(status) if status.code() == Grpc::Aborted && look.is_some() && left > 0 => left -= 1,
            answer => return Ok(answer?),
        }
    }
}

/// Alters a group of which the other half was looked at, if it has to be.
async fn alter_after(
    controller: &Controller,
    group: &v1::Group,
    fields: &[&'static str],
    look: Option<Look>,
) -> Result<Answer, Status> {
    let mut notes = Vec::new();
    let (mut group, mut fields) = (group.clone(), fields.to_vec());
    if look.is_some_and(|look| look.is_rateless) {
        "off".clone_into(&mut group.burstable);
        "default".clone_into(&mut group.burst_ru_per_sec);
        fields.retain(|field| *field != "burstable");
        fields.extend(["burstable", "burst_ru_per_sec"]);
        notes.push("warning: BURSTABLE is OFF, as without a rate there is nothing to burst above".to_owned());
    }
    let request = v1::AlterGroupRequest {
        group: Some(group),
        update_mask: fields.into_iter().map(str::to_owned).collect(),
        // What was decided holds for the other half as it was read.
        expected_revision: look.map_or(0, |look| look.revision),
    };
    let reply = controller.admin().alter_group(request).await?.into_inner();
    notes.extend(warnings(reply.warnings));
    Ok(Answer::Done { affected: u64::from(reply.changed), notes })
}

/// What was read of a group before it is altered.
#[derive(Clone, Copy)]
struct Look {
    revision: u64,
    /// The alteration leaves it no rate and MODERATED.
    is_rateless: bool,
}

/// Whether an alteration leaves a group no rate and MODERATED, of which it says one half and the group has the other;
/// `None` where it says nothing of them, or all. TiDB takes each option by itself, and the group is unlimited; here it is as where a statement says
/// both.
async fn rateless(
    controller: &Controller,
    group: &v1::Group,
    fields: &[&'static str],
) -> Result<Option<Look>, SqlError> {
    let lifts = group.ru_per_sec == "unlimited" && !fields.contains(&"burstable");
    let bursts = group.burstable == "moderated" && !fields.contains(&"ru_per_sec");
    if !(lifts || bursts) || fields.contains(&"burst_ru_per_sec") {
        return Ok(None);
    }
    let request = v1::GetGroupRequest { name: group.name.clone() };
    let known = controller.admin().get_group(request).await?.into_inner().group;
    let known = known.ok_or_else(|| missing("the group"))?;
    let is_rateless =
        (lifts && known.burstable == "moderated") || (bursts && known.ru_per_sec == "unlimited");
    Ok(Some(Look { revision: known.revision, is_rateless }))
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
