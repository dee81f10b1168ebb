//! One hot path, run so many times and nothing else: for a count of its instructions.
//!
//! Everything before is outside of `measured_loop`, the only function that is counted. Controller and client stand
//! still meanwhile: their runtime runs only while it is waited for.

use std::hint::black_box;

use prost::Message as _;
use tidegate_client::{Client, Group, Rate, Refused, Ru, RuParts, Usage, meter};
use tidegate_controller::service::{Answer, EntryIn, RenewIn, ReportIn, Session};
use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::usage::Consumption;
use tidegate_cost_model::{CostTable, Fingerprinter, SqlDialect, Template};
use tidegate_proto::v1;

use super::admission::admit;
use super::error::{BenchError, failed};
use super::messages;
use super::metered;
use super::renewals::Renewals;
use super::site::{Site, capped};
use super::sql;

/// Leased before the loop begins.
const WARM: Rate = Rate::whole(100_000);
/// Groups among which one is found by name.
const GROUPS: usize = 100;
/// Groups in a message.
const ENTRIES: usize = 100;
/// Nodes that renew in turn, and how often each does before it is counted.
const NODES: usize = 64;
const WARM_UP: u64 = 4;
/// Clients and depth of the decision.
const CLIENTS: usize = 1_000;
const DEPTH: u32 = 3;

/// A path that is counted.
#[derive(Clone, Copy, Debug)]
pub struct HotPath {
    /// As the command and the baseline call it.
    pub name: &'static str,
    /// Iterations of the shorter of the two runs.
    pub count: u64,
    /// Runs it that often.
    pub run: fn(u64) -> Result<(), BenchError>,
}

/// All of them.
pub const PATHS: &[HotPath] = &[
    HotPath { name: "admit-and-settle", count: 50_000, run: admit_and_settle },
    HotPath { name: "refuse", count: 50_000, run: refuse },
    HotPath { name: "metered-operation", count: 20_000, run: metered },
    HotPath { name: "lookup-by-name", count: 20_000, run: lookup_by_name },
    HotPath { name: "lookup-by-tenant-and-user", count: 20_000, run: lookup_by_tenant },
    HotPath { name: "fingerprint-hit", count: 20_000, run: fingerprint_hit },
    HotPath { name: "template", count: 600, run: template },
    HotPath { name: "price", count: 100_000, run: price },
    HotPath { name: "decision-1000-clients-nested-3", count: 5_000, run: decide },
    HotPath { name: "renewal-of-100-groups-by-64-nodes", count: 128, run: renewals },
    HotPath { name: "renew-encode-100-groups", count: 500, run: encode },
    HotPath { name: "renew-decode-100-groups", count: 200, run: decode_renew },
    HotPath { name: "granted-encode-100-groups", count: 500, run: encode_granted },
    HotPath { name: "granted-decode-100-groups", count: 200, run: decode },
];

/// The counted loop. Its name is how the counter finds it, so it must stay a function of its own.
#[inline(never)]
fn measured_loop(
    count: u64,
    mut operation: impl FnMut() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    for _ in 0..count {
        operation()?;
    }
    Ok(())
}

fn admit_and_settle(count: u64) -> Result<(), BenchError> {
    let node = leased("busy", "100000000", "")?;
    measured_loop(count, || admit(&node.group))
}

fn refuse(count: u64) -> Result<(), BenchError> {
    let node = leased("poor", "1", "1000")?;
    node.group.charge_ru(RuParts::flat(Ru::whole(2_000)));
    let cost = Ru::whole(500);
    measured_loop(count, || match node.group.try_acquire(black_box(cost)) {
        Err(Refused::Throttled { .. }) => Ok(()),
        other => Err(BenchError::Wrong(format!("an empty bucket answered {other:?}"))),
    })
}

/// A group with the longest lease there is, and what keeps it.
struct Node {
    group: Group,
    // Without clients its groups close, and without a controller its leases are not renewed.
    _client: Client,
    _site: Site,
}

