//! Transactions and ranges as etcd's messages, and its answers as ours. An answer that does not fit its question is an
//! error with a reason, never a guess.

use super::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use super::wire::request_op::Request as Op;
use super::wire::response_op::Response as Answered;
use super::wire::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp,
    ResponseHeader, TxnRequest, TxnResponse,
};
use crate::{Guard, Outcome, Page, Row, Step, Transaction};

/// The first of all keys, as none is empty. As the end of a range it stands for none to etcd.
const FIRST: &[u8] = &[0];

/// A transaction as etcd takes it.
pub(super) fn transaction(transaction: &Transaction) -> TxnRequest {
    let ops = |steps: &[Step]| steps.iter().filter_map(op).collect();
    TxnRequest {
        compare: transaction.when.iter().map(compare).collect(),
        success: ops(&transaction.then),
        failure: ops(&transaction.otherwise),
    }
}

fn compare(guard: &Guard) -> Compare {
    let (key, target, union) = match guard {
        Guard::Changed(key, revision) => {
            (key, CompareTarget::Mod, TargetUnion::ModRevision(signed(*revision)))
        }
        Guard::Value(key, value) => (key, CompareTarget::Value, TargetUnion::Value(value.clone())),
    };
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key.clone(),
        target_union: Some(union),
    }
}

/// Nothing for a step that does nothing: etcd has no range without keys.
fn op(step: &Step) -> Option<RequestOp> {
    let op = match step {
        Step::Get(key) => Op::RequestRange(RangeRequest { key: key.clone(), ..RangeRequest::default() }),
        Step::Put(key, value) => Op::RequestPut(PutRequest { key: key.clone(), value: value.clone() }),
        Step::Delete(from, to) => {
            let (key, range_end) = span(from, to)?;
            Op::RequestDeleteRange(DeleteRangeRequest { key, range_end })
        }
    };
    Some(RequestOp { request: Some(op) })
}

/// The keys from one to before another, as etcd names them; nothing if there can be none.
fn span(from: &[u8], to: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let from = if from.is_empty() { FIRST } else { from };
    // So no end is empty or `FIRST`, which mean something else to etcd.
    (from < to).then(|| (from.to_vec(), to.to_vec()))
}

/// Revisions are signed there. One beyond what it counts to is none that a key has, as the last is not.
pub(super) fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// What a transaction did.
///
/// # Errors
/// The answer is not one to this transaction.
pub(super) fn outcome(transaction: &Transaction, answer: TxnResponse) -> Result<Outcome, String> {
    let steps = if answer.succeeded { &transaction.then } else { &transaction.otherwise };
    let sent = steps.iter().filter(|step| op_is_sent(step));
    let mut responses = answer.responses.into_iter();
    let mut found = Vec::new();
    for step in sent {
        match (step, responses.next().and_then(|response| response.response)) {
            (Step::Get(key), Some(Answered::ResponseRange(range))) => found.push(only(key, range.kvs)?),
            (Step::Put(..), Some(Answered::ResponsePut(_)))
            | (Step::Delete(..), Some(Answered::ResponseDeleteRange(_))) => {}
            _ => return Err("its answer lacks one for each step".to_owned()),
        }
    }
    if responses.next().is_some() {
        return Err("its answer has more than one for each step".to_owned());
    }
    Ok(Outcome { held: answer.succeeded, revision: revision(answer.header.as_ref())?, found })
}

fn op_is_sent(step: &Step) -> bool {
    match step {
        Step::Get(_) | Step::Put(..) => true,
        Step::Delete(from, to) => span(from, to).is_some(),
    }
}

/// The row of this key, if there is one.
fn only(key: &[u8], rows: Vec<KeyValue>) -> Result<Option<Row>, String> {
    let mut rows = rows.into_iter();
    let Some(first) = rows.next() else { return Ok(None) };
    if first.key != key || rows.next().is_some() {
        return Err("its answer has rows that were not asked for".to_owned());
    }
    row(first).map(Some)
}

