//! The calls of adapters about tokens.

use tidegate_proto::v1;

use super::first_token::FIRST;
use super::tokens::{Secret, Shown, StoredToken, StoredTokens};
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::error::AdminError;
use crate::service::Service;

/// The calls of adapters.
#[derive(Clone, Copy)]
pub struct TokenCalls<'s> {
    service: &'s Service,
}

impl<'s> TokenCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service }
    }

    /// Makes a token; returns what is known of it, and its text. Tokens that are over make room.
    pub fn create(
        &self,
        actor: &Actor,
        wish: &v1::CreateTokenRequest,
    ) -> Result<(StoredToken, Secret), AdminError> {
        if wish.name == FIRST {
            let message =
                format!("{FIRST:?} is the name of the first token, which is not kept; write another");
            return Err(AdminError::invalid("name", message));
        }
        self.make(actor, wish)
    }

    /// The same under any name.
    pub(super) fn make(
        &self,
        actor: &Actor,
        wish: &v1::CreateTokenRequest,
    ) -> Result<(StoredToken, Secret), AdminError> {
        let unix_ms = self.service.clock().unix_ms();
        self.service.definitions().change(actor, |state| {
            let (row, token, secret) = state.tokens.row().fresh(unix_ms).with(unix_ms, wish)?;
            let change = Change { after: text(&token)?, ..noted("create token", &token) };
            Ok(Plan { edits: vec![Edit::Tokens(row)], changes: vec![change], reply: (token, secret) })
        })
    }

    /// All tokens, in order.
    pub fn list(&self) -> Vec<StoredToken> {
        self.service.lock().tokens.all().cloned().collect()
    }

    /// Ends a token: who shows it is cut off.
    pub fn revoke(&self, actor: &Actor, id: u64, force: bool) -> Result<StoredToken, AdminError> {
        self.service.definitions().change(actor, |state| {
            let (row, token) = state.tokens.row().without(id, force)?;
            let change = Change { before: text(&token)?, ..noted("revoke token", &token) };
            Ok(Plan { edits: vec![Edit::Tokens(row)], changes: vec![change], reply: token })
        })
    }

    /// Who shows this text; `None` for anything that is no token in force.
    pub fn identify(&self, text: &str) -> Option<Shown> {
        let unix_ms = self.service.clock().unix_ms();
        self.service.lock().tokens.identify(unix_ms, text)
    }

    /// Cuts off who shows a token that is over.
    pub fn expire(&self) {
        let unix_ms = self.service.clock().unix_ms();
        self.service.lock().tokens.expire(unix_ms);
    }

    /// The row of the store.
    pub fn row(&self) -> StoredTokens {
        self.service.lock().tokens.row()
    }
}

fn noted(action: &'static str, token: &StoredToken) -> Change {
    let told = token.message();
    Change { action, subject: format!("token {} of {}", told.id, told.name), ..Change::default() }
}

fn text(token: &StoredToken) -> Result<String, AdminError> {
    serde_json::to_string(&token.message()).map_err(|error| AdminError::Internal(error.to_string()))
}
