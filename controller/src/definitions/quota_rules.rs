//! The rules between groups where one has a quota: an operation counts in one, and nothing under it runs without bound.

use tidegate_core::group::{Fallback, GroupId};

use crate::definitions::catalog::Catalog;
use crate::definitions::definition::{Definition, UNLIMITED_BESIDE_QUOTA};
use crate::error::AdminError;
use crate::name::GroupName;

/// The remedy where one quota is above another.
const ONE: &str = "an operation counts in one quota, so keep one on each way from the top and take the other away with \
                   \"none\"";

/// Checks `definition` for group `id`, which may be new, below `parent`.
pub(super) fn check(
    catalog: &Catalog,
    id: GroupId,
    definition: &Definition,
    parent: Option<GroupId>,
) -> Result<(), AdminError> {
    let name = &definition.name;
    let above = parent.and_then(|parent| with_quota(catalog, parent));
    let Some(top) = definition.quota.as_ref().map(|_| name).or(above) else { return Ok(()) };
    // The field by which the group came under the rule.
    let field = if definition.quota.is_some() { "quota" } else { "parent" };
    let refuse = |message: String| Err(AdminError::invalid(field, message));
    if let (Some(above), "quota") = (above, field) {
        return refuse(format!("group {name} is below group {above}, which has a quota; {ONE}"));
    }
    if definition.fallback == Fallback::Unlimited {
        return Err(AdminError::invalid("fallback", format!("{UNLIMITED_BESIDE_QUOTA} from group {top}")));
    }
    let mut unseen: Vec<GroupId> = catalog.children(id).collect();
    while let Some(below) = unseen.pop() {
        let Some(under) = catalog.get(below) else { continue };
        if under.quota.is_some() {
            let under = &under.name;
            return refuse(format!(
                "group {under}, which has a quota, would be under that of group {top}; {ONE}"
            ));
        }
        if under.fallback == Fallback::Unlimited {
            let under = &under.name;
            return refuse(format!(
                "group {under} would be under the quota of group {top}, and its fallback \"unlimited\" would let nodes \
                 without leases use more than is left; give group {under} the fallback \"stop\" or RU/s per node first"
            ));
        }
        unseen.extend(catalog.children(below));
    }
    Ok(())
}

/// A warning of what is used without leases, beside a quota.
pub(super) fn warning(catalog: &Catalog, definition: &Definition, parent: Option<GroupId>) -> Option<String> {
    let above = parent.and_then(|parent| with_quota(catalog, parent));
    let top = definition.quota.as_ref().map(|_| &definition.name).or(above)?;
    let without = match (definition.fallback_total, definition.fallback) {
        (Some(total), _) => format!("{total} for all nodes"),
        (None, Fallback::Rate(each) | Fallback::Part(each, _)) => format!("{each} per node"),
        (None, Fallback::Stop | Fallback::Unlimited) => return None,
    };
    Some(format!(
        "group {}: with a fallback of {without}, nodes without leases may use more than the quota of group {top} has left; \
         with fallback stop they do not",
        definition.name
    ))
}

