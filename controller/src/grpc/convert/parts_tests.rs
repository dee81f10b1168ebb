//! A node's part of a fallback, which older nodes do not know.

use super::*;

/// A controller that recovers has told nodes nothing else to run on.
#[test]
fn a_part_of_a_fallback_is_told_without_a_lease_too() {
    let (rate, lasts, ask_again) = (Rate::whole(7), Span::secs(9), Span::secs(1));
    let fallback = Fallback::Part(rate, lasts);
    for grant in [
        Grant::Unlimited { ttl: Span::secs(5), renew_after: ask_again, fallback },
        Grant::Recovering { ask_again, fallback: Some(fallback) },
    ] {
        let answer = Answer::Grant(grant, Vec::new());
        let entry = grant_entry(EntryOut { group: "web".to_owned(), demote_to: None, answer });
        assert_eq!((entry.fallback_part_rate, entry.fallback_part_us), (rate.0, lasts.0), "{entry:?}");
        assert_eq!(entry.fallback, Some(fallback_out(Fallback::Stop)), "to a node that knows no parts");
    }
    let answer = Answer::Grant(Grant::Recovering { ask_again, fallback: None }, Vec::new());
    let entry = grant_entry(EntryOut { group: "web".to_owned(), demote_to: None, answer });
    assert_eq!((entry.fallback_part_rate, entry.fallback), (0, None));
}
