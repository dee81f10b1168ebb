//! Which of the bytes that a server's process or thread wrote are its session's own.
//!
//! The kernel counts who called `write`, not whose bytes these are. A session that commits writes out all sessions' log
//! up to its own record; one that needs room in the cache writes out a page that another changed. So a session's share
//! is bounded by what it sent, read and changed itself. What it wrote beyond that goes to [`Unowned`], and from there
//! to sessions whose own work others have written out; the rest is charged to no session. What a statement spilled to
//! temporary files is neither logged nor replicated: it counts as bytes read, at the price of local input and output.
//!
//! In: cumulative counters of a statement. Out: what of them is charged. docs/cost-model.md has the rules and where
//! their numbers are from.

use tidegate_client::Usage;
use tidegate_cost_model::StatementKind;

use super::unowned::Unowned;

/// Bytes that a changed row explains: in the log, in its page, in an index or two. PostgreSQL 15 wrote 470 for a row of
/// 40 bytes with a primary key, MariaDB's log had 88. With half of it bulk loads are charged for less than they write;
/// with twice as much small commits are charged for more of what others log.
const ROW: u64 = 512;
/// Pages that a changed row may have in PostgreSQL's log in full, if they were read for it: its old and new one and two
/// of indexes. That happens once after each checkpoint.
const FULL_PAGES: u64 = 4;
/// Single pages that a statement with few rows may write out for others, in bytes: PostgreSQL's log is written page by
/// page when its buffer is full, 66 of them by one insert beside a bulk load.
const FEW: u64 = 1_048_576;
/// Bytes that a microsecond of CPU explains where rows do not show what a statement changes, and it changes rows: a
/// `DELETE` of narrow rows by PostgreSQL 15 writes 460. With as much it would pay for all that it writes out for others
/// while it computes; with a tenth it would cost a tenth of the same statement by itself.
const BY_CPU: u64 = 256;
/// Microseconds of CPU that explain nothing so: a statement of few rows takes less, and must not pay for the log of others
/// that its commit writes out.
const BRIEF: u64 = 2_000;
/// Calls from which on a thread of MySQL has written temporary files, if it has also read: the log takes one or two.
const MANY: u64 = 64;
/// Work that is not written out yet, beyond which it does not wait for the commit: the log's buffers hold little more,
/// and a commit is not to be priced like a bulk load.
const LATER: u64 = 1_048_576;

/// What the kernel counts of a process or thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) cpu_ns: u64,
    /// Bytes through `read` calls, and through `write` calls.
    pub(super) read: u64,
    pub(super) written: u64,
    /// The latter calls.
    pub(super) writes: u64,
}

/// The kind of the server: they differ in what they write, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// A process for each session writes its share of log, tables and temporary files.
    Postgres,
    /// A thread for each session writes log, binary log and temporary files; other threads write tables.
    MariaDb,
    /// The same, with smaller blocks.
    MySql,
}

/// What is known of a statement's work on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) kind: StatementKind,
    /// Rows changed, as far as the server has said.
    pub(crate) rows: u64,
    /// Bytes from the client.
    pub(crate) sent: u64,
}

/// Bytes written that are charged, in two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Charged {
    own: u64,
    spilled: u64,
}

/// A session's side of it.
#[derive(Debug)]
pub(super) struct Share {
    server: Server,
    /// The counters of the running statement, and the charged part of them.
    did: Counted,
    charged: Charged,
    /// CPU and reads that are charged.
    used: Counted,
    /// Bytes that it had written when its temporary files were last looked for.
    looked: u64,
    /// Work of the transaction's earlier statements that was not written out by their ends.
    earlier: u64,
    /// What [`Unowned`] had been given when the transaction began.
    since: Option<u64>,
}

impl Counted {
    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_add(other.cpu_ns),
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
            writes: self.writes.saturating_add(other.writes),
        }
    }

    /// The difference; counters do not go back.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
            writes: self.writes.saturating_sub(before.writes),
        }
    }

    /// The larger of each.
    pub(super) fn at_least(&self, other: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.max(other.cpu_ns),
            read: self.read.max(other.read),
            written: self.written.max(other.written),
            writes: self.writes.max(other.writes),
        }
    }
}

impl Server {
    /// The least that a commit writes, in bytes: measured for an insert of one row with no other load.
    const fn block(self) -> u64 {
        match self {
            Self::Postgres => 8_192,
            Self::MariaDb => 4_096,
            Self::MySql => 512,
        }
    }

