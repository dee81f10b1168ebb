//! Every limit of the controller, with its unit and what it protects.
//!
//! All are constants: a limit that configuration can raise is no bound. A request past a limit is refused with an error
//! that names the limit.

use tidegate_core::units::Span;

/// Resource groups. Each costs about a kilobyte of memory and one stored row.
pub const MAX_GROUPS: usize = 1_000_000;
/// Bindings of principals to groups. Each costs about 200 bytes of memory.
pub const MAX_BINDINGS: usize = 1_000_000;
/// Nodes connected at once.
pub const MAX_CLIENTS: usize = 10_000;
/// Connections of the gRPC listener: two of each node that may watch. An idle one costs some tens of kilobytes; twice
/// as many could take gigabytes.
pub const MAX_GRPC_CONNECTIONS: usize = 2 * MAX_WATCHERS;
/// Connections of the REST listener: people, scrapers and proxies. Half of it is less than a proxy with a few hundred
/// workers keeps; nobody needs twice of it.
pub const MAX_REST_CONNECTIONS: usize = 1_024;
/// Incarnations of nodes whose last reports are not folded; beyond, the longest silent are folded first.
pub const MAX_INCARNATIONS: usize = 100_000;

/// Characters of a group name, a tenant, a user and a client id.
pub const MAX_NAME: usize = 64;
/// Characters of the `actor` an administrator states.
pub const MAX_ACTOR: usize = 128;
/// Characters of the software name a node states.
pub const MAX_AGENT: usize = 64;

/// Bytes of one gRPC message or one REST body.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Entries, and reports, in one `Renew`.
pub const MAX_ENTRIES: usize = 4_096;
/// Pieces of waits in one report. A node has one for each message that is not on disk yet; beyond these it gives up the
/// oldest.
pub const MAX_WAITED: usize = 16;
/// Bytes of a proof; longer ones are refused without a check.
pub const MAX_PROOF_BYTES: usize = 256;
/// Pushes waiting for a node that reads slowly; past it a push is dropped, which only delays convergence.
pub const SESSION_QUEUE: usize = 64;
/// Messages of any stream that wait for its peer to read. More would be held for each peer that does not; the transport
/// has a buffer of its own.
pub const ANSWER_QUEUE: usize = 1;
/// Time for a peer to take the next message of a stream. Half of it would end streams over a short stall of a network;
/// twice of it holds as much longer for a peer that does not read.
pub const READ_WITHIN: Span = Span::secs(30);
/// Definition changes waiting for a watcher that reads slowly; past it the watcher is dropped and resyncs.
pub const WATCH_QUEUE: usize = 1_024;
/// Parts of one change that are sent one by one; past it, watchers take a snapshot instead.
pub const MAX_EVENT_PARTS: usize = 10_000;
/// Watchers at once.
pub const MAX_WATCHERS: usize = 20_000;
/// Bindings in one part of a watch snapshot: some kilobytes, since a part or two are held for each peer, and a thousand
/// peers may begin at once. Half of it would double the messages for nothing.
pub const SNAPSHOT_PART: usize = 64;

/// Time between looks for tokens that are over, whose streams are then ended. With twice of it, a second is not kept.
pub const TOKENS_EVERY: Span = Span::millis(500);

/// Watched statements. Beyond, the identified one that ends first is dropped; each costs up to 9 KiB of memory.
pub const MAX_WATCHES: usize = 10_000;
/// Records of runaways. Beyond, the oldest are dropped; each costs up to 10 KiB of memory.
pub const MAX_RUNAWAYS: usize = 10_000;
/// Rows of statement statistics. Beyond, the least recently reported is dropped; each costs up to 9 KiB of memory.
pub const MAX_STATEMENTS: usize = 10_000;
/// Sums of statements by spans of time, of minutes and of hours each. Beyond, the oldest span is forgotten; each costs some
/// 250 bytes of memory. Half of it has no hour of 1,000 busy templates beside short ones; twice of it is 100 MB.
pub const MAX_STATEMENT_CELLS: usize = 100_000;
/// Processes of gateways whose last report is remembered; beyond, the longest silent is forgotten, and a report that it
/// repeats counts twice.
pub const MAX_GATEWAYS: usize = 10_000;
/// Rows in one report of statements.
pub const MAX_STATEMENT_ROWS: usize = 1_000;
/// Largest count, number of bytes or time in one row of a report: no gateway counts more between two reports.
pub const MAX_STATEMENT_COUNT: u64 = 1_000_000_000_000_000_000;
/// Rows of statements or runaways in one answer.
pub const MAX_STATEMENT_PAGE: u32 = 1_000;
/// Bytes of all statement texts in one list, shared evenly, so that the answer fits a message of the usual 4 MiB.
pub const MAX_LIST_TEXT: usize = 1_536 * 1_024;
/// Bytes of a statement template.
pub const MAX_TEMPLATE: usize = 8 * 1024;
/// Characters of the rule that a gateway names as broken, and of a user it names.
pub const MAX_CONVICTION_TEXT: usize = 256;
/// Largest row limit of a rule: a JSON number holds it exactly, in round figures.
pub const MAX_ROWS_LIMIT: u64 = 1_000_000_000_000_000;
/// Shortest and longest watch: 1 ms, and 365 days.
pub const WATCH_RANGE: (Span, Span) = (Span::millis(1), Span::secs(365 * 24 * 3_600));
/// Time within which equal convictions are one record: ten minutes.
pub const CONVICTION_WINDOW_MS: u64 = 10 * 60 * 1_000;
/// Rules and watches in one part of the rules' stream, as [`SNAPSHOT_PART`] for bindings.
pub const RULES_PART: usize = 64;
/// Time between two lists of all rules; changes within it are sent together.
pub const RULES_EVERY: Span = Span::millis(50);
/// More time between them for each rule and watch, so that a long list takes a bounded share of a stream.
pub const RULES_EVERY_EACH: Span = Span(20);