fn row(row: KeyValue) -> Result<Row, String> {
    let (created, changed) = (positive(row.create_revision)?, positive(row.mod_revision)?);
    Ok(Row { key: row.key, value: row.value, created, changed })
}

fn positive(revision: i64) -> Result<u64, String> {
    u64::try_from(revision)
        .ok()
        .filter(|revision| *revision > 0)
        .ok_or_else(|| format!("its answer has the revision {revision}, which there is not"))
}

fn revision(header: Option<&ResponseHeader>) -> Result<u64, String> {
    positive(header.map(|header| header.revision).unwrap_or_default())
}

/// A read of a range.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    from: Vec<u8>,
    to: Vec<u8>,
    most: usize,
    at: Option<u64>,
}

impl Reading {
    pub(super) fn new(from: &[u8], to: &[u8], most: usize, at: Option<u64>) -> Self {
        Self { from: from.to_vec(), to: to.to_vec(), most, at }
    }

    /// As etcd takes it. To it a limit of 0 is none, so what is to have no rows is counted.
    pub(super) fn request(&self) -> RangeRequest {
        let revision = self.at.map(signed).unwrap_or_default();
        match span(&self.from, &self.to) {
            Some((key, range_end)) => {
                let limit = i64::try_from(self.most).unwrap_or(i64::MAX);
                RangeRequest { key, range_end, limit, revision, count_only: self.most == 0 }
            }
            // It still says what the revision is, and whether `at` is there.
            None => {
                RangeRequest { key: FIRST.to_vec(), revision, count_only: true, ..RangeRequest::default() }
            }
        }
    }

