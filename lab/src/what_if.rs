//! What recorded consumption would have met under other settings: the core's replay as a table and a picture.

use tidegate_core::replay::{
    Budget, Comparison, Counted, LEAST, Outcome, Outcomes, Record, Settings, compare,
};
use tidegate_core::units::{Rate, RuTotal, Span};

use crate::policies::chart::{Chart, Series, Style};
use crate::policies::table::{Table, thousands};
use crate::policies::{LabError, Section};

/// Columns of the picture, at most: a pixel of it each.
const COLUMNS: usize = 640;

/// Which rate is the cheapest where the burst covers all that was wanted.
const ANY: &str = "any";
/// Why no rate is the cheapest.
const NONE: &str = "none: operations cost more than the burst, or more is wanted than the quota";

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Whose consumption it is.
    pub group: String,
    /// Where it was recorded.
    pub source: String,
    /// What was recorded.
    pub counted: Vec<Counted>,
    /// Time that operations waited, in microseconds, if that was recorded.
    pub waited_us: Option<u128>,
    /// The settings in force, if they limit anything.
    pub current: Option<Settings>,
    /// The proposed ones.
    pub proposed: Settings,
    /// The wait that 99 of 100 parts may have under the cheapest limit.
    pub bearable: Span,
}

/// The answer.
///
/// # Errors
/// A record or settings that make no replay.
pub fn section(question: &Question) -> Result<Section, LabError> {
    let record = Record::of(&question.counted)?;
    let mut budget = Budget::default();
    let Question { current, proposed, bearable, .. } = question;
    let compared = compare(&record, current.as_ref(), proposed, *bearable, &mut budget)?;
    Ok(Section {
        name: "what-if",
        title: format!("What if: {} at {}", question.group, proposed.rate),
        text: said(question, &record),
        tables: vec![
            recorded(question, &record),
            replayed(question, &compared),
            cheapest(question, &compared),
        ],
        pictures: vec![picture(&record, &compared.lost, proposed.rate).svg()],
    })
}

fn said(question: &Question, record: &Record) -> Vec<String> {
    let longest = record.samples().iter().map(|sample| sample.length).max().unwrap_or_default();
    let mut text = vec![
        format!(
            "{}: {} samples of up to {longest} over {}, and nothing in {} of it. Operations wait up to {}, and are then \
             refused and not asked again.",
            question.source,
            thousands(record.samples().len() as u64),
            record.span(),
            record.idle(),
            question.proposed.patience,
        ),
        "A sample does not say when within it operations came. \"Even\" takes them to come at equal distances, or at those \
         of the sample before and then of the one after where its rate lies between theirs; \"at once\" takes all at its \
         first moment. With many small operations it is near \"even\". Shorter samples bring them closer."
            .to_owned(),
    ];
    if question.counted.iter().any(|counted| counted.refused > 0) {
        text.push(
            "Operations that were refused were wanted, too; each counts as much as those cost that were charged beside it. \
             Callers that ask again are counted each time."
                .to_owned(),
        );
    }
    text
}

fn recorded(question: &Question, record: &Record) -> Table {
    let sum = |of: fn(&Counted) -> u128| question.counted.iter().map(of).fold(0, u128::saturating_add);
    let (charged, operations, refused) = (sum(|c| c.charged), sum(|c| c.operations), sum(|c| c.refused));
    let mean = |us: u128| us.checked_div(operations).and_then(|mean| u64::try_from(mean).ok());
    let wait = question.waited_us.and_then(mean).map_or("-".to_owned(), |mean| Span(mean).to_string());
    let mut table = Table::new([
        "recorded",
        "RU charged",
        "RU wanted",
        "operations",
        "refused",
        "mean wait",
        "mean RU/s",
        "peak RU/s",
    ]);
    let per_second = |micro: u128| {
        let micro = micro.saturating_mul(1_000_000).checked_div(record.span().0.into());
        Rate(micro.and_then(|micro| i64::try_from(micro).ok()).unwrap_or(i64::MAX))
    };
    let peak = Rate(i64::try_from(record.peak()).unwrap_or(i64::MAX));
    table.row([
        question.group.clone(),
        RuTotal(charged).number().to_string(),
        RuTotal(record.amount()).number().to_string(),
        operations.to_string(),
        refused.to_string(),
        wait,
        per_second(record.amount()).number().to_string(),
        peak.number().to_string(),
    ]);
    table
}

