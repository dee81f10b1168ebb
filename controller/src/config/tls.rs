//! The settings of TLS: `tls_cert` and `tls_key`, `tls_client_ca`, `tls_client_crl` and `tls_clients`.

use tidegate_tls::{Clients, ServerFiles};

use super::reader::Reader;

/// The files that the settings name; `None` without TLS, or where they are refused.
pub(super) fn files(reader: &mut Reader) -> Option<ServerFiles> {
    let (certificate, key) = (reader.path("tls_cert"), reader.path("tls_key"));
    let authorities = reader.path("tls_client_ca");
    let revoked = reader.path("tls_client_crl");
    let demand = reader.word("tls_clients", &["optional", "required"]);
    match (&certificate, &key) {
        // One that is there and cannot be read is an error of its own.
        (None, _) | (_, None) if ["tls_cert", "tls_key"].into_iter().any(|key| reader.has_refused(key)) => {}
        (Some(_), None) => reader.refuse("tls_cert", "goes with its key: set tls_key, too"),
        (None, Some(_)) => reader.refuse("tls_key", "goes with its certificate: set tls_cert, too"),
        (None, None) if authorities.is_some() => {
            reader.refuse("tls_client_ca", "has no meaning without TLS: set tls_cert and tls_key");
        }
        (None, None) if demand.is_some() => {
            reader
                .refuse("tls_clients", "has no meaning without TLS: set tls_cert, tls_key and tls_client_ca");
        }
        (None, None) if revoked.is_some() => {
            reader.refuse(
                "tls_client_crl",
                "has no meaning without TLS: set tls_cert, tls_key and tls_client_ca",
            );
        }
        (Some(_), Some(_)) if revoked.is_some() && authorities.is_none() => {
            reader.refuse("tls_client_crl", "names no authority: set tls_client_ca");
        }
        (Some(_), Some(_)) if demand.is_some() && authorities.is_none() => {
            reader.refuse("tls_clients", "names no authority: set tls_client_ca");
        }
        _ => {}
    }
    let clients = match (authorities, demand) {
        (None, _) => Clients::Anonymous,
        (Some(path), Some("optional")) => Clients::Optional(path),
        // An authority that is named is meant.
        (Some(path), _) => Clients::Required(path),
    };
    Some(ServerFiles { certificate: certificate?, key: key?, clients, revoked })
}
