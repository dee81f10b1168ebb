//! Ways of a gateway to a server that has a certificate for `localhost`: plain, under TLS, and looking at it.

use std::path::PathBuf;

use tidegate_controller::Running;
use tidegate_gateway::{Certificate, Config, Listener, Policy, Upstream};
use tidegate_test_servers::Certificates;

/// The host and whether its certificate is looked at, in the order of the listeners.
const WAYS: [&str; 4] = [
    "127.0.0.1:{}?tls=disable",
    "127.0.0.1:{}?tls=require",
    "localhost:{}?tls=verify-full",
    "127.0.0.1:{}?tls=verify-full",
];
/// Of [`WAYS`].
pub(crate) const PLAIN: usize = 0;
pub(crate) const TLS: usize = 1;
pub(crate) const VERIFIED: usize = 2;
pub(crate) const OTHER_NAME: usize = 3;

/// A gateway with a certificate of its own and a listener for each way to the server at `port`, whose URL begins so.
pub(crate) fn config(
    controller: &Running,
    (start, port): (&str, u16),
    policy: Policy,
    own: &Certificates,
    authorities: PathBuf,
) -> Config {
    let listener = |way: &str| Listener {
        listen: "127.0.0.1:0".parse().unwrap(),
        upstream: Upstream::parse(&format!("{start}{}", way.replace("{}", &port.to_string()))).unwrap(),
    };
    Config {
        endpoints: vec![format!("http://{}", controller.grpc_addr)],
        listeners: WAYS.into_iter().map(listener).collect(),
        policy,
        certificate: Some(Certificate { chain: own.certificate(), key: own.key() }),
        authorities: Some(authorities),
        ..Config::default()
    }
}
