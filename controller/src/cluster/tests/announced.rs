//! A leader that announces its end: standbys look for it more often, and hold streams of nodes.

use std::sync::Arc;

use tidegate_consensus::model::Model;
use tidegate_core::engine::EngineConfig;
use tidegate_core::units::Span;
use tokio::sync::watch as flag;

use super::super::standby::{Standby, Step, Watching};
use super::super::waiting::View;
use super::FENCE;
use crate::clock::Clock;
use crate::store::replicated::tests::memory::Memory;
use crate::store::replicated::tests::owner;
use crate::store::replicated::{Follower, Settings};

#[test]
fn an_end_that_is_announced_is_looked_for_more_often_and_taken_up_at_the_next_look() {
    let model = Arc::new(Model::new());
    let settings = || Settings::new(Clock::start(), FENCE);
    let follower =
        Follower::follow(Arc::<Model>::clone(&model), "t/", Memory::new(), settings(), false).unwrap();
    let seen = follower.look().unwrap();
    let leads = follower.take(&seen, &owner("a")).unwrap();
    leads.beat().unwrap();
    let view = flag::Sender::new(View::default());
    let standby = Standby {
        consensus: Arc::<Model>::clone(&model),
        prefix: "t/".to_owned(),
        place: Memory::new(),
        seed: false,
        settings: settings(),
        clocks: EngineConfig::default(),
        me: owner("b"),
        before: None,
        view: view.clone(),
        roster: None,
    };
    let mut watching = Watching::default();
    let mut pause = || match standby.step(&mut watching).unwrap() {
        Step::Wait(pause) => Some((pause, view.borrow().is_open)),
        Step::Taken(_) => None,
    };
    assert_eq!(pause(), Some((Span::millis(100), false)));
    leads.announce().unwrap();
    assert_eq!(pause(), Some((Span::millis(10), true)));
    // Beats that follow say so, too.
    leads.beat().unwrap();
    assert_eq!(pause(), Some((Span::millis(10), true)));
    leads.leave().unwrap();
    assert_eq!(pause(), None, "it is taken");
}
