//! A token or a JWT to show the controller: from a file or the environment, and never from a flag, which other users of the
//! machine can read.

use std::path::Path;

use tidegate_client::{Token, TokenError};
use tonic::metadata::{Ascii, MetadataValue};

use crate::error::CliError;

/// The environment variable with a token.
const VARIABLE: &str = "TIDEGATE_TOKEN";

/// The token of this file, or of the environment without one.
pub(crate) fn given(file: Option<&Path>) -> Option<Token> {
    file.map(Token::file).or_else(|| set().map(Token::text))
}

/// The metadata that shows it. It shows itself to nobody.
pub(crate) fn bearer(file: Option<&Path>) -> Result<Option<MetadataValue<Ascii>>, CliError> {
    given(file).map(|token| token.bearer()).transpose().map_err(failed)
}

/// Whether the environment holds a token.
pub(crate) fn is_set() -> bool {
    set().is_some()
}

fn set() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())
}

/// Refuses to show a token where others can read it.
pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), CliError> {
    Token::check_endpoint(endpoint).map_err(failed)
}

fn failed(error: TokenError) -> CliError {
    match error {
        TokenError::Unreadable { .. } | TokenError::Exposed { .. } => CliError::Refused(error.to_string()),
        TokenError::NoToken { .. } | TokenError::Plain { .. } => CliError::Usage(error.to_string()),
    }
}
