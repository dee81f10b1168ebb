//! The clocks: leases are measured by the monotonic one, which may run at another speed than those of other machines by
//! `drift_ppm`; the wall clock dates the audit log and numbers the starts of nodes.

use std::time::Duration;

use tidegate_cpu_clock::{Discipline, discipline};

use super::Finding;
use crate::clock::{monotonic_ns, monotonic_raw_ns, unix_ms};

const AREA: &str = "clock";
/// How long the speed of the clock is looked at. Half of it would double what reading a clock costs in ppm.
const LOOK: Duration = Duration::from_millis(200);
/// Readings of both clocks at one moment, of which the one counts that took the least: a process that is held up for a
/// millisecond in the only one sees 5,000 ppm. With half of them, all are held up more often; twice as many only take
/// some microseconds more.
const READINGS: usize = 16;
/// 2025: no machine that runs this has an earlier date.
const EARLIEST_MS: u64 = 1_735_689_600_000;

/// What is known about the clocks.
#[derive(Clone, Debug)]
pub(crate) struct ClockFacts {
    pub(crate) unix_ms: u64,
    /// `None` where the kernel does not say.
    pub(crate) discipline: Option<Discipline>,
    /// How much faster the monotonic clock ran than the oscillator, in parts per billion.
    pub(crate) slew_ppb: i64,
    /// Where the kernel reads time, such as `tsc`; empty where it does not say.
    pub(crate) source: String,
}

/// Looks at the clocks for a moment.
pub(crate) async fn gather() -> ClockFacts {
    let begin = together(monotonic_ns, monotonic_raw_ns);
    tokio::time::sleep(LOOK).await;
    let end = together(monotonic_ns, monotonic_raw_ns);
    let (steered, raw) = (end.0.saturating_sub(begin.0), end.1.saturating_sub(begin.1));
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    ClockFacts {
        unix_ms: unix_ms(),
        discipline: discipline(),
        slew_ppb: faster(steered, raw),
        source: source.unwrap_or_default().trim().to_owned(),
    }
}

/// Both clocks at one moment: the reading of the raw one during which the other went on the least.
fn together(steered: impl Fn() -> u64, raw: impl Fn() -> u64) -> (u64, u64) {
    let reading = || {
        let (before, raw, after) = (steered(), raw(), steered());
        (after.saturating_sub(before), before.midpoint(after), raw)
    };
    let (_, steered, raw) = (1..READINGS).fold(reading(), |nearest, _| {
        let next = reading();
        if next.0 < nearest.0 { next } else { nearest }
    });
    (steered, raw)
}

fn faster(steered_ns: u64, raw_ns: u64) -> i64 {
    let difference = i128::from(steered_ns) - i128::from(raw_ns);
    i64::try_from(difference * 1_000_000_000 / i128::from(raw_ns.max(1))).unwrap_or(i64::MAX)
}

