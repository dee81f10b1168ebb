//! Renewals: reports are counted, then every entry is answered by the grant engine.
//!
//! A malformed entry is refused on its own. Counting comes first, so that a node's report counts even when a group of
//! the same renewal is gone. In recovery, a proof of an older epoch lets a node keep what it held.

use std::collections::BTreeMap;

use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::ledger::Reported;
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::usage::Total;

use crate::accounts::waited::WaitedIn;
use crate::leasing::clients::NodeStats;
use crate::leasing::older::Counts;
use crate::leasing::proof::{Claim, Holder, proven};
use crate::leasing::{Leasing, LeasingCalls};
use crate::limits::MAX_PROOF_BYTES;
use crate::name::GroupName;
use crate::service::{SessionError, State};

/// A decoded renewal.
#[derive(Clone, Debug, Default)]
pub struct RenewIn {
    /// Its sequence number.
    pub seq: u64,
    /// Groups that want a lease.
    pub entries: Vec<EntryIn>,
    /// Consumption.
    pub reports: Vec<ReportIn>,
    /// Totals of the node's process.
    pub node: Option<NodeStats>,
    /// When it was sent, if the node said so.
    pub sent: Option<Sent>,
    /// Whether the node counts requests. Nodes of builds before quotas of requests do not say so.
    pub counts_requests: bool,
    /// Whether the node knows windows that roll.
    pub counts_rolling: bool,
}

/// When a renewal was sent, and how long the node waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// On the node's clock.
    pub at: Time,
    /// How long the node waits for the answer.
    pub answer_within: Span,
}

/// A decoded entry, or why it does not decode.
#[derive(Clone, Debug)]
pub struct EntryIn {
    /// The group as written.
    pub group: String,
    /// The request of the node, and its proof.
    pub ask: Result<(Ask, Vec<u8>), String>,
}

/// A decoded report, or why it does not decode.
#[derive(Clone, Debug)]
pub struct ReportIn {
    /// The group as written.
    pub group: String,
    /// The incarnation; 0 means that of the stream.
    pub incarnation: u64,
    /// Cumulative consumption.
    pub total: Result<Total, String>,
    /// Waits that ended, as far as the node does not know them to be counted.
    pub waited: Vec<WaitedIn>,
}

/// The answer to a renewal.
#[derive(Clone, Debug, Default)]
pub struct Renewed {
    /// The renewal answered.
    pub seq: u64,
    /// Leadership epoch.
    pub epoch: u64,
    /// One for each entry that was not stale.
    pub entries: Vec<EntryOut>,
    /// Reports of all renewals up to this one are on disk.
    pub durable_seq: u64,
    /// The new standing for the node to bring to the next controller, if it changed.
    pub standing: Option<Vec<u8>>,
    /// Whether its turn came too late, so that its entries were not considered.
    pub shed: bool,
    /// Reports that were not counted, and are not on disk.
    pub refused: Vec<RefusedReport>,
}

/// A report that was not counted and may be later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedReport {
    /// The group as written.
    pub group: String,
    /// The incarnation as written.
    pub incarnation: u64,
    /// Why.
    pub message: String,
}

/// The answer to an entry.
#[derive(Clone, Debug)]
pub struct EntryOut {
    /// The group as written.
    pub group: String,
    /// The group in which the node goes on with what this one holds back.
    pub demote_to: Option<GroupName>,
    /// The answer.
    pub answer: Answer,
}

/// The answer to an entry.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The engine's decision and, for a lease, its proof.
    Grant(Grant, Vec<u8>),
    /// The entry was malformed, for this reason.
    Refused(String),
}

/// The node that renews, while the state is locked.
struct Caller {
    client: ClientId,
    name: String,
    incarnation: u64,
    seq: u64,
    counts: Counts,
}

/// Why a report was not counted.
struct Uncounted {
    /// The label of metrics.
    reason: &'static str,
    detail: String,
    /// Whether it never can count, so that the sender need not keep it.
    forever: bool,
}

impl Uncounted {
    fn for_now(reason: &'static str, detail: String) -> Self {
        Self { reason, detail, forever: false }
    }

    fn forever(reason: &'static str, detail: String) -> Self {
        Self { reason, detail, forever: true }
    }
}

