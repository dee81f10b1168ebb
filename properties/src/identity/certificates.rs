//! Names in certificates and the rules of a configuration, from DER to who calls.
//!
//! The first rule that has one of the names decides; without one, exactly one name `spiffe://tidegate/ROLE/NAME`. No
//! client id is of two nodes. Any bytes are a certificate or an error.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use axum::http::Request;
use tidegate_controller::clock::Clock;
use tidegate_controller::config::Access;
use tidegate_controller::identity::guard::{self, Guard};
use tidegate_controller::identity::matrix::Call;
use tidegate_controller::identity::{Identity, Rule, Rules};
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_listener::Surface;
use tidegate_tls::Certificate;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::der::{self, Of};
use super::naive::{ROLES, Who, seen, who, word, words};
use crate::input::Input;
use crate::memory::MemoryStore;

/// Most rules, and most names in a certificate.
const MOST: usize = 6;
const CALL: Call<'static> = Call::Grpc("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
const DNS: [&str; 6] =
    ["web.example", "WEB.example", "web", "till", "*.example", "spiffe://tidegate/admin/a"];
const URIS: [&str; 12] = [
    "spiffe://tidegate/node/till",
    "spiffe://tidegate/admin/ann",
    "spiffe://tidegate/node/a.b",
    "spiffe://tidegate/tenant/acme",
    "spiffe://tidegate/controller/rates",
    "spiffe://tidegate/admin/",
    "spiffe://tidegate/admin/a/b",
    "spiffe://tidegate.example/admin/ann",
    "spiffe://prod/ns/shop/sa/till",
    "spiffe://prod/ns/shop/sa/TILL",
    "SPIFFE://tidegate/admin/ann",
    "https://web.example",
];
const SANS: [&str; 9] = [
    "dns:web.example",
    "dns:Web.Example",
    "dns:web",
    "dns:",
    "spiffe://tidegate/node/till",
    "spiffe://prod/ns/shop/sa/till",
    "spiffe://tidegate/admin/a/b",
    "web.example",
    "DNS:web.example",
];
const NAMES: [&str; 5] = ["till", "board", "a.b", "a@b", ""];
const GROUPS: [&str; 4] = ["shop", "Shop", "not-given-to-this-node", "-x"];
const CLIENTS: [&str; 6] = ["till", "till.pod-7", "till-2", "", "web", "board.x"];

/// A rule as the judge knows it: its name in certificates, and whose it is.
type Ruled = (String, Who);

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.below(4) == 0 {
        let (rules, _) = rules(&mut input);
        return any(input.take(usize::MAX), &rules);
    }
    let (rules, ruled) = rules(&mut input);
    let count = input.below(MOST + 1);
    let names: Vec<(Of, Vec<u8>)> = (0..count).map(|_| name(&mut input)).collect();
    let mut bytes = der::certificate(&names);
    let shown = Certificate::of(&CertificateDer::from(bytes.clone())).expect("DER as it is written");
    assert_eq!(shown.names, names.iter().filter_map(read).collect::<Vec<_>>());
    let found = rules.identify(&shown.names);
    let expected = expected(&ruled, &names);
    assert_eq!(found.as_ref().ok().map(seen), expected, "{names:?} by {ruled:?}: {found:?}");
    if let Err(unproven) = &found {
        assert!(unproven.to_string().len() < 4_000, "{unproven}");
    }
    let guard = Guard::new(Access { rules: rules.clone(), ..Access::default() }, service(), Arc::default());
    let mut request = Request::new(());
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    request.extensions_mut().extend(guard.greeting()(Some(&shown), peer));
    let admitted = guard.admit(Surface::Grpc, CALL, &mut request);
    assert_eq!(guard::of(request.extensions()).map(seen), expected, "{admitted:?}");
    assert_eq!(admitted.is_ok(), expected.is_some());
    let mut all: Vec<Identity> = rules.iter().map(|rule| rule.identity().clone()).collect();
    all.extend(found.ok());
    clients(&all, &word(&mut input, &CLIENTS));
    // A changed certificate is another or none.
    for _ in 0..input.below(8) {
        let at = usize::from(input.byte()) << 2 | input.below(4);
        let changed = input.byte();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = changed;
        }
    }
    any(&bytes, &rules);
}

/// Any bytes: read, or refused shortly, and so is whose they are.
fn any(bytes: &[u8], rules: &Rules) {
    match Certificate::of(&CertificateDer::from(bytes.to_vec())) {
        Ok(certificate) => {
            let is_known = |name: &String| ["DNS:", "URI:", "IP:"].iter().any(|of| name.starts_with(of));
            assert!(certificate.names.iter().all(is_known), "{certificate:?}");
            assert!(certificate.names.iter().map(String::len).sum::<usize>() < 64 + bytes.len() * 24);
            certificate.days_left();
            if let Err(unproven) = rules.identify(&certificate.names) {
                assert!(unproven.to_string().len() < 4_000, "{unproven}");
            }
        }
        Err(reason) => assert!(reason.len() < 400, "{reason}"),
    }
}

