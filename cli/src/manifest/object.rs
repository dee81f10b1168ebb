//! A document as what it defines: a group, a binding, a cost table or a watch.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value as JsonValue;
use tidegate_controller::group_fields;
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;

use super::fault::{Fault, Faults};
use super::fields::{Fields, Takes, Wrong, cut};
use super::node::{Entry, Node, Value};
use super::source::Source;

/// What a file defines, and where.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) file: String,
    /// Where the document begins.
    pub(crate) line: usize,
    /// The number of the document, from 1, and what it defines.
    pub(crate) place: String,
    /// Where each field stands.
    lines: BTreeMap<String, usize>,
}

const KIND: (&str, Takes) = ("kind", Takes::Text);

/// The fields of a group, as the controller lists them. The message itself says what each takes.
static GROUP: LazyLock<Vec<(&'static str, Takes)>> = LazyLock::new(|| {
    let blank = serde_json::to_value(v1::Group::default()).unwrap_or_default();
    let takes = |name: &'static str| match name {
        "query_limit" => (name, Takes::Rule),
        _ if blank.get(name).is_some_and(JsonValue::is_number) => (name, Takes::Number),
        _ => (name, Takes::Text),
    };
    let alterable = group_fields::alterable().map(takes);
    [KIND, ("name", Takes::Text)].into_iter().chain(alterable).chain([("revision", Takes::Told)]).collect()
});

const BINDING: &[(&str, Takes)] =
    &[KIND, ("tenant", Takes::Text), ("user", Takes::Text), ("group", Takes::Text)];

const COST_TABLE: &[(&str, Takes)] = &[
    KIND,
    ("role", Takes::Text),
    ("name", Takes::Text),
    ("version", Takes::Number),
    ("replicas", Takes::Number),
    ("ru_per_unit", Takes::Texts),
];

const WATCH: &[(&str, Takes)] = &[
    KIND,
    ("group", Takes::Text),
    ("match", Takes::Text),
    ("digest", Takes::Text),
    ("text", Takes::Text),
    ("action", Takes::Text),
    ("switch_group", Takes::Text),
    ("end_unix_ms", Takes::Number),
    ("id", Takes::Told),
    ("start_unix_ms", Takes::Told),
    ("source", Takes::Told),
    ("rule", Takes::Told),
];

/// The fields of a kind.
type Known = &'static [(&'static str, Takes)];