/// Whether a node was given a group. Most were given all, so the name is looked up last.
fn is_given(state: &State, client: ClientId, id: GroupId) -> bool {
    let name = || state.definitions.catalog().name(id);
    state.leasing.scope(client).is_none_or(|given| name().is_some_and(|name| given.contains(name)))
}

/// The group in which a node goes on with what this one holds back, if it was given that, too. Most have none, so the name
/// is looked up last.
fn demote_to(state: &State, client: ClientId, group: &str, answer: &Answer) -> Option<GroupName> {
    let catalog = state.definitions.catalog();
    // What a node was not given is answered as what is not there, and says no more.
    if catalog.demoting.is_empty()
        || matches!(answer, Answer::Refused(_) | Answer::Grant(Grant::UnknownGroup, _))
    {
        return None;
    }
    let target = catalog.get(catalog.id_of(group).ok()??)?.demote_to.as_ref()?;
    is_given(state, client, catalog.id(target)?).then(|| target.clone())
}

impl LeasingCalls<'_> {
    /// Answers a renewal.
    pub fn renew(&self, client: ClientId, session: u64, request: RenewIn) -> Result<Renewed, SessionError> {
        let (now, unix_us) = (self.service.clock().now(), self.service.clock().unix_us());
        let mut state = self.service.lock();
        if !state.leasing.is_current(client, session) {
            return Err(SessionError::Replaced);
        }
        state.leasing.fence.may_speak(now)?;
        self.expire_in(&mut state, now);
        state.leasing.roll_quotas(now, unix_us);
        state.leasing.heard(client, now, unix_us / 1_000);
        let known = state.leasing.clients.get_mut(client).ok_or(SessionError::Replaced)?;
        known.messages = known.messages.saturating_add(1);
        known.node = request.node.unwrap_or(known.node);
        let (name, incarnation) = (known.name.clone(), known.number);
        let counts = Counts { requests: request.counts_requests, rolling: request.counts_rolling };
        let caller = Caller { client, name, incarnation, seq: request.seq, counts };
        let refused = self.count_all(&mut state, &caller, &request.reports, now, unix_us);
        let shed = self.is_too_late(&mut state, client, now, &request);
        let considered = if shed { Vec::new() } else { request.entries };
        let answered = considered.into_iter().filter_map(|entry| {
            let answer = self.answer(&mut state, &caller, &entry, now, unix_us)?;
            let demote_to = demote_to(&state, client, &entry.group, &answer);
            Some(EntryOut { group: entry.group, demote_to, answer })
        });
        let entries = answered.collect();
        let durable_seq = state.leasing.counted(client, request.seq);
        self.push_lowers(&mut state, &BTreeMap::new());
        self.service.metrics.renewals.inc();
        let standing = self.new_standing(&mut state, client);
        Ok(Renewed {
            seq: request.seq,
            epoch: state.leasing.lead.epoch,
            entries,
            durable_seq,
            standing,
            shed,
            refused,
        })
    }

    /// Whether a renewal has waited for its turn for more than half of the time that its node waits for the answer. A
    /// controller that is behind serves first come, first served, and would reach each message just as it becomes
    /// useless: without the half, every answer would arrive when its lease is over. So it answers newer renewals, whose
    /// answers can still be used; the answer to an old one says that it was not considered, and the node asks again
    /// when it would have anyway.
    fn is_too_late(&self, state: &mut State, client: ClientId, now: Time, request: &RenewIn) -> bool {
        let (Some(sent), Some(lag)) = (request.sent, state.leasing.lag(client)) else {
            return false;
        };
        let waited = lag.waited(now, sent.at);
        if waited < Span(sent.answer_within.0 / 2) || request.entries.is_empty() {
            return false;
        }
        let entries = u64::try_from(request.entries.len()).unwrap_or(u64::MAX);
        self.service.metrics.shed.inc_by(entries);
        if let Some(entries) = state.leasing.shed.add(now, entries) {
            tracing::warn!(entries, %waited, "behind: renewals that have waited too long are not considered");
        }
        true
    }

    /// Counts the last reports of a node and ends its leases. The next flush stores them, except for those that are
    /// returned. `None`: the stream is not the node's newest.
    pub fn goodbye(
        &self,
        client: ClientId,
        session: u64,
        seq: u64,
        reports: &[ReportIn],
    ) -> Option<Vec<RefusedReport>> {
        let (now, unix_us) = (self.service.clock().now(), self.service.clock().unix_us());
        let mut state = self.service.lock();
        if !state.leasing.is_current(client, session) {
            return None;
        }
        let known = state.leasing.clients.get(client)?;
        let (name, incarnation) = (known.name.clone(), known.number);
        let caller = Caller { client, name, incarnation, seq, counts: Counts::default() };
        let refused = self.count_all(&mut state, &caller, reports, now, unix_us);
        state.leasing.counted(client, seq);
        state.leasing.engine.release(now, client);
        self.push_lowers(&mut state, &BTreeMap::new());
        Some(refused)
    }

    /// Counts reports; returns those that may count later, for the node to keep.
    fn count_all(
        &self,
        state: &mut State,
        caller: &Caller,
        reports: &[ReportIn],
        now: Time,
        unix_us: u64,
    ) -> Vec<RefusedReport> {
        let refused = reports.iter().filter_map(|report| {
            let uncounted = self.count(state, caller, report, now, unix_us).err()?;
            let client = caller.name.as_str();
            self.service.metrics.refuse(uncounted.reason);
            let (group, reason, detail) = (&report.group, uncounted.reason, &uncounted.detail);
            tracing::warn!(client, %group, reason, %detail, "a report was not counted");
            let (group, incarnation) = (report.group.clone(), report.incarnation);
            (!uncounted.forever).then_some(RefusedReport { group, incarnation, message: uncounted.detail })
        });
        refused.collect()
    }

    /// Counts one report.
    fn count(
        &self,
        state: &mut State,
        caller: &Caller,
        report: &ReportIn,
        now: Time,
        unix_us: u64,
    ) -> Result<(), Uncounted> {
        let total =
            report.total.as_ref().map_err(|message| Uncounted::for_now("malformed", message.clone()))?;
        let Ok(Some(id)) = state.definitions.catalog().id_of(&report.group) else {
            return Err(Uncounted::forever("unknown_group", "the group does not exist".to_owned()));
        };
        if !is_given(state, caller.client, id) {
            // Kept by the node: its consumption before its groups became fewer is not lost.
            return Err(Uncounted::for_now("not_given", "the group was not given to this node".to_owned()));
        }
        let client = match report.incarnation {
            0 => caller.client,
            same if same == caller.incarnation => caller.client,
            newer if newer > caller.incarnation => {
                let message = "its incarnation is above that of the stream".to_owned();
                return Err(Uncounted::for_now("malformed", message));
            }
            older => {
                let known = state.leasing.clients.identify(&caller.name, older, unix_us / 1_000);
                known.map_err(|error| Uncounted::forever("folded", error.to_string()))?
            }
        };
        let catalog = state.definitions.catalog();
        let charges = || self.service.metrics.charges(catalog.name(id).map_or("", GroupName::as_str));
        let reported =
            state.accounts.report(now, unix_us / 1_000_000, (client, id), (total, &report.waited), charges);
        let reported = reported.map_err(|error| Uncounted::for_now("backwards", error.to_string()))?;
        // The next flush stores an earlier incarnation together with its rows.
        if client != caller.client && reported != Reported::Counted(Total::default()) {
            state.leasing.unstored.entry(client).or_default();
        }
        if let Reported::Apart(claim) = reported {
            self.set_apart(state, caller, &report.group, &claim, now);
        }
        Ok(())
    }

    /// Notes a claim beyond what any process can have used; logs it now and then.
    fn set_apart(&self, state: &mut State, caller: &Caller, group: &str, claim: &Total, now: Time) {
        self.service.metrics.apart.inc();
        if state.accounts.says_apart(now) {
            let (client, incarnation) = (caller.name.as_str(), caller.incarnation);
            tracing::warn!(
                client, incarnation, %group, claim = %claim.ru(),
                "a report is more than any process can have used: counted apart; see `tidegate usage --per-client`"
            );
        }
    }

    /// Answers one entry; `None` when it is stale.
    fn answer(
        &self,
        state: &mut State,
        caller: &Caller,
        entry: &EntryIn,
        now: Time,
        unix_us: u64,
    ) -> Option<Answer> {
        let decoded = entry.ask.as_ref().map_err(Clone::clone);
        let named = state.definitions.catalog().id_of(&entry.group).map_err(|error| error.to_string());
        let (ask, proof, id) = match (decoded, named) {
            (Ok((ask, proof)), Ok(id)) => (ask, proof, id),
            (Err(message), _) | (_, Err(message)) => {
                self.service.metrics.refuse("malformed");
                self.service.metrics.granted("refused");
                return Some(Answer::Refused(message));
            }
        };
        let Some(id) = id else {
            self.service.metrics.granted("unknown_group");
            return Some(Answer::Grant(Grant::UnknownGroup, Vec::new()));
        };
        if !is_given(state, caller.client, id) {
            // As if it were not there.
            self.service.metrics.refuse("not_given");
            self.service.metrics.granted("unknown_group");
            return Some(Answer::Grant(Grant::UnknownGroup, Vec::new()));
        }
        let refused = caller.counts.too_little(self.service, state, &caller.name, (&entry.group, id), now);
        if let Some(message) = refused {
            return Some(Answer::Refused(message));
        }
        let held = match state.leasing.engine.group_recovering_until(id).since(now).0 {
            0 => None,
            _ => self.held(&state.leasing, caller, id, ask, proof, unix_us),
        };
        let Some(grant) = state.leasing.engine.renew(now, caller.client, id, caller.seq, ask, held) else {
            self.service.metrics.refuse("stale");
            return None;
        };
        state.leasing.active.insert(id);
        self.service.metrics.granted(status(&grant));
        let proof = state.leasing.sign(caller, id, ask, &grant, unix_us);
        Some(Answer::Grant(grant, proof))
    }

    /// The holding from before an unclean stop that the node proves.
    fn held(
        &self,
        leasing: &Leasing,
        caller: &Caller,
        group: GroupId,
        ask: &Ask,
        proof: &[u8],
        unix_us: u64,
    ) -> Option<Held> {
        if proof.is_empty() {
            return None;
        }
        let holder = Holder { client: &caller.name, incarnation: caller.incarnation, group };
        let claim = if proof.len() > MAX_PROOF_BYTES { None } else { leasing.prover.verify(holder, proof) };
        if claim.is_none() {
            self.service.metrics.refuse("bad_proof");
        }
        proven(&claim?, ask.held, leasing.lead.epoch, unix_us)
    }
}

