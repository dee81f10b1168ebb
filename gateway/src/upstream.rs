//! The address of a database: `postgres://host:port`, `mysql://user:password@host:port`, or a Unix socket.
//!
//! In: a URL. Out: where to connect, and how. A user and password are only for the gateway's own connection to a
//! MySQL server, which finds threads and kills statements; logins of clients pass through untouched.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use url::Url;

use crate::clock;
use crate::keepalive::Keepalive;
use crate::stream::Stream;

/// Longest wait for a database to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The protocol that a database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL 3.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
}

/// Whether the connection to the database is under TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    #[default]
    Disable,
    /// Always; the server's certificate is not checked.
    Require,
    /// Always, with a certificate of a trusted authority for this host.
    VerifyFull,
}

/// Where a database is.
#[derive(Clone, PartialEq, Eq)]
pub struct Upstream {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it listens.
    pub place: Place,
    /// How it is reached.
    pub tls: TlsMode,
    /// For the gateway's own connection.
    pub user: String,
    /// For the gateway's own connection.
    pub password: Arc<str>,
}

/// Where a database listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// TCP.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// An address that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// It is not a URL.
    #[error(
        "upstream {start:?}.. is no URL ({reason}); write postgres://host:5432 or mysql://user:password@host:3306"
    )]
    Url {
        /// What was given, up to where a password may begin.
        start: String,
        /// What is wrong.
        reason: String,
    },
    /// An unknown protocol.
    #[error("upstream scheme {scheme:?} is none of postgres, postgresql, mysql, mariadb")]
    Scheme {
        /// What was given.
        scheme: String,
    },
    /// An option that does not exist.
    #[error(
        "upstream option {name:?} or its value is unknown; there are tls=disable|require|verify-full and socket=PATH"
    )]
    Option {
        /// Its name; empty where that may be a part of a password. The value may be one.
        name: String,
    },
    /// No host.
    #[error(
        "the upstream URL names no host; write postgres://host:5432, or postgres:///?socket=/path/of/the/socket"
    )]
    NoHost,
    /// TLS over a Unix socket.
    #[error("the upstream is a Unix socket, which has no TLS; leave tls= out")]
    TlsOverUnix,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Upstream {
    /// The URL without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Postgres => "postgres",
            Protocol::MySql => "mysql",
        };
        match &self.place {
            Place::Tcp { host, port } => write!(f, "{scheme}://{host}:{port}"),
            Place::Unix(path) => write!(f, "{scheme}:///?socket={}", path.display()),
        }
    }
}

impl Upstream {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, UpstreamError> {
        let malformed = |reason: url::ParseError| UpstreamError::Url {
            // Behind a scheme, and behind a user, may stand a password.
            start: text.split([':', '@', '?']).next().unwrap_or_default().to_owned(),
            reason: reason.to_string(),
        };
        let url = Url::parse(text).map_err(malformed)?;
        let (protocol, default_port) = match url.scheme() {
            "postgres" | "postgresql" => (Protocol::Postgres, 5432),
            "mysql" | "mariadb" => (Protocol::MySql, 3306),
            scheme => return Err(UpstreamError::Scheme { scheme: scheme.to_owned() }),
        };
        let (mut tls, mut socket) = (TlsMode::Disable, None);
        for (name, value) in url.query_pairs() {
            match (&*name, &*value) {
                ("tls", "disable") => tls = TlsMode::Disable,
                ("tls", "require") => tls = TlsMode::Require,
                ("tls", "verify-full") => tls = TlsMode::VerifyFull,
                ("socket", path) => socket = Some(PathBuf::from(path)),
                _ => {
                    // A ? in a password that is not encoded makes the rest of it an option.
                    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                    return Err(UpstreamError::Option {
                        name: if is_name { name.into_owned() } else { String::new() },
                    });
                }
            }
        }
        let place = match (socket, url.host_str().filter(|host| !host.is_empty())) {
            (Some(_), _) if tls != TlsMode::Disable => return Err(UpstreamError::TlsOverUnix),
            (Some(path), _) => Place::Unix(path),
            (None, Some(host)) => {
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Place::Tcp { host, port: url.port().unwrap_or(default_port) }
            }
            (None, None) => return Err(UpstreamError::NoHost),
        };
        let decoded = |text: &str| {
            // A user or password is percent-encoded in a URL; the query's decoder does that.
            let query = format!("v={}", text.replace('+', "%2B").replace('&', "%26"));
            url::form_urlencoded::parse(query.as_bytes())
                .next()
                .map(|(_, v)| v.into_owned())
                .unwrap_or_default()
        };
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        Ok(Self { protocol, place, tls, user, password: password.into() })
    }

