//! The search itself: breadth first, one layer after the other, every state once.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::link::Link;
use super::shared::{Low, Store};
use super::state::{Books, Controller, Node};
use super::{Model, State, Step};

/// When to stop before the end.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest path.
    pub depth: usize,
    /// Most states.
    pub states: usize,
}

impl Limits {
    /// No limits: a search to the end.
    pub const NONE: Self = Self { depth: usize::MAX, states: usize::MAX };
}

/// How far the search is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Length of the paths to the states of the newest layer.
    pub depth: usize,
    /// Different states seen.
    pub states: usize,
    /// Steps taken.
    pub transitions: usize,
    /// States of the newest layer.
    pub layer: usize,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How far it went.
    pub progress: Progress,
    /// Every state within the bounds of the setting was visited.
    pub complete: bool,
    /// The first broken promise, and the shortest path to it.
    pub violation: Option<(String, Vec<Step>)>,
}

/// States seen, by their hash, which needs no second hashing.
type Seen = HashSet<u128, BuildHasherDefault<Low>>;

/// How each state was reached: from which state, by which of its steps.
#[derive(Default)]
struct Paths(Vec<(u32, u8)>);

impl Paths {
    fn add(&mut self, from: u32, choice: usize) -> u32 {
        let id = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.push((from, u8::try_from(choice).unwrap_or(u8::MAX)));
        id
    }

    /// The steps from the first state, found again by taking them.
    fn steps(&self, model: &Model, to: u32) -> (Vec<Step>, State) {
        let mut choices = Vec::new();
        let mut at = to;
        while at != 0
            && let Some((from, choice)) = self.0.get(usize::try_from(at).unwrap_or(usize::MAX))
        {
            choices.push(usize::from(*choice));
            at = *from;
        }
        let (mut state, mut steps) = (model.first(), Vec::new());
        for choice in choices.into_iter().rev() {
            if let Some(step) = model.steps(&state).get(choice)
                && let Ok(next) = model.take(&state, *step)
            {
                steps.push(*step);
                state = next;
            }
        }
        (steps, state)
    }
}

/// The parts of the states of the newest layers.
#[derive(Default)]
struct Parts {
    controllers: Store<Controller>,
    books: Store<Books>,
    nodes: Store<Node>,
    links: Store<Link>,
}

impl Parts {
    fn unite(&mut self, state: &mut State) {
        self.controllers.unite(&mut state.controller);
        self.books.unite(&mut state.books);
        state.nodes.iter_mut().for_each(|node| self.nodes.unite(node));
        state.links.iter_mut().for_each(|link| self.links.unite(link));
    }

    fn tidy(&mut self) {
        self.controllers.tidy();
        self.books.tidy();
        self.nodes.tidy();
        self.links.tidy();
    }
}

/// Visits every state that the model can reach, until something is broken.
pub fn search(model: &Model, limits: Limits, mut report: impl FnMut(Progress)) -> Outcome {
    let first = model.first();
    let (mut seen, mut paths) = (Seen::default(), Paths::default());
    seen.insert(first.print());
    let mut layer = vec![(first, paths.add(0, 0))];
    let mut progress = Progress { states: 1, layer: 1, ..Progress::default() };
    let (mut complete, mut parts) = (true, Parts::default());
    while !layer.is_empty() {
        if progress.depth >= limits.depth || progress.states >= limits.states {
            complete = false;
            break;
        }
        let mut next = Vec::new();
        for (state, id) in layer {
            for (choice, step) in model.steps(&state).into_iter().enumerate() {
                progress.transitions += 1;
                match attempt(model, &state, step) {
                    Ok(mut reached) => {
                        if seen.insert(reached.print()) {
                            parts.unite(&mut reached);
                            next.push((reached, paths.add(id, choice)));
                        }
                    }
                    Err(broken) => {
                        let mut steps = paths.steps(model, id).0;
                        steps.push(step);
                        progress.depth += 1;
                        return Outcome { progress, complete: false, violation: Some((broken, steps)) };
                    }
                }
            }
        }
        progress.depth += usize::from(!next.is_empty());
        (progress.states, progress.layer) = (seen.len(), next.len());
        report(progress);
        layer = next;
        parts.tidy();
    }
    Outcome { progress, complete, violation: None }
}

/// Takes a step; a failed assertion of the core counts as a broken promise.
fn attempt(model: &Model, state: &State, step: Step) -> Result<State, String> {
    catch_unwind(AssertUnwindSafe(|| model.take(state, step))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("the core stopped: {}", text.unwrap_or_default()))
    })
}

/// A path as text: each step with the time at which it happens, and what the machines look like in the end.
pub fn tell(model: &Model, steps: &[Step]) -> String {
    let mut lines = Vec::new();
    let mut state = model.first();
    for (number, step) in steps.iter().enumerate() {
        lines.push(format!("{:>3}. at {:<6} {step}", number + 1, state.now().to_string()));
        match attempt(model, &state, *step) {
            Ok(next) => {
                lines.extend(
                    model.describe(&next).into_iter().map(|line| format!("                  {line}")),
                );
                state = next;
            }
            Err(broken) => lines.push(format!("     {broken}")),
        }
    }
    lines.join("\n")
}
