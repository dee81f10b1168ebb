//! Windows of a quota beside a plain list of what was given in them: amounts, units, periods and zones that change,
//! quotas that are taken away and put back, commits under way that succeed or fail, time that passes. After each step, a
//! controller that starts on what is on disk counts in the present window all that was given in it.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tidegate_core::engine::EngineConfig;
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, GroupSpec};
use tidegate_core::units::Rate;

use super::*;

const GROUP: GroupId = GroupId(2);
/// 2026-11-26 00:00:30 UTC.
const UNIX_US: u64 = 1_795_651_230_000_000;
/// What the definition says, in turns; `None`: no quota.
const TEXTS: [Option<&str>; 11] = [
    Some("300 per minute"),
    Some("900 per minute"),
    Some("300 per hour"),
    Some("300 per hour Asia/Kolkata"),
    Some("300 requests per minute"),
    Some("900 requests per minute"),
    Some("300 requests per hour"),
    Some("300 per rolling minute"),
    Some("900 per rolling minute"),
    Some("300 requests per rolling minute"),
    None,
];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A definition comes into force.
    Define(usize),
    Roll,
    /// Rows are taken to be stored, while no others are.
    Take,
    /// The commit under way ends.
    Land {
        is_stored: bool,
    },
    /// So many nodes come, each with a backlog.
    Ask(u64),
    Pass(u64),
    /// The controller dies; the commit under way is on disk, or is not.
    Crash {
        is_stored: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..TEXTS.len()).prop_map(Step::Define),
        3 => Just(Step::Roll),
        5 => Just(Step::Take),
        5 => prop::bool::weighted(0.7).prop_map(|is_stored| Step::Land { is_stored }),
        5 => (1_u64..5).prop_map(Step::Ask),
        2 => prop_oneof![1_u64..2_000_000, 1_000_000_u64..70_000_000].prop_map(Step::Pass),
        1 => any::<bool>().prop_map(|is_stored| Step::Crash { is_stored }),
    ];
    prop::collection::vec(step, 1..60)
}

struct Story {
    engine: Engine,
    quotas: Quotas,
    text: Option<&'static str>,
    disk: Option<StoredWindow>,
    /// Rows on their way to the disk.
    writing: Option<Taken>,
    now: Time,
    unix_us: u64,
    nodes: u64,
    /// The present window; `None` without a quota.
    open: Option<Open>,
    /// When the newest window ends, in Unix seconds.
    ends_unix_s: u64,
}

/// A window that was opened.
struct Open {
    /// The calendar in force then.
    calendar: String,
    number: u64,
    /// What was given in it, and when.
    given: Vec<(Time, Ru)>,
    /// What nodes may still have had of the one before, and when that ended.
    before: (Ru, u64),
    /// When it was opened.
    since: Time,
}

fn quota(text: &str) -> Quota {
    Quota::parse(text).unwrap()
}

fn spec(quota: Option<&Quota>) -> GroupSpec {
    let quota_unit = quota.map(|of| of.unit).unwrap_or_default();
    GroupSpec { quota: quota.map(|of| of.amount), quota_unit, ..GroupSpec::capped(Rate::whole(100)) }
}

/// A controller that starts on this disk.
fn started(now: Time, unix_us: u64, text: Option<&str>, disk: Option<&StoredWindow>) -> (Engine, Quotas) {
    let text = text.map(quota);
    let mut engine = Engine::new(now, EngineConfig::default());
    engine.put_group(now, GROUP, spec(text.as_ref())).unwrap();
    let rows = disk.map(|row| (GROUP, row.clone())).into_iter().collect();
    let defined = text.as_ref().map(|quota| (GROUP, quota)).into_iter();
    let quotas = Quotas::go_on((now, now), unix_us, rows, defined, &mut engine);
    (engine, quotas)
}

