//! JWTs: any text, any set of keys, and JWTs that are right but for something, beside a judge.
//!
//! A JWT that the judge refuses is never let in; one that is right in everything is, as exactly who it is of. No error
//! has a part of a signature.

mod draft;
mod judge;
mod keys;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tidegate_controller::clock::Clock;
use tidegate_controller::identity::provider::{JwtError, Providers, is_jwt};
use tidegate_controller::identity::tokens::Shown;

use super::naive::seen;
use crate::input::Input;
use draft::Draft;
use judge::Trusted;
use keys::{PAIRS, b64, public, sign};

/// Bytes of a JWT that are read.
const MOST_BYTES: usize = 8 << 10;
/// What a driven clock shows at zero, in Unix seconds.
const START_S: u64 = 1_577_836_800;

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(8) {
        0 => any_text(&mut input),
        1 => any_keys(&mut input),
        2 => any_parts(&mut input),
        _ => drafts(&mut input),
    }
}

/// Two providers and their clock, which follows the number.
fn providers(all: &[Trusted]) -> (Arc<Providers>, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(0));
    let settings = all.iter().map(Trusted::settings).collect();
    let providers = Providers::new(settings, Clock::driven(Arc::clone(&now)));
    for trusted in all {
        let set = json!({"keys": trusted.keys.iter().map(keys::Shown::jwk).collect::<Vec<_>>()});
        let put = providers.put_keys(trusted.name, set.to_string().as_bytes());
        assert!(put.is_ok() || trusted.keys.iter().all(|key| !key.verifies()), "{set}: {put:?}");
    }
    (providers, now)
}

/// Asks, and checks what is said of a refusal.
fn ask(providers: &Providers, text: &str) -> Result<Shown, JwtError> {
    let answer = providers.identify(text);
    if let Err(refused) = &answer {
        let said = format!("{refused} {refused:?}");
        assert!(said.len() < 4_000, "{said}");
        let signature = text.rsplit('.').next().unwrap_or_default();
        assert!(signature.len() < 40 || !said.contains(signature), "a signature is in an error");
        assert!(is_jwt(text) || matches!(refused, JwtError::Malformed(_) | JwtError::Long(_)), "{said}");
    }
    answer
}

/// A text that nobody signed.
fn any_text(input: &mut Input<'_>) {
    let (providers, _) = providers(&[Trusted::plain()]);
    let text = String::from_utf8_lossy(input.take(usize::MAX)).into_owned();
    assert!(ask(&providers, &text).is_err(), "let in: {text:?}");
}

/// Any set of keys: who signs by a key that is not in it is not let in.
fn any_keys(input: &mut Input<'_>) {
    let mut trusted = Trusted::plain();
    trusted.keys.clear();
    let (providers, _) = providers(&[trusted]);
    let pair = input.below(PAIRS);
    let text = String::from_utf8_lossy(input.take(usize::MAX)).into_owned();
    let of = public(pair);
    let part = |name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    // An input cannot have keys that are made at its run.
    let text =
        text.replace("PUBLIC_X", &part("x")).replace("PUBLIC_Y", &part("y")).replace("PUBLIC_N", &part("n"));
    let put = providers.put_keys("a", text.as_bytes());
    assert!(
        put.as_ref().is_ok_and(|()| true) || put.as_ref().is_err_and(|reason| reason.len() < 400),
        "{put:?}"
    );
    for kid in [Some("1"), None] {
        let draft = Draft::draw(&mut Input::new(&[]), pair, kid, START_S, 0);
        let is_there = put.is_ok()
            && (text.contains(&part("x")) && !part("x").is_empty()
                || text.contains(&part("n")) && !part("n").is_empty());
        assert!(ask(&providers, &draft.text()).is_err() || is_there, "let in by no key of {text}");
    }
}

