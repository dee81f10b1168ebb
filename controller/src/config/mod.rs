//! The controller's settings: one TOML text, checked as a whole.
//!
//! Durations and rates carry their unit in the text. All errors are reported together, each with its key; unknown keys
//! are errors. Listening beyond the local machine needs TLS and callers who prove who they are, or a setting that names
//! what is given up without: `plaintext_off_loopback` and `allow_remote`.

mod access;
mod alarms;
mod cluster;
mod provider;
mod reader;
mod tls;
mod traces;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tidegate_core::units::{Rate, Span};
use tidegate_tls::{Clients, ServerFiles};
use tidegate_traces::TraceSettings;

pub use access::{Access, Authentication};
pub use cluster::ClusterSettings;

use crate::alarms::AlarmSettings;
use crate::identity::Role;
use crate::identity::provider::Provider;
use reader::Reader;

/// Port of the gRPC listener.
pub const GRPC_PORT: u16 = 7420;
/// Port of the REST listener.
pub const HTTP_PORT: u16 = 7421;

/// Largest configurable drift between two clocks: 10 %.
const MAX_DRIFT_PPM: u32 = 100_000;
/// Longest margin; a longer one would only keep dead leases.
const MAX_MARGIN: Span = Span::secs(60);
/// Range of the fence: at least two commits of a busy disk, at most as long as anyone waits for a successor.
const FENCE: (Span, Span) = (Span::secs(1), Span::secs(60));
/// The fence of a cluster: a successor waits for it, and leases of five seconds have to outlast the change. Five beats
/// fit into it; half of it would be over when a member of etcd that leads is replaced.
pub const FENCE_OF_A_CLUSTER: Span = Span::secs(1);

/// Settings of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The store's file.
    pub store: PathBuf,
    /// Address of the gRPC listener.
    pub grpc_listen: SocketAddr,
    /// Address of the REST listener, which also serves `/metrics` and `/openapi.json`.
    pub http_listen: SocketAddr,
    /// Host names of proxies, which REST accepts besides those of loopback while it listens on loopback.
    pub http_hosts: Vec<String>,
    /// Whether callers from other machines need not prove who they are, and may do everything.
    pub allow_remote: bool,
    /// Whether callers from other machines may speak without TLS.
    pub plaintext_off_loopback: bool,
    /// Certificate, key and trust of both listeners; `None` is plain text.
    pub tls: Option<ServerFiles>,
    /// Who may call.
    pub access: Access,
    /// RU/s of the whole server; `None` is no limit.
    pub capacity: Option<Rate>,
    /// How much faster or slower a node's clock may run, in millionths.
    pub drift_ppm: u32,
    /// Added to every lease on the controller's side.
    pub margin: Span,
    /// Time without a successful write to the store after which nothing is granted; `None`: grants do not depend on the
    /// store.
    pub fence: Option<Span>,
    /// When alarms are raised, and who is told.
    pub alarms: AlarmSettings,
    /// Where spans are sent; `None`: there are none.
    pub traces: Option<TraceSettings>,
    /// The controllers that this one shares its log with; `None`: it is alone.
    pub cluster: Option<ClusterSettings>,
}

impl Default for Config {
    fn default() -> Self {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            store: PathBuf::from("tidegate.redb"),
            grpc_listen: SocketAddr::new(local, GRPC_PORT),
            http_listen: SocketAddr::new(local, HTTP_PORT),
            http_hosts: Vec::new(),
            allow_remote: false,
            plaintext_off_loopback: false,
            tls: None,
            access: Access::default(),
            capacity: None,
            drift_ppm: 1_000,
            margin: Span::millis(50),
            fence: None,
            alarms: AlarmSettings::default(),
            traces: None,
            cluster: None,
        }
    }
}

/// One error of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is no TOML.
    #[error("the configuration is not valid TOML: {0}")]
    Syntax(String),
    /// No setting has this name.
    #[error("{key}: unknown setting; the settings are {known}")]
    Unknown {
        /// The key as written.
        key: String,
        /// The keys that are known.
        known: String,
    },
    /// A value is malformed or out of range.
    #[error("{key}: {message}")]
    Value {
        /// The setting.
        key: &'static str,
        /// What is wrong and what to write.
        message: String,
    },
}

