//! The first token of an admin, where no certificate can make one: a file beside the store, for its owner only.
//!
//! As long as no admin has a token, there is one that ends in an hour, and the log says where. It is revoked, and its
//! file removed, once an admin has another.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tidegate_proto::v1;

use super::Role;
use super::tokens::StoredToken;
use crate::definitions::audit::Actor;
use crate::error::AdminError;
use crate::service::Service;

/// How long it lives. Half of it is short for somebody who reads the log later; twice of it lies about for longer.
const TTL_US: u64 = 3_600_000_000;
/// Its name, which no other token has.
pub(super) const FIRST: &str = "first-admin";

/// The file of the first token.
pub(crate) struct FirstToken {
    path: PathBuf,
    made: Mutex<Made>,
}

/// What is known of it.
#[derive(Default)]
struct Made {
    /// Its id, while it is there.
    id: Option<u64>,
    /// Whether its file was looked for since the start.
    looked: bool,
}

impl FirstToken {
    /// Its file beside this store.
    pub(crate) fn beside(store: &Path) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push(".first-token");
        Self { path: path.into(), made: Mutex::default() }
    }

    /// Makes it if no admin has a token, and takes it back once one has another.
    pub(crate) fn look(&self, service: &Service) {
        if let Err(error) = self.settle(service) {
            tracing::error!(%error, path = %self.path.display(), "the first token of an admin cannot be kept");
        }
    }

    fn settle(&self, service: &Service) -> Result<(), AdminError> {
        let admins = service.tokens().admins();
        let has_another = admins.iter().any(|token| token.name() != FIRST);
        let first = admins.iter().find(|token| token.name() == FIRST).map(StoredToken::id);
        let actor = Actor::new(None, "the controller");
        let mut made = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let looks_first = !std::mem::replace(&mut made.looked, true);
        match first {
            Some(first) if has_another => {
                service.tokens().revoke(&actor, first, false)?;
                made.id = None;
                self.remove();
            }
            // It was over before it could be revoked, or a start ended between the two.
            None if has_another => {
                if made.id.take().is_some() || looks_first {
                    self.remove();
                }
            }
            None => made.id = Some(self.make(service, &actor)?),
            // It is of another start, whose file may be gone, of another machine, or of another copy of the store.
            Some(first) if made.id != Some(first) && !self.opens(service) => {
                service.tokens().revoke(&actor, first, true)?;
                made.id = Some(self.make(service, &actor)?);
            }
            Some(first) if made.id != Some(first) => {
                made.id = Some(first);
                self.say();
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Whether the file has the first token that is in force.
    fn opens(&self, service: &Service) -> bool {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        service.tokens().identify(text.trim()).is_some_and(|shown| shown.identity.name == FIRST)
    }

    fn make(&self, service: &Service, actor: &Actor) -> Result<u64, AdminError> {
        let wish = v1::CreateTokenRequest {
            name: FIRST.to_owned(),
            role: Role::Admin.to_string(),
            ttl_us: TTL_US,
            ..v1::CreateTokenRequest::default()
        };
        let (token, secret) = service.tokens().make(actor, &wish)?;
        match tidegate_tls::write(&self.path, &format!("{}\n", secret.reveal()), true, true) {
            Ok(()) => self.say(),
            // It would fail again at the next look.
            Err(error) => {
                tracing::error!(%error, "the first token of an admin is lost: start again once it can be written")
            }
        }
        Ok(token.id())
    }

    fn say(&self) {
        tracing::warn!(
            "no admin has a token yet; make one within the hour, on this machine: tidegate token create NAME --role admin \
             --token-file {}",
            self.path.display()
        );
    }

    fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.path.display(), "the file of the first token, which is revoked, stays");
        }
    }
}

#[cfg(test)]
mod tests;