    /// What was read.
    ///
    /// # Errors
    /// The answer is not one to this question.
    pub(super) fn page(&self, answer: RangeResponse) -> Result<Page, String> {
        let is_empty = span(&self.from, &self.to).is_none();
        let most = if is_empty { 0 } else { self.most };
        let now = revision(answer.header.as_ref())?;
        let rows: Vec<Row> = answer.kvs.into_iter().map(row).collect::<Result<_, _>>()?;
        let is_within = rows.iter().all(|row| row.key >= self.from && row.key < self.to);
        let is_ordered = rows.is_sorted_by(|one, other| one.key < other.key);
        if rows.len() > most || !is_within || !is_ordered {
            return Err("its answer has rows that were not asked for".to_owned());
        }
        let is_counted = most == 0 && !is_empty && answer.count > 0;
        Ok(Page { more: answer.more || is_counted, rows, revision: self.at.unwrap_or(now) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::wire::{DeleteRangeResponse, PutResponse, ResponseOp};

    fn header(revision: i64) -> Option<ResponseHeader> {
        Some(ResponseHeader { cluster_id: 1, revision })
    }

    fn kept(key: &[u8], mod_revision: i64) -> KeyValue {
        KeyValue { key: key.to_vec(), create_revision: 1, mod_revision, value: vec![7] }
    }

    fn read(kvs: Vec<KeyValue>) -> Answered {
        Answered::ResponseRange(RangeResponse { kvs, ..RangeResponse::default() })
    }

    fn answer(responses: Vec<Answered>) -> TxnResponse {
        let responses = responses.into_iter().map(|one| ResponseOp { response: Some(one) }).collect();
        TxnResponse { header: header(9), succeeded: true, responses }
    }

    #[test]
    fn an_answer_that_does_not_fit_its_transaction_is_an_error() {
        let (put, gone) = (
            Answered::ResponsePut(PutResponse::default()),
            Answered::ResponseDeleteRange(DeleteRangeResponse::default()),
        );
        let asked = Transaction {
            then: vec![
                Step::Get(b"k".to_vec()),
                // Nothing is sent for it.
                Step::Delete(b"b".to_vec(), b"a".to_vec()),
                Step::Put(b"p".to_vec(), vec![]),
                Step::Delete(b"a".to_vec(), b"b".to_vec()),
            ],
            ..Transaction::default()
        };
        assert_eq!(transaction(&asked).success.len(), 3);
        let fits = answer(vec![read(vec![kept(b"k", 5)]), put.clone(), gone.clone()]);
        let found = Row { key: b"k".to_vec(), value: vec![7], created: 1, changed: 5 };
        let expected = Outcome { held: true, revision: 9, found: vec![Some(found)] };
        assert_eq!(outcome(&asked, fits.clone()), Ok(expected));
        for (wrong, said) in [
            (answer(vec![read(vec![]), put.clone()]), "lacks one"),
            (answer(vec![]), "lacks one"),
            (answer(vec![put.clone(), put.clone(), gone.clone()]), "lacks one"),
            (answer(vec![read(vec![]), put.clone(), gone.clone(), put.clone()]), "more than one"),
            (answer(vec![read(vec![kept(b"j", 5)]), put.clone(), gone.clone()]), "not asked for"),
            (answer(vec![read(vec![kept(b"k", 5), kept(b"k", 5)]), put.clone(), gone.clone()]), "not asked"),
            (answer(vec![read(vec![kept(b"k", -5)]), put, gone]), "the revision -5"),
            (TxnResponse { header: None, ..fits.clone() }, "the revision 0"),
            (TxnResponse { header: header(-1), ..fits.clone() }, "the revision -1"),
            (TxnResponse { succeeded: false, ..fits }, "more than one"),
        ] {
            let refused = outcome(&asked, wrong).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn a_page_that_does_not_fit_its_range_is_an_error() {
        let reading = Reading::new(b"a", b"c", 2, None);
        let page = |kvs: Vec<KeyValue>| {
            reading.page(RangeResponse { header: header(9), kvs, more: false, count: 0 })
        };
        assert_eq!(page(vec![kept(b"a", 1), kept(b"b", 2)]).unwrap().rows.len(), 2);
        for wrong in [
            vec![kept(b"c", 1)],
            vec![kept(b"", 1)],
            vec![kept(b"b", 1), kept(b"a", 1)],
            vec![kept(b"a", 1), kept(b"a", 1)],
            vec![kept(b"a", 1), kept(b"aa", 1), kept(b"b", 1)],
            vec![kept(b"a", 0)],
        ] {
            assert!(page(wrong).is_err());
        }
        // Whether there are rows is counted where none is wanted, but not in a range that can have none.
        for (from, to, most, more, row) in [
            (&b"a"[..], &b"c"[..], 0, true, None),
            (b"a", b"c", 2, false, Some(b"b")),
            (b"c", b"a", 0, false, None),
            (b"c", b"a", 2, false, None),
            (b"", b"\0", 2, false, None),
        ] {
            let reading = Reading::new(from, to, most, None);
            let answer = RangeResponse { header: header(9), kvs: vec![], more: false, count: 5 };
            assert_eq!(reading.page(answer.clone()).map(|page| page.more), Ok(more), "{from:?} {most}");
            for key in [&b""[..], b"b", b"c"] {
                let page = reading.page(RangeResponse { kvs: vec![kept(key, 1)], ..answer.clone() });
                assert_eq!(page.is_ok(), row.is_some_and(|row| row == key), "{from:?} {most} {key:?}");
            }
        }
    }

    #[test]
    fn ranges_without_keys_never_become_what_etcd_means_by_such_ends() {
        let spans =
            [(&b"a"[..], &b""[..]), (b"a", b"\0"), (b"", b"\0"), (b"", b""), (b"b", b"a"), (b"a", b"a")];
        for (from, to) in spans {
            assert_eq!(span(from, to), None, "{from:?} {to:?}");
            let request = Reading::new(from, to, 5, Some(3)).request();
            assert!(request.count_only && request.range_end.is_empty() && request.revision == 3);
        }
        assert_eq!(span(b"", b"a"), Some((vec![0], b"a".to_vec())));
        assert_eq!(span(b"\0", b"\0\0"), Some((vec![0], vec![0, 0])));
        assert!(Reading::new(b"a", b"b", 0, None).request().count_only);
    }
}