/// The group with a quota on the way from a group to the top.
pub(super) fn with_quota(catalog: &Catalog, id: GroupId) -> Option<&GroupName> {
    let path = catalog.path(id).into_iter().filter_map(|step| catalog.get(step));
    path.filter(|definition| definition.quota.is_some()).map(|definition| &definition.name).next()
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Rate;
    use tidegate_proto::v1;

    use super::*;

    fn definition(name: &str, parent: &str, quota: &str) -> Definition {
        let text = v1::Group {
            name: name.into(),
            parent: parent.into(),
            quota: quota.into(),
            ..v1::Group::default()
        };
        Definition::parse(&text).unwrap()
    }

    fn with(groups: &[(&str, &str, &str)]) -> Catalog {
        let mut catalog = Catalog::new(None, 0);
        catalog.put(GroupId::DEFAULT, Definition::default_group());
        for (name, parent, quota) in groups {
            let id = catalog.next_id().unwrap();
            let definition = definition(name, parent, quota);
            catalog.check(id, &definition).unwrap();
            catalog.put(id, definition);
        }
        catalog
    }

    fn refused(catalog: &Catalog, definition: &Definition, field: &str, names: [&str; 2]) {
        let id = catalog.id(&definition.name).unwrap_or_else(|| catalog.next_id().unwrap());
        let error = catalog.check(id, definition).unwrap_err();
        assert_eq!(error.field(), Some(field), "{error}");
        for name in names {
            assert!(error.to_string().contains(&format!("group {name}")), "{error}");
        }
    }

    #[test]
    fn one_quota_stands_on_each_way_from_the_top() {
        let catalog = with(&[
            ("a", "", ""),
            ("b", "a", "5 per day"),
            ("c", "b", ""),
            ("d", "c", ""),
            ("e", "a", "5 per day"),
            ("f", "", "7 per month"),
        ]);
        refused(&catalog, &definition("d", "c", "1 per hour"), "quota", ["d", "b"]);
        refused(&catalog, &definition("new", "d", "1 per hour"), "quota", ["new", "b"]);
        refused(&catalog, &definition("a", "", "9 per day"), "quota", ["a", "e"]);
        refused(&catalog, &definition("a", "f", ""), "parent", ["e", "f"]);
        refused(&catalog, &definition("e", "d", "5 per day"), "quota", ["e", "b"]);
        for allowed in [
            definition("b", "a", "6 per hour"),
            definition("c", "b", ""),
            definition("c", "f", ""),
            definition("e", "f", ""),
            definition("a", "", ""),
        ] {
            catalog.check(catalog.id(&allowed.name).unwrap(), &allowed).unwrap();
        }
    }

    #[test]
    fn nothing_under_a_quota_runs_without_bound() {
        let unlimited = |definition: Definition| Definition { fallback: Fallback::Unlimited, ..definition };
        let mut catalog = with(&[("a", "", "5 per day"), ("b", "a", ""), ("c", "", ""), ("d", "c", "")]);
        refused(&catalog, &unlimited(definition("b", "a", "")), "fallback", ["a", "a"]);
        let d = unlimited(definition("d", "c", ""));
        let id = catalog.id(&d.name).unwrap();
        catalog.check(id, &d).unwrap();
        catalog.put(id, d);
        refused(&catalog, &definition("c", "", "5 per day"), "quota", ["c", "d"]);
        refused(&catalog, &definition("c", "b", ""), "parent", ["a", "d"]);
    }

    #[test]
    fn a_quota_is_above_all_that_is_below_however_deep() {
        let mut catalog = with(&[("a", "", ""), ("b", "a", ""), ("c", "b", ""), ("d", "c", "5 per day")]);
        refused(&catalog, &definition("a", "", "9 per day"), "quota", ["d", "a"]);
        let id = catalog.id(&definition("d", "", "").name).unwrap();
        let unlimited = Definition { fallback: Fallback::Unlimited, ..definition("d", "c", "") };
        catalog.put(id, unlimited);
        refused(&catalog, &definition("a", "", "9 per day"), "quota", ["d", "a"]);
        catalog.put(id, definition("d", "c", ""));
        catalog
            .check(catalog.id(&definition("a", "", "").name).unwrap(), &definition("a", "", "9 per day"))
            .unwrap();
    }

    #[test]
    fn what_runs_without_leases_beside_a_quota_is_warned_of() {
        let catalog = with(&[("a", "", "5 per day"), ("b", "a", "")]);
        let b = catalog.id(&definition("b", "", "").name).unwrap();
        let each = Definition { fallback: Fallback::Rate(Rate::whole(3)), ..definition("b", "a", "") };
        let warnings = catalog.warnings(b, &each, 0);
        assert!(warnings.iter().any(|warning| warning.contains("quota of group a")), "{warnings:?}");
        assert!(warnings.iter().any(|warning| warning.contains("3 RU/s per node")), "{warnings:?}");
        let total = Definition { fallback_total: Some(Rate::whole(9)), ..definition("a", "", "5 per day") };
        let warnings = catalog.warnings(catalog.id(&total.name).unwrap(), &total, 0);
        assert!(warnings.iter().any(|warning| warning.contains("9 RU/s for all nodes")), "{warnings:?}");
        assert_eq!(catalog.warnings(b, &definition("b", "a", ""), 0), Vec::<String>::new());
    }
}
