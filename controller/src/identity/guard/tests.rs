//! What pays for failures of an address, in driven time.

use tidegate_listener::Failures;

use super::*;
use crate::clock::Clock;
use crate::service::ServiceConfig;
use crate::store::RedbStore;

const CALL: Call<'static> = Call::Rest("GET", "/v1/status");

/// How much later each of these failures is answered where this is done between two of them.
fn later(guard: &Arc<Guard>, between: impl Fn(SocketAddr), peer: &str) -> Vec<Duration> {
    let peer: SocketAddr = peer.parse().unwrap();
    let failed = (0..30).map(|_| {
        between(peer);
        let denied = call(guard, peer, Some("Bearer tdg_1.0")).unwrap_err();
        assert!(denied.is_unknown, "{denied:?}");
        denied.later
    });
    failed.collect()
}

fn call(guard: &Arc<Guard>, peer: SocketAddr, shows: Option<&str>) -> Result<(), Denied> {
    called(guard, peer, shows, CALL)
}

fn called(guard: &Arc<Guard>, peer: SocketAddr, shows: Option<&str>, call: Call<'_>) -> Result<(), Denied> {
    let mut request = Request::new(());
    *request.extensions_mut() = guard.greeting()(None, peer);
    if let Some(text) = shows {
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_str(text).unwrap());
    }
    guard.admit(Surface::Rest, call, &mut request)
}

fn service() -> (Arc<Service>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let service = Service::load(store, ServiceConfig::default(), Clock::start()).unwrap();
    (Arc::new(service), folder)
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_counts_at_the_login_and_with_what_anyone_may_call() {
    let (service, _folder) = service();
    let guard = Guard::new(Access::default(), service, Arc::new(Failures::default()));
    let at = |peer: &str| peer.parse::<SocketAddr>().unwrap();
    let usual = later(&guard, |_| (), "192.0.2.1:1");
    let of_login: Vec<Duration> =
        (0..30).map(|_| guard.log_in("tdg_1.0", at("192.0.2.2:1")).unwrap_err().later).collect();
    assert_eq!(of_login, usual);
    let probe = Call::Rest("GET", "/healthz");
    for _ in 0..29 {
        called(&guard, at("192.0.2.3:1"), Some("Bearer tdg_1.0"), probe).unwrap();
    }
    let last = call(&guard, at("192.0.2.3:1"), Some("Bearer tdg_1.0")).unwrap_err();
    assert_eq!(Some(&last.later), usual.last(), "as after as many refusals");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_paid_for_by_a_proof_and_not_by_a_call_that_proves_nothing() {
    let (service, _folder) = service();
    let wish = tidegate_proto::v1::CreateTokenRequest {
        name: "ann".into(),
        role: "viewer".into(),
        ..tidegate_proto::v1::CreateTokenRequest::default()
    };
    let actor = crate::definitions::audit::Actor::new(None, "test");
    let (_, secret) = service.tokens().create(&actor, &wish).unwrap();
    let access = Access { anonymous_role: Some(Role::Viewer), ..Access::default() };
    let guard = Guard::new(access, service, Arc::new(Failures::default()));
    let alone = later(&guard, |_| (), "192.0.2.1:1");
    assert!(alone[29] > alone[15] && alone[15] > Duration::ZERO, "{alone:?}");
    let without_a_name = later(&guard, |peer| call(&guard, peer, None).unwrap(), "192.0.2.2:1");
    assert_eq!(without_a_name, alone);
    let shows = format!("Bearer {}", secret.reveal());
    let proven = later(&guard, |peer| call(&guard, peer, Some(&shows)).unwrap(), "192.0.2.3:1");
    assert_eq!(proven, [Duration::ZERO; 30]);
}
