use super::*;
use tidegate_controller::quantity::Count;
use tidegate_core::units::Span;
use tidegate_core::waited::Waited;

use crate::sample::{NodeShare, sum_up};
use crate::table::width;
use crate::view::ConsumptionView;

/// A group that was used if `micro_ru` is more than nothing.
fn group(name: &str, parent: &str, cap: &str, live: &str, micro_ru: u128) -> GroupSample {
    let operations = Count(u128::from(micro_ru > 0));
    let total = Count(micro_ru);
    GroupSample {
        group: name.to_owned(),
        parent: parent.to_owned(),
        cap: cap.to_owned(),
        live_ru_per_sec: live.to_owned(),
        total: ConsumptionView { total_micro_ru: total, operations, ..ConsumptionView::default() },
        ..GroupSample::default()
    }
}

fn samples() -> Vec<GroupSample> {
    let mut samples = vec![
        group("analytics", "", "500", "20", 2_000_000),
        group("boards", "analytics", "100", "99.5", 9_000_000),
        group("default", "", "unlimited", "0", 0),
        group("nightly", "analytics", "50", "0", 0),
        group("shop", "", "2000", "300", 70_000_000),
    ];
    samples[4].total.throttled = Count(7);
    samples[1].waiting = 3;
    samples[1].nodes = [("till-1", "60", 3), ("till-2", "20", 0)].map(share).into();
    let mut waited = Waited::default();
    (0..97).for_each(|_| waited.count(Span::millis(40), false));
    (0..3).for_each(|_| waited.count(Span::millis(300), true));
    samples[1].waited = Some(Box::new(waited));
    (samples[1].total.cpu_micro_ru, samples[1].total.read_micro_ru) = (Count(6_000_000), Count(3_000_000));
    sum_up(&mut samples);
    samples
}

fn share((client, rate, waiting): (&str, &str, u64)) -> NodeShare {
    NodeShare { client: client.to_owned(), rate: rate.to_owned(), demand: rate.to_owned(), waiting }
}

fn board() -> Board {
    let mut board = Board::new("http://127.0.0.1:7420", Duration::from_secs(1), false);
    board.saw(samples(), 1_767_225_599_999);
    board
}

fn screen(columns: usize, rows: usize) -> Screen {
    Screen { columns: Some(columns), rows: Some(rows), color: false, is_terminal: true }
}

fn names(board: &Board) -> Vec<String> {
    board.rows().into_iter().map(|(depth, sample)| indented(depth, &sample.group)).collect()
}

fn press(board: &mut Board, keys: &str) {
    keys.chars().for_each(|key| assert_eq!(board.press(Press::Char(key)), Act::Draw, "{key}"));
}

#[test]
fn a_parent_shows_what_its_children_use_and_groups_without_use_are_hidden() {
    let lines = board().lines(&screen(80, 10));
    assert_eq!(
        lines,
        [
            "http://127.0.0.1:7420  every 1s  2025-12-31 23:59:59Z",
            "3 of 5 groups  419 RU/s  3 waiting  7 refused  (no room for POOL (RU), LEASES)",
            "              CAP  ADMITTED            P99           TOTAL  LEASED  DEMAND",
            "GROUP▼     (RU/s)    (RU/s)  WAITING  (ms)  REFUSED   (RU)  (RU/s)  (RU/s)",
            "analytics     500       119        3   327        0     11       0       0",
            "  boards      100      99.5        3   327        0      9       0       0",
            "shop         2000       300        0     -        7     70       0       0",
            "",
            "",
            "q quit  ? help  Enter group  / find  <- -> sort  r turn  t tree  a all  p pause…",
        ]
        .map(str::to_owned)
    );
}

#[test]
fn every_line_fits_every_terminal() {
    let shown = [Shown::Groups, Shown::Help, Shown::Group(Detail::default())];
    for (shown, color) in shown.into_iter().flat_map(|shown| [(shown.clone(), false), (shown, true)]) {
        for columns in [1, 20, 40, 60, 80, 120, 200] {
            for rows in [1, 2, 5, 24, 50] {
                let mut board = board();
                board.shown = shown.clone();
                board.chosen = "boards".to_owned();
                board.all = true;
                let mut narrow = screen(columns, rows);
                let lines = board.lines(&narrow);
                assert!(lines.len() <= rows, "{columns}x{rows}: {lines:#?}");
                assert!(lines.iter().all(|line| width(line) <= columns), "{columns}x{rows}: {lines:#?}");
                narrow.color = color;
                assert_eq!(board.lines(&narrow).len(), lines.len());
            }
        }
    }
}

