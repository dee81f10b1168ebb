//! From steps to edits: the state after all of them is checked as a whole; then the edits are put into an order in
//! which each is possible by itself, as the grant engine takes them one by one.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::group::GroupId;
use tidegate_proto::v1::Prune;

use super::draft::Draft;
use super::prune::{Statement, statement};
use super::wanted::Wanted;
use super::{Faults, Outcome};
use crate::definitions::audit::Change;
use crate::definitions::change::Edit;
use crate::definitions::definition::Definition;
use crate::definitions::demotion;
use crate::error::AdminError;
use crate::limits::MAX_FAULTS;
use crate::name::GroupName;
use crate::service::State;

/// The result of planning.
pub(crate) struct Planned {
    pub(crate) edits: Vec<Edit>,
    pub(crate) outcomes: Vec<Outcome>,
    /// What the log has beside the outcomes.
    pub(crate) altered: Vec<Change>,
    pub(crate) warnings: Vec<String>,
    /// Behind the ids of new watches.
    pub(crate) next_watch: u64,
}

/// A group to delete: of a step, or pruned.
struct Going {
    step: Option<usize>,
    id: GroupId,
    force_to: Option<GroupName>,
}

/// Plans all steps; leaves the state unchanged.
pub(crate) fn plan(
    state: &mut State,
    steps: &[(String, Wanted)],
    prune: &Prune,
) -> Result<Planned, AdminError> {
    let mut draft = Draft::new(state);
    let mut faults = Faults::default();
    let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(steps.len());
    for (place, wanted) in steps {
        outcomes.push(match wanted {
            Wanted::Group { text, definition } => draft.put_group(place, text, definition, &mut faults),
            _ => None,
        });
    }
    draft.settle();
    let deletes =
        prune.groups || steps.iter().any(|(_, wanted)| matches!(wanted, Wanted::DeleteGroup { .. }));
    check_groups(&draft, steps, deletes, &mut faults);
    check_watches(&draft, steps, &mut faults);
    for ((place, wanted), outcome) in steps.iter().zip(&mut outcomes) {
        match draft.put_rest(wanted) {
            Some(Ok(done)) => *outcome = Some(done),
            Some(Err(error)) => faults.add(place, &error),
            None => {}
        }
    }
    let pruned = draft.unnamed(prune, steps)?;
    let mut pruned_outcomes: Vec<Outcome> =
        pruned.bindings.iter().map(|principal| draft.unbind(principal)).collect();
    pruned_outcomes.extend(pruned.watches.iter().map(|id| draft.end_watch(*id)));
    if let Err(error) = draft.check_room() {
        faults.add("steps", &error);
    }
    let mut warnings = Vec::new();
    let going = going(&draft, steps, &pruned.groups, &mut outcomes, &mut faults);
    draft.going = going.iter().map(|one| one.id).collect();
    for going in going {
        let place = going.step.and_then(|step| steps.get(step)).map_or("prune", |(place, _)| place);
        match draft.delete_group(going.id, going.force_to.as_ref(), &mut warnings) {
            Err(error) => faults.add(place, &error),
            Ok(outcome) => match going.step.and_then(|step| outcomes.get_mut(step)) {
                Some(slot) => *slot = Some(outcome),
                None => pruned_outcomes.push(outcome),
            },
        }
    }
    faults.result()?;
    warnings.extend(doubts(&draft, steps));
    bound(&mut warnings);
    let edits = edits(&mut draft);
    let outcomes = outcomes.into_iter().flatten().chain(pruned_outcomes).collect();
    let altered = std::mem::take(&mut draft.altered);
    let next_watch = draft.next_watch;
    Ok(Planned { edits, outcomes, altered, warnings, next_watch })
}

/// Checks each group of a step within the whole draft. Groups that the change deletes are still there: the grant engine
/// keeps a group until its leases have ended.
fn check_groups(draft: &Draft<'_>, steps: &[(String, Wanted)], deletes: bool, faults: &mut Faults) {
    let catalog = &draft.state.definitions.catalog;
    let touched = draft.touched();
    for (place, wanted) in steps {
        let Wanted::Group { definition, .. } = wanted else { continue };
        // A group that was refused before is not in the draft.
        let Some(id) = catalog.id(&definition.name) else { continue };
        if let Some(target) = definition.switch_group()
            && let Err(error) = catalog.check_switch("query_limit.switch_group", &definition.name, target)
        {
            faults.add(place, &error);
        }
        let place_of = draft.state.definitions.check_place(&draft.state.leasing, id, definition);
        let before = touched.get(&id).map_or_else(|| catalog.get(id), Option::as_ref);
        match place_of.and_then(|()| demotion::check(catalog, id, definition, before)) {
            Err(AdminError::Invalid { field, message }) if deletes => {
                let hint = "groups that this change deletes count until their leases have ended: delete them in one before";
                faults.add(place, &AdminError::Invalid { field, message: format!("{message} ({hint})") });
            }
            Err(error) => faults.add(place, &error),
            Ok(()) => {}
        }
    }
}

/// Checks that no step ends the watch of a statement that another one watches: the result would depend on their order.
fn check_watches(draft: &Draft<'_>, steps: &[(String, Wanted)], faults: &mut Faults) {
    let put = steps.iter().enumerate().filter_map(|(index, (_, wanted))| match wanted {
        Wanted::Watch(watch) => Some((statement(watch), index)),
        _ => None,
    });
    let put: BTreeMap<Statement, usize> = put.collect();
    for (place, wanted) in steps {
        let Wanted::DeleteWatch(id) = wanted else { continue };
        let Some(ended) = draft.watch(*id) else { continue };
        if let Some(other) = put.get(&statement(ended)) {
            let message = format!("{id} watches the statement of steps[{other}]; say one thing of it");
            faults.add(place, &AdminError::invalid("id", message));
        }
    }
}