/// Any header and any claims, rightly signed: who is let in has the claims that decide.
fn any_parts(input: &mut Input<'_>) {
    let (providers, _) = providers(&[Trusted::plain()]);
    let (head, claims) = (input.piece(), input.take(usize::MAX));
    let message = format!("{}.{}", b64(head), b64(claims));
    let text = format!("{message}.{}", b64(sign(0, "EdDSA", message.as_bytes())));
    if ask(&providers, &text).is_err() {
        return;
    }
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("what was let in is JSON");
    let (head, claims) = (read(head), read(claims));
    assert!(head.get("alg") == Some(&json!("EdDSA")) && text.len() <= MOST_BYTES);
    assert!(head.get("crit").is_none_or(Value::is_null));
    assert_eq!(claims.get("iss"), Some(&json!("https://a.example")));
    let aud = claims.get("aud").cloned().unwrap_or_default();
    let is_ours = |aud: &Value| *aud == json!("t") || *aud == json!("u");
    assert!(is_ours(&aud) || aud.as_array().is_some_and(|all| all.iter().any(is_ours)), "{aud}");
    let time = |claim: &str| claims.get(claim).map(|at| at.as_f64().expect("a time is a number"));
    let start = std::time::Duration::from_secs(START_S).as_secs_f64();
    assert!(time("exp").expect("an end") >= start, "{claims}");
    assert!(time("nbf").unwrap_or_default().max(time("iat").unwrap_or_default()) < start + 1.0, "{claims}");
    assert!(claims.get("sub").is_some_and(Value::is_string));
}

/// JWTs that are right but for something.
fn drafts(input: &mut Input<'_>) {
    let all =
        [Trusted::draw(input, "a", "https://a.example"), Trusted::draw(input, "b", "https://b.example")];
    let (providers, now) = providers(&all);
    let mut us = 0;
    for _ in 0..4 {
        us += match input.below(6) {
            0 => input.between(0, 2_000_000),
            1 => input.between(59_999_999, 60_000_001),
            _ => 0,
        };
        now.store(us, Ordering::Relaxed);
        let of = input.below(4) / 3;
        let first = all.get(of).and_then(|trusted| trusted.keys.first());
        let (pair, kid) = first.map_or((0, None), |key| (key.pair, key.kid));
        let skew_s = all.first().map_or(0, |trusted| trusted.skew_s);
        let draft = Draft::draw(input, pair, kid, START_S + us / 1_000_000, skew_s);
        let untouched = draft.text();
        let text = touched(input, &untouched);
        let expected =
            judge::judge(&all, &draft, us).filter(|_| text == untouched && text.len() <= MOST_BYTES);
        let answer = ask(&providers, &text);
        let found = answer.as_ref().ok().map(|shown| seen(&shown.identity));
        assert_eq!(
            found,
            expected,
            "{draft:?} for {all:?}, changed: {}, at {us} us: {answer:?}",
            text != untouched
        );
        assert!(answer.is_ok_and(|shown| !*shown.over.borrow()) || expected.is_none());
        if input.is_empty() {
            break;
        }
    }
}

/// What becomes of a JWT on the way; most often nothing.
fn touched(input: &mut Input<'_>, text: &str) -> String {
    let (message, signature) = text.rsplit_once('.').unwrap_or_default();
    let (head, claims) = message.split_once('.').unwrap_or_default();
    match input.below(24) {
        1 => format!("{message}."),
        2 => format!("{message}.{}", signature.get(input.below(90)..).unwrap_or_default()),
        3 => format!("{head}.{}.{signature}", b64("{\"iss\":\"https://a.example\"}")),
        4 => format!("{}.{claims}.{signature}", b64("{\"alg\":\"none\"}")),
        5 => format!("{text}="),
        6 => format!("{text}.{signature}"),
        7 => format!("{text}\n"),
        8 => format!("{message}.{}", signature.replace('-', "+").replace('_', "/")),
        9..=12 => {
            let at = usize::try_from(input.number()).unwrap_or_default() % text.len().max(1);
            let bit = 1 << input.below(7);
            let change = |(n, byte): (usize, u8)| char::from(if n == at { byte ^ bit } else { byte });
            text.bytes().enumerate().map(change).collect()
        }
        _ => text.to_owned(),
    }
}
