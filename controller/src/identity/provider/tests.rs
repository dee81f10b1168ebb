//! Fetching keys from a provider that rotates them, fails, hangs and answers what is no set of keys, in driven time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jsonwebtoken::Algorithm;
use tidegate_core::units::Span;
use tidegate_test_servers::said::heard;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::keys::keep;
use super::settings::{Provider, Source};
use super::verify::Providers;
use super::{Claim, JwtError, Mapping};
use crate::clock::Clock;
use crate::metrics::Metrics;

/// What a server says next.
#[derive(Clone)]
enum Say {
    Body(String),
    Raw(&'static str),
    Nothing,
}

/// A server of keys, and how often it was asked.
struct Server {
    url: String,
    says: Arc<Mutex<(Say, usize)>>,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let says = Arc::new(Mutex::new((Say::Nothing, 0)));
        let said = Arc::clone(&says);
        let serving = tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 2_048];
                let _ = stream.read(&mut head).await;
                let next = {
                    let mut said = said.lock().unwrap();
                    said.1 += 1;
                    said.0.clone()
                };
                let text = match next {
                    Say::Body(body) => {
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
                    }
                    Say::Raw(text) => text.to_owned(),
                    Say::Nothing => {
                        held.push(stream);
                        continue;
                    }
                };
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        Self { url, says, serving }
    }

    fn say(&self, next: Say) {
        self.says.lock().unwrap().0 = next;
    }

    fn shows(&self, keys: &[&str]) {
        self.say(Say::Body(set(keys)));
    }

    fn asked(&self) -> usize {
        self.says.lock().unwrap().1
    }
}

