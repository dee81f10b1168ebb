//! The settings of who may call: `authentication`, `anonymous_role`, the rules `[[identity]]` and `[[provider]]`.

use toml::{Table, Value};

use super::reader::{Reader, mismatch};
use crate::identity::provider::Provider;
use crate::identity::{Role, Rule, Rules};
use crate::quantity::cut;

/// Rules of identities: each certificate of a connection is compared with all of them. Half of it is less than a fleet
/// whose nodes have an identity each; with twice of it, a burst of connections is slowed down noticeably.
const MAX_RULES: usize = 4_096;
/// Groups of one rule, as a tenant has them.
const MAX_GROUPS: usize = 1_024;
/// Roles that callers without a proof can have: all but that of a tenant, which has to be somebody's.
const ANONYMOUS: [&str; 6] = ["admin", "operator", "viewer", "node", "gateway", "metrics"];

/// Whether callers prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// They do, and do what their role allows.
    Required,
    /// All who reach a listener may do everything.
    Off,
}

/// Who may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether callers prove who they are; `None` is: with authorities of clients.
    pub authentication: Option<Authentication>,
    /// The role of callers without a certificate; `None` is no role.
    pub anonymous_role: Option<Role>,
    /// Whose certificates are whose.
    pub rules: Rules,
    /// Whose JWTs are believed.
    pub providers: Vec<Provider>,
}

/// Takes the settings out of the text.
pub(super) fn access(reader: &mut Reader) -> Access {
    let authentication = reader.word("authentication", &["off", "required"]).map(|word| match word {
        "required" => Authentication::Required,
        _ => Authentication::Off,
    });
    let anonymous_role = reader.word("anonymous_role", &ANONYMOUS).and_then(Role::parse);
    let rules = reader.tables("identity", MAX_RULES, rule).unwrap_or_default();
    let providers = super::provider::providers(reader);
    Access { authentication, anonymous_role, rules: Rules::new(rules), providers }
}

/// One `[[identity]]`.
fn rule(mut table: Table) -> Result<Rule, String> {
    let san = text(&mut table, "san")?.ok_or("san: is missing; write the name in the certificate")?;
    let role = text(&mut table, "role")?
        .ok_or_else(|| format!("role: is missing; write one of {}", Role::NAMES.join(", ")))?;
    let (name, tenant) = (text(&mut table, "name")?, text(&mut table, "tenant")?);
    let groups = table.remove("groups").map(groups).transpose()?;
    if let Some(unknown) = table.keys().next() {
        return Err(format!("{}: unknown; the parts are san, role, name, groups, tenant", cut(unknown)));
    }
    let rule = Rule::new(&san, &role, name.as_deref(), groups.as_deref(), tenant.as_deref());
    rule.map_err(|error| error.to_string())
}

pub(super) fn text(table: &mut Table, key: &'static str) -> Result<Option<String>, String> {
    match table.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{key}: {}", mismatch(&other, "a text in quotes"))),
    }
}

