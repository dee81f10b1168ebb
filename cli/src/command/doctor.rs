//! `tidegate doctor`: what this machine lacks for a controller, a gateway or a node, each with what to do.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::args::Global;
use crate::command::controller::LOG_FILTER;
use crate::doctor::settings::SettingFacts;
use crate::doctor::{Finding, Verdict, clock, limits, metering, ports, reach, settings, store};
use crate::error::CliError;
use crate::output::unless_unread;

/// Columns before what was found, and columns of a line.
const INDENT: usize = 21;
const WIDTH: usize = 80;

/// The controller that would run here.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate doctor\n  \
    tidegate doctor --config /etc/tidegate.toml --data /var/lib/tidegate\n  \
    tidegate doctor --output json\n\n\
    It works where nothing runs, and changes nothing. Exit status: 0 nothing failed, 1 something did.")]
pub(crate) struct DoctorArgs {
    /// The controller's settings, in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The controller's directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where its gRPC listens.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where its REST listens.
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
}

#[derive(Serialize)]
struct DoctorView {
    failed: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

/// Runs the command.
pub(crate) async fn run(args: DoctorArgs, global: &Global) -> Result<ExitCode, CliError> {
    let given = given(&args, global);
    let (mut findings, config) = settings::judge(&given);
    findings.extend(clock::judge(&clock::gather().await, config.drift_ppm));
    let path = config.store.clone();
    let looked = tokio::task::spawn_blocking(move || store::gather(&path)).await;
    let looked = looked.map_err(|error| CliError::Process {
        what: "look at the store".to_owned(),
        reason: error.to_string(),
    })?;
    findings.extend(store::judge(&looked));
    for (setting, address) in [("grpc_listen", config.grpc_listen), ("http_listen", config.http_listen)] {
        findings.push(ports::judge(&ports::gather(setting, address)));
    }
    findings.extend(metering::judge(&metering::gather()));
    findings.extend(limits::judge(&limits::gather()));
    let is_default = given.endpoint_from == "default";
    let reached = reach::gather(global, is_default, config.http_listen).await;
    findings.extend(reach::judge(&reached));
    let count = |verdict| findings.iter().filter(|finding: &&Finding| finding.verdict == verdict).count();
    let (failed, warnings) = (count(Verdict::Failed), count(Verdict::Warning));
    let view = DoctorView { failed, warnings, findings };
    unless_unread(global.output.show(&view, || text(&view)))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn given(args: &DoctorArgs, global: &Global) -> SettingFacts {
    let mut flags = Vec::new();
    if let Some(data) = &args.data {
        flags.push(("--data", "store", settings::store_in(data)));
    }
    flags.extend(args.listen.iter().map(|listen| ("--listen", "grpc_listen", listen.clone())));
    flags.extend(args.http.iter().map(|http| ("--http", "http_listen", http.clone())));
    let log = std::env::var(LOG_FILTER).ok().map(|text| {
        let read = EnvFilter::try_new(&text).map(drop).map_err(|error| error.to_string());
        (text, read)
    });
    let environment = std::env::var("TIDEGATE_ENDPOINT").ok();
    let endpoint_from = match environment {
        Some(endpoint) if endpoint == global.endpoint => "TIDEGATE_ENDPOINT",
        _ if global.takes_context && global.context.is_some() => "context",
        _ if !global.endpoint_given => "default",
        _ => "--endpoint",
    };
    SettingFacts {
        file: args.config.as_ref().map(|path| (path.clone(), settings::read(path))),
        flags,
        log,
        endpoint: global.endpoint.clone(),
        endpoint_from,
    }
}

/// A line or more for each finding, and what it comes to.
fn text(view: &DoctorView) -> String {
    let mut text = String::new();
    for finding in &view.findings {
        let head = format!("{:<8} {:<11}", finding.verdict.as_str(), finding.area);
        text.push_str(&wrapped(&head, &finding.found));
        if !finding.remedy.is_empty() {
            text.push_str(&wrapped(&format!("{:>20}", "->"), &finding.remedy));
        }
    }
    let last = match (view.failed, view.warnings) {
        (0, 0) => "all is well".to_owned(),
        (failed, warnings) => format!("{failed} failed, {warnings} warnings"),
    };
    text.push_str(&format!("\n{last}\n"));
    text
}

/// Words behind a head, broken where a line is full.
fn wrapped(head: &str, words: &str) -> String {
    let mut lines = format!("{head:<INDENT$}");
    let mut column = INDENT;
    for (index, word) in words.split_whitespace().enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > WIDTH {
            lines.push_str(&format!("\n{:INDENT$}", ""));
            column = INDENT;
        } else if index > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_fit_eighty_columns_and_name_their_remedies() {
        let findings = vec![
            Finding::ok("clock", "fine"),
            Finding::failed("store", "words ".repeat(30), "do this and ".repeat(10)),
        ];
        let text = text(&DoctorView { failed: 1, warnings: 0, findings });
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.starts_with("ok       clock       fine\nfailed   store       words words"), "{text}");
        assert!(text.contains("\n                  -> do this"), "{text}");
        assert!(text.ends_with("\n1 failed, 0 warnings\n"), "{text}");
    }
}