#[test]
fn arrows_sort_by_a_column_and_siblings_stay_together() {
    let mut board = board();
    assert_eq!(names(&board), ["analytics", "  boards", "shop"]);
    board.press(Press::Right);
    assert_eq!(names(&board), ["shop", "analytics", "  boards"], "by cap");
    press(&mut board, "r");
    assert_eq!(names(&board), ["analytics", "  boards", "shop"]);
    press(&mut board, "rt");
    assert_eq!(names(&board), ["shop", "analytics", "boards"], "without the tree");
    press(&mut board, "a");
    assert_eq!(names(&board), ["default", "shop", "analytics", "boards", "nightly"]);
    for _ in 0..2 {
        board.press(Press::Left);
    }
    assert_eq!(board.sort, Key::Leases, "it goes round");
    for key in Key::ALL {
        board.sort = key;
        assert_eq!(names(&board).len(), 5, "{key:?}");
    }
}

#[test]
fn a_filter_is_typed_kept_and_dropped() {
    let mut board = board();
    press(&mut board, "/BOq");
    board.press(Press::Backspace);
    assert!(board.lines(&screen(80, 10)).last().unwrap().starts_with("/BO_"));
    assert_eq!(names(&board), ["analytics", "  boards"], "with what is above it");
    board.press(Press::Enter);
    assert!(board.lines(&screen(80, 10)).last().unwrap().starts_with("/BO  q quit"));
    press(&mut board, "t");
    assert_eq!(names(&board), ["boards"]);
    board.press(Press::Escape);
    assert_eq!(names(&board).len(), 3);
    press(&mut board, "/nothing");
    let lines = board.lines(&screen(80, 10));
    assert!(lines.iter().any(|line| line.contains("no such group")), "{lines:#?}");
    board.press(Press::Escape);
    assert_eq!(names(&board).len(), 3);
    press(&mut board, "/");
    press(&mut board, &"x".repeat(200));
    assert_eq!(board.filter.len(), LONGEST_FILTER);
    assert_eq!(board.press(Press::Interrupt), Act::Quit, "also while typing");
}

