//! JWTs of a provider over real sockets: what they open, their end, and all that is none.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_controller::clock::Clock;
use tidegate_controller::config::{Access, Authentication, Config};
use tidegate_controller::identity::Role;
use tidegate_controller::identity::provider::{Claim, JwtError, Mapping, Provider, Providers, Source};
use tidegate_controller::{Controller, Running};
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tokio::time::{interval, timeout};
use tonic::Code;
use v1::grants_client::GrantsClient;

use super::signer::{Signer, b64};
use super::support::{PATIENCE, config, group, store_path};
use super::tokens::{Bearer, admin, plain};

const ISSUER: &str = "https://dex.example/dex";
const AUDIENCE: &str = "tidegate";
const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

fn unix_seconds() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "what a provider writes")]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn rule(claim: &str, value: &str, role: &str, groups: Option<&[&str]>) -> Mapping {
    Mapping::new(claim, value, role, None, groups.map(words).as_deref(), None).unwrap()
}

fn provider(folder: &TempDir) -> Provider {
    Provider {
        name: "dex".to_owned(),
        issuer: ISSUER.to_owned(),
        audiences: vec![AUDIENCE.to_owned()],
        algorithms: Provider::algorithms(&words(&ALGORITHMS)).unwrap(),
        source: Source::File(folder.path().join("keys.json")),
        authorities: None,
        skew: Span::secs(0),
        keep: Span::secs(3_600),
        name_claim: Claim::new("sub").unwrap(),
        roles: vec![
            rule("groups", "admins", "admin", None),
            rule("groups", "ops", "operator", None),
            rule("email_verified", "true", "viewer", None),
        ],
    }
}

/// Claims that are in order, for an hour.
fn claims(sub: &str, groups: &[&str]) -> Value {
    let now = unix_seconds();
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": sub, "groups": groups, "iat": now, "nbf": now, "exp": now + 3_600})
}

async fn start(folder: &TempDir, provider: Provider) -> Running {
    let access = Access {
        authentication: Some(Authentication::Required),
        providers: vec![provider],
        ..Access::default()
    };
    let running = Controller::start(Config { access, ..config(folder) }).await.unwrap();
    // The keys are read in the background.
    let channel = plain(&running).await;
    let mut again = interval(Duration::from_millis(20));
    let read = async {
        loop {
            again.tick().await;
            let refused = admin(
                &channel,
                &format!(
                    "{}.{}.x",
                    b64(r#"{"alg":"ES256","kid":"?"}"#),
                    b64(json!({"iss": ISSUER}).to_string())
                ),
            );
            let said = { refused }.status(v1::StatusRequest {}).await.unwrap_err().message().to_owned();
            if said.contains("the key \"?\"") || said.contains("of the issuer") {
                return;
            }
        }
    };
    timeout(PATIENCE, read).await.unwrap();
    running
}

/// Providers without a controller, with the keys of this one.
fn providers(signer: &Signer, provider: Provider) -> std::sync::Arc<Providers> {
    let providers = Providers::new(vec![provider], Clock::start());
    providers.put_keys("dex", json!({"keys": signer.keys()}).to_string().as_bytes()).unwrap();
    providers
}

/// The name of the key that fits an algorithm.
fn key_of(alg: &str) -> &'static str {
    match alg {
        "ES256" => "p256",
        "ES384" => "p384",
        "EdDSA" => "ed",
        _ => "rsa",
    }
}

