//! Connects gRPC clients: over TCP, and under TLS where the address says `https://`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tower::{Service, ServiceExt as _};

use crate::client::{ClientFiles, HTTP1, HTTP2};
use crate::explain::explain;
use crate::files::TlsError;
use crate::stream::{Refused, Stream};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The server cannot be reached.
    #[error("no connection to {host}")]
    Connect {
        /// The server.
        host: String,
        /// Why; the operating system's word is its last cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file of this side.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The handshake failed, and why.
    #[error("{0}")]
    Handshake(String),
}

/// Whether [`Dial`] knows how to reach an endpoint.
///
/// # Errors
/// What is wrong with it.
pub fn check_scheme(endpoint: &str) -> Result<(), String> {
    let is_known = ["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme));
    if is_known { Ok(()) } else { Err("it begins with neither http:// nor https://".to_owned()) }
}

/// Opens connections to the address that is asked for, or to the first that answers of several.
#[derive(Clone, Debug)]
pub struct Dial {
    http: HttpConnector,
    within: Duration,
    files: Arc<ClientFiles>,
    places: Arc<[Uri]>,
    refused: Refused,
    speaks: &'static [u8],
}

impl Dial {
    /// By these files; each attempt may take so long, its handshake included.
    pub fn new(files: ClientFiles, within: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(within));
        Self {
            http,
            within,
            files: Arc::new(files),
            places: Arc::from([]),
            refused: Refused::default(),
            speaks: HTTP2,
        }
    }

    /// Why the server ended a connection that was opened here, if it said so: in TLS 1.3 it refuses a client's certificate
    /// only after the client holds the handshake for done.
    pub fn refused(&self) -> Option<String> {
        self.refused.load().as_deref().cloned()
    }

    /// For a server that need not speak HTTP/2.
    #[must_use]
    pub fn speaking_http1(mut self) -> Self {
        self.speaks = HTTP1;
        self
    }

    /// Connects to the first of these that answers, whatever is asked for.
    #[must_use]
    pub fn over(mut self, places: Vec<Uri>) -> Self {
        self.places = places.into();
        self
    }

    async fn connect(self, asked: Uri) -> Result<Stream, DialError> {
        let Some((last, first)) = self.places.split_last() else { return self.one(asked).await };
        for place in first {
            if let Ok(stream) = self.one(place.clone()).await {
                return Ok(stream);
            }
        }
        self.one(last.clone()).await
    }

    async fn one(&self, uri: Uri) -> Result<Stream, DialError> {
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let is_secure = uri.scheme_str() == Some("https");
        let name = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let failed = |source| DialError::Connect { host: host.clone(), source };
        let connected = self.http.clone().oneshot(uri).await;
        let tcp = connected.map_err(|error| failed(Box::new(error)))?.into_inner();
        if !is_secure {
            return Ok(Stream::plain(tcp, host, Arc::clone(&self.refused)));
        }
        match tokio::time::timeout(self.within, self.secure(tcp, name, &host)).await {
            Ok(secure) => secure,
            Err(_) => Err(failed(Box::new(io::Error::from(io::ErrorKind::TimedOut)))),
        }
    }

    async fn secure(&self, tcp: TcpStream, name: String, host: &str) -> Result<Stream, DialError> {
        let (files, speaks) = (Arc::clone(&self.files), self.speaks);
        let read = tokio::task::spawn_blocking(move || files.load_speaking(speaks)).await;
        let config = read.map_err(|error| DialError::Handshake(error.to_string()))??;
        let name = ServerName::try_from(name).map_err(|error| {
            DialError::Handshake(format!("{host} is no name that a certificate can have: {error}"))
        })?;
        match TlsConnector::from(config).connect(name, tcp).await {
            Ok(tls) => Ok(Stream::secure(tls, host.to_owned(), Arc::clone(&self.refused))),
            Err(error) => {
                let said = explain(&error, host, speaks)
                    .unwrap_or_else(|| format!("TLS with {host} failed: {error}"));
                Err(DialError::Handshake(said))
            }
        }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Stream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Stream>, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, asked: Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move { dial.connect(asked).await.map(TokioIo::new) })
    }
}
