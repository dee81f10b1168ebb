//! What the recorded demand of a group would have met under the settings that stand in its form.

use maud::{Markup, html};
use tidegate_core::replay::LEAST;
use tidegate_proto::v1;

use crate::form::faults;
use crate::quantity::{amount, grouped, micro, moment, percent, rate, span};

/// The field with the time that is replayed.
pub const PAST: &str = "replayed";
/// The button that asks for a replay.
pub const ASK: &str = "what_if";
/// The p99 wait under the cheapest limit: as the API takes it when a request names none.
pub const BEARABLE_US: u64 = 100_000;

/// A time that can be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    /// Ten minutes, by the second.
    Minutes,
    /// An hour, by the minute.
    #[default]
    Hour,
    /// 24 hours, by the minute.
    Day,
}

impl Past {
    /// All of them, with their words in forms and for people.
    pub const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Minutes, "10m", "the last 10 minutes, by the second"),
        (Self::Hour, "1h", "the last hour, by the minute"),
        (Self::Day, "24h", "the last 24 hours, by the minute"),
    ];

    /// The one of this word; the hour without a word.
    pub fn parse(word: &str) -> Option<Self> {
        if word.is_empty() {
            return Some(Self::default());
        }
        Self::ALL.into_iter().find(|(_, of, _)| *of == word).map(|(past, ..)| past)
    }

    /// Its length in seconds, and which samples are replayed.
    pub const fn samples(self) -> (u64, &'static str) {
        match self {
            Self::Minutes => (600, "second"),
            Self::Hour => (3_600, "minute"),
            Self::Day => (24 * 3_600, "minute"),
        }
    }

    fn text(self) -> &'static str {
        Self::ALL.into_iter().find(|(past, ..)| *past == self).map_or("", |(.., text)| text)
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Replay {
    /// What would have been.
    Done(Box<v1::WhatIfReply>),
    /// Nothing is recorded of this time.
    Nothing(Past),
    /// Why nothing can be replayed, by field; an empty field is the whole.
    Faults(Vec<(String, String)>),
}

/// The part of the form's page that asks for a replay and shows it. What is chosen here belongs to the form.
pub(crate) fn section(replay: Option<&Replay>, chosen: Past) -> Markup {
    html! {
        section.card aria-labelledby="replay" {
            h2 #replay { "What if" }
            div.inline {
                label for="replayed" { "Replay under these settings what was wanted in" }
                select #replayed name=(PAST) form="definition" {
                    @for (past, word, text) in Past::ALL { option value=(word) selected[past == chosen] { (text) } }
                }
                button #ask-what-if type="submit" name=(ASK) value="1" form="definition" { "Replay" }
            }
            div #what-if aria-live="polite" {
                @match replay {
                    Some(replay) => (replay.markup()),
                    None => p.hint { "Here stands what these settings would have throttled, and the cheapest limit." },
                }
            }
        }
    }
}

impl Replay {
    /// The fragment that shows it.
    pub fn markup(&self) -> Markup {
        match self {
            Self::Done(reply) => html! {
                (comparison(reply, "As typed"))
                p.notice.warn.old hidden { "What you typed has changed since: replay it again." }
            },
            Self::Nothing(past) => html! {
                p.empty { "No history yet: nothing used this group, or a group below it, in " (past.text()) "." }
                p.hint { "Choose a longer time, or come back once operations are charged to it. Seconds are forgotten when the "
                    "controller starts. Beside this: " code { "tidegate lab what-if --from FILE" } " replays a CSV file or an access log." }
            },
            Self::Faults(wrong) => faults(wrong),
        }
    }
}

/// Figures under one setting: as if operations had come evenly, and all at once.
type Pair<'r> = Option<(&'r v1::WhatIfFigures, &'r v1::WhatIfFigures)>;

fn pair(outcome: Option<&v1::WhatIfOutcome>) -> Pair<'_> {
    let outcome = outcome?;
    Some((outcome.even.as_ref()?, outcome.at_once.as_ref()?))
}

/// The settings in force beside others, which have this title.
pub(crate) fn comparison(reply: &v1::WhatIfReply, title: &str) -> Markup {
    let [now, then] = [&reply.current, &reply.proposed].map(|outcome| pair(outcome.as_ref()));
    html! {
        (summary(now, then))
        div.scrolls tabindex="0" role="group" aria-label="What the recorded demand would have met" { table {
            (head(reply, title))
            tbody {
                (row("Throttled, of the RU", now, then, |of| percent(of.throttled_ppm)))
                (row("Throttled, of the time", now, then, |of| percent(of.throttled_time_ppm)))
                (row("Delayed, of the RU", now, then, |of| percent(of.delayed_ppm)))
                (row("Wait, p99", now, then, |of| span(of.p99_wait_us)))
                (row("Use of the limit", now, then, |of| percent(of.use_ppm)))
            }
        } }
        (cheapest(reply))
        (recorded(reply))
    }
}

