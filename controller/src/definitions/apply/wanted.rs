//! Reading and checking steps, each by itself: every error of a text is reported, and no two steps may name the same
//! thing.

use std::collections::BTreeMap;

use super::Faults;
use crate::definitions::bindings::Principal;
use crate::definitions::cost_tables::{Role, parse};
use crate::definitions::definition::Definition;
use crate::definitions::group_fields::clear;
use crate::error::{AdminError, InField};
use crate::name::GroupName;
use crate::statements::query_limit::Matching;
use crate::statements::watches::Watch;
use tidegate_cost_model::CostTable;
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;

/// A step, checked as far as possible on its own.
pub(crate) enum Wanted {
    Group { text: Box<v1::Group>, definition: Box<Definition> },
    Binding(Principal, GroupName),
    CostTable(Role, Option<CostTable>),
    Watch(Box<Watch>),
    DeleteGroup { name: GroupName, force_to: Option<GroupName>, expected_revision: u64, if_exists: bool },
    DeleteBinding(Principal),
    DeleteWatch(u64),
}

/// The thing that a step concerns; each thing may have one step only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Group(GroupName),
    Principal(Principal),
    Active,
    Shadow,
    Watch(GroupName, Matching, Box<str>),
    WatchId(u64),
}

/// The place of a step in a request.
pub(crate) fn place(index: usize, kind: &str) -> String {
    format!("steps[{index}].{kind}")
}

/// Reads all steps of a request at `unix_ms`.
pub(crate) fn read(steps: &[v1::Step], unix_ms: u64) -> Result<Vec<(String, Wanted)>, AdminError> {
    let mut faults = Faults::default();
    let mut named: BTreeMap<Subject, usize> = BTreeMap::new();
    let mut all = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let Some(kind) = &step.kind else {
            let error = AdminError::invalid("", "says nothing; set one of its fields");
            faults.add(&format!("steps[{index}]"), &error);
            continue;
        };
        let place = place(index, name(kind));
        match read_one(kind, unix_ms) {
            Err(errors) => errors.iter().for_each(|error| faults.add(&place, error)),
            Ok(wanted) => {
                let subject = wanted.subject();
                match named.get(&subject) {
                    Some(other) => faults.add(&place, &twice(&subject, *other)),
                    None => drop(named.insert(subject, index)),
                }
                all.push((place, wanted));
            }
        }
    }
    faults.result().map(|()| all)
}

fn twice(subject: &Subject, other: usize) -> AdminError {
    let field = match subject {
        Subject::Group(_) => "name",
        Subject::Principal(principal) if principal.user().is_empty() => "tenant",
        Subject::Principal(_) => "user",
        Subject::Active | Subject::Shadow => "role",
        Subject::Watch(..) => "digest",
        Subject::WatchId(_) => "id",
    };
    AdminError::invalid(field, format!("is what steps[{other}] is about, too; say one thing of it"))
}

/// The name of a step's kind, as the fields of faults spell it.
fn name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Group(_) => "group",
        Kind::Binding(_) => "binding",
        Kind::CostTable(_) => "cost_table",
        Kind::Watch(_) => "watch",
        Kind::DeleteGroup(_) => "delete_group",
        Kind::DeleteBinding(_) => "delete_binding",
        Kind::DeleteWatch(_) => "delete_watch",
    }
}

fn read_one(kind: &Kind, unix_ms: u64) -> Result<Wanted, Vec<AdminError>> {
    let one = |error| vec![error];
    Ok(match kind {
        Kind::Group(text) => Wanted::Group { definition: Box::new(definition(text)?), text: text.clone() },
        Kind::Binding(text) => {
            let principal = Principal::parse(&text.tenant, &text.user);
            let group = GroupName::parse(&text.group).in_field("group");
            let (principal, group) = both(principal, group)?;
            Wanted::Binding(principal, group)
        }
        Kind::CostTable(text) => {
            let table = text.table.clone().map(parse).transpose();
            let (role, table) = both(Role::parse(&text.role), table)?;
            if role == Role::Active && table.is_none() {
                return Err(one(AdminError::invalid("table", "is missing; one table must be active")));
            }
            Wanted::CostTable(role, table)
        }
        Kind::Watch(text) => Wanted::Watch(Box::new(Watch::parse(text, unix_ms).map_err(one)?)),
        Kind::DeleteGroup(text) => deletion(text)?,
        Kind::DeleteBinding(text) => {
            Wanted::DeleteBinding(Principal::parse(&text.tenant, &text.user).map_err(one)?)
        }
        Kind::DeleteWatch(watch) if !watch.group.is_empty() => {
            return Err(one(AdminError::invalid("group", "is not for a step; name watches by their ids")));
        }
        Kind::DeleteWatch(watch) if watch.id == 0 => {
            return Err(one(AdminError::invalid("id", "is missing; list the watches to see their numbers")));
        }
        Kind::DeleteWatch(watch) => Wanted::DeleteWatch(watch.id),
    })
}

