//! The OpenAPI document: what the handlers declare, completed by what their types cannot say.
//!
//! The handlers declare paths, parameters, fields and their meaning. This file adds ranges, patterns and words of
//! fields, errors that every path of a kind has, and names that are unique over all paths. `tests/api` checks the
//! document with other tools and against the controller's answers.

#![expect(
    clippy::indexing_slicing,
    reason = "a field of a JSON object is made where it is absent; the one document there is, is built in a test"
)]

use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

use crate::cluster::LONGEST_REST;
use crate::definitions::group_fields::{self, DEFAULT, NONE, Takes};
use crate::identity::Role;
use crate::identity::tokens::{MAX_GROUPS, MAX_TTL_MS};
use crate::limits::WATCH_RANGE;
use crate::statements::{Order, Range};

/// Names of groups, or an empty text.
const GROUP: &str = "^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$";
/// Names of groups, required.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// Tenants and users, or an empty text.
const PRINCIPAL: &str = "^[A-Za-z0-9._@-]{0,64}$";
/// A positive rate: RU/s, exact to a millionth, with or without the unit.
const RATE: &str = "(1000000000|[1-9][0-9]{0,8}(\\.[0-9]{1,6})?|0\\.[0-9]{0,5}[1-9])( ?RU/s)?";
/// A positive amount of RU.
const AMOUNT: &str = "(1000000000000|[1-9][0-9]{0,11}(\\.[0-9]{1,6})?|0\\.[0-9]{0,5}[1-9])( ?RU)?";
/// The length of a quota's windows.
const PERIOD: &str = "(minute|hour|day|month)";

/// RU per unit of a resource, as a decimal or a fraction.
const PRICE: &str = "^([0-9]{1,6}(\\.[0-9]{1,9})?|1/[1-9][0-9]{0,8})$";
/// The resources, by field name of `tidegate.v1.Usage`.
const UNITS: [&str; 10] = [
    "cpu_ns",
    "read_requests",
    "read_batches",
    "read_bytes",
    "write_requests",
    "write_batches",
    "write_bytes",
    "net_in_bytes",
    "net_out_bytes",
    "cross_zone_bytes",
];