/// Judges the clocks for nodes whose clocks may differ by `drift_ppm`.
pub(crate) fn judge(facts: &ClockFacts, drift_ppm: u32) -> Vec<Finding> {
    let mut findings = Vec::new();
    if facts.unix_ms < EARLIEST_MS {
        let found = format!("the date is wrong: {}", crate::clock::utc_text(facts.unix_ms));
        findings.push(Finding::failed(AREA, found, "set it, and let chrony or systemd-timesyncd keep it"));
    }
    findings.push(match facts.discipline {
        None => Finding::warning(
            AREA,
            "the kernel does not say whether the clock is synchronised",
            "look on the host: a container may not ask",
        ),
        Some(told) if told.synchronised => Finding::ok(
            AREA,
            format!("synchronised, at most {} ms off", told.max_error_us / 1_000),
        ),
        Some(_) => Finding::warning(
            AREA,
            "not synchronised: dates in the audit log may be wrong, and a node whose clock is a day ahead is shut out \
             once it is right",
            "run chrony or systemd-timesyncd; timedatectl shows it",
        ),
    });
    let kept = facts.discipline.map_or(0, |told| told.frequency_ppb);
    let speed = [facts.slew_ppb, kept].into_iter().max_by_key(|ppb| ppb.unsigned_abs()).unwrap_or_default();
    let ppm = speed / 1_000;
    findings.push(if speed.unsigned_abs() > u64::from(drift_ppm) * 1_000 {
        Finding::failed(
            AREA,
            format!(
                "runs {ppm:+} ppm from its oscillator, above drift_ppm = {drift_ppm}: leases are not safe"
            ),
            "let the clock be stepped instead of slewed, or raise drift_ppm on the controller",
        )
    } else {
        Finding::ok(AREA, format!("runs {ppm:+} ppm from its oscillator, within drift_ppm = {drift_ppm}"))
    });
    if matches!(facts.source.as_str(), "hpet" | "acpi_pm" | "jiffies" | "pit") {
        findings.push(Finding::warning(
            AREA,
            format!("time is read from {}, which takes a system call of a microsecond", facts.source),
            "boot with clocksource=tsc if the processor's own clock can be trusted",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::Verdict;
    use super::*;

    fn facts() -> ClockFacts {
        let discipline = Discipline { synchronised: true, frequency_ppb: -12_000, max_error_us: 5_000 };
        ClockFacts {
            unix_ms: EARLIEST_MS + 1,
            discipline: Some(discipline),
            slew_ppb: 0,
            source: "tsc".into(),
        }
    }

    fn verdicts(facts: &ClockFacts, drift_ppm: u32) -> Vec<Verdict> {
        judge(facts, drift_ppm).iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn a_clock_is_judged_by_what_is_known_about_it() {
        assert_eq!(verdicts(&facts(), 1_000), [Verdict::Ok, Verdict::Ok]);
        let told = Discipline { synchronised: false, frequency_ppb: 0, max_error_us: 16_000_000 };
        let loose = ClockFacts { discipline: Some(told), ..facts() };
        assert_eq!(verdicts(&loose, 1_000), [Verdict::Warning, Verdict::Ok]);
        assert_eq!(
            verdicts(&ClockFacts { discipline: None, ..facts() }, 1_000),
            [Verdict::Warning, Verdict::Ok]
        );
        let slewed = ClockFacts { slew_ppb: -1_001_000, ..facts() };
        assert_eq!(verdicts(&slewed, 1_000), [Verdict::Ok, Verdict::Failed]);
        assert_eq!(verdicts(&slewed, 1_002), [Verdict::Ok, Verdict::Ok]);
        let early = ClockFacts { unix_ms: 0, source: "hpet".into(), ..facts() };
        assert_eq!(verdicts(&early, 1_000), [Verdict::Failed, Verdict::Ok, Verdict::Ok, Verdict::Warning]);
    }

    #[test]
    fn a_process_that_is_held_up_between_two_clocks_sees_no_other_speed() {
        // Each reading takes 100 ns, and all but one of those of a moment are held up before or behind the raw clock.
        for held in [0, 1, 2] {
            let (now, reads) = (Cell::new(0_u64), Cell::new(0_usize));
            let read = || {
                let number = reads.replace(reads.get() + 1);
                let is_held = number % 3 == held && number / 3 % READINGS != 7;
                now.set(now.get() + if is_held { 740_000 } else { 100 });
                now.get()
            };
            let begin = together(read, read);
            now.set(now.get() + 200_000_000);
            let end = together(read, read);
            assert_eq!(faster(end.0 - begin.0, end.1 - begin.1), 0, "at {held}");
        }
    }

    #[test]
    fn the_speed_is_in_parts_per_billion() {
        assert_eq!(faster(1_000_500, 1_000_000), 500_000);
        assert_eq!(faster(999_999_000, 1_000_000_000), -1_000);
        assert_eq!(faster(0, 0), 0);
    }
}
