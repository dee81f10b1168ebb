//! What an error of TLS means to the client that meets it, and what to do.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::certificate::date;
use crate::client::HTTP1;

/// What a listener of ours answers to who speaks to it without TLS.
pub const ONLY_TLS: &str = "this listener speaks TLS; use https://";

/// Explains an error of a connection to `host`, in which this side `speaks` a protocol, that may be one of TLS; `None` if it
/// is none.
pub fn explain(error: &io::Error, host: &str, speaks: &[u8]) -> Option<String> {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return Some(match error {
            Error::InvalidCertificate(fault) => certificate(fault, host),
            Error::AlertReceived(alert) => refused(*alert, host, speaks),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => {
                format!(
                    "{host} does not speak TLS on this port; write http://, or give its listener a certificate"
                )
            }
            Error::NoApplicationProtocol => not_spoken(host, speaks),
            other => format!("TLS with {host} failed: {other}"),
        });
    }
    let cut = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
    cut.then(|| {
        format!("{host} closed the connection during the handshake of TLS; does it speak TLS on this port?")
    })
}

/// The last cause of an error: what the operating system, the handshake or the server said.
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

fn certificate(fault: &CertificateError, host: &str) -> String {
    use CertificateError as Fault;
    match fault {
        Fault::UnknownIssuer => format!(
            "no authority that this side trusts has signed the certificate of {host}; name the file of the one that \
             did (--ca)"
        ),
        Fault::NotValidForNameContext { presented, .. } => format!(
            "the certificate of {host} is for {}; ask for one of these names, or issue it with the name {host}",
            if presented.is_empty() {
                "no name".to_owned()
            } else {
                presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ")
            }
        ),
        Fault::ExpiredContext { not_after, .. } => {
            let end = i64::try_from(not_after.as_secs()).unwrap_or(i64::MAX);
            format!("the certificate of {host} expired on {}; renew it there", date(end))
        }
        Fault::NotValidYetContext { not_before, .. } => {
            let begin = i64::try_from(not_before.as_secs()).unwrap_or(i64::MAX);
            format!("the certificate of {host} is valid from {} only; check the clocks", date(begin))
        }
        Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
            format!("the certificate of {host} is not for servers; issue one that is")
        }
        Fault::BadSignature => {
            format!(
                "the certificate of {host} is signed by another authority of the same name than this side trusts; name \
                 the file of the one that did (--ca)"
            )
        }
        other => format!("the certificate of {host} cannot be trusted: {other}"),
    }
}

/// A name as webpki shows it, such as `DnsName("a")`, without what it is.
fn bare(shown: &str) -> &str {
    let inner = shown.split_once('(').map_or(shown, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}

fn not_spoken(host: &str, speaks: &[u8]) -> String {
    let protocol = if speaks == HTTP1 { "HTTP/1.1" } else { "HTTP/2" };
    format!("{host} speaks no {protocol} on this port; check the port")
}

/// What the server says by ending the handshake.
fn refused(alert: AlertDescription, host: &str, speaks: &[u8]) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => {
            format!("{host} demands a certificate of its clients; name one and its key (--cert, --key)")
        }
        Alert::UnknownCA => format!(
            "{host} does not trust the authority of this side's certificate, or has no list of revoked certificates in \
             force for it; show one of an authority that it trusts, or renew the list there"
        ),
        Alert::CertificateRevoked => {
            format!("{host} says that this side's certificate is revoked; issue another one")
        }
        // Of one that is not valid yet it says the same.
        Alert::CertificateExpired => {
            format!(
                "{host} says that this side's certificate expired or is not valid yet; renew it, or check the clocks"
            )
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::DecryptError
        | Alert::AccessDenied => {
            format!(
                "{host} refuses this side's certificate ({alert:?}); is it for clients, and of its authority?"
            )
        }
        Alert::ProtocolVersion => format!("{host} speaks neither TLS 1.2 nor TLS 1.3"),
        Alert::NoApplicationProtocol => not_spoken(host, speaks),
        other => format!("{host} ended the handshake of TLS: {other:?}"),
    }
}