/// The document as it is served.
pub(super) fn complete(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["servers"] = json!([{"url": "/", "description": "The controller that served this document"}]);
    document["info"]["contact"] = json!({"name": "The operator of this controller"});
    // Nothing is asked for while authentication is off.
    document["security"] = json!([{}, {"certificate": []}, {"token": []}]);
    document["components"]["securitySchemes"] = json!({
        "certificate": {"type": "mutualTLS", "description": "A certificate whose identity has a role."},
        "token": {"type": "http", "scheme": "bearer", "description": "A token, as `tidegate token create` makes it."},
    });
    let mut tags = Vec::new();
    for (path, operations) in entries(&mut document["paths"]) {
        let tag = path.split('/').nth(2).unwrap_or(path).to_owned();
        for (method, operation) in entries(operations) {
            complete_operation(&tag, method, operation);
        }
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    document["tags"] = tags.iter().map(|tag| json!({"name": tag, "description": about(tag)})).collect();
    complete_schemas(&mut document["components"]["schemas"]);
    for (path, method, schema) in [
        ("/v1/groups", "post", "NewGroup"),
        ("/v1/groups/{name}", "patch", "GroupChange"),
        ("/v1/bindings", "put", "NewBinding"),
        ("/v1/cost-tables/{role}", "put", "NewCostTable"),
        ("/v1/watches", "post", "NewWatch"),
    ] {
        let body = &mut document["paths"][path][method]["requestBody"]["content"]["application/json"];
        body["schema"] = json!({"$ref": format!("#/components/schemas/{schema}")});
    }
    document
}

/// Completes all schemas, and adds those of writes.
fn complete_schemas(schemas: &mut Value) {
    for (_, schema) in entries(schemas) {
        unescape(schema);
        complete_fields(schema);
        // A schema that contains the fields of another.
        schema.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten().for_each(complete_fields);
    }
    // A counter beyond the range that every JSON reader keeps exactly is a text.
    let exact = (1_u64 << f64::MANTISSA_DIGITS) - 1;
    schemas["Count"] = json!({
        "description": "A counter: a number, and from 2^53 on its digits as text.",
        "oneOf": [{"type": "integer", "minimum": 0, "maximum": exact}, {"type": "string", "pattern": "^[0-9]{16,39}$"}],
    });
    for (schema, field, said) in fields() {
        extend(&mut schemas[schema]["properties"][field], said);
    }
    // Writes list their required fields; reads and changes need not contain all fields.
    for (changed, new, required) in [
        ("Group", "NewGroup", json!(["name", "ru_per_sec"])),
        ("Binding", "NewBinding", json!(["group"])),
        ("CostTable", "NewCostTable", json!(["name", "version"])),
        ("Watch", "NewWatch", json!(["group", "match", "digest"])),
    ] {
        let mut schema = schemas[changed].clone();
        for field in required.as_array().into_iter().flatten().filter_map(Value::as_str) {
            extend(&mut schema["properties"][field], json!({}));
        }
        schema["required"] = required;
        schemas[new] = schema;
    }
    // A step defines a thing as a write of its own does.
    for holder in ["Step", "PutCostTableRequest"] {
        let text = ["Group", "Binding", "CostTable", "Watch"]
            .iter()
            .fold(schemas[holder].to_string(), |text, name| {
                text.replace(&format!("schemas/{name}\""), &format!("schemas/New{name}\""))
            });
        schemas[holder] = serde_json::from_str(&text).unwrap_or_default();
    }
    schemas["CreateTokenRequest"]["required"] = json!(["name", "role"]);
    schemas["DeleteGroupRequest"]["required"] = json!(["name"]);
    schemas["PutCostTableRequest"]["required"] = json!(["role"]);
    schemas["RemoveWatchRequest"]["required"] = json!(["id"]);
    // The name is in the path.
    schemas["GroupChange"] = schemas["Group"].clone();
    schemas["GroupChange"]["minProperties"] = json!(1);
    if let Some(fields) = schemas["GroupChange"]["properties"].as_object_mut() {
        fields.remove("name");
        fields.remove("revision");
    }
    let set = |field: &str| json!({"required": [field], "properties": {field: {"minLength": 1}}});
    schemas["NewBinding"]["anyOf"] = json!([set("tenant"), set("user")]);
    let digits = |way: &str, count: u8| {
        let pattern = format!("^[0-9A-Fa-f]{{{count}}}$");
        json!({"required": ["match"], "properties": {"match": {"const": way}, "digest": {"pattern": pattern}}})
    };
    schemas["NewWatch"]["oneOf"] = json!([digits("exact", 64), digits("similar", 16)]);
    extend(&mut schemas["NewGroup"]["properties"]["name"], json!({"pattern": NAME}));
    extend(
        &mut schemas["NewGroup"]["properties"]["ru_per_sec"],
        json!({"pattern": format!("^({RATE}|unlimited)$")}),
    );
    extend(&mut schemas["NewCostTable"]["properties"]["version"], json!({"minimum": 1}));
}

fn complete_operation(tag: &str, method: &str, operation: &mut Value) {
    let function = operation["operationId"].as_str().unwrap_or(method).to_owned();
    operation["operationId"] = json!(format!("{}_{function}", tag.replace('-', "_")));
    operation["tags"] = json!([tag]);
    if operation["description"].is_null() {
        operation["description"] = operation["summary"].clone();
    }
    // The listener refuses a host that is not its own before any path.
    let mut errors = vec!["400", "401", "403", "421"];
    if operation.get("requestBody").is_some() {
        errors.extend(["408", "413", "415"]);
    }
    // The call asks the store.
    errors.extend(["500", "503"]);
    let error = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}});
    for status in errors {
        if operation["responses"].get(status).is_none() {
            operation["responses"][status] = error.clone();
        }
    }
    for (status, response) in entries(&mut operation["responses"]) {
        response["description"] = json!(meaning(status));
    }
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        widen(&mut parameter["schema"]);
        let name = parameter["name"].as_str().unwrap_or_default();
        if let Some(said) = parameter_schema(method, name) {
            extend(&mut parameter["schema"], said);
        }
        if parameter["description"].is_null() {
            parameter["description"] =
                json!(if tag == "tokens" { "The number of the token." } else { "The group." });
        }
    }
}

