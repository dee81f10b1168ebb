//! The cap of a group whose rate is altered while the controller is killed: what may be in force at any moment.

use tidegate_core::units::Rate;

/// A rate that may be in force, in microseconds of machine time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Possible {
    rate: Rate,
    from_us: u64,
    to_us: u64,
}

/// The rates of a group over time.
#[derive(Clone, Debug)]
pub struct Cap {
    lease_us: u64,
    possible: Vec<Possible>,
}

impl Cap {
    /// A group with this rate from the beginning; leases last at most `lease_us` at the controller.
    pub fn new(rate: Rate, lease_us: u64) -> Self {
        Self { lease_us, possible: vec![Possible { rate, from_us: 0, to_us: u64::MAX }] }
    }

    /// Someone asked for this rate at `asked_us`; from now on it may be in force.
    pub fn asked(&mut self, rate: Rate, asked_us: u64) {
        self.possible.push(Possible { rate, from_us: asked_us, to_us: u64::MAX });
    }

    /// The rate that was asked for last was acknowledged: one lease length later no other counts.
    pub fn acknowledged(&mut self, at_us: u64) {
        let end = at_us.saturating_add(self.lease_us);
        if let Some((_, earlier)) = self.possible.split_last_mut() {
            earlier.iter_mut().for_each(|possible| possible.to_us = possible.to_us.min(end));
        }
    }

    /// How often the rate was altered.
    pub fn alterations(&self) -> usize {
        self.possible.len().saturating_sub(1)
    }

    /// The most that may be in force, as steps in order of time; the first is at 0.
    pub fn steps(&self) -> Vec<(u64, Rate)> {
        let mut moments: Vec<u64> = self.possible.iter().flat_map(|p| [p.from_us, p.to_us]).collect();
        moments.sort_unstable();
        moments.dedup();
        let most = |at: u64| {
            let now = self.possible.iter().filter(|p| p.from_us <= at && at < p.to_us);
            now.map(|p| p.rate).max()
        };
        moments.into_iter().filter_map(|at| Some((at, most(at)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_rate_counts_when_asked_and_a_lowered_one_a_lease_after_its_acknowledgement() {
        let whole = Rate::whole;
        let mut cap = Cap::new(whole(5), 100);
        cap.asked(whole(9), 1_000);
        cap.acknowledged(1_010);
        assert_eq!(cap.steps(), [(0, whole(5)), (1_000, whole(9)), (1_110, whole(9))]);
        // Never acknowledged: both count.
        cap.asked(whole(3), 2_000);
        assert_eq!(cap.steps().last(), Some(&(2_000, whole(9))));
        cap.asked(whole(4), 3_000);
        cap.acknowledged(3_005);
        assert_eq!(cap.steps().last(), Some(&(3_105, whole(4))));
        assert_eq!(cap.alterations(), 3);
    }
}
