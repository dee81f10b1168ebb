//! Looks again and again: `--watch`.
//!
//! The controller is asked each interval. On a terminal, tables are drawn again in place, on the alternate screen, and
//! the last one stays when it ends. Otherwise what changed is printed: the whole table with an empty line before it, a
//! line of JSON, a document of YAML, or the names that were not there before. A controller that is away is said, once,
//! on the standard error or above the table; when it is back, it goes on. Ctrl-C and SIGTERM end it well.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tidegate_controller::quantity::parse_span;
use tokio::time::MissedTickBehavior;

use crate::admin::Admin;
use crate::args::Global;
use crate::clock::{unix_ms, utc_text};
use crate::endpoints;
use crate::error::CliError;
use crate::output::{Output, note, print, print_raw};
use crate::page::Page;
use crate::screen::Screen;
use crate::stop;
use crate::table::{Tone, cut_end};
use crate::terminal::{Asked, Signals, Terminal};

/// Shortest pause between looks; more often would measure itself.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Longest pause between looks: a user who waits a day for a line asks once a day.
pub(crate) const MAX_INTERVAL: Duration = Duration::from_secs(86_400);

/// What a command shows.
pub(crate) trait Shown: Serialize {
    /// For people.
    fn page(&self) -> Page;
    /// The names that other commands take.
    fn names(&self) -> Vec<String>;
    /// What is said beside it, on the standard error.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Whether to look once or again and again.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Follow {
    /// Repeat until Ctrl-C: redraw the table, or print what changed.
    #[arg(short, long)]
    watch: bool,
    /// With --watch: time between updates, at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, requires = "watch")]
    interval: Duration,
}

/// A time between looks.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    let interval = Duration::from_micros(span.0);
    if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
        return Err(format!("{text:?} is out of range: 100ms to 24h"));
    }
    Ok(interval)
}

