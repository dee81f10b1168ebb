//! What a proposed change of a group would have meant since it was proposed, beside what is in force.

use tidegate_proto::v1;

use super::AccountCalls;
use super::history::Resolution;
use super::usage::Step;
use super::what_if::Asked;
use crate::error::{AdminError, InField};
use crate::limits::SECONDS_KEPT_S;
use crate::name::GroupName;

/// What is said in place of a comparison.
const UNRECORDED: &str = "nothing is recorded since the comparison began; look again later";

/// The answer to a proposal that has just been made: there is nothing to replay yet, so that it takes no room from replays
/// and cannot fail after the proposal is stored.
pub(crate) fn begun(proposal: v1::Proposal) -> v1::ProposalReply {
    v1::ProposalReply { proposal: Some(proposal), comparison: None, notes: vec![UNRECORDED.to_owned()] }
}

impl AccountCalls<'_> {
    /// The proposal of a group and what was recorded since, under both settings: by the second as long as all seconds are
    /// kept, then by the minute, from the first whole minute on. After a start, which forgets the seconds, by those that
    /// began earlier.
    ///
    /// # Errors
    /// An unknown group, or one without a proposal; a replay that is too long, or as many at once as there may be.
    pub fn proposal(&self, group: &str) -> Result<v1::ProposalReply, AdminError> {
        let name = GroupName::parse(group).in_field("group")?;
        let (proposal, live) = {
            let state = self.service.lock();
            let live = state.definitions.in_force(self.sight, &name)?;
            let id = state.definitions.require(self.sight, &name)?;
            (state.definitions.proposal(id, &name)?.clone(), live.clone())
        };
        let changed = proposal.changed(&live);
        let (mut notes, mut comparison) = (proposal.notes(), None);
        match changed.and_then(|changed| Asked::between(&live, &changed, None, None)) {
            Ok(asked) => {
                comparison = self.recorded(&name, proposal.message().since_unix_s, &asked)?;
                if comparison.is_none() {
                    notes.push(UNRECORDED.to_owned());
                }
            }
            Err(error) => notes.push(format!(
                "it does not fit what group {name} has become ({error}): propose it again, or withdraw it"
            )),
        }
        Ok(v1::ProposalReply { proposal: Some(proposal.message().clone()), comparison, notes })
    }

    /// What was recorded of a group since then, under both settings; nothing if there is nothing.
    fn recorded(
        &self,
        name: &GroupName,
        since: u64,
        asked: &Asked,
    ) -> Result<Option<v1::WhatIfReply>, AdminError> {
        let clock = self.service.clock();
        let unix_ms = clock.unix_ms();
        let (now, started) = (unix_ms / 1_000, unix_ms.saturating_sub(clock.uptime().0 / 1_000) / 1_000);
        let minutes = (Step::Stored(Resolution::Minute), since.div_ceil(60).saturating_mul(60));
        let seconds = (now.saturating_sub(since) < SECONDS_KEPT_S).then_some((Step::Second, since));
        let mut ways: Vec<(Step, u64)> = seconds.into_iter().chain([minutes]).collect();
        ways.sort_by_key(|(step, from)| if *step == Step::Second { started.max(*from) } else { *from });
        for (step, from) in ways {
            match self.replayed(name, step, &self.range(step, from, 0), asked.clone()) {
                Err(AdminError::NothingRecorded { .. }) => {}
                answer => return answer.map(Some),
            }
        }
        Ok(None)
    }
}