fn leased(name: &str, rate: &str, burst: &str) -> Result<Node, BenchError> {
    let text = v1::Group { burst: burst.to_owned(), ttl_us: 60_000_000, ..capped(name, rate) };
    let site = Site::still(std::iter::once(text), Vec::new())?;
    let client = site.client("hotpath")?;
    let group = site.group(&client, name)?;
    if burst.is_empty() {
        site.keep_warm(std::slice::from_ref(&group), WARM)?;
    }
    Ok(Node { group, _client: client, _site: site })
}

fn metered(count: u64) -> Result<(), BenchError> {
    let node = leased("busy", "100000000", "")?;
    measured_loop(count, || metered::operation(&node.group, || meter::measure(|| ()).1))
}

fn lookup_by_name(count: u64) -> Result<(), BenchError> {
    let names: Vec<String> = (0..GROUPS).map(messages::group_name).collect();
    lookup(count, &names, |client, name| client.group_now(name).map_err(failed("find a group")))
}

fn lookup_by_tenant(count: u64) -> Result<(), BenchError> {
    let tenants: Vec<String> = (0..GROUPS).map(tenant).collect();
    lookup(count, &tenants, |client, tenant| client.resolve_now(tenant, "app").map_err(failed("resolve")))
}

fn tenant(number: usize) -> String {
    format!("customer-{number:05}")
}

/// Finds one of the groups of a client after the other.
fn lookup(
    count: u64,
    keys: &[String],
    find: impl Fn(&Client, &str) -> Result<Group, BenchError>,
) -> Result<(), BenchError> {
    let names: Vec<String> = (0..GROUPS).map(messages::group_name).collect();
    let texts = names.iter().map(|name| v1::Group { ttl_us: 60_000_000, ..capped(name, "1000") });
    let bound = names.iter().enumerate().map(|(number, name)| (tenant(number), name.clone())).collect();
    let site = Site::still(texts, bound)?;
    let client = site.client("hotpath")?;
    site.groups(&client, &names)?;
    for number in 0..GROUPS {
        site.runtime.block_on(client.resolve(&tenant(number), "app")).map_err(failed("resolve"))?;
    }
    let mut keys = keys.iter().cycle();
    measured_loop(count, || {
        let key = keys.next().map_or("", String::as_str);
        black_box(find(&client, black_box(key))?);
        Ok(())
    })
}

fn template(count: u64) -> Result<(), BenchError> {
    let mut statements = sql::STATEMENTS.iter().cycle();
    measured_loop(count, || {
        let text = statements.next().copied().unwrap_or_default();
        black_box(Template::new(SqlDialect::Generic, black_box(text)));
        Ok(())
    })
}

/// What the controller's service does with renewals as they are decoded. Valgrind knows no instructions for SHA-256: in
/// the count, 4,000 for each lease are the hash of its proof in plain code.
fn renewals(count: u64) -> Result<(), BenchError> {
    let texts = (0..ENTRIES).map(|number| capped(messages::group_name(number), "100000"));
    let site = Site::still(texts, Vec::new())?;
    let service = site.controller()?.service();
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(
            service.leasing().hello(&format!("node-{number}"), 1, "hotpath").map_err(failed("be let in"))?,
        );
    }
    let renew = |seq: u64, node: &Session| {
        let answer =
            service.leasing().renew(node.client, node.session, renewal(seq)).map_err(failed("renew"))?;
        if answer.entries.iter().all(|entry| matches!(entry.answer, Answer::Grant(Grant::Leased(_), _))) {
            drop(black_box(answer));
            return Ok(());
        }
        Err(BenchError::Wrong(format!("renewal {seq} was answered with {answer:?}")))
    };
    for seq in 1..=WARM_UP {
        nodes.iter().try_for_each(|node| renew(seq, node))?;
    }
    let mut asked = (WARM_UP + 1..).flat_map(|seq| nodes.iter().map(move |node| (seq, node)));
    measured_loop(count, || asked.next().map_or(Ok(()), |(seq, node)| renew(seq, node)))
}