#[test]
fn the_chosen_row_stays_on_the_screen_and_with_its_group() {
    let mut many: Vec<GroupSample> =
        (0..100).map(|number| group(&format!("g{number:02}"), "", "1", "0", 1)).collect();
    sum_up(&mut many);
    let mut board = board();
    board.saw(many.clone(), 0);
    let shown = |board: &mut Board| {
        let lines = board.lines(&screen(80, 10));
        lines[4..9].iter().map(|line| line.get(..3).unwrap_or(line).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(shown(&mut board), ["g00", "g01", "g02", "g03", "g04"]);
    board.press(Press::PageDown);
    assert_eq!(board.chosen, "g05");
    assert_eq!(shown(&mut board), ["g01", "g02", "g03", "g04", "g05"]);
    board.press(Press::End);
    assert_eq!(shown(&mut board), ["g95", "g96", "g97", "g98", "g99"]);
    board.press(Press::Up);
    assert_eq!(shown(&mut board)[0], "g95");
    assert_eq!(board.chosen, "g98");
    // Others come before it.
    board.press(Press::Home);
    press(&mut board, "jj");
    many.insert(0, group("a", "", "1", "0", 1));
    sum_up(&mut many);
    board.saw(many, 0);
    assert_eq!(shown(&mut board)[0], "g02");
    assert_eq!(board.chosen, "g02");
    press(&mut board, "/a");
    board.press(Press::Enter);
    assert_eq!(shown(&mut board)[0].trim(), "a");
}

#[test]
fn what_is_away_is_said_above_what_was_seen() {
    let mut board = board();
    board.missed("cannot reach the controller".to_owned());
    let lines = board.lines(&screen(80, 10));
    assert_eq!(lines[1], "AWAY, trying again: cannot reach the controller");
    assert!(lines[4].starts_with("analytics"), "{lines:#?}");
    board.saw(samples(), 0);
    assert!(board.lines(&screen(80, 10))[1].starts_with("3 of 5 groups"));
}

#[test]
fn it_pauses_and_looks_as_often_as_it_is_told() {
    let mut board = board();
    assert_eq!(board.press(Press::Char('p')), Act::Look);
    assert!(board.is_paused() && board.lines(&screen(80, 10))[0].contains("PAUSED"));
    board.press(Press::Char(' '));
    assert!(!board.is_paused());
    board.press(Press::Char('-'));
    assert_eq!(board.interval(), Duration::from_secs(2));
    (0..20).for_each(|_| assert_eq!(board.press(Press::Char('-')), Act::Look));
    assert_eq!(board.interval(), Duration::from_secs(60));
    (0..20).for_each(|_| assert_eq!(board.press(Press::Char('+')), Act::Look));
    assert_eq!(board.interval(), Duration::from_millis(100));
}

#[test]
fn enter_shows_the_waits_parts_and_nodes_of_one_group() {
    let mut board = board();
    press(&mut board, "j");
    assert_eq!(board.press(Press::Enter), Act::Draw);
    let lines = board.lines(&screen(80, 30));
    let expected = [
        "WAITS IN THE LAST MINUTE  IN VAIN  P50 (ms)  P99 (ms)  LONGEST (ms)",
        "                     100        3      40.9       327           327",
        "",
        "CAUSE    NOW (RU/s)  SHARE NOW (%)  TOTAL (RU)  SHARE (%)",
        "CPU               -              -           6       66.6",
        "read              -              -           3       33.3",
        "write             -              -           0        0.0",
        "network           -              -           0        0.0",
        "flat              -              -           0        0.0",
        "",
        "NODE    LEASED (RU/s)  SHARE (%)  DEMAND (RU/s)  WAITING",
        "till-1             60       75.0             60        3",
        "till-2             20       25.0             20        0",
    ];
    let from = lines.iter().position(|line| line.starts_with("WAITS")).unwrap();
    assert_eq!(lines[from..from + expected.len()], expected.map(str::to_owned), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("boards")), "{lines:#?}");
    assert!(lines[29].contains("Enter all groups"), "{lines:#?}");
    // Two seconds later it was charged 4 RU more for CPU; looks before the last ten seconds do not count.
    let mut later = samples();
    later[1].total.cpu_micro_ru = Count(10_000_000);
    sum_up(&mut later);
    board.saw(later.clone(), 1_767_225_601_999);
    let cpu =
        |board: &mut Board| board.lines(&screen(80, 30)).into_iter().find(|line| line.starts_with("CPU"));
    assert_eq!(cpu(&mut board).unwrap(), "CPU               2          100.0          10       76.9");
    board.saw(later.clone(), 1_767_225_612_999);
    assert_eq!(cpu(&mut board).unwrap(), "CPU               0              -          10       76.9");
    // Arrows go to other groups; what is gone is said to be.
    board.press(Press::Up);
    let lines = board.lines(&screen(80, 30));
    assert!(lines.iter().any(|line| line.starts_with("analytics ")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("no node holds a lease of it")), "{lines:#?}");
    // What the group before was charged says nothing of this one.
    assert_eq!(cpu(&mut board).unwrap(), "CPU               -              -          10       76.9");
    board.saw(later.split_off(2), 1_767_225_613_999);
    assert!(board.lines(&screen(80, 30)).contains(&"group analytics is gone".to_owned()));
    assert_eq!(board.press(Press::Escape), Act::Draw);
    assert!(board.lines(&screen(80, 10))[1].starts_with("1 of 3 groups"));
}

#[test]
fn help_and_quit_are_where_people_look_for_them() {
    let mut board = board();
    press(&mut board, "?");
    let lines = board.lines(&screen(80, 24));
    for word in ["quit", "tree", "pause", "filter", "sort", "suspend"] {
        assert!(lines.iter().any(|line| line.contains(word)) || word == "filter", "{word}: {lines:#?}");
    }
    press(&mut board, "?");
    assert!(board.lines(&screen(80, 24))[0].starts_with("http://"));
    assert_eq!(board.press(Press::Suspend), Act::Suspend);
    assert_eq!(board.press(Press::Char('q')), Act::Quit);
}

/// Its figures are all different, and stand in the order of the columns.
fn figured() -> GroupSample {
    let mut sample = group("shop", "", "100", "94.9", 5_000_000);
    (sample.leased, sample.demand, sample.pool) = ("6".to_owned(), "7".to_owned(), "8".to_owned());
    (sample.leases, sample.waiting, sample.total.throttled) = (9, 2, Count(4));
    let mut waited = Waited::default();
    waited.count(Span::millis(40), false);
    sample.waited = Some(Box::new(waited));
    sample
}

#[test]
fn each_column_has_its_own_figure() {
    let mut samples = vec![figured()];
    sum_up(&mut samples);
    let mut board = board();
    board.saw(samples, 0);
    let lines = board.lines(&screen(200, 6));
    let cells: Vec<&str> = lines[3].split_whitespace().collect();
    assert_eq!(cells, ["shop", "100", "94.9", "2", "40.9", "4", "5", "6", "7", "8", "9"], "{lines:#?}");
}

/// Each column, with a change of `figured` that sets it, and it alone, to more.
type More = (Key, fn(&mut GroupSample));

const MORE: [More; 10] = [
    (Key::Cap, |more| more.cap = "unlimited".to_owned()),
    (Key::Admitted, |more| more.live_ru_per_sec = "95".to_owned()),
    (Key::Waiting, |more| more.waiting = 3),
    (Key::Wait, |more| more.waited.get_or_insert_default().count(Span::millis(300), false)),
    (Key::Refused, |more| more.total.throttled = Count(5)),
    (Key::Total, |more| more.total.total_micro_ru = Count(6_000_000)),
    (Key::Leased, |more| more.leased = "7".to_owned()),
    (Key::Demand, |more| more.demand = "8".to_owned()),
    (Key::Pool, |more| more.pool = "9".to_owned()),
    (Key::Leases, |more| more.leases = 10),
];

#[test]
fn each_column_sorts_by_its_own_figure() {
    for (key, change) in MORE {
        let (first, mut second) = (figured(), GroupSample { group: "till".to_owned(), ..figured() });
        change(&mut second);
        let mut samples = vec![first, second];
        sum_up(&mut samples);
        let mut board = board();
        board.saw(samples, 0);
        for other in Key::ALL {
            board.sort = other;
            let expected = if other == key { ["till", "shop"] } else { ["shop", "till"] };
            assert_eq!(names(&board), expected, "{other:?}, where {key:?} is more");
        }
        (board.sort, board.reverse) = (key, true);
        assert_eq!(names(&board), ["shop", "till"], "{key:?}, from the least");
    }
}

#[test]
fn a_group_near_its_cap_and_what_waits_or_is_refused_stand_out() {
    let painted = |change: fn(&mut GroupSample)| {
        let mut sample = figured();
        (sample.waiting, sample.total.throttled) = (0, Count(0));
        change(&mut sample);
        let mut samples = vec![sample];
        sum_up(&mut samples);
        let mut board = board();
        board.saw(samples, 0);
        let rows = board.rows();
        let laid =
            table(rows.into_iter().map(|(_, sample)| (sample.group.clone(), sample)), None).laid(None, true);
        let warned = laid.rows[0][0].iter().filter(|span| span.tone == Tone::Warn);
        warned.map(|span| span.text.trim().to_owned()).collect::<Vec<_>>()
    };
    assert!(painted(|_| {}).is_empty());
    assert_eq!(painted(|sample| sample.live_ru_per_sec = "95".to_owned()), ["95"]);
    assert_eq!(painted(|sample| sample.waiting = 1), ["1"]);
    assert_eq!(painted(|sample| sample.total.throttled = Count(2)), ["2"]);
    let unlimited = |sample: &mut GroupSample| sample.cap = "unlimited".to_owned();
    assert!(painted(unlimited).is_empty());
    assert!(
        painted(|sample| (sample.cap, sample.live_ru_per_sec) = ("0".to_owned(), "0".to_owned())).is_empty()
    );
}
