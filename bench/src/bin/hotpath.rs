//! Runs one hot path a number of times, for a count of its instructions: `hotpath CASE COUNT`. `hotpath` alone lists
//! the cases, each with the count of the shorter run. `tests/instructions` uses it.

use std::env;
use std::process::ExitCode;

use tidegate_bench::hotpath::PATHS;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [name, count] = args.as_slice() else {
        if args.is_empty() {
            PATHS.iter().for_each(|path| println!("{} {}", path.name, path.count));
            return ExitCode::SUCCESS;
        }
        return usage();
    };
    let (Some(path), Ok(count)) = (PATHS.iter().find(|path| path.name == name), count.parse()) else {
        return usage();
    };
    match (path.run)(count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hotpath: {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: hotpath CASE COUNT; hotpath alone lists the cases");
    ExitCode::from(2)
}
