//! Compiles the `.proto` files without protoc and keeps the descriptor set for gRPC reflection.
//!
//! With the feature `json`, messages are JSON, too: bodies of REST, rows of the controller's store, and output of the
//! command line. So a field of a definition is declared once.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;
use tonic_prost_build::Builder;

/// Messages that callers write as JSON. A missing field has its default, and an unknown one is an error.
const WRITTEN: [&str; 13] = [
    "ApplyRequest",
    "Binding",
    "CostTable",
    "CreateTokenRequest",
    "DeleteGroupRequest",
    "DrainControllerRequest",
    "Group",
    "Prune",
    "PutCostTableRequest",
    "QueryLimit",
    "RemoveWatchRequest",
    "UnbindRequest",
    "Watch",
];

/// Messages that are only answered and stored, and may gain fields.
const SHOWN: [&str; 48] = [
    "AddWatchReply",
    "ApplyReply",
    "AuditEntry",
    "AuditLogReply",
    "BindReply",
    "ClientInfo",
    "ControllerInfo",
    "ConvictRequest",
    "CostTables",
    "CostTablesReply",
    "CreateTokenReply",
    "DeleteGroupReply",
    "DeleteProposalReply",
    "DrainControllerReply",
    "ForgetClientReply",
    "ForgetControllerReply",
    "GroupReply",
    "GroupState",
    "GroupWaits",
    "LeaseInfo",
    "ListBindingsReply",
    "ListClientsReply",
    "ListControllersReply",
    "ListGroupsReply",
    "ListLeasesReply",
    "ListProposalsReply",
    "ListRunawaysReply",
    "ListTokensReply",
    "ListWatchesReply",
    "NodeStats",
    "Outcome",
    "Proposal",
    "ProposalReply",
    "QuotaState",
    "RemoveWatchReply",
    "ResetStatementsReply",
    "ResolveReply",
    "RevokeTokenReply",
    "Runaway",
    "StatusReply",
    "StepFault",
    "Token",
    "UnbindReply",
    "WaitBucket",
    "Warmth",
    "WhatIfFigures",
    "WhatIfOutcome",
    "WhatIfReply",
];

/// Fields whose JSON differs from their type: left out when empty, or merged into the fields around them.
const FIELDS: [(&str, &str); 11] = [
    ("ApplyRequest.steps", "#[schema(value_type = Vec<step::Kind>)]"),
    ("ClientInfo.node", "#[serde(flatten)]"),
    ("CostTablesReply.tables", "#[serde(flatten)]"),
    ("GroupState.quota", "#[serde(skip_serializing_if = \"Option::is_none\")]"),
    ("GroupState.waits", "#[serde(skip_serializing_if = \"Option::is_none\")]"),
    ("GroupState.warmth", "#[serde(skip_serializing_if = \"Option::is_none\")]"),
    ("Group.demote_to", "#[serde(skip_serializing_if = \"String::is_empty\")]"),
    ("Group.parent", "#[serde(skip_serializing_if = \"String::is_empty\")]"),
    ("Group.query_limit", "#[serde(skip_serializing_if = \"Option::is_none\")]"),
    ("ProposalReply.comparison", "#[serde(skip_serializing_if = \"Option::is_none\")]"),
    ("QueryLimit.ru", "#[serde(skip_serializing_if = \"String::is_empty\")]"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["grants", "statements", "admin"].map(|name| format!("proto/tidegate/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // A group is far larger than the other steps. Maps are ordered, so that equal tables are equal texts.
    let builder = tonic_prost_build::configure()
        .boxed(".tidegate.v1.Step.kind.group")
        // Few grants have one.
        .boxed(".tidegate.v1.GrantEntry.allowance")
        .boxed(".tidegate.v1.GrantEntry.requests")
        // It holds a secret.
        .skip_debug([".tidegate.v1.CreateTokenReply"])
        .btree_map(".tidegate.v1.CostTable.ru_per_unit");
    let builder = if env::var_os("CARGO_FEATURE_JSON").is_some() { json(builder) } else { builder };
    builder.compile_fds(descriptors)?;
    Ok(())
}

fn json(builder: Builder) -> Builder {
    const DERIVED: &str = "#[derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema)]";
    let path = |name: &str| format!(".tidegate.v1.{name}");
    let message = |builder: Builder, name: &str, attribute: &str| {
        builder.message_attribute(path(name), DERIVED).message_attribute(path(name), attribute)
    };
    // The JSON of a step is its one kind, under the name of the kind.
    let builder = message(builder, "Step", "#[serde(transparent)]")
        .enum_attribute(path("Step.kind"), DERIVED)
        .enum_attribute(path("Step.kind"), "#[serde(rename_all = \"snake_case\")] #[schema(as = Step)]");
    let strict = "#[serde(default, deny_unknown_fields)]";
    let builder = WRITTEN.iter().fold(builder, |builder, name| message(builder, name, strict));
    let builder = SHOWN.iter().fold(builder, |builder, name| message(builder, name, "#[serde(default)]"));
    FIELDS.iter().fold(builder, |builder, (field, attribute)| builder.field_attribute(path(field), attribute))
}