impl Story {
    fn begin() -> Self {
        let text = TEXTS[0];
        let (engine, quotas) = started(Time(0), UNIX_US, text, None);
        let mut story = Self {
            engine,
            quotas,
            text,
            disk: None,
            writing: None,
            now: Time(0),
            unix_us: UNIX_US,
            nodes: 0,
            open: None,
            ends_unix_s: 0,
        };
        story.opened();
        story
    }

    fn view(&self) -> Option<QuotaView> {
        self.engine.quota_view(GROUP, self.now)
    }

    /// Notes a window that was opened.
    fn opened(&mut self) {
        let Some(view) = self.view() else {
            self.open = None;
            return;
        };
        let window = &self.quotas.windows[&GROUP];
        if self.open.as_ref().is_none_or(|open| open.number != view.window) {
            let before = (view.granted, self.ends_unix_s);
            self.open = Some(Open {
                calendar: calendar(&window.quota),
                number: view.window,
                given: Vec::new(),
                before,
                since: self.now,
            });
        }
        self.ends_unix_s = window.ends_unix_s;
    }

    fn land(&mut self, taken: &Taken) {
        for (_, row) in &taken.rows {
            self.disk = Some(row.clone());
        }
        if !taken.gone.is_empty() {
            self.disk = None;
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Define(which) => {
                self.text = TEXTS[which];
                let text = self.text.map(quota);
                self.engine.put_group(self.now, GROUP, spec(text.as_ref())).unwrap();
                self.quotas.define(GROUP, text.as_ref());
            }
            Step::Roll => self.roll(),
            Step::Take if self.writing.is_none() => {
                self.writing = Some(self.quotas.take(&mut self.engine, self.now, self.unix_us));
                self.opened();
            }
            Step::Take => {}
            Step::Land { is_stored } => {
                let Some(taken) = self.writing.take() else { return };
                if is_stored {
                    self.land(&taken);
                    self.quotas.stored(&mut self.engine, taken);
                } else {
                    self.quotas.not_stored(taken);
                }
            }
            Step::Ask(nodes) => (0..nodes).for_each(|_| self.ask()),
            Step::Pass(us) => (self.now, self.unix_us) = (self.now.after(Span(us)), self.unix_us + us),
            Step::Crash { is_stored } => {
                if let Some(taken) = self.writing.take().filter(|_| is_stored) {
                    self.land(&taken);
                }
                (self.engine, self.quotas) = started(self.now, self.unix_us, self.text, self.disk.as_ref());
                self.opened();
            }
        }
    }

    fn roll(&mut self) {
        self.quotas.roll(&mut self.engine, self.now, self.unix_us);
        self.opened();
    }

    /// A node that never asked before and never gives anything back.
    fn ask(&mut self) {
        self.nodes += 1;
        let load = Rate::whole(100);
        let (backlog, largest, waiting) = (Ru::whole(90), Ru::whole(1), 90);
        let ask = Ask { demand: load, backlog, largest, waiting, ..Ask::default() };
        let answer = self.engine.renew(self.now, ClientId(self.nodes), GROUP, 1, &ask, None);
        let Some(Grant::Leased(terms)) = answer else { panic!("{answer:?}") };
        let given = terms.allowance.map_or(Ru::ZERO, |allowance| allowance.ceiling);
        if let Some(open) = &mut self.open {
            open.given.push((self.now, given));
        }
    }

