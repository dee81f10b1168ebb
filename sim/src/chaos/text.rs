//! Plans as text, which is written for people and read back as it is.
//!
//! ```text
//! plan seed=7 delay=100us..4000us idle=60000000us calm=9000000us [fence=2000000us] [wall=30000000us] [windows]
//! nodes 120 -300 0                        one clock each, in ppm
//! network lost=10 repeated=5 late=1 [unordered]
//! group 2 rate=.. [rolls]                 as in scripts, as are loads
//! load load-0 group=2 ..
//! at 1500000us kill 0 20000us
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use tidegate_core::group::GroupSpec;
use tidegate_core::node::NodeConfig;
use tidegate_core::units::{Span, Time};

use super::Plan;
use crate::network::Faults;
use crate::words::{Words, group_id, load, number, range, show_load, show_spec, span, spec};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan seed={} delay={}us..{}us", self.seed, self.delay.0.0, self.delay.1.0)?;
        write!(f, " idle={}us calm={}us", self.idle_after.0, self.calm_at.0)?;
        if let Some(fence) = self.fence {
            write!(f, " fence={}us", fence.0)?;
        }
        if self.wall > Span(0) {
            write!(f, " wall={}us", self.wall.0)?;
        }
        f.write_str(if self.windows { " windows" } else { "" })?;
        let drifts: Vec<String> = self.drifts.iter().map(ToString::to_string).collect();
        writeln!(f, "\nnodes {}", drifts.join(" "))?;
        let Faults { lost, repeated, late, unordered } = self.faults;
        let unordered = if unordered { " unordered" } else { "" };
        writeln!(f, "network lost={lost} repeated={repeated} late={late}{unordered}")?;
        for (id, spec) in &self.groups {
            let rolls = if self.rolls.contains(id) { " rolls" } else { "" };
            writeln!(f, "group {} {}{rolls}", id.0, show_spec(spec))?;
        }
        for load in &self.loads {
            writeln!(f, "load {}", show_load(load))?;
        }
        for (at, action) in &self.actions {
            writeln!(f, "at {}us {action}", at.0)?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = Self {
            seed: 1,
            drifts: Vec::new(),
            delay: (Span(0), Span(0)),
            faults: Faults::default(),
            groups: Vec::new(),
            loads: Vec::new(),
            actions: Vec::new(),
            fence: None,
            wall: Span(0),
            windows: false,
            rolls: BTreeSet::new(),
            idle_after: NodeConfig::default().idle_after,
            calm_at: Time(0),
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                plan.read(line).map_err(|error| format!("line {}: {line}: {error}", number + 1))?;
            }
        }
        if plan.drifts.is_empty() {
            return Err("a plan needs nodes".to_owned());
        }
        Ok(plan)
    }
}

impl Plan {
    fn read(&mut self, line: &str) -> Result<(), String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = Words::new(rest.split_whitespace());
        let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
        match verb {
            "plan" => {
                self.seed = words.get("seed", 1, number)?;
                self.delay = words.get("delay", self.delay, |text| range(text, span))?;
                self.idle_after = words.get("idle", self.idle_after, span)?;
                self.calm_at =
                    words.get("calm", self.calm_at, |text| span(text).map(|span| Time(0).after(span)))?;
                self.fence = words.get("fence", None, |text| span(text).map(Some))?;
                self.wall = words.get("wall", self.wall, span)?;
                self.windows = words.has("windows");
            }
            "nodes" => {
                let drifts: Result<_, _> = rest.split_whitespace().map(str::parse).collect();
                self.drifts = drifts.map_err(|_| "clocks in ppm?".to_owned())?;
            }
            "network" => {
                let chance = |key| words.get(key, 0, number);
                let (lost, repeated, late) = (chance("lost")?, chance("repeated")?, chance("late")?);
                self.faults = Faults { lost, repeated, late, unordered: words.has("unordered") };
            }
            "group" => {
                let id = group_id(first)?;
                self.groups.push((id, spec(GroupSpec::unlimited(), &words)?));
                self.rolls.extend(words.has("rolls").then_some(id));
            }
            "load" => {
                let words = Words::new(more.split_whitespace());
                self.loads.push(load(first, &words, Time(0))?);
            }
            "at" => {
                let at = Time(0).after(span(first).ok_or("when?")?);
                self.actions.push((at, more.parse()?));
            }
            _ => return Err("no such line".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_is_read_as_it_was_written() {
        for seed in 1..2_000 {
            let plan = Plan::new(seed);
            assert_eq!(plan.to_string().parse(), Ok(plan), "seed {seed}");
            let plan = Plan::of_quotas(seed);
            assert_eq!(plan.to_string().parse(), Ok(plan), "seed {seed} of quotas");
        }
    }

    #[test]
    fn what_shrinking_leaves_of_a_bad_plan_fails_again_when_it_is_read() {
        // A clock a third too fast is beyond what the bound rests on.
        let fast = |seed| {
            let mut plan = Plan::new(seed);
            plan.drifts.fill(300_000);
            plan.run().err().map(|violation| (plan, violation))
        };
        let (plan, violation) = (1..200).find_map(fast).unwrap();
        assert!(violation.contains("I5"), "{violation}");
        let small = plan.shrink();
        let size = |plan: &Plan| plan.to_string().lines().count() + plan.drifts.len();
        assert!(size(&small) < size(&plan), "{small}");
        let read: Plan = small.to_string().parse().unwrap();
        assert_eq!(read.transcript(), small.transcript());
        assert!(read.run().is_err());
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let error = "nodes 0\nat 5us dance 3".parse::<Plan>().unwrap_err();
        assert!(error.starts_with("line 2: at 5us dance 3:"), "{error}");
        assert!("plan seed=1".parse::<Plan>().is_err());
        assert!("nodes 0\nat 5us kill".parse::<Plan>().is_err());
    }
}
