//! The matrix of calls and roles: a row for each gRPC method and each REST route, and no other way in.
//!
//! A call without a row is refused to everybody. `docs/security.md` has the same matrix, compared with this by a test.

use super::Role;
use super::Role::{Admin, Gateway, Metrics, Node, Operator, Tenant, Viewer};

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All who reach the listener.
    Anyone,
    /// Callers in one of these roles.
    Roles(&'static [Role]),
}

/// Probes of orchestrators and balancers, whose answers show nothing of what is stored.
const ANYONE: Who = Who::Anyone;
/// Descriptions of the API, which are public.
const PROVEN: Who = Who::Roles(&Role::ALL);
const READ: Who = Who::Roles(&[Admin, Operator, Viewer]);
/// What has an answer for each tenant, with nothing of the others in it.
const SHARE: Who = Who::Roles(&[Admin, Operator, Viewer, Tenant]);
/// What a gateway answers to `SHOW` and `SET RESOURCE GROUP` by, too.
const LOOK: Who = Who::Roles(&[Admin, Operator, Viewer, Tenant, Gateway]);
/// What a monitoring system reads: names of groups and what they consume, and nothing of statements.
const SCRAPE: Who = Who::Roles(&[Admin, Operator, Viewer, Metrics]);
const WRITE: Who = Who::Roles(&[Admin, Operator]);
/// The whole store, with the key that signs leases, and tokens.
const OWNER: Who = Who::Roles(&[Admin]);
const NODES: Who = Who::Roles(&[Admin, Node, Gateway]);
const GATEWAYS: Who = Who::Roles(&[Admin, Gateway]);

/// The gRPC methods, by their paths.
pub const GRPC: [(&str, Who); 47] = [
    ("/grpc.health.v1.Health/Check", ANYONE),
    ("/grpc.health.v1.Health/Watch", ANYONE),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", PROVEN),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", PROVEN),
    ("/tidegate.v1.Admin/AlterGroup", WRITE),
    ("/tidegate.v1.Admin/Apply", WRITE),
    ("/tidegate.v1.Admin/ApplyProposal", WRITE),
    ("/tidegate.v1.Admin/AuditLog", READ),
    ("/tidegate.v1.Admin/Backup", OWNER),
    ("/tidegate.v1.Admin/Bind", WRITE),
    ("/tidegate.v1.Admin/CreateGroup", WRITE),
    ("/tidegate.v1.Admin/CreateToken", OWNER),
    ("/tidegate.v1.Admin/DeleteGroup", WRITE),
    ("/tidegate.v1.Admin/DeleteProposal", WRITE),
    ("/tidegate.v1.Admin/DrainController", WRITE),
    ("/tidegate.v1.Admin/ForgetClient", WRITE),
    ("/tidegate.v1.Admin/ForgetController", WRITE),
    ("/tidegate.v1.Admin/GetCostTables", READ),
    ("/tidegate.v1.Admin/GetGroup", LOOK),
    ("/tidegate.v1.Admin/GetProposal", READ),
    ("/tidegate.v1.Admin/ListBindings", SHARE),
    ("/tidegate.v1.Admin/ListClients", READ),
    ("/tidegate.v1.Admin/ListControllers", READ),
    ("/tidegate.v1.Admin/ListGroups", SHARE),
    ("/tidegate.v1.Admin/ListLeases", SHARE),
    ("/tidegate.v1.Admin/ListProposals", READ),
    ("/tidegate.v1.Admin/ListTokens", OWNER),
    ("/tidegate.v1.Admin/PutCostTable", WRITE),
    ("/tidegate.v1.Admin/PutProposal", WRITE),
    ("/tidegate.v1.Admin/Resolve", READ),
    ("/tidegate.v1.Admin/RevokeToken", OWNER),
    ("/tidegate.v1.Admin/Status", READ),
    ("/tidegate.v1.Admin/Unbind", WRITE),
    ("/tidegate.v1.Admin/Usage", SHARE),
    ("/tidegate.v1.Admin/UsageHistory", SHARE),
    ("/tidegate.v1.Admin/WhatIf", SHARE),
    ("/tidegate.v1.Grants/Session", NODES),
    ("/tidegate.v1.Grants/Watch", NODES),
    ("/tidegate.v1.Statements/AddWatch", WRITE),
    ("/tidegate.v1.Statements/Convict", GATEWAYS),
    ("/tidegate.v1.Statements/ListRunaways", READ),
    ("/tidegate.v1.Statements/ListStatements", SHARE),
    ("/tidegate.v1.Statements/ListWatches", READ),
    ("/tidegate.v1.Statements/RemoveWatch", WRITE),
    ("/tidegate.v1.Statements/ReportStatements", GATEWAYS),
    ("/tidegate.v1.Statements/Rules", GATEWAYS),
    ("/tidegate.v1.Statements/ResetStatements", WRITE),
];

