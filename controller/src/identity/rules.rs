//! From the names in a certificate to an identity.
//!
//! In: the names of a certificate that the handshake verified, as `tidegate_tls` writes them (`DNS:…`, `URI:…`). Out: an
//! identity. The first rule of the configuration that has one of the names decides; without one, the certificate's only
//! name of the form `spiffe://tidegate/ROLE/NAME` does, as `tidegate cert issue` writes it.

use super::parts::{self, PartError};
use super::provider::JwtError;
use super::{Identity, Kind, Role};
use crate::limits::MAX_NAME;
use crate::quantity::cut;

/// What the names of tidegate's own certificates begin with.
const OWN: &str = "URI:spiffe://tidegate/";
/// Names of a certificate in an error: enough to recognise it by.
const SHOWN: usize = 4;
/// Bytes of a rule's name: SPIFFE allows 2048 in an id, and no tool writes more into a certificate.
const MAX_SAN: usize = 2_048;

/// One rule: the holder of this name is that identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name, as certificates are read.
    san: String,
    identity: Identity,
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The name in certificates.
    #[error(
        "san: {0:?} is no name in certificates; write \"spiffe://DOMAIN/PATH\" or \"dns:NAME\" of at most {MAX_SAN} bytes"
    )]
    San(String),
    /// Whose it is.
    #[error("{field}: {0}", field = .0.field())]
    Part(#[from] PartError),
}

/// Why a certificate proves no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// There is none.
    #[error(
        "the caller showed no certificate and no token; show one whose role may do it (--cert and --key, or --token-file)"
    )]
    NoCertificate,
    /// The token is none, or none any more.
    #[error(
        "the token is unknown, revoked or expired; ask an admin for another (`tidegate token create`), or leave it out"
    )]
    Token,
    /// The JWT proves nothing.
    #[error(transparent)]
    Jwt(#[from] JwtError),
    /// No rule has one of its names.
    #[error(
        "no rule names this certificate ({names}): add to the controller's configuration [[identity]] san = {san}, role \
         = \"…\" (one of {list}), or issue one with `tidegate cert issue`", list = Role::NAMES.join(", ")
    )]
    Unmapped {
        /// Its names.
        names: String,
        /// The one to write a rule for.
        san: String,
    },
    /// It has two identities.
    #[error(
        "this certificate names two identities ({names}): issue one of one name, or say in the controller's configuration \
         which is meant: [[identity]] san = {san}, role = \"…\""
    )]
    Ambiguous {
        /// Its names.
        names: String,
        /// The one to write a rule for.
        san: String,
    },
    /// Its name cannot be an identity's.
    #[error("this certificate ({names}) is of nobody: {reason}")]
    Malformed {
        /// Its names.
        names: String,
        /// What is wrong.
        reason: String,
    },
}

/// All rules of a configuration, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

impl Rule {
    /// The holder of the name `san` has this role, under this name and, if it is a node, for these groups alone. Without
    /// a name it has the last part of `san`. A viewer of one tenant names that.
    ///
    /// # Errors
    /// A part is malformed.
    pub fn new(
        san: &str,
        role: &str,
        name: Option<&str>,
        groups: Option<&[String]>,
        tenant: Option<&str>,
    ) -> Result<Self, RuleError> {
        let role = parts::role(role)?;
        let known = known(san).ok_or_else(|| RuleError::San(cut(san)))?;
        let last = known.rsplit(['/', ':']).next().unwrap_or_default();
        let identity = parts::identity(Kind::Certificate, role, name.unwrap_or(last), groups, tenant)?;
        Ok(Self { san: known, identity })
    }

