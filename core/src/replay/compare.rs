//! A record under the settings in force, under proposed ones, and the cheapest limit: one answer for all who ask.

use super::{Budget, Outcome, Record, ReplayError, Settings, Span, Spread, cheapest, replay};
use crate::units::Rate;

/// Outcomes for both assumptions, in the order of [`Spread::ALL`].
pub type Outcomes = [Outcome; Spread::ALL.len()];

/// What a record would have met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Under the settings in force, if they limit anything.
    pub current: Option<Outcomes>,
    /// Under the proposed ones.
    pub proposed: Outcomes,
    /// What of each sample would be refused under the proposed ones, in micro-RU, if operations came evenly.
    pub lost: Vec<u64>,
    /// The cheapest limit under which 99 of 100 parts wait at most as long as is bearable.
    pub cheapest: [Option<Rate>; Spread::ALL.len()],
}

/// Replays a record under settings in force and proposed ones, and looks for the cheapest limit with the proposed burst
/// and policy.
///
/// # Errors
/// Settings that no policy has, or a used up budget.
pub fn compare(
    record: &Record,
    current: Option<&Settings>,
    proposed: &Settings,
    bearable: Span,
    budget: &mut Budget,
) -> Result<Comparison, ReplayError> {
    let [even, at_once] = Spread::ALL;
    let mut both = |settings| {
        let (mild, lost) = replay(record, settings, even, budget)?;
        Ok::<_, ReplayError>(([mild, replay(record, settings, at_once, budget)?.0], lost))
    };
    let current = current.map(&mut both).transpose()?.map(|(outcomes, _)| outcomes);
    let (outcomes, lost) = both(proposed)?;
    let cheapest = [
        cheapest(record, proposed, even, bearable, budget)?,
        cheapest(record, proposed, at_once, bearable, budget)?,
    ];
    Ok(Comparison { current, proposed: outcomes, lost, cheapest })
}
