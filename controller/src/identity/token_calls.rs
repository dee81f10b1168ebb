//! The calls of adapters about tokens.

use tidegate_proto::v1;

use super::first_token::FIRST;
use super::tokens::{Secret, Shown, StoredToken};
use crate::answers::page_limit;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::error::AdminError;
use crate::limits::MAX_PAGE;
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
            let (token, secret) = state.tokens.wished(unix_ms, wish)?;
            let change = Change { after: text(&token)?, ..noted("create token", &token) };
            let over = state.tokens.over(unix_ms).map(Edit::RemoveToken);
            let edits = over.chain([Edit::PutToken(Box::new(token.clone()))]).collect();
            Ok(Plan { edits, changes: vec![change], reply: (token, secret) })
        })
    }

    /// Tokens after an id, in order; at most `limit`, where 0 is as many as a page may have.
    pub fn list(&self, after: u64, limit: u32) -> Result<v1::ListTokensReply, AdminError> {
        let limit = page_limit(limit, MAX_PAGE, MAX_PAGE)?;
        let state = self.service.lock();
        let mut rest = state.tokens.after(after).peekable();
        let tokens: Vec<v1::Token> = rest.by_ref().take(limit).map(StoredToken::message).collect();
        let next_after = rest.peek().and(tokens.last()).map_or(0, |token| token.id);
        Ok(v1::ListTokensReply { tokens, next_after })
    }

    /// Tokens of admins that are not over.
    pub(super) fn admins(&self) -> Vec<StoredToken> {
        let unix_ms = self.service.clock().unix_ms();
        self.service.lock().tokens.admins(unix_ms).cloned().collect()
    }

    /// Ends a token: who shows it is cut off.
    pub fn revoke(&self, actor: &Actor, id: u64, force: bool) -> Result<StoredToken, AdminError> {
        let unix_ms = self.service.clock().unix_ms();
        self.service.definitions().change(actor, |state| {
            let token = state.tokens.removable(unix_ms, id, force)?;
            let change = Change { before: text(&token)?, ..noted("revoke token", &token) };
            Ok(Plan { edits: vec![Edit::RemoveToken(id)], changes: vec![change], reply: token })
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
}

fn noted(action: &'static str, token: &StoredToken) -> Change {
    let told = token.message();
    Change { action, subject: format!("token {} of {}", told.id, told.name), ..Change::default() }
}

fn text(token: &StoredToken) -> Result<String, AdminError> {
    serde_json::to_string(&token.message()).map_err(|error| AdminError::Internal(error.to_string()))
}

#[cfg(test)]
mod tests;
