//! Tokens: made, revoked, over, shown in any header, and read again from the store, beside a map of all that was made.
//!
//! A token is let in if and only if it was made, is not revoked and is not over, as exactly who it was made for; its
//! text is in nothing that the controller stores or says.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Request};
use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::config::Access;
use tidegate_controller::identity::guard::{self, Guard};
use tidegate_controller::identity::matrix::Call;
use tidegate_controller::identity::provider::{Claim, Mapping, Provider, Source};
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_controller::store::Table;
use tidegate_core::units::Span;
use tidegate_listener::Surface;
use tidegate_proto::v1;
use tidegate_tls::Certificate;
use tokio::sync::watch;

use super::naive::{ROLES, Who, seen, who, word, words};
use crate::input::Input;
use crate::memory::{MemoryStore, Rows};

/// Steps of one input: more would only repeat what these can do.
const STEPS: usize = 64;
/// Ten years of 366 days, in milliseconds.
const LONGEST_MS: u64 = 10 * 366 * 86_400_000;
/// A call that every role may make, and nobody else.
const CALL: Call<'static> = Call::Grpc("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
const NAMES: [&str; 8] = ["ann", "till", "a.b", "a@b", "", "first-admin", "a b", "ann-2"];
const GROUPS: [&str; 5] = ["shop", "Shop", "not-given-to-this-node", ".x", "reports"];

/// A token that is in the list.
struct Made {
    text: String,
    who: Who,
    created_ms: u64,
    /// 0 is never.
    ends_ms: u64,
}

impl Made {
    fn is_over(&self, at_ms: u64) -> bool {
        self.ends_ms != 0 && at_ms >= self.ends_ms
    }
}

struct Lab {
    time: Arc<AtomicU64>,
    clock: Clock,
    store: Arc<MemoryStore>,
    service: Arc<Service>,
    guard: Arc<Guard>,
    /// Whether JWTs are known, too.
    with_jwts: bool,
    list: BTreeMap<u64, Made>,
    next: u64,
    /// All texts that were ever made.
    texts: Vec<String>,
    /// Who is connected by which.
    open: Vec<(u64, watch::Receiver<bool>)>,
    /// When the ends were looked at last.
    looked_ms: u64,
}

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut lab = Lab::new(input.flag());
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        lab.step(&mut input);
        lab.compare();
    }
    lab.restart(true);
    lab.compare();
}

/// A controller on these rows.
fn start(rows: Rows, clock: &Clock, with_jwts: bool) -> (Arc<MemoryStore>, Arc<Service>, Arc<Guard>) {
    let store = Arc::new(MemoryStore::new(rows));
    let service = Service::load(Arc::clone(&store) as Arc<_>, ServiceConfig::default(), clock.clone());
    let service = Arc::new(service.expect("its own store"));
    let provider = || Provider {
        name: "p".to_owned(),
        issuer: "https://p.example".to_owned(),
        audiences: vec!["t".to_owned()],
        algorithms: Provider::algorithms(&["EdDSA".to_owned()]).expect("an algorithm"),
        source: Source::Discovery,
        authorities: None,
        skew: Span::secs(0),
        keep: Span::secs(60),
        name_claim: Claim::new("sub").expect("a claim"),
        roles: vec![Mapping::new("a", "b", "viewer", None, None, None).expect("a rule")],
    };
    let providers = with_jwts.then(provider).into_iter().collect();
    let access = Access { providers, ..Access::default() };
    let guard = Guard::new(access, Arc::clone(&service), Arc::default());
    (store, service, guard)
}