/// What a person wants to know first, and hears first.
fn summary(now: Pair<'_>, then: Pair<'_>) -> Markup {
    let share = |pair: Pair<'_>| match pair {
        Some((even, at_once)) => range(percent(even.throttled_ppm), percent(at_once.throttled_ppm)),
        None => "nothing".to_owned(),
    };
    html! { p { "These settings would have throttled " b { (share(then)) } " of the RU that were wanted; those in force, "
    (share(now)) "." } }
}

fn range(one: String, other: String) -> String {
    if one == other { one } else { format!("{one} to {other}") }
}

/// The settings, each over its two columns.
fn head(reply: &v1::WhatIfReply, title: &str) -> Markup {
    let of = |text: fn(&v1::WhatIfOutcome) -> String| {
        [&reply.current, &reply.proposed].map(|outcome| outcome.as_ref().map(text))
    };
    let settings = [
        ("Limit", of(|outcome| rate(&outcome.ru_per_sec))),
        ("Burst", of(|outcome| amount(&outcome.burst))),
        ("Policy", of(|outcome| outcome.policy.clone())),
        (
            "Quota",
            of(|outcome| if outcome.quota.is_empty() { "none".to_owned() } else { outcome.quota.clone() }),
        ),
    ];
    html! {
        thead {
            tr { td {} th scope="colgroup" colspan="2" { "In force" } th scope="colgroup" colspan="2" { (title) } }
            @for (name, values) in settings {
                tr { th scope="row" { (name) }
                    @for value in values { td colspan="2" { bdi { (value.as_deref().unwrap_or("none")) } } } }
            }
            tr { td {} @for _ in 0..2 { th.number scope="col" { "evenly" } th.number scope="col" { "at once" } } }
        }
    }
}

fn row(name: &str, now: Pair<'_>, then: Pair<'_>, text: fn(&v1::WhatIfFigures) -> String) -> Markup {
    html! { tr { th scope="row" { (name) } @for pair in [now, then] {
        @match pair {
            Some((even, at_once)) => { td.number { (text(even)) } td.number { (text(at_once)) } }
            None => { td.number { "–" } td.number { "–" } }
        }
    } } }
}

fn cheapest(reply: &v1::WhatIfReply) -> Markup {
    let of = |text: &str| match micro(text) {
        None => "none".to_owned(),
        Some(least) if least <= i128::from(LEAST.0) => {
            "any, as the burst covers all that was wanted,".to_owned()
        }
        Some(_) => rate(text),
    };
    let (even, at_once) = (of(&reply.cheapest_even), of(&reply.cheapest_at_once));
    html! {
        p { "Cheapest limit with this burst, policy and quota under which 99 of 100 parts of the RU start within "
            (span(BEARABLE_US)) ": " b { (even) } " if operations come evenly, " b { (at_once) } " if all at once." }
        @if reply.cheapest_even.is_empty() || reply.cheapest_at_once.is_empty() {
            p.hint { "None: operations cost more than the burst, or more was wanted than the quota yields." }
        }
    }
}

