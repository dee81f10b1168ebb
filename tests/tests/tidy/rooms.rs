//! Rooms of a crate: how much one type may hold and do, and who sees its fields.

use std::collections::BTreeMap;

use super::{all_needed, bare, files, function, none};

/// Methods of a type, without those of traits: what one keeps in mind. Beyond it each file of a room reaches for
/// everything.
const MOST_METHODS: usize = 30;
/// Fields of a type: with more, no method needs all of them, and the groups that belong together have no name.
const MOST_FIELDS: usize = 15;

/// The product.
const PRODUCT: [&str; 13] = [
    "cli/src",
    "client/src",
    "consensus/src",
    "console/src",
    "controller/src",
    "core/src",
    "cost-model/src",
    "cpu-clock/src",
    "gateway/src",
    "listener/src",
    "sql/src",
    "tls/src",
    "traces/src",
];

/// Types with more methods, how many they may have, and why they have them. A number here may only get smaller.
const MANY: [(&str, usize, &str); 1] =
    [("core/src/node: NodeGroup", 40, "the node machine's face: a method for each event, and for each look")];

/// Types with more fields, and why.
const WIDE: [(&str, &str); 12] = [
    ("cli/src/command/gateway/settings.rs: Settings", "a field for each setting of the gateway"),
    ("cli/src/demo/report.rs: GroupRow", "a row of the demo's table"),
    ("cli/src/top/board.rs: Board", "what the page shows, and all that a person can change about it"),
    ("cli/src/view/consumption.rs: ConsumptionView", "a row of consumption as it is printed"),
    ("cli/src/view/statement.rs: StatementView", "a row of the statistics as it is printed"),
    ("controller/src/metrics.rs: Metrics", "a field for each series of the metrics page"),
    ("controller/src/definitions/definition.rs: Definition", "a field for each setting of a group"),
    ("controller/src/rest/statements.rs: StatementShape", "a row of the statistics as REST writes it"),
    ("core/src/exchange.rs: LeaseTerms", "one message: a field for each term of a lease"),
    ("cost-model/src/sql/dialect.rs: Rules", "a field for each rule by which dialects differ"),
    ("gateway/src/config.rs: Config", "a field for each setting of the gateway"),
    ("gateway/src/metrics.rs: Metrics", "a field for each series of the metrics page"),
];

/// What a room owns, behind the one lock of the service.
const OWNERS: [(&str, &str); 4] = [
    ("controller/src/accounts/mod.rs", "Accounts"),
    ("controller/src/definitions/mod.rs", "Definitions"),
    ("controller/src/leasing/mod.rs", "Leasing"),
    ("controller/src/statements/mod.rs", "Convictions"),
];

pub(super) fn name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Structs of a file and the lines of their fields.
fn structs<'a>(mut lines: impl Iterator<Item = &'a str>) -> Vec<(String, Vec<&'a str>)> {
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let declared = (!line.starts_with(' ')).then(|| bare(line).strip_prefix("struct ")).flatten();
        let Some(declared) = declared.filter(|declared| declared.ends_with('{')) else { continue };
        let body = lines.by_ref().take_while(|line| *line != "}");
        let is_field = |line: &&str| {
            let rest = bare(line).trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
            line.starts_with("    ") && !line.starts_with("     ") && rest.starts_with(": ")
        };
        found.push((name(declared), body.filter(is_field).collect()));
    }
    found
}

/// The type whose own methods a line begins.
fn begins_methods(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    if rest.contains(" for ") {
        return None;
    }
    // Its parameters, of which none has parameters itself.
    let rest = rest.strip_prefix('<').and_then(|rest| rest.split_once('>')).map_or(rest, |(_, rest)| rest);
    Some(name(rest.trim_start()))
}

fn is_method(line: &str) -> bool {
    line.starts_with("    ") && !line.starts_with("     ") && function(line).is_some()
}

/// The folder or file below `src` that a file belongs to, with its crate.
fn room(path: &str) -> &str {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    let below = inside.find(['/', '.']).unwrap_or(inside.len());
    path.split_at(path.len() - inside.len() + below).0
}

#[test]
fn types_do_a_few_things() {
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    for file in PRODUCT.into_iter().flat_map(|folder| files(folder, ".rs")) {
        let mut of = None;
        for line in file.code() {
            if !line.starts_with(' ') {
                of = begins_methods(line).map(|name| format!("{}: {name}", room(&file.path)));
            }
            if let Some(of) = of.clone().filter(|_| is_method(line)) {
                *methods.entry(of).or_default() += 1;
            }
        }
    }
    let counted = methods.get("controller/src/leasing: Leasing");
    assert!(counted.is_some_and(|count| *count > 10), "methods are counted");
    let listed = |of: &str| MANY.iter().find(|(many, ..)| *many == of);
    let may = |of: &str| listed(of).map_or(MOST_METHODS, |(_, most, _)| *most);
    let many = methods.iter().filter(|(of, count)| **count > may(of));
    let found: Vec<String> = many.map(|(of, count)| format!("{of} has {count} methods")).collect();
    none(&found, &format!("a type has at most {MOST_METHODS} methods: cut it by what it owns"));
    let fewer = |of: &str, most: usize| methods.get(of).is_none_or(|count| *count < most);
    let left = MANY.into_iter().filter(|(of, most, _)| fewer(of, *most)).map(|(of, ..)| of.to_owned());
    none(&left.collect::<Vec<_>>(), "these have fewer methods now: write that down, or take them out");
}

#[test]
fn types_hold_a_few_things() {
    let (mut found, mut met) = (Vec::new(), Vec::new());
    for file in PRODUCT.into_iter().flat_map(|folder| files(folder, ".rs")) {
        for (name, fields) in structs(file.code()) {
            let (of, count) = (format!("{}: {name}", file.path), fields.len());
            if count > MOST_FIELDS && !WIDE.iter().any(|(wide, _)| *wide == of) {
                found.push(format!("{of} has {count} fields"));
            } else if count > MOST_FIELDS {
                met.push(of);
            }
        }
    }
    none(&found, &format!("a type has at most {MOST_FIELDS} fields: name those that belong together"));
    all_needed(WIDE.map(|(of, _)| of), &met);
}

#[test]
fn only_its_room_sees_the_fields_of_an_owner() {
    for (path, owner) in OWNERS {
        let folder = path.strip_suffix("mod.rs").unwrap_or(path);
        let file = files(folder, "mod.rs").into_iter().find(|file| file.path == path).unwrap();
        let all = structs(file.code());
        let (_, fields) = all.iter().find(|(name, _)| name == owner).unwrap();
        assert!(!fields.is_empty(), "{path}: {owner} has no field");
        let seen: Vec<String> =
            fields.iter().filter(|line| bare(line) != line.trim()).map(|line| line.to_string()).collect();
        none(&seen, &format!("{path}: {owner} is asked through methods, and its fields are private"));
    }
}
