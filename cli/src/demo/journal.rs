//! What a killed node had charged, from the journal it left behind.
//!
//! A client that reaches no controller opens a copy of the journal; the totals that it would have to report are the
//! charges. The copy is taken after the node is dead and before it is started again.

use std::path::Path;
use std::time::Duration;

use tidegate_client::Client;

use super::ledger::{Account, Charges};
use crate::error::CliError;

/// Nothing listens here: port 1 needs privileges that no service of today asks for.
const NOWHERE: &str = "http://127.0.0.1:1";
/// The client gives up at once, since no controller will answer.
const PATIENCE: Duration = Duration::from_millis(50);

/// The charges in the journal of node `client` in `dir`, by way of a copy in `scratch`.
pub(crate) async fn charges(dir: &Path, client: &str, scratch: &Path) -> Result<Charges, CliError> {
    std::fs::create_dir_all(scratch).map_err(CliError::file("make", scratch))?;
    let file = format!("{client}.journal");
    let source = dir.join(&file);
    std::fs::copy(&source, scratch.join(&file)).map_err(CliError::file("copy the journal", &source))?;
    let reader = Client::builder([NOWHERE], client).journal_dir(scratch).patience(PATIENCE).start()?;
    let left = reader.shutdown().await;
    let charge = |report: &tidegate_client::Unconfirmed| {
        let account = Account {
            group: report.group.to_string(),
            client: client.to_owned(),
            incarnation: report.incarnation,
        };
        (account, report.ru.0)
    };
    Ok(left.unconfirmed.iter().map(charge).collect())
}