    /// What of `did` was spilled to temporary files, when so many bytes of them were seen to grow.
    fn spilled(self, work: &Work, did: &Counted, seen: u64) -> u64 {
        let read_back = did.written.min(did.read);
        match self {
            Self::Postgres => did.written.min(seen),
            // A query writes nothing else, but for a function's change.
            Self::MariaDb | Self::MySql if work.only_reads() => {
                did.written.saturating_sub(did.written.saturating_sub(read_back).min(self.block()))
            }
            Self::MariaDb | Self::MySql if did.writes >= MANY => read_back,
            Self::MariaDb | Self::MySql => 0,
        }
    }

    /// What of `did` is charged, of a session with `earlier` work that is not written out.
    fn charged(self, work: &Work, did: &Counted, seen: u64, earlier: u64) -> Charged {
        let spilled = self.spilled(work, did, seen);
        let written = did.written.saturating_sub(spilled);
        // Spilled bytes were read back, at most once as far as is known.
        let read = did.read.saturating_sub(spilled);
        let writes = did.writes.saturating_sub(spilled / self.block());
        // A call of one page; the log of others comes in calls of many.
        let single = written.min(writes.saturating_mul(self.block()));
        // Reading a page writes out at most the page that was in its place, and now and then its log.
        let unread = single.saturating_sub(read.saturating_add(read / 4));
        let explained = self.block().saturating_add(work.explains()).saturating_add(earlier);
        let own = match (self, work.only_reads()) {
            (Self::Postgres, true) => unread,
            (_, true) => written,
            (_, false) if !work.is_told() => {
                explained.saturating_add(single).saturating_add(work.hidden(did))
            }
            (Self::Postgres, false) => {
                let full = read.min(work.rows.saturating_mul(FULL_PAGES * self.block()));
                explained.saturating_add(full).saturating_add(unread.saturating_sub(FEW))
            }
            (_, false) => explained,
        };
        Charged { own: own.min(written), spilled }
    }
}

impl Work {
    /// Whether the rows show what it changed.
    fn is_told(&self) -> bool {
        use StatementKind::{Copy, Delete, Insert, Set, Transaction, Update};
        self.rows > 0 || matches!(self.kind, Insert | Update | Delete | Copy | Set | Transaction)
    }

    /// It changes nothing, unless it calls what does.
    fn only_reads(&self) -> bool {
        self.rows == 0 && matches!(self.kind, StatementKind::Select | StatementKind::Show)
    }

    /// Bytes written that its CPU explains: it may change rows before its end, of which the server says nothing. Of the same
    /// kind are statements of different kinds in one text, which write their log themselves, too.
    const fn hidden(&self, did: &Counted) -> u64 {
        match self.kind {
            StatementKind::Other => (did.cpu_ns / 1_000).saturating_sub(BRIEF).saturating_mul(BY_CPU),
            _ => 0,
        }
    }

    /// Bytes written that rows and bytes sent explain: these come into the log and into a table.
    fn explains(&self) -> u64 {
        use StatementKind::{Select, Set, Show, Transaction};
        let sent = if matches!(self.kind, Select | Show | Set | Transaction) { 0 } else { self.sent };
        self.rows.saturating_mul(ROW).saturating_add(sent.saturating_mul(2))
    }
}

