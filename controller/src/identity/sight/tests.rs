//! What of a definition a tenant sees that names groups of others.

use super::*;
use crate::definitions::bindings::Bindings;

/// A group that names another one in each way.
fn naming(other: &str) -> Definition {
    let limit = v1::QueryLimit {
        rows: 5,
        action: "switch_group".into(),
        switch_group: other.into(),
        ..v1::QueryLimit::default()
    };
    let text = v1::Group {
        name: "web".into(),
        parent: other.into(),
        demote_to: other.into(),
        query_limit: Some(limit),
        revision: 7,
        ..v1::Group::default()
    };
    Definition::parse(&text).unwrap()
}

fn named(text: &v1::Group) -> [&str; 3] {
    [&text.parent, &text.demote_to, &text.query_limit.as_ref().unwrap().switch_group]
}

#[test]
fn a_tenant_sees_the_names_of_its_own_groups_and_of_no_other() {
    let mut bindings = Bindings::default();
    let group = |name: &str| GroupName::parse(name).unwrap();
    bindings.bind(Principal::parse("acme", "").unwrap(), group("web"));
    bindings.bind(Principal::parse("acme", "ann").unwrap(), group("own"));
    bindings.bind(Principal::parse("other", "").unwrap(), group("secret"));
    let seen = Sight(Some("acme")).groups(&bindings);
    let own = seen.text(&naming("own"));
    assert_eq!((named(&own), own.revision), (["own"; 3], 0));
    assert_eq!(named(&seen.text(&naming("secret"))), [""; 3]);
    let all = Sight::default().groups(&bindings).text(&naming("secret"));
    assert_eq!((named(&all), all.revision), (["secret"; 3], 7));
}
