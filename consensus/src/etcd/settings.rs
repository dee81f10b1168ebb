//! What the configuration says of etcd, checked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tidegate_tls::{Address, AddressError, ClientFiles, Material, TlsError, trusted};

/// Members: etcd advises at most seven. With a list that is far longer, a call that has to find the one member that
/// lives takes too many tries.
const MOST_MEMBERS: usize = 16;
/// Characters of a wrong address that an error quotes: enough to find it by.
const QUOTED: usize = 60;
/// Bytes of a password. etcd looks at no more than 72 of them; a file with far more is a wrong one.
const MOST_PASSWORD: usize = 1_024;

/// Settings of etcd that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// The addresses of the members.
    #[error("etcd_endpoints: {0}")]
    Endpoints(String),
    /// A setting that does nothing without another.
    #[error("{key}: has no effect without {needed}; {remedy}")]
    Idle {
        /// The setting.
        key: &'static str,
        /// The other.
        needed: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A file that a setting names.
    #[error("{key}: {reason}")]
    File {
        /// The setting.
        key: &'static str,
        /// The file, what is wrong with it, and what to do.
        reason: String,
    },
    /// The user.
    #[error("etcd_user: \"\" is no name of a user; write one, or leave it out")]
    User,
    /// The thread that speaks with the members.
    #[error("cannot start the thread that speaks with etcd: {0}; allow this process another thread")]
    Thread(String),
}

/// The settings as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// `etcd_endpoints`: the members, such as `https://HOST:2379`.
    pub endpoints: Vec<String>,
    /// `etcd_ca`: authorities that sign the certificates of members; those the machine trusts when left out.
    pub ca: Option<PathBuf>,
    /// `etcd_cert`: this process's certificate, for members that ask for one.
    pub cert: Option<PathBuf>,
    /// `etcd_key`: its key.
    pub key: Option<PathBuf>,
    /// `etcd_user`: who calls, where etcd's authentication is on.
    pub user: Option<String>,
    /// `etcd_password_file`: a file, for its owner only, with the password.
    pub password_file: Option<PathBuf>,
    /// `etcd_plaintext_off_loopback`: whether members may be on other machines without TLS.
    pub plaintext: bool,
}

/// Where the members are, and what is shown to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    pub(super) members: Vec<Address>,
    pub(super) files: ClientFiles,
    pub(super) login: Option<Login>,
    plaintext: bool,
}

/// A user, and the file of the password. It is read for each login, so that another one counts from the next one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password_file: PathBuf,
}

impl EtcdError {
    /// The setting at fault, and what is wrong with it.
    pub fn parts(&self) -> (&'static str, String) {
        let key = match self {
            Self::Endpoints(_) | Self::Thread(_) => "etcd_endpoints",
            Self::Idle { key, .. } | Self::File { key, .. } => key,
            Self::User => "etcd_user",
        };
        let text = self.to_string();
        let message = text.strip_prefix(key).and_then(|rest| rest.strip_prefix(": "));
        (key, message.unwrap_or(&text).to_owned())
    }
}

impl Written {
    /// Checks them beside each other, without looking at files.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub fn check(self) -> Result<EtcdSettings, EtcdError> {
        let members = members(&self.endpoints, self.plaintext)?;
        let is_secure = members.iter().any(Address::is_secure);
        let (user, password) = (self.user, self.password_file);
        let idle = |key, needed, remedy| Err(EtcdError::Idle { key, needed, remedy });
        let tls = [
            ("etcd_ca", self.ca.is_some()),
            ("etcd_cert", self.cert.is_some()),
            ("etcd_key", self.key.is_some()),
        ];
        if let Some((key, _)) = tls.into_iter().find(|(_, given)| *given && !is_secure) {
            return idle(key, "TLS", "write https:// in etcd_endpoints, or leave it out");
        }
        let identity = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => return idle("etcd_cert", "etcd_key", "name the file of its key there"),
            (None, Some(_)) => return idle("etcd_key", "etcd_cert", "name its certificate there"),
        };
        let login = match (user, password) {
            (Some(user), _) if user.is_empty() => return Err(EtcdError::User),
            (Some(user), Some(password_file)) => Some(Login { user, password_file }),
            (None, None) => None,
            (Some(_), None) => {
                return idle("etcd_user", "etcd_password_file", "name a file with the password there");
            }
            (None, Some(_)) => return idle("etcd_password_file", "etcd_user", "name the user there"),
        };
        let files = ClientFiles { authorities: self.ca, identity };
        Ok(EtcdSettings { members, files, login, plaintext: self.plaintext })
    }
}