#[tokio::test]
async fn a_jwt_does_what_its_role_may_and_the_audit_log_names_its_provider() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::new();
    signer.put_keys(&folder.path().join("keys.json"));
    let running = start(&folder, provider(&folder)).await;
    let channel = plain(&running).await;
    for (number, alg) in ALGORITHMS.into_iter().enumerate() {
        let ann = signer.sign(alg, key_of(alg), &claims("ann", &["staff", "ops"]));
        let request =
            v1::CreateGroupRequest { group: Some(group(&format!("g{number}"), "1")), if_not_exists: false };
        admin(&channel, &ann).create_group(request).await.unwrap();
        let refused = admin(&channel, &ann).list_tokens(v1::ListTokensRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(
            refused.message().contains("the JWT of operator \"ann\" by dex has the role operator"),
            "{refused}"
        );
    }
    let mut verified = claims("eve", &[]);
    verified["email_verified"] = json!(true);
    let eve = signer.sign("EdDSA", "ed", &verified);
    let log =
        admin(&channel, &eve).audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    let said = [&log[0].action, &log[0].kind, &log[0].identity, &log[0].role];
    assert_eq!(said, ["create group", "jwt of dex", "ann", "operator"]);
    // A provider can make admins, so that nobody needs a first token.
    assert!(!store_path(&folder).with_extension("redb.first-token").exists());
    let root = signer.sign("ES256", "p256", &claims("root", &["admins"]));
    let wish = v1::CreateTokenRequest {
        name: "ann".into(),
        role: "viewer".into(),
        ..v1::CreateTokenRequest::default()
    };
    let made = admin(&channel, &root).create_token(wish).await.unwrap().into_inner();
    assert!(
        admin(&channel, &made.secret).status(v1::StatusRequest {}).await.is_ok(),
        "tokens work beside it"
    );
    // What is refused is counted, and the answer shows no signature.
    let ann = signer.sign("ES256", "p256", &claims("ann", &["ops"]));
    let wrong = format!("{}AAAA", &ann[..ann.len() - 4]);
    let refused = admin(&channel, &wrong).status(v1::StatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let signature = wrong.rsplit('.').next().unwrap();
    assert!(
        refused.message().contains("the signature of the JWT")
            && !refused.message().contains(&signature[..9])
    );
    let page = running.service().metrics_page().unwrap();
    assert!(page.contains("tidegate_turned_away_total{surface=\"grpc\",reason=\"bad_token\"}"), "{page}");
    assert!(page.contains("tidegate_provider_fetches_total{provider=\"dex\",outcome=\"fetched\"}"), "{page}");
    running.shutdown().await.unwrap();
}

// Within a second of its end, which a test in driven time looks at.
#[tokio::test]
async fn a_jwt_that_expires_ends_its_streams() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::new();
    signer.put_keys(&folder.path().join("keys.json"));
    let running = start(&folder, provider(&folder)).await;
    let channel = plain(&running).await;
    let until = |exp: u64| {
        let mut claims = claims("root", &["admins"]);
        claims["exp"] = json!(exp);
        signer.sign("EdDSA", "ed", &claims)
    };
    let open = |jwt: String| {
        let channel = channel.clone();
        async move {
            let mut grants = GrantsClient::with_interceptor(channel, Bearer(jwt));
            grants.watch(v1::WatchRequest::default()).await.map(tonic::Response::into_inner)
        }
    };
    let mut lives = 2;
    let (end, mut over) = loop {
        let end = unix_seconds() + lives;
        if let Ok(stream) = open(until(end)).await {
            break (end, stream);
        }
        // A machine may be too slow for a short life.
        lives *= 2;
        assert!(Duration::from_secs(lives) < PATIENCE);
    };
    let mut stays = open(until(end + 3_600)).await.unwrap();
    let ended = async {
        loop {
            if let Err(status) = over.message().await {
                return status;
            }
        }
    };
    let status = timeout(PATIENCE, ended).await.unwrap();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(unix_seconds() >= end, "not before its end");
    let refused = admin(&channel, &until(end)).status(v1::StatusRequest {}).await.unwrap_err();
    assert!(refused.message().contains("the JWT expired"), "{refused}");
    let binding = v1::Binding { user: "u".into(), group: "default".into(), ..v1::Binding::default() };
    admin(&channel, &until(end + 3_600)).bind(v1::BindRequest { binding: Some(binding) }).await.unwrap();
    let seen = async {
        loop {
            let event = stays.message().await.unwrap().unwrap();
            if matches!(event.kind, Some(v1::watch_event::Kind::Binding(_))) {
                return;
            }
        }
    };
    timeout(PATIENCE, seen).await.unwrap();
    drop(stays);
    running.shutdown().await.unwrap();
}

