//! Each column of a table shows what the controller says in the field of its name, in the unit of its name.

use prost::Message;
use tidegate_proto::v1;
use tidegate_sql::VirtualTable;

use crate::support::{lines, reply, select};

async fn shown(table: &str, answer: &impl Message) -> Vec<String> {
    let rows = select(vec![reply(answer)], &format!("SELECT * FROM {table}")).await;
    assert!(rows.notes.is_empty(), "{:?}", rows.notes);
    lines(&rows)
}

/// Beside the tests below, which have the values in this order.
#[tokio::test]
async fn the_columns_of_a_table_have_these_names_and_kinds_in_this_order() {
    let used = "cpu_seconds Float, read_requests Int, read_batches Int, read_bytes Int, write_requests Int, \
                write_batches Int, write_bytes Int, net_in_bytes Int, net_out_bytes Int, cross_zone_bytes Int";
    for table in VirtualTable::ALL {
        let expected = match table {
            VirtualTable::ResourceGroups => {
                "NAME Text, RU_PER_SEC Text, PRIORITY Text, BURSTABLE Text, QUERY_LIMIT Text, BACKGROUND Text"
                    .to_owned()
            }
            VirtualTable::RunawayWatches => {
                "ID Int, RESOURCE_GROUP_NAME Text, START_TIME Timestamp, END_TIME Text, WATCH Text, \
                 WATCH_TEXT Text, SOURCE Text, ACTION Text, RULE Text"
                    .to_owned()
            }
            VirtualTable::Statements => format!(
                "resource_group Text, fingerprint Text, kind Text, template Text, calls Int, ru Float, \
                 average_ru Float, max_ru Float, cpu_ru Float, read_ru Float, write_ru Float, network_ru Float, \
                 rows Int, elapsed_seconds Float, waited_seconds Float, errors Int, throttled Int, estimated Int, \
                 first_time Timestamp, last_time Timestamp, {used}"
            ),
            VirtualTable::Usage => format!(
                "resource_group Text, client Text, incarnation Int, ru_per_sec Float, ru Float, cpu_ru Float, \
                 read_ru Float, write_ru Float, network_ru Float, flat_ru Float, shadow_ru Float, operations Int, \
                 throttled Int, waited_seconds Float, {used}"
            ),
            VirtualTable::Runaways => {
                "resource_group Text, first_time Timestamp, last_time Timestamp, repeats Int, match_type Text, \
                 action Text, switch_group Text, rule Text, template Text, fingerprint Text, text_sha256 Text, \
                 tenant Text, user Text, gateway Text"
                    .to_owned()
            }
            VirtualTable::Bindings => "tenant Text, user Text, resource_group Text".to_owned(),
            VirtualTable::Clients => {
                "client Text, incarnation Int, agent Text, connected Int, silent_seconds Float, leases Int, \
                 messages Int, process_cpu_seconds Float, metered_cpu_seconds Float, resident_bytes Int"
                    .to_owned()
            }
            VirtualTable::Proposals => {
                "resource_group Text, settings Text, proposed_time Timestamp, compared_since Timestamp, \
                 revision Int, live_revision Int"
                    .to_owned()
            }
        };
        // An answer of no rows is one to every call.
        let read = select(vec![reply(&())], &format!("SELECT * FROM {}", table.full_name())).await;
        let columns = read.columns.iter().map(|column| format!("{} {:?}", column.name, column.kind));
        assert_eq!(columns.collect::<Vec<_>>().join(", "), expected);
        assert!(read.rows.is_empty());
    }
}

fn usage() -> v1::Usage {
    v1::Usage {
        cpu_ns: 1_250_000_000,
        read_requests: 62,
        read_batches: 63,
        read_bytes: 64,
        write_requests: 65,
        write_batches: 66,
        write_bytes: 67,
        net_in_bytes: 68,
        net_out_bytes: 69,
        cross_zone_bytes: 70,
    }
}