impl EtcdSettings {
    /// The settings as they may be written.
    pub fn written(&self) -> Written {
        let (cert, key) = self.files.identity.clone().unzip();
        let (user, password_file) = self.login.clone().map(|login| (login.user, login.password_file)).unzip();
        Written {
            endpoints: self.members.iter().map(ToString::to_string).collect(),
            ca: self.files.authorities.clone(),
            cert,
            key,
            user,
            password_file,
            plaintext: self.plaintext,
        }
    }

    /// Checks the files, which blocks.
    ///
    /// # Errors
    /// One cannot be used.
    pub fn check_files(&self) -> Result<(), EtcdError> {
        let wrong = |key| move |error: TlsError| EtcdError::File { key, reason: error.to_string() };
        if self.members.iter().any(Address::is_secure) {
            trusted(self.files.authorities.as_deref()).map_err(wrong("etcd_ca"))?;
            self.files.load().map_err(wrong("etcd_cert"))?;
        }
        let read = self.login.as_ref().map(|login| password(&login.password_file));
        let read = read.transpose().map_err(|reason| EtcdError::File { key: "etcd_password_file", reason });
        read.map(drop)
    }
}

/// The addresses of the members.
fn members(endpoints: &[String], plaintext: bool) -> Result<Vec<Address>, EtcdError> {
    let wrong = |said: String| EtcdError::Endpoints(said);
    if endpoints.is_empty() || endpoints.len() > MOST_MEMBERS {
        let count = endpoints.len();
        return Err(wrong(format!("has {count} members; name 1 to {MOST_MEMBERS}, as https://HOST:2379")));
    }
    let mut seen = BTreeSet::new();
    let mut members = Vec::with_capacity(endpoints.len());
    for text in endpoints {
        let address = member(text, plaintext).map_err(|said| {
            // It may hold a password.
            let shown = if text.contains('@') { "an address".to_owned() } else { quoted(text) };
            wrong(format!("{shown} {said}"))
        })?;
        if !seen.insert(address.to_string()) {
            return Err(wrong(format!("{} is there twice; name each member once", quoted(text))));
        }
        members.push(address);
    }
    Ok(members)
}

/// A text in quotes, cut to what a person reads.
fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(QUOTED).collect();
    if cut.len() < text.len() { format!("{cut:?}…") } else { format!("{text:?}") }
}

/// The address of a member, or what is wrong with it.
fn member(text: &str, plaintext: bool) -> Result<Address, &'static str> {
    let address = Address::parse(text, plaintext).map_err(|error| match error {
        AddressError::None => "is no address; write https://HOST:2379",
        AddressError::User => {
            "has a user in it; leave it out, and write etcd_user and etcd_password_file instead"
        }
        AddressError::Plain => {
            "is on another machine without TLS, so that all on the way can read and change what controllers share: \
             write https://, or set etcd_plaintext_off_loopback if the network is trusted"
        }
    })?;
    let uri = address.uri();
    if uri.port_u16().is_none() {
        return Err("has no port; etcd's is 2379: write https://HOST:2379");
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err("has a path; write https://HOST:2379 alone");
    }
    Ok(address)
}

