//! Tokens: secrets that the controller makes, and knows by their hashes.
//!
//! A token is `tdg_`, its id, a full stop and 64 hexadecimal digits of a secret of 256 random bits. Only the SHA-256 of
//! the whole is kept, in a row of the store for each token; the text leaves the controller once, in the answer that makes
//! it. Time is Unix milliseconds, and an end of 0 is none.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use rand::TryRng as _;
use rand::rngs::SysRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tidegate_proto::v1;
use tokio::sync::watch as flag;

use super::parts::{self, PartError};
use super::{Identity, Kind, Role};
use crate::error::AdminError;

/// What a token begins with, so that scanners for leaked secrets find it.
const PREFIX: &str = "tdg_";
/// Bytes of the random part.
const SECRET_BYTES: usize = 32;
/// Longest text that is looked at as a token: the prefix, an id, a full stop and the digits.
const MOST_TEXT: usize = 96;
/// Tokens at a time: people, programs and nodes. Half of it is less than a large fleet has nodes; twice of it is more than
/// anybody revokes by hand.
pub const MAX_TOKENS: usize = 10_000;
/// Groups of one token. Half of it is less than a service with a group for each of its endpoints has; with twice of it,
/// a page of tokens could pass two megabytes.
pub(crate) const MAX_GROUPS: usize = 16;
/// Longest time until a token's end: one that is to live for longer has none.
pub(crate) const MAX_TTL_MS: u64 = 10 * 366 * 86_400_000;

/// A token's text. It shows itself to nobody but who asks for it by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for the answer that makes the token.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tdg_(redacted)")
    }
}

/// A token as it is stored: without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredToken {
    id: u64,
    name: String,
    role: String,
    /// The groups that a node or a gateway is confined to; none are all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    /// The tenant whose groups it sees.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    tenant: String,
    created_unix_ms: u64,
    expires_unix_ms: u64,
    /// SHA-256 of its text, in hexadecimal digits.
    hash: String,
}

/// All tokens in one row, as earlier versions stored them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierTokens {
    pub(crate) next_id: u64,
    pub(crate) tokens: Vec<StoredToken>,
}

/// A token that is in force.
struct Live {
    stored: StoredToken,
    identity: Identity,
    hash: [u8; 32],
    /// Shows true once the token is over. Who is connected by it holds a receiver.
    over: flag::Sender<bool>,
}

/// All tokens in force.
#[derive(Default)]
pub(crate) struct Tokens {
    next_id: u64,
    live: BTreeMap<u64, Live>,
}

/// The identity of a token, and a signal of its end.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Who it is.
    pub identity: Identity,
    /// Shows true once the token is revoked or has expired.
    pub over: flag::Receiver<bool>,
}

impl StoredToken {
    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whose it is.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What is told of it.
    pub fn message(&self) -> v1::Token {
        v1::Token {
            id: self.id,
            name: self.name.clone(),
            role: self.role.clone(),
            groups: self.groups.clone(),
            tenant: self.tenant.clone(),
            created_unix_ms: self.created_unix_ms,
            expires_unix_ms: self.expires_unix_ms,
        }
    }

    fn is_over(&self, unix_ms: u64) -> bool {
        self.expires_unix_ms != 0 && self.expires_unix_ms <= unix_ms
    }

    /// Who shows it.
    fn identity(&self) -> Result<Identity, PartError> {
        let groups = (!self.groups.is_empty()).then_some(&self.groups[..]);
        let tenant = (!self.tenant.is_empty()).then_some(&self.tenant[..]);
        parts::identity(Kind::Token, parts::role(&self.role)?, &self.name, groups, tenant)
    }

    fn live(self) -> Result<Live, String> {
        let identity = self.identity().map_err(|error| error.to_string())?;
        let hash = unhex(&self.hash).ok_or_else(|| format!("token {} has no hash", self.id))?;
        Ok(Live { stored: self, identity, hash, over: flag::Sender::new(false) })
    }
}

impl EarlierTokens {
    /// Checks the row.
    ///
    /// # Errors
    /// No controller can have written it.
    pub fn check(self) -> Result<(), String> {
        Tokens::load(self.next_id, self.tokens).map(drop)
    }
}

