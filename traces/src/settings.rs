//! What the configuration says of traces, checked.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_tls::{Address, AddressError, Material};

/// Headers in a file: a collector asks for one or two.
const MAX_HEADERS: usize = 16;
/// Where collectors take spans.
const PATH: &str = "/v1/traces";
/// Of a million.
const WHOLE: u32 = 1_000_000;

/// Where spans are sent, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// The collector.
    pub endpoint: Address,
    /// Which traces begin where no caller says.
    pub share: Share,
    /// A file, for its owner only, with headers that the collector wants, such as a token.
    pub headers_file: Option<PathBuf>,
    /// Authorities that sign the certificate of the collector; those the machine trusts when left out.
    pub authorities: Option<PathBuf>,
    /// Whether spans may go to another machine without TLS.
    pub plaintext: bool,
}

impl TraceSettings {
    /// Checks the file of headers. Blocks for a small file.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn check_headers(&self) -> Result<(), TraceError> {
        self.headers_file.as_deref().map_or(Ok(()), |file| headers(file).map(drop))
    }
}

/// A share, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

/// Settings of traces that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The address of the collector.
    #[error("trace_endpoint: {0}")]
    Endpoint(String),
    /// The share.
    #[error(
        "trace_sample: {text:?} is no share; write a decimal from 0 to 1, such as 0.01 for one trace of a hundred"
    )]
    Share {
        /// As written.
        text: String,
    },
    /// A setting that does nothing without a collector.
    #[error("{key}: has no effect without trace_endpoint; write http://HOST:4318 there, or leave both out")]
    Idle {
        /// The setting.
        key: &'static str,
    },
    /// The authorities of a collector that is not under TLS.
    #[error("trace_ca: has no effect without TLS; write https:// in trace_endpoint")]
    Plain,
    /// The file of headers.
    #[error("trace_headers_file: {0}")]
    Headers(String),
}

impl TraceError {
    /// The setting, and what is wrong with it.
    pub fn parts(&self) -> (&'static str, String) {
        let text = self.to_string();
        let message = text.split_once(": ").map(|(_, message)| message.to_owned()).unwrap_or_default();
        let key = match self {
            Self::Endpoint(_) => "trace_endpoint",
            Self::Share { .. } => "trace_sample",
            Self::Idle { key } => key,
            Self::Plain => "trace_ca",
            Self::Headers(_) => "trace_headers_file",
        };
        (key, message)
    }
}

/// The settings as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// `trace_endpoint`.
    pub endpoint: Option<String>,
    /// `trace_sample`.
    pub sample: Option<String>,
    /// `trace_headers_file`.
    pub headers_file: Option<PathBuf>,
    /// `trace_ca`.
    pub ca: Option<PathBuf>,
    /// `trace_plaintext_off_loopback`.
    pub plaintext: bool,
}

impl Written {
    /// Checks them beside each other; `None` where spans are sent nowhere.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub fn check(self) -> Result<Option<TraceSettings>, TraceError> {
        let Some(written) = &self.endpoint else {
            let idle = [
                ("trace_sample", self.sample.is_some()),
                ("trace_headers_file", self.headers_file.is_some()),
                ("trace_ca", self.ca.is_some()),
                ("trace_plaintext_off_loopback", self.plaintext),
            ];
            let idle = idle.into_iter().find(|(_, given)| *given);
            return idle.map_or(Ok(None), |(key, _)| Err(TraceError::Idle { key }));
        };
        let endpoint = endpoint(written, self.plaintext)?;
        if self.ca.is_some() && !endpoint.is_secure() {
            return Err(TraceError::Plain);
        }
        let share = self.sample.as_deref().map_or(Ok(Share::default()), str::parse)?;
        let (headers_file, authorities, plaintext) = (self.headers_file, self.ca, self.plaintext);
        Ok(Some(TraceSettings { endpoint, share, headers_file, authorities, plaintext }))
    }
}

