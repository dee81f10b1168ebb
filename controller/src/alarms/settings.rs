//! What the configuration says of a webhook.

use std::path::{Path, PathBuf};

use tidegate_tls::{Address, AddressError, Material};

use super::book::Thresholds;
use super::kind::{Key, Kind};
use crate::name::principal_part;

/// Bytes of a secret. With fewer one can be guessed from a signature; a longer one is another file.
const SECRET: (usize, usize) = (16, 1_024);

/// When alarms are raised, and who is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlarmSettings {
    /// When they are raised and resolved.
    pub thresholds: Thresholds,
    /// Who is told.
    pub webhooks: Vec<Webhook>,
}

/// One receiver of alarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// How logs, metrics and the status call it.
    pub name: String,
    /// Where alarms are sent.
    pub url: Address,
    /// The file with the secret that signs what is sent.
    pub secret_file: PathBuf,
    /// Authorities that sign the certificate of the receiver; those the machine trusts when left out.
    pub authorities: Option<PathBuf>,
    /// Kinds of alarms that are sent; all when empty.
    pub kinds: Vec<Kind>,
    /// Groups whose alarms are sent, beside those of the whole controller; all when empty.
    pub groups: Vec<String>,
}

impl AlarmSettings {
    /// Checks the secrets of all webhooks. Blocks.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub(crate) fn check_secrets(&self) -> Result<(), String> {
        self.webhooks.iter().try_for_each(|webhook| {
            let checked = secret(&webhook.secret_file).map(drop);
            checked.map_err(|reason| format!("webhook {}: secret_file: {reason}", webhook.name))
        })
    }
}

/// The address of a webhook; `plaintext` allows other machines to be told without TLS.
///
/// # Errors
/// What is wrong with it, without the address.
pub fn address(text: &str, plaintext: bool) -> Result<Address, String> {
    Address::parse(text, plaintext).map_err(|error| {
        let wrong = match error {
            AddressError::None => "url: is no address; write https://HOST/PATH",
            AddressError::User => "url: has a user in it; leave it out, the signature proves who sends",
            AddressError::Plain => {
                "url: is on another machine without TLS, so that all on the way can read which groups there are and \
                 what they use: write https://, or plaintext = true if the network is trusted"
            }
        };
        wrong.to_owned()
    })
}

impl Webhook {
    /// Checks the parts beside each other.
    ///
    /// # Errors
    /// The first part that cannot be used.
    pub fn check(&self) -> Result<(), String> {
        principal_part("name of a webhook", &self.name).map_err(|error| format!("name: {error}"))?;
        if self.authorities.is_some() && !self.url.is_secure() {
            return Err("ca: has no effect without TLS: write https:// in url".to_owned());
        }
        Ok(())
    }

    /// Whether it is told of an alarm.
    pub(super) fn wants(&self, key: &Key) -> bool {
        let of_kind = self.kinds.is_empty() || self.kinds.contains(&key.kind);
        of_kind && (self.groups.is_empty() || key.group.is_empty() || self.groups.contains(&key.group))
    }
}

/// The secret in a file, which nobody else may read. Blocks.
///
/// # Errors
/// It cannot be read, others can read it, or it is too short or too long.
pub(super) fn secret(path: &Path) -> Result<Vec<u8>, String> {
    let material = Material::read_key(path).map_err(|error| error.to_string())?;
    let secret = material.bytes().trim_ascii().to_vec();
    if (SECRET.0..=SECRET.1).contains(&secret.len()) {
        return Ok(secret);
    }
    Err(format!(
        "{} has a secret of {} bytes; write {} to {}, such as `openssl rand -hex 32` makes",
        path.display(),
        secret.len(),
        SECRET.0,
        SECRET.1
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_address_is_under_tls_or_here_and_shows_its_host_alone() {
        for (text, plaintext) in [
            ("https://hooks.example/a?key=s3cret", false),
            ("http://127.0.0.1:9/a?key=s3cret", false),
            ("http://[::1]:9/s3cret", false),
            ("http://localhost/s3cret", false),
            ("http://10.0.0.1/s3cret", true),
        ] {
            let address = address(text, plaintext).unwrap();
            let shown = format!("{address} {address:?}");
            assert!(!shown.contains("s3cret") && text.starts_with(&address.to_string()), "{shown}");
        }
        for (text, said) in [
            ("http://hooks.example/s3cret", "plaintext = true"),
            ("https://ann:s3cret@hooks.example/", "has a user"),
            ("ftp://hooks.example/s3cret", "no address"),
            ("hooks.example/s3cret", "no address"),
            ("https:///s3cret", "no address"),
            ("", "no address"),
        ] {
            let refused = address(text, false).unwrap_err();
            assert!(refused.contains(said) && !refused.contains("s3cret"), "{text}: {refused}");
        }
        assert!(address(&format!("https://a/{}", "x".repeat(2_048)), false).is_err());
    }

    #[test]
    fn a_webhook_is_told_of_its_kinds_and_groups_and_of_the_controller() {
        let key = |kind, group: &str| Key { kind, group: group.to_owned() };
        let mut hook = Webhook {
            name: "ops".to_owned(),
            url: address("https://hooks.example/", false).unwrap(),
            secret_file: "secret".into(),
            authorities: None,
            kinds: Vec::new(),
            groups: Vec::new(),
        };
        assert!(hook.wants(&key(Kind::Throttled, "shop")) && hook.wants(&key(Kind::Recovery, "")));
        hook.groups = vec!["shop".to_owned()];
        assert!(hook.wants(&key(Kind::Throttled, "shop")) && hook.wants(&key(Kind::Recovery, "")));
        assert!(!hook.wants(&key(Kind::Throttled, "shop2")));
        hook.kinds = vec![Kind::QuotaSpent];
        assert!(!hook.wants(&key(Kind::Throttled, "shop")) && hook.wants(&key(Kind::QuotaSpent, "shop")));
        assert!(!hook.wants(&key(Kind::Recovery, "")));
    }

    #[test]
    fn a_secret_is_long_enough_and_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write(&path, " 0123456789abcdef\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(secret(&path).unwrap_err().contains("chmod 600"));
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secret(&path).unwrap(), b"0123456789abcdef");
        for wrong in ["", "0123456789abcde\n", &"x".repeat(1_025)] {
            write(&path, wrong).unwrap();
            assert!(secret(&path).unwrap_err().contains("16 to 1024"), "{wrong}");
        }
        assert!(secret(&folder.path().join("none")).unwrap_err().contains("cannot read"));
    }
}