impl Lab {
    fn new(with_jwts: bool) -> Self {
        let time = Arc::new(AtomicU64::new(0));
        let clock = Clock::driven(Arc::clone(&time));
        let (store, service, guard) = start(Rows::new(), &clock, with_jwts);
        let (list, texts, open) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { time, clock, store, service, guard, with_jwts, list, next: 1, texts, open, looked_ms: 0 }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0..=2 => self.create(input),
            3 => self.revoke(input),
            4 => {
                let span_us = match input.pick(&[1, 999, 1_000, 5_000, 0]) {
                    Some(0) | None => input.number() % (LONGEST_MS * 1_000),
                    Some(some) => some,
                };
                self.time.fetch_add(span_us, Ordering::Relaxed);
            }
            5 => {
                self.service.tokens().expire();
                self.looked_ms = self.clock.unix_ms();
            }
            6 => self.restart(input.flag()),
            7 => self.show_plainly(input),
            _ => self.show(input),
        }
    }

    fn create(&mut self, input: &mut Input<'_>) {
        let ttl_us = match input.below(6) {
            0 => 0,
            1 => 1,
            2 => 5_001,
            3 => LONGEST_MS * 1_000,
            4 => LONGEST_MS * 1_000 + 1,
            _ => input.number(),
        };
        let wish = v1::CreateTokenRequest {
            name: word(input, &NAMES),
            role: word(input, &ROLES),
            ttl_us,
            groups: words(input, &GROUPS, 17).unwrap_or_default(),
            tenant: word(input, &["", "", "", "acme", "a b"]),
        };
        let groups = (!wish.groups.is_empty()).then_some(&wish.groups[..]);
        let tenant = (!wish.tenant.is_empty()).then_some(&wish.tenant[..]);
        let lives_ms = ttl_us.div_ceil(1_000);
        let is_meant = wish.name != "first-admin" && wish.groups.len() <= 16 && lives_ms <= LONGEST_MS;
        let meant = who("token", &wish.role, &wish.name, groups, tenant).filter(|_| is_meant);
        let made = self.service.tokens().create(&Actor::new(None, "fuzz"), &wish);
        assert_eq!(made.is_ok(), meant.is_some(), "{wish:?}: {made:?}");
        let (Some(who), Ok((token, secret))) = (meant, &made) else {
            return self.is_silent(&format!("{made:?}"));
        };
        let now_ms = self.clock.unix_ms();
        let ends_ms = if lives_ms == 0 { 0 } else { now_ms + lives_ms };
        // What is over makes room.
        self.list.retain(|_, made| !made.is_over(now_ms));
        assert_eq!(token.message().id, self.next);
        let text = secret.reveal().to_owned();
        self.texts.push(text.clone());
        self.is_silent(&format!("{secret:?} {token:?} {:?} {made:?}", token.message()));
        let reply = v1::CreateTokenReply { token: Some(token.message()), secret: text.clone() };
        self.is_silent(&format!("{reply:?}"));
        self.list.insert(self.next, Made { text, who, created_ms: now_ms, ends_ms });
        self.next += 1;
    }

    fn revoke(&mut self, input: &mut Input<'_>) {
        let id = input.number() % (self.next + 1);
        let is_forced = input.flag();
        let now_ms = self.clock.unix_ms();
        let is_admin = |made: &Made| made.who.role == "admin" && !made.is_over(now_ms);
        let another = self.list.iter().any(|(of, made)| *of != id && is_admin(made));
        let goes = self.list.get(&id).is_some_and(|made| is_forced || !is_admin(made) || another);
        let gone = self.service.tokens().revoke(&Actor::new(None, "fuzz"), id, is_forced);
        self.is_silent(&format!("{gone:?}"));
        assert_eq!(gone.is_ok(), goes, "{id}, forced: {is_forced}: {gone:?}");
        if goes {
            self.list.remove(&id);
        }
    }

    fn restart(&mut self, in_order: bool) {
        if in_order {
            self.service.shut_down().expect("a store in memory");
        }
        let rows = self.store.rows();
        for text in &self.texts {
            let digits = digits(text).as_bytes();
            let has = |value: &Vec<u8>| value.windows(digits.len()).any(|part| part == digits);
            assert!(!rows.values().any(has), "the store has the text of a token");
        }
        (self.store, self.service, self.guard) = start(rows, &self.clock, self.with_jwts);
        self.open.clear();
        self.looked_ms = 0;
    }

    /// Who shows this text.
    fn expected(&self, text: &str) -> Option<(u64, &Who)> {
        let now_ms = self.clock.unix_ms();
        let mut right = self.list.iter().filter(|(_, made)| made.text == text && !made.is_over(now_ms));
        right.next().map(|(id, made)| (*id, &made.who))
    }

    fn show_plainly(&mut self, input: &mut Input<'_>) {
        let text = self.text(input);
        let shown = self.service.tokens().identify(&text);
        let expected = self.expected(&text).map(|(id, who)| (id, who.clone()));
        assert_eq!(
            shown.as_ref().map(|shown| seen(&shown.identity)).as_ref(),
            expected.as_ref().map(|of| &of.1)
        );
        self.is_silent(&format!("{shown:?}"));
        if let (Some(shown), Some((id, _))) = (shown, expected) {
            self.open.push((id, shown.over));
        }
    }

    fn show(&mut self, input: &mut Input<'_>) {
        let schemes = [
            "Bearer ",
            "Bearer ",
            "bearer ",
            "BEARER  ",
            "Bearer\t",
            "Bearer",
            "Basic ",
            "",
            " Bearer ",
            "Bearer \t ",
        ];
        let header =
            word(input, &schemes) + &self.text(input) + input.pick(&["", "", " ", "\t"]).unwrap_or_default();
        let Ok(value) = HeaderValue::from_bytes(header.as_bytes()) else { return };
        let mut request = Request::new(());
        let has_certificate = input.flag();
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let certificate = has_certificate.then(certificate);
        request.extensions_mut().extend(self.guard.greeting()(certificate.as_ref(), peer));
        let has_token = !input.flag() || !has_certificate;
        if has_token {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        if input.flag() && has_token {
            // The first one decides.
            request.headers_mut().append(AUTHORIZATION, HeaderValue::from_static("Bearer tdg_1.0"));
        }
        let admitted = self.guard.admit(Surface::Grpc, CALL, &mut request);
        let found = guard::of(request.extensions()).map(seen);
        let expected = if has_token {
            let is_bearer = header.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
            let rest = header.get(7..).filter(|_| is_bearer && header.is_ascii());
            rest.and_then(|rest| self.expected(rest.trim_matches([' ', '\t']))).map(|(_, who)| who.clone())
        } else {
            who("certificate", "admin", "root", None, None)
        };
        assert_eq!(found, expected, "who a header is of");
        assert_eq!(admitted.is_ok(), expected.is_some());
        let Err(denied) = admitted else { return };
        assert!(denied.is_unknown && denied.message.len() < 2_000, "{denied:?}");
        self.is_silent(&format!("{denied:?}"));
        assert!(
            self.with_jwts || denied.message.contains("the token is unknown, revoked or expired"),
            "{denied:?}"
        );
    }

    /// A text that is shown: that of a token, now or before, as it is or not.
    fn text(&self, input: &mut Input<'_>) -> String {
        let Some(text) = self.texts.get(input.below(self.texts.len())).cloned() else {
            return word(input, &["tdg_1.0", "tdg_", ""]);
        };
        let (id, digits) = (text.split('.').next().unwrap_or_default(), digits(&text));
        let number = id.trim_start_matches("tdg_");
        match input.below(14) {
            0 => text.chars().take(input.below(70)).collect(),
            1 => text.clone() + &word(input, &["0", " ", ".", "\u{e9}"]),
            2 => {
                let (at, bit) = (input.below(text.len()), 1 << input.below(7));
                let change = |(n, byte): (usize, u8)| char::from(if n == at { byte ^ bit } else { byte });
                text.bytes().enumerate().map(change).collect()
            }
            3 => text.to_uppercase(),
            4 => format!("tdg_{}.{digits}", input.number() % (self.next + 1)),
            5 => format!("tdg_0{number}.{digits}"),
            6 => format!("tdg_+{number}.{digits}"),
            7 => {
                let rows = self.store.rows();
                let row = rows.iter().find(|((table, _), _)| *table == Table::Tokens).map(|(_, row)| row);
                let row: Option<serde_json::Value> = row.and_then(|row| serde_json::from_slice(row).ok());
                let hash = row.as_ref().and_then(|row| row["hash"].as_str());
                format!("{id}.{}", hash.unwrap_or_default())
            }
            8 => word(input, &[digits, "tdg_1.", id]),
            9 => format!("{text}.x.y"),
            _ => text,
        }
    }

    /// The list and the open connections are those of the map.
    fn compare(&mut self) {
        let told = self.service.tokens().list(0, 0).expect("a page").tokens;
        self.is_silent(&format!("{told:?}"));
        let made = self.list.iter().map(|(id, made)| v1::Token {
            id: *id,
            name: made.who.name.clone(),
            role: made.who.role.clone(),
            groups: made.who.groups.clone().unwrap_or_default(),
            tenant: made.who.tenant.clone().unwrap_or_default(),
            created_unix_ms: made.created_ms,
            expires_unix_ms: made.ends_ms,
        });
        assert_eq!(told, made.collect::<Vec<_>>());
        for (id, over) in &self.open {
            let is_over = self.list.get(id).is_none_or(|made| made.is_over(self.looked_ms));
            assert_eq!(*over.borrow(), is_over, "whether what token {id} opened ends");
        }
    }

    /// No text of a token is in what is said.
    fn is_silent(&self, said: &str) {
        let has = self.texts.iter().any(|text| said.contains(digits(text)));
        assert!(!has, "the text of a token is in what is said of it");
    }
}

fn digits(text: &str) -> &str {
    text.split('.').nth(1).unwrap_or_default()
}

/// A certificate of an admin, as the handshake leaves it.
fn certificate() -> Certificate {
    Certificate {
        subject: "CN=root".to_owned(),
        issuer: "CN=ca".to_owned(),
        serial: Vec::new(),
        names: vec!["URI:spiffe://tidegate/admin/root".to_owned()],
        usages: Vec::new(),
        not_before: 0,
        not_after: i64::MAX,
        fingerprint: String::new(),
    }
}
