//! Tokens: secrets that the controller makes, and knows by their hashes.
//!
//! A token is `tdg_`, its id, a full stop and 64 hexadecimal digits of a secret of 256 random bits. Only the SHA-256 of
//! the whole is kept, in the store's single values; the text leaves the controller once, in the answer that makes it.
//! Time is Unix milliseconds, and an end of 0 is none.

use std::collections::BTreeMap;
use std::fmt;

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
/// Tokens at a time: people, programs and nodes. They are one row of the store, which each change writes; half of it is
/// less than a company with a token for each pipeline has, twice of it writes half a megabyte.
pub const MAX_TOKENS: usize = 1_000;
/// Groups of one token. Half of it is less than a service with a group for each of its endpoints has; with twice of it,
/// the row of all tokens could pass two megabytes.
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

/// All tokens, in the shape of their row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTokens {
    next_id: u64,
    tokens: Vec<StoredToken>,
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

impl StoredTokens {
    /// Checks the row.
    ///
    /// # Errors
    /// No controller can have written it.
    pub fn check(&self) -> Result<(), String> {
        let tokens = Tokens::of(self.clone())?;
        match tokens.live.len() == self.tokens.len() && tokens.live.keys().all(|id| *id < self.next_id) {
            true => Ok(()),
            false => Err("two tokens have one id, or one has an id that is yet to come".to_owned()),
        }
    }

    /// The row with one more token, which lives for so long (0: without an end), and its text.
    ///
    /// # Errors
    /// A part is malformed, or there are too many.
    pub fn with(
        &self,
        unix_ms: u64,
        wish: &v1::CreateTokenRequest,
    ) -> Result<(Self, StoredToken, Secret), AdminError> {
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
        if self.tokens.len() >= MAX_TOKENS {
            return Err(AdminError::Full { what: "tokens", limit: MAX_TOKENS });
        }
        let id = self.next_id.max(1);
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
        let tokens = self.tokens.iter().cloned().chain([stored.clone()]).collect();
        Ok((Self { next_id: id.saturating_add(1), tokens }, stored, secret))
    }

    /// The row without this token, and the token. Unless forced, the last admin's stays.
    ///
    /// # Errors
    /// There is none, or it is the last admin's.
    pub fn without(&self, id: u64, force: bool) -> Result<(Self, StoredToken), AdminError> {
        let (gone, rest): (Vec<_>, Vec<_>) = self.tokens.iter().cloned().partition(|token| token.id == id);
        let Some(gone) = gone.into_iter().next() else {
            return Err(AdminError::NotFound { what: format!("token {id}") });
        };
        let is_admin = |token: &StoredToken| token.role == Role::Admin.name();
        if is_admin(&gone) && !force && !rest.iter().any(is_admin) {
            let message = format!("token {id} is the last admin's; make another first, or force it");
            return Err(AdminError::Refused { message });
        }
        Ok((Self { next_id: self.next_id, tokens: rest }, gone))
    }

    /// The row without the tokens that are over.
    pub fn fresh(&self, unix_ms: u64) -> Self {
        let tokens = self.tokens.iter().filter(|token| !token.is_over(unix_ms)).cloned().collect();
        Self { next_id: self.next_id, tokens }
    }
}

impl Tokens {
    /// The tokens of a row.
    pub(crate) fn of(row: StoredTokens) -> Result<Self, String> {
        let live = row.tokens.into_iter().map(|token| Ok((token.id, token.live()?)));
        Ok(Self { next_id: row.next_id, live: live.collect::<Result<_, String>>()? })
    }

    /// Their row.
    pub(crate) fn row(&self) -> StoredTokens {
        let tokens = self.live.values().map(|live| live.stored.clone()).collect();
        StoredTokens { next_id: self.next_id, tokens }
    }

