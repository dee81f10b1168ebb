//! `tidegate top`: all groups, live on a terminal, or printed again and again.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;

use crate::args::Global;
use crate::clock::{unix_ms, utc_text};
use crate::error::CliError;
use crate::follow::{interval, look_again, print_new};
use crate::output::{Output, note};
use crate::page::Page;
use crate::sample::{GroupSample, sample};
use crate::stop;
use crate::top::{self, Board, indented, table};

/// How to look.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate top\n  tidegate top --interval 5s\n  tidegate top --once -o json\n\n\
    Keys: q quits, ? shows all keys, arrows choose and sort, Enter shows one group's waits, parts and nodes, / filters,\n\
    t shows the tree, a all groups, p pauses.\n\
    Without a terminal, or as JSON or YAML, it prints the figures once per interval. JSON and YAML have all groups;\n\
    with -o name it prints each name once when it comes.\n\
    Numbers of a group include the groups below it; in JSON they are `with_children`."
)]
pub(crate) struct TopArgs {
    /// Show one table and end.
    #[arg(long)]
    once: bool,
    /// Show unused groups, too.
    #[arg(long)]
    all: bool,
    /// Time between updates, at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

/// Runs the command.
pub(crate) async fn run(args: TopArgs, global: &Global) -> Result<(), CliError> {
    let mut admin = global.admin().await?;
    let mut board = Board::new(&global.endpoint, args.interval, args.all);
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if terminal && !args.once && global.output.is_for_people() {
        return top::run(admin, board, global).await;
    }
    let first = sample(&admin).await?;
    if args.once {
        board.saw(first.clone(), unix_ms());
        return global.output.list(&first, || names(&board), || page(&board, &first));
    }
    let ended = stop::requested(false);
    tokio::pin!(ended);
    let mut ticks = tokio::time::interval(args.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut away, mut named) = (false, Vec::new());
    loop {
        let look = async {
            ticks.tick().await;
            look_again(global, &mut admin, &sample).await
        };
        tokio::select! {
            looked = look => match looked {
                Ok(samples) => {
                    if std::mem::take(&mut away) {
                        note("the controller is back");
                    }
                    board.saw(samples.clone(), unix_ms());
                    if global.output == Output::Name {
                        print_new(names(&board), &mut named)?;
                        continue;
                    }
                    let heading = format!("{}  {}\n", global.endpoint, utc_text(unix_ms()));
                    let shown = || Page::from(heading).then(page(&board, &samples)).then("");
                    global.output.one(&samples, shown)?;
                }
                Err(error) if error.passes() => {
                    if !std::mem::replace(&mut away, true) {
                        note(&format!("tidegate: {error}; trying again"));
                    }
                }
                Err(error) => return Err(error),
            },
            stopped = &mut ended => return stopped,
        }
    }
}

fn names(board: &Board) -> Vec<String> {
    board.rows().into_iter().map(|(_, sample)| sample.group.clone()).collect()
}

fn page(board: &Board, samples: &[GroupSample]) -> Page {
    let rows = board.rows();
    let unused = samples.len().saturating_sub(rows.len());
    let rows = rows.into_iter().map(|(depth, sample)| (indented(depth, &sample.group), sample));
    let page = Page::from(table(rows, None));
    if unused == 0 {
        return page;
    }
    page.then(format!("({unused} unused groups are left out; --all shows them)"))
}
