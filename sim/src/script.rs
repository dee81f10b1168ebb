//! Scenarios as text: a script goes in, a transcript comes out.
//!
//! One command a line, `#` starts a comment:
//! ```text
//! world seed=1 nodes=16 delay=500us..1500us
//! group 2 rate=10000 [burst=..] [parent=..] [burstable=moderated:N|unlimited] [priority=..] [weight=..] [ttl=..] [fallback=..]
//! [total=..]
//! load NAME group=2 nodes=0..15 open=1250 [cost=1..9] [wait=10s] [from=..] [until=..] [turns=5s] [odd] [moves=5s] [settle=12]
//!     [lasts=0ms..300ms] [actual=0..1500 | actual=5:9,180:1] [undone=50] [leaves=200]   how they end, see `settling`
//! run 60s | trace on | trace off | record
//! work renewal=1ms shed=20us | mark 2
//! kill 3 | start 3 | controller crash | controller start | controller restart | remove 2
//! report 2 | report load NAME | report messages | expect ...
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::units::{Ru, Span, Time};

use super::disk::Death;
use super::log::Log;
use super::words::{Words, group_id, load, milli, number, range, span, spec};
use super::world::World;

/// Runs a script.
///
/// # Errors
/// The line that could not be read or done, or an `expect` that did not hold.
pub fn run(script: &str) -> Result<String, String> {
    let mut run =
        Run { world: None, transcript: String::new(), marks: BTreeMap::new(), recorded_from: Time(0) };
    for (number, line) in script.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let _ = writeln!(run.transcript, "> {line}");
            run.command(line)
                .map_err(|error| format!("line {}: {line}: {error}\n{}", number + 1, run.transcript))?;
        }
    }
    Ok(run.transcript)
}

struct Run {
    world: Option<World>,
    transcript: String,
    /// Moments to measure from, and what was admitted by then.
    marks: BTreeMap<GroupId, (Time, Ru)>,
    /// Operations are recorded since then.
    recorded_from: Time,
}

impl Run {
    fn world(&mut self) -> Result<&mut World, String> {
        self.world.as_mut().ok_or_else(|| "begin with a world".to_owned())
    }

    fn command(&mut self, line: &str) -> Result<(), String> {
        let mut parts = line.split_whitespace();
        let verb = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let words = Words::new(rest.iter().copied());
        let first = rest.first().copied().unwrap_or_default();
        match (verb, first) {
            ("world", _) => {
                let delay = words.get("delay", (Span(500), Span(1_500)), |text| range(text, span))?;
                let seed = words.get("seed", 1, number)?;
                let nodes = words.get("nodes", 1, |text| text.parse().ok())?;
                self.world = Some(World::new(seed, nodes, delay)?);
                Ok(())
            }
            ("group", id) => {
                let id = group_id(id)?;
                let before = self.world()?.spec(id).cloned().unwrap_or_else(GroupSpec::unlimited);
                self.world()?.put_group(id, spec(before, &words)?)
            }
            ("remove", id) => self.world()?.remove_group(group_id(id)?),
            ("load", name) => {
                let now = self.world()?.now;
                self.world()?.add_load(load(name, &words, now)?);
                Ok(())
            }
            ("run", text) => {
                let until = self.world()?.now.after(span(text).ok_or("how long?")?);
                self.world()?.run(until);
                self.flush_trace();
                Ok(())
            }
            ("record", _) => {
                self.recorded_from = self.world()?.now;
                self.world()?.log = Some(Log::default());
                Ok(())
            }
            ("trace", mode) => {
                self.world()?.trace = (mode == "on").then(String::new);
                Ok(())
            }
            ("kill", node) => {
                let node = node.parse().map_err(|_| "which node?")?;
                self.world()?.kill_node(node);
                Ok(())
            }
            ("start", node) => {
                let node = node.parse().map_err(|_| "which node?")?;
                self.world()?.start_node(node);
                Ok(())
            }
            ("controller", what) => self.controller(what),
            ("work", _) => {
                let takes = |key| words.get(key, Span(0), span);
                let (renewal, shed) = (takes("renewal")?, takes("shed")?);
                self.world()?.set_work(renewal, shed);
                Ok(())
            }
            ("mark", id) => {
                let id = group_id(id)?;
                let world = self.world()?;
                let now = world.now;
                let admitted = world.bound(id).ok_or("no such group")?.admitted();
                self.marks.insert(id, (now, admitted));
                Ok(())
            }
            ("report", "work") => self.report_work(),
            ("report", "load") => self.report_load(rest.get(1).copied().unwrap_or_default()),
            ("report", "messages") => self.report_messages(),
            ("report", id) => self.report_group(group_id(id)?),
            ("expect", what) => self.expect(what, rest.get(1..).unwrap_or_default()),
            _ => Err("no such command".to_owned()),
        }
    }