/// What was replayed, and what the two columns are.
fn recorded(reply: &v1::WhatIfReply) -> Markup {
    let below = reply.groups.saturating_sub(1);
    html! {
        p.hint {
            "Recorded from " (moment(reply.from_unix_s.saturating_mul(1_000))) " to " (moment(reply.to_unix_s.saturating_mul(1_000)))
            ", of the group" @if below > 0 { " and " (grouped(below.into())) " below it" } ": "
            (amount(&reply.recorded_ru)) " by " (grouped(reply.recorded_operations.into())) " operations, "
            (grouped(reply.recorded_throttled.into())) " throttled; " (amount(&reply.wanted_ru)) " wanted, at most "
            (rate(&reply.peak_ru_per_sec)) "."
        }
        p.hint { "A " (reply.resolution) " does not say when in it operations came. Evenly: at equal distances, near the truth of many "
            "small ones. At once: all in its first moment, the worst case. For longer times: "
            code { "tidegate lab what-if --group " (reply.group) " --set rate=" (reply.proposed.as_ref().map_or("", |of| of.ru_per_sec.as_str())) " --last 90d" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(throttled: [u64; 2]) -> Option<v1::WhatIfOutcome> {
        let [even, at_once] = throttled.map(|throttled_ppm| {
            Some(v1::WhatIfFigures { throttled_ppm, p99_wait_us: 250_000, ..v1::WhatIfFigures::default() })
        });
        let text = str::to_owned;
        let (quota, policy) = (text("5 per <b>"), text("paced"));
        Some(v1::WhatIfOutcome { ru_per_sec: text("50"), burst: text("7"), policy, even, at_once, quota })
    }

    #[test]
    fn figures_stand_beside_those_in_force_as_text() {
        let reply = v1::WhatIfReply {
            group: "shop".to_owned(),
            resolution: "minute".to_owned(),
            current: outcome([0, 0]),
            proposed: outcome([125_000, 999_999]),
            cheapest_even: "80".to_owned(),
            groups: 3,
            ..v1::WhatIfReply::default()
        };
        let text = Replay::Done(Box::new(reply.clone())).markup().into_string();
        assert!(
            text.contains("throttled <b>12.5 % to 100 %</b>") && text.contains("in force, 0 %."),
            "{text}"
        );
        assert!(
            text.contains("5 per &lt;b&gt;") && !text.contains("per <b>") && text.contains("250 ms"),
            "{text}"
        );
        assert!(
            text.contains("<b>80 RU/s</b>") && text.contains("<b>none</b>") && text.contains("2 below it"),
            "{text}"
        );
        // The burst covers what came evenly.
        let least = v1::WhatIfReply { cheapest_even: "0.0001".to_owned(), ..reply.clone() };
        let text = Replay::Done(Box::new(least)).markup().into_string();
        assert!(text.contains("<b>any, as the burst covers") && !text.contains("0.0001"), "{text}");
        // Without a limit in force nothing was throttled.
        let free = v1::WhatIfReply { current: None, ..reply };
        let text = Replay::Done(Box::new(free)).markup().into_string();
        assert!(
            text.contains("in force, nothing.") && text.contains("<td class=\"number\">–</td>"),
            "{text}"
        );
    }

    #[test]
    fn each_figure_stands_under_its_setting_and_its_case() {
        // Figures of one case, each another one: they begin with a digit of the case.
        let figures = |case: u64| v1::WhatIfFigures {
            throttled_ppm: case * 100_000 + 10_000,
            throttled_time_ppm: case * 100_000 + 20_000,
            delayed_ppm: case * 100_000 + 30_000,
            p99_wait_us: case * 100_000 + 40_000,
            use_ppm: case * 100_000 + 50_000,
            ..v1::WhatIfFigures::default()
        };
        let outcome = |cases: [u64; 2], rate: &str| {
            let [even, at_once] = cases.map(|case| Some(figures(case)));
            let [ru_per_sec, burst, policy, quota] = [rate, "7", "paced", ""].map(str::to_owned);
            Some(v1::WhatIfOutcome { ru_per_sec, burst, policy, quota, even, at_once })
        };
        let [recorded_ru, wanted_ru, peak_ru_per_sec] = ["21", "22", "23"].map(str::to_owned);
        let reply = v1::WhatIfReply {
            group: "shop".to_owned(),
            resolution: "minute".to_owned(),
            current: outcome([1, 2], "50"),
            proposed: outcome([3, 4], "60"),
            cheapest_even: "80".to_owned(),
            cheapest_at_once: "90".to_owned(),
            from_unix_s: 951_782_400,
            to_unix_s: 951_868_800,
            recorded_ru,
            recorded_operations: 1_024,
            recorded_throttled: 25,
            wanted_ru,
            peak_ru_per_sec,
            groups: 1,
            ..v1::WhatIfReply::default()
        };
        let text = Replay::Done(Box::new(reply)).markup().into_string();
        for (name, end) in [
            ("Throttled, of the RU", 1),
            ("Throttled, of the time", 2),
            ("Delayed, of the RU", 3),
            ("Use of the limit", 5),
        ] {
            let cells = [1, 2, 3, 4].map(|case| format!("<td class=\"number\">{case}{end} %</td>")).concat();
            assert!(text.contains(&format!("{name}</th>{cells}</tr>")), "{name}: {text}");
        }
        let waits = [140, 240, 340, 440].map(|ms| format!("<td class=\"number\">{ms} ms</td>")).concat();
        assert!(text.contains(&format!("Wait, p99</th>{waits}</tr>")), "{text}");
        for part in [
            "throttled <b>31 % to 41 %</b> of the RU that were wanted; those in force, 11 % to 21 %.",
            "Limit</th><td colspan=\"2\"><bdi>50 RU/s</bdi></td><td colspan=\"2\"><bdi>60 RU/s</bdi></td>",
            "Burst</th><td colspan=\"2\"><bdi>7 RU</bdi></td>",
            "Quota</th><td colspan=\"2\"><bdi>none</bdi></td>",
            "<b>80 RU/s</b> if operations come evenly, <b>90 RU/s</b> if all at once.",
            "Recorded from <time datetime=\"2000-02-29T00:00:00Z\">",
            "to <time datetime=\"2000-03-01T00:00:00Z\">",
            "</time>, of the group: 21 RU by 1,024 operations, 25 throttled; 22 RU wanted, at most 23 RU/s.",
            "A minute does not say when",
            "--group shop --set rate=60 --last 90d",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("None: operations cost more"), "{text}");
        let times = Past::ALL.map(|(past, ..)| past.samples());
        assert_eq!(times, [(600, "second"), (3_600, "minute"), (86_400, "minute")]);
    }

    #[test]
    fn what_cannot_be_replayed_says_why() {
        let nothing = Replay::Nothing(Past::Day).markup().into_string();
        assert!(nothing.contains("in the last 24 hours") && nothing.contains("--from FILE"), "{nothing}");
        let wrong = Replay::Faults(vec![("burst".to_owned(), "<many>".to_owned())]).markup().into_string();
        assert!(wrong.contains("#field-burst") && wrong.contains("&lt;many&gt;"), "{wrong}");
    }

    #[test]
    fn a_time_has_a_word() {
        for (past, word, _) in Past::ALL {
            assert_eq!(Past::parse(word), Some(past));
        }
        assert_eq!((Past::parse(""), Past::parse("1H")), (Some(Past::Hour), None));
    }
}
