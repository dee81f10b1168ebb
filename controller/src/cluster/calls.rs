//! The calls of adapters about the controllers of a cluster.

use std::sync::Arc;

use tidegate_core::units::Span;
use tidegate_proto::v1;

use super::roster::{GONE, Record, Roster, Seen};
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::error::AdminError;
use crate::name::controller_name;
use crate::service::{Service, Silence};

/// How long a drained controller leaves the lead to others, unless the caller says: a restart of its machine.
const REST: Span = Span::secs(30);
/// The longest such time. Longer, and an operator has forgotten it.
pub(crate) const LONGEST_REST: Span = Span::secs(24 * 3_600);

/// The calls of adapters.
#[derive(Clone, Copy)]
pub struct ClusterCalls<'s> {
    service: &'s Service,
}

impl<'s> ClusterCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service }
    }

    fn roster(&self) -> Result<&'s Arc<Roster>, AdminError> {
        let message =
            "this controller is not one of a cluster; see etcd_endpoints in docs/cluster.md".to_owned();
        self.service.beside().cluster.get().ok_or(AdminError::Refused { message })
    }

    /// The controllers of the cluster, as the one that leads sees them.
    ///
    /// # Errors
    /// This is no cluster.
    pub fn list(&self) -> Result<v1::ListControllersReply, AdminError> {
        let roster = self.roster()?;
        let info = |Seen { record, age, ahead_ms }: Seen| v1::ControllerInfo {
            leads: record.controller == roster.name,
            name: record.controller,
            addresses: record.addresses,
            version: record.version,
            age_us: age.0,
            clock_ahead_ms: ahead_ms,
        };
        let controllers = roster.all().into_iter().map(info).collect();
        Ok(v1::ListControllersReply {
            cluster: roster.cluster(),
            prefix: roster.prefix().to_owned(),
            controllers,
        })
    }

    /// Lets this controller, which leads, leave the lead to another one. It begins when this is answered.
    ///
    /// # Errors
    /// This is no cluster, another controller is meant, none that could take over runs, or the store fails.
    pub fn drain(
        &self,
        actor: &Actor,
        wish: &v1::DrainControllerRequest,
    ) -> Result<v1::DrainControllerReply, AdminError> {
        let roster = self.roster()?;
        if !wish.controller.is_empty() && wish.controller != roster.name {
            let message = format!(
                "controller {} does not lead, {} does; a standby needs no drain",
                crate::quantity::cut(&wish.controller),
                roster.name
            );
            return Err(AdminError::Refused { message });
        }
        let rest = if wish.rest_us == 0 { REST } else { Span(wish.rest_us) };
        if rest > LONGEST_REST {
            let message = format!("{rest} is longer than {LONGEST_REST}; stop the controller instead");
            return Err(AdminError::invalid("rest_us", message));
        }
        if roster.others().is_empty() {
            let message = format!(
                "no other controller of the cluster under {} runs, so nobody would lead; start one first",
                roster.prefix()
            );
            return Err(AdminError::Refused { message });
        }
        // It would be left as after a crash.
        if let Some(silence @ Silence::Predecessor(_)) = self.service.silence() {
            let message =
                format!("the lead cannot be handed over in order yet ({silence}); repeat it after that");
            return Err(AdminError::Refused { message });
        }
        let change = Change {
            action: "drain controller",
            subject: format!("controller {}", roster.name),
            after: format!("{{\"rest_us\":{}}}", rest.0),
            ..Change::default()
        };
        self.note(actor, change)?;
        roster.drain(rest);
        Ok(v1::DrainControllerReply { controller: roster.name.clone(), rest_us: rest.0 })
    }

    /// Removes the record of a controller that was killed for good.
    ///
    /// # Errors
    /// This is no cluster, it has no controller of that name, that one runs, or the store fails.
    pub fn forget(&self, actor: &Actor, name: &str) -> Result<v1::ForgetControllerReply, AdminError> {
        let roster = self.roster()?;
        let name =
            controller_name(name).map_err(|error| AdminError::invalid("controller", error.to_string()))?;
        if name == roster.name {
            let message =
                format!("controller {name} leads; drain and stop it, and it leaves the list by itself");
            return Err(AdminError::Refused { message });
        }
        let Some(Record { changed, still }) = roster.record_of(&name) else {
            let what = format!("controller {name} of the cluster under {}", roster.prefix());
            return Err(AdminError::NotFound { what });
        };
        if still < GONE {
            let message = format!(
                "controller {name} showed {still} ago that it runs; stop it, and it leaves the list by itself, or \
                 repeat this when it has been silent for {GONE}"
            );
            return Err(AdminError::Refused { message });
        }
        let change = Change {
            action: "forget controller",
            subject: format!("controller {name}"),
            before: format!("{{\"silent_us\":{}}}", still.0),
            ..Change::default()
        };
        self.note(actor, change)?;
        if !roster.remove(&name, changed)? {
            let message = format!("controller {name} has shown meanwhile that it runs; stop it first");
            return Err(AdminError::Refused { message });
        }
        Ok(v1::ForgetControllerReply { controller: name, silent_us: still.0 })
    }

    /// Notes in the audit log what is about to be done.
    fn note(&self, actor: &Actor, change: Change) -> Result<(), AdminError> {
        let note = |_: &mut _| Ok(Plan { edits: vec![Edit::Note], changes: vec![change], reply: () });
        self.service.definitions().change(actor, note)
    }
}