fn set(keys: &[&str]) -> String {
    let key = |id: &&str| format!(r#"{{"kty":"RSA","kid":"{id}","n":"AQAB","e":"AQAB"}}"#);
    format!(r#"{{"keys":[{}]}}"#, keys.iter().map(key).collect::<Vec<_>>().join(","))
}

fn provider(issuer: &str, source: Source) -> Provider {
    Provider {
        name: "p".to_owned(),
        issuer: issuer.to_owned(),
        audiences: vec!["t".to_owned()],
        algorithms: vec![Algorithm::RS256],
        source,
        authorities: None,
        skew: Span::secs(0),
        keep: Span::secs(3_600),
        name_claim: Claim::new("sub").unwrap(),
        roles: vec![Mapping::new("a", "b", "viewer", None, None, None).unwrap()],
    }
}

/// Whether a key is there.
fn has(providers: &Providers, id: &str) -> bool {
    providers.all()[0].key(providers.clock().now(), Some(id), Algorithm::RS256).is_ok()
}

/// Why a key is not there.
fn why(providers: &Providers, id: &str) -> String {
    let found = providers.all()[0].key(providers.clock().now(), Some(id), Algorithm::RS256);
    found.unwrap_err().to_string()
}

/// Lets this time pass, with all that happens in it.
async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_fetched_when_a_jwt_names_it_and_not_more_often_than_is_allowed() {
    let server = Server::start().await;
    let source = Source::Url(format!("{}/keys", server.url));
    let providers = Providers::new(vec![provider("https://i", source)], Clock::start());
    assert!(why(&providers, "1").contains("the first fetch is under way"));
    server.shows(&["1"]);
    let metrics = Arc::new(Metrics::new());
    let tasks = keep(&providers, &metrics);
    pass(5).await;
    assert!(has(&providers, "1") && !has(&providers, "2"));
    assert_eq!(server.asked(), 1, "not at once after the first");
    server.shows(&["1", "2"]);
    pass(10).await;
    assert!(has(&providers, "2"), "what was asked for in the meantime is fetched at its time");
    assert_eq!(server.asked(), 2);
    // Whoever makes keys up does not make the controller ask more often than every ten seconds.
    for number in 0..1_000 {
        assert!(!has(&providers, &format!("made-up-{number}")));
        sleep(Duration::from_millis(100)).await;
    }
    assert!((10..=12).contains(&(server.asked() - 2)), "{}", server.asked());
    // One that was taken back is forgotten with the next look.
    server.shows(&["2"]);
    pass(320).await;
    assert!(has(&providers, "2") && !has(&providers, "1"));
    let page = metrics.page(&[]).unwrap();
    assert!(page.contains("tidegate_provider_fetches_total{provider=\"p\",outcome=\"fetched\"}"), "{page}");
    tasks.iter().for_each(JoinHandle::abort);
    server.serving.abort();
}

#[tokio::test(start_paused = true)]
async fn the_last_good_keys_are_used_for_as_long_as_is_said() {
    let server = Server::start().await;
    let source = Source::Url(format!("{}/keys", server.url));
    let providers = Providers::new(vec![provider("https://i", source)], Clock::start());
    server.shows(&["1"]);
    let metrics = Arc::new(Metrics::new());
    let tasks = keep(&providers, &metrics);
    pass(1).await;
    let large = "x".repeat(300 << 10);
    for broken in [
        Say::Raw("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"),
        Say::Raw("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"),
        Say::Raw("nothing that HTTP knows\r\n\r\n"),
        Say::Body("{\"keys\":[]}".to_owned()),
        Say::Body("<html>".to_owned()),
        Say::Body(large),
        Say::Nothing,
    ] {
        server.say(broken);
        pass(400).await;
        assert!(has(&providers, "1"));
    }
    assert!(metrics.page(&[]).unwrap().contains("outcome=\"failed\"}"));
    pass(1_000).await;
    assert!(why(&providers, "1").contains("too old: keys_kept"), "{}", why(&providers, "1"));
    server.shows(&["3"]);
    pass(30).await;
    assert!(has(&providers, "3"));
    tasks.iter().for_each(JoinHandle::abort);
    server.serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_used_is_told_by_its_reason() {
    let server = Server::start().await;
    let url = |path: &str| format!("{}{path}", server.url);
    let document =
        |issuer: &str, keys: &str| Say::Body(format!(r#"{{"issuer":"{issuer}","jwks_uri":"{keys}","x":1}}"#));
    for (say, said) in [
        (Say::Raw("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"), "it answers 503"),
        (Say::Raw("HTTP/1.1 301 Moved\r\ncontent-length: 0\r\n\r\n"), "it answers 301"),
        (Say::Body("{}".to_owned()), "no discovery document"),
        (document("https://other", &url("/keys")), "of the issuer"),
        (document(&server.url, "http://192.0.2.1/keys"), "no address that keys may come from"),
        (document(&server.url, "file:///etc/passwd"), "no address that keys may come from"),
        // The document itself is no set of keys.
        (document(&server.url, &url("/keys")), "no JWK set"),
        (
            Say::Raw("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"),
            "end of file before message length reached",
        ),
        (Say::Body("x".repeat(257 << 10)), "the answer is larger than 256 KiB"),
        (Say::Nothing, "no answer within 10 s"),
    ] {
        server.say(say);
        let reason = super::fetch::keys(&provider(&server.url, Source::Discovery)).await;
        let reason = reason.and_then(|bytes| super::jwks::read(&bytes)).unwrap_err();
        assert!(reason.contains(said), "{said}: {reason}");
    }
    server.serving.abort();
    let nobody = provider("http://127.0.0.1:1", Source::Discovery);
    assert!(super::fetch::keys(&nobody).await.unwrap_err().starts_with("http://127.0.0.1:1/.well-known/"));
    let file = provider("https://i", Source::File("/nowhere/keys.json".into()));
    assert!(super::fetch::keys(&file).await.unwrap_err().contains("cannot read /nowhere/keys.json"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    for (bytes, is_read) in [(256 << 10, true), ((256 << 10) + 1, false)] {
        std::fs::write(&path, vec![b' '; bytes]).unwrap();
        let read = super::fetch::keys(&provider("https://i", Source::File(path.clone()))).await;
        assert_eq!(read.is_ok(), is_read);
        let said = read.err().unwrap_or_default();
        assert!(is_read || said.ends_with("keys.json is larger than 256 KiB"), "{said}");
    }
}

#[test]
fn of_several_keys_one_has_to_be_named() {
    let providers = Providers::new(vec![provider("https://i", Source::Discovery)], Clock::start());
    let key = |id| providers.all()[0].key(providers.clock().now(), id, Algorithm::RS256);
    providers.put_keys("p", set(&["1"]).as_bytes()).unwrap();
    assert!(key(None).is_ok() && key(Some("1")).is_ok());
    providers.put_keys("p", set(&["1", "2"]).as_bytes()).unwrap();
    assert_eq!(key(None).unwrap_err(), JwtError::NoKey("p".to_owned()));
    assert!(key(Some("2")).is_ok() && key(Some("3")).is_err());
    assert_eq!(providers.waited_for(), 0);
}

#[test]
fn all_who_are_connected_by_jwts_of_one_end_are_cut_off_at_it() {
    let now = Arc::new(AtomicU64::new(0));
    let providers = Providers::new(vec![], Clock::driven(Arc::clone(&now)));
    let end_ms = providers.clock().unix_ms() + 5;
    let both = [providers.over_at(end_ms), providers.over_at(end_ms)];
    let later = providers.over_at(end_ms + 1);
    now.store(4_999, Ordering::SeqCst);
    providers.expire();
    assert!(both.iter().all(|over| !*over.borrow()));
    now.store(5_000, Ordering::SeqCst);
    providers.expire();
    assert!(both.iter().all(|over| *over.borrow()) && !*later.borrow());
    // Of those that nobody waits for any more, nothing is kept.
    drop(later);
    providers.expire();
    assert_eq!(providers.waited_for(), 0);
}

#[test]
fn keys_are_used_for_as_long_as_is_said_though_no_fetch_has_failed() {
    let now = Arc::new(AtomicU64::new(0));
    let settings = provider("https://i", Source::Discovery);
    let providers = Providers::new(vec![settings], Clock::driven(Arc::clone(&now)));
    providers.put_keys("p", set(&["1"]).as_bytes()).unwrap();
    now.store(3_600_000_000, Ordering::SeqCst);
    assert!(has(&providers, "1"));
    now.store(3_600_000_001, Ordering::SeqCst);
    assert!(why(&providers, "1").contains("too old: keys_kept"));
}

#[test]
fn keys_that_are_too_old_are_not_said_to_be_used_on() {
    let now = Arc::new(AtomicU64::new(0));
    let settings = provider("https://i", Source::Discovery);
    let providers = Providers::new(vec![settings], Clock::driven(Arc::clone(&now)));
    let fails_at = |us, reason: &str| {
        now.store(us, Ordering::SeqCst);
        heard(|| providers.all()[0].note(providers.clock().now(), Err(reason.to_owned())))
    };
    let (used, refused) = ("those from before are used on", "its JWTs are refused");
    assert!(fails_at(0, "it hangs").contains(refused), "there were none yet");
    providers.put_keys("p", set(&["1"]).as_bytes()).unwrap();
    assert!(fails_at(1, "it hangs").contains(used));
    assert_eq!(fails_at(3_600_000_000, "it hangs"), "", "the same again says nothing more");
    assert!(has(&providers, "1"));
    let said = fails_at(3_600_000_001, "it hangs");
    assert!(said.contains(refused) && said.contains("it hangs") && !has(&providers, "1"), "{said}");
    assert_eq!(fails_at(3_700_000_000, "it hangs"), "");
    assert!(fails_at(3_700_000_001, "it answers 500").contains(refused));
}
