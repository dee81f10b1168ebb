//! How costs grow: with the clients of a group, with its depth, with the groups of a message, with the groups of a
//! controller. A plot each.

use std::fs;
use std::path::Path;

use super::child::{ask, figure};
use super::contest::{Work, contest};
use super::decision::work;
use super::error::{BenchError, failed};
use super::messages;
use super::plot::Plot;
use super::renewals::Renewals;
use super::setting::Setting;
use super::site::{Site, capped};
use super::stock::Stock;
use super::stream::node::Nodes;

/// Renewals on their way when messages are measured.
const WINDOW: usize = 16;
/// Levels below the root are measured with this many clients.
const CLIENTS: usize = 1_000;

/// Measures what one plot shows.
type Measure = fn(&Setting) -> Result<Plot, BenchError>;

/// Measures all and writes the plots into `folder`.
pub fn write(folder: &Path, setting: &Setting) -> Result<(), BenchError> {
    let plots: [(&str, Measure); 4] =
        [("clients", clients), ("depth", depth), ("message", message), ("groups", groups)];
    fs::create_dir_all(folder).map_err(failed("make the folder of the plots"))?;
    for (name, measure) in plots {
        eprintln!("bench: growth: {name}");
        let path = folder.join(format!("growth-{name}.svg"));
        fs::write(&path, measure(setting)?.svg()).map_err(failed("write a plot"))?;
        eprintln!("bench: wrote {}", path.display());
    }
    Ok(())
}

/// Microseconds of a decision.
fn decision(setting: &Setting, clients: usize, depth: u32) -> Result<f64, BenchError> {
    let mut renewals = Renewals::start(clients, depth)?;
    let samples = contest(setting, &mut [work(&mut renewals)])?;
    Ok(samples.first().map_or(f64::NAN, |ns| ns.median() / 1e3))
}

fn clients(setting: &Setting) -> Result<Plot, BenchError> {
    let sizes = [10, 100, 1_000, 10_000, setting.size(100_000, 10_000)];
    let line = |depth| -> Result<Vec<(f64, f64)>, BenchError> {
        sizes.iter().map(|clients| Ok((*clients as f64, decision(setting, *clients, depth)?))).collect()
    };
    Ok(Plot {
        title: "A grant decision, by clients of the group".to_owned(),
        across: "clients in the group",
        up: "microseconds",
        lines: vec![("nested 3 deep".to_owned(), line(3)?), ("flat".to_owned(), line(1)?)],
    })
}

fn depth(setting: &Setting) -> Result<Plot, BenchError> {
    let figures: Result<_, BenchError> = [1, 2, 4, 8]
        .iter()
        .map(|depth| Ok((f64::from(*depth), decision(setting, CLIENTS, *depth)?)))
        .collect();
    Ok(Plot {
        title: "A grant decision, by depth of the group".to_owned(),
        across: "levels below the root",
        up: "microseconds",
        lines: vec![("1,000 clients".to_owned(), figures?)],
    })
}

fn message(setting: &Setting) -> Result<Plot, BenchError> {
    let most = 1_000;
    let site =
        Site::with((0..most).map(|number| capped(messages::group_name(number), "100000")), Vec::new())?;
    let mut figures = Vec::new();
    for groups in [1, 10, 100, most] {
        let mut nodes = site.runtime.block_on(Nodes::connect(&site.endpoint()?, 1, groups))?;
        let work: Work<'_> =
            Box::new(|count| site.runtime.block_on(nodes.renew(count, WINDOW)).map(|talk| talk.took));
        let samples = contest(setting, &mut [work])?;
        let ns = samples.first().map_or(f64::NAN, |samples| samples.median());
        figures.push((groups as f64, ns / 1e3 / groups as f64));
    }
    Ok(Plot {
        title: "A group's renewal over one stream, by groups a message".to_owned(),
        across: "groups a message",
        up: "microseconds a group",
        lines: vec![("one stream".to_owned(), figures)],
    })
}

fn groups(setting: &Setting) -> Result<Plot, BenchError> {
    let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
    let (mut starts, mut sizes) = (Vec::new(), Vec::new());
    for count in [1_000, 10_000, 100_000, setting.size(1_000_000, 100_000)] {
        let path = folder.path().join(format!("{count}.redb"));
        let groups = (0..count).map(|number| capped(messages::group_name(number), "1000"));
        Stock { groups, tenants: Vec::new() }.fill(&path)?;
        let answer = ask(&["controller", &path.to_string_lossy(), "100"])?;
        starts.push((count as f64, figure(&answer, "granted_s")? * 1e3));
        sizes.push((count as f64, figure(&answer, "resident")? / 1e6));
    }
    Ok(Plot {
        title: "A controller's start and memory, by its groups".to_owned(),
        across: "groups in the store",
        up: "ms to the first grant, MB resident",
        lines: vec![("start, ms".to_owned(), starts), ("memory, MB".to_owned(), sizes)],
    })
}
