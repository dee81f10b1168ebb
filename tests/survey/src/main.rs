//! Puts every small change of a crate into one build, each behind a number, asks each test alone which of them it
//! reaches, and then asks the tests that reach a change whether they notice it.

mod ask;
mod build;
mod edits;
mod rewrite;
// It is compiled here for its lints; what a surveyed crate gets is its text.
#[allow(dead_code)]
mod switch;

use std::path::PathBuf;

use clap::Parser;

/// Reports the small changes of a crate that its own tests do not notice: a condition that is always true, a call or a
/// field that is left out, `<` for `<=`. One build holds all of them, so thousands take minutes to an hour, not days.
///
/// Each row is verdict, how many tests were asked of those that reach the change, file and line, function, kind and
/// text: `unreached` if no test lets the change differ, `missed` if none that was asked fails, `found`, or `hangs`. A
/// row that is not `found` is a promise without a test, a line that nothing needs, or a difference that nobody can see.
#[derive(Parser)]
struct Options {
    /// The crate's folder, such as `client`
    folder: PathBuf,

    /// Arguments of `cargo test` that choose what is asked, such as `--lib --test client`
    #[arg(last = true)]
    targets: Vec<String>,

    /// Leave out files whose path holds this text; may be given again
    #[arg(long, value_name = "TEXT")]
    without: Vec<String>,

    /// Leave out tests that take longer than this alone
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    patience: f64,

    /// Ask no more tests of a change than take this together, those that reach least first
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,

    /// Ask about so many changes alone, drawn by lot
    #[arg(long, value_name = "COUNT")]
    lot: Option<usize>,

    /// Which lot: another number draws others
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Tests that are asked at a time
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    workers: usize,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut built = build::build(&options.folder, &options.without, &options.targets)?;
    if let Some(count) = options.lot {
        built.draw(count, options.seed);
    }
    let tests = ask::reach(&built, options.workers, options.patience)?;
    ask::notice(&built, &tests, options.workers, options.seconds)
}
