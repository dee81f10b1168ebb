//! TLS on either side: certificates of the gateway for its clients, and trust in databases.

use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tidegate_tls::{Clients, Server, ServerFiles, Trust, provider};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::config::Certificate;
use crate::upstream::TlsMode;

/// What cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error(transparent)]
    Files(#[from] tidegate_tls::TlsError),
    /// No certificate of one's own.
    #[error(
        "the gateway cannot make a certificate of its own: {0}; give it one, or start it with no_self_signed"
    )]
    SelfSigned(#[from] rcgen::Error),
    /// rustls refuses what it is built with.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] Error),
}

/// What clients of PostgreSQL call its protocol when they begin with TLS.
pub(crate) const ALPN: &[u8] = b"postgresql";

/// The name in a certificate of the gateway's own.
const SELF_SIGNED: &str = "tidegate, self-signed";

/// TLS towards clients.
#[derive(Clone)]
pub(crate) enum Acceptor {
    /// By files, which may be renewed.
    Given(Arc<Server>),
    /// By a certificate that the gateway made.
    Own(TlsAcceptor),
}

impl Acceptor {
    /// What a new connection is accepted by.
    fn in_force(&self) -> TlsAcceptor {
        match self {
            Self::Given(server) => server.acceptor(),
            Self::Own(acceptor) => acceptor.clone(),
        }
    }
}

/// A server by the certificate chain and key in these files, which offers these protocols by ALPN.
pub(crate) fn served(of: &Certificate, protocols: &[&[u8]]) -> Result<Arc<Server>, TlsError> {
    let (certificate, key) = (of.chain.clone(), of.key.clone());
    Ok(Server::load(ServerFiles { certificate, key, clients: Clients::Anonymous, revoked: None }, protocols)?)
}

/// For clients: a certificate and a key (P-256) that are made here and kept nowhere. They hide what is said from
/// listeners, and prove nothing.
pub(crate) fn self_signed() -> Result<TlsAcceptor, TlsError> {
    let key = KeyPair::generate()?;
    let mut of = CertificateParams::default();
    of.distinguished_name = DistinguishedName::new();
    of.distinguished_name.push(DnType::CommonName, SELF_SIGNED);
    let certificate = of.self_signed(&key)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// TLS towards a database.
#[derive(Clone)]
pub(crate) enum Connector {
    /// Trusting the authorities of a file, which may be renewed.
    Trusting(Arc<Trust>),
    /// Trusting the machine's authorities as they were at the start, or not looking at the certificate.
    Fixed(TlsConnector),
}

impl Connector {
    /// What a new connection is opened by.
    fn in_force(&self) -> TlsConnector {
        match self {
            Self::Trusting(trust) => Arc::clone(&trust.in_force().config).into(),
            Self::Fixed(connector) => connector.clone(),
        }
    }
}

/// For databases; `None` when the mode wants none. `authorities` replaces those the machine trusts.
pub(crate) fn connector(
    mode: TlsMode,
    authorities: Option<&Arc<Trust>>,
) -> Result<Option<Connector>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let config = match mode {
        TlsMode::Disable => return Ok(None),
        TlsMode::Require => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider())))
            .with_no_client_auth(),
        TlsMode::VerifyFull => match authorities {
            Some(trust) => return Ok(Some(Connector::Trusting(Arc::clone(trust)))),
            None => builder.with_root_certificates(tidegate_tls::trusted(None)?).with_no_client_auth(),
        },
    };
    Ok(Some(Connector::Fixed(TlsConnector::from(Arc::new(config)))))
}

/// Puts a connection to `host` under TLS.
pub(crate) async fn connect(
    connector: &Connector,
    host: &str,
    tcp: TcpStream,
) -> io::Result<client::TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    // A handshake is large, and a session without one should not hold the room for it.
    Box::pin(connector.in_force().connect(name, tcp)).await
}

/// Puts a client's connection under TLS.
pub(crate) async fn accept(acceptor: &Acceptor, tcp: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
    // As above.
    Box::pin(acceptor.in_force().accept(tcp)).await
}

/// Takes any certificate, as `tls=require` asks for: private against listeners, not against impostors.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::net::TcpListener;
    use tokio_rustls::server;

    use super::*;

    /// What a client of this mode, and a server with a certificate of its own, get of each other.
    pub(crate) async fn ends(
        mode: TlsMode,
    ) -> (io::Result<client::TlsStream<TcpStream>>, io::Result<server::TlsStream<TcpStream>>) {
        let (acceptor, connector) = (self_signed().unwrap(), connector(mode, None).unwrap().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        let (near, (far, _)) = (near.unwrap(), far.unwrap());
        tokio::join!(connect(&connector, "localhost", near), acceptor.accept(far))
    }

    #[tokio::test]
    async fn a_certificate_of_one_s_own_hides_and_proves_nothing() {
        for (mode, is_taken) in [(TlsMode::Require, true), (TlsMode::VerifyFull, false)] {
            let (near, far) = ends(mode).await;
            assert_eq!((near.is_ok(), far.is_ok()), (is_taken, is_taken));
            let Ok(near) = near else { continue };
            let certificate = near.get_ref().1.peer_certificates().unwrap()[0].to_vec();
            let names =
                |name: &str| certificate.windows(name.len()).filter(|part| *part == name.as_bytes()).count();
            // Its issuer and its subject, and nobody else.
            assert_eq!((names(SELF_SIGNED), names("rcgen")), (2, 0));
        }
    }
}