/// The password in a file, without the end of its line. Blocks.
///
/// # Errors
/// The file, what is wrong with it and what to do; nothing of what it holds.
pub(super) fn password(path: &Path) -> Result<String, String> {
    let material = Material::read_key(path).map_err(|error| {
        // A password is no PEM, which errors of keys advise.
        error.to_string().replace("a PEM file", "a file").replace("read the key", "read the password")
    })?;
    let bytes = material.bytes();
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty() && text.len() <= MOST_PASSWORD);
    let text = text.ok_or_else(|| {
        format!("{} holds no password; write it there, alone, at most {MOST_PASSWORD} bytes", path.display())
    })?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use tidegate_test_servers::Certificates;

    use super::*;

    fn with(endpoints: &[&str]) -> Written {
        Written { endpoints: endpoints.iter().map(ToString::to_string).collect(), ..Written::default() }
    }

    #[test]
    fn members_are_under_tls_or_here_or_the_setting_allows_it_by_name() {
        for endpoint in
            ["http://127.0.0.1:2379", "http://localhost:1", "http://[::1]:2379", "https://e.example:2379/"]
        {
            assert!(with(&[endpoint]).check().is_ok(), "{endpoint}");
        }
        for (endpoint, said) in [
            ("", "\"\" is no address; write https://HOST:2379"),
            ("e.example:2379", "is no address"),
            ("unix:///run/etcd", "is no address"),
            ("https://e.example", "\"https://e.example\" has no port"),
            ("https://e.example:2379/v3", "has a path"),
            ("http://e.example:2379", "set etcd_plaintext_off_loopback"),
            ("http://10.0.0.1:2379", "set etcd_plaintext_off_loopback"),
            ("https://ann:s3cret@e.example:2379", "an address has a user in it"),
            (&"e".repeat(QUOTED), &format!("\"{}\" is no address", "e".repeat(QUOTED))),
            (&"e".repeat(QUOTED + 1), &format!("\"{}\"… is no address", "e".repeat(QUOTED))),
        ] {
            let refused = with(&[endpoint]).check().unwrap_err().to_string();
            assert!(
                refused.starts_with("etcd_endpoints: ") && refused.contains(said),
                "{endpoint}: {refused}"
            );
            assert!(!refused.contains("s3cret"), "{refused}");
        }
        let plain = with(&["http://e.example:2379"]);
        assert!(Written { plaintext: true, ..plain }.check().is_ok());
    }

    #[test]
    fn each_member_is_named_once_and_there_is_at_least_one() {
        let many: Vec<String> = (1..=17).map(|port| format!("http://localhost:{port}")).collect();
        assert!(Written { endpoints: many[1..].to_vec(), ..Written::default() }.check().is_ok());
        for (endpoints, said) in [
            (vec![], "has 0 members; name 1 to 16"),
            (many, "has 17 members"),
            (vec!["http://localhost:1".to_owned(), "http://localhost:1/".to_owned()], "is there twice"),
        ] {
            let refused = Written { endpoints, ..Written::default() }.check().unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn a_setting_that_does_nothing_is_refused_with_the_one_it_needs() {
        let (plain, tls) = (with(&["http://localhost:1"]), with(&["https://localhost:1"]));
        for (written, said) in [
            (Written { ca: Some("ca".into()), ..plain.clone() }, "etcd_ca: has no effect without TLS"),
            (Written { cert: Some("c".into()), ..plain.clone() }, "etcd_cert: has no effect without TLS"),
            (Written { key: Some("k".into()), ..plain.clone() }, "etcd_key: has no effect without TLS"),
            (Written { cert: Some("c".into()), ..tls.clone() }, "etcd_cert: has no effect without etcd_key"),
            (Written { key: Some("k".into()), ..tls.clone() }, "etcd_key: has no effect without etcd_cert"),
            (
                Written { user: Some("u".into()), ..plain.clone() },
                "etcd_user: has no effect without etcd_pass",
            ),
            (
                Written { password_file: Some("p".into()), ..plain.clone() },
                "etcd_password_file: has no effect",
            ),
            (Written { user: Some(String::new()), ..plain }, "etcd_user: \"\" is no name"),
        ] {
            let refused = written.check().unwrap_err().to_string();
            assert!(refused.starts_with(said), "{refused}");
        }
        let all = Written {
            ca: Some("ca".into()),
            cert: Some("c".into()),
            key: Some("k".into()),
            user: Some("u".into()),
            password_file: Some("p".into()),
            ..tls
        };
        // What was written is what is shown.
        let open = Written { plaintext: true, ..with(&["http://e.example:2379", "https://localhost:1"]) };
        let mixed = Written { ca: Some("ca".into()), ..with(&["http://localhost:1", "https://localhost:1"]) };
        for written in [all, open, mixed, with(&["http://localhost:1"])] {
            assert_eq!(written.clone().check().map(|settings| settings.written()), Ok(written));
        }
    }

    #[test]
    fn files_of_certificates_are_read_where_a_member_is_under_tls() {
        let certificates = Certificates::new("DNS:localhost").unwrap();
        let none = || certificates.authority().with_file_name("none.pem");
        let written = |ca, cert| {
            let written = with(&["http://localhost:1", "https://localhost:1"]);
            Written { ca: Some(ca), cert: Some(cert), key: Some(certificates.key()), ..written }
        };
        let there = (certificates.authority(), certificates.certificate());
        for (ca, cert, wrong) in [
            (there.0.clone(), there.1.clone(), None),
            (none(), there.1, Some("etcd_ca")),
            (there.0, none(), Some("etcd_cert")),
        ] {
            let checked = written(ca, cert).check().unwrap().check_files();
            let Some(wrong) = wrong else {
                assert_eq!(checked, Ok(()));
                continue;
            };
            let (key, said) = checked.unwrap_err().parts();
            assert!(key == wrong && said.contains("none.pem"), "{key}: {said}");
        }
    }

    #[test]
    fn a_password_is_in_a_file_for_its_owner_and_no_error_shows_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let written = Written {
            user: Some("tidegate".to_owned()),
            password_file: Some(path.clone()),
            ..with(&["http://localhost:1"])
        };
        let settings = written.check().unwrap();
        assert!(
            settings.check_files().unwrap_err().to_string().starts_with("etcd_password_file: cannot read")
        );
        let put = |bytes: &[u8], mode: u32| {
            write(&path, bytes).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        put(b"s3cret\n", 0o644);
        let refused = settings.check_files().unwrap_err().to_string();
        assert!(refused.contains("can read the password; run: chmod 600"), "{refused}");
        for wrong in [&b""[..], b"\n", b"s3cret\xff", &[b's'; 1_025]] {
            put(wrong, 0o600);
            let refused = settings.check_files().unwrap_err().to_string();
            assert!(refused.contains("holds no password") && !refused.contains("s3cret"), "{refused}");
        }
        let longest = "s".repeat(MOST_PASSWORD);
        for (bytes, text) in [
            (&b"s3cret"[..], "s3cret"),
            (b"s3cret \r\n", "s3cret "),
            (b"a\n\n", "a\n"),
            (format!("{longest}\n").as_bytes(), &longest),
        ] {
            put(bytes, 0o600);
            assert_eq!(password(&path).unwrap(), text);
        }
        assert!(settings.check_files().is_ok() && !format!("{settings:?}").contains("s3cret"));
    }

    #[test]
    fn files_of_tls_are_named_by_their_settings() {
        let written = Written { ca: Some("/none/ca".into()), ..with(&["https://localhost:1"]) };
        let refused = written.check().unwrap().check_files().unwrap_err().to_string();
        assert!(refused.starts_with("etcd_ca: cannot read /none/ca"), "{refused}");
    }
}
