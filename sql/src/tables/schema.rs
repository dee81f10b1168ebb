//! The names of the tables, their columns, and the types of those.

use crate::answer::Kind::{self, Float, Int, Text, Timestamp};

/// A table that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VirtualTable {
    /// `information_schema.resource_groups`, TiDB's.
    ResourceGroups,
    /// `information_schema.runaway_watches`, TiDB's.
    RunawayWatches,
    /// `tidegate.statements`: what statements cost.
    Statements,
    /// `tidegate.usage`: what groups and clients were charged.
    Usage,
    /// `tidegate.runaways`: statements that were convicted.
    Runaways,
    /// `tidegate.bindings`: which tenants and users are charged to which group.
    Bindings,
    /// `tidegate.clients`: nodes and gateways.
    Clients,
    /// `tidegate.proposals`: changes of groups that are proposed.
    Proposals,
}

impl VirtualTable {
    /// Every table.
    pub const ALL: [Self; 8] = [
        Self::ResourceGroups,
        Self::RunawayWatches,
        Self::Statements,
        Self::Usage,
        Self::Runaways,
        Self::Bindings,
        Self::Clients,
        Self::Proposals,
    ];

    /// The table of this name, in whatever case.
    pub fn named(schema: &str, name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| {
            table.schema().eq_ignore_ascii_case(schema) && table.name().eq_ignore_ascii_case(name)
        })
    }

    /// Schema and name.
    pub const fn full_name(self) -> &'static str {
        match self {
            Self::ResourceGroups => "information_schema.resource_groups",
            Self::RunawayWatches => "information_schema.runaway_watches",
            Self::Statements => "tidegate.statements",
            Self::Usage => "tidegate.usage",
            Self::Runaways => "tidegate.runaways",
            Self::Bindings => "tidegate.bindings",
            Self::Clients => "tidegate.clients",
            Self::Proposals => "tidegate.proposals",
        }
    }

    /// The schema.
    pub fn schema(self) -> &'static str {
        self.full_name().split_once('.').map_or("", |(schema, _)| schema)
    }

    /// The name within the schema.
    pub fn name(self) -> &'static str {
        self.full_name().split_once('.').map_or("", |(_, name)| name)
    }

    /// The columns, in lower case. Amounts are RU, times are UTC.
    pub const fn columns(self) -> &'static [(&'static str, Kind)] {
        match self {
            Self::ResourceGroups => &[
                ("name", Text),
                ("ru_per_sec", Text),
                ("priority", Text),
                ("burstable", Text),
                ("query_limit", Text),
                ("background", Text),
            ],
            Self::RunawayWatches => &[
                ("id", Int),
                ("resource_group_name", Text),
                ("start_time", Timestamp),
                ("end_time", Text),
                ("watch", Text),
                ("watch_text", Text),
                ("source", Text),
                ("action", Text),
                ("rule", Text),
            ],
            Self::Statements => STATEMENTS,
            Self::Usage => USAGE,
            Self::Runaways => &[
                ("resource_group", Text),
                ("first_time", Timestamp),
                ("last_time", Timestamp),
                ("repeats", Int),
                ("match_type", Text),
                ("action", Text),
                ("switch_group", Text),
                ("rule", Text),
                ("template", Text),
                ("fingerprint", Text),
                ("text_sha256", Text),
                ("tenant", Text),
                ("user", Text),
                ("gateway", Text),
            ],
            Self::Bindings => &[("tenant", Text), ("user", Text), ("resource_group", Text)],
            Self::Clients => &[
                ("client", Text),
                ("incarnation", Int),
                ("agent", Text),
                ("connected", Int),
                ("silent_seconds", Float),
                ("leases", Int),
                ("messages", Int),
                ("process_cpu_seconds", Float),
                ("metered_cpu_seconds", Float),
                ("resident_bytes", Int),
            ],
            Self::Proposals => &[
                ("resource_group", Text),
                ("settings", Text),
                ("proposed_time", Timestamp),
                ("compared_since", Timestamp),
                ("revision", Int),
                ("live_revision", Int),
            ],
        }
    }
}

const STATEMENTS: &[(&str, Kind)] = &[
    ("resource_group", Text),
    ("fingerprint", Text),
    ("kind", Text),
    ("template", Text),
    ("calls", Int),
    ("ru", Float),
    ("average_ru", Float),
    ("max_ru", Float),
    ("cpu_ru", Float),
    ("read_ru", Float),
    ("write_ru", Float),
    ("network_ru", Float),
    ("rows", Int),
    ("elapsed_seconds", Float),
    ("waited_seconds", Float),
    ("errors", Int),
    ("throttled", Int),
    ("estimated", Int),
    ("first_time", Timestamp),
    ("last_time", Timestamp),
    ("cpu_seconds", Float),
    ("read_requests", Int),
    ("read_batches", Int),
    ("read_bytes", Int),
    ("write_requests", Int),
    ("write_batches", Int),
    ("write_bytes", Int),
    ("net_in_bytes", Int),
    ("net_out_bytes", Int),
    ("cross_zone_bytes", Int),
];

const USAGE: &[(&str, Kind)] = &[
    ("resource_group", Text),
    ("client", Text),
    ("incarnation", Int),
    ("ru_per_sec", Float),
    ("ru", Float),
    ("cpu_ru", Float),
    ("read_ru", Float),
    ("write_ru", Float),
    ("network_ru", Float),
    ("flat_ru", Float),
    ("shadow_ru", Float),
    ("operations", Int),
    ("throttled", Int),
    ("waited_seconds", Float),
    ("cpu_seconds", Float),
    ("read_requests", Int),
    ("read_batches", Int),
    ("read_bytes", Int),
    ("write_requests", Int),
    ("write_batches", Int),
    ("write_bytes", Int),
    ("net_in_bytes", Int),
    ("net_out_bytes", Int),
    ("cross_zone_bytes", Int),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_by_name_and_columns_are_unique() {
        for table in VirtualTable::ALL {
            assert_eq!(VirtualTable::named(table.schema(), &table.name().to_uppercase()), Some(table));
            let mut names: Vec<&str> = table.columns().iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.columns().len(), "{table:?}");
        }
        assert_eq!(VirtualTable::named("tidegate", "resource_groups"), None);
    }
}
