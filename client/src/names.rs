//! Names that cross the wire: the identity of a node and the name of a group, checked where they enter.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use smol_str::{SmolStr, StrExt as _};
use tidegate_proto::NOT_GIVEN;

/// Longest identity of a node, in bytes; the controller refuses longer ones.
pub const MAX_IDENTITY: usize = 64;
/// Longest group name, in bytes; the controller refuses longer ones.
pub const MAX_GROUP_NAME: usize = 64;

/// A name that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The identity of the node.
    #[error(
        "node identity {value:?} is not 1 to {MAX_IDENTITY} characters of [A-Za-z0-9._-]; give this process another `identity`"
    )]
    Identity {
        /// What was given.
        value: String,
    },
    /// The name of a group.
    #[error(
        "group name {value:?} is not 1 to {MAX_GROUP_NAME} characters of [a-z0-9._-], the first a letter or a digit; \
         check the name"
    )]
    Group {
        /// What was given.
        value: String,
    },
}

/// Identity of a node: 1 to 64 characters of `[A-Za-z0-9._-]`, the same from start to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(Arc<str>);

impl Identity {
    /// Checks `value`.
    pub fn new(value: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        // A name of dots alone is a directory, and the journal is a file named after the identity.
        let dots = value.bytes().all(|byte| byte == b'.');
        if dots || value.len() > MAX_IDENTITY || !value.bytes().all(allowed) {
            return Err(NameError::Identity { value: shorten(value) });
        }
        Ok(Self(value.into()))
    }
}

/// Name of a resource group: 1 to 64 characters of `[a-z0-9._-]`, the first a letter or a digit. Upper case is folded,
/// as the controller does: two spellings must not become two buckets. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(SmolStr);

impl GroupName {
    /// Checks and folds `value`.
    pub fn new(value: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let starts = value.starts_with(|first: char| first.is_ascii_alphanumeric());
        if !starts || value.len() > MAX_GROUP_NAME || !value.bytes().all(allowed) {
            return Err(NameError::Group { value: shorten(value) });
        }
        Ok(Self(value.to_ascii_lowercase_smolstr()))
    }

    /// Whether it stands for a group that this node was not given, which nothing may be charged to.
    pub(crate) fn is_not_given(&self) -> bool {
        self.0 == NOT_GIVEN
    }
}

/// The beginning of a refused name, so that an error message stays readable.
fn shorten(value: &str) -> String {
    value.chars().take(MAX_GROUP_NAME).collect()
}

impl Deref for Identity {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Deref for GroupName {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

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

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_checked() {
        for good in ["a", "node-1.eu_west", &"x".repeat(64)] {
            assert!(Identity::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(Identity::new(bad).is_err(), "{bad}");
        }
        let refused = Identity::new("a b").unwrap_err().to_string();
        assert!(refused.starts_with(r#"node identity "a b" is not 1 to 64 characters"#), "{refused}");
    }

    #[test]
    fn group_names_are_checked() {
        for good in ["default", "a-b_c.9", "9", &"x".repeat(64)] {
            assert_eq!(&*GroupName::new(good).unwrap(), good);
        }
        assert_eq!(&*GroupName::new("Analytics").unwrap(), "analytics");
        for bad in ["", "a\nb", "a b", "-a", ".a", "ü", &"x".repeat(65)] {
            assert!(GroupName::new(bad).is_err(), "{bad}");
        }
        // However long it is, and wherever its characters end.
        let refused = GroupName::new(&"ü".repeat(1_000)).unwrap_err();
        assert_eq!(refused, NameError::Group { value: "ü".repeat(64) });
        assert!(refused.to_string().starts_with(r#"group name "üü"#), "{refused}");
    }
}