impl Config {
    /// Reads a TOML text. Settings that it does not contain keep their defaults.
    pub fn parse(text: &str) -> Result<Self, Vec<ConfigError>> {
        let table = text.parse().map_err(|error: toml::de::Error| {
            let message = error.to_string().trim().replace('\n', " | ");
            vec![ConfigError::Syntax(message)]
        })?;
        let mut reader = Reader::new(table);
        let defaults = Self::default();
        let cluster = cluster::cluster(&mut reader);
        let fence = cluster.is_some().then_some(FENCE_OF_A_CLUSTER);
        let config = Self {
            cluster,
            store: reader.path("store").unwrap_or(defaults.store),
            grpc_listen: reader.address("grpc_listen").unwrap_or(defaults.grpc_listen),
            http_listen: reader.address("http_listen").unwrap_or(defaults.http_listen),
            http_hosts: reader.hosts("http_hosts").unwrap_or(defaults.http_hosts),
            allow_remote: reader.switch("allow_remote").unwrap_or(defaults.allow_remote),
            plaintext_off_loopback: reader
                .switch("plaintext_off_loopback")
                .unwrap_or(defaults.plaintext_off_loopback),
            tls: tls::files(&mut reader),
            access: access::access(&mut reader),
            capacity: reader.limit("capacity").unwrap_or(defaults.capacity),
            drift_ppm: reader.number("drift_ppm", 0, MAX_DRIFT_PPM).unwrap_or(defaults.drift_ppm),
            margin: reader.span("margin", Span(0), MAX_MARGIN).unwrap_or(defaults.margin),
            fence: reader.span("fence", FENCE.0, FENCE.1).or(fence),
            alarms: alarms::alarms(&mut reader),
            traces: traces::traces(&mut reader),
        };
        let mut errors = reader.finish();
        errors.extend(config.check().err().unwrap_or_default());
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }

