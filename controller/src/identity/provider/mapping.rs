//! From the claims of a JWT to a role, a name and groups.

use std::sync::Arc;

use serde_json::Value;

use super::error::JwtError;
use crate::identity::parts::{self, PartError};
use crate::identity::{Identity, Kind, Role, Scope};
use crate::quantity::cut;

/// Bytes of a claim's path and of a value: what Kubernetes writes into `sub` has at most some 330.
const MAX_TEXT: usize = 1_024;

/// Where in a JWT a claim is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim(String);

impl Claim {
    /// The claim of this name, or, where the text begins with a slash, at this JSON pointer (RFC 6901).
    ///
    /// # Errors
    /// The text is empty or very long.
    pub fn new(text: &str) -> Result<Self, MappingError> {
        if (1..=MAX_TEXT).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(MappingError::Claim)
        }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn find<'v>(&self, claims: &'v Value) -> Option<&'v Value> {
        if self.0.starts_with('/') { claims.pointer(&self.0) } else { claims.get(&self.0) }
    }
}

/// One rule: whose claim has this value has that role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The claim.
    pub claim: Claim,
    /// Its value, or one of its values.
    pub value: String,
    /// What they may do.
    pub role: Role,
    /// Their name; that of the provider's claim when left out.
    pub name: Option<String>,
    /// The groups of a node or a gateway.
    pub scope: Scope,
    /// The tenant whose groups they see, in the role of a tenant.
    pub tenant: Option<Arc<str>>,
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// A claim.
    #[error(
        "claim: write the name of a claim, or /OUTER/INNER for one within another, of at most {MAX_TEXT} bytes"
    )]
    Claim,
    /// A value.
    #[error("value: write the text that the claim has, of at most {MAX_TEXT} bytes")]
    Value,
    /// Whose it is.
    #[error("{field}: {0}", field = .0.field())]
    Part(#[from] PartError),
}

impl Mapping {
    /// Who has `value` in `claim` has this role, under this name and, as a node, for these groups alone. A
    /// viewer of one tenant names that.
    ///
    /// # Errors
    /// A part is malformed.
    pub fn new(
        claim: &str,
        value: &str,
        role: &str,
        name: Option<&str>,
        groups: Option<&[String]>,
        tenant: Option<&str>,
    ) -> Result<Self, MappingError> {
        let claim = Claim::new(claim)?;
        if !(1..=MAX_TEXT).contains(&value.len()) {
            return Err(MappingError::Value);
        }
        let role = parts::role(role)?;
        let (scope, tenant) = parts::reach(role, groups, tenant)?;
        let name = name.map(|name| parts::checked(role, name)).transpose()?;
        Ok(Self { claim, value: value.to_owned(), role, name, scope, tenant })
    }

    fn fits(&self, claims: &Value) -> bool {
        match self.claim.find(claims) {
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Bool(is)) => self.value == if *is { "true" } else { "false" },
            Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(self.value.as_str())),
            _ => false,
        }
    }
}

/// The identity of these claims by the first rule that fits.
pub(super) fn identify(
    provider: &Arc<str>,
    name_claim: &Claim,
    roles: &[Mapping],
    claims: &Value,
) -> Result<Identity, JwtError> {
    let unmapped = || {
        let mut looked: Vec<&str> = roles.iter().map(|role| role.claim.as_str()).collect();
        looked.dedup();
        JwtError::Unmapped { provider: provider.to_string(), claims: cut(&looked.join(", ")) }
    };
    let rule = roles.iter().find(|rule| rule.fits(claims)).ok_or_else(unmapped)?;
    let name = match &rule.name {
        Some(name) => name.clone(),
        None => {
            let unnamed = |reason| JwtError::Unnamed { claim: cut(name_claim.as_str()), reason };
            let text = name_claim.find(claims).and_then(Value::as_str);
            let text = text.ok_or_else(|| unnamed("it has no such text".to_owned()))?;
            parts::checked(rule.role, text).map_err(|error| unnamed(error.to_string()))?
        }
    };
    let Mapping { role, scope, tenant, .. } = rule.clone();
    Ok(Identity { kind: Kind::Jwt(Arc::clone(provider)), name, role, scope, tenant })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_fits_the_value_that_it_names_and_no_other() {
        let fits = |value: &str, claim: Value| {
            let rule = Mapping::new("a", value, "viewer", None, None, None).unwrap();
            rule.fits(&json!({ "a": claim }))
        };
        for (value, claim, is_fit) in [
            ("ops", json!("ops"), true),
            ("ops", json!("ops "), false),
            ("ops", json!("Ops"), false),
            ("ops", json!(["staff", "ops"]), true),
            ("ops", json!(["staff", "opsx"]), false),
            ("ops", json!([["ops"]]), false),
            ("true", json!(true), true),
            ("true", json!(false), false),
            ("false", json!(false), true),
            ("false", json!(true), false),
            ("true", json!("true"), true),
            ("true", json!([true]), false),
            ("5", json!(5), false),
            ("null", json!(null), false),
            ("{}", json!({}), false),
        ] {
            assert_eq!(fits(value, claim.clone()), is_fit, "{value} {claim}");
        }
        assert!(!Mapping::new("b", "x", "viewer", None, None, None).unwrap().fits(&json!({"a": "x"})));
    }
}
