//! The cost of the shipped code beside that of others, measured in the same run; `bench --help` describes how.
//!
//! A *family* measures one part through its public interface and returns rows. Contenders of a row take turns, round
//! by round, so that a change of the machine's speed meets all of them; figures are medians over the rounds, and a
//! ratio is the median of the rounds' ratios. No test asserts a time.

pub mod admission;
pub mod child;
pub mod clock;
pub mod console;
pub mod contest;
pub mod decision;
pub mod durability;
pub mod error;
pub mod gateway;
pub mod groups;
pub mod growth;
pub mod hotpath;
pub mod layer;
pub mod lookup;
pub mod machine;
pub mod memory;
pub mod messages;
pub mod metered;
pub mod plot;
pub mod policies;
pub mod redis;
pub mod refusal;
pub mod renewals;
pub mod report;
pub mod row;
pub mod samples;
pub mod secure;
pub mod setting;
mod shipped;
pub mod site;
pub mod sql;
mod stock;
pub mod stream;
pub mod table;
pub mod waiters;
pub mod what_if;

use error::BenchError;
use row::Row;
use setting::Setting;

/// One part of tidegate and those beside it.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// As `--only` takes it.
    pub name: &'static str,
    /// What is measured, for `--list`.
    pub about: &'static str,
    /// Measured only when it is named: it takes minutes and needs database servers.
    pub on_request: bool,
    /// Measures it.
    pub run: fn(&Setting) -> Result<Vec<Row>, BenchError>,
}

/// All families, in the order of the table.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "admission",
        about: "try_acquire and settle with the handle in hand, 1 and 2 threads",
        on_request: false,
        run: admission::run,
    },
    Family {
        name: "lookup",
        about: "the group found by name, or by tenant and user, first",
        on_request: false,
        run: lookup::run,
    },
    Family {
        name: "policies",
        about: "a decision of each limiter policy, beside the token bucket's",
        on_request: false,
        run: policies::run,
    },
    Family {
        name: "what-if",
        about: "an answer over 30 days of minutes of one group, by policy, burst and wait",
        on_request: false,
        run: what_if::run,
    },
    Family { name: "refusal", about: "try_acquire on an empty bucket", on_request: false, run: refusal::run },
    Family {
        name: "metered",
        about: "an operation whose CPU is metered",
        on_request: false,
        run: metered::run,
    },
    Family {
        name: "waiters",
        about: "ten thousand operations woken in order",
        on_request: false,
        run: waiters::run,
    },
    Family {
        name: "layer",
        about: "an axum handler behind the tower layer",
        on_request: false,
        run: layer::run,
    },
    Family {
        name: "sql",
        about: "the fingerprint of a statement, known and new",
        on_request: false,
        run: sql::run,
    },
    Family {
        name: "stream",
        about: "renewals over loopback gRPC, beside a server that decides nothing",
        on_request: false,
        run: stream::run,
    },
    Family {
        name: "secure",
        about: "renewals under TLS beside those without it, handshakes, tokens",
        on_request: false,
        run: secure::run,
    },
    Family {
        name: "strangers",
        about: "renewals beside thousands of silent and slow connections",
        on_request: true,
        run: secure::strangers::run,
    },
    Family {
        name: "console",
        about: "pages of the console, and what viewers of live ones cost",
        on_request: true,
        run: console::run,
    },
    Family {
        name: "durability",
        about: "commits of the ledger, beside a redb batch",
        on_request: false,
        run: durability::run,
    },
    Family {
        name: "durability-cluster",
        about: "the ledger of a cluster under load: the controller's share, that of etcd, and how late it is durable",
        on_request: true,
        run: durability::shared::run,
    },
    Family {
        name: "decision",
        about: "the controller's decision on one renewal, by number of clients and depth",
        on_request: false,
        run: decision::run,
    },
    Family {
        name: "memory",
        about: "groups in a node and nodes in the controller, bytes of each",
        on_request: false,
        run: memory::run,
    },
    Family {
        name: "groups",
        about: "a controller with a million idle groups: start, memory, CPU",
        on_request: false,
        run: groups::run,
    },
    Family {
        name: "redis",
        about: "limits in Redis beside a lease: speed, and wrong decisions",
        on_request: true,
        run: redis::run,
    },
    Family {
        name: "gateway-postgres",
        about: "pgbench through the gateway, beside pgbouncer",
        on_request: true,
        run: gateway::postgres,
    },
    Family {
        name: "gateway-mysql",
        about: "sysbench through the gateway, beside a proxy that only copies",
        on_request: true,
        run: gateway::mysql,
    },
    Family {
        name: "gateway-burst",
        about: "500 clients that log in and ask at once, beside the server itself",
        on_request: true,
        run: gateway::burst,
    },
    Family {
        name: "gateway-cap",
        about: "a capped group over two gateways, and its neighbour",
        on_request: true,
        run: gateway::cap,
    },
    Family {
        name: "gateway-load",
        about: "inserts beside a bulk load of another group, beside the same without a gateway",
        on_request: true,
        run: gateway::load_beside,
    },
    Family {
        name: "gateway-transaction",
        about: "a capped group that does all inside transactions, and its neighbour",
        on_request: true,
        run: gateway::transaction,
    },
    Family {
        name: "gateway-cpu",
        about: "CPU time that the gateway charges, beside what the servers count",
        on_request: true,
        run: gateway::cpu,
    },
    Family {
        name: "gateway-kill",
        about: "how long past their limit runaways are killed, beside the servers' own limits",
        on_request: true,
        run: gateway::kill,
    },
];
