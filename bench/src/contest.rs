//! Contenders that do the same work take turns: A B A B, so that a slow second of the machine meets them all.

use std::time::Duration;

use super::error::BenchError;
use super::samples::Samples;
use super::setting::Setting;

/// Runs an operation that many times and returns how long that took, without its preparation.
pub type Work<'a> = Box<dyn FnMut(u64) -> Result<Duration, BenchError> + 'a>;

/// Measures contenders against each other: nanoseconds per operation, in the order given.
pub fn contest(setting: &Setting, contenders: &mut [Work<'_>]) -> Result<Vec<Samples>, BenchError> {
    let mut counts = Vec::new();
    for work in contenders.iter_mut() {
        counts.push(calibrate(setting.round, work)?);
    }
    let mut figures = vec![Vec::new(); contenders.len()];
    for _ in 0..setting.rounds {
        for ((work, count), figures) in contenders.iter_mut().zip(&mut counts).zip(&mut figures) {
            let took = work(*count)?;
            figures.push(took.as_nanos() as f64 / *count as f64);
            *count = towards(setting.round, *count, took);
        }
    }
    Ok(figures.into_iter().map(Samples::new).collect())
}

/// The number of operations that fills a round; finding it warms up.
fn calibrate(round: Duration, work: &mut Work<'_>) -> Result<u64, BenchError> {
    let mut count = 1;
    loop {
        let took = work(count)?;
        if took >= round / 4 {
            return Ok(towards(round, count, took));
        }
        count = towards(round, count, took).clamp(count * 2, count * 16);
    }
}

/// The number that would have taken a round, given that `count` took `took`.
fn towards(round: Duration, count: u64, took: Duration) -> u64 {
    let scaled = u128::from(count) * round.as_nanos() / took.as_nanos().max(1);
    u64::try_from(scaled).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_take_turns_and_are_told_apart() {
        let turns = std::cell::RefCell::new(String::new());
        let work = |name: char, nanos: u64| -> Work<'_> {
            let turns = &turns;
            Box::new(move |count| {
                turns.borrow_mut().push(name);
                Ok(Duration::from_nanos(count * nanos))
            })
        };
        let samples = contest(&Setting::QUICK, &mut [work('a', 5), work('b', 20)]).unwrap();
        let medians: Vec<f64> = samples.iter().map(|samples| samples.median().round()).collect();
        assert_eq!(medians, [5.0, 20.0]);
        assert!(turns.borrow().ends_with("ababab"), "{}", turns.borrow());
    }
}
