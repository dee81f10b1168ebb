//! Charts as SVG: what groups used over time, stacked, and the limit above it.
//!
//! Everything is integers, in the units of the view box. A chart says the same three times: as a picture, under the
//! pointer (the script reads `data-read` of the column), and as the table that is its legend.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::link::Link;
use crate::quantity::{short, utc};

/// Width and height of the view box, and what of it is left for the scale.
const WIDTH: i128 = 900;
const HEIGHT: i128 = 240;
const LEFT: i128 = 64;
const BOTTOM: i128 = 22;
const TOP: i128 = 8;
/// Series with a colour of their own. More could not be told apart.
pub const COLOURS: usize = 8;

/// Values of one name over time, in micro-RU/s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// One for each moment.
    pub values: Vec<i64>,
}

/// A chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart<'c> {
    /// What it shows, for those who do not see it.
    pub title: &'c str,
    /// The moments, in Unix milliseconds, oldest first.
    pub times: Vec<u64>,
    /// What a series is of, as the head of the legend.
    pub of: &'c str,
    /// What is stacked, from the bottom up.
    pub series: Vec<Series>,
    /// A line across it, in micro-RU/s, and its name.
    pub limit: Option<(i64, &'c str)>,
    /// Names that are left out, and the page that the legend's links lead to.
    pub hidden: &'c [String],
    /// See `hidden`.
    pub link: Link,
}

/// The legend's parameter: names that are left out.
pub const HIDE: &str = "hide";

impl Chart<'_> {
    /// The picture and its legend.
    pub fn markup(&self) -> Markup {
        let shown: Vec<(usize, &Series)> = self
            .series
            .iter()
            .enumerate()
            .filter(|(_, series)| !self.hidden.contains(&series.name))
            .collect();
        let sums = self.sums(&shown);
        let highest =
            sums.iter().copied().chain(self.limit.map(|(limit, _)| i128::from(limit))).max().unwrap_or(0);
        let scale = Scale { top: round_up(highest.max(1)), count: self.times.len() };
        html! {
            figure.chart {
                @if self.times.len() < 2 {
                    p.empty { "There is nothing to draw yet: a chart needs two moments." }
                } @else {
                    svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.title) {
                        (scale.lines())
                        @for (colour, points) in self.areas(&shown, &scale) {
                            polygon class={ "s" (colour) } points=(points) {}
                        }
                        @if let Some((limit, _)) = self.limit {
                            line.limit x1=(LEFT) x2=(WIDTH) y1=(scale.y(limit.into())) y2=(scale.y(limit.into())) {}
                        }
                        (self.columns(&shown, &sums, &scale))
                    }
                    div.times {
                        @for at in [0, self.times.len() / 2, self.times.len().saturating_sub(1)] {
                            @if let Some(time) = self.times.get(at) { time datetime=(utc(*time)) { (utc(*time)) } }
                        }
                    }
                    p.readout aria-hidden="true" { "Point at the chart to read values." }
                }
                figcaption { (self.legend()) }
            }
        }
    }

    /// What is shown at each moment, all series together.
    fn sums(&self, shown: &[(usize, &Series)]) -> Vec<i128> {
        let value = |at: usize| {
            move |(_, series): &(usize, &Series)| i128::from(series.values.get(at).copied().unwrap_or(0))
        };
        (0..self.times.len()).map(|at| shown.iter().map(value(at)).sum()).collect()
    }

    /// The outline of each series, with its colour.
    fn areas(&self, shown: &[(usize, &Series)], scale: &Scale) -> Vec<(usize, String)> {
        let mut floor = vec![0_i128; self.times.len()];
        let mut areas = Vec::with_capacity(shown.len());
        for (at, series) in shown {
            let ceiling: Vec<i128> = floor
                .iter()
                .enumerate()
                .map(|(at, below)| below + i128::from(series.values.get(at).copied().unwrap_or(0)))
                .collect();
            let mut points = String::new();
            let up = ceiling.iter().enumerate();
            let down = floor.iter().enumerate().rev();
            for (column, value) in up.chain(down) {
                // Writing to a string cannot fail.
                let _ = write!(points, "{},{} ", scale.x(column), scale.y(*value));
            }
            areas.push((at % COLOURS, points));
            floor = ceiling;
        }
        areas
    }

    /// A column for each moment, which the script reads under the pointer.
    fn columns(&self, shown: &[(usize, &Series)], sums: &[i128], scale: &Scale) -> Markup {
        let width = (scale.x(1) - scale.x(0)).max(1);
        let read = |at: usize| {
            let mut text = self.times.get(at).map(|time| utc(*time)).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = write!(text, "|{} RU/s", short(sums.get(at).copied().unwrap_or(0)));
            for (_, series) in shown.iter().filter(|_| shown.len() > 1) {
                match series.values.get(at) {
                    Some(value) if *value > 0 => {
                        let _ = write!(text, " · {} {}", series.name, short((*value).into()));
                    }
                    _ => {}
                }
            }
            text
        };
        html! {
            @for at in 0..self.times.len() {
                rect.column x=(scale.x(at) - width / 2) y=(TOP) width=(width) height=(HEIGHT - TOP - BOTTOM) data-read=(read(at)) {}
            }
        }
    }

    /// The table beside the picture: the newest, mean and largest value of each series, and the way to leave it out.
    fn legend(&self) -> Markup {
        html! {
            table.legend {
                caption.unseen { (self.title) }
                thead { tr { th scope="col" { (self.of) } th.number scope="col" { "Now" } th.number scope="col" { "Mean" } th.number scope="col" { "Most" } } }
                tbody {
                    @for (at, series) in self.series.iter().enumerate() {
                        @let is_hidden = self.hidden.contains(&series.name);
                        tr.hidden[is_hidden] {
                            th scope="row" {
                                a href=(self.toggled(&series.name)) id={ "legend-" (at) } aria-pressed=(!is_hidden) role="button"
                                    title=(if is_hidden { "Show it" } else { "Leave it out" }) {
                                    span class={ "swatch s" (at % COLOURS) } {} bdi { (series.name) }
                                }
                            }
                            td.number { (short(series.values.last().copied().unwrap_or(0).into())) }
                            td.number { (short(mean(&series.values))) }
                            td.number { (short(series.values.iter().copied().max().unwrap_or(0).into())) }
                        }
                    }
                    @if let Some((limit, name)) = self.limit {
                        tr { th scope="row" { span.swatch.limit {} (name) } td.number { (short(limit.into())) } td {} td {} }
                    }
                }
            }
        }
    }

    /// The page with this name left out, or no longer.
    fn toggled(&self, name: &str) -> String {
        let mut hidden: Vec<&str> = self.hidden.iter().map(String::as_str).collect();
        match hidden.iter().position(|of| *of == name) {
            Some(at) => {
                hidden.remove(at);
            }
            None => hidden.push(name),
        }
        self.link.clone().with(HIDE, hidden.join(",")).to_string()
    }
}