/// The meaning of a status on every path, as in docs/admin-api.md.
fn meaning(status: &str) -> &'static str {
    match status {
        "200" => "Done.",
        "400" => "Malformed, unknown or out of range.",
        "401" => "The caller has shown no certificate and no token that is known.",
        "403" => "The caller's role does not allow it.",
        "404" => "There is no such group or path.",
        "408" => "The body did not come in time.",
        "409" => "There already, in use, not for this group, or a limit is reached.",
        "412" => "Changed since it was read.",
        "413" => "The body is too large.",
        "415" => "The body is not application/json.",
        "421" => "The host that the request names is not one of this listener's.",
        "500" => "A fault of the controller.",
        _ => "Not now: the store failed, or the controller is not ready. Nothing was changed.",
    }
}

fn about(tag: &str) -> &'static str {
    match tag {
        "groups" => "Resource groups.",
        "bindings" | "resolve" => "Who is charged to which group.",
        "apply" => "Many definitions in one change.",
        "cost-tables" => "Prices of resources.",
        "usage" => "What was consumed.",
        "tokens" => "Secrets that prove who calls.",
        "controllers" => "The controllers of a cluster.",
        "clients" | "leases" => "Nodes, and what they hold.",
        "statements" => "What statements cost.",
        "watches" | "runaways" => "Statements that are convicted.",
        _ => "The controller.",
    }
}

fn parameter_schema(method: &str, name: &str) -> Option<Value> {
    // A text that may be left out is one of these, or empty.
    let one_of = |names: &[&str]| json!({ "enum": ([&[""], names].concat()) });
    Some(match name {
        "limit" => json!({"maximum": 1000}),
        "name" => json!({"pattern": NAME}),
        "group" | "after" | "force_to" => json!({"pattern": GROUP}),
        "tenant" | "user" | "after_tenant" | "after_user" => json!({"pattern": PRINCIPAL}),
        "role" if method == "delete" => json!({"enum": ["shadow"]}),
        "role" => json!({"enum": ["active", "shadow"]}),
        "order" => one_of(&Order::NAMES),
        "last" => one_of(&Range::NAMES),
        "watch_us" => json!({"maximum": WATCH_RANGE.1.0}),
        "resolution" => one_of(&["second", "minute", "hour"]),
        _ => return None,
    })
}

fn to(least: u64, most: u64) -> Value {
    json!({"anyOf": [{"const": 0}, {"minimum": least, "maximum": most}]})
}

