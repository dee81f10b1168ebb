//! Tells the controller of convictions at once and of statements' costs every few seconds.

use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::v1;
use tidegate_proto::v1::statements_client::StatementsClient;
use tokio::sync::{mpsc, oneshot};
use tonic::transport::Channel;

use super::statements::Statements;
use crate::clock;

/// Between two reports.
const PERIOD: Duration = Duration::from_secs(2);
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs until `end` and then tells the rest; answers on the channel that came with it.
pub(super) async fn statements(
    channel: Channel,
    gateway: String,
    statements: Arc<Statements>,
    mut end: oneshot::Receiver<oneshot::Sender<()>>,
) {
    let mut client = StatementsClient::new(channel);
    // Grows from start to start, as the controller wants it.
    let incarnation = clock::wall_ms();
    let (mut seq, mut unsent) = (0_u64, None);
    loop {
        let ended = clock::within(PERIOD, &mut end).await;
        loop {
            if unsent.is_none() {
                let Some((rows, evicted)) = statements.take() else { break };
                seq = seq.saturating_add(1);
                unsent = Some(v1::ReportStatementsRequest {
                    gateway: gateway.clone(),
                    incarnation,
                    seq,
                    rows,
                    evicted,
                });
            }
            let Some(report) = &unsent else { break };
            match clock::within(PATIENCE, client.report_statements(report.clone())).await {
                Some(Ok(_)) => unsent = None,
                // The controller will not take it the next time either.
                Some(Err(status)) if status.code() == tonic::Code::InvalidArgument => {
                    tracing::error!(%status, rows = report.rows.len(), "a report of statements is refused and dropped");
                    unsent = None;
                }
                failed => {
                    tracing::debug!(?failed, "statements not reported, tried again");
                    break;
                }
            }
        }
        match ended {
            Some(Ok(done)) => {
                // Who asked may have given up.
                let _ = done.send(());
                return;
            }
            Some(Err(_)) => return,
            None => {}
        }
    }
}

/// Tells of convictions until the gateway ends.
pub(super) async fn convictions(channel: Channel, mut waiting: mpsc::Receiver<v1::ConvictRequest>) {
    let mut client = StatementsClient::new(channel);
    while let Some(conviction) = waiting.recv().await {
        let group = conviction.group.clone();
        match clock::within(PATIENCE, client.convict(conviction)).await {
            Some(Ok(_)) => {}
            failed => tracing::warn!(?failed, group, "a runaway was not recorded"),
        }
    }
}