fn service() -> Arc<Service> {
    static SERVICE: OnceLock<Arc<Service>> = OnceLock::new();
    let start = || {
        let clock = Clock::driven(Arc::new(AtomicU64::new(0)));
        let service = Service::load(Arc::new(MemoryStore::default()), ServiceConfig::default(), clock);
        Arc::new(service.expect("an empty store"))
    };
    Arc::clone(SERVICE.get_or_init(start))
}

/// Rules of a configuration, and what the judge makes of them.
fn rules(input: &mut Input<'_>) -> (Rules, Vec<Ruled>) {
    let (mut rules, mut ruled) = (Vec::new(), Vec::new());
    for _ in 0..input.below(MOST + 1) {
        let (san, role) = (word(input, &SANS), word(input, &ROLES));
        let name = input.flag().then(|| word(input, &NAMES));
        let groups = if input.flag() { words(input, &GROUPS, 3) } else { None };
        let tenant = if input.flag() { Some(word(input, &["acme", "", "a b"])) } else { None };
        let made = Rule::new(&san, &role, name.as_deref(), groups.as_deref(), tenant.as_deref());
        let is_plain = san.len() <= 2_048 && san.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        let dns = san.strip_prefix("dns:").map(str::to_ascii_lowercase);
        let is_some =
            dns.as_deref().or_else(|| san.strip_prefix("spiffe://")).is_some_and(|rest| !rest.is_empty());
        let last = dns.as_deref().unwrap_or(&san).rsplit(['/', ':']).next().unwrap_or_default();
        let name = name.as_deref().unwrap_or(last);
        let meant = who("certificate", &role, name, groups.as_deref(), tenant.as_deref());
        let meant = meant.filter(|_| is_plain && is_some);
        assert_eq!(made.as_ref().ok().map(|rule| seen(rule.identity())), meant, "{san} {role}: {made:?}");
        match (made, meant) {
            (Ok(rule), Some(who)) => {
                rules.push(rule);
                ruled.push((san, who));
            }
            (made, _) => assert!(format!("{made:?}").len() < 2_000),
        }
    }
    (Rules::new(rules), ruled)
}

/// A name of a certificate.
fn name(input: &mut Input<'_>) -> (Of, Vec<u8>) {
    let ascii = |text: String| text.into_bytes().into_iter().filter(u8::is_ascii).collect();
    match input.below(8) {
        0 => {
            let count = if input.flag() { 4 } else { 16 };
            (Of::Address, input.take(count).to_vec())
        }
        1 => (Of::Mail, b"ann@web.example".to_vec()),
        2 | 3 => (Of::Dns, ascii(word(input, &DNS))),
        4 => {
            let path = format!("spiffe://tidegate/{}/{}", word(input, &ROLES), word(input, &NAMES));
            (Of::Uri, ascii(path))
        }
        _ => (Of::Uri, ascii(word(input, &URIS))),
    }
}

/// A name as it is read.
fn read((of, bytes): &(Of, Vec<u8>)) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    match of {
        Of::Mail => None,
        Of::Dns => Some(format!("DNS:{text}")),
        Of::Uri => Some(format!("URI:{text}")),
        Of::Address => {
            let four = <[u8; 4]>::try_from(&bytes[..]).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(&bytes[..]).map(IpAddr::from)).ok()?;
            Some(format!("IP:{address}"))
        }
    }
}

/// Whose a certificate is.
fn expected(ruled: &[Ruled], names: &[(Of, Vec<u8>)]) -> Option<Who> {
    let texts: Vec<(Of, String)> =
        names.iter().map(|(of, bytes)| (*of, String::from_utf8_lossy(bytes).into_owned())).collect();
    for (san, who) in ruled {
        let is = |(of, text): &(Of, String)| match of {
            Of::Dns => san.to_ascii_lowercase() == format!("dns:{}", text.to_ascii_lowercase()),
            Of::Uri => san == text,
            _ => false,
        };
        if texts.iter().any(is) {
            return Some(who.clone());
        }
    }
    let uris = texts.iter().filter(|(of, _)| *of == Of::Uri);
    let mut own: Vec<&str> = uris.filter_map(|(_, text)| text.strip_prefix("spiffe://tidegate/")).collect();
    own.sort_unstable();
    own.dedup();
    let [one] = own[..] else { return None };
    let (role, name) = one.split_once('/')?;
    who("certificate", role, name, None, (role == "tenant").then_some(name))
}

/// Under which client ids these may be.
fn clients(all: &[Identity], client: &str) {
    for one in all {
        let role = one.role.to_string();
        let is_node = role == "node" || role == "gateway";
        let is_own = client == one.name || client.starts_with(&format!("{}.", one.name));
        assert_eq!(one.may_be(client), role == "admin" || (is_node && is_own), "{client} by {one:?}");
        let given = seen(one).groups.is_none_or(|groups| groups.iter().any(|group| group == "shop"));
        assert_eq!(one.is_given("shop"), given);
        for other in all.iter().filter(|other| is_node && other.role.is_node() && other.name != one.name) {
            assert!(!(one.may_be(client) && other.may_be(client)), "{client} is of {one:?} and {other:?}");
        }
    }
}