/// Properties of a field of a group beyond its type. An empty text is the default.
fn of_group(takes: Takes) -> Value {
    match takes {
        Takes::Group => json!({"pattern": "^(/|[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$"}),
        Takes::Rate(words) => json!({"pattern": format!("^({RATE}|{})?$", words.join("|"))}),
        Takes::Amount { zero } => {
            json!({"pattern": format!("^({}{AMOUNT}|{DEFAULT})?$", if zero { "0|" } else { "" })})
        }
        Takes::Word(words) => json!({ "enum": ([&[""][..], words].concat()) }),
        Takes::Number(most) => json!({"maximum": most}),
        Takes::Micros(least, most) => to(least.0, most.0),
        Takes::Text(most) => json!({"maxLength": most, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"}),
        Takes::Quota => {
            let zone = "( [A-Za-z0-9_+/-]+)?";
            let amount = format!("({AMOUNT}|(1000000000000|[1-9][0-9]{{0,11}}) requests?)");
            let window = format!("(rolling {PERIOD}|{PERIOD}{zone})");
            json!({"pattern": format!("^({amount} per {window}|{NONE})?$")})
        }
        Takes::Policy => {
            let period = r"\(([0-9]+(\.[0-9]+)?)(us|ms|s|m|h)(, ?[0-9]{1,3})?\)";
            json!({"pattern": format!("^(token_bucket|paced|warm_up({period})?)?$")})
        }
        Takes::Rule => json!({}),
    }
}

/// Properties of fields beyond their type.
fn fields() -> Vec<(&'static str, &'static str, Value)> {
    let words = |words: &[&str]| json!({"enum": words});
    let group = group_fields::fields().iter().filter(|field| field.takes != Takes::Rule);
    let mut fields: Vec<_> = group.map(|field| ("Group", field.name, of_group(field.takes))).collect();
    fields.extend([
        ("QueryLimit", "exec_elapsed_us", to(10_000, 2_592_000_000_000)),
        ("QueryLimit", "ru", json!({"pattern": format!("^({AMOUNT})?$")})),
        ("QueryLimit", "rows", json!({"maximum": 1_000_000_000_000_000_u64})),
        ("QueryLimit", "action", words(&["", "dryrun", "cooldown", "kill", "switch_group"])),
        ("QueryLimit", "switch_group", json!({"pattern": GROUP})),
        ("QueryLimit", "watch", words(&["", "exact", "similar"])),
        ("QueryLimit", "watch_us", to(WATCH_RANGE.0.0, WATCH_RANGE.1.0)),
        ("Binding", "tenant", json!({"pattern": PRINCIPAL})),
        ("Binding", "user", json!({"pattern": PRINCIPAL})),
        ("Binding", "group", json!({"pattern": NAME})),
        ("CostTable", "name", json!({"pattern": "^[a-z0-9_.-]{1,64}$"})),
        (
            "CostTable",
            "ru_per_unit",
            json!({
                "propertyNames": {"enum": UNITS},
                "additionalProperties": {"type": "string", "pattern": PRICE},
            }),
        ),
        ("CostTable", "replicas", json!({"maximum": 1_000})),
        ("Watch", "group", json!({"pattern": NAME})),
        ("Watch", "match", words(&["exact", "similar"])),
        ("Watch", "digest", json!({"pattern": "^([0-9A-Fa-f]{16}|[0-9A-Fa-f]{64})$"})),
        ("Watch", "action", words(&["", "dryrun", "cooldown", "kill", "switch_group"])),
        ("Watch", "switch_group", json!({"pattern": GROUP})),
        ("Watch", "text", json!({"maxLength": 8_192})),
        ("ApplyRequest", "steps", json!({"maxItems": crate::limits::MAX_STEPS})),
        ("PutCostTableRequest", "role", words(&["active", "shadow"])),
        ("DeleteGroupRequest", "name", json!({"pattern": NAME})),
        ("DeleteGroupRequest", "force_to", json!({"pattern": GROUP})),
        ("UnbindRequest", "tenant", json!({"pattern": PRINCIPAL})),
        ("UnbindRequest", "user", json!({"pattern": PRINCIPAL})),
        ("Prune", "under", json!({"pattern": GROUP})),
        ("RemoveWatchRequest", "id", json!({"minimum": 1})),
        ("CreateTokenRequest", "name", json!({"pattern": "^[A-Za-z0-9._@-]{1,64}$"})),
        ("CreateTokenRequest", "role", words(&Role::NAMES)),
        ("DrainControllerRequest", "rest_us", json!({"maximum": LONGEST_REST.0})),
        ("CreateTokenRequest", "ttl_us", json!({"maximum": MAX_TTL_MS * 1_000})),
        (
            "CreateTokenRequest",
            "groups",
            json!({"maxItems": MAX_GROUPS, "items": {"type": "string", "pattern": NAME}}),
        ),
        ("CreateTokenRequest", "tenant", json!({"pattern": PRINCIPAL})),
        ("Outcome", "kind", words(&["group", "binding", "cost_table", "watch"])),
        ("Outcome", "outcome", words(&["created", "altered", "unchanged", "deleted"])),
        ("ResolveReply", "matched", words(&["user in tenant", "user", "tenant", "default"])),
    ]);
    fields
}

fn complete_fields(schema: &mut Value) {
    for (_, field) in schema.get_mut("properties").map(entries).into_iter().flatten() {
        unescape(field);
        widen(field);
    }
}

/// Removes escapes: a description is a comment of a `.proto` file, in which brackets are escaped for rustdoc.
fn unescape(schema: &mut Value) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\\', "");
    }
}