/// The label of metrics.
fn status(grant: &Grant) -> &'static str {
    match grant {
        Grant::Leased(_) => "leased",
        Grant::Unlimited { .. } => "unlimited",
        Grant::UnknownGroup => "unknown_group",
        Grant::Recovering { .. } => "recovering",
    }
}

impl Leasing {
    /// The proof of a lease. It includes the lump that the node had in hand before.
    fn sign(&self, caller: &Caller, group: GroupId, ask: &Ask, grant: &Grant, unix_us: u64) -> Vec<u8> {
        let Grant::Leased(terms) = grant else {
            return Vec::new();
        };
        let holder = Holder { client: &caller.name, incarnation: caller.incarnation, group };
        let lump = (ask.held.lump.or_zero() + terms.lump).min(Ru::MAX);
        let claim = Claim {
            held: Held { rate: terms.rate, cap: terms.cap, lump },
            ends_unix_us: unix_us.saturating_add(terms.ttl.0),
            epoch: self.lead.epoch,
        };
        self.prover.sign(holder, &claim)
    }

    /// Notes a sign of life.
    pub(crate) fn heard(&mut self, client: ClientId, now: Time, unix_ms: u64) {
        if let Some(known) = self.clients.get_mut(client) {
            known.heard = Some(now);
            known.heard_unix_ms = known.heard_unix_ms.max(unix_ms);
        }
    }

    /// Notes that the reports of a renewal are counted; the next flush stores them. Returns the newest stored renewal.
    fn counted(&mut self, client: ClientId, seq: u64) -> u64 {
        let Some(known) = self.clients.get_mut(client) else {
            return 0;
        };
        known.counted_seq = known.counted_seq.max(seq);
        let session = self.sessions.get(&client).map_or(0, |slot| slot.session);
        self.unstored.insert(client, (session, known.counted_seq));
        known.durable_seq
    }

    /// Drops groups without leases.
    pub(crate) fn tidy_idle(&mut self) {
        let engine = &self.engine;
        self.active.retain(|id| engine.group_view(*id).is_some_and(|view| view.leases > 0));
    }
}
