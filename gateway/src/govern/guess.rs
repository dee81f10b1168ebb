//! What a statement probably used, where the server's own counters cannot be read: another machine, no `/proc`.
//!
//! In: kind, rows, bytes and elapsed time. Out: a usage vector, which the caller marks as an estimate. The coefficients
//! are those measured for PostgreSQL 15 on a 2-core machine (point select 34 µs of CPU, single-row update 210 µs, a
//! scanned and returned row 0.25 µs); they are not calibrated to the server at hand.

use std::time::Duration;

use tidegate_client::Usage;
use tidegate_cost_model::StatementKind;

/// CPU per row sent or changed, and per byte sent, in nanoseconds.
const ROW_NS: u64 = 250;
const BYTE_NS: u64 = 1;

/// What the statement probably used on the server, network left out.
pub(super) fn guess(
    kind: StatementKind,
    sent_rows: u64,
    changed_rows: u64,
    bytes: u64,
    elapsed: Duration,
) -> Usage {
    let begin_ns = match kind {
        StatementKind::Insert | StatementKind::Update | StatementKind::Delete | StatementKind::Copy => {
            200_000
        }
        StatementKind::Ddl | StatementKind::Call => 1_000_000,
        StatementKind::Set | StatementKind::Transaction => 15_000,
        _ => 35_000,
    };
    let rows = sent_rows.saturating_add(changed_rows).saturating_mul(ROW_NS);
    let work = rows.saturating_add(bytes.saturating_mul(BYTE_NS)).saturating_add(begin_ns);
    let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    // The result does not show what was scanned and thrown away: half the time beyond the visible work counts as CPU.
    let hidden = elapsed_ns.saturating_sub(work) / 2;
    let cpu_ns = work.saturating_add(hidden).min(elapsed_ns);
    Usage { cpu_ns, read_bytes: bytes, ..Usage::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guess_never_exceeds_the_time_that_passed_and_grows_with_the_work() {
        let ms = Duration::from_millis;
        let of = |rows, bytes, elapsed| guess(StatementKind::Select, rows, 0, bytes, elapsed).cpu_ns;
        assert_eq!(of(u64::MAX, u64::MAX, ms(3)), 3_000_000);
        assert!(of(1, 100, ms(1)) < of(1, 100, ms(5)));
        assert!(of(1, 100, ms(5)) < of(10_000, 100_000, ms(5)));
    }

    #[test]
    fn what_is_visible_counts_whole_and_the_rest_of_the_time_half() {
        use StatementKind::{Call, Copy, Ddl, Delete, Insert, Select, Set, Transaction, Unknown, Update};
        let of =
            |kind, sent, changed, bytes| guess(kind, sent, changed, bytes, Duration::from_millis(10)).cpu_ns;
        let (all, half) = (10_000_000, 5_000_000);
        for (kind, begins) in [
            (Select, 35_000),
            (Unknown, 35_000),
            (Insert, 200_000),
            (Update, 200_000),
            (Delete, 200_000),
            (Copy, 200_000),
            (Ddl, 1_000_000),
            (Call, 1_000_000),
            (Set, 15_000),
            (Transaction, 15_000),
        ] {
            let visible = begins + 8 * ROW_NS + 1_000 * BYTE_NS;
            assert_eq!(of(kind, 3, 5, 1_000), half + visible / 2, "{kind:?}");
        }
        // No more than the time, nor than what is visible where that fills it.
        assert_eq!(of(Select, 50_000, 0, 0), all);
        let short = guess(Select, 2, 1, 70, Duration::from_nanos(35_000 + 3 * ROW_NS + 70 * BYTE_NS));
        assert_eq!((short.cpu_ns, short.read_bytes), (35_000 + 3 * ROW_NS + 70 * BYTE_NS, 70));
    }
}