impl Share {
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            did: Counted::default(),
            charged: Charged::default(),
            used: Counted::default(),
            looked: 0,
            earlier: 0,
            since: None,
        }
    }

    /// A statement runs: bytes that others write out from here on may be its transaction's.
    pub(super) fn runs(&mut self, unowned: &Unowned) {
        self.since.get_or_insert_with(|| unowned.given());
    }

    /// This was counted since the last time.
    pub(super) fn add(&mut self, counted: &Counted) {
        self.did = self.did.plus(counted);
    }

    /// Temporary files were looked for just now.
    pub(super) fn looked(&mut self) {
        self.looked = self.did.written;
    }

    /// Bytes written that no temporary file explains so far, when so many bytes of these were seen.
    pub(super) fn unexplained(&self, seen: u64) -> u64 {
        self.did.written.saturating_sub(seen)
    }

    /// What is to be charged of it now; the statement goes on. So many bytes of temporary files were `seen` to grow.
    pub(super) fn so_far(&mut self, work: &Work, seen: u64) -> Usage {
        let mut now = self.server.charged(work, &self.did, seen, self.earlier);
        let unseen = self.did.written.saturating_sub(self.looked);
        if self.server == Server::Postgres && work.only_reads() && unseen >= FEW {
            // Behind the last look: a query that spills begins with all of its memory, a function rarely writes as much.
            let moved = now.own.saturating_sub(self.charged.own).min(unseen);
            now = Charged { own: now.own.saturating_sub(moved), spilled: now.spilled.saturating_add(moved) };
        }
        // Charged bytes stay charged, whatever is seen later.
        let own = now.own.min(self.did.written.saturating_sub(self.charged.spilled)).max(self.charged.own);
        let spilled = now.spilled.min(self.did.written.saturating_sub(own)).max(self.charged.spilled);
        let read = self.did.read.saturating_sub(self.used.read);
        let more = Usage {
            cpu_ns: self.did.cpu_ns.saturating_sub(self.used.cpu_ns),
            read_bytes: read.saturating_add(spilled.saturating_sub(self.charged.spilled)),
            write_bytes: own.saturating_sub(self.charged.own),
            ..Usage::default()
        };
        (self.charged, self.used) = (Charged { own, spilled }, self.did);
        more
    }

    /// The same when the statement has ended; it was inside a transaction that goes on, or not.
    pub(super) fn end(&mut self, work: &Work, seen: u64, goes_on: bool, unowned: &Unowned) -> Usage {
        let mut more = self.so_far(work, seen);
        let Charged { own, spilled } = self.charged;
        unowned.give(self.did.written.saturating_sub(own).saturating_sub(spilled));
        let waiting = work.explains().saturating_add(self.earlier);
        // A query writes nothing out of what its transaction changed.
        let waiting = waiting.saturating_sub(if work.only_reads() { 0 } else { own });
        self.earlier = if goes_on { waiting.min(LATER) } else { 0 };
        let others_wrote = waiting.saturating_sub(self.earlier);
        let since = self.since.unwrap_or_else(|| unowned.given());
        more.write_bytes = more.write_bytes.saturating_add(unowned.take(others_wrote, since));
        if !goes_on {
            self.since = None;
        }
        (self.did, self.charged, self.used, self.looked) = Default::default();
        more
    }
}

#[cfg(test)]
mod looks;

#[cfg(test)]
mod tests {
    use StatementKind::{Ddl, Insert, Select, Transaction, Update};

    use super::*;

    pub(super) const KIB: u64 = 1_024;
    pub(super) const MIB: u64 = 1_048_576;

    pub(super) fn work(kind: StatementKind, rows: u64, sent: u64) -> Work {
        Work { kind, rows, sent }
    }

    pub(super) fn did(read: u64, written: u64, writes: u64) -> Counted {
        Counted { cpu_ns: 0, read, written, writes }
    }

    /// The charge of a statement in a session of its own, with one look: bytes read and bytes written.
    pub(super) fn charged(server: Server, work: &Work, did: Counted, seen: u64) -> (u64, u64) {
        let mut share = Share::new(server);
        share.add(&did);
        share.looked();
        let usage = share.end(work, seen, false, &Unowned::default());
        (usage.read_bytes, usage.write_bytes)
    }

    #[test]
    fn a_commit_pays_for_its_own_log_and_no_other_that_it_writes_out() {
        let insert = work(Insert, 1, 60);
        for (server, alone) in [(Server::Postgres, 8_192), (Server::MariaDb, 4_096), (Server::MySql, 512)] {
            assert_eq!(charged(server, &insert, did(0, alone, 1), 0), (0, alone));
            for beside in [did(0, 3 * MIB, 2), did(0, 66 * 8 * KIB, 66), did(0, 16 * MIB, 1)] {
                assert_eq!(charged(server, &insert, beside, 0), (0, alone + 512 + 120), "{server:?}");
            }
        }
    }

    #[test]
    fn a_bulk_load_pays_for_all_the_pages_it_writes() {
        // 20,000 rows of 2 KB into PostgreSQL, by INSERT .. SELECT.
        let load = did(48 * KIB, 85_560 * KIB, 10_569);
        let (_, written) = charged(Server::Postgres, &work(Insert, 20_000, 90), load, 0);
        assert_eq!(written, 85_560 * KIB);
        // One row with a large value: the bytes sent explain it.
        let row = did(0, 2 * MIB, 3);
        assert_eq!(charged(Server::Postgres, &work(Insert, 1, MIB), row, 0), (0, 2 * MIB));
    }

