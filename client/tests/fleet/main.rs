//! The shipped clients and the shipped controller, with everything between them but sockets, in paused time and under
//! faults that a seed draws.
//!
//! The simulation drives the controller's service and one node machine for each group. Here are the parts around them:
//! the client's session with its batches of renewals, its reports, journal and purses, sleeping groups, and the
//! controller's gRPC adapters. A seed that fails is run alone with `FLEET_SEEDS=7..=7`; runtimes choose some orders
//! themselves, so that a rare failure may need a second run.

#[cfg(test)]
mod center;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod judge;
#[cfg(test)]
mod log;
#[cfg(test)]
mod network;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod process;
#[cfg(test)]
mod world;

#[cfg(test)]
mod tests {
    use std::env;
    use std::thread;

    use crate::plan::Plan;
    use crate::world;

    /// Tried unless `FLEET_SEEDS` says otherwise.
    const SEEDS: &str = "1..=30";

    /// As many as the smallest machine has processors: a seed is one thread, and most of it is work.
    const THREADS: usize = 2;

    /// The first and last seed of `1..=30`.
    fn seeds(text: &str) -> Option<(u64, u64)> {
        let (first, last) = text.split_once("..=")?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }

    /// The first seed of `first, first + step, ..` that breaks a promise, in words.
    fn broken(first: u64, last: u64, step: usize) -> Option<String> {
        (first..=last).step_by(step).find_map(|seed| {
            let plan = Plan::draw(seed);
            let found = world::run(&plan);
            (!found.is_empty()).then(|| format!("seed {seed}: {found:#?}\n{plan:#?}"))
        })
    }

    #[test]
    fn whatever_befalls_a_fleet_it_keeps_its_caps_and_its_books_and_uses_its_rates_again() {
        let text = env::var("FLEET_SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
        let (first, last) =
            seeds(&text).unwrap_or_else(|| panic!("FLEET_SEEDS={text}: write it like {SEEDS}"));
        let broken: Vec<String> = thread::scope(|scope| {
            let threads: Vec<_> = (first..)
                .take(THREADS)
                .map(|first| scope.spawn(move || broken(first, last, THREADS)))
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}