#[tokio::test]
async fn a_statement_has_its_costs_by_resource_its_times_and_its_counts() {
    let row = v1::StatementRow {
        group: "shop".into(),
        fingerprint: "0f".into(),
        kind: "select".into(),
        template: "SELECT ?".into(),
        calls: 4,
        cpu_micro_ru: 1_000_000,
        read_micro_ru: 2_000_000,
        write_micro_ru: 3_000_000,
        network_micro_ru: 4_000_000,
        max_micro_ru: 5_500_000,
        usage: Some(usage()),
        rows: 11,
        elapsed_us: 12_500_000,
        waited_us: 13_500_000,
        errors: 14,
        throttled: 15,
        estimated: 16,
        first_unix_ms: 1_000,
        last_unix_ms: 2_000,
    };
    let never = v1::StatementRow { fingerprint: "10".into(), ..v1::StatementRow::default() };
    let answer = v1::ListStatementsReply { rows: vec![row, never], total: 2, ..Default::default() };
    assert_eq!(
        shown("tidegate.statements", &answer).await,
        [
            "shop|0f|select|SELECT ?|4|10|2.5|5.5|1|2|3|4|11|12.5|13.5|14|15|16|1970-01-01 00:00:01.000|\
             1970-01-01 00:00:02.000|1.25|62|63|64|65|66|67|68|69|70",
            "|10|||0|0|NULL|0|0|0|0|0|0|0|0|0|0|0|NULL|NULL|0|0|0|0|0|0|0|0|0|0",
        ]
    );
}

#[tokio::test]
async fn usage_is_that_of_a_group_or_of_a_node_in_it() {
    let total = v1::Consumption {
        cpu_micro_ru: 1_000_000,
        read_micro_ru: 2_000_000,
        write_micro_ru: 3_000_000,
        network_micro_ru: 4_000_000,
        flat_micro_ru: 500_000,
        shadow_micro_ru: 6_000_000,
        operations: 7,
        throttled: 8,
        waited_us: 9_500_000,
        usage: Some(usage()),
        exact: None,
    };
    let row = |client: &str| v1::UsageRow {
        group: "shop".into(),
        client: client.into(),
        incarnation: 3,
        live_ru_per_sec: "12.5".into(),
        total: Some(total.clone()),
        ..Default::default()
    };
    let answer = v1::UsageReply { rows: vec![row(""), row("node-1")], truncated: false };
    let amounts = "12.5|10.5|1|2|3|4|0.5|6|7|8|9.5|1.25|62|63|64|65|66|67|68|69|70";
    assert_eq!(
        shown("tidegate.usage", &answer).await,
        [format!("shop|NULL|NULL|{amounts}"), format!("shop|node-1|3|{amounts}")]
    );
}

#[tokio::test]
async fn a_client_has_its_process_beside_its_session() {
    let client = v1::ClientInfo {
        client: "node-1".into(),
        incarnation: 2,
        agent: "test/1".into(),
        connected: true,
        silent_us: 3_500_000,
        leases: 4,
        messages: 5,
        node: Some(v1::NodeStats {
            process_cpu_ns: 6_500_000_000,
            metered_cpu_ns: 7_500_000_000,
            resident_bytes: 8,
        }),
    };
    let answer = v1::ListClientsReply { clients: vec![client, Default::default()], truncated: false };
    assert_eq!(
        shown("tidegate.clients", &answer).await,
        ["node-1|2|test/1|1|3.5|4|5|6.5|7.5|8", "|0||0|0|0|0|0|0|0"]
    );
}

#[tokio::test]
async fn a_runaway_has_who_sent_it_and_what_was_done() {
    let runaway = |action: &str, switch_group: &str| v1::Runaway {
        conviction: Some(v1::ConvictRequest {
            gateway: "gw".into(),
            group: "shop".into(),
            r#match: "identify".into(),
            action: action.into(),
            switch_group: switch_group.into(),
            fingerprint: "0f".into(),
            template: "SELECT ?".into(),
            text_sha256: "ab".into(),
            rule: "ROWS = 5".into(),
            tenant: "store".into(),
            user: "ann".into(),
        }),
        first_unix_ms: 1_000,
        last_unix_ms: 2_000,
        repeats: 3,
    };
    let actions = [("dryrun", ""), ("cooldown", ""), ("kill", ""), ("switch_group", "slow"), ("later", "")];
    let runaways = actions.map(|(action, to)| runaway(action, to)).to_vec();
    let line = |action: &str| {
        format!(
            "shop|1970-01-01 00:00:01.000|1970-01-01 00:00:02.000|3|identify|{action}|ROWS = 5|SELECT ?|0f|ab|store|\
             ann|gw"
        )
    };
    let expected = ["DryRun|NULL", "CoolDown|NULL", "Kill|NULL", "SwitchGroup|slow", "later|NULL"].map(line);
    assert_eq!(shown("tidegate.runaways", &v1::ListRunawaysReply { runaways, more: false }).await, expected);
    let answer = v1::ListRunawaysReply { runaways: vec![v1::Runaway::default()], more: false };
    let unknown = "|NULL|NULL|0||NoneAction|NULL|NULL||||||";
    assert_eq!(shown("tidegate.runaways", &answer).await, [unknown]);
}