/// Versions of cost tables kept.
pub const MAX_COST_TABLES: usize = 256;
/// Audit entries kept; the oldest go first.
pub const MAX_AUDIT: u64 = 100_000;
/// Audit entries in one answer.
pub const MAX_AUDIT_PAGE: u32 = 1_000;
/// Characters of a `before` or `after` text in the audit log; longer texts are cut.
pub const MAX_AUDIT_TEXT: usize = 16 * 1024;
/// Groups or bindings in one page of a list.
pub const MAX_PAGE: u32 = 1_000;
/// Rows of one answer about usage, nodes or leases; the answer says when there are more.
pub const MAX_ROWS: usize = 10_000;
/// Names listed in an error or a reply that lists what a group is used by.
pub const MAX_NAMES_LISTED: usize = 20;

/// Seconds that per-minute history is kept: 24 hours.
pub const MINUTES_KEPT_S: u64 = 24 * 3_600;
/// Seconds that consumption is known by the second, in memory: ten minutes. Half of it hardly shows a peak; twice of it
/// is twice the memory.
pub const SECONDS_KEPT_S: u64 = 600;
/// Groups whose consumption is known by the second: with all seconds of all of them 24 MB. With half, more would be
/// replayed by the minute; twice as many are twice the memory.
pub const MAX_SECOND_GROUPS: usize = 500;
/// Seconds that minutes are kept in brief: 90 days.
pub const PAST_MINUTES_KEPT_S: u64 = HOURS_KEPT_S;
/// Groups of an hour whose minutes are kept in brief: those that consumed most. A group that is busy in each minute
/// takes up to 5 MB in 90 days, so that the store grows by 5 GB at most. Half would lose groups that people look
/// at; twice as many are twice the store.
pub const MAX_MINUTE_GROUPS: usize = 1_000;
/// Points of one answer about history: a week of minutes. Twice as many would not fit a message; half would take twice
/// as many calls for the same.
pub const MAX_HISTORY_POINTS: u64 = 10_080;
/// Groups below one whose consumption is replayed with it, or looked at before its limit changes. With more, the disk
/// would be read for seconds; half would leave out the groups of many small tenants.
pub const MOST_BELOW: usize = 50;
/// Proposals. Each is a row and some hundred bytes of memory, and is replayed when somebody looks. With half, a review of
/// all groups of a company does not fit; with twice as many nobody looks at them any more.
pub const MAX_PROPOSALS: usize = 100;
/// Replays at once; further ones are refused. Each takes a thread and a processor for some seconds at most. With half,
/// a console and a person wait for each other; twice as many could take all processors from what is leased.
pub const MAX_REPLAYS: usize = 2;
/// Seconds that per-hour history is kept: 90 days.
pub const HOURS_KEPT_S: u64 = 90 * 24 * 3_600;
/// Silence after which an incarnation's consumption is folded into the totals of its groups: 7 days.
pub const FOLD_AFTER_MS: u64 = 7 * 24 * 3_600 * 1_000;
/// How far a node's clock may be ahead of the controller's when it numbers a start: a day. Half of it would take a
/// wrong time zone for a wrong clock; twice of it would refuse a node for two days.
pub const AHEAD_MS: u64 = 24 * 3_600 * 1_000;
/// Starts of one node that were ahead of the clock and folded; beyond, further ones are not folded. Each is a stored
/// row.
pub const MAX_FOLDED_AHEAD: usize = 64;
/// Nodes forgotten in one change. Half of it would split a scale-down of a large fleet; twice of it delays commits of
/// consumption for a size that nobody needs.
pub const MAX_FORGOTTEN: usize = 1_000;
/// Incarnations folded in one commit, so that the lock is held only briefly.
pub const FOLD_BATCH: usize = 256;

/// Steps of one change, together with what it prunes. Twice as many would not fit a message; half would split changes
/// that an operator wants to be whole, such as 5,000 tenants with a group and a binding each.
pub const MAX_STEPS: usize = 10_000;
/// Faults of the steps of one change that a dry run lists; further ones are counted. Nobody would read twice as many;
/// with half, people would go through a large file twice.
pub const MAX_FAULTS: usize = 1_000;

/// Groups with a Prometheus series of their own; the rest share one.
pub const MAX_GROUP_SERIES: usize = 1_000;

/// Time between commits of consumption: what a crash makes nodes report a second time.
pub const FLUSH_EVERY: Span = Span::millis(500);
/// Time between two looks at what groups use, for the charts of the console: a second of the rates of live groups.
pub const SAMPLE_EVERY: Span = Span::secs(1);
/// Time between two looks for alarms. Nodes report once a second; twice of it would miss short waits.
pub const ALARMS_EVERY: Span = Span::secs(1);
/// Time for the last deliveries to webhooks at shutdown, beside the end of open streams.
pub const LAST_DELIVERIES_WITHIN: Span = Span::secs(3);
/// Time between rounds of pruning the history and folding silent incarnations.
pub const TIDY_EVERY: Span = Span::secs(60);
/// Longest sleep of the task that ends leases.
pub const EXPIRE_EVERY: Span = Span::millis(500);
/// Age at which the last sign of life of a node is stored again.
pub const HEARD_EVERY_MS: u64 = 60_000;
/// Time between heartbeats of a watch stream.
pub const HEARTBEAT_EVERY: Span = Span::secs(5);
/// Time within which a node must say `Hello`.
pub const HELLO_WITHIN: Span = Span::secs(10);
/// Time for open streams and requests to end at shutdown.
pub const DRAIN_WITHIN: Span = Span::secs(5);