/// The range of an integer in JSON: the whole range of its type, which the format `int64` does not cover.
fn widen(field: &mut Value) {
    let most = match (field["type"].as_str(), field["format"].as_str()) {
        (Some("integer"), Some("int32")) => json!(u32::MAX),
        (Some("integer"), _) => json!(u64::MAX),
        _ => return,
    };
    if let Some(field) = field.as_object_mut() {
        field.remove("format");
        field.insert("minimum".to_owned(), json!(0));
        field.insert("maximum".to_owned(), most);
    }
}

/// Adds properties to a field. Its description names its default then.
fn extend(schema: &mut Value, said: Value) {
    if let (Some(schema), Value::Object(said)) = (schema.as_object_mut(), said) {
        schema.remove("default");
        schema.extend(said);
    }
}

fn entries(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flat_map(Map::iter_mut)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::string::string_regex;
    use proptest::test_runner::TestRunner;
    use tidegate_core::units::{Rate, Ru};

    use super::*;
    use crate::definitions::quota::{Quota, QuotaError};
    use crate::quantity::{parse_amount, parse_limit};

    #[test]
    fn the_document_is_complete() {
        let document = complete(&super::super::api().split_for_parts().1);
        let mut ids = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                assert!(ids.insert(operation["operationId"].to_string()), "{method} {path}");
                assert!(operation["description"].is_string() && operation["tags"].is_array(), "{path}");
                for (status, response) in operation["responses"].as_object().unwrap() {
                    assert!(response["description"].is_string(), "{method} {path} {status}");
                }
                let has_body = operation.get("requestBody").is_some();
                for status in ["408", "413", "415"] {
                    let is_said = operation["responses"][status]["content"].is_object();
                    assert_eq!(is_said, has_body, "{method} {path} {status}");
                }
            }
        }
        // Every property is about a field that exists.
        for (schema, field, _) in fields() {
            assert!(
                document["components"]["schemas"][schema]["properties"][field]["type"].is_string(),
                "{schema}.{field}"
            );
        }
        assert!(!document.to_string().contains("int64"), "64-bit numbers of JSON are not signed here");
    }

    /// Texts that a pattern describes.
    fn written(pattern: &str) -> Vec<String> {
        let pattern = pattern.strip_prefix('^').unwrap().strip_suffix('$').unwrap();
        let (texts, mut runner) = (string_regex(pattern).unwrap(), TestRunner::deterministic());
        (0..2_000).map(|_| texts.new_tree(&mut runner).unwrap().current()).collect()
    }

    /// A client that is made from the document sends what it describes, and refuses an answer that it does not.
    #[test]
    fn patterns_describe_what_is_read_and_what_is_answered() {
        let pattern = |takes| of_group(takes)["pattern"].as_str().unwrap().to_owned();
        let rates = written(&pattern(Takes::Rate(&["unlimited"])));
        for text in rates.iter().filter(|text| !text.is_empty()) {
            assert!(parse_limit(text).is_ok(), "{text:?}");
        }
        let amounts = written(&pattern(Takes::Amount { zero: true }));
        for text in amounts.iter().filter(|text| !["", DEFAULT].contains(&text.as_str())) {
            assert!(parse_amount(text).is_ok(), "{text:?}");
        }
        let quotas = written(&pattern(Takes::Quota));
        for text in quotas.iter().filter(|text| !["", NONE].contains(&text.as_str())) {
            // Of zones it describes the letters only.
            let read = Quota::parse(text);
            assert!(matches!(read, Ok(_) | Err(QuotaError::Zone { .. })), "{text:?}: {read:?}");
        }
        // What the controller writes itself is among it.
        for (texts, written) in [
            (&rates, Rate::MAX.number().to_string()),
            (&amounts, Ru::MAX.number().to_string()),
            (&quotas, format!("{} per rolling month", Ru::MAX.number())),
            (&quotas, "1000000000000 requests per rolling day".to_owned()),
        ] {
            assert!(texts.contains(&written), "{written}");
        }
    }
}