fn replayed(question: &Question, compared: &Comparison) -> Table {
    let mut table = Table::new([
        "replayed",
        "RU/s",
        "burst",
        "quota",
        "policy",
        "operations come",
        "RU throttled",
        "of the time",
        "RU delayed",
        "wait, p50",
        "wait, p99",
        "use of the cap",
    ]);
    let mut rows = |name: &str, settings: &Settings, outcomes: &Outcomes| {
        for (come, outcome) in ["even", "at once"].into_iter().zip(outcomes) {
            table.row(row(&format!("{name}, {come}"), come, settings, outcome));
        }
    };
    if let (Some(settings), Some(outcomes)) = (&question.current, &compared.current) {
        rows("in force", settings, outcomes);
    }
    rows("proposed", &question.proposed, &compared.proposed);
    table
}

fn row(name: &str, come: &str, settings: &Settings, outcome: &Outcome) -> [String; 12] {
    let percent = |ppm: u64| format!("{}.{:02} %", ppm / 10_000, ppm % 10_000 / 100);
    [
        name.to_owned(),
        settings.rate.number().to_string(),
        settings.burst().number().to_string(),
        settings.quota.as_ref().map_or("-".to_owned(), ToString::to_string),
        settings.shape.to_string(),
        come.to_owned(),
        percent(outcome.refused_ppm()),
        percent(outcome.refusing_ppm()),
        percent(outcome.delayed_ppm()),
        outcome.p50.to_string(),
        outcome.p99.to_string(),
        percent(outcome.use_ppm()),
    ]
}

fn cheapest(question: &Question, compared: &Comparison) -> Table {
    let mut table =
        Table::new([format!("cheapest with a p99 wait of {}", question.bearable), "RU/s".to_owned()]);
    for (come, rate) in ["even", "at once"].into_iter().zip(compared.cheapest) {
        let rate = match rate {
            None => NONE.to_owned(),
            Some(LEAST) => ANY.to_owned(),
            Some(rate) => rate.number().to_string(),
        };
        table.row([come.to_owned(), rate]);
    }
    table
}

/// What was wanted and what would have started, over time. Each column has the highest mean of a sample in it, so that
/// a peak is as high as it was.
fn picture(record: &Record, lost: &[u64], limit: Rate) -> Chart {
    let begin = record.samples().first().map_or(0, |sample| sample.start.0);
    let (unit, across) = match record.span().0 {
        0..=600_000_000 => (1e6, "seconds"),
        600_000_001..=21_600_000_000 => (6e7, "minutes"),
        21_600_000_001..=604_800_000_000 => (3.6e9, "hours"),
        _ => (8.64e10, "days"),
    };
    let each = record.samples().len().div_ceil(COLUMNS).max(1);
    let rate = |amount: u64, length: Span| amount as f64 / (length.0.max(1) as f64);
    let (mut wanted, mut started) = (Vec::new(), Vec::new());
    let mut end = begin;
    for (samples, lost) in record.samples().chunks(each).zip(lost.chunks(each)) {
        let Some((first, last)) = samples.first().zip(samples.last()) else { continue };
        let at = |micros: u64| (micros - begin) as f64 / unit;
        if first.start.0 > end {
            wanted.push((at(end), 0.0));
            started.push((at(end), 0.0));
        }
        let highest = |of: &dyn Fn(u64, u64) -> u64| {
            let means = samples
                .iter()
                .zip(lost)
                .map(|(sample, lost)| rate(of(sample.amount.0.unsigned_abs(), *lost), sample.length));
            means.fold(0.0, f64::max)
        };
        wanted.push((at(first.start.0), highest(&|amount, _| amount)));
        started.push((at(first.start.0), highest(&|amount, lost| amount.saturating_sub(lost))));
        end = last.end().0;
    }
    let last = (end - begin) as f64 / unit;
    wanted.push((last, 0.0));
    started.push((last, 0.0));
    let series = |name: &str, points| Series { name: name.to_owned(), style: Style::Steps, points };
    Chart {
        title: "RU/s wanted, and started if operations come evenly".to_owned(),
        across,
        up: "RU/s",
        series: vec![series("wanted", wanted), series("started", started)],
        limit: Some((limit.0 as f64 / 1e6, format!("proposed: {limit}"))),
    }
}
