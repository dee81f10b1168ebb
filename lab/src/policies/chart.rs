//! A chart over linear axes, as SVG: lines, steps or dots, a legend, and a dashed line at a limit.

use std::fmt::Write as _;

use crate::frame::{Frame, escaped};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 48.0;
const FRAME: Frame =
    Frame { width: WIDTH, height: HEIGHT, left: LEFT, right: RIGHT, top: TOP, bottom: BOTTOM, title: 22.0 };
const COLOURS: [&str; 6] = ["#3b7dac", "#e8a33d", "#5b8c5a", "#8a5a9e", "#b0704a", "#5d6470"];
const LIMIT: &str = "#b3261e";
/// Pixels of a letter, about.
const LETTER: f64 = 6.2;

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Joined.
    Line,
    /// Each height held until the next point.
    Steps,
    /// Apart.
    Dots,
}

/// What is drawn in one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// How.
    pub style: Style,
    /// Where, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// The chart. Both axes begin at the lowest value or at zero, whichever is lower.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the horizontal axis.
    pub across: &'static str,
    /// Beside the vertical axis.
    pub up: &'static str,
    /// At most six.
    pub series: Vec<Series>,
    /// Where the dashed line is, and what it says.
    pub limit: Option<(f64, String)>,
}

/// From the lowest to the highest value of an axis.
struct Axis {
    end: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let end = values.fold(0.0, f64::max);
        let step = step(end);
        Self { end: if end > 0.0 { (end / step).ceil() * step } else { 1.0 }, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * value / self.end
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (step, end) = (step(self.end), self.end);
        (0..20_u8).map(move |number| f64::from(number) * step).take_while(move |tick| *tick <= end * 1.001)
    }
}

/// Between two lines of the grid: 1, 2 or 5 times a power of ten, so that there are four to eight.
fn step(end: f64) -> f64 {
    if end <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf((end / 4.0).log10().floor());
    let times = [5.0, 2.0, 1.0].into_iter().find(|times| times * power * 4.0 <= end * 1.000_001);
    times.unwrap_or(1.0) * power
}

impl Chart {
    /// The picture.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let across = Axis::over(points().map(|(x, _)| x), LEFT, WIDTH - RIGHT);
        let heights = points().map(|(_, y)| y).chain(self.limit.iter().map(|(height, _)| *height));
        let up = Axis::over(heights, HEIGHT - BOTTOM, TOP);
        let mut svg = FRAME.open(&self.title);
        let tick = |axis: &Axis, tick| (axis.place(tick), label(tick));
        let (columns, rows) =
            (across.ticks().map(|at| tick(&across, at)), up.ticks().map(|at| tick(&up, at)));
        FRAME.axes(&mut svg, columns, rows, (self.across, self.up));
        self.legend(&mut svg);
        for (series, colour) in self.series.iter().zip(COLOURS) {
            series.draw(&mut svg, &across, &up, colour);
        }
        if let Some((height, _)) = &self.limit {
            let (y, right) = (up.place(*height), WIDTH - RIGHT);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"{LIMIT}\" \
                 stroke-dasharray=\"5 3\"/>"
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let names = self.series.iter().zip(COLOURS).map(|(series, colour)| (series.name.as_str(), colour));
        let limit = self.limit.iter().map(|(_, name)| (name.as_str(), LIMIT));
        let mut x = LEFT;
        for (name, colour) in names.chain(limit) {
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.0}\" y=\"34\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>\
                 <text x=\"{:.0}\" y=\"44\">{}</text>",
                x + 17.0,
                escaped(name)
            );
            let letters = u32::try_from(name.chars().count()).unwrap_or(u32::MAX);
            x += 38.0 + LETTER * f64::from(letters);
        }
    }
}

impl Series {
    fn draw(&self, svg: &mut String, across: &Axis, up: &Axis, colour: &str) {
        let places = self.points.iter().map(|(x, y)| (across.place(*x), up.place(*y)));
        if self.style == Style::Dots {
            for (x, y) in places {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\" fill=\"{colour}\"/>");
            }
            return;
        }
        let mut path = String::new();
        for (x, y) in places {
            let _ = match (path.is_empty(), self.style) {
                (true, _) => write!(path, "M{x:.1} {y:.1}"),
                (false, Style::Steps) => write!(path, "H{x:.1}V{y:.1}"),
                (false, _) => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
    }
}

/// A number of the grid, without zeros behind its point.
fn label(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_keeps_what_it_draws_within_its_axes() {
        let points = vec![(0.0, 3.0), (1.5, 97.0), (12.0, 0.0)];
        let series = |style| Series { name: "a & b".to_owned(), style, points: points.clone() };
        let chart = Chart {
            title: "t < u".to_owned(),
            across: "s",
            up: "calls",
            series: vec![series(Style::Dots), series(Style::Steps), series(Style::Line)],
            limit: Some((100.0, "limit".to_owned())),
        };
        let svg = chart.svg();
        assert!(svg.contains("t &lt; u") && svg.contains("a &amp; b") && !svg.contains("NaN"));
        assert_eq!((svg.matches("<circle").count(), svg.matches("<path").count()), (3, 2));
        for (axis, low, high) in [("cx", LEFT, WIDTH - RIGHT), ("cy", TOP, HEIGHT - BOTTOM)] {
            for part in svg.split(&format!("{axis}=\"")).skip(1) {
                let value: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((low..=high).contains(&value), "{axis} {value}");
            }
        }
    }

    #[test]
    fn a_grid_has_four_to_eight_lines_of_round_numbers() {
        for (end, expected) in [(100.0, 20.0), (97.0, 20.0), (13.0, 2.0), (1.0, 0.2), (8_000.0, 2_000.0)] {
            assert!((step(end) - expected).abs() < 1e-9, "{end}: {}", step(end));
        }
    }
}