    /// Opens a connection, not yet under TLS.
    pub(crate) async fn connect(&self, keepalive: Keepalive) -> std::io::Result<Stream> {
        let connect = async {
            match &self.place {
                Place::Tcp { host, port } => {
                    let tcp = TcpStream::connect((host.as_str(), *port)).await?;
                    tcp.set_nodelay(true)?;
                    keepalive.set(&tcp)?;
                    Ok(Stream::Tcp(tcp))
                }
                Place::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            }
        };
        clock::within(CONNECT_TIMEOUT, connect)
            .await
            .unwrap_or_else(|| Err(std::io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_tell_where_a_database_is_and_never_show_a_password() {
        let upstream = Upstream::parse("mysql://ga%40te:s%3Acr+t@db.example:3307?tls=verify-full").unwrap();
        assert_eq!((upstream.user.as_str(), &*upstream.password), ("ga@te", "s:cr+t"));
        let other = Upstream::parse("mysql://a&b:c&d=e%26;f@db.example").unwrap();
        assert_eq!((other.user.as_str(), &*other.password), ("a&b", "c&d=e&;f"));
        assert_eq!(upstream.place, Place::Tcp { host: "db.example".into(), port: 3307 });
        assert_eq!((upstream.tls, upstream.protocol), (TlsMode::VerifyFull, Protocol::MySql));
        assert_eq!(format!("{upstream:?}"), "mysql://db.example:3307");
        let six = Upstream::parse("postgres://[::1]").unwrap();
        assert_eq!(six.place, Place::Tcp { host: "::1".into(), port: 5432 });
        let plain = Upstream::parse("postgres://a?tls=verify-full&tls=disable").unwrap();
        assert_eq!(plain.tls, TlsMode::Disable, "the last one counts");
        let unix = Upstream::parse("postgres:///?socket=/run/s.5432").unwrap();
        assert_eq!(unix.place, Place::Unix("/run/s.5432".into()));
    }

    #[test]
    fn a_scheme_says_the_protocol_and_its_port_and_an_option_the_tls() {
        for (scheme, protocol, port, named) in [
            ("postgres", Protocol::Postgres, 5432, "postgres"),
            ("postgresql", Protocol::Postgres, 5432, "postgres"),
            ("mysql", Protocol::MySql, 3306, "mysql"),
            ("mariadb", Protocol::MySql, 3306, "mysql"),
        ] {
            let modes = [
                ("disable", TlsMode::Disable),
                ("require", TlsMode::Require),
                ("verify-full", TlsMode::VerifyFull),
            ];
            for (word, tls) in modes {
                let upstream = Upstream::parse(&format!("{scheme}://db?tls={word}")).unwrap();
                let place = Place::Tcp { host: "db".into(), port };
                assert_eq!((upstream.protocol, upstream.place, upstream.tls), (protocol, place, tls));
            }
            let plain = Upstream::parse(&format!("{scheme}://db:7")).unwrap();
            assert_eq!((plain.tls, plain.user.as_str(), &*plain.password), (TlsMode::Disable, "", ""));
            assert_eq!(plain.to_string(), format!("{named}://db:7"));
            let socket = Upstream::parse(&format!("{scheme}://ann:s3@db/?socket=/run/s")).unwrap();
            assert_eq!(socket.place, Place::Unix("/run/s".into()), "the socket, where both are there");
            assert_eq!(
                (socket.user.as_str(), socket.to_string()),
                ("ann", format!("{named}:///?socket=/run/s"))
            );
        }
    }

    #[test]
    fn what_cannot_be_used_is_told_without_secrets() {
        for (text, part) in [
            ("5432", "is no URL"),
            ("redis://a", "\"redis\""),
            ("postgres://", "names no host"),
            ("postgres://a?ssl=1", "\"ssl\""),
            ("postgres://a?ssl_mode=1", "\"ssl_mode\""),
            ("postgres:///?socket=/a&tls=require", "no TLS"),
            ("mysql:///?tls=verify-full&socket=/a", "no TLS"),
            ("mysql://a?tls=on", "\"tls\""),
            ("postgres://u:secret@a:99999", "is no URL"),
            ("mysql://u:secret:a:3306", "\"mysql\".. is no URL"),
            ("mysql//u:secret@a", "\"mysql//u\".. is no URL"),
            ("mysql://u:1?secret@a", "option \"\""),
            ("mysql://a?password=secret", "\"password\""),
        ] {
            let error = Upstream::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