/// Shows what `read` gets, once or again and again.
pub(crate) async fn show<V: Shown>(
    global: &Global,
    follow: Follow,
    read: impl AsyncFn(&Admin) -> Result<V, CliError>,
) -> Result<(), CliError> {
    let mut admin = global.admin().await?;
    let first = read(&admin).await?;
    let output = global.output;
    if !follow.watch {
        output.list(&first, || first.names(), || first.page())?;
        first.notes().iter().for_each(|line| note(line));
        return Ok(());
    }
    let drawn = output.is_for_people() && Screen::stdout().is_terminal;
    // Printed output may go on when the terminal is gone.
    let mut signals = drawn.then(Signals::listen).transpose()?;
    let ended = stop::requested(false);
    tokio::pin!(ended);
    let mut ticks = tokio::time::interval(follow.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut watched = if drawn { Watched::drawn(global, follow.interval)? } else { Watched::printed(output) };
    watched.saw(first)?;
    loop {
        let look = async {
            ticks.tick().await;
            look_again(global, &mut admin, &read).await
        };
        tokio::select! {
            looked = look => match looked {
                Ok(value) => watched.saw(value)?,
                Err(error) if error.passes() => watched.missed(&error)?,
                Err(error) => return Err(error),
            },
            asked = heard(&mut signals) => match asked {
                Asked::End => return watched.end(),
                asked => watched.heed(asked)?,
            },
            stopped = &mut ended => {
                stopped?;
                return watched.end();
            }
        }
    }
}

/// Reads again; of several controllers another one may lead by now, which is looked for where the one that did says
/// nothing.
pub(crate) async fn look_again<V>(
    global: &Global,
    admin: &mut Admin,
    read: &impl AsyncFn(&Admin) -> Result<V, CliError>,
) -> Result<V, CliError> {
    let missed = match read(admin).await {
        Err(error) if error.passes() => error,
        looked => return looked,
    };
    if endpoints::each(&global.endpoint).nth(1).is_none() {
        return Err(missed);
    }
    match global.admin().await {
        Ok(found) => {
            *admin = found;
            read(admin).await
        }
        Err(_) => Err(missed),
    }
}

/// The next signal; never, where none is listened for.
async fn heard(signals: &mut Option<Signals>) -> Asked {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}

/// What was seen so far.
struct Watched<V> {
    last: Option<V>,
    /// What the controller did not do, while it is away.
    away: Option<String>,
    way: Way,
}

enum Way {
    Drawn { terminal: Terminal, heading: String, wide: bool },
    Printed { output: Output, seen: serde_json::Value, names: Vec<String> },
}

impl<V: Shown> Watched<V> {
    fn drawn(global: &Global, interval: Duration) -> Result<Self, CliError> {
        let heading = format!("every {interval:?}: {}", global.endpoint);
        let way =
            Way::Drawn { terminal: Terminal::take(false)?, heading, wide: global.output == Output::Wide };
        Ok(Self { last: None, away: None, way })
    }

    fn printed(output: Output) -> Self {
        let way = Way::Printed { output, seen: serde_json::Value::Null, names: Vec::new() };
        Self { last: None, away: None, way }
    }

    fn saw(&mut self, value: V) -> Result<(), CliError> {
        if self.away.take().is_some() && matches!(self.way, Way::Printed { .. }) {
            note("the controller is back");
        }
        if let Way::Printed { output, seen, names } = &mut self.way {
            print_change(&value, *output, seen, names)?;
        }
        self.last = Some(value);
        self.draw()
    }

    fn missed(&mut self, error: &CliError) -> Result<(), CliError> {
        if self.away.is_none() && matches!(self.way, Way::Printed { .. }) {
            note(&format!("tidegate: {error}; trying again"));
        }
        self.away = Some(error.to_string());
        self.draw()
    }

    /// A signal of the terminal.
    fn heed(&mut self, asked: Asked) -> Result<(), CliError> {
        if let Way::Drawn { terminal, .. } = &mut self.way {
            match asked {
                Asked::Suspend => return terminal.suspend(),
                Asked::Resume => terminal.resume()?,
                Asked::Draw | Asked::End => {}
            }
        }
        self.draw()
    }

    fn draw(&mut self) -> Result<(), CliError> {
        let (Way::Drawn { terminal, heading, wide }, Some(last)) = (&mut self.way, &self.last) else {
            return Ok(());
        };
        let screen = Screen::stdout();
        let columns = screen.columns.unwrap_or(usize::MAX);
        let said = match &self.away {
            None => format!("{heading}  {}", utc_text(unix_ms())),
            Some(error) => format!("away, trying again: {error}"),
        };
        let said = cut_end(&said, columns);
        let tone = if self.away.is_some() { Tone::Bad } else { Tone::Faint };
        let mut lines = vec![if screen.color { tone.paint(&said) } else { said }, String::new()];
        lines.extend(last.page().lines(&screen, *wide));
        lines.extend(last.notes());
        if let Some(rows) = screen.rows
            && lines.len() > rows
        {
            let more = lines.len().saturating_sub(rows).saturating_add(1);
            lines.truncate(rows.saturating_sub(1));
            lines.push(cut_end(
                &format!("{more} more lines; a taller terminal or a pipe shows them"),
                columns,
            ));
        }
        terminal.draw(&lines)
    }

    /// The last table stays on the screen that stays.
    fn end(self) -> Result<(), CliError> {
        let Way::Drawn { terminal, wide, .. } = self.way else {
            return Ok(());
        };
        drop(terminal);
        let Some(last) = self.last else {
            return Ok(());
        };
        print_raw(&last.page().lines(&Screen::stdout(), wide).join("\n"))
    }
}

/// Prints `value` if it is another than was `seen`.
fn print_change<V: Shown>(
    value: &V,
    output: Output,
    seen: &mut serde_json::Value,
    names: &mut Vec<String>,
) -> Result<(), CliError> {
    if output == Output::Name {
        return print_new(value.names(), names);
    }
    let json = serde_json::to_value(value).map_err(|error| CliError::Output(error.into()))?;
    if json == *seen {
        return Ok(());
    }
    if output.is_for_people() && !seen.is_null() {
        print_raw("")?;
    }
    *seen = json;
    output.one(value, || value.page())?;
    value.notes().iter().for_each(|line| note(line));
    Ok(())
}

/// Prints those of `names` that are not among the ones of `before`, in whose place they are put.
pub(crate) fn print_new(names: Vec<String>, before: &mut Vec<String>) -> Result<(), CliError> {
    names.iter().filter(|name| !before.contains(name)).try_for_each(|name| print(name))?;
    *before = names;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_out_of_range_is_refused_with_bounds_that_are_taken() {
        for out_of_range in ["99ms", "0s", "86401s", "25h"] {
            let said = interval(out_of_range).unwrap_err();
            let (_, bounds) = said.split_once("is out of range: ").unwrap();
            let bounds: Vec<Duration> = bounds.split(" to ").map(|bound| interval(bound).unwrap()).collect();
            assert_eq!(bounds, [MIN_INTERVAL, MAX_INTERVAL], "{said}");
        }
        assert!(interval("1 day").unwrap_err().contains("is not a duration such as"));
    }
}