fn deletion(text: &v1::DeleteGroupRequest) -> Result<Wanted, Vec<AdminError>> {
    let force_to = Some(text.force_to.as_str()).filter(|target| !target.is_empty());
    let force_to = force_to.map(|target| GroupName::parse(target).in_field("force_to")).transpose();
    let (name, force_to) = both(GroupName::parse(&text.name).in_field("name"), force_to)?;
    let (expected_revision, if_exists) = (text.expected_revision, text.if_exists);
    Ok(Wanted::DeleteGroup { name, force_to, expected_revision, if_exists })
}

fn both<A, B>(a: Result<A, AdminError>, b: Result<B, AdminError>) -> Result<(A, B), Vec<AdminError>> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (a, b) => Err(a.err().into_iter().chain(b.err()).collect()),
    }
}

/// Checks a group field by field. After an error in one field, the rest is checked with a harmless value in its place.
fn definition(text: &v1::Group) -> Result<Definition, Vec<AdminError>> {
    let mut trial = text.clone();
    let mut errors = Vec::new();
    loop {
        match Definition::parse(&trial) {
            Ok(definition) if errors.is_empty() => return Ok(definition),
            Ok(_) => return Err(errors),
            Err(error) => {
                let field = error.field().unwrap_or_default().to_owned();
                let known = errors.iter().any(|known: &AdminError| known.field() == Some(&field));
                if !known {
                    errors.push(error);
                }
                if known || !harmless(&mut trial, &field) {
                    return Err(errors);
                }
            }
        }
    }
}

/// Replaces a field by a harmless value; returns whether there is such a field.
fn harmless(text: &mut v1::Group, field: &str) -> bool {
    let whole = field.split('.').next().unwrap_or(field);
    match whole {
        "name" => "a".clone_into(&mut text.name),
        // Small, so that no burst below it adds a fault.
        "ru_per_sec" => "0.000001".clone_into(&mut text.ru_per_sec),
        // These limit each other's range.
        "burstable" => return clear(text, "burstable") && clear(text, "burst_ru_per_sec"),
        "ttl_us" => return clear(text, "ttl_us") && clear(text, "renew_us"),
        _ => return clear(text, whole),
    }
    true
}

impl Wanted {
    fn subject(&self) -> Subject {
        match self {
            Self::Group { definition, .. } => Subject::Group(definition.name.clone()),
            Self::DeleteGroup { name, .. } => Subject::Group(name.clone()),
            Self::Binding(principal, _) | Self::DeleteBinding(principal) => {
                Subject::Principal(principal.clone())
            }
            Self::CostTable(Role::Active, _) => Subject::Active,
            Self::CostTable(Role::Shadow, _) => Subject::Shadow,
            Self::Watch(watch) => Subject::Watch(watch.group.clone(), watch.matching, watch.digest.clone()),
            Self::DeleteWatch(id) => Subject::WatchId(*id),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::definitions::group_fields::alterable;

    fn faults(kind: Kind) -> Vec<String> {
        match read(&[v1::Step { kind: Some(kind) }], 0) {
            Err(AdminError::Several { faults, .. }) => faults.into_iter().map(|fault| fault.field).collect(),
            other => panic!("{:?}", other.map(|wanted| wanted.len())),
        }
    }

    #[test]
    fn everything_wrong_with_a_group_is_told_at_once() {
        // Neither a word, a name, a rate nor a line; and beyond every range.
        let mut json = serde_json::to_value(v1::Group {
            parent: "?".into(),
            demote_to: "?".into(),
            ..v1::Group::default()
        })
        .unwrap();
        let fields = json.as_object_mut().unwrap();
        fields.retain(|name, _| name == "name" || alterable().any(|field| field == name));
        for value in fields.values_mut() {
            *value = if value.is_number() { u32::MAX.into() } else { "a\nb".into() };
        }
        // The lease length limits the renewal period; a rule has faults of its own.
        let apart = ["renew_us", "query_limit"];
        let names = alterable().filter(|name| !apart.contains(name)).chain(["name"]);
        let expected: BTreeSet<String> = names.map(|name| format!("steps[0].group.{name}")).collect();
        let found = faults(Kind::Group(serde_json::from_value(json).unwrap()));
        assert_eq!(found.len(), expected.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn a_step_says_one_thing_that_steps_can_say() {
        let of_group = v1::RemoveWatchRequest { group: "a".into(), ..v1::RemoveWatchRequest::default() };
        assert_eq!(faults(Kind::DeleteWatch(of_group)), ["steps[0].delete_watch.group"]);
        let Err(AdminError::Several { faults, .. }) = read(&[v1::Step::default()], 0) else { panic!() };
        assert_eq!(faults[0].field, "steps[0]");
    }

    #[test]
    fn a_thing_is_named_by_one_step_only() {
        let step = |name: &str| {
            let text = v1::Group { name: name.into(), ru_per_sec: "1".into(), ..v1::Group::default() };
            Kind::Group(Box::new(text))
        };
        let gone = v1::DeleteGroupRequest { name: "B".into(), ..v1::DeleteGroupRequest::default() };
        let steps = [step("a"), step("b"), step("A"), Kind::DeleteGroup(gone)];
        let steps = steps.map(|kind| v1::Step { kind: Some(kind) });
        let Err(AdminError::Several { faults, .. }) = read(&steps, 0) else { panic!() };
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["steps[2].group.name", "steps[3].delete_group.name"]);
    }
}
