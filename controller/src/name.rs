//! Names of groups, principals and nodes, checked once on entry.
//!
//! A group name is 1 to 64 characters of `[a-z0-9._-]` and starts with a letter or a digit; upper case is folded.
//! A tenant or user is 1 to 64 of `[A-Za-z0-9._@-]`, a client id 1 to 64 of `[A-Za-z0-9._-]`; both keep their case.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::limits::MAX_NAME;
use crate::quantity::cut;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind}: write 1 to {MAX_NAME} characters of {alphabet}")]
pub struct NameError {
    /// The text, cut to a readable length.
    pub text: String,
    /// The kind of name expected.
    pub kind: &'static str,
    /// The characters allowed.
    pub alphabet: &'static str,
}

/// The name of a resource group, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

impl GroupName {
    /// Checks and folds a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts || !fits(text, b"._-") {
            let alphabet = "[a-z0-9._-], starting with a letter or a digit";
            return Err(NameError { text: cut(text), kind: "group name", alphabet });
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    /// The group of all who are bound to no other.
    pub fn default_group() -> Self {
        Self("default".into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names have the order of their texts.
impl Borrow<str> for GroupName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks a tenant or a user.
pub fn principal_part(kind: &'static str, text: &str) -> Result<String, NameError> {
    if fits(text, b"._@-") {
        return Ok(text.to_owned());
    }
    Err(NameError { text: cut(text), kind, alphabet: "[A-Za-z0-9._@-]" })
}

/// Checks the identity of a node.
pub fn client_id(text: &str) -> Result<String, NameError> {
    if fits(text, b"._-") {
        return Ok(text.to_owned());
    }
    Err(NameError { text: cut(text), kind: "client id", alphabet: "[A-Za-z0-9._-]" })
}

/// Checks the name of a controller in a cluster.
pub fn controller_name(text: &str) -> Result<String, NameError> {
    if fits(text, b"._-") {
        return Ok(text.to_owned());
    }
    Err(NameError { text: cut(text), kind: "name of a controller", alphabet: "[A-Za-z0-9._-]" })
}

fn fits(text: &str, others: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || others.contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_kept_and_folded() {
        for (text, name) in [("a", "a"), ("Prod.EU-1_x", "prod.eu-1_x"), ("0", "0")] {
            assert_eq!(GroupName::parse(text).unwrap().as_str(), name);
        }
        assert_eq!(principal_part("user", "Ann@corp.example").unwrap(), "Ann@corp.example");
        assert_eq!(client_id("Node_7.a-b").unwrap(), "Node_7.a-b");
    }

    #[test]
    fn bad_names_are_refused() {
        let long = "x".repeat(65);
        for text in
            ["", " ", "-a", ".a", "_a", "a b", "a/b", "ä", "a\0", "a\n", "a,b", long.as_str(), "ＡＢ", "a@b"]
        {
            let error = GroupName::parse(text).unwrap_err().to_string();
            assert!(error.contains("group name") && error.len() < 300, "{error}");
        }
        for text in ["", " ", "a b", "a/b", "ö", "a%", long.as_str()] {
            for (refused, what) in [
                (principal_part("user", text), "user"),
                (client_id(text), "client id"),
                (controller_name(text), "name of a controller"),
            ] {
                let error = refused.unwrap_err().to_string();
                assert!(error.contains(&format!("is not a {what}")) && error.len() < 300, "{error}");
            }
        }
        assert!(client_id("a@b").is_err());
    }
}
