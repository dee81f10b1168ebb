//! The judge of JWTs: what docs/security.md says, word by word.

use std::path::PathBuf;

use tidegate_controller::identity::provider::{Claim, Mapping, Provider, Source};
use tidegate_core::units::Span;

use super::START_S;
use super::draft::{By, Draft, Is, When};
use super::keys::Shown;
use crate::identity::naive::{Who, who};
use crate::input::Input;

/// A rule: claim, value, role, name, groups and tenant.
type Rule = (
    &'static str,
    &'static str,
    &'static str,
    Option<&'static str>,
    Option<&'static str>,
    Option<&'static str>,
);

const RULES: [Rule; 8] = [
    ("groups", "admins", "admin", None, None, None),
    ("groups", "ops", "operator", None, None, None),
    ("email_verified", "true", "viewer", None, None, None),
    ("/k/ns", "shop", "node", None, Some("Shop"), None),
    ("groups", "team", "tenant", None, None, Some("acme")),
    ("sub", "ann", "gateway", Some("fixed"), None, None),
    ("/groups/0", "admins", "metrics", None, None, None),
    ("groups", "true", "operator", Some("a.b"), None, None),
];
const NAME_CLAIMS: [&str; 4] = ["sub", "/k/name", "k", "email"];
const ALGORITHMS: [&str; 7] = ["EdDSA", "ES256", "ES384", "RS256", "RS512", "PS256", "RS384"];
/// For how long keys are used, in microseconds.
const KEPT_US: u64 = 60_000_000;

/// A provider of the configuration, and the keys that it shows.
#[derive(Clone, Debug)]
pub(super) struct Trusted {
    pub(super) name: &'static str,
    issuer: &'static str,
    audiences: Vec<&'static str>,
    algorithms: Vec<&'static str>,
    pub(super) skew_s: u64,
    name_claim: &'static str,
    rules: Vec<Rule>,
    pub(super) keys: Vec<Shown>,
}

impl Trusted {
    /// One with the first key, under the name 1.
    pub(super) fn plain() -> Self {
        Self {
            name: "a",
            issuer: "https://a.example",
            audiences: vec!["t", "u"],
            algorithms: ALGORITHMS.to_vec(),
            skew_s: 0,
            name_claim: "sub",
            rules: RULES.to_vec(),
            keys: vec![Shown::plain(0, Some("1"))],
        }
    }

    pub(super) fn draw(input: &mut Input<'_>, name: &'static str, issuer: &'static str) -> Self {
        let bits = input.byte();
        let algorithms = ALGORITHMS.into_iter().enumerate();
        let algorithms = algorithms.filter(|(n, _)| bits >> n & 1 == 0).map(|(_, word)| word).collect();
        let audiences = if bits >> 7 == 0 { vec!["t"] } else { vec!["u", "t"] };
        let skew_s = input.pick(&[0, 1, 60, 300]).unwrap_or_default();
        let name_claim = if input.below(4) == 3 { input.pick(&NAME_CLAIMS) } else { None };
        let rules = (0..=input.below(4)).filter_map(|_| input.pick(&RULES)).collect();
        let keys = (0..=input.below(4)).map(|_| Shown::draw(input)).collect();
        Self {
            name,
            issuer,
            audiences,
            algorithms,
            skew_s,
            name_claim: name_claim.unwrap_or("sub"),
            rules,
            keys,
        }
    }

    /// As the configuration has it.
    pub(super) fn settings(&self) -> Provider {
        let words: Vec<String> = self.algorithms.iter().map(ToString::to_string).collect();
        let rule = |(claim, value, role, name, group, tenant): &Rule| {
            let groups = group.map(|group: &str| vec![group.to_owned()]);
            Mapping::new(claim, value, role, *name, groups.as_deref(), *tenant).expect("a rule")
        };
        Provider {
            name: self.name.to_owned(),
            issuer: self.issuer.to_owned(),
            audiences: self.audiences.iter().map(ToString::to_string).collect(),
            // The configuration asks for one; without any nothing is let in.
            algorithms: Provider::algorithms(&words).unwrap_or_default(),
            source: Source::File(PathBuf::new()),
            authorities: None,
            skew: Span::secs(self.skew_s),
            keep: Span(KEPT_US),
            name_claim: Claim::new(self.name_claim).expect("a claim"),
            roles: self.rules.iter().map(rule).collect(),
        }
    }

    /// Whether the JWT is signed by the key that it names, by an algorithm that is allowed.
    fn is_signed(&self, draft: &Draft, us: u64) -> bool {
        let mut fitting = self
            .keys
            .iter()
            .filter(|key| key.serves(draft.word) && draft.kid.is_none_or(|kid| key.kid == Some(kid)));
        let (first, second) = (fitting.next(), fitting.next());
        let is_certain = second.is_none() || draft.kid.is_some();
        let by = first.filter(|_| is_certain).map(|key| By::Pair(key.pair, draft.word));
        us <= KEPT_US && self.algorithms.contains(&draft.word) && by == Some(draft.by)
    }
}

/// Who shows this JWT at this time; `None` where it proves nothing.
pub(super) fn judge(all: &[Trusted], draft: &Draft, us: u64) -> Option<Who> {
    let trusted = all.iter().find(|trusted| Some(trusted.issuer) == draft.issuer)?;
    if draft.is_critical || draft.twice || !trusted.is_signed(draft, us) {
        return None;
    }
    if !draft.audiences().iter().any(|of| trusted.audiences.contains(of)) {
        return None;
    }
    let (now_ms, skew_ms) = (START_S * 1_000 + us / 1_000, trusted.skew_s * 1_000);
    let When::At(end_s, _) = draft.exp else { return None };
    if now_ms >= end_s * 1_000 + skew_ms {
        return None;
    }
    let has_begun = |when| match when {
        When::Absent => true,
        When::At(at_s, _) => at_s * 1_000 <= now_ms + skew_ms,
        When::Odd(_) => false,
    };
    if !has_begun(draft.nbf) || !has_begun(draft.iat) {
        return None;
    }
    let fits = |rule: &&Rule| match claim(draft, rule.0) {
        Is::Text(text) => text == rule.1,
        Is::Bool(is) => is.to_string() == rule.1,
        Is::List(all) => all.contains(&rule.1),
        Is::Absent | Is::Odd(_) => false,
    };
    let (_, _, role, name, group, tenant) = trusted.rules.iter().find(fits)?;
    let name = match (name, claim(draft, trusted.name_claim)) {
        (Some(name), _) => *name,
        (None, Is::Text(name)) => name,
        (None, _) => return None,
    };
    let groups = group.map(|group| vec![group.to_owned()]);
    who(&format!("jwt of {}", trusted.name), role, name, groups.as_deref(), *tenant)
}

/// The claim of this name or at this place.
fn claim(draft: &Draft, path: &str) -> Is {
    match (path, &draft.groups) {
        ("sub", _) => draft.sub.clone(),
        ("groups", groups) => groups.clone(),
        ("email_verified", _) => draft.email_verified.clone(),
        ("/k/ns", _) => draft.namespace.clone(),
        ("/k/name", _) => draft.account.clone(),
        ("/groups/0", Is::Odd("[[\"admins\"]]")) => Is::List(vec!["admins"]),
        ("/groups/0", Is::List(all)) => all.first().map_or(Is::Absent, |first| Is::Text(first)),
        ("k", _) => Is::Odd("{}"),
        _ => Is::Absent,
    }
}
