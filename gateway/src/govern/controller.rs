//! The controller's services as the gateway calls them itself, with what it shows.

use tidegate_client::{Token, TokenError};
use tidegate_proto::v1::statements_client::StatementsClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Where the controller is, and the token that the gateway shows it in place of a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    channel: Channel,
    token: Option<Token>,
}

impl Controller {
    pub(crate) fn new(channel: Channel, token: Option<Token>) -> Self {
        Self { channel, token }
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(super) fn statements(&self) -> StatementsClient<Channel> {
        StatementsClient::new(self.channel())
    }

    /// What shows the token. Its file is read for each call, which are few, so that another token in it counts at once.
    pub(super) async fn bearer(&self) -> Result<Option<MetadataValue<Ascii>>, Status> {
        let Some(token) = self.token.clone() else { return Ok(None) };
        let unusable = |error: TokenError| Status::failed_precondition(error.to_string());
        let read = tokio::task::spawn_blocking(move || token.bearer()).await;
        read.map_err(|error| Status::internal(error.to_string()))?.map(Some).map_err(unusable)
    }

    /// A call with this message.
    pub(super) async fn request<T>(&self, message: T) -> Result<Request<T>, Status> {
        let mut request = Request::new(message);
        if let Some(bearer) = self.bearer().await? {
            request.metadata_mut().insert("authorization", bearer);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test]
    async fn every_call_shows_the_token_that_the_file_has_then() {
        let channel = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        assert!(Controller::new(channel.clone(), None).request(()).await.unwrap().metadata().is_empty());
        let file = tempfile::NamedTempFile::new().unwrap();
        let controller = Controller::new(channel, Some(Token::file(file.path())));
        for text in ["tdg_one", "tdg_two"] {
            std::fs::write(file.path(), format!("{text}\n")).unwrap();
            let request = controller.request(()).await.unwrap();
            let shown = request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
            assert_eq!(shown, format!("Bearer {text}"));
        }
        std::fs::write(file.path(), "nothing of the kind").unwrap();
        assert_eq!(controller.request(()).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
    }
}
