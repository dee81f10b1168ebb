//! Errors as JSON.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{AdminError, ErrorKind};

/// Body of every answer that is not a success.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub(super) struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Debug, Serialize, ToSchema)]
struct ErrorDetail {
    /// A stable word for the kind of error.
    code: &'static str,
    /// What is wrong and what to do.
    message: String,
    /// The field at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

/// A refused request.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { error: ErrorDetail { code, message: message.into(), field: None } } }
    }
}

impl From<AdminError> for ApiError {
    fn from(error: AdminError) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists | ErrorKind::InUse | ErrorKind::Refused | ErrorKind::Full => {
                StatusCode::CONFLICT
            }
            ErrorKind::Revision => StatusCode::PRECONDITION_FAILED,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let field = error.field().map(str::to_owned);
        Self {
            status,
            body: ErrorBody { error: ErrorDetail { code: error.code(), message: error.to_string(), field } },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}
