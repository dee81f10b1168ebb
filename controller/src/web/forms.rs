//! Keys of forms, which no other site knows. They are of a person and a store, not of a session or a process: what
//! somebody has typed outlives a controller that restarts and a session that ends.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::session::hex;
use crate::identity::Identity;

/// Makes the keys.
pub(super) struct Forms(Hmac<Sha256>);

impl Forms {
    pub(super) fn new(key: [u8; 32]) -> Self {
        // A block of the hash, as HMAC itself fills a shorter key up.
        let mut block = [0; 64];
        block.iter_mut().zip(key).for_each(|(to, from)| *to = from);
        Self(Hmac::<Sha256>::new(&block.into()))
    }

    /// The key of the forms of this person; of everybody while authentication is off.
    pub(super) fn key_of(&self, identity: Option<&Identity>) -> String {
        let mut mac = self.0.clone();
        mac.update(identity.map_or_else(String::new, Identity::label).as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Kind, Role};

    #[test]
    fn each_person_of_each_store_has_a_key() {
        let named = |name: &str, role| Identity {
            name: name.to_owned(),
            kind: Kind::Token,
            ..Identity::anonymous(role)
        };
        let forms = Forms::new([1; 32]);
        let ann = forms.key_of(Some(&named("ann", Role::Operator)));
        assert_eq!(
            ann,
            Forms::new([1; 32]).key_of(Some(&named("ann", Role::Operator))),
            "after a restart, too"
        );
        let others = [
            forms.key_of(None),
            forms.key_of(Some(&named("bob", Role::Operator))),
            forms.key_of(Some(&named("ann", Role::Admin))),
            Forms::new([2; 32]).key_of(Some(&named("ann", Role::Operator))),
        ];
        assert!(others.iter().all(|other| *other != ann), "{others:?}");
    }
}
