//! What a used up budget does to a search.

use super::*;

#[test]
fn a_search_that_runs_out_of_decisions_has_no_answer() {
    let busy = |second: u64| if second % 10 < 2 { 900 } else { 100 };
    let seconds: Vec<_> = (0..20).map(|second| sample(second, 1, busy(second), 100)).collect();
    let record = Record::new(seconds).unwrap();
    let settings = Settings { burst: None, ..bucket(1, 1, Span(0)) };
    for spread in Spread::ALL {
        let search = |budget: &mut Budget| cheapest(&record, &settings, spread, Span::millis(400), budget);
        let mut left = Budget::default();
        let found = search(&mut left);
        assert!(matches!(found, Ok(Some(_))), "{spread:?}: {found:?}");
        let needed = MOST_DECISIONS - left.0;
        for decisions in 0..needed {
            let cut = search(&mut Budget::of(decisions));
            assert_eq!(cut, Err(ReplayError::TooLong), "{spread:?}: {decisions} of {needed}");
        }
        assert_eq!(search(&mut Budget::of(needed)), found, "{spread:?}");
    }
}
