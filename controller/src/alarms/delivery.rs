//! One try to tell a webhook: signed, sent, and what the answer says of it.

use std::time::Duration;

use axum::body::Bytes;
use http::{Request, StatusCode, header};
use tidegate_tls::{ClientFiles, outgoing};
use tokio::time::timeout;

use super::message;
use super::settings::{Webhook, secret};

/// Time for one try, from connecting to the head of the answer. Half of it is short for a receiver that is far away or
/// starts; twice of it only waits for one that hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The same in words.
const NO_ANSWER: &str = "no answer within 10 s";

/// What came of a try.
pub(super) enum Told {
    Arrived,
    /// The receiver does not take this body, and would not if it came again.
    Refused(String),
    Failed(String),
}

/// Sends a body once.
pub(super) async fn send(webhook: &Webhook, id: &str, body: Vec<u8>, unix_s: u64) -> Told {
    match timeout(ANSWER_WITHIN, post(webhook, id, body, unix_s)).await {
        Ok(told) => told,
        Err(_) => Told::Failed(NO_ANSWER.to_owned()),
    }
}

async fn post(webhook: &Webhook, id: &str, body: Vec<u8>, unix_s: u64) -> Told {
    // A secret that was changed counts from the next try on.
    let file = webhook.secret_file.clone();
    let secret = match tokio::task::spawn_blocking(move || secret(&file)).await {
        Ok(Ok(secret)) => secret,
        Ok(Err(reason)) => return Told::Failed(format!("secret_file: {reason}")),
        Err(error) => return Told::Failed(error.to_string()),
    };
    let Some(signature) = message::signature(&secret, unix_s, &body) else {
        return Told::Failed("secret_file: no key can be made of it".to_owned());
    };
    let request = Request::post("/")
        .header(header::CONTENT_TYPE, "application/json")
        .header("tidegate-delivery", id)
        .header("tidegate-signature", signature);
    let files = ClientFiles { authorities: webhook.authorities.clone(), identity: None };
    let (uri, place) = (webhook.url.uri(), ("ca in [[webhook]]", ANSWER_WITHIN));
    // The head of the answer says all; its body is not read.
    match outgoing::send(uri, files, place, request, Bytes::from(body)).await {
        Ok(answer) => judged(answer.response.status()),
        Err(reason) => Told::Failed(reason),
    }
}

/// What a status says of a delivery.
fn judged(status: StatusCode) -> Told {
    match status {
        status if status.is_success() => Told::Arrived,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
            Told::Refused(format!("it answers {status}"))
        }
        status if status.is_redirection() => Told::Failed(format!(
            "it answers {status}: write the address that it points to (redirects are not followed)"
        )),
        status => Told::Failed(format!("it answers {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_redirection_asks_for_another_address() {
        let says = |status| match judged(status) {
            Told::Failed(reason) => reason,
            _ => panic!("{status}"),
        };
        assert!(says(StatusCode::TEMPORARY_REDIRECT).contains("write the address that it points to"));
        for status in
            [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::NOT_FOUND, StatusCode::TOO_MANY_REQUESTS]
        {
            assert_eq!(says(status), format!("it answers {status}"));
        }
    }

    /// What is refused is not sent again: alarms behind it would wait for a day.
    #[test]
    fn what_a_receiver_cannot_take_is_refused() {
        for status in
            [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY]
        {
            let Told::Refused(reason) = judged(status) else { panic!("{status}") };
            assert_eq!(reason, format!("it answers {status}"));
        }
        for status in [StatusCode::OK, StatusCode::ACCEPTED, StatusCode::NO_CONTENT] {
            assert!(matches!(judged(status), Told::Arrived), "{status}");
        }
    }
}