impl Tokens {
    /// The tokens of a store, and the id of the next one.
    ///
    /// # Errors
    /// No controller can have written them.
    pub(crate) fn load(next_id: u64, stored: impl IntoIterator<Item = StoredToken>) -> Result<Self, String> {
        let mut tokens = Self { next_id, live: BTreeMap::new() };
        for token in stored {
            let id = token.id;
            if id >= next_id {
                return Err(format!("token {id} has an id that is yet to come"));
            }
            if tokens.live.insert(id, token.live()?).is_some() {
                return Err(format!("two tokens have the id {id}"));
            }
        }
        Ok(tokens)
    }

    /// Whether there is one of this id.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.live.contains_key(&id)
    }

    /// No token made from here on has an id below this one.
    pub(crate) fn skip_to(&mut self, next_id: u64) {
        self.next_id = self.next_id.max(next_id);
    }

    /// The id of the next token.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.max(1)
    }

    /// The token that is wished for, and its text. It lives for so long (0: without an end).
    ///
    /// # Errors
    /// A part is malformed, or there are too many, besides those that are over.
    pub(crate) fn wished(
        &self,
        unix_ms: u64,
        wish: &v1::CreateTokenRequest,
    ) -> Result<(StoredToken, Secret), AdminError> {
        let ttl_ms = wish.ttl_us.div_ceil(1_000);
        if ttl_ms > MAX_TTL_MS {
            return Err(AdminError::invalid(
                "ttl_us",
                "is longer than ten years; leave it out for a token without an end",
            ));
        }
        if wish.groups.len() > MAX_GROUPS {
            let message = format!("{} are too many: at most {MAX_GROUPS}", wish.groups.len());
            return Err(AdminError::invalid("groups", message));
        }
        if self.live.len().saturating_sub(self.over(unix_ms).count()) >= MAX_TOKENS {
            return Err(AdminError::Full { what: "tokens", limit: MAX_TOKENS });
        }
        let id = self.next_id();
        let secret = secret(id).map_err(|error| AdminError::Internal(format!("no random bits: {error}")))?;
        let mut stored = StoredToken {
            id,
            name: wish.name.clone(),
            role: wish.role.clone(),
            groups: wish.groups.clone(),
            tenant: wish.tenant.clone(),
            created_unix_ms: unix_ms,
            expires_unix_ms: if ttl_ms == 0 { 0 } else { unix_ms.saturating_add(ttl_ms) },
            hash: hex(&Sha256::digest(secret.0.as_bytes())),
        };
        let identity = stored.identity().map_err(|error| AdminError::invalid(error.field(), error))?;
        stored.groups =
            identity.scope.iter().flat_map(|groups| groups.iter()).map(ToString::to_string).collect();
        Ok((stored, secret))
    }

    /// The token of this id, which may be removed. Unless forced, the last of an admin that is not over stays.
    ///
    /// # Errors
    /// There is none, or it is the last admin's.
    pub(crate) fn removable(&self, unix_ms: u64, id: u64, force: bool) -> Result<StoredToken, AdminError> {
        let Some(live) = self.live.get(&id) else {
            return Err(AdminError::NotFound { what: format!("token {id}") });
        };
        let is_admins = live.identity.role == Role::Admin && !live.stored.is_over(unix_ms);
        if is_admins && !force && !self.admins(unix_ms).any(|other| other.id != id) {
            let message = format!("token {id} is the last admin's; make another first, or force it");
            return Err(AdminError::Refused { message });
        }
        Ok(live.stored.clone())
    }

    /// Puts a stored token in force.
    pub(crate) fn put(&mut self, token: StoredToken) -> Result<(), String> {
        self.next_id = self.next_id.max(token.id.saturating_add(1));
        self.live.insert(token.id, token.live()?);
        Ok(())
    }

    /// Ends a token: who shows it is cut off.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(live) = self.live.remove(&id) {
            live.over.send_replace(true);
        }
    }

    /// Those after an id, in order.
    pub(crate) fn after(&self, id: u64) -> impl Iterator<Item = &StoredToken> {
        self.live.range((Bound::Excluded(id), Bound::Unbounded)).map(|(_, live)| &live.stored)
    }

    /// Those of admins that are not over.
    pub(crate) fn admins(&self, unix_ms: u64) -> impl Iterator<Item = &StoredToken> {
        let admins = self.live.values().filter(|live| live.identity.role == Role::Admin);
        admins.map(|live| &live.stored).filter(move |token| !token.is_over(unix_ms))
    }

    /// The ids of those that are over.
    pub(crate) fn over(&self, unix_ms: u64) -> impl Iterator<Item = u64> {
        self.live.iter().filter(move |(_, live)| live.stored.is_over(unix_ms)).map(|(id, _)| *id)
    }

    /// Cuts off who shows a token that is over by now.
    pub(crate) fn expire(&self, unix_ms: u64) {
        for live in self.live.values().filter(|live| live.stored.is_over(unix_ms)) {
            live.over.send_if_modified(|over| !std::mem::replace(over, true));
        }
    }

    /// Who shows this text; `None` for anything that is no token in force.
    pub(crate) fn identify(&self, unix_ms: u64, text: &str) -> Option<Shown> {
        let id = text.strip_prefix(PREFIX)?.split_once('.')?.0;
        let live = self.live.get(&id.parse().ok()?)?;
        if text.len() > MOST_TEXT {
            return None;
        }
        let is_right: bool = Sha256::digest(text.as_bytes()).as_slice().ct_eq(&live.hash).into();
        if !is_right || live.stored.is_over(unix_ms) {
            return None;
        }
        Some(Shown { identity: live.identity.clone(), over: live.over.subscribe() })
    }
}