    #[test]
    fn an_index_or_a_procedure_is_charged_for_single_pages() {
        for kind in [Ddl, StatementKind::Call, StatementKind::Unknown] {
            let made = did(40 * MIB, 46 * MIB, 46 * 128);
            assert_eq!(charged(Server::Postgres, &work(kind, 0, 40), made, 0).1, 46 * MIB, "{kind:?}");
        }
        // And for little of the log of others.
        assert!(charged(Server::Postgres, &work(Ddl, 0, 40), did(0, 9 * MIB, 4), 0).1 < 48 * KIB);
    }

    /// Its log goes out in few calls.
    #[test]
    fn a_change_before_the_end_of_a_query_is_charged_by_its_cpu() {
        let (kind, removed) = (StatementKind::Other, Counted { cpu_ns: 41_000_000, ..did(0, 19 * MIB, 40) });
        let by_cpu = 39_000 * 256 + 40 * 8 * KIB + 8 * KIB + 2 * 60;
        assert_eq!(charged(Server::Postgres, &work(kind, 0, 60), removed, 0).1, by_cpu);
        // One whose rows are told, one that computes and writes little, and one that writes for others.
        assert_eq!(charged(Server::Postgres, &work(kind, 2, 60), removed, 0).1, 8 * KIB + 2 * 512 + 2 * 60);
        let computes = Counted { cpu_ns: u64::MAX, ..did(0, 8 * KIB, 1) };
        assert_eq!(charged(Server::Postgres, &work(kind, 0, 60), computes, 0).1, 8 * KIB);
        let commits = Counted { cpu_ns: 2_000_000, ..did(0, 9 * MIB, 1) };
        assert_eq!(charged(Server::Postgres, &work(kind, 0, 60), commits, 0).1, 16 * KIB + 2 * 60);
    }

    #[test]
    fn a_reader_pays_for_no_page_that_others_have_changed() {
        let scan = did(54_032 * KIB, 54_472 * KIB, 6_809);
        assert_eq!(charged(Server::Postgres, &work(Select, 0, 40), scan, 0), (54_032 * KIB, 0));
        // A function that writes is charged.
        let calls = did(0, 8 * KIB, 1);
        assert_eq!(charged(Server::Postgres, &work(Select, 0, 40), calls, 0), (0, 8 * KIB));
        let calls = did(17_518 * KIB, 62_350 * KIB, 7_668);
        assert!(charged(Server::Postgres, &work(Select, 0, 40), calls, 0).1 > 38_000 * KIB);
    }

    #[test]
    fn what_is_spilled_counts_as_read() {
        let scan = did(48 * KIB, 61_523 * KIB, 7_691);
        let select = work(Select, 0, 60);
        assert_eq!(charged(Server::Postgres, &select, scan, 61_523 * KIB), (61_571 * KIB, 0));
        // MariaDB's sort, which was read back for the most part; MySQL's group, which was not.
        assert_eq!(
            charged(Server::MariaDb, &select, did(175_742 * KIB, 181_071 * KIB, 3_169), 0),
            ((175_742 + 181_071 - 4) * KIB, 4 * KIB)
        );
        assert_eq!(charged(Server::MySql, &select, did(0, 68 * MIB, 68), 0), (68 * MIB - 512, 512));
        // An index is sorted in temporary files.
        let index = did(45_848 * KIB, 46_640 * KIB, 5_830);
        let (read, written) = charged(Server::Postgres, &work(Ddl, 0, 40), index, 20_000 * KIB);
        assert_eq!((read, written), (65_848 * KIB, 26_640 * KIB));
        let index = did(178_176 * KIB, 204_478 * KIB, 190);
        assert!(charged(Server::MariaDb, &work(Ddl, 0, 40), index, 0).1 < MIB);
    }

