//! Reports convictions to the controller at once, and statements' costs every few seconds. Where the controller cannot
//! take a report now, it is sent again: in a cluster another one may lead in a moment.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::controller::Controller;
use super::statements::Statements;
use crate::clock;

/// Between two reports.
const PERIOD: Duration = Duration::from_secs(2);
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts to report a conviction.
const AGAIN: Duration = Duration::from_secs(1);
/// Attempts at one conviction. A takeover takes two seconds; with twice as many, the convictions of half a minute would
/// wait behind one that cannot be reported.
const ATTEMPTS: u32 = 15;

/// Where reports go.
pub(super) trait Take<Report> {
    /// Hands one over and waits until it has arrived.
    fn take(&mut self, report: Report) -> impl Future<Output = Result<(), Status>> + Send;
}

impl Take<v1::ReportStatementsRequest> for Controller {
    async fn take(&mut self, report: v1::ReportStatementsRequest) -> Result<(), Status> {
        let request = self.request(report).await?;
        self.statements().report_statements(request).await.map(drop)
    }
}

impl Take<v1::ConvictRequest> for Controller {
    async fn take(&mut self, report: v1::ConvictRequest) -> Result<(), Status> {
        let request = self.request(report).await?;
        self.statements().convict(request).await.map(drop)
    }
}

/// Runs until `end`, then reports the rest and answers on the channel that came with it.
pub(super) async fn statements(
    mut to: impl Take<v1::ReportStatementsRequest>,
    gateway: String,
    statements: Arc<Statements>,
    mut end: oneshot::Receiver<oneshot::Sender<()>>,
) {
    // No other process of this gateway has it, also where the clock was set back between two starts. Zero is no number.
    let incarnation = clock::wall_us().max(1);
    let (mut seq, mut unsent) = (0_u64, VecDeque::new());
    loop {
        let ended = clock::within(PERIOD, &mut end).await;
        tell(&mut to, &mut unsent).await;
        if unsent.is_empty() {
            // What is counted during a report waits for the next period: under load there is always more.
            for (rows, evicted) in statements.take() {
                seq = seq.saturating_add(1);
                let gateway = gateway.clone();
                unsent.push_back(v1::ReportStatementsRequest { gateway, incarnation, seq, rows, evicted });
            }
            tell(&mut to, &mut unsent).await;
        }
        match ended {
            Some(Ok(done)) => {
                // The caller may have given up.
                let _ = done.send(());
                return;
            }
            Some(Err(_)) => return,
            None => {}
        }
    }
}

/// Sends what is unsent, in order, until the controller does not answer.
async fn tell(
    to: &mut impl Take<v1::ReportStatementsRequest>,
    unsent: &mut VecDeque<v1::ReportStatementsRequest>,
) {
    while let Some(report) = unsent.front() {
        match clock::within(PATIENCE, to.take(report.clone())).await {
            Some(Ok(())) => {}
            // The controller will not take it the next time either.
            Some(Err(status)) if status.code() == Code::InvalidArgument => {
                tracing::error!(%status, rows = report.rows.len(), "a report of statements is refused and dropped");
            }
            failed => {
                tracing::debug!(?failed, "statements not reported, tried again");
                return;
            }
        }
        unsent.pop_front();
    }
}