fn secret(id: u64) -> Result<Secret, rand::rngs::SysError> {
    let mut bits = [0; SECRET_BYTES];
    SysRng.try_fill_bytes(&mut bits)?;
    Ok(Secret(format!("{PREFIX}{id}.{}", hex(&bits))))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    (digits.len() == 64).then_some(())?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: &str, role: &str, ttl_us: u64) -> v1::CreateTokenRequest {
        v1::CreateTokenRequest { name: name.to_owned(), role: role.to_owned(), ttl_us, ..Default::default() }
    }

    /// Makes a token and puts it in force.
    fn make(tokens: &mut Tokens, unix_ms: u64, wish: &v1::CreateTokenRequest) -> (StoredToken, Secret) {
        let (stored, secret) = tokens.wished(unix_ms, wish).unwrap();
        tokens.put(stored.clone()).unwrap();
        (stored, secret)
    }

    /// The same tokens, through the store.
    fn again(tokens: &Tokens) -> Tokens {
        let rows = tokens.after(0).map(|token| serde_json::to_string(token).unwrap());
        let rows = rows.map(|row| serde_json::from_str(&row).unwrap());
        Tokens::load(tokens.next_id(), rows.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_token_is_known_by_its_whole_text_until_its_end() {
        let mut tokens = Tokens::default();
        let (ann, first) = make(&mut tokens, 1_000, &wish("ann", "operator", 0));
        let (_, second) = make(&mut tokens, 1_000, &wish("bob", "viewer", 5_000));
        let mut tokens = again(&tokens);
        let who = |tokens: &Tokens, at, text: &str| tokens.identify(at, text).map(|shown| shown.identity);
        let known = who(&tokens, 9_999_999, first.reveal()).unwrap();
        assert_eq!((known.kind, known.name.as_str(), known.role), (Kind::Token, "ann", Role::Operator));
        assert!(
            who(&tokens, 1_004, second.reveal()).is_some() && who(&tokens, 1_005, second.reveal()).is_none()
        );
        let text = first.reveal();
        for wrong in [
            "",
            "tdg_",
            "tdg_1",
            "tdg_1.",
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.replace("tdg_1.", "tdg_2."),
            &text.replace("tdg_1.", "tdg_01."),
            &text.to_uppercase(),
            &format!("tdg_1.{}", ann.hash),
            &ann.hash,
        ] {
            assert!(who(&tokens, 0, wrong).is_none(), "{wrong}");
        }
        // Revoked.
        let over = tokens.identify(0, first.reveal()).unwrap().over;
        let stays = tokens.identify(0, second.reveal()).unwrap().over;
        tokens.remove(tokens.removable(0, 1, false).unwrap().id());
        assert!(*over.borrow() && !*stays.borrow() && who(&tokens, 0, first.reveal()).is_none());
        // Expired.
        tokens.expire(1_004);
        assert!(!*stays.borrow() && tokens.over(1_004).next().is_none());
        tokens.expire(1_005);
        assert!(*stays.borrow() && tokens.over(1_005).eq([2]));
    }

    #[test]
    fn a_life_is_rounded_up_so_that_none_is_without_an_end() {
        for (ttl_us, ms) in [(1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            let mut tokens = Tokens::default();
            let (_, secret) = make(&mut tokens, 1_000, &wish("ann", "viewer", ttl_us));
            let token = again(&tokens).after(0).next().unwrap().message();
            assert_eq!((token.created_unix_ms, token.expires_unix_ms), (1_000, 1_000 + ms), "{ttl_us} us");
            let is_known = |at| tokens.identify(at, secret.reveal()).is_some();
            assert_eq!((is_known(999 + ms), is_known(1_000 + ms)), (true, false), "{ttl_us} us");
        }
    }

    #[test]
    fn a_secret_is_in_no_row_and_in_no_text_for_people() {
        let mut tokens = Tokens::default();
        let (stored, secret) = make(&mut tokens, 1, &wish("ann", "admin", 0));
        let digits = secret.reveal().split_once('.').unwrap().1;
        assert!(digits.len() == 64 && secret.reveal().starts_with("tdg_1."));
        let json = serde_json::to_string(&stored).unwrap();
        for text in [json, format!("{secret:?} {stored:?} {:?}", stored.message())] {
            assert!(!text.contains(digits), "{text}");
        }
        let reply =
            v1::CreateTokenReply { token: Some(stored.message()), secret: secret.reveal().to_owned() };
        assert!(!format!("{reply:?}").contains(digits), "{reply:?}");
        let (_, other) = make(&mut tokens, 1, &wish("ann", "admin", 0));
        assert_ne!(other.reveal().split_once('.').unwrap().1, digits);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for (name, role, ttl) in [
            ("", "admin", 0),
            ("a b", "admin", 0),
            ("a.b", "node", 0),
            ("a@b", "gateway", 0),
            ("a", "root", 0),
            ("a", "", 0),
            ("a", "admin", u64::MAX),
            (&"a".repeat(65), "admin", 0),
        ] {
            assert!(Tokens::default().wished(0, &wish(name, role, ttl)).is_err(), "{name} {role} {ttl}");
        }
    }

    #[test]
    fn the_last_admin_that_is_not_over_stays_unless_forced() {
        let mut tokens = Tokens::default();
        for (name, role, ttl_us) in [("a", "admin", 0), ("b", "viewer", 0), ("c", "admin", 5_000)] {
            make(&mut tokens, 0, &wish(name, role, ttl_us));
        }
        let removable = |at, id, force| tokens.removable(at, id, force).map(|token| token.id());
        assert!(removable(4, 1, false).is_ok() && removable(4, 3, false).is_ok());
        assert!(removable(5, 1, false).unwrap_err().to_string().contains("last admin"));
        assert!(removable(5, 1, true).is_ok() && removable(5, 3, false).is_ok());
        assert!(removable(0, 2, false).is_ok() && removable(0, 4, true).is_err());
    }

    #[test]
    fn as_many_as_there_may_be_are_made_and_those_that_are_over_make_room() {
        let mut tokens = Tokens::default();
        let (first, _) = make(&mut tokens, 0, &wish("short", "viewer", 5_000));
        let rest = 2..=u64::try_from(MAX_TOKENS).unwrap();
        rest.for_each(|id| tokens.put(StoredToken { id, expires_unix_ms: 0, ..first.clone() }).unwrap());
        let refused = tokens.wished(4, &wish("late", "viewer", 0)).unwrap_err().to_string();
        assert!(refused.contains("10000"), "{refused}");
        let (late, secret) = make(&mut tokens, 5, &wish("late", "viewer", 0));
        assert_eq!(late.id(), 10_001);
        tokens.remove(1);
        assert!(tokens.wished(5, &wish("later", "viewer", 0)).is_err());
        assert_eq!(again(&tokens).identify(5, secret.reveal()).unwrap().identity.name, "late");
        assert_eq!(tokens.after(9_998).map(StoredToken::id).collect::<Vec<_>>(), [9_999, 10_000, 10_001]);
    }

    #[test]
    fn a_token_of_a_node_is_confined_as_a_certificate_is() {
        let confined = |role: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            let mut tokens = Tokens::default();
            let (stored, secret) =
                tokens.wished(0, &v1::CreateTokenRequest { groups, ..wish("till", role, 0) })?;
            tokens.put(stored.clone()).unwrap();
            Ok::<_, AdminError>((again(&tokens), stored, secret))
        };
        for role in ["node", "gateway"] {
            let (tokens, stored, secret) = confined(role, &["Shop", "reports", "shop"]).unwrap();
            assert_eq!(stored.message().groups, ["reports", "shop"]);
            let till = tokens.identify(0, secret.reveal()).unwrap().identity;
            assert!(till.is_given("shop") && till.is_given("reports") && !till.is_given("default"));
            assert!(till.may_be("till") && till.may_be("till.pod-7") && !till.may_be("tills"));
            let (tokens, stored, secret) = confined(role, &[]).unwrap();
            assert!(!serde_json::to_string(&stored).unwrap().contains("groups"), "as rows were before");
            let all = tokens.identify(0, secret.reveal()).unwrap().identity;
            assert!(all.is_given("any"));
        }
        let many: Vec<String> = (0..=MAX_GROUPS).map(|n| format!("g{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (role, groups) in
            [("viewer", &["shop"][..]), ("admin", &["shop"]), ("node", &["a b"]), ("node", &many)]
        {
            assert_eq!(confined(role, groups).err().unwrap().field(), Some("groups"), "{role} {groups:?}");
        }
        assert!(confined("node", &many[1..]).is_ok());
    }

    #[test]
    fn a_token_of_a_tenant_names_it() {
        let of = |role: &str, tenant: &str| {
            let wish = v1::CreateTokenRequest { tenant: tenant.into(), ..wish("eve", role, 0) };
            Tokens::default().wished(0, &wish)
        };
        let (stored, secret) = of("tenant", "acme").unwrap();
        let tokens = Tokens::load(2, [stored]).unwrap();
        let eve = tokens.identify(0, secret.reveal()).unwrap().identity;
        assert_eq!((eve.name.as_str(), eve.role, eve.tenant.as_deref()), ("eve", Role::Tenant, Some("acme")));
        for (role, tenant) in [("tenant", ""), ("tenant", "a b"), ("viewer", "acme"), ("node", "acme")] {
            assert_eq!(of(role, tenant).unwrap_err().field(), Some("tenant"), "{role} {tenant}");
        }
    }

    #[test]
    fn rows_that_nobody_wrote_are_refused() {
        let (right, _) = Tokens::default().wished(0, &wish("a", "admin", 0)).unwrap();
        assert!(Tokens::load(2, [right.clone()]).is_ok() && Tokens::load(1, [right.clone()]).is_err());
        assert!(Tokens::load(2, [right.clone(), right.clone()]).is_err());
        for change in [
            |token: &mut StoredToken| token.role = "root".to_owned(),
            |token: &mut StoredToken| token.groups = vec!["shop".to_owned()],
            |token: &mut StoredToken| token.tenant = "acme".to_owned(),
            |token: &mut StoredToken| token.hash = "00".to_owned(),
            |token: &mut StoredToken| token.hash = "z".repeat(64),
        ] {
            let mut wrong = right.clone();
            change(&mut wrong);
            assert!(EarlierTokens { next_id: 2, tokens: vec![wrong.clone()] }.check().is_err(), "{wrong:?}");
        }
    }
}
