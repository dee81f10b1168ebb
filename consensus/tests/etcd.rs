//! etcd itself: real members, killed and stopped, with TLS, with users, and full.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod contract;

use tidegate_consensus::{Etcd, Written};
use tidegate_test_servers as servers;

fn settings(endpoints: Vec<String>) -> Written {
    Written { endpoints, ..Written::default() }
}

fn connect(written: Written) -> Etcd {
    Etcd::new(written.check().unwrap()).unwrap()
}

#[test]
fn it_does_what_every_such_store_does() {
    let server = servers::Etcd::start(1, &[]).unwrap();
    let store = connect(settings(server.endpoints()));
    for (rule, holds) in contract::RULES {
        println!("{rule}");
        holds(&store);
    }
}
