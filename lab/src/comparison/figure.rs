//! The figure of a scenario, as SVG: RU/s admitted over time, a panel per system under each other on the same scales.
//!
//! Loads are stacked in their order; the dashed line is the cap. Values above the top of a panel are cut off, and the
//! panel says how high they went.

use std::fmt::Write as _;

use tidegate_core::units::Time;

use super::measures::{float, ru};
use super::scenario::Scenario;
use super::system::{Run, System};
use crate::frame::grouped;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 76.0;
const PANEL: f64 = 78.0;
const GAP: f64 = 26.0;
/// The colours of the loads, from the bottom up.
const COLOURS: [&str; 2] = ["#3b7dac", "#e8a33d"];
const CAP: &str = "#b3261e";

/// A scenario's scales.
struct Scale {
    end: f64,
    top: f64,
}

impl Scale {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.end
    }

    /// Height above a panel's bottom.
    fn height(&self, rate: f64) -> f64 {
        PANEL * (rate / self.top).min(1.0)
    }
}

/// The figure of some systems, by name.
pub fn figure(scenario: &Scenario, runs: &[(&str, &Run)]) -> String {
    let end = float(u128::from(scenario.end.0)) / 1e6;
    let cap = float(u128::from(scenario.caps.largest()));
    let scale = Scale { end, top: cap * if scenario.saturated { 2.0 } else { 1.6 } };
    let panels = float(runs.len() as u128);
    let height = TOP + panels * (PANEL + GAP) + 28.0;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"11\" fill=\"#2b2f36\">"
    );
    let _ = writeln!(svg, "<title>{}: RU/s admitted over time</title>", scenario.title);
    let _ = writeln!(svg, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>");
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"600\">{}</text>",
        scenario.title
    );
    legend(&mut svg, scenario);
    for (index, (name, run)) in runs.iter().enumerate() {
        let bottom = TOP + float(index as u128) * (PANEL + GAP) + PANEL;
        panel(&mut svg, scenario, &scale, bottom, name, run);
    }
    time_axis(&mut svg, &scale, TOP + panels * (PANEL + GAP) - GAP);
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, scenario: &Scenario) {
    let mut x = LEFT;
    for (label, colour) in scenario.labels().into_iter().zip(COLOURS) {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"38\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"48\">{label}, admitted</text>",
            x + 17.0
        );
        x += 95.0 + 6.0 * float(label.len() as u128);
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{x:.0}\" y1=\"44\" x2=\"{:.0}\" y2=\"44\" stroke=\"{CAP}\" stroke-width=\"1.5\" \
         stroke-dasharray=\"5 3\"/><text x=\"{:.0}\" y=\"48\">cap</text>",
        x + 22.0,
        x + 28.0
    );
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"48\" text-anchor=\"end\" fill=\"#5d6470\">RU/s, means over {}</text>",
        WIDTH - RIGHT,
        scenario.bin
    );
}

fn panel(svg: &mut String, scenario: &Scenario, scale: &Scale, bottom: f64, name: &str, run: &Run) {
    let (left, right) = (LEFT, WIDTH - RIGHT);
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{:.0}\" width=\"{:.0}\" height=\"{PANEL}\" fill=\"#f7f8fa\"/>",
        bottom - PANEL,
        right - left
    );
    let layers = layers(scenario, run);
    let mut below: Vec<f64> = vec![0.0; layers.first().map_or(0, Vec::len)];
    for (layer, colour) in layers.iter().zip(COLOURS) {
        let above: Vec<f64> = below.iter().zip(layer).map(|(below, layer)| below + layer).collect();
        area(svg, scenario, scale, bottom, (&below, &above), colour);
        below = above;
    }
    let unit = float(u128::from(scenario.caps.largest()));
    for part in [0.0, 0.5, 1.0, 1.5, 2.0] {
        let rate = part * unit;
        if rate <= scale.top {
            let y = bottom - scale.height(rate);
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#2b2f36\" \
                 stroke-opacity=\"0.12\"/>"
            );
        }
    }
    for part in [0.0, 0.5, 1.0] {
        let y = bottom - scale.height(part * unit) + 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"#5d6470\">{}</text>",
            left - 7.0,
            thousands(part * unit)
        );
    }
    cap_line(svg, scenario, scale, bottom);
    let weight = if name == System::Tidegate.name() { "700" } else { "600" };
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{:.0}\" font-size=\"12\" font-weight=\"{weight}\">{}</text>",
        bottom - PANEL - 5.0,
        name
    );
    let peak = below.iter().copied().fold(0.0, f64::max);
    let over = if peak > scale.top { " (cut off)" } else { "" };
    let _ = writeln!(
        svg,
        "<text x=\"{right:.0}\" y=\"{:.0}\" text-anchor=\"end\" fill=\"#5d6470\">peak {}{over}</text>",
        bottom - PANEL - 5.0,
        thousands(peak)
    );
}

