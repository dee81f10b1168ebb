//! Demotion: what the first bucket covers is admitted as it is; what only the second covers, at low priority.
//!
//! State: two buckets and the latest moment, 80 bytes. Error: none; no window admits more than both buckets together,
//! nor more at normal priority than the first. Use: soft caps, where work beyond its quota goes on behind all other.

use super::token_bucket::{TokenBucket, TokenBucketState};
use super::{Policy, Verdict};
use crate::units::{Ru, Time};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Demotion {
    normal: TokenBucket,
    low: TokenBucket,
}

/// One key's buckets.
#[derive(Clone, Copy, Debug)]
pub struct DemotionState {
    normal: TokenBucketState,
    low: TokenBucketState,
    /// The latest moment seen: a bucket that was not asked then does not know it.
    latest: Time,
}

impl Demotion {
    /// From the bucket of what goes first, and the one of what goes behind.
    pub const fn new(normal: TokenBucket, low: TokenBucket) -> Self {
        Self { normal, low }
    }

    /// What the second bucket says of what the first refused.
    fn otherwise(&self, state: &mut DemotionState, now: Time, cost: Ru, refused: Verdict) -> Verdict {
        match (refused, self.low.try_acquire(&mut state.low, now, cost)) {
            (_, Verdict::Admit) => Verdict::AdmitLow,
            (Verdict::RetryAt(normal), Verdict::RetryAt(low)) => Verdict::RetryAt(normal.min(low)),
            (Verdict::Never, low) => low,
            (normal, _) => normal,
        }
    }
}

impl Policy for Demotion {
    type State = DemotionState;

    fn fresh(&self) -> Self::State {
        DemotionState { normal: self.normal.fresh(), low: self.low.fresh(), latest: Time(0) }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        let latest = state.latest.max(now);
        let normal = self.normal.try_acquire(&mut state.normal, latest, cost);
        let verdict = match normal {
            Verdict::RetryAt(_) | Verdict::Never => self.otherwise(state, latest, cost, normal),
            admitted => admitted,
        };
        if verdict != Verdict::Never {
            state.latest = latest;
        }
        verdict
    }
}
