//! The warm-up: the curve of a key that always wants more, beside the formula.

use tidegate_core::policy::warm_up::WarmUp;
use tidegate_core::policy::{Policy, Verdict};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::chart::{Chart, Series, Style};
use super::table::Table;
use super::trace::seconds;
use super::{LabError, Section};

/// What is set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Operations per second, once warm.
    pub rate: u32,
    /// Seconds until then.
    pub warm_up: u32,
    /// How many times slower it begins.
    pub factor: u32,
}

impl Settings {
    fn stable(&self) -> f64 {
        1.0 / f64::from(self.rate)
    }

    fn length(&self) -> f64 {
        f64::from(self.warm_up)
    }

    fn threshold(&self) -> f64 {
        0.5 * self.length() / self.stable()
    }

    fn most(&self) -> f64 {
        self.threshold() + 2.0 * self.length() / (self.stable() * f64::from(1 + self.factor))
    }

    fn slope(&self) -> f64 {
        self.stable() * f64::from(self.factor - 1) / (self.most() - self.threshold())
    }

    /// The rate after so many seconds of full use from cold: what is left above the threshold takes the rest of the
    /// warm-up, `stable * x + slope / 2 * x^2` of it.
    fn formula(&self, at: f64) -> f64 {
        let left = (self.length() - at).max(0.0);
        1.0 / (self.stable().powi(2) + 2.0 * self.slope() * left).sqrt()
    }
}

/// The moments at which a key starts operations of one RU, each as soon as it may.
fn starts(policy: &WarmUp, state: &mut <WarmUp as Policy>::State, from: Time, until: Time) -> Vec<Time> {
    let (mut at, mut starts) = (from, Vec::new());
    while at < until {
        match policy.try_acquire(state, at, Ru::whole(1)) {
            Verdict::RetryAt(next) => at = next,
            Verdict::Never => break,
            _ => starts.push(at),
        }
    }
    starts
}

/// Operations per second around each start: by the distance to the next.
fn rates(starts: &[Time]) -> Vec<(f64, f64)> {
    let pairs = starts.iter().zip(starts.iter().skip(1));
    pairs.map(|(one, next)| (seconds(*one), 1.0 / seconds(Time(next.since(*one).0)))).collect()
}

/// The rate at the first start from a moment on.
fn rate_at(rates: &[(f64, f64)], at: f64) -> f64 {
    rates.iter().find(|(start, _)| *start >= at).map_or(f64::NAN, |(_, rate)| *rate)
}

/// The formula's numbers, beside those of a policy and its rates from cold and after a pause.
fn numbers(settings: &Settings, policy: &WarmUp, first: &[(f64, f64)], again: &[(f64, f64)]) -> Table {
    // From the intervals of the policy: how much they shrink from the first on, for each token.
    let (cold, stable) = (1.0 / rate_at(first, 0.0), 1.0 / rate_at(first, settings.length() * 1.2));
    let slope = (cold - stable) / (settings.most() - settings.threshold());
    let whole = |amount: Ru| amount.number().to_string();
    let mut numbers = Table::new(["number", "formula", "here"]);
    for (name, formula, here) in [
        ("threshold", format!("{:.0}", settings.threshold()), whole(policy.threshold())),
        ("most stored", format!("{:.0}", settings.most()), whole(policy.most())),
        ("slope", format!("{:.7}", settings.slope()), format!("{slope:.7}")),
        (
            "rate after as long a pause",
            format!("{:.1}", settings.formula(0.0)),
            format!("{:.1}", rate_at(again, 0.0)),
        ),
    ] {
        numbers.row([name.to_owned(), formula, here]);
    }
    numbers
}

/// Rates from cold, at tenths of the warm-up.
fn tenths(settings: &Settings, first: &[(f64, f64)]) -> Table {
    let mut table = Table::new(["after", "formula, 1/s", "here, 1/s", "off by"]);
    for at in (0..=12_u32).map(|tenth| f64::from(tenth) / 10.0 * settings.length()) {
        let (formula, here) = (settings.formula(at), rate_at(first, at));
        let off = (here / formula - 1.0) * 100.0;
        table.row([
            format!("{at:.1} s"),
            format!("{formula:.1}"),
            format!("{here:.1}"),
            format!("{off:.2} %"),
        ]);
    }
    table
}

/// The curve and its numbers.
///
/// # Errors
/// The warm-up cannot be set so, or has too few or too many operations.
pub fn curve(settings: &Settings) -> Result<Section, LabError> {
    let policy =
        WarmUp::new(Rate::whole(settings.rate.into()), Span::secs(settings.warm_up.into()), settings.factor)?;
    // Fewer are no curve, and more no picture.
    let operations = u64::from(settings.rate) * u64::from(settings.warm_up);
    if !(100..=10_000_000).contains(&operations) {
        let remedy = "100 to 10 million operations in a warm-up, --rate times --seconds";
        return Err(LabError::Option { option: "rate", value: settings.rate.into(), remedy });
    }
    let mut state = policy.fresh();
    let moment = |halves: u64| Time(u64::from(settings.warm_up) * halves * 500_000);
    // A warm-up and a half of use, as much of nothing, and half a warm-up of use.
    let first = rates(&starts(&policy, &mut state, moment(0), moment(3)));
    let again = rates(&starts(&policy, &mut state, moment(6), moment(7)));
    let tables = vec![numbers(settings, &policy, &first, &again), tenths(settings, &first)];

    // A picture has room for so many points.
    let step = first.len().div_ceil(60).max(1);
    let formula = |(at, _): &(f64, f64)| (*at, settings.formula(*at));
    let formula = first.iter().step_by(step).map(formula).collect();
    let pause = [first.last(), again.first()].into_iter().flatten().map(|(at, _)| (*at, 0.0));
    let thin = |rates: &[(f64, f64)]| rates.iter().copied().step_by(step.div_ceil(20)).collect::<Vec<_>>();
    let curve = thin(&first).into_iter().chain(pause).chain(thin(&again)).collect();
    let series = vec![
        Series { name: "here".to_owned(), style: Style::Line, points: curve },
        Series { name: "formula".to_owned(), style: Style::Dots, points: formula },
    ];
    let rate = settings.rate;
    Ok(Section {
        name: "warm-up",
        title: format!("Warm-up: from {:.1} to {rate} a second in {} s", settings.formula(0.0), settings.warm_up),
        text: vec![
            "A key that always wants more, from cold; then a pause as long, after which it is cold again. The formula \
             is Guava's and Sentinel's: the distance of two operations is 1 / rate + slope * (stored - threshold)."
                .to_owned(),
        ],
        tables,
        pictures: vec![Chart {
            title: "Operations per second".to_owned(),
            across: "seconds",
            up: "1/s",
            series,
            limit: Some((f64::from(rate), format!("{rate} a second"))),
        }
        .svg()],
    })
}
