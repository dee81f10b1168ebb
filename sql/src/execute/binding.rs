//! Bindings: which users and databases are charged to which group, from their next session on.

use tidegate_proto::v1;

use crate::answer::Answer;
use crate::controller::Controller;
use crate::error::SqlError;
use crate::statement::Principal;

/// The group of everyone without a binding.
const DEFAULT: &str = "default";

/// Binds, or unbinds when the group is `default`, as TiDB does.
pub(super) async fn bind(
    controller: &Controller,
    principal: &Principal,
    group: &str,
) -> Result<Answer, SqlError> {
    let Principal { tenant, user } = principal.clone();
    if group == DEFAULT {
        let reply = controller.admin().unbind(v1::UnbindRequest { tenant, user }).await?.into_inner();
        if !reply.removed {
            return Ok(Answer::note(format!("note: {} was bound to no group", described(principal))));
        }
        return Ok(Answer::done(1));
    }
    let binding = v1::Binding { tenant, user, group: group.to_owned() };
    let reply = controller.admin().bind(v1::BindRequest { binding: Some(binding) }).await?.into_inner();
    Ok(Answer::done(u64::from(reply.changed)))
}

fn described(principal: &Principal) -> String {
    match (principal.tenant.as_str(), principal.user.as_str()) {
        (tenant, "") => format!("database {tenant}"),
        ("", user) => format!("user {user}"),
        (tenant, user) => format!("user {user} in database {tenant}"),
    }
}