#[test]
fn a_service_account_of_kubernetes_is_a_node_of_its_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::new();
    let mut cluster = provider(&folder);
    cluster.name_claim = Claim::new("/kubernetes.io/serviceaccount/name").unwrap();
    cluster.audiences = words(&["other", "https://rates.example"]);
    cluster.roles = vec![
        rule("sub", "system:serviceaccount:shop:board", "viewer", None),
        rule("/kubernetes.io/namespace", "shop", "node", Some(&["shop"])),
    ];
    let providers = providers(&signer, cluster);
    // As the API server writes a projected token.
    let account = |namespace: &str, name: &str| {
        let now = unix_seconds();
        json!({
            "aud": ["https://kubernetes.default.svc", "https://rates.example"], "exp": now + 3_607, "iat": now, "nbf": now,
            "iss": ISSUER, "jti": "f3a4", "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io": {
                "namespace": namespace, "node": {"name": "n1", "uid": "5f"}, "pod": {"name": "till-7", "uid": "6a"},
                "serviceaccount": {"name": name, "uid": "7b"}
            },
        })
    };
    let who =
        |claims: &Value| providers.identify(&signer.sign("RS256", "rsa", claims)).map(|shown| shown.identity);
    let till = who(&account("shop", "till")).unwrap();
    assert_eq!((till.role, till.name.as_str()), (Role::Node, "till"));
    assert!(
        till.may_be("till.pod-7")
            && !till.may_be("till2")
            && till.is_given("shop")
            && !till.is_given("default")
    );
    assert_eq!(who(&account("shop", "board")).unwrap().role, Role::Viewer);
    assert!(matches!(who(&account("other", "till")), Err(JwtError::Unmapped { .. })));
    let Err(JwtError::Unnamed { claim, reason }) = who(&account("shop", "a.b")) else { panic!() };
    assert!(claim.contains("serviceaccount") && reason.contains("full stop"), "{claim} {reason}");
    let mut flat = account("shop", "till");
    flat["kubernetes.io"] = json!("shop");
    assert!(matches!(who(&flat), Err(JwtError::Unmapped { .. })));
}

#[test]
fn what_is_no_jwt_of_the_provider_is_refused_by_its_fault() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::new();
    let mut only = provider(&folder);
    only.algorithms = Provider::algorithms(&words(&["RS256", "ES256"])).unwrap();
    let providers = providers(&signer, only);
    let (good, now) = (claims("ann", &["ops"]), unix_seconds());
    let with = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        claims
    };
    let head = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    let es = |claims: &Value| signer.sign("ES256", "p256", claims);
    let valid = es(&good);
    assert_eq!(providers.identify(&valid).unwrap().identity.name, "ann");
    let (message, signature) = valid.rsplit_once('.').unwrap();
    let stranger = Signer::new();
    for (jwt, said) in [
        // The algorithm: none, a public key as a secret, one that is not allowed, a key of another kind.
        (
            signer.sign_under(&head("none", "rsa"), "none", &good),
            "\"none\", and the provider dex may sign by RS256, ES256",
        ),
        (format!("{message}."), "the signature of the JWT"),
        (signer.sign_under(&head("HS256", "rsa"), "HS256", &good), "\"HS256\", and the provider"),
        (signer.sign("EdDSA", "ed", &good), "\"EdDSA\", and the provider"),
        (signer.sign_under(&head("rs256", "rsa"), "RS256", &good), "\"rs256\""),
        (signer.sign_under(&head("RS256", "p256"), "RS256", &good), "the key \"p256\""),
        (signer.sign_under(&head("ES256", "p384"), "ES384", &good), "the key \"p384\""),
        (signer.sign_under(&head("RS256", "rsa"), "ES256", &good), "the signature of the JWT"),
        // The key and the signature.
        (signer.sign("ES256", "unknown", &good), "the key \"unknown\""),
        (stranger.sign("ES256", "p256", &good), "the signature of the JWT"),
        (
            format!(
                "{}.{}.{signature}",
                b64(head("ES256", "p256").to_string()),
                b64(with("sub", json!("root")).to_string())
            ),
            "the signature",
        ),
        (
            signer.sign_under(
                &json!({"alg": "ES256", "kid": "p256", "crit": ["b64"], "b64": false}),
                "ES256",
                &good,
            ),
            "(crit)",
        ),
        (
            stranger.sign_under(
                &json!({"alg": "ES256", "kid": "p256", "jwk": stranger.keys()[1]}),
                "ES256",
                &good,
            ),
            "the signature",
        ),
        // The claims.
        (
            es(&with("iss", json!("https://evil.example"))),
            "of the issuer \"https://evil.example\", and the controller trusts",
        ),
        (es(&with("iss", json!("https://evil.example"))), &format!("and the controller trusts {ISSUER:?}")),
        (es(&with("iss", json!([ISSUER]))), "names no issuer"),
        (es(&with("aud", json!("other"))), "the JWT is for \"other\", and the controller is \"tidegate\""),
        (es(&with("aud", json!(["other", "Tidegate"]))), "the JWT is for"),
        (es(&with("exp", json!(now - 7))), "the JWT expired"),
        (es(&with("exp", json!("never"))), "no claim \"exp\""),
        (es(&with("exp", Value::Null)), "no claim \"exp\""),
        (es(&with("nbf", json!(now + 900))), "counts in"),
        (es(&with("iat", json!(now + 900))), "(iat)"),
        (es(&with("groups", json!(["staff"]))), "no role is for this JWT"),
        (es(&with("groups", json!("opsy"))), "no role is for this JWT"),
        (es(&with("sub", json!("a b"))), "no name of an identity"),
        (es(&with("sub", json!(7))), "no name of an identity"),
        (es(&with("sub", json!(["ann"]))), "no name of an identity"),
        // The text.
        (es(&with("pad", json!("x".repeat(9_000)))), "at most 8192 are read"),
        (format!("{valid}.x"), "it has not three parts"),
        (format!("a.{valid}"), "it has not three parts"),
        ("..".to_owned(), "no header"),
        (format!("{}.{}.", b64("{}"), b64("{}")), "no header"),
        (format!("{}.!.x", message.split('.').next().unwrap()), "names no issuer"),
        (format!("{valid}="), "the signature of the JWT"),
    ] {
        let refused = providers.identify(&jwt).unwrap_err().to_string();
        assert!(refused.contains(said), "{said}: {refused}");
        let longest = jwt.rsplit('.').next().filter(|part| part.len() > 9).unwrap_or("\0");
        assert!(!refused.contains(longest) && refused.len() < 1_000, "{refused}");
    }
}