#[tokio::test]
async fn a_watch_has_its_text_or_its_digest_and_its_end() {
    let watch = v1::Watch {
        id: 7,
        group: "shop".into(),
        r#match: "exact".into(),
        digest: "ab".into(),
        text: "SELECT ?".into(),
        action: "switch_group".into(),
        switch_group: "slow".into(),
        start_unix_ms: 1_000,
        end_unix_ms: 2_000,
        source: "manual".into(),
        rule: "ROWS = 5".into(),
    };
    let bare = v1::Watch {
        text: String::new(),
        end_unix_ms: 0,
        r#match: "similar".into(),
        action: String::new(),
        ..watch.clone()
    };
    let later = v1::Watch { r#match: "later".into(), action: "kill".into(), ..watch.clone() };
    let answer = v1::ListWatchesReply { watches: vec![watch, bare, later] };
    let (start, end) = ("1970-01-01 00:00:01.000", "1970-01-01 00:00:02.000");
    assert_eq!(
        shown("information_schema.runaway_watches", &answer).await,
        [
            format!("7|shop|{start}|{end}|Exact|SELECT ?|manual|SwitchGroup(slow)|ROWS = 5"),
            format!("7|shop|{start}|UNLIMITED|Similar|ab|manual|NoneAction|ROWS = 5"),
            format!("7|shop|{start}|{end}|later|SELECT ?|manual|Kill|ROWS = 5"),
        ]
    );
}

#[tokio::test]
async fn a_proposal_has_its_options_its_moments_and_its_revisions() {
    let group =
        v1::Group { name: "shop".into(), burst: "5".into(), ru_per_sec: "7".into(), ..Default::default() };
    let proposal = v1::Proposal {
        group: Some(group),
        fields: vec!["burst".into(), "ru_per_sec".into()],
        revision: 3,
        proposed_unix_s: 1,
        since_unix_s: 2,
        live_revision: 4,
        id: 5,
    };
    let answer = v1::ListProposalsReply { proposals: vec![proposal] };
    assert_eq!(
        shown("tidegate.proposals", &answer).await,
        ["shop|BURST=5, RU_PER_SEC=7|1970-01-01 00:00:01.000|1970-01-01 00:00:02.000|3|4"]
    );
}

#[tokio::test]
async fn a_comparison_has_the_settings_in_force_beside_the_proposed_ones_each_come_evenly_and_at_once() {
    let figures = |number: u64| v1::WhatIfFigures {
        throttled_ppm: 10_000 * number,
        delayed_ppm: 1,
        throttled_time_ppm: 20_000 * number,
        use_ppm: 30_000 * number,
        p50_wait_us: 1,
        p99_wait_us: 4_000_000 * number,
        admitted_ru: format!("{number}5"),
        throttled_ru: format!("{number}6.5"),
    };
    let outcome = v1::WhatIfOutcome {
        ru_per_sec: "7".into(),
        burst: "8".into(),
        policy: "paced".into(),
        even: Some(figures(1)),
        at_once: Some(figures(2)),
        quota: "9 per day".into(),
    };
    let group = v1::Group { name: "shop".into(), burst: "5".into(), ..Default::default() };
    let proposal = v1::Proposal {
        group: Some(group),
        fields: vec!["burst".into()],
        since_unix_s: 2,
        ..Default::default()
    };
    // What is in force limits nothing.
    let comparison = v1::WhatIfReply { current: None, proposed: Some(outcome), ..Default::default() };
    let answer = v1::ProposalReply {
        proposal: Some(proposal),
        comparison: Some(comparison),
        notes: vec!["of the controller".into()],
    };
    let table = select(vec![reply(&answer)], "SHOW RESOURCE GROUP PROPOSAL shop").await;
    assert_eq!(
        lines(&table),
        [
            "live|NULL|UNLIMITED|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL",
            "proposed|even|7|8|paced|9 per day|15|16.5|1|2|4|3",
            "proposed|at once|7|8|paced|9 per day|25|26.5|2|4|8|6",
        ]
    );
    let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(
        columns.join(" "),
        "settings operations_come ru_per_sec burst policy quota admitted_ru throttled_ru throttled_percent \
         throttled_time_percent p99_wait_seconds use_percent"
    );
    let compared = "note: proposed for shop: BURST=5; compared since 1970-01-01 00:00:02";
    assert_eq!(table.notes, [compared, "note: of the controller"]);
}