    /// What a controller that starts now counts in the window that is open, if it goes on with it.
    fn check(&self) -> Result<(), TestCaseError> {
        let Some(Open { calendar: of, given, before: (before, ended_unix_s), since, .. }) = &self.open else {
            return Ok(());
        };
        // What was given longer ago than a window that rolls is long has left it.
        let rolls = self.view().is_some_and(|view| view.rolls);
        let counts = |at: Time| !rolls || self.now.since(at) <= Span::secs(60);
        let given = given.iter().filter(|(at, _)| counts(*at)).fold(Ru::ZERO, |sum, (_, given)| sum + *given);
        // What ended is of no use any more.
        let early = *ended_unix_s > seconds(self.unix_us) && counts(*since);
        let given = given + if early { *before } else { Ru::ZERO };
        let Some(window) = self.quotas.windows.get(&GROUP) else { return Ok(()) };
        let changed = self.text.map(quota).is_none_or(|now| calendar(&now) != *of);
        if changed || window.ends_unix_s <= seconds(self.unix_us) {
            return Ok(());
        }
        let both = [None, self.writing.as_ref().and_then(|taken| taken.rows.last())];
        for newer in both {
            let disk = newer.map(|(_, row)| row).or(self.disk.as_ref());
            let (engine, _) = started(self.now, self.unix_us, self.text, disk);
            let counted = engine.quota_view(GROUP, self.now).map(|view| view.granted);
            prop_assert!(counted >= Some(given), "{counted:?} of {given} that were given; {disk:?}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn whenever_a_controller_dies_the_next_counts_all_that_was_given_in_the_window(steps in steps()) {
        let mut story = Story::begin();
        for step in steps {
            story.step(step);
            story.check()?;
        }
        // When all goes well again, there is a row of what is defined, and no other, and what is left can be used.
        for _ in 0..3 {
            story.step(Step::Land { is_stored: true });
            story.step(Step::Take);
        }
        story.step(Step::Land { is_stored: true });
        prop_assert_eq!(story.disk.as_ref().map(|row| row.calendar.clone()),
            story.text.map(|text| calendar(&quota(text))));
        let left = story.view().map(|view| view.durable - view.granted);
        prop_assert!(left.is_none_or(|left| left.is_positive() || story.view().is_some_and(|v| v.left < Ru::whole(1))));
    }
}

#[test]
fn a_changed_unit_begins_a_window_in_which_nothing_is_used() {
    let mut story = Story::begin();
    let through = |story: &mut Story| {
        for step in [Step::Take, Step::Land { is_stored: true }, Step::Ask(4), Step::Take] {
            story.step(step);
        }
        story.step(Step::Land { is_stored: true });
        story.view().unwrap()
    };
    let before = through(&mut story);
    assert_eq!(before.unit, Unit::Ru);
    assert!(before.granted.is_positive());
    let requests = TEXTS.iter().position(|text| *text == Some("300 requests per minute")).unwrap();
    story.step(Step::Define(requests));
    story.step(Step::Roll);
    let begun = story.view().unwrap();
    assert_ne!(begun.window, before.window);
    assert_eq!((begun.unit, begun.granted, begun.left), (Unit::Requests, Ru::ZERO, Ru::whole(300)));
    // What a controller that dies now finds on disk is of the other unit.
    story.step(Step::Crash { is_stored: false });
    let begun = story.view().unwrap();
    assert_eq!((begun.unit, begun.granted, begun.lost), (Unit::Requests, Ru::ZERO, Ru::ZERO));
    let after = through(&mut story);
    assert_eq!((after.unit, after.window), (Unit::Requests, begun.window));
    assert!(after.granted.is_positive());
    // A changed amount keeps it.
    story.step(Step::Define(requests + 1));
    let raised = through(&mut story);
    assert_eq!((raised.window, raised.amount), (begun.window, Ru::whole(900)));
    assert!(raised.granted >= after.granted);
}

#[test]
fn no_window_gets_the_number_of_one_that_is_on_disk() {
    // The quota was taken away, and the controller died before the row was removed. Ids may be ahead of the clock.
    let (id, text) = (3_000_000_000, quota(TEXTS[0].unwrap()));
    let row = StoredWindow {
        id,
        calendar: calendar(&text),
        ends_unix_s: seconds(UNIX_US) + 30,
        mark: 1,
        used: 0,
        next: 1,
        cells: None,
        gone: 0,
    };
    let (mut engine, mut quotas) = started(Time(0), UNIX_US, None, Some(&row));
    engine.put_group(Time(0), GROUP, spec(Some(&text))).unwrap();
    quotas.define(GROUP, Some(&text));
    quotas.roll(&mut engine, Time(0), UNIX_US);
    assert_eq!(quotas.windows[&GROUP].id, id + 1);
}
