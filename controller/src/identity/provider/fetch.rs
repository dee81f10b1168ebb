//! Brings a provider's keys: one GET over HTTPS, bounded in time and bytes, without a redirect.

use std::time::Duration;

use axum::body::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use tidegate_tls::{ClientFiles, outgoing, root_cause};

use super::settings::{Provider, Source, address};

/// Time for one answer. Half of it is short for a provider that is far away; twice of it only waits for one that hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of one answer. The largest providers show some tens of kilobytes; twice of it would only be held.
const MOST_BYTES: usize = 256 << 10;

/// The part of a discovery document that counts.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

/// The bytes of a provider's JWK set.
///
/// # Errors
/// What went wrong, and where.
pub(super) async fn keys(provider: &Provider) -> Result<Vec<u8>, String> {
    let url = match &provider.source {
        Source::File(path) => {
            let bytes = tokio::fs::read(path).await;
            let bytes = bytes.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let is_small = bytes.len() <= MOST_BYTES;
            return if is_small { Ok(bytes) } else { Err(format!("{} is {}", path.display(), too_large())) };
        }
        Source::Url(url) => url.clone(),
        Source::Discovery => {
            let at = provider.document();
            let bytes = get(&at, provider).await?;
            let document: Document = serde_json::from_slice(&bytes)
                .map_err(|_| format!("{at} is no discovery document: it has no issuer or no jwks_uri"))?;
            if document.issuer != provider.issuer {
                let named = crate::quantity::cut(&document.issuer);
                return Err(format!(
                    "{at} is of the issuer {named:?}, and the configuration says {:?}: they have to be equal, letter by letter",
                    provider.issuer
                ));
            }
            document.jwks_uri
        }
    };
    get(&url, provider).await
}

async fn get(url: &str, provider: &Provider) -> Result<Vec<u8>, String> {
    let uri = address("jwks_uri", url).map_err(|error| error.to_string())?;
    let files = ClientFiles { authorities: provider.authorities.clone(), identity: None };
    match tokio::time::timeout(ANSWER_WITHIN, exchange(&uri, files)).await {
        Ok(answer) => answer.map_err(|reason| format!("{url}: {reason}")),
        Err(_) => Err(format!("{url}: no answer within {} s", ANSWER_WITHIN.as_secs())),
    }
}

async fn exchange(uri: &Uri, files: ClientFiles) -> Result<Vec<u8>, String> {
    let request = Request::get("/").header(header::ACCEPT, "application/json");
    let sent =
        outgoing::send(uri, files, ("ca in [[provider]]", ANSWER_WITHIN), request, Bytes::new()).await?;
    // The connection lasts until the body is read.
    let (answer, _connection) = (sent.response, sent.connection);
    match answer.status() {
        StatusCode::OK => {}
        status if status.is_redirection() => {
            return Err(format!(
                "it answers {status}: write the address that it points to (redirects are not followed)"
            ));
        }
        status => return Err(format!("it answers {status}")),
    }
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    body.map(|body| body.to_bytes().to_vec()).map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => root_cause(&error),
        Err(_) => format!("the answer is {}", too_large()),
    })
}

fn too_large() -> String {
    format!("larger than {} KiB", MOST_BYTES >> 10)
}