    /// Rules between settings. Flags are applied after the file, so this is checked again at start.
    pub fn check(&self) -> Result<(), Vec<ConfigError>> {
        let listeners = [("grpc_listen", self.grpc_listen), ("http_listen", self.http_listen)];
        let mut errors: Vec<ConfigError> = listeners
            .into_iter()
            .filter(|(_, address)| !address.ip().is_loopback())
            .filter_map(|(key, address)| {
                let gaps = self.gaps();
                let message =
                    format!("{address} can be reached from other machines{gaps}; or listen on 127.0.0.1");
                (!gaps.is_empty()).then_some(ConfigError::Value { key, message })
            })
            .collect();
        let same = self.grpc_listen == self.http_listen && self.grpc_listen.port() != 0;
        if same {
            let message = format!("{} is also grpc_listen; choose another port", self.http_listen);
            errors.push(ConfigError::Value { key: "http_listen", message });
        }
        let idle = self.idle().map(|(key, message)| ConfigError::Value { key, message: message.to_owned() });
        errors.extend(idle);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Whether callers prove who they are. Authorities that are named for them are meant.
    pub fn authentication(&self) -> Authentication {
        let default = if matches!(self.clients(), Clients::Anonymous) {
            Authentication::Off
        } else {
            Authentication::Required
        };
        self.access.authentication.unwrap_or(default)
    }

    /// Whether nobody can show a certificate, so that tokens alone prove who calls.
    pub fn certifies_nobody(&self) -> bool {
        matches!(self.clients(), Clients::Anonymous)
    }

    /// Whether a provider can make somebody an admin.
    pub fn provides_admins(&self) -> bool {
        let is_admin = |provider: &Provider| provider.roles.iter().any(|role| role.role == Role::Admin);
        self.access.providers.iter().any(is_admin)
    }

    /// What callers show.
    fn clients(&self) -> &Clients {
        self.tls.as_ref().map_or(&Clients::Anonymous, |tls| &tls.clients)
    }

    /// A setting of access that has no effect beside the others, and what to do.
    fn idle(&self) -> Option<(&'static str, &'static str)> {
        let is_required = self.authentication() == Authentication::Required;
        match self.clients() {
            Clients::Anonymous if is_required && !self.access.rules.is_empty() => {
                Some(("identity", "has no effect where nobody shows a certificate: set tls_client_ca"))
            }
            _ if !is_required && !self.access.rules.is_empty() => {
                Some(("identity", "has no effect while authentication is off: set tls_client_ca"))
            }
            _ if !is_required && self.access.anonymous_role.is_some() => {
                Some(("anonymous_role", "has no effect while authentication is off: set tls_client_ca"))
            }
            _ if !is_required && !self.access.providers.is_empty() => Some((
                "provider",
                "has no effect while authentication is off: set authentication = \"required\"",
            )),
            Clients::Required(_) if self.access.anonymous_role.is_some() => Some((
                "anonymous_role",
                "has no effect while all callers have to show a certificate: set tls_clients = \"optional\"",
            )),
            _ => None,
        }
    }

    /// What a listener beyond the local machine lacks that nobody gave up by name.
    fn gaps(&self) -> String {
        let mut gaps = String::new();
        if self.tls.is_none() && !self.plaintext_off_loopback {
            gaps += "; without TLS, whoever is between can read and change what is said: set tls_cert and tls_key, or \
                     plaintext_off_loopback = true if the network is trusted";
        }
        // With authentication off, a certificate that is required still keeps others out.
        let is_proven = self.authentication() == Authentication::Required
            || matches!(self.clients(), Clients::Required(_));
        if !is_proven && !self.allow_remote {
            gaps += "; callers are not authenticated: require certificates of them by tls_client_ca, or tokens by \
                     authentication = \"required\", or set \
                     allow_remote = true if all who reach it may do everything";
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Rule, Rules};

    #[test]
    fn an_empty_text_is_the_default_and_listens_locally() {
        let config = Config::parse("").unwrap();
        assert_eq!(config, Config::default());
        assert!(config.grpc_listen.ip().is_loopback() && config.http_listen.ip().is_loopback());
    }

    #[test]
    fn every_setting_is_read() {
        let text = r#"
            store = "/var/lib/tidegate/store"
            grpc_listen = "0.0.0.0:1"
            http_listen = "[::]:2"
            http_hosts = ["rates.example"]
            allow_remote = true
            plaintext_off_loopback = true
            tls_cert = "cert.pem"
            tls_key = "key.pem"
            tls_client_ca = "ca.pem"
            tls_client_crl = "crl.pem"
            tls_clients = "optional"
            authentication = "required"
            anonymous_role = "viewer"
            capacity = "20000 RU/s"
            drift_ppm = 500
            margin = "100ms"
            fence = "2s"
            [[identity]]
            san = "dns:a"
            role = "operator"
        "#;
        let config = Config::parse(text).unwrap();
        let expected = Config {
            store: "/var/lib/tidegate/store".into(),
            grpc_listen: "0.0.0.0:1".parse().unwrap(),
            http_listen: "[::]:2".parse().unwrap(),
            http_hosts: vec!["rates.example".to_owned()],
            allow_remote: true,
            plaintext_off_loopback: true,
            tls: Some(ServerFiles {
                certificate: "cert.pem".into(),
                key: "key.pem".into(),
                clients: Clients::Optional("ca.pem".into()),
                revoked: Some("crl.pem".into()),
            }),
            access: Access {
                authentication: Some(Authentication::Required),
                anonymous_role: Some(Role::Viewer),
                rules: Rules::new(vec![Rule::new("dns:a", "operator", None, None, None).unwrap()]),
                providers: Vec::new(),
            },
            capacity: Some(Rate::whole(20_000)),
            drift_ppm: 500,
            margin: Span::millis(100),
            fence: Some(Span::secs(2)),
            alarms: AlarmSettings::default(),
            traces: None,
            cluster: None,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn all_errors_come_at_once_with_their_keys() {
        let text = r#"
            store = 5
            grpc_listen = "here"
            http_listen = "0.0.0.0:80"
            capacity = "-1"
            drift_ppm = 100001
            margin = "1 day"
            fence = "500ms"
            http_hosts = ["http://rates.example"]
            colour = "red"
        "#;
        let errors: Vec<String> = Config::parse(text).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 9, "{errors:#?}");
        let keys = [
            "store",
            "grpc_listen",
            "http_listen",
            "http_hosts",
            "capacity",
            "drift_ppm",
            "margin",
            "fence",
            "colour",
        ];
        for key in keys {
            assert!(errors.iter().any(|error| error.starts_with(&format!("{key}: "))), "{key}: {errors:#?}");
        }
    }

    #[test]
    fn broken_toml_and_conflicting_listeners_are_refused() {
        assert!(matches!(Config::parse("a = ").unwrap_err().as_slice(), [ConfigError::Syntax(_)]));
        let same = "grpc_listen = \"127.0.0.1:9\"\nhttp_listen = \"127.0.0.1:9\"";
        assert_eq!(Config::parse(same).unwrap_err().len(), 1);
    }

    #[test]
    fn what_is_given_up_beyond_the_machine_has_a_name_each() {
        let remote = "grpc_listen = \"0.0.0.0:1\"\n";
        let (plain, anyone) = ("plaintext_off_loopback = true\n", "allow_remote = true\n");
        let tls = "tls_cert = \"c\"\ntls_key = \"k\"\n";
        let (required, optional) =
            ("tls_client_ca = \"ca\"\n", "tls_client_ca = \"ca\"\ntls_clients = \"optional\"\n");
        let missing = |rest: &[&str]| {
            let errors = Config::parse(&(remote.to_owned() + &rest.concat())).err().unwrap_or_default();
            let said: String = errors.iter().map(ToString::to_string).collect();
            (said.contains("plaintext_off_loopback"), said.contains("allow_remote"))
        };
        assert_eq!(missing(&[]), (true, true));
        assert_eq!(missing(&[anyone]), (true, false));
        assert_eq!(missing(&[plain]), (false, true));
        assert_eq!(missing(&[plain, anyone]), (false, false));
        assert_eq!(missing(&[tls]), (false, true));
        let off = "authentication = \"off\"\n";
        assert_eq!(missing(&[tls, optional]), (false, false));
        assert_eq!(missing(&[tls, optional, off]), (false, true));
        assert_eq!(missing(&[tls, required, off]), (false, false));
        assert_eq!(missing(&[tls, required]), (false, false));
        assert_eq!(missing(&[tls, anyone]), (false, false));
    }

    #[test]
    fn settings_of_tls_that_need_each_other_are_named() {
        for (text, key) in [
            ("tls_cert = \"c\"", "tls_cert: "),
            ("tls_key = \"k\"", "tls_key: "),
            ("tls_client_ca = \"ca\"", "tls_client_ca: "),
            ("tls_client_crl = \"crl\"", "tls_client_crl: "),
            ("tls_clients = \"optional\"", "tls_clients: "),
            ("tls_cert = \"\"\ntls_key = \"k\"\ntls_client_ca = \"ca\"", "tls_cert: is empty"),
            ("tls_cert = \"c\"\ntls_key = 5", "tls_key: 5 is an integer"),
            ("tls_cert = \"c\"\ntls_key = \"k\"\ntls_client_crl = \"crl\"", "tls_client_crl: "),
            ("tls_cert = \"c\"\ntls_key = \"k\"\ntls_clients = \"optional\"", "tls_clients: "),
            (
                "tls_cert = \"c\"\ntls_key = \"k\"\ntls_client_ca = \"a\"\ntls_clients = \"some\"",
                "tls_clients: ",
            ),
        ] {
            let errors = Config::parse(text).unwrap_err();
            assert!(errors.len() == 1 && errors[0].to_string().starts_with(key), "{text}: {errors:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = Config::parse(&text);
        }
    }
}