/// The address of a collector. One without a path is as in `OTEL_EXPORTER_OTLP_ENDPOINT`.
fn endpoint(text: &str, plaintext: bool) -> Result<Address, TraceError> {
    let address = Address::parse(text, plaintext).map_err(|error| {
        let wrong = match error {
            AddressError::None => "is no address; write https://HOST:4318",
            AddressError::User => {
                "has a user in it; leave it out, and put what proves who sends into trace_headers_file"
            }
            AddressError::Plain => {
                "is on another machine without TLS, so that all on the way can read groups and statements: write \
                 https://, or set trace_plaintext_off_loopback if the network is trusted"
            }
        };
        TraceError::Endpoint(wrong.to_owned())
    })?;
    Ok(address.or_at(PATH))
}

impl Default for Share {
    /// One of a hundred. With ten times as many, a gateway at full speed fills its queue; with a tenth, an hour of a
    /// small service shows nothing.
    fn default() -> Self {
        Self(WHOLE / 100)
    }
}

impl Share {
    /// Whether a trace with this random number is taken.
    pub(crate) fn takes(self, random: u32) -> bool {
        u64::from(random) * u64::from(WHOLE) < u64::from(self.0) << 32
    }
}

impl FromStr for Share {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let shown: String = text.chars().take(32).collect();
        let wrong = || TraceError::Share { text: shown.clone() };
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || whole.len() > 1 || part.len() > 6 {
            return Err(wrong());
        }
        let millionths: u32 = format!("{whole}{part:0<6}").parse().map_err(|_| wrong())?;
        Some(Self(millionths)).filter(|share| share.0 <= WHOLE).ok_or_else(wrong)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / WHOLE, self.0 % WHOLE);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// The headers in a file, a line each: `name: value`. Blocks.