    fn flush_trace(&mut self) {
        if let Some(trace) = self.world.as_mut().and_then(|world| world.trace.as_mut()) {
            self.transcript.push_str(&std::mem::take(trace));
        }
    }

    fn controller(&mut self, what: &str) -> Result<(), String> {
        let world = self.world()?;
        match what {
            "crash" => world.crash_controller(Death::Killed),
            "start" => world.start_controller(),
            "restart" => world.restart_controller(),
            _ => return Err("crash, start or restart?".to_owned()),
        }
        Ok(())
    }

    fn used(&mut self, id: GroupId) -> Result<(u64, Ru, Ru), String> {
        let world = self.world()?;
        let now = world.now;
        let depth = world.spec(id).and_then(GroupSpec::depth).unwrap_or(Ru::MAX);
        let bound = world.bound(id).ok_or("no such group")?;
        // The burst that a full bucket starts with is not part of the cap's use.
        let allowed = bound.allowed(now).0.saturating_add(depth.0).max(1);
        let used = u64::try_from(i128::from(bound.admitted().0) * 1_000 / i128::from(allowed)).unwrap_or(0);
        Ok((used, bound.worst(), depth))
    }

    fn books(&mut self, id: GroupId) -> Result<(Ru, Ru), String> {
        let books = self.world()?.books(&[id]);
        books.first().map(|(_, books)| *books).ok_or_else(|| "no such group".to_owned())
    }

    fn report_group(&mut self, id: GroupId) -> Result<(), String> {
        let (used, worst, depth) = self.used(id)?;
        let (ledger, charged) = self.books(id)?;
        let overrun = self.world()?.overrun(id);
        let share = i128::from(worst.0) * 100 / i128::from(depth.0.max(1));
        let _ = writeln!(
            self.transcript,
            "group {}: used {} of rate and burst, worst window {share} % of the burst over it (overrun {overrun}), ledger {}",
            id.0,
            thousandths(used),
            if ledger == charged {
                "equals what the nodes charged".to_owned()
            } else {
                format!("{ledger} is not {charged}")
            },
        );
        Ok(())
    }

    fn report_load(&mut self, name: &str) -> Result<(), String> {
        let waits = self.world()?.waits(name).ok_or("no such load")?.clone();
        let _ = writeln!(
            self.transcript,
            "load {name}: {} admitted, {} refused, wait p50 {} p99 {}, Jain index {}",
            waits.admitted,
            waits.refused,
            waits.quantile(500),
            waits.quantile(990),
            thousandths(waits.jain()),
        );
        Ok(())
    }

    fn report_messages(&mut self) -> Result<(), String> {
        let rate = self.world()?.messages_per_node_second();
        let _ = writeln!(self.transcript, "messages: {} per node and second", thousandths(rate));
        Ok(())
    }

    fn report_work(&mut self) -> Result<(), String> {
        let work = self.world()?.work().ok_or("its work takes no time")?;
        let _ = writeln!(
            self.transcript,
            "work: {} considered, {} shed, at most {} waited",
            work.considered, work.shed, work.longest
        );
        Ok(())
    }

    /// The share of the rate used since the group was marked, in thousandths.
    fn since(&mut self, id: GroupId) -> Result<u64, String> {
        let (marked, before) = *self.marks.get(&id).ok_or("not marked")?;
        let world = self.world()?;
        let span = world.now.since(marked);
        let limit = world.spec(id).and_then(GroupSpec::limit).ok_or("no limit")?;
        let admitted = world.bound(id).ok_or("no such group")?.admitted() - before;
        Ok(u64::try_from(i128::from(admitted.0) * 1_000 / i128::from(limit.over(span).0.max(1))).unwrap_or(0))
    }