pub(super) fn groups(value: Value) -> Result<Vec<String>, String> {
    let expected = "names in quotes, such as [\"shop\"]";
    let names = match value {
        Value::Array(names) if names.len() <= MAX_GROUPS => names,
        Value::Array(names) => {
            return Err(format!("groups: {} are too many: at most {MAX_GROUPS}", names.len()));
        }
        other => return Err(format!("groups: {}", mismatch(&other, expected))),
    };
    let names = names.into_iter().map(|name| match name {
        Value::String(name) => Ok(name),
        other => Err(format!("groups: {}", mismatch(&other, expected))),
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigError};
    use super::*;

    const TLS: &str = "tls_cert = \"c\"\ntls_key = \"k\"\n";
    const CA: &str = "tls_client_ca = \"ca\"\n";

    fn read(parts: &[&str]) -> Result<Config, String> {
        let said =
            |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        Config::parse(&parts.concat()).map_err(said)
    }

    #[test]
    fn authorities_of_clients_make_identities_count() {
        let optional = "tls_clients = \"optional\"\n";
        for (parts, expected) in [
            (&[][..], Authentication::Off),
            (&[TLS], Authentication::Off),
            (&[TLS, CA], Authentication::Required),
            (&[TLS, CA, optional], Authentication::Required),
            (&[TLS, CA, "authentication = \"off\"\n"], Authentication::Off),
            (&["authentication = \"off\"\n"], Authentication::Off),
        ] {
            assert_eq!(read(parts).unwrap().authentication(), expected, "{parts:?}");
        }
    }

    #[test]
    fn settings_that_would_have_no_effect_are_refused() {
        let required = "authentication = \"required\"\n";
        let rule = "[[identity]]\nsan = \"dns:a\"\nrole = \"viewer\"\n";
        let viewer = "anonymous_role = \"viewer\"\n";
        for (parts, key) in [
            (&[rule][..], "identity: "),
            (&[TLS, required, rule], "identity: "),
            (&[TLS, CA, "authentication = \"off\"\n", rule], "identity: "),
            (&[viewer], "anonymous_role: "),
            (&[TLS, CA, viewer], "anonymous_role: "),
            (&["authentication = \"maybe\"\n"], "authentication: "),
            (&[TLS, CA, "tls_clients = \"optional\"\nanonymous_role = \"root\"\n"], "anonymous_role: "),
            (&[TLS, CA, "tls_clients = \"optional\"\nanonymous_role = \"tenant\"\n"], "anonymous_role: "),
        ] {
            let refused = read(parts).unwrap_err();
            assert!(refused.starts_with(key) && !refused.contains("; identity: "), "{parts:?}: {refused}");
        }
        let optional = "tls_clients = \"optional\"\n";
        let config = read(&[TLS, CA, optional, viewer, rule]).unwrap();
        assert_eq!(config.access.anonymous_role, Some(Role::Viewer));
        assert!(!config.access.rules.is_empty());
    }

    #[test]
    fn a_wrong_rule_is_told_by_its_number_and_its_part() {
        let good = "[[identity]]\nsan = \"spiffe://prod/ns/x/sa/y\"\nrole = \"node\"\ngroups = [\"shop\"]\n";
        for (rule, said) in [
            ("role = \"node\"", "rule 2: san: is missing"),
            ("san = \"dns:a\"", "rule 2: role: is missing"),
            ("san = 5\nrole = \"node\"", "rule 2: san: 5 is an integer"),
            ("san = \"dns:a\"\nrole = \"root\"", "rule 2: role: \"root\" is no role"),
            ("san = \"dns:a\"\nrole = \"node\"\ngroups = \"shop\"", "rule 2: groups: "),
            ("san = \"dns:a\"\nrole = \"node\"\ngroups = [5]", "rule 2: groups: "),
            ("san = \"dns:a\"\nrole = \"node\"\ncolour = 1", "rule 2: colour: unknown"),
            ("san = \"dns:a\"\nrole = \"tenant\"", "rule 2: tenant: is missing"),
            ("san = \"dns:a\"\nrole = \"tenant\"\ntenant = 5", "rule 2: tenant: 5"),
        ] {
            let refused = read(&[TLS, CA, good, "[[identity]]\n", rule]).unwrap_err();
            assert!(refused.starts_with("identity: ") && refused.contains(said), "{refused}");
        }
        let groups = |count| {
            let groups = vec!["\"shop\""; count].join(", ");
            format!("[[identity]]\nsan = \"dns:a\"\nrole = \"node\"\ngroups = [{groups}]\n")
        };
        assert!(read(&[TLS, CA, &groups(1_024)]).is_ok());
        let refused = read(&[TLS, CA, &groups(1_025)]).unwrap_err();
        assert_eq!(refused, "identity: rule 1: groups: 1025 are too many: at most 1024");
        for other in ["identity = 5", "identity = [5]"] {
            assert!(read(&[TLS, CA, other]).unwrap_err().starts_with("identity: "), "{other}");
        }
        assert!(read(&[TLS, CA, good]).is_ok());
        let tenant = "[[identity]]\nsan = \"dns:a\"\nrole = \"tenant\"\ntenant = \"acme\"\n";
        let config = read(&[TLS, CA, tenant]).unwrap();
        let whose = config.access.rules.iter().next().map(|rule| rule.identity().tenant.clone());
        assert_eq!(whose, Some(Some("acme".into())));
    }
}