fn mean(values: &[i64]) -> i128 {
    let sum: i128 = values.iter().copied().map(i128::from).sum();
    sum / i128::try_from(values.len()).unwrap_or(1).max(1)
}

struct Scale {
    /// The value at the top.
    top: i128,
    /// How many moments there are.
    count: usize,
}

impl Scale {
    fn x(&self, at: usize) -> i128 {
        let last = i128::try_from(self.count.saturating_sub(1)).unwrap_or(1).max(1);
        LEFT + (WIDTH - LEFT) * i128::try_from(at).unwrap_or(0) / last
    }

    fn y(&self, value: i128) -> i128 {
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value.clamp(0, self.top) / self.top.max(1)
    }

    /// Lines across, with their values.
    fn lines(&self) -> Markup {
        html! {
            @for part in 0..=4 {
                @let value = self.top * part / 4;
                line.grid x1=(LEFT) x2=(WIDTH) y1=(self.y(value)) y2=(self.y(value)) {}
                text.scale x=(LEFT - 6) y=(self.y(value) + 4) text-anchor="end" { (short(value)) }
            }
        }
    }
}

/// The next of 1, 2, 4 and 8 times a power of ten: quarters of it are round, too.
fn round_up(value: i128) -> i128 {
    let mut unit = 1_i128;
    loop {
        if let Some(step) = [1, 2, 4, 8].into_iter().find(|step| unit.saturating_mul(*step) >= value) {
            return unit.saturating_mul(step);
        }
        unit = unit.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(hidden: &[String]) -> String {
        let series = |name: &str, values: &[i64]| Series {
            name: name.to_owned(),
            values: values.iter().map(|value| value * 1_000_000).collect(),
        };
        let chart = Chart {
            title: "Use",
            times: vec![0, 1_000, 2_000],
            of: "Group",
            series: vec![series("a", &[1, 2, 3]), series("<b>", &[4, 4, 4])],
            limit: Some((10_000_000, "capacity")),
            hidden,
            link: Link::to(&[]),
        };
        chart.markup().into_string()
    }

    #[test]
    fn series_stand_on_each_other_and_under_the_limit() {
        let text = chart(&[]);
        // The scale ends at 10 RU/s, so a RU/s is 21 high: the first area ends at 3, the second one at 3 + 4.
        assert!(text.contains("900,155 900,218"), "{text}");
        assert!(text.contains("900,71 900,155"), "{text}");
        assert!(text.contains("1970-01-01T00:00:02Z|7 RU/s · a 3 · &lt;b&gt; 4"), "{text}");
        assert!(!text.contains("<b>") && !text.contains("style="), "{text}");
    }

    #[test]
    fn what_is_left_out_stands_in_the_legend_alone() {
        let text = chart(&["<b>".to_owned()]);
        assert_eq!(text.matches("<polygon").count(), 1);
        assert!(text.contains("1970-01-01T00:00:02Z|3 RU/s\""), "{text}");
        assert!(text.contains("href=\"/console/\"") || text.contains("href=\"/console\""), "{text}");
        assert!(text.contains("hide=%3Cb%3E%2Ca"), "{text}");
    }

    #[test]
    fn an_area_has_the_colour_of_its_row_in_the_legend_whatever_is_left_out() {
        let names: Vec<String> = (0..=COLOURS).map(|at| format!("n{at}")).collect();
        let series = names.iter().map(|name| Series { name: name.clone(), values: vec![1, 1] }).collect();
        let hidden = ["n0".to_owned(), "n3".to_owned()];
        let (title, of, link) = ("Use", "Group", Link::to(&[]));
        let chart = Chart { title, times: vec![0, 1_000], of, series, limit: None, hidden: &hidden, link };
        let text = chart.markup().into_string();
        let areas = text.split("<polygon class=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        assert_eq!(areas.collect::<Vec<_>>(), ["s1", "s2", "s4", "s5", "s6", "s7", "s0"], "{text}");
        for (at, name) in names.iter().enumerate() {
            let row = format!("<span class=\"swatch s{}\"></span><bdi>{name}</bdi>", at % COLOURS);
            assert!(text.contains(&row), "{row}: {text}");
        }
        assert_eq!(text.matches("class=\"hidden\"").count(), 2, "{text}");
        assert!(
            text.contains("href=\"/console?hide=n0\"") && text.contains("href=\"/console?hide=n3\""),
            "{text}"
        );
    }

    #[test]
    fn the_legend_has_the_newest_the_mean_and_the_largest_value() {
        let values = [9, 1, 2].map(|value| value * 1_000_000).to_vec();
        let series = vec![Series { name: "a".to_owned(), values }];
        let (title, of, link) = ("Use", "Group", Link::to(&[]));
        let limit = Some((7_000_000, "capacity"));
        let chart = Chart { title, times: vec![0, 1_000, 2_000], of, series, limit, hidden: &[], link };
        let text = chart.markup().into_string();
        let cells = ["2", "4", "9"].map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
        assert!(text.contains(&format!("<bdi>a</bdi></a></th>{cells}</tr>")), "{text}");
        assert!(text.contains("capacity</th><td class=\"number\">7</td>"), "{text}");
        // The scale ends at 10 RU/s: a limit of 7 is 147 above the foot.
        assert!(text.contains("<line class=\"limit\" x1=\"64\" x2=\"900\" y1=\"71\" y2=\"71\">"), "{text}");
    }

    #[test]
    fn a_scale_ends_at_a_round_value_above_all() {
        for (value, top) in [(1, 1), (3, 4), (5, 8), (9, 10), (11, 20), (41, 80), (99_000_000, 100_000_000)] {
            assert_eq!(round_up(value), top);
        }
    }

    #[test]
    fn one_moment_is_no_chart() {
        let empty = Chart {
            title: "",
            times: vec![1],
            of: "Group",
            series: Vec::new(),
            limit: None,
            hidden: &[],
            link: Link::to(&[]),
        };
        assert!(empty.markup().into_string().contains("nothing to draw yet"));
    }
}