    /// Puts a row in force: who shows a token that is not in it any more is cut off.
    pub(crate) fn replace(&mut self, row: StoredTokens) -> Result<(), String> {
        let mut after = Self::of(row)?;
        for (id, before) in std::mem::take(&mut self.live) {
            match after.live.get_mut(&id) {
                Some(same) => same.over = before.over,
                None => drop(before.over.send_replace(true)),
            }
        }
        *self = after;
        Ok(())
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &StoredToken> {
        self.live.values().map(|live| &live.stored)
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

    #[test]
    fn a_token_is_known_by_its_whole_text_until_its_end() {
        let row = StoredTokens::default();
        let (row, ann, first) = row.with(1_000, &wish("ann", "operator", 0)).unwrap();
        let (row, _, second) = row.with(1_000, &wish("bob", "viewer", 5_000)).unwrap();
        let mut tokens = Tokens::of(row.clone()).unwrap();
        assert_eq!(row.check(), Ok(()));
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
        tokens.replace(row.without(1, false).unwrap().0).unwrap();
        assert!(*over.borrow() && !*stays.borrow() && who(&tokens, 0, first.reveal()).is_none());
        // Expired.
        tokens.expire(1_004);
        assert!(!*stays.borrow());
        tokens.expire(1_005);
        assert!(*stays.borrow());
    }

    #[test]
    fn a_secret_is_in_no_row_and_in_no_text_for_people() {
        let (row, stored, secret) = StoredTokens::default().with(1, &wish("ann", "admin", 0)).unwrap();
        let digits = secret.reveal().split_once('.').unwrap().1;
        assert!(digits.len() == 64 && secret.reveal().starts_with("tdg_1."));
        let json = serde_json::to_string(&row).unwrap();
        for text in [json, format!("{secret:?} {stored:?} {:?}", stored.message())] {
            assert!(!text.contains(digits), "{text}");
        }
        let reply =
            v1::CreateTokenReply { token: Some(stored.message()), secret: secret.reveal().to_owned() };
        assert!(!format!("{reply:?}").contains(digits), "{reply:?}");
        let (_, _, other) = row.with(1, &wish("ann", "admin", 0)).unwrap();
        assert_ne!(other.reveal().split_once('.').unwrap().1, digits);
    }

    #[test]
    fn the_last_admin_stays_unless_forced_and_what_is_malformed_is_refused() {
        let row = StoredTokens::default();
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
            assert!(row.with(0, &wish(name, role, ttl)).is_err(), "{name} {role} {ttl}");
        }
        let (row, ..) = row.with(0, &wish("a", "admin", 0)).unwrap();
        let (row, ..) = row.with(0, &wish("b", "viewer", 0)).unwrap();
        assert!(row.without(1, false).unwrap_err().to_string().contains("last admin"));
        assert!(
            row.without(1, true).is_ok() && row.without(2, false).is_ok() && row.without(3, true).is_err()
        );
        let full = (2..MAX_TOKENS).fold(row, |row, _| row.with(0, &wish("a", "viewer", 0)).unwrap().0);
        assert!(full.with(0, &wish("a", "viewer", 0)).is_err());
    }

    #[test]
    fn a_token_of_a_node_is_confined_as_a_certificate_is() {
        let confined = |role: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            StoredTokens::default().with(0, &v1::CreateTokenRequest { groups, ..wish("till", role, 0) })
        };
        for role in ["node", "gateway"] {
            let (row, stored, secret) = confined(role, &["Shop", "reports", "shop"]).unwrap();
            assert_eq!(stored.message().groups, ["reports", "shop"]);
            let json = serde_json::to_string(&row).unwrap();
            let tokens = Tokens::of(serde_json::from_str(&json).unwrap()).unwrap();
            let till = tokens.identify(0, secret.reveal()).unwrap().identity;
            assert!(till.is_given("shop") && till.is_given("reports") && !till.is_given("default"));
            assert!(till.may_be("till") && till.may_be("till.pod-7") && !till.may_be("tills"));
            let (row, _, secret) = confined(role, &[]).unwrap();
            assert!(!serde_json::to_string(&row).unwrap().contains("groups"), "as rows were before");
            let all = Tokens::of(row).unwrap().identify(0, secret.reveal()).unwrap().identity;
            assert!(all.is_given("any"));
        }
        let many: Vec<String> = (0..=MAX_GROUPS).map(|n| format!("g{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (role, groups) in
            [("viewer", &["shop"][..]), ("admin", &["shop"]), ("node", &["a b"]), ("node", &many)]
        {
            assert_eq!(confined(role, groups).unwrap_err().field(), Some("groups"), "{role} {groups:?}");
        }
        assert!(confined("node", &many[1..]).is_ok());
    }

    #[test]
    fn a_token_of_a_tenant_names_it() {
        let of = |role: &str, tenant: &str| {
            StoredTokens::default()
                .with(0, &v1::CreateTokenRequest { tenant: tenant.into(), ..wish("eve", role, 0) })
        };
        let (row, _, secret) = of("tenant", "acme").unwrap();
        let row = serde_json::from_str(&serde_json::to_string(&row).unwrap()).unwrap();
        let eve = Tokens::of(row).unwrap().identify(0, secret.reveal()).unwrap().identity;
        assert_eq!((eve.name.as_str(), eve.role, eve.tenant.as_deref()), ("eve", Role::Tenant, Some("acme")));
        for (role, tenant) in [("tenant", ""), ("tenant", "a b"), ("viewer", "acme"), ("node", "acme")] {
            assert_eq!(of(role, tenant).unwrap_err().field(), Some("tenant"), "{role} {tenant}");
        }
    }

    #[test]
    fn rows_that_nobody_wrote_are_refused() {
        let (row, ..) = StoredTokens::default().with(0, &wish("a", "admin", 0)).unwrap();
        for change in [
            |token: &mut StoredToken| token.id = 5,
            |token: &mut StoredToken| token.role = "root".to_owned(),
            |token: &mut StoredToken| token.groups = vec!["shop".to_owned()],
            |token: &mut StoredToken| token.tenant = "acme".to_owned(),
            |token: &mut StoredToken| token.hash = "00".to_owned(),
            |token: &mut StoredToken| token.hash = "z".repeat(64),
        ] {
            let mut wrong = row.clone();
            wrong.tokens.iter_mut().for_each(change);
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        let mut twice = row.clone();
        twice.tokens.extend(row.tokens.clone());
        assert!(twice.check().is_err());
    }
}