/// RU/s of each label, by bin.
fn layers(scenario: &Scenario, run: &Run) -> Vec<Vec<f64>> {
    let bins = usize::try_from(scenario.end.0 / scenario.bin.0).unwrap_or_default();
    let seconds = float(u128::from(scenario.bin.0)) / 1e6;
    let layer = |label: &str| {
        let loads = scenario.loads_of(label);
        let mut sums = vec![0.0; bins];
        for entry in run.log.admitted.iter().filter(|entry| loads.contains(&entry.load)) {
            let bin = usize::try_from(entry.at.since(Time(0)).0 / scenario.bin.0).unwrap_or(usize::MAX);
            if let Some(sum) = sums.get_mut(bin) {
                *sum += ru(entry.cost) / seconds;
            }
        }
        sums
    };
    scenario.labels().into_iter().map(layer).collect()
}

fn area(
    svg: &mut String,
    scenario: &Scenario,
    scale: &Scale,
    bottom: f64,
    edges: (&[f64], &[f64]),
    colour: &str,
) {
    let (below, above) = edges;
    let width = float(u128::from(scenario.bin.0)) / 1e6;
    let x = |bin: usize| scale.x(float(bin as u128) * width);
    let mut path = String::new();
    for (bin, rate) in above.iter().enumerate() {
        let y = bottom - scale.height(*rate);
        let verb = if bin == 0 { 'M' } else { 'V' };
        let _ = match verb {
            'M' => write!(path, "M{:.1} {y:.1}H{:.1}", x(bin), x(bin + 1)),
            _ => write!(path, "V{y:.1}H{:.1}", x(bin + 1)),
        };
    }
    for (bin, rate) in below.iter().enumerate().rev() {
        let y = bottom - scale.height(*rate);
        let _ = write!(path, "V{y:.1}H{:.1}", x(bin));
    }
    let _ = writeln!(svg, "<path d=\"{path}Z\" fill=\"{colour}\"/>");
}

fn cap_line(svg: &mut String, scenario: &Scenario, scale: &Scale, bottom: f64) {
    let steps = scenario.caps.steps();
    let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([scenario.end]);
    let mut path = String::new();
    for ((from, rate), to) in steps.iter().zip(ends) {
        let y = bottom - scale.height(float(u128::from(*rate)));
        let seconds = |at: Time| float(u128::from(at.0)) / 1e6;
        let start = scale.x(seconds(*from));
        let _ = match path.is_empty() {
            true => write!(path, "M{start:.1} {y:.1}"),
            false => write!(path, "V{y:.1}"),
        };
        let _ = write!(path, "H{:.1}", scale.x(seconds(to)));
    }
    let _ = writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{CAP}\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"/>"
    );
}

fn time_axis(svg: &mut String, scale: &Scale, bottom: f64) {
    for tick in 0..=6_u32 {
        let seconds = scale.end * f64::from(tick) / 6.0;
        let x = scale.x(seconds);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#2b2f36\" stroke-opacity=\"0.10\"/>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#5d6470\">{}</text>",
            bottom + 16.0,
            format!("{seconds:.1}").trim_end_matches(".0")
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#5d6470\">time, seconds</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        bottom + 34.0
    );
}

/// 12,345, or 2.5 below ten.
fn thousands(rate: f64) -> String {
    if rate < 10.0 {
        return format!("{rate:.1}").trim_end_matches(".0").to_owned();
    }
    grouped(&format!("{rate:.0}"))
}
