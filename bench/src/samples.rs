//! Figures of the rounds of one contender, in their order, and their summary.

/// One figure per round, never empty.
#[derive(Clone, Debug)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// These figures; a published one is a single figure.
    pub fn new(figures: Vec<f64>) -> Self {
        Self(if figures.is_empty() { vec![f64::NAN] } else { figures })
    }

    /// The same in another unit.
    #[must_use]
    pub fn map(&self, convert: impl Fn(f64) -> f64) -> Self {
        Self(self.0.iter().copied().map(convert).collect())
    }

    /// Round by round `self / other`; a single figure stands for every round.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        let rounds = self.0.len().max(other.0.len());
        let ours = self.0.iter().cycle();
        Self(ours.zip(other.0.iter().cycle()).take(rounds).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// Round by round `self - other`.
    #[must_use]
    pub fn less(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours - theirs).collect())
    }

    /// The middle figure.
    pub fn median(&self) -> f64 {
        self.quantile(1, 2)
    }

    /// The lower and the upper quartile.
    pub fn quartiles(&self) -> (f64, f64) {
        (self.quantile(1, 4), self.quantile(3, 4))
    }

    /// The smallest and the largest.
    pub fn range(&self) -> (f64, f64) {
        (self.quantile(0, 1), self.quantile(1, 1))
    }

    /// How many rounds there are.
    pub fn rounds(&self) -> usize {
        self.0.len()
    }

    /// The figure at `part / whole` of the sorted figures, between neighbours in proportion.
    fn quantile(&self, part: usize, whole: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = sorted.len().saturating_sub(1) * part;
        let at = |index: usize| sorted.get(index).or(sorted.last()).copied().unwrap_or(f64::NAN);
        let (below, share) = (at(place / whole), (place % whole) as f64 / whole as f64);
        below + (at(place / whole + 1) - below) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let samples = Samples::new(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((samples.median(), samples.range()), (2.5, (1.0, 4.0)));
        assert_eq!(samples.quartiles(), (1.75, 3.25));
        assert_eq!(Samples::new(vec![7.0]).quartiles(), (7.0, 7.0));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ours = Samples::new(vec![10.0, 40.0, 30.0]);
        assert_eq!(ours.over(&Samples::new(vec![10.0, 20.0, 10.0])).median(), 2.0);
        assert_eq!(ours.over(&Samples::new(vec![10.0])).median(), 3.0);
    }
}