/// The REST routes: method, and the path with its variables.
pub const REST: [(&str, &str, Who); 42] = [
    ("GET", "/healthz", ANYONE),
    ("GET", "/metrics", SCRAPE),
    ("GET", "/openapi.json", PROVEN),
    ("GET", "/readyz", ANYONE),
    ("POST", "/v1/apply", WRITE),
    ("GET", "/v1/audit", READ),
    ("DELETE", "/v1/bindings", WRITE),
    ("GET", "/v1/bindings", SHARE),
    ("PUT", "/v1/bindings", WRITE),
    ("GET", "/v1/clients", READ),
    ("DELETE", "/v1/clients/{name}", WRITE),
    ("GET", "/v1/controllers", READ),
    ("POST", "/v1/controllers/drain", WRITE),
    ("DELETE", "/v1/controllers/{name}", WRITE),
    ("GET", "/v1/cost-tables", READ),
    ("DELETE", "/v1/cost-tables/{role}", WRITE),
    ("PUT", "/v1/cost-tables/{role}", WRITE),
    ("GET", "/v1/groups", SHARE),
    ("POST", "/v1/groups", WRITE),
    ("DELETE", "/v1/groups/{name}", WRITE),
    ("GET", "/v1/groups/{name}", SHARE),
    ("PATCH", "/v1/groups/{name}", WRITE),
    ("DELETE", "/v1/groups/{name}/proposal", WRITE),
    ("GET", "/v1/groups/{name}/proposal", READ),
    ("PUT", "/v1/groups/{name}/proposal", WRITE),
    ("POST", "/v1/groups/{name}/proposal/apply", WRITE),
    ("GET", "/v1/groups/{name}/what-if", SHARE),
    ("GET", "/v1/leases", SHARE),
    ("GET", "/v1/proposals", READ),
    ("GET", "/v1/resolve", READ),
    ("GET", "/v1/runaways", READ),
    ("DELETE", "/v1/statements", WRITE),
    ("GET", "/v1/statements", SHARE),
    ("GET", "/v1/status", READ),
    ("GET", "/v1/tokens", OWNER),
    ("POST", "/v1/tokens", OWNER),
    ("DELETE", "/v1/tokens/{id}", OWNER),
    ("GET", "/v1/usage", SHARE),
    ("GET", "/v1/usage/{group}/history", SHARE),
    ("DELETE", "/v1/watches", WRITE),
    ("GET", "/v1/watches", READ),
    ("POST", "/v1/watches", WRITE),
];

/// The routes of the console. A page shows what its viewer may see, and has a form for what they may do; these are who
/// may open it, and send the form.
pub const CONSOLE: [(&str, &str, Who); 28] = [
    ("GET", "/console", SHARE),
    ("GET", "/console/assets/{file}", ANYONE),
    ("GET", "/console/audit", READ),
    ("POST", "/console/bind", WRITE),
    ("POST", "/console/check", WRITE),
    ("GET", "/console/groups", SHARE),
    ("GET", "/console/groups/new", WRITE),
    ("POST", "/console/groups/new", WRITE),
    ("GET", "/console/groups/{name}", SHARE),
    ("GET", "/console/groups/{name}/delete", WRITE),
    ("POST", "/console/groups/{name}/delete", WRITE),
    ("GET", "/console/groups/{name}/edit", WRITE),
    ("POST", "/console/groups/{name}/edit", WRITE),
    ("GET", "/console/groups/{name}/proposal", READ),
    ("POST", "/console/groups/{name}/proposal", WRITE),
    ("GET", "/console/live", SHARE),
    ("GET", "/console/login", ANYONE),
    ("POST", "/console/login", ANYONE),
    ("POST", "/console/logout", SHARE),
    ("GET", "/console/nodes", READ),
    ("GET", "/console/prices", READ),
    ("GET", "/console/statements", SHARE),
    ("GET", "/console/statements/{group}/{fingerprint}", SHARE),
    ("POST", "/console/unbind", WRITE),
    ("POST", "/console/unwatch", WRITE),
    ("POST", "/console/watches", WRITE),
    ("POST", "/console/what-if", WRITE),
    ("GET", "/", ANYONE),
];

/// A call, as its listener knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// The path of a gRPC method.
    Grpc(&'a str),
    /// The method and the path of a REST route, with its variables.
    Rest(&'a str, &'a str),
}

impl Call<'_> {
    /// Who may make it; `None` without a row, which is nobody.
    pub fn who(self) -> Option<Who> {
        match self {
            Self::Grpc(path) => GRPC.iter().find(|(of, _)| *of == path).map(|(_, who)| *who),
            Self::Rest(method, path) => {
                // The handlers of GET answer HEAD, too.
                let method = if method == "HEAD" { "GET" } else { method };
                let row = REST.iter().chain(&CONSOLE).find(|(by, of, _)| (*by, *of) == (method, path));
                row.map(|(_, _, who)| *who)
            }
        }
    }

    /// How errors name it.
    pub fn label(self) -> String {
        match self {
            Self::Grpc(path) => crate::quantity::cut(path.trim_start_matches('/')),
            Self::Rest(method, path) => crate::quantity::cut(&format!("{method} {path}")),
        }
    }
}

/// Whether a caller in this role, or in none, may make a call.
pub fn allows(role: Option<Role>, call: Call<'_>) -> bool {
    match call.who() {
        None => false,
        Some(Who::Anyone) => true,
        Some(Who::Roles(roles)) => role.is_some_and(|role| roles.contains(&role)),
    }
}