    /// `expect used 2 >= 0.980`, `expect since 2 >= 0.980`, `expect bound 2`, `expect curve 2`, `expect p99 light <= 5ms`, `expect jain even >= 0.990`,
    /// `expect excess 2 <= 40`: whole RU above rate x window in the worst one, `expect messages <= 5.000`, `expect ledger 2`, `expect admitted big >= 10`, `expect floor 2 >= 95`: whole RU
    /// in every second since `record`, `expect quota 2 >= 0.995`: of the last whole minute's.
    fn expect(&mut self, what: &str, args: &[&str]) -> Result<(), String> {
        let subject = args.first().copied().unwrap_or_default();
        let limit = args.last().copied().unwrap_or_default();
        let (holds, is) = match what {
            "used" => {
                let (used, ..) = self.used(group_id(subject)?)?;
                (compare(used, args.get(1).copied(), milli(limit)?)?, thousandths(used))
            }
            "since" => {
                let used = self.since(group_id(subject)?)?;
                (compare(used, args.get(1).copied(), milli(limit)?)?, thousandths(used))
            }
            "shed" => {
                let shed = self.world()?.work().map_or(0, |work| work.shed);
                (compare(shed, args.first().copied(), number(limit).ok_or("how many?")?)?, shed.to_string())
            }
            "bound" => {
                let id = group_id(subject)?;
                let (_, worst, depth) = self.used(id)?;
                let overrun = self.world()?.overrun(id);
                (worst <= depth + overrun, format!("{worst} over, burst {depth}, overrun {overrun}"))
            }
            "curve" => {
                let judged = self.world()?.judge_curve(group_id(subject)?);
                (judged.is_ok(), judged.err().unwrap_or_default())
            }
            "excess" => {
                let (_, worst, _) = self.used(group_id(subject)?)?;
                let whole = u64::try_from(worst.0 / 1_000_000).unwrap_or_default();
                (compare(whole, args.get(1).copied(), number(limit).ok_or("how much?")?)?, worst.to_string())
            }
            "p99" => {
                let wait = self.world()?.waits(subject).ok_or("no such load")?.quantile(990);
                (wait <= span(limit).ok_or("how long?")?, wait.to_string())
            }
            "quota" => {
                let used = self.world()?.quota_used(group_id(subject)?).ok_or("no quota was used")?;
                (compare(used, args.get(1).copied(), milli(limit)?)?, thousandths(used))
            }
            "jain" => {
                let jain = self.world()?.waits(subject).ok_or("no such load")?.jain();
                (compare(jain, args.get(1).copied(), milli(limit)?)?, thousandths(jain))
            }
            "admitted" => {
                let count = self.world()?.waits(subject).ok_or("no such load")?.admitted;
                (compare(count, args.get(1).copied(), number(limit).ok_or("how many?")?)?, count.to_string())
            }
            "messages" => {
                let rate = self.world()?.messages_per_node_second();
                (rate <= milli(limit)?, thousandths(rate))
            }
            "floor" => {
                let from = self.recorded_from;
                let floor = self.world()?.floor(group_id(subject)?, from).ok_or("record first")?;
                let least = number(limit).ok_or("how much?")?;
                let whole = u64::try_from(floor.0 / 1_000_000).unwrap_or_default();
                (compare(whole, args.get(1).copied(), least)?, floor.to_string())
            }
            "ledger" => {
                let (ledger, charged) = self.books(group_id(subject)?)?;
                (ledger == charged, format!("{ledger} in the ledger, {charged} charged"))
            }
            _ => return Err("expect what?".to_owned()),
        };
        if holds { Ok(()) } else { Err(format!("does not hold: {is}")) }
    }
}

fn compare(value: u64, operator: Option<&str>, limit: u64) -> Result<bool, String> {
    match operator {
        Some(">=") => Ok(value >= limit),
        Some("<=") => Ok(value <= limit),
        _ => Err("compare with >= or <=".to_owned()),
    }
}

fn thousandths(value: u64) -> String {
    format!("{}.{:03}", value / 1_000, value % 1_000)
}