/// Reports convictions until the gateway ends.
pub(super) async fn convictions(
    mut to: impl Take<v1::ConvictRequest>,
    mut waiting: mpsc::Receiver<v1::ConvictRequest>,
) {
    while let Some(conviction) = waiting.recv().await {
        let mut left = ATTEMPTS;
        loop {
            left = left.saturating_sub(1);
            match clock::within(PATIENCE, to.take(conviction.clone())).await {
                Some(Ok(())) => break,
                // Not recorded, unless the connection broke between the record and its answer: then it counts twice.
                // Without any answer that is likelier, so there the attempt is the last.
                Some(Err(status)) if status.code() == Code::Unavailable && left > 0 => {
                    tracing::debug!(%status, "a runaway is not recorded yet, tried again");
                    tokio::time::sleep(AGAIN).await;
                }
                failed => {
                    tracing::warn!(?failed, group = conviction.group, "a runaway was not recorded");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tidegate_client::GroupName;
    use tidegate_cost_model::{SqlDialect, Template};
    use tokio::time::Instant;

    use super::super::statements::{Outcome, Record};
    use super::*;

    /// Counts a statement that was not admitted.
    fn count(statements: &Statements, sql: &str) {
        let template = &Arc::new(Template::new(SqlDialect::PostgreSql, sql));
        let (group, outcome, waited) = (&GroupName::new("g").unwrap(), Outcome::Throttled, Duration::ZERO);
        statements.record(&Record { group, template, outcome, waited });
    }

    /// A report as the controller got it: when, under which number, and the templates.
    type Report = (u64, u64, Vec<String>);

    /// A controller that has another statement counted whenever a report comes, and then answers.
    struct Told {
        statements: Arc<Statements>,
        /// `None` where it never answers.
        answers: VecDeque<Option<Result<(), Status>>>,
        began: Instant,
        told: Arc<Mutex<Vec<Report>>>,
    }

    impl Take<v1::ReportStatementsRequest> for Told {
        async fn take(&mut self, report: v1::ReportStatementsRequest) -> Result<(), Status> {
            count(&self.statements, &format!("select a{}", report.seq));
            let templates = report.rows.into_iter().map(|row| row.template).collect();
            self.told.lock().unwrap().push((self.began.elapsed().as_secs(), report.seq, templates));
            match self.answers.pop_front().unwrap() {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    /// The reports that a controller with these answers gets from a gateway that ends half a period after `periods`.
    async fn told(
        periods: u32,
        answers: impl IntoIterator<Item = Option<Result<(), Status>>>,
    ) -> Vec<Report> {
        let (counted, told) = (Arc::new(Statements::default()), Arc::default());
        count(&counted, "select a0");
        let answers = answers.into_iter().collect();
        let to =
            Told { statements: Arc::clone(&counted), answers, began: clock::now(), told: Arc::clone(&told) };
        let (ends, end) = oneshot::channel();
        let ending = async {
            tokio::time::sleep(PERIOD * periods + PERIOD / 2).await;
            let (done, ended) = oneshot::channel();
            ends.send(done).unwrap();
            ended.await.unwrap();
        };
        tokio::join!(statements(to, "gateway".to_owned(), counted, end), ending);
        std::mem::take(&mut *told.lock().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn statements_that_end_while_others_are_told_wait_for_the_next_period() {
        let told = told(2, [Some(Ok(())), Some(Ok(())), Some(Ok(()))]).await;
        let expected = [(2, 1, "SELECT a0"), (4, 2, "SELECT a1"), (5, 3, "SELECT a2")];
        assert_eq!(told, expected.map(|(at, seq, template)| (at, seq, vec![template.to_owned()])));
    }

    #[tokio::test(start_paused = true)]
    async fn while_reports_do_not_arrive_one_waits_and_the_next_has_all_that_was_counted_since() {
        let away = || Some(Err(Status::unavailable("away")));
        let ok = || Some(Ok(()));
        let told = told(4, [away(), away(), away(), ok(), ok(), ok()]).await;
        let numbers: Vec<_> = told.iter().map(|(at, seq, templates)| (*at, *seq, templates.len())).collect();
        assert_eq!(numbers, [(2, 1, 1), (4, 1, 1), (6, 1, 1), (8, 1, 1), (8, 2, 1), (9, 3, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_repeated_under_its_number_before_anything_newer_unless_it_is_refused() {
        let (away, never) = (Status::unavailable("away"), Status::invalid_argument("never"));
        let ok = || Some(Ok(()));
        let told = told(3, [Some(Err(away)), ok(), Some(Err(never)), ok(), ok()]).await;
        let numbers: Vec<_> = told.iter().map(|(at, seq, templates)| (*at, *seq, templates.len())).collect();
        assert_eq!(numbers, [(2, 1, 1), (4, 1, 1), (4, 2, 1), (6, 3, 1), (7, 4, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_is_not_answered_is_repeated_under_its_number() {
        let ok = || Some(Ok(()));
        let told = told(5, [None, ok(), ok(), ok(), ok(), ok()]).await;
        let numbers: Vec<_> = told.iter().map(|(_, seq, templates)| (*seq, templates.len())).collect();
        assert_eq!(numbers[..3], [(1, 1), (1, 1), (2, 1)], "{told:?}");
    }

    /// Notes when which group's conviction comes, and answers; never, where there is no answer.
    struct Recorder {
        answers: VecDeque<Option<Code>>,
        began: Instant,
        came: Arc<Mutex<Vec<(u64, String)>>>,
    }

    impl Take<v1::ConvictRequest> for Recorder {
        async fn take(&mut self, report: v1::ConvictRequest) -> Result<(), Status> {
            self.came.lock().unwrap().push((self.began.elapsed().as_secs(), report.group));
            match self.answers.pop_front().unwrap() {
                Some(Code::Ok) => Ok(()),
                Some(code) => Err(Status::new(code, "not now")),
                None => std::future::pending().await,
            }
        }
    }

    /// When the convictions of groups a, b and c come to a controller with these answers.
    async fn came(answers: impl IntoIterator<Item = Option<Code>>) -> Vec<(u64, String)> {
        let came = Arc::<Mutex<Vec<_>>>::default();
        let answers = answers.into_iter().collect();
        let recorder = Recorder { answers, began: clock::now(), came: Arc::clone(&came) };
        let (send, waiting) = mpsc::channel(3);
        for group in ["a", "b", "c"] {
            send.try_send(v1::ConvictRequest { group: group.into(), ..Default::default() }).unwrap();
        }
        drop(send);
        convictions(recorder, waiting).await;
        std::mem::take(&mut *came.lock().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_conviction_waits_for_the_next_controller_and_is_not_repeated_where_it_may_be_recorded() {
        let (away, ok) = (Some(Code::Unavailable), Some(Code::Ok));
        let expected = [(0, "a"), (1, "a"), (2, "a"), (2, "b"), (7, "c")].map(|(at, of)| (at, of.to_owned()));
        assert_eq!(came([away, away, ok, None, ok]).await, expected);
        let expected = [(0, "a"), (0, "b"), (0, "c")].map(|(at, of)| (at, of.to_owned()));
        assert_eq!(came([Some(Code::PermissionDenied), Some(Code::InvalidArgument), ok]).await, expected);
        // Each has as many attempts, whatever those before it used up.
        let given_up = std::iter::repeat_n(away, 15).chain([away, ok, ok]);
        let last = came(given_up).await.split_off(14);
        let expected = [(14, "a"), (14, "b"), (15, "b"), (15, "c")].map(|(at, of)| (at, of.to_owned()));
        assert_eq!(last, expected);
    }
}
