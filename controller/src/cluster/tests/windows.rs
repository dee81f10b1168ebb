//! What nodes admit in any window, over all controllers and the whole run, held to the bound.
//!
//! An operation counts with its estimate when it is admitted, in its group and in all above it; the difference to what it
//! cost counts when it is settled. True time is that of no clock: that of a controller may be fast by half of the drift.

use tidegate_core::bound::{Bound, tick};
use tidegate_core::engine::EngineConfig;
use tidegate_core::units::{Rate, Ru, Time};

use super::groups::{KINDS, chain};

pub(super) struct Windows {
    /// By group; none where only those above have a limit.
    bounds: Vec<Option<Bound>>,
    /// Operations that were admitted.
    pub(super) admitted: u64,
}

fn rate_of(rate: Rate) -> Rate {
    let fast = i64::from(EngineConfig::default().drift_ppm / 2);
    rate.scale(1_000_000 + fast, 1_000_000) + Rate(1)
}

impl Default for Windows {
    fn default() -> Self {
        let bound = |(rate, burst): (Rate, Ru)| {
            let mut bound = Bound::new(Time(0), Rate::ZERO);
            bound.set_cap(Time(0), rate_of(rate), burst, Ru::ZERO);
            bound.begin_again(Time(0));
            bound
        };
        Self { bounds: KINDS.iter().map(|kind| kind.limit().map(bound)).collect(), admitted: 0 }
    }
}

impl Windows {
    /// RU were admitted, or given back when negative; `overrun` is what nodes owed at most in a group and below it.
    ///
    /// # Errors
    /// A window has more than its rate, its burst and the overrun.
    pub(super) fn admit(
        &mut self,
        now: u64,
        group: usize,
        cost: Ru,
        overrun: impl Fn(usize) -> Ru,
    ) -> Result<(), String> {
        for above in chain(group) {
            let (Some(bound), Some((rate, _))) = (&mut self.bounds[above], KINDS[above].limit()) else {
                continue;
            };
            bound.admit(Time(now), cost);
            let excess = bound.excess();
            if excess > tick(rate) && excess > tick(rate) + overrun(above) {
                return Err(format!(
                    "{}: {excess} above rate * window and burst, overrun {}; {} above rate * window in {}",
                    KINDS[above].name,
                    overrun(above),
                    bound.worst(),
                    bound.worst_window(),
                ));
            }
        }
        Ok(())
    }

    /// The worst window of each group, in thousandths of its burst.
    pub(super) fn tightness(&self) -> [u64; KINDS.len()] {
        std::array::from_fn(|at| {
            let (Some(bound), Some((_, burst))) = (&self.bounds[at], KINDS[at].limit()) else { return 0 };
            u64::try_from(bound.worst().0 * 1_000 / burst.0).unwrap_or(0)
        })
    }
}