    /// The name in certificates, as it is written in a configuration.
    pub fn san(&self) -> String {
        match self.san.strip_prefix("DNS:") {
            Some(name) => format!("dns:{name}"),
            None => self.san.trim_start_matches("URI:").to_owned(),
        }
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Rules {
    /// Rules in this order.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The identity of the holder of these names.
    ///
    /// # Errors
    /// No rule has one of them, or they are of two identities.
    pub fn identify(&self, sans: &[String]) -> Result<Identity, Unproven> {
        let is = |rule: &Rule, san: &str| match san.strip_prefix("DNS:") {
            // Names of DNS have no case.
            Some(dns) => rule.san.strip_prefix("DNS:").is_some_and(|of| of.eq_ignore_ascii_case(dns)),
            None => rule.san == san,
        };
        let ruled = self.0.iter().find(|rule| sans.iter().any(|san| is(rule, san)));
        if let Some(rule) = ruled {
            return Ok(rule.identity.clone());
        }
        let mut own = sans.iter().filter_map(|san| san.strip_prefix(OWN));
        let Some(first) = own.next() else {
            return Err(Unproven::Unmapped { names: shown(sans), san: suggested(sans) });
        };
        if own.any(|other| other != first) {
            return Err(Unproven::Ambiguous { names: shown(sans), san: suggested(sans) });
        }
        by_default(first).map_err(|reason| Unproven::Malformed { names: shown(sans), reason })
    }
}

/// The identity of `ROLE/NAME`.
fn by_default(path: &str) -> Result<Identity, String> {
    let (role, name) = path.split_once('/').unwrap_or((path, ""));
    let role = Role::parse(role).ok_or_else(|| {
        format!("{:?} is no role of callers, which are {}", cut(role), Role::NAMES.join(", "))
    })?;
    // A viewer of one tenant is called as that is.
    let tenant = (role == Role::Tenant).then_some(name);
    parts::identity(Kind::Certificate, role, name, None, tenant).map_err(|error| error.to_string())
}

/// The name of a rule as certificates are read.
fn known(san: &str) -> Option<String> {
    let is_plain = san.len() <= MAX_SAN && san.bytes().all(|byte| byte.is_ascii_graphic());
    let dns = san.strip_prefix("dns:").map(|name| (name, format!("DNS:{}", name.to_ascii_lowercase())));
    let uri = san.strip_prefix("spiffe://").map(|rest| (rest, format!("URI:{san}")));
    dns.or(uri).filter(|(rest, _)| is_plain && !rest.is_empty()).map(|(_, known)| known)
}

/// The names of a certificate in an error.
fn shown(sans: &[String]) -> String {
    let listed: Vec<String> =
        sans.iter().take(SHOWN).map(|san| cut(&san.escape_debug().to_string())).collect();
    match sans.len().checked_sub(SHOWN) {
        _ if sans.is_empty() => "it has no name that a rule can have: none of DNS and no URI".to_owned(),
        Some(more) if more > 0 => format!("{} and {more} more", listed.join(", ")),
        _ => listed.join(", "),
    }
}

/// What a rule for a certificate of these names says, quoted.
fn suggested(sans: &[String]) -> String {
    let uri = sans.iter().find_map(|san| san.strip_prefix("URI:").filter(|uri| uri.starts_with("spiffe://")));
    let dns = || Some(format!("dns:{}", sans.iter().find_map(|san| san.strip_prefix("DNS:"))?));
    let text = uri.map(str::to_owned).or_else(dns).unwrap_or_else(|| "spiffe://…".to_owned());
    format!("{:?}", text.chars().take(MAX_NAME * 4).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sans(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn certificates_of_tidegate_say_who_they_are() {
        let rules = Rules::default();
        for role in Role::ALL {
            let own =
                sans(&["DNS:db.example", &format!("URI:spiffe://tidegate/{role}/it-1"), "URI:spiffe://x/y"]);
            let identity = rules.identify(&own).unwrap();
            assert_eq!((identity.role, identity.name.as_str()), (role, "it-1"));
            assert!(identity.kind == Kind::Certificate && identity.scope.is_none());
            assert_eq!(identity.tenant.as_deref(), (role == Role::Tenant).then_some("it-1"));
        }
        for wrong in [
            "controller/rates",
            "root/a",
            "Admin/a",
            "admin",
            "admin/",
            "admin/a/b",
            "node/a.b",
            "node/a@b",
            "/",
            "",
            "admin/a b",
        ] {
            let refused = rules.identify(&sans(&[&format!("URI:spiffe://tidegate/{wrong}")])).unwrap_err();
            assert!(matches!(refused, Unproven::Malformed { .. }), "{wrong}: {refused}");
        }
        assert!(rules.identify(&sans(&["URI:spiffe://tidegate/operator/ann.b"])).is_ok());
    }

    #[test]
    fn a_certificate_of_others_needs_a_rule_and_is_told_which() {
        let rules = Rules::default();
        for (names, said) in [
            (&["DNS:web.example", "URI:spiffe://prod/ns/x/sa/y"][..], "san = \"spiffe://prod/ns/x/sa/y\""),
            (&["IP:10.0.0.1", "DNS:web.example"], "san = \"dns:web.example\""),
            // No rule can have an address.
            (&["URI:https://web.example/a", "DNS:web.example"], "san = \"dns:web.example\""),
            (&["URI:https://web.example/a"], "san = \"spiffe://…\""),
            (&[], "it has no name that a rule can have"),
            (&["URI:spiffe://tidegate.example/admin/a"], "san = \"spiffe://tidegate.example/admin/a\""),
            (&["DNS:spiffe://tidegate/admin/a"], "no rule names this certificate"),
        ] {
            let refused = rules.identify(&sans(names)).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        let two = sans(&["URI:spiffe://tidegate/node/a", "URI:spiffe://tidegate/admin/a"]);
        let refused = rules.identify(&two).unwrap_err();
        assert!(matches!(refused, Unproven::Ambiguous { .. }), "{refused}");
        assert!(refused.to_string().contains("san = \"spiffe://tidegate/node/a\""), "{refused}");
        let twice = sans(&["URI:spiffe://tidegate/node/a", "URI:spiffe://tidegate/node/a"]);
        assert_eq!(rules.identify(&twice).unwrap().name, "a");
    }

    #[test]
    fn the_first_rule_in_the_configuration_decides() {
        let groups = ["Shop".to_owned()];
        let rules = Rules::new(vec![
            Rule::new("spiffe://prod/ns/x/sa/y", "node", None, Some(&groups), None).unwrap(),
            Rule::new("dns:Web.example", "viewer", Some("board"), None, None).unwrap(),
            Rule::new("spiffe://tidegate/operator/ann", "admin", None, None, None).unwrap(),
        ]);
        let node = rules.identify(&sans(&["DNS:web.EXAMPLE", "URI:spiffe://prod/ns/x/sa/y"])).unwrap();
        assert_eq!((node.role, node.name.as_str()), (Role::Node, "y"));
        assert!(node.is_given("shop") && !node.is_given("default"));
        let board = rules.identify(&sans(&["DNS:WEB.example"])).unwrap();
        assert_eq!((board.role, board.name.as_str()), (Role::Viewer, "board"));
        let ann = rules.identify(&sans(&["URI:spiffe://tidegate/operator/ann"])).unwrap();
        assert_eq!(ann.role, Role::Admin);
        assert!(rules.identify(&sans(&["URI:spiffe://prod/ns/x/sa/Y"])).is_err());
        // As a configuration says them.
        let said: Vec<_> = rules.iter().map(Rule::san).collect();
        assert_eq!(said, ["spiffe://prod/ns/x/sa/y", "dns:web.example", "spiffe://tidegate/operator/ann"]);
    }

    #[test]
    fn a_rule_that_cannot_be_meant_is_refused_by_its_part() {
        let none: &[String] = &[];
        let bad = ["-".to_owned()];
        for (san, role, name, groups, tenant, part) in [
            ("web.example", "node", None, None, None, "san: "),
            ("dns:", "node", None, None, None, "san: "),
            ("spiffe://", "node", None, None, None, "san: "),
            ("https://a/b", "node", None, None, None, "san: "),
            ("dns:a b", "viewer", None, None, None, "san: "),
            ("dns:a", "root", None, None, None, "role: "),
            ("dns:a", "", None, None, None, "role: "),
            ("dns:a.b", "node", None, None, None, "name: "),
            ("dns:a", "viewer", Some("a b"), None, None, "name: "),
            ("dns:a", "viewer", Some(""), None, None, "name: "),
            ("dns:a", "viewer", None, Some(none), None, "groups: "),
            ("dns:a", "node", None, Some(none), None, "groups: "),
            ("dns:a", "node", None, Some(&bad[..]), None, "groups: "),
            ("dns:a", "tenant", None, None, None, "tenant: "),
            ("dns:a", "tenant", None, None, Some("a b"), "tenant: "),
            ("dns:a", "tenant", None, None, Some(""), "tenant: "),
            ("dns:a", "viewer", None, None, Some("acme"), "tenant: "),
            ("dns:a", "tenant", None, Some(&bad[..]), Some("acme"), "groups: "),
        ] {
            let refused = Rule::new(san, role, name, groups, tenant).unwrap_err().to_string();
            assert!(refused.starts_with(part), "{san} {role}: {refused}");
        }
        assert!(Rule::new(&format!("dns:{}", "a".repeat(MAX_SAN)), "viewer", Some("a"), None, None).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_names_are_someone_or_refused_shortly(names in proptest::collection::vec("(URI:|DNS:)?\\PC{0,300}", 0..9)) {
            if let Err(refused) = Rules::default().identify(&names) {
                proptest::prop_assert!(refused.to_string().len() < 4_000);
            }
        }
    }
}