/// A kind, its fields, and those by which it is known where no `kind` says it, as in what `--output json` lists.
pub(super) type Sort = (&'static str, Known, &'static [&'static str]);

pub(super) fn sorts() -> [Sort; 4] {
    [
        ("Group", &GROUP, &["ru_per_sec"]),
        ("CostTable", COST_TABLE, &["version", "ru_per_unit"]),
        ("Watch", WATCH, &["digest", "match"]),
        ("Binding", BINDING, &["tenant", "user", "group"]),
    ]
}

/// What the documents of a source define. A document that is a list stands for its items.
pub(super) fn objects(source: &Source, documents: &[Node], faults: &mut Faults) -> Vec<Object> {
    let mut all = Vec::new();
    let mut number = 0;
    for document in documents {
        let items = match &document.value {
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(document),
        };
        for node in items {
            number += 1;
            let mut wrong = Vec::new();
            let read = object(source, number, node, &mut wrong);
            let place =
                read.as_ref().map_or_else(|| format!("document {number}"), |object| object.place.clone());
            for Wrong { line, message } in wrong {
                faults.add(Fault { file: source.name.clone(), line, place: place.clone(), message });
            }
            all.extend(read);
        }
    }
    all
}

fn object(source: &Source, number: usize, node: &Node, wrong: &mut Vec<Wrong>) -> Option<Object> {
    let Value::Map(entries) = &node.value else {
        let message =
            format!("is {}, not fields; write `kind: Group` and the fields below it", node.value.kind());
        wrong.push(Wrong { line: node.line, message });
        return None;
    };
    let (sort, known) = match sort(node.line, entries) {
        Ok(sort) => sort,
        Err(error) => {
            wrong.push(error);
            return None;
        }
    };
    let fields = Fields::read(entries, known, wrong);
    let is_stored = sort == "CostTable" && fields.text("role") == Some("stored");
    if is_stored {
        // Listed, and in no role: there is nothing that it says.
        return None;
    }
    let kind = match sort {
        "Group" => match group(&fields) {
            Ok(group) => Kind::Group(Box::new(group)),
            Err(message) => {
                wrong.push(Wrong { line: node.line, message });
                return None;
            }
        },
        "CostTable" => Kind::CostTable(cost_table(&fields)),
        "Watch" => Kind::Watch(watch(&fields)),
        _ => Kind::Binding(binding(&fields)),
    };
    Some(Object {
        place: format!("document {number}, {}", subject(&kind)),
        kind,
        file: source.name.clone(),
        line: node.line,
        lines: fields.lines,
    })
}

/// The kind of a document, by what it says or by what it has.
fn sort(line: usize, entries: &[Entry]) -> Result<(&'static str, Known), Wrong> {
    let names = sorts().map(|(name, ..)| name).join(", ");
    if let Some(entry) = entries.iter().find(|entry| entry.name == "kind") {
        let said = match &entry.node.value {
            Value::Plain(text) | Value::Quoted(text) => text.as_str(),
            other => other.kind(),
        };
        let known = sorts().into_iter().find(|(name, ..)| *name == said);
        return known.map(|(name, fields, _)| (name, fields)).ok_or_else(|| Wrong {
            line: entry.node.line,
            message: format!("kind: {:?} is none of {names}", cut(said)),
        });
    }
    let has = |field: &&str| entries.iter().any(|entry| entry.name == *field);
    let found = sorts().into_iter().find(|(.., by)| {
        // A binding has a group, and one of the two others.
        if by.len() == 3 {
            has(&"group") && by.iter().filter(|field| has(field)).count() > 1
        } else {
            by.iter().all(has)
        }
    });
    found
        .map(|(name, fields, _)| (name, fields))
        .ok_or_else(|| Wrong { line, message: format!("kind: is missing; write one of {names}") })
}

/// The message of the fields, by the names that they have in it.
fn group(fields: &Fields) -> Result<v1::Group, String> {
    let texts = fields.texts().iter().filter(|(name, _)| *name != KIND.0);
    let texts = texts.map(|(name, text)| (name.clone(), JsonValue::from(text.as_str())));
    let of = |most: u64| {
        let numbers =
            fields.numbers().iter().map(|(name, number)| (name.clone(), (*number).min(most).into()));
        serde_json::from_value(JsonValue::Object(texts.clone().chain(numbers).collect()))
    };
    // One that is too large for its field is for the controller to refuse, which knows the range.
    let group: v1::Group =
        of(u64::MAX).or_else(|_| of(u32::MAX.into())).map_err(|error| error.to_string())?;
    Ok(v1::Group { query_limit: fields.map("query_limit").map(rule), ..group })
}

fn rule(fields: &Fields) -> v1::QueryLimit {
    v1::QueryLimit {
        exec_elapsed_us: fields.number("exec_elapsed_us"),
        ru: fields.text_or_empty("ru"),
        rows: fields.number("rows"),
        action: fields.text_or_empty("action"),
        switch_group: fields.text_or_empty("switch_group"),
        watch: fields.text_or_empty("watch"),
        watch_us: fields.number("watch_us"),
    }
}

fn binding(fields: &Fields) -> v1::Binding {
    v1::Binding {
        tenant: fields.text_or_empty("tenant"),
        user: fields.text_or_empty("user"),
        group: fields.text_or_empty("group"),
    }
}

fn cost_table(fields: &Fields) -> v1::PutCostTableRequest {
    let prices = fields.map("ru_per_unit").map(|prices| prices.texts().clone()).unwrap_or_default();
    let table = v1::CostTable {
        name: fields.text_or_empty("name"),
        version: fields.small("version"),
        replicas: fields.small("replicas"),
        ru_per_unit: prices.into_iter().collect(),
    };
    v1::PutCostTableRequest { role: fields.text_or_empty("role"), table: Some(table) }
}

fn watch(fields: &Fields) -> v1::Watch {
    v1::Watch {
        group: fields.text_or_empty("group"),
        r#match: fields.text_or_empty("match"),
        digest: fields.text_or_empty("digest"),
        text: fields.text_or_empty("text"),
        action: fields.text_or_empty("action"),
        switch_group: fields.text_or_empty("switch_group"),
        end_unix_ms: fields.number("end_unix_ms"),
        ..v1::Watch::default()
    }
}

/// The object that a document defines: no two documents define the same.
fn subject(kind: &Kind) -> String {
    match kind {
        Kind::Group(group) => format!("group {}", cut(&group.name.to_ascii_lowercase())),
        Kind::Binding(binding) => match (binding.tenant.as_str(), binding.user.as_str()) {
            (tenant, "") => format!("binding of tenant {}", cut(tenant)),
            ("", user) => format!("binding of user {}", cut(user)),
            (tenant, user) => format!("binding of user {} of tenant {}", cut(user), cut(tenant)),
        },
        Kind::CostTable(put) => format!("{} cost table", cut(&put.role)),
        Kind::Watch(watch) => format!(
            "{} watch {} of group {}",
            cut(&watch.r#match),
            cut(&watch.digest.to_ascii_lowercase()),
            cut(&watch.group.to_ascii_lowercase())
        ),
        Kind::DeleteGroup(_) | Kind::DeleteBinding(_) | Kind::DeleteWatch(_) => "deletion".to_owned(),
    }
}

/// Refuses what two documents are about, whatever file each is in.
pub(super) fn refuse_twice(all: &[Object], faults: &mut Faults) {
    let mut seen: BTreeMap<String, &Object> = BTreeMap::new();
    for object in all {
        let subject = subject(&object.kind);
        match seen.get(&subject) {
            Some(other) => {
                let message = format!("is in {}:{}, too; say one thing of it", other.file, other.line);
                faults.add(object.fault("", message));
            }
            None => drop(seen.insert(subject, object)),
        }
    }
}

impl Object {
    /// What is wrong with a field, or with all of it.
    pub(crate) fn fault(&self, field: &str, message: String) -> Fault {
        // For a field that is not there, the place of the one around it.
        let around = field.rsplit_once('.').map_or(field, |(around, _)| around);
        let line = [field, around].into_iter().find_map(|field| self.lines.get(field));
        let message = if field.is_empty() { message } else { format!("{field}: {message}") };
        Fault {
            file: self.file.clone(),
            line: line.copied().unwrap_or(self.line),
            place: self.place.clone(),
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::{Comments, document};
    use super::super::{Unnamed, manifest};
    use super::*;
    use crate::view::CostTableView;

    fn read(text: &str) -> Result<Vec<Object>, Faults> {
        manifest(&[Source { name: "f".into(), text: text.into() }], Unnamed::Stay)
    }

    fn refused(text: &str) -> String {
        read(text).map(|read| panic!("{read:?}")).unwrap_err().to_string()
    }

    #[test]
    fn each_kind_is_read_with_every_field() {
        let text = "kind: Group\nname: shop\nru_per_sec: 2000\nweight: 2\nquery_limit: {ru: 5, action: kill}\n\
                    ---\nkind: Binding\ntenant: acme\ngroup: shop\n---\nkind: CostTable\nrole: shadow\nname: mine\n\
                    version: 1\nru_per_unit:\n  cpu_ns: 1/3000000\n---\nkind: Watch\ngroup: shop\nmatch: similar\n\
                    digest: 00000000000000ab\n";
        let read = read(text).unwrap();
        let [Kind::Group(group), Kind::Binding(binding), Kind::CostTable(costs), Kind::Watch(watch)] =
            &read.iter().map(|object| object.kind.clone()).collect::<Vec<_>>()[..]
        else {
            panic!()
        };
        assert_eq!((group.ru_per_sec.as_str(), group.weight), ("2000", 2));
        assert_eq!(group.query_limit.as_ref().unwrap().ru, "5");
        assert_eq!((binding.tenant.as_str(), costs.role.as_str()), ("acme", "shadow"));
        assert_eq!(costs.table.as_ref().unwrap().ru_per_unit["cpu_ns"], "1/3000000");
        assert_eq!(watch.digest, "00000000000000ab");
    }

    /// What is read of a thing as `diff` writes it, and as `--output json` lists it.
    fn through_files(kind: &str, thing: &impl serde::Serialize) -> [Kind; 2] {
        let JsonValue::Object(state) = serde_json::to_value(thing).unwrap() else { panic!() };
        let texts = [
            document(kind, &state, Comments::None),
            JsonValue::from(vec![JsonValue::Object(state)]).to_string(),
        ];
        texts.map(|text| read(&text).unwrap().remove(0).kind)
    }

    /// A group in which each text and number is another one.
    fn full_group() -> v1::Group {
        let some = |text: &str| text.to_owned();
        let begun = v1::Group { parent: some("p"), demote_to: some("d"), ..v1::Group::default() };
        let mut json = serde_json::to_value(begun).unwrap();
        for (number, (name, value)) in (1_u64..).zip(json.as_object_mut().unwrap()) {
            *value = if value.is_number() { number.into() } else { format!("its {name}").into() };
        }
        let query_limit = Some(v1::QueryLimit {
            exec_elapsed_us: 101,
            ru: some("102"),
            rows: 103,
            action: some("kill"),
            switch_group: some("slow"),
            watch: some("similar"),
            watch_us: 104,
        });
        v1::Group { query_limit, ..serde_json::from_value(json).unwrap() }
    }

    #[test]
    fn no_field_of_a_kind_is_lost_on_its_way_from_an_answer_through_a_file_to_a_request() {
        let some = |text: &str| text.to_owned();
        let group = full_group();
        // The controller counts revisions itself.
        let expected = Kind::Group(Box::new(v1::Group { revision: 0, ..group.clone() }));
        assert_eq!(through_files("Group", &group), [expected.clone(), expected]);

        let binding = v1::Binding { tenant: some("acme"), user: some("ann"), group: some("shop") };
        let expected = Kind::Binding(binding.clone());
        assert_eq!(through_files("Binding", &binding), [expected.clone(), expected]);

        let watch = v1::Watch {
            id: 1,
            group: some("shop"),
            r#match: some("similar"),
            digest: some("00ff"),
            text: some("SELECT ?"),
            action: some("switch_group"),
            switch_group: some("slow"),
            start_unix_ms: 2,
            end_unix_ms: 3,
            source: some("gw-1"),
            rule: some("RU=5"),
        };
        let told = (0, String::new());
        let expected = Kind::Watch(v1::Watch {
            id: told.0,
            start_unix_ms: told.0,
            source: told.1.clone(),
            rule: told.1,
            ..watch.clone()
        });
        assert_eq!(through_files("Watch", &watch), [expected.clone(), expected]);

        let prices = [("cpu_ns", "1/3000000"), ("write_bytes", "1/1024")];
        let table = v1::CostTable {
            name: some("mine"),
            version: 4,
            replicas: 3,
            ru_per_unit: prices.map(|(unit, price)| (some(unit), some(price))).into(),
        };
        let view = CostTableView::new(table.clone(), "shadow");
        let expected = Kind::CostTable(v1::PutCostTableRequest { role: some("shadow"), table: Some(table) });
        assert_eq!(through_files("CostTable", &view), [expected.clone(), expected]);
    }

    #[test]
    fn what_is_listed_is_read_without_a_kind() {
        let text = r#"[{"name":"a","ru_per_sec":"unlimited","parent":"","query_limit":null,"revision":7,"weight":1},
            {"tenant":"","user":"u","group":"a"},
            {"id":3,"group":"a","match":"similar","digest":"00","text":"","source":"manual"},
            {"name":"t","version":1,"role":"active","replicas":1,"ru_per_unit":{}},
            {"name":"t","version":2,"role":"stored","replicas":1,"ru_per_unit":{}}]"#;
        let kinds: Vec<String> = read(text).unwrap().iter().map(|object| object.place.clone()).collect();
        assert_eq!(
            kinds,
            [
                "document 1, group a",
                "document 2, binding of user u",
                "document 3, similar watch 00 of group a",
                "document 4, active cost table",
            ]
        );
    }

    #[test]
    fn every_fault_is_told_with_its_line() {
        let text = "kind: Group\nname: a\nru_per_sec: null\nwieght: 1\nweight: \"5\"\nttl_us: 1e6\nquery_limit:\n  ruu: 5\nrate: 5\n\
                    ---\nname: b\n---\nkind: Grup\n---\nkind: Binding\ngroup: [a]\nuser: {x: 1}\n---\nplain text\n---\n\
                    kind: Group\nname: A\nru_per_sec: 1\n";
        let said = refused(text);
        for part in [
            "12 faults, nothing is changed:",
            "f:3: document 1, group a: ru_per_sec: is empty",
            "f:4: document 1, group a: wieght: unknown field; the fields are kind, name,",
            "f:5: document 1, group a: weight: \"5\" is a text",
            "f:6: document 1, group a: ttl_us: 1e6 is no whole number",
            "f:8: document 1, group a: query_limit.ruu: unknown field",
            "f:9: document 1, group a: rate: unknown field; here it is called ru_per_sec",
            "f:11: document 2: kind: is missing",
            "f:13: document 3: kind: \"Grup\" is none of Group",
            "f:16: document 4, binding of tenant : group: a list where a text belongs",
            "f:17: document 4, binding of tenant : user: a map where a text belongs",
            "f:19: document 5: is a text, not fields",
            "f:21: document 6, group a: is in f:1, too",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(refused("# only this\n").contains("no document is in it"));
    }

    #[test]
    fn a_fault_of_the_controller_is_told_at_its_field() {
        let read = read("kind: Group\nname: a\nru_per_sec: x\nquery_limit:\n  ru: y\n").unwrap();
        let line = |field: &str| read[0].fault(field, String::new()).line;
        assert_eq!((line("ru_per_sec"), line("query_limit.ru"), line("query_limit.rows")), (3, 5, 4));
        assert_eq!((line("burst"), line("")), (1, 1));
    }
}