#[test]
fn clocks_may_be_apart_by_the_skew_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::new();
    let mut lax = provider(&folder);
    lax.skew = Span::secs(60);
    let providers = providers(&signer, lax);
    let now = unix_seconds();
    let judged = |begin: u64, end: u64| {
        let mut claims = claims("ann", &["ops"]);
        (claims["iat"], claims["nbf"], claims["exp"]) = (json!(begin), json!(begin), json!(end));
        providers.identify(&signer.sign("EdDSA", "ed", &claims)).is_ok()
    };
    assert!(judged(now + 55, now + 99) && judged(now - 99, now - 50));
    assert!(!judged(now + 75, now + 99) && !judged(now - 99, now - 61));
}

#[test]
fn two_providers_keep_to_their_own_keys() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Signer::new(), Signer::new());
    let other =
        Provider { name: "other".to_owned(), issuer: "https://other".to_owned(), ..provider(&folder) };
    let providers = Providers::new(vec![provider(&folder), other], Clock::start());
    for (name, signer) in [("dex", &first), ("other", &second)] {
        providers.put_keys(name, json!({"keys": signer.keys()}).to_string().as_bytes()).unwrap();
    }
    let mut of_other = claims("ann", &["ops"]);
    of_other["iss"] = json!("https://other");
    let who = |signer: &Signer, claims: &Value| {
        let shown = providers.identify(&signer.sign("ES256", "p256", claims));
        shown.map(|shown| shown.identity.label())
    };
    assert!(who(&second, &of_other).unwrap().ends_with("by other"));
    assert!(who(&first, &claims("ann", &["ops"])).unwrap().ends_with("by dex"));
    // The keys of one sign nothing of the other.
    assert_eq!(who(&first, &of_other), Err(JwtError::Signature));
    assert_eq!(who(&second, &claims("ann", &["ops"])), Err(JwtError::Signature));
    let labels: BTreeSet<String> = [who(&second, &of_other), who(&first, &claims("ann", &["ops"]))]
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(labels.len(), 2, "one name at two providers is two people");
}
