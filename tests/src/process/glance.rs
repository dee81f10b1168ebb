//! The report of a node whose threads pay from purses, in a line: `G at lease_end grants hands…`, where a hand is
//! `admitted:last:paid:last_paid`. All times are microseconds of the machine's monotonic clock; 0 is never.

use std::fmt;
use std::str::FromStr;

/// What one thread did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    /// Operations that were admitted.
    pub admitted: u64,
    /// Just before it asked for the newest of them.
    pub last_us: u64,
    /// Those of them that its purse paid for.
    pub paid: u64,
    /// Just before it asked for the newest of these.
    pub last_paid_us: u64,
}

/// A look at the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// When it began.
    pub at_us: u64,
    /// The lease is over by then; `None` without a lease, or when the group was left alone.
    pub lease_end_us: Option<u64>,
    /// Grants applied until then; `None` with the group left alone.
    pub grants: Option<u64>,
    /// Its threads.
    pub hands: Vec<Hand>,
}

impl fmt::Display for Glance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (end, grants) = (self.lease_end_us.unwrap_or(0), self.grants.unwrap_or(0));
        write!(f, "G {} {end} {grants}", self.at_us)?;
        for Hand { admitted, last_us, paid, last_paid_us } in &self.hands {
            write!(f, " {admitted}:{last_us}:{paid}:{last_paid_us}")?;
        }
        Ok(())
    }
}

impl FromStr for Glance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let strange = || format!("{text}: not a glance");
        let number = |word: &str| word.parse::<u64>().map_err(|_| strange());
        let known = |number: u64| (number > 0).then_some(number);
        let hand = |word: &&str| {
            let numbers = word.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
            match *numbers.as_slice() {
                [admitted, last_us, paid, last_paid_us] => Ok(Hand { admitted, last_us, paid, last_paid_us }),
                _ => Err(strange()),
            }
        };
        match text.split(' ').collect::<Vec<_>>().as_slice() {
            ["G", at, end, grants, hands @ ..] => Ok(Self {
                at_us: number(at)?,
                lease_end_us: known(number(end)?),
                grants: known(number(grants)?),
                hands: hands.iter().map(hand).collect::<Result<_, _>>()?,
            }),
            _ => Err(strange()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_is_written_and_read() {
        let hand = Hand { admitted: 3, last_us: 90, paid: 2, last_paid_us: 80 };
        let glance = Glance { at_us: 100, lease_end_us: Some(700), grants: Some(4), hands: vec![hand; 2] };
        for glance in [glance, Glance { at_us: 7, ..Glance::default() }] {
            assert_eq!(glance.to_string().parse(), Ok(glance));
        }
        assert!("G 1 2".parse::<Glance>().is_err() && "G 1 2 3 4:5:6".parse::<Glance>().is_err());
    }
}
