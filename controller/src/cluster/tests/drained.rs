//! Which drains are refused, and what comes of one that is not, in virtual time.

use std::sync::Arc;

use tidegate_core::units::Span;
use tidegate_proto::v1;

use super::super::calls::LONGEST_REST;
use super::super::roster::GONE;
use super::forget::Scene;
use crate::audit::Actor;
use crate::error::AdminError;

impl Scene {
    fn drain(&self, controller: &str, rest: Span) -> Result<v1::DrainControllerReply, AdminError> {
        let wish = v1::DrainControllerRequest { controller: controller.to_owned(), rest_us: rest.0 };
        self.service.cluster().drain(&Actor::new(Some("ann"), "here"), &wish)
    }

    /// What a drain that is refused says; nothing comes of it.
    fn undrained(&self, controller: &str, rest: Span) -> String {
        let drains = self.roster.drains();
        let said = self.drain(controller, rest).unwrap_err().to_string();
        assert!(drains.borrow().is_none() && self.last_entry().action.is_empty(), "{said}");
        said
    }
}

fn scene() -> Scene {
    let scene = Scene::new();
    scene.service.beside().cluster.set(Arc::clone(&scene.roster)).unwrap();
    scene
}

#[test]
fn a_drain_of_another_one_for_too_long_or_without_a_successor_is_refused() {
    let scene = scene();
    let alone = "no other controller of the cluster under t/ runs, so nobody would lead; start one first";
    assert!(scene.undrained("", Span(0)).contains(alone));
    scene.runs("b");
    let said = scene.undrained("b", Span(0));
    assert!(said.contains("controller b does not lead, a does; a standby needs no drain"), "{said}");
    let said = scene.undrained("a", Span(LONGEST_REST.0 + 1));
    assert!(said.contains("rest_us") && said.contains("; stop the controller instead"), "{said}");
    scene.pass(GONE);
    // Both have records, that of the other for somebody who looks for it.
    scene.shows("a", 0);
    scene.sees();
    assert_eq!(scene.roster.all().len(), 2);
    assert!(scene.undrained("a", Span(0)).contains(alone), "it is gone");
}

#[test]
fn a_drain_is_in_the_audit_log_and_lasts_as_long_as_the_caller_says_or_half_a_minute() {
    for (controller, wish, rest) in [
        ("", Span(0), Span::secs(30)),
        ("a", Span(0), Span::secs(30)),
        ("", Span(1), Span(1)),
        ("a", LONGEST_REST, LONGEST_REST),
    ] {
        let scene = scene();
        scene.runs("b");
        let drains = scene.roster.drains();
        let reply = scene.drain(controller, wish).unwrap();
        assert_eq!((reply.controller.as_str(), reply.rest_us), ("a", rest.0));
        assert_eq!(*drains.borrow(), Some(rest));
        assert!(scene.roster.rests());
        let entry = scene.last_entry();
        assert_eq!((entry.action.as_str(), entry.subject.as_str()), ("drain controller", "controller a"));
        assert!(entry.after.contains(&format!("\"rest_us\":{}", rest.0)), "{entry:?}");
        assert_eq!(entry.comment, "ann");
    }
}
