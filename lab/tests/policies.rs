//! The facts of the field's articles, as the lab shows them.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use tidegate_lab::policies::traffic::Traffic;
use tidegate_lab::policies::{Section, accuracy, facts, report, warm_up};

fn fact(name: &str) -> Section {
    facts(1).unwrap().into_iter().find(|section| section.name == name).unwrap()
}

/// What a row of the fact's tables says in a column.
fn cell(section: &Section, table: usize, row: &str, column: &str) -> String {
    section.tables.get(table).and_then(|table| table.cell(row, column)).unwrap().to_owned()
}

fn number(section: &Section, table: usize, row: &str, column: &str) -> f64 {
    let cell = cell(section, table, row, column).replace(',', "");
    cell.trim_end_matches([' ', '%', 's']).parse().unwrap()
}

#[test]
fn a_fixed_window_admits_200_in_20_seconds_and_sub_windows_refuse_the_second_hundred() {
    let fact = fact("fixed-window-boundary");
    for (policy, first, second, most) in
        [("fixed window", "100", "100", "200"), ("6 sub-windows of 10 s", "100", "0", "100")]
    {
        assert_eq!(cell(&fact, 0, policy, "0:50 to 1:00"), first);
        assert_eq!(cell(&fact, 0, policy, "1:00 to 1:10"), second);
        assert_eq!(cell(&fact, 0, policy, "most in 20 s"), most);
    }
}

#[test]
fn sub_windows_admit_200_in_a_minute_and_a_log_100() {
    let fact = fact("sub-window-boundary");
    for (policy, early, late, most) in
        [("6 sub-windows of 10 s", "100", "100", "200"), ("log", "100", "0", "100")]
    {
        assert_eq!(cell(&fact, 0, policy, "0:05 to 0:10"), early);
        assert_eq!(cell(&fact, 0, policy, "1:00 to 1:05"), late);
        assert_eq!(cell(&fact, 0, policy, "most in a minute"), most);
    }
}

#[test]
fn each_finer_counter_is_closer_to_the_last_minute() {
    let fact = fact("random-traffic");
    let error = |counter| number(&fact, 0, counter, "mean error");
    let counters = ["fixed window", "two windows", "five windows of 15 s", "windows of 1 s"];
    for pair in counters.windows(2) {
        let [coarse, fine] = pair else { unreachable!() };
        assert!(error(fine) < error(coarse) / 2.0, "{fine}: {} beside {}", error(fine), error(coarse));
    }
    let lowest = |counter| number(&fact, 0, counter, "lowest while the minute has 60 or more");
    assert!(lowest("fixed window") < 1.0 && lowest("two windows") > 20.0, "it drops at each boundary");
}

#[test]
fn the_window_before_counts_17_of_60_and_2_8_of_3() {
    let fact = fact("weights");
    assert_eq!(cell(&fact, 0, "00:01:43", "counts"), "17");
    assert_eq!(cell(&fact, 0, "24 s into the window", "counts"), "2.8");
    assert_eq!(cell(&fact, 0, "24 s into the window", "one more of 3"), "refused, until 100 s");
}

#[test]
fn half_a_minute_adds_50_tokens_and_a_leaky_bucket_lets_one_out_a_second() {
    let fact = fact("buckets");
    assert_eq!(cell(&fact, 0, "30 s after it was emptied", "admitted at once"), "50");
    for (bucket, first, last) in [("token bucket", "60", "0 s"), ("leaky bucket (paced)", "1", "59 s")] {
        assert_eq!(cell(&fact, 1, bucket, "in the first second"), first);
        assert_eq!(cell(&fact, 1, bucket, "last starts at"), last);
    }
}

#[test]
fn windows_send_each_second_at_once_and_buckets_spread() {
    let fact = fact("sending");
    for stalls in [0, 1] {
        let most = |policy, column| number(&fact, stalls, policy, column);
        for at_once in ["fixed window", "log"] {
            assert!(most(at_once, "most in 50 ms") > 999.0);
        }
        assert!(most("token bucket, burst 50", "most in 50 ms") <= 100.0);
        assert!(most("paced", "most in 50 ms") <= 51.0);
        assert!(most("log", "most in 1 s") < 1_001.0 && most("log", "most in 1.1 s") > 1_999.0);
        assert!(most("token bucket, burst 50", "most in 1 s") <= 1_050.0);
    }
    // The log catches up after a stall, the bucket does not.
    assert!(
        number(&fact, 1, "log", "done at") < 10.0
            && number(&fact, 1, "token bucket, burst 50", "done at") > 10.8
    );
}

#[test]
fn a_warm_up_follows_its_formula_within_a_hundredth() {
    for (rate, length, factor) in [(200, 10, 3), (1_000, 5, 2), (50, 60, 10)] {
        let settings = warm_up::Settings { rate, warm_up: length, factor };
        let curve = warm_up::curve(&settings).unwrap();
        for tenth in 0..=12_u32 {
            let row = format!("{:.1} s", f64::from(tenth) / 10.0 * f64::from(length));
            let off = number(&curve, 1, &row, "off by");
            assert!(off.abs() < 1.0, "{rate}/s after {length} s from a {factor}th, at {row}: {off} %");
        }
    }
    let example = warm_up::curve(&warm_up::Settings { rate: 200, warm_up: 10, factor: 3 }).unwrap();
    for (row, expected) in [("threshold", "1000"), ("most stored", "2000"), ("slope", "0.0000100")] {
        assert_eq!(cell(&example, 0, row, "here"), expected);
    }
    assert_eq!(cell(&example, 1, "0.0 s", "here, 1/s"), "66.7");
    assert_eq!(cell(&example, 1, "10.0 s", "here, 1/s"), "200.0");
    assert_eq!(cell(&example, 0, "rate after as long a pause", "here"), "66.7");
}

fn small(seed: u64) -> Section {
    let traffic = Traffic { requests: 100_000, keys: 200, length: 3_600_000_000, seed };
    let mut done = 0;
    accuracy::run(&accuracy::Settings { traffic, limit: 200 }, &mut |requests| done = requests).unwrap()
}

#[test]
fn two_windows_are_seldom_wrong_where_all_requests_count() {
    let section = small(1);
    let wrong = number(&section, 0, "counting all, 200", "wrong, in all");
    assert!(wrong > 0.0 && wrong < 2.0, "{wrong} %");
    assert!(number(&section, 0, "counting all, 200", "over it") > 10.0, "the limit matters");
    let error = number(&section, 1, "over requests", "mean");
    assert!(error > 1.0 && error < 15.0, "{error} %");
    assert_eq!(number(&section, 0, "counting all, 100,000", "wrong, in all"), 0.0);
}

#[test]
fn a_seed_gives_the_same_report_and_another_one_another() {
    let page = |seed| report::html("t", &[small(seed)]);
    assert_eq!(page(1), page(1));
    assert!(page(1) != page(2));
    let text = |seed| report::text(&facts(seed).unwrap());
    assert_eq!(text(1), text(1));
    assert!(text(1) != text(2));
}
