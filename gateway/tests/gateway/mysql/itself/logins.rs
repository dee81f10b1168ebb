//! `caching_sha2_password` at MySQL itself: TLS on either side, on both, on none, and with a certificate that the
//! gateway was given, one of its own, or none.

use tidegate_gateway::{Certificate, Config, Gateway, Listener, Upstream};
use tidegate_test_servers::{Certificates, MySql};
use tokio::task::{block_in_place, spawn_blocking};

use super::super::sha2::{change, drivers_see, how, login};
use super::Stage;
use super::newest::client;
use crate::common::says;

/// Ways to the server, in the order of the listeners, and whether they are private.
const PLAIN: usize = 0;
const WAYS: [bool; 3] = [false, true, true];

/// The server's view of its own side, for which a client's driver asks.
const HOW: &str = "create function shop.how() returns varchar(20) reads sql data return (select
    if(variable_value = '', 'plain', 'tls') from performance_schema.session_status where variable_name = 'Ssl_cipher');
    create function shop.forget() returns int deterministic return 0; grant execute on shop.* to ann";

/// The server, and gateways before it with different certificates.
struct Logins {
    stage: Stage,
    /// Without one.
    bare: Gateway,
    /// With one of its own.
    own: Gateway,
    /// With one that it was given.
    given: Gateway,
    certificates: Certificates,
}

impl Logins {
    async fn new() -> Self {
        let stage = Stage::of(MySql::newest).await;
        stage.server.root(HOW).unwrap();
        let certificates = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
        let tcp = stage.server.upstream();
        let ways = [tcp.clone(), format!("{tcp}?tls=require"), stage.server.socket_upstream()];
        let gateway = async |identity: &str, change: &dyn Fn(&mut Config)| {
            let gateway = stage.gateway(identity, |config| {
                config.listeners = ways.iter().map(|way| listener(way)).collect();
                change(config);
            });
            gateway.await
        };
        let certificate = Certificate { chain: certificates.certificate(), key: certificates.key() };
        let bare = gateway("bare", &|config| config.self_signed = false).await;
        let own = gateway("own", &|_| {}).await;
        let given = gateway("given", &|config| config.certificate = Some(certificate.clone())).await;
        Self { stage, bare, own, given, certificates }
    }

    /// The server knows no password any more.
    fn forget(&self) {
        block_in_place(|| self.stage.server.root("flush privileges").unwrap());
    }

    /// The output of MySQL's own client in a new session at a server that knows no password, with these options.
    fn client(&self, port: u16, options: &[&str]) -> String {
        self.forget();
        let mut client = client(port);
        client.args(["-N", "-e", "select 42"]).args(options);
        let said = block_in_place(|| says(&mut client, b""));
        String::from_utf8_lossy(&said).replace(WARNING, "")
    }
}

/// The client's warning about every password among its flags.
const WARNING: &str = "mysql: [Warning] Using a password on the command line interface can be insecure.\n";

fn listener(upstream: &str) -> Listener {
    Listener { listen: "127.0.0.1:0".parse().unwrap(), upstream: Upstream::parse(upstream).unwrap() }
}

fn port(gateway: &Gateway, way: usize) -> u16 {
    gateway.addresses[way].port()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_gets_past_as_each_side_wants_it() {
    let logins = Logins::new().await;
    let given = &logins.given;
    for (gateway, tls) in [(&logins.bare, false), (&logins.own, false), (&logins.own, true), (given, true)] {
        for (way, is_private) in WAYS.into_iter().enumerate() {
            let port = port(gateway, way);
            // A server that is reached in private wants the whole password as it is.
            let is_refused = is_private && !tls;
            let seen = if way == 1 { "tls" } else { "plain" };
            logins.forget();
            let first = how(login(port, tls, "ann").await).await;
            if is_refused {
                assert!(first.starts_with("3159 the server wants the whole password"), "{first}");
                assert_eq!(how(login(logins.stage.server.port(), true, "ann").await).await, "tls");
            } else {
                assert_eq!(first, seen, "{way} {tls}");
            }
            assert_eq!(how(login(port, tls, "ann").await).await, seen, "{way} {tls}");
            let wrong = if is_refused { "3159" } else { "1045" };
            assert!(how(login(port, tls, "bob").await).await.starts_with(wrong), "{way} {tls}");
            let session = change(login(port, tls, "ann").await.unwrap(), "ann").await;
            assert_eq!(how(session).await, seen, "{way} {tls}");
            let session = login(port, tls, "ann").await.unwrap();
            logins.forget();
            let changed = how(change(session, "ann").await).await;
            assert!(changed.starts_with(if is_refused { "3159" } else { seen }), "{way} {tls}: {changed}");
        }
    }
    for (way, tls, expected) in [(0, false, "plain, 42"), (0, true, "plain, 42"), (1, true, "tls, 42")] {
        logins.forget();
        drivers_see(port(&logins.own, way), tls, [expected, expected, "1045", "1045"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_own_client_finds_the_tls_that_it_counts_on() {
    let logins = Logins::new().await;
    // Without a setting for TLS, it sends no password without TLS.
    let told = logins.client(port(&logins.bare, PLAIN), &[]);
    assert!(told.contains("2061") && told.contains("secure connection"), "{told}");
    assert_eq!(logins.client(port(&logins.bare, PLAIN), &["--get-server-public-key"]), "42\n");
    for gateway in [&logins.own, &logins.given] {
        for way in 0..WAYS.len() {
            assert_eq!(logins.client(port(gateway, way), &[]), "42\n", "{way}");
            assert_eq!(logins.client(port(gateway, way), &["--ssl-mode=REQUIRED"]), "42\n", "{way}");
        }
    }
    // A certificate of the gateway's own proves nothing to whom it has to.
    let authority = |path: std::path::PathBuf| format!("--ssl-ca={}", path.display());
    let (servers, givens) =
        (authority(logins.stage.server.authority()), authority(logins.certificates.authority()));
    let verify = |port: u16, authority: &str| logins.client(port, &["--ssl-mode=VERIFY_CA", authority]);
    assert_eq!(verify(logins.stage.server.port(), &servers), "42\n");
    assert_eq!(verify(port(&logins.given, PLAIN), &givens), "42\n");
    for told in [verify(port(&logins.own, PLAIN), &servers), verify(port(&logins.given, PLAIN), &servers)] {
        assert!(told.contains("2026") && told.contains("certificate verify failed"), "{told}");
    }
}