///
/// # Errors
/// It cannot be read, others can read it, or a line is no header. No value is in the error.
pub(crate) fn headers(path: &Path) -> Result<HeaderMap, TraceError> {
    let material = Material::read_key(path).map_err(|error| TraceError::Headers(error.to_string()))?;
    let mut headers = HeaderMap::new();
    let lines = material.bytes().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    for (number, line) in (1..).zip(lines).filter(|(_, line)| !line.is_empty()) {
        let wrong = |what: &str| TraceError::Headers(format!("{}: line {number} {what}", path.display()));
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = colon.and_then(|at| line.split_at_checked(at)).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let name = HeaderName::from_bytes(name).map_err(|_| wrong("is no header; write `name: value`"))?;
        if ["host", "transfer-encoding", "connection"].contains(&name.as_str())
            || name.as_str().starts_with("content-")
        {
            return Err(wrong("is a header that the exporter sets; leave it out"));
        }
        let mut value = HeaderValue::from_bytes(value)
            .map_err(|_| wrong("has a value that no header can have; write it in ASCII"))?;
        value.set_sensitive(true);
        headers.append(name, value);
        if headers.len() > MAX_HEADERS {
            return Err(wrong(&format!("is one header too many: at most {MAX_HEADERS}")));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn checked(endpoint: &str, change: impl FnOnce(&mut Written)) -> Result<Option<TraceSettings>, String> {
        let mut written = Written { endpoint: Some(endpoint.to_owned()), ..Written::default() };
        change(&mut written);
        written.check().map_err(|error| {
            let (key, message) = error.parts();
            assert_eq!(error.to_string(), format!("{key}: {message}"));
            error.to_string()
        })
    }

    #[test]
    fn a_collector_is_under_tls_or_here_and_shows_its_host_alone() {
        for (text, sent_to) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("https://otel.example/key/v1/traces", "https://otel.example/key/v1/traces"),
            ("https://otel.example/?key=s", "https://otel.example/?key=s"),
        ] {
            let endpoint = checked(text, |_| {}).unwrap().unwrap().endpoint;
            assert_eq!(endpoint.reveal(), sent_to);
            assert!(text.starts_with(&endpoint.to_string()) && !format!("{endpoint:?}").contains("key"));
        }
        for (text, said) in [
            ("", "trace_endpoint: is no address"),
            ("otel.example:4318", "trace_endpoint: is no address"),
            ("grpc://otel.example", "trace_endpoint: is no address"),
            ("https://ann:s3cret@otel.example", "trace_endpoint: has a user"),
            ("http://otel.example/s3cret", "trace_plaintext_off_loopback"),
        ] {
            let refused = checked(text, |_| {}).unwrap_err();
            assert!(refused.contains(said) && !refused.contains("s3cret"), "{text}: {refused}");
        }
        assert!(checked("http://otel.example", |written| written.plaintext = true).is_ok());
        assert!(checked("http://localhost", |written| written.ca = Some("ca".into())).is_err());
        assert!(checked("https://otel.example", |written| written.ca = Some("ca".into())).is_ok());
    }

    #[test]
    fn nothing_is_the_default_and_a_setting_alone_is_refused() {
        assert_eq!(Written::default().check(), Ok(None));
        for (change, key) in [
            (Written { sample: Some("1".into()), ..Written::default() }, "trace_sample"),
            (Written { headers_file: Some("h".into()), ..Written::default() }, "trace_headers_file"),
            (Written { ca: Some("ca".into()), ..Written::default() }, "trace_ca"),
            (Written { plaintext: true, ..Written::default() }, "trace_plaintext_off_loopback"),
        ] {
            assert_eq!(change.check(), Err(TraceError::Idle { key }));
        }
    }

    #[test]
    fn a_share_is_a_decimal_from_nothing_to_all() {
        for (text, millionths) in
            [("0", 0), ("1", 1_000_000), ("0.01", 10_000), ("0.5", 500_000), ("1.000000", 1_000_000)]
        {
            let share: Share = text.parse().unwrap();
            assert_eq!((share, share.to_string().parse()), (Share(millionths), Ok(share)), "{text}");
        }
        for text in
            ["", ".", "1.", ".5", "2", "1.000001", "-1", "1%", "0.0000001", "1e-3", "0,5", " 1", "+", "0.+1"]
        {
            let refused = checked("http://localhost", |written| written.sample = Some(text.to_owned()));
            assert!(refused.unwrap_err().starts_with("trace_sample: "), "{text}");
        }
        assert_eq!(Share::default().to_string(), "0.01");
        let (none, all) = (Share(0), Share(WHOLE));
        assert!(!none.takes(0) && all.takes(u32::MAX) && Share(1).takes(4_294) && !Share(1).takes(4_295));
    }

    #[test]
    fn headers_are_in_a_file_for_its_owner_and_no_error_shows_a_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        let with = |text: &str, mode| {
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            headers(&path).map_err(|error| error.to_string())
        };
        let read = with("authorization: Bearer s3cret\n\nX-Tenant:shop\n", 0o600).unwrap();
        assert_eq!(read.len(), 2);
        assert!(read["authorization"] == "Bearer s3cret" && read["x-tenant"] == "shop");
        assert!(!format!("{read:?}").contains("s3cret"), "no line of a log may show it");
        assert!(with("a: s3cret", 0o644).unwrap_err().contains("chmod 600"));
        for (text, said) in [
            ("s3cret", "line 1 is no header"),
            (": s3cret", "line 1 is no header"),
            ("a: b\ncontent-type: s3cret", "line 2 is a header that the exporter sets"),
            ("\n\nContent-Length: s3cret", "line 3 is a header that the exporter sets"),
            ("Host: s3cret", "line 1 is a header that the exporter sets"),
            ("transfer-encoding: s3cret", "line 1 is a header that the exporter sets"),
            ("Connection: s3cret", "line 1 is a header that the exporter sets"),
            ("a b: s3cret", "line 1 is no header"),
            ("a: s3cret\x01", "line 1 has a value"),
            (&"a: s3cret\n".repeat(17), "line 17 is one header too many"),
        ] {
            let refused = with(text, 0o600).unwrap_err();
            assert!(refused.contains(said) && !refused.contains("s3cret"), "{refused}");
        }
        let most = with(&"a: b\r\n".repeat(MAX_HEADERS), 0o600).unwrap();
        assert!(most.len() == MAX_HEADERS && most.get_all("a").iter().all(|value| value == "b"));
        assert!(with("", 0o600).unwrap().is_empty() && with("a:", 0o600).unwrap()["a"].is_empty());
        assert_eq!(with("a: b:c", 0o600).unwrap()["a"], "b:c");
        assert!(headers(&folder.path().join("none")).is_err());
    }
}