/// The groups to delete, children before parents.
fn going(
    draft: &Draft<'_>,
    steps: &[(String, Wanted)],
    pruned: &[GroupId],
    outcomes: &mut [Option<Outcome>],
    faults: &mut Faults,
) -> Vec<Going> {
    let mut going: BTreeMap<GroupId, Going> = BTreeMap::new();
    for (index, ((place, wanted), outcome)) in steps.iter().zip(outcomes).enumerate() {
        let Wanted::DeleteGroup { name, force_to, expected_revision, if_exists } = wanted else { continue };
        match draft.state.definitions.catalog.id(name) {
            Some(id) => match draft.state.definitions.expect_revision(id, *expected_revision) {
                Ok(_) => {
                    let one = Going { step: Some(index), id, force_to: force_to.clone() };
                    drop(going.insert(id, one));
                }
                Err(error) => faults.add(place, &error),
            },
            None if *if_exists => *outcome = Some(Outcome::unchanged("group", name.to_string())),
            None => faults.add(place, &AdminError::NoGroup { name: name.clone() }),
        }
    }
    going.extend(pruned.iter().map(|id| (*id, Going { step: None, id: *id, force_to: None })));
    let mut ids: Vec<GroupId> = going.keys().copied().collect();
    draft.leaves_first(&mut ids);
    ids.iter().filter_map(|id| going.remove(id)).collect()
}

/// The edits that lead to the draft, in an order in which each is possible.
fn edits(draft: &mut Draft<'_>) -> Vec<Edit> {
    let mut puts: Vec<(GroupId, Definition)> = Vec::new();
    let mut removed: Vec<GroupId> = Vec::new();
    for (id, before) in draft.touched() {
        match (before, draft.state.definitions.catalog.get(id)) {
            (before, Some(after)) if before.as_ref() != Some(after) => puts.push((id, after.clone())),
            (Some(_), None) => removed.push(id),
            _ => {}
        }
    }
    // Parents before children.
    puts.sort_by_cached_key(|(id, _)| (draft.state.definitions.catalog.path(*id).len(), *id));
    draft.rewind();
    let mut edits = ordered(draft, puts);
    edits.extend(draft.bindings.iter().map(|(principal, group)| match group {
        Some(group) => Edit::Bind(principal.clone(), group.clone()),
        None => Edit::Unbind(principal.clone()),
    }));
    edits.extend(draft.costs.take().map(Edit::Costs));
    let ended: Vec<u64> =
        draft.watches.iter().filter(|(_, watch)| watch.is_none()).map(|(id, _)| *id).collect();
    if !ended.is_empty() {
        edits.push(Edit::RemoveWatches(ended));
    }
    edits.extend(draft.watches.values().flatten().map(|watch| Edit::PutWatch(Box::new(watch.clone()))));
    draft.leaves_first(&mut removed);
    edits.extend(removed.into_iter().map(Edit::RemoveGroup));
    edits
}

/// Puts groups one by one, each once its place is possible. If all wait for each other, as when two change places, one
/// stands at the top meanwhile.
fn ordered(draft: &mut Draft<'_>, mut waiting: Vec<(GroupId, Definition)>) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut aside = BTreeSet::new();
    let mut put = |draft: &mut Draft<'_>, id, definition: Definition| {
        edits.push(Edit::PutGroup(id, Box::new(definition.clone())));
        draft.put(id, definition);
    };
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut still = Vec::new();
        for (id, definition) in waiting {
            match draft.state.definitions.check_place(&draft.state.leasing, id, &definition) {
                Ok(()) => put(draft, id, definition),
                Err(_) => still.push((id, definition)),
            }
        }
        if still.len() == before {
            let stands =
                |id: &GroupId| draft.state.definitions.catalog.get(*id).is_some() && !aside.contains(id);
            match still.iter().find(|(id, _)| stands(id)) {
                Some((id, definition)) => {
                    aside.insert(*id);
                    let mut top = Definition { parent: None, ..definition.clone() };
                    // One quota on each way holds in between, too.
                    if draft.state.definitions.check_place(&draft.state.leasing, *id, &top).is_err() {
                        top.quota = None;
                    }
                    put(draft, *id, top);
                }
                // No group waits for another any more, so each can be put; the engine reports it if that is wrong.
                None => still.drain(..).for_each(|(id, definition)| put(draft, id, definition)),
            }
        }
        waiting = still;
    }
    edits
}

/// Warnings about the groups of steps.
fn doubts(draft: &Draft<'_>, steps: &[(String, Wanted)]) -> Vec<String> {
    let groups = steps.iter().filter_map(|(_, wanted)| match wanted {
        Wanted::Group { definition, .. } => Some(definition),
        _ => None,
    });
    let of = |definition: &Definition| {
        let id = draft.state.definitions.catalog.id(&definition.name)?;
        Some(draft.state.definitions.warnings(&draft.state.leasing, id, definition))
    };
    groups.filter_map(|definition| of(definition)).flatten().collect()
}

/// Keeps as many warnings as anyone reads.
fn bound(warnings: &mut Vec<String>) {
    let count = warnings.len();
    if count > MAX_FAULTS {
        warnings.truncate(MAX_FAULTS);
        warnings.push(format!("and {} more", count - MAX_FAULTS));
    }
}
