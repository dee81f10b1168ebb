//! The judge of words: which role, name, groups and tenant are an identity.

use tidegate_controller::identity::{Identity, Role};

use crate::input::Input;

/// The words of the roles.
pub(super) const ROLES: [&str; 9] =
    ["admin", "operator", "viewer", "tenant", "node", "gateway", "metrics", "root", "Admin"];

/// Who a caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    /// The word of the audit log for how it is proven.
    pub(super) how: String,
    pub(super) role: String,
    pub(super) name: String,
    /// The groups that it was given, in order, each once; `None` for all.
    pub(super) groups: Option<Vec<String>>,
    pub(super) tenant: Option<String>,
}

/// What the controller says of a caller.
pub(super) fn seen(identity: &Identity) -> Who {
    let groups = identity.scope.as_ref();
    Who {
        how: identity.kind.word(),
        role: identity.role.to_string(),
        name: identity.name.clone(),
        groups: groups.map(|groups| groups.iter().map(ToString::to_string).collect()),
        tenant: identity.tenant.as_ref().map(ToString::to_string),
    }
}

/// Who it is by these words; `None` where they are nobody's.
pub(super) fn who(
    how: &str,
    role: &str,
    name: &str,
    groups: Option<&[String]>,
    tenant: Option<&str>,
) -> Option<Who> {
    let is_role = Role::NAMES.contains(&role);
    let is_node = role == "node" || role == "gateway";
    let is_named = if is_node { is_text(name, "_-") } else { is_text(name, "._@-") };
    let has_tenant = match tenant {
        Some(tenant) => role == "tenant" && is_text(tenant, "._@-"),
        None => role != "tenant",
    };
    let mut given = groups.map(<[String]>::to_vec);
    if let Some(given) = &mut given {
        let is_group = |group: &String| {
            is_text(group, "._-")
                && !group.starts_with(['.', '_', '-'])
                && !group.eq_ignore_ascii_case("not-given-to-this-node")
        };
        if !is_node || given.is_empty() || !given.iter().all(is_group) {
            return None;
        }
        given.iter_mut().for_each(|group| group.make_ascii_lowercase());
        given.sort();
        given.dedup();
    }
    (is_role && is_named && has_tenant).then(|| Who {
        how: how.to_owned(),
        role: role.to_owned(),
        name: name.to_owned(),
        groups: given,
        tenant: tenant.map(str::to_owned),
    })
}

/// Whether a text is 1 to 64 letters, digits and `others`.
fn is_text(text: &str, others: &str) -> bool {
    let is_one = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(is_one)
}

/// One of these texts, or any.
pub(super) fn word(input: &mut Input<'_>, known: &[&str]) -> String {
    match known.get(input.below(known.len() + 1)) {
        Some(text) => (*text).to_owned(),
        None => String::from_utf8_lossy(input.piece()).into_owned(),
    }
}

/// Up to `most` texts; `None` at times.
pub(super) fn words(input: &mut Input<'_>, known: &[&str], most: usize) -> Option<Vec<String>> {
    let count = input.below(most + 2).checked_sub(1)?;
    Some((0..count).map(|_| word(input, known)).collect())
}
