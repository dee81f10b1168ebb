//! A plot of costs over a size that grows by powers, as SVG: both axes logarithmic, lines with a dot at each figure.

use std::fmt::Write as _;

use tidegate_lab::frame::Frame;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 48.0;
const FRAME: Frame =
    Frame { width: WIDTH, height: HEIGHT, left: LEFT, right: RIGHT, top: TOP, bottom: BOTTOM, title: 24.0 };
const COLOURS: [&str; 3] = ["#3b7dac", "#e8a33d", "#5b8c5a"];

/// What is drawn.
pub struct Plot {
    /// Above it.
    pub title: String,
    /// Below the horizontal axis.
    pub across: &'static str,
    /// Beside the vertical axis.
    pub up: &'static str,
    /// Lines with their names; each point is a size and its cost, both above zero.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// An axis from the lowest to the highest value, in whole powers of ten up to its end.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min).log10().floor();
        let high = values.fold(f64::NEG_INFINITY, f64::max).log10().ceil();
        Self { low, high: if high > low { high } else { low + 1.0 }, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value.log10() - self.low) / (self.high - self.low)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        let mut exponent = self.low;
        std::iter::from_fn(move || {
            let tick = (exponent <= self.high).then(|| 10_f64.powf(exponent));
            exponent += 1.0;
            tick
        })
    }
}

impl Plot {
    /// The picture.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|(_, points)| points.iter().copied());
        let across =
            Axis::over(points().map(|(x, _)| x).collect::<Vec<_>>().into_iter(), LEFT, WIDTH - RIGHT);
        let up = Axis::over(points().map(|(_, y)| y).collect::<Vec<_>>().into_iter(), HEIGHT - BOTTOM, TOP);
        let mut svg = FRAME.open(&self.title);
        let tick = |axis: &Axis, tick| (axis.place(tick), short(tick));
        let (columns, rows) =
            (across.ticks().map(|at| tick(&across, at)), up.ticks().map(|at| tick(&up, at)));
        FRAME.axes(&mut svg, columns, rows, (self.across, self.up));
        // Figures of the first line stand above it, those of the others below.
        for ((name, points), (colour, beside)) in
            self.lines.iter().zip(COLOURS.into_iter().zip([-7.0, 16.0, 16.0]))
        {
            let place = |(x, y): &(f64, f64)| (across.place(*x), up.place(*y));
            let path: Vec<String> = points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            );
            for point in points {
                let (x, y) = place(point);
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
                     text-anchor=\"middle\" font-size=\"10\">{}</text>",
                    y + beside,
                    short(point.1)
                );
            }
            if let Some((x, y)) = points.last().map(place) {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
                    x + 12.0,
                    y + 4.0
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// A number of three digits, with its thousands as a letter.
fn short(value: f64) -> String {
    let (scaled, letter) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = match scaled {
        s if s >= 99.5 => 0,
        s if s >= 9.95 => 1,
        _ => 2,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [(0.01, "0.01"), (1.0, "1"), (2.754, "2.75"), (31.46, "31.5"), (1_200.0, "1.2k")]
        {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(1_000_000.0), "1M");
    }

    #[test]
    fn every_figure_lies_within_the_axes() {
        let plot = Plot {
            title: "t".to_owned(),
            across: "n",
            up: "us",
            lines: vec![("a".to_owned(), vec![(1.0, 0.5), (10_000.0, 3.0)])],
        };
        let svg = plot.svg();
        assert_eq!(svg.matches("<circle").count(), 2);
        for (axis, low, high) in [("cx", LEFT, WIDTH - RIGHT), ("cy", TOP, HEIGHT - BOTTOM)] {
            for part in svg.split(&format!("{axis}=\"")).skip(1) {
                let value: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((low..=high).contains(&value), "{axis} {value}");
            }
        }
    }
}