/// The renewal of [`messages::renew`], decoded.
fn renewal(seq: u64) -> RenewIn {
    let message = messages::renew(seq, ENTRIES);
    let entries = message.entries.into_iter().map(|entry| {
        let held = Held { rate: Rate(entry.held_rate), cap: Ru(entry.held_cap_micro_ru), lump: Ru::ZERO };
        let ask = Ask { acked_seq: entry.acked_seq, held, demand: Rate(entry.demand_rate), ..Ask::default() };
        EntryIn { group: entry.group, ask: Ok((ask, entry.proof)) }
    });
    let reports = message.reports.into_iter().map(|report| {
        let total = report.total.unwrap_or_default();
        let usage = total.usage.unwrap_or_default();
        let charged = RuParts {
            cpu: Ru(total.cpu_micro_ru),
            read: Ru(total.read_micro_ru),
            network: Ru(total.network_micro_ru),
            ..RuParts::default()
        };
        let usage = Usage {
            cpu_ns: usage.cpu_ns,
            read_bytes: usage.read_bytes,
            net_out_bytes: usage.net_out_bytes,
            ..Usage::default()
        };
        let total = Consumption { charged, usage, operations: total.operations, ..Consumption::default() };
        ReportIn { group: report.group, incarnation: 0, total: Ok(total.into()), waited: Vec::new() }
    });
    RenewIn { seq, entries: entries.collect(), reports: reports.collect(), ..RenewIn::default() }
}

fn fingerprint_hit(count: u64) -> Result<(), BenchError> {
    let fingerprinter = Fingerprinter::new(SqlDialect::Generic);
    let mut statements = sql::STATEMENTS.iter().cycle();
    sql::STATEMENTS.iter().for_each(|statement| drop(fingerprinter.fingerprint(statement)));
    measured_loop(count, || {
        black_box(fingerprinter.fingerprint(black_box(statements.next().copied().unwrap_or_default())));
        Ok(())
    })
}

fn price(count: u64) -> Result<(), BenchError> {
    let table = CostTable::tidb_v1();
    let usage = Usage {
        cpu_ns: 1_234_567,
        read_requests: 3,
        read_bytes: 65_537,
        write_requests: 1,
        write_bytes: 511,
        net_out_bytes: 4_099,
        ..Usage::default()
    };
    measured_loop(count, || {
        black_box(table.price(black_box(&usage)));
        Ok(())
    })
}

fn decide(count: u64) -> Result<(), BenchError> {
    let mut renewals = Renewals::start(CLIENTS, DEPTH)?;
    // The same number as of renewals, so that acknowledgements in between make no odd number.
    let mut done = 0;
    measured_loop(1, || {
        while done < count {
            done += renewals.renew()?;
        }
        Ok(())
    })
}

fn encode(count: u64) -> Result<(), BenchError> {
    encode_message(count, &messages::renew(9, ENTRIES))
}

fn encode_granted(count: u64) -> Result<(), BenchError> {
    encode_message(count, &messages::granted(9, ENTRIES))
}

fn encode_message(count: u64, message: &impl prost::Message) -> Result<(), BenchError> {
    let mut buffer = Vec::with_capacity(message.encoded_len());
    measured_loop(count, || {
        buffer.clear();
        black_box(message).encode(&mut buffer).map_err(failed("encode"))?;
        black_box(&buffer);
        Ok(())
    })
}

fn decode_renew(count: u64) -> Result<(), BenchError> {
    decode_message::<v1::Renew>(count, &messages::renew(9, ENTRIES).encode_to_vec())
}

fn decode(count: u64) -> Result<(), BenchError> {
    decode_message::<v1::Granted>(count, &messages::granted(9, ENTRIES).encode_to_vec())
}

fn decode_message<M: prost::Message + Default>(count: u64, bytes: &[u8]) -> Result<(), BenchError> {
    measured_loop(count, || {
        black_box(M::decode(black_box(bytes)).map_err(failed("decode"))?);
        Ok(())
    })
}