    #[test]
    fn what_a_short_query_writes_before_anybody_looks_is_spilled_if_it_is_much() {
        let (mut share, unowned) = (Share::new(Server::Postgres), Unowned::default());
        let select = work(Select, 0, 60);
        // A function scan of 17 ms, none of which was read back; and a function that commits a row.
        share.add(&did(48 * KIB, 5_600 * KIB, 700));
        let usage = share.end(&select, 0, false, &unowned);
        assert_eq!((usage.read_bytes, usage.write_bytes), (48 * KIB + 5_540 * KIB, 0));
        share.add(&did(0, 8 * KIB, 1));
        assert_eq!(share.end(&select, 0, false, &unowned).write_bytes, 8 * KIB);
        // Pages of others are charged no more than when the gateway looks.
        share.add(&did(8 * MIB, 8 * MIB, 1_024));
        let usage = share.end(&select, 0, false, &unowned);
        assert_eq!((usage.read_bytes, usage.write_bytes), (8 * MIB, 0));
    }

    #[test]
    fn pages_that_were_read_and_changed_are_logged_in_full_at_their_row_s_expense() {
        let after_checkpoint = did(17 * KIB, 24 * KIB, 1);
        assert_eq!(charged(Server::Postgres, &work(Update, 1, 60), after_checkpoint, 0).1, 24 * KIB);
        assert!(charged(Server::Postgres, &work(Update, 1, 60), did(MIB, MIB, 1), 0).1 < 48 * KIB);
    }

    #[test]
    fn every_byte_is_charged_or_unowned_and_none_twice() {
        let unowned = Unowned::default();
        let (mut bulk, mut small) = (Share::new(Server::Postgres), Share::new(Server::Postgres));
        let (mut written, mut charged) = (0, 0);
        bulk.runs(&unowned);
        for look in 1..=50_u64 {
            let pages = did(0, 80 * KIB, 10);
            bulk.add(&pages);
            charged += bulk.so_far(&work(Insert, 0, 80), 0).write_bytes;
            small.runs(&unowned);
            let foreign = did(0, MIB + look, 1 + look % 3);
            small.add(&foreign);
            let own = small.end(&work(Insert, 1, 60), 0, false, &unowned).write_bytes;
            assert_eq!(own, 8_192 + 512 + 120, "whatever is unowned");
            (written, charged) = (written + pages.written + foreign.written, charged + own);
        }
        let rows = 200_000;
        charged += bulk.end(&work(Insert, rows, 80), 0, false, &unowned).write_bytes;
        assert_eq!(charged + unowned.left(), written);
        // The load pays for what others wrote out of it, as far as its rows go, and not for more.
        assert_eq!(unowned.left(), 0);
    }

    #[test]
    fn a_load_takes_no_more_than_its_rows_explain_nor_what_was_written_before_it() {
        let unowned = Unowned::default();
        unowned.give(MIB);
        let mut share = Share::new(Server::Postgres);
        share.runs(&unowned);
        unowned.give(9 * MIB);
        assert_eq!(share.end(&work(Insert, 1_000, 0), 0, false, &unowned).write_bytes, 512_000);
        share.runs(&unowned);
        assert_eq!(share.end(&work(Insert, 1_000, 0), 0, false, &unowned).write_bytes, 0);
    }

    #[test]
    fn a_transaction_s_commit_writes_what_its_statements_changed() {
        let unowned = Unowned::default();
        let mut share = Share::new(Server::Postgres);
        for _ in 0..100 {
            share.runs(&unowned);
            assert_eq!(share.end(&work(Insert, 1, 60), 0, true, &unowned).write_bytes, 0);
        }
        // A query between takes nothing of it away.
        share.add(&did(0, 8 * KIB, 1));
        assert_eq!(share.end(&work(Select, 0, 60), 0, true, &unowned).write_bytes, 8 * KIB);
        share.add(&did(0, MIB, 1));
        assert_eq!(share.end(&work(Transaction, 0, 12), 0, false, &unowned).write_bytes, 8_192 + 100 * 632);
        // What is over is over.
        share.add(&did(0, MIB, 1));
        assert_eq!(share.end(&work(Transaction, 0, 12), 0, false, &unowned).write_bytes, 8_192);
    }

    #[test]
    fn what_was_charged_stays_charged_when_a_temporary_file_is_seen_late() {
        let (mut share, unowned) = (Share::new(Server::Postgres), Unowned::default());
        share.add(&did(0, 8 * MIB, 1_024));
        share.looked();
        let select = work(Select, 0, 60);
        assert_eq!(share.so_far(&select, 0).write_bytes, 8 * MIB);
        share.add(&did(0, 8 * MIB, 1_024));
        let usage = share.end(&select, 16 * MIB, false, &unowned);
        assert_eq!((usage.read_bytes, usage.write_bytes, unowned.left()), (8 * MIB, 0, 0));
    }
}
