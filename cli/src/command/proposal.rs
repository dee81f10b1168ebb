//! `tidegate group propose` and what is done with a proposal: shown beside what is in force, applied, withdrawn.

use clap::Subcommand;
use serde::Serialize;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::clock::utc_text;
use crate::command::group::Settings;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::table::{Column, Table};

/// What to do with proposals.
#[derive(Debug, Subcommand)]
pub(crate) enum ProposalCommand {
    /// Propose a change: it is compared with what is in force, and is not in force.
    #[command(after_help = "Examples:\n  \
        tidegate group propose shop --rate 500\n  \
        tidegate group propose shop --rate 500 --burst 2000 --policy 'warm_up(10s, 3)'\n  \
        tidegate group proposal shop                   (some minutes or days later)\n  \
        tidegate group apply-proposal shop")]
    Propose {
        /// The group.
        name: String,
        #[command(flatten)]
        settings: Box<Settings>,
        /// Refuse unless the group is still at this revision.
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        expect_revision: u64,
    },
    /// Show the proposal of a group beside what is in force, by what was recorded since.
    Proposal {
        /// The group.
        name: String,
        #[command(flatten)]
        follow: Follow,
    },
    /// List the proposals of all groups.
    Proposals {
        #[command(flatten)]
        follow: Follow,
    },
    /// Alter a group as it is proposed, unless it was changed since, and withdraw the proposal.
    ApplyProposal {
        /// The group.
        name: String,
    },
    /// Withdraw the proposal of a group.
    Withdraw {
        /// The group.
        name: String,
    },
}

/// Runs the command.
pub(crate) async fn run(command: ProposalCommand, global: &Global) -> Result<(), CliError> {
    match command {
        ProposalCommand::Propose { name, settings, expect_revision } => {
            let (group, update_mask) = settings.apply(name);
            if update_mask.is_empty() {
                let message =
                    "nothing is proposed: name at least one setting, such as --rate 1500".to_owned();
                return Err(CliError::Usage(message));
            }
            let admin = global.admin().await?;
            let request = v1::PutProposalRequest {
                group: Some(group),
                update_mask,
                expected_revision: expect_revision,
            };
            let reply = admin.calls().put_proposal(request).await.map_err(admin.failed_in_flags())?;
            let proposal = admin.part(reply.into_inner().proposal, "the proposal")?;
            global.output.list(
                &proposal,
                || vec![name_of(&proposal)],
                || {
                    let name = name_of(&proposal);
                    format!(
                        "proposed for group {name}: {}; see tidegate group proposal {name}",
                        settings_of(&proposal)
                    )
                },
            )
        }
        ProposalCommand::Proposal { name, follow } => {
            follow::show(global, follow, async |admin: &Admin| Ok(Compared(read(admin, &name).await?))).await
        }
        ProposalCommand::Proposals { follow } => {
            follow::show(global, follow, async |admin: &Admin| {
                let request = v1::ListProposalsRequest {};
                let reply = admin.calls().list_proposals(request).await.map_err(admin.failed())?;
                Ok(Listed(reply.into_inner().proposals))
            })
            .await
        }
        ProposalCommand::ApplyProposal { name } => apply(name, global).await,
        ProposalCommand::Withdraw { name } => {
            let admin = global.admin().await?;
            let request = v1::DeleteProposalRequest { group: name.clone() };
            let deleted = admin.calls().delete_proposal(request).await.map_err(admin.failed())?.into_inner();
            global.output.show(&deleted, || match deleted.deleted {
                true => format!("the proposal for group {name} is withdrawn"),
                false => format!("nothing was proposed for group {name}"),
            })
        }
    }
}

async fn read(admin: &Admin, name: &str) -> Result<v1::ProposalReply, CliError> {
    let request = v1::GetProposalRequest { group: name.to_owned() };
    Ok(admin.calls().get_proposal(request).await.map_err(admin.failed())?.into_inner())
}

/// The answer to an application.
#[derive(Serialize)]
struct Applied {
    group: v1::Group,
    warnings: Vec<String>,
}

async fn apply(name: String, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let request = v1::ApplyProposalRequest { group: name, expected_id: 0 };
    let reply = admin.calls().apply_proposal(request).await.map_err(admin.failed_in_flags())?;
    let reply = reply.into_inner();
    let applied = Applied { group: admin.part(reply.group, "the group")?, warnings: reply.warnings };
    global.output.list(
        &applied,
        || vec![applied.group.name.clone()],
        || format!("group {} altered as proposed, revision {}", applied.group.name, applied.group.revision),
    )?;
    super::group::warnings(&applied.warnings).iter().for_each(|line| crate::output::note(line));
    Ok(())
}

fn name_of(proposal: &v1::Proposal) -> String {
    proposal.group.as_ref().map(|group| group.name.clone()).unwrap_or_default()
}

/// The proposed fields and their values.
fn settings_of(proposal: &v1::Proposal) -> String {
    let group = proposal.group.clone().unwrap_or_default();
    let setting = |field: &String| {
        let value = match field.as_str() {
            "ru_per_sec" => group.ru_per_sec.clone(),
            "burst" => group.burst.clone(),
            "burstable" => group.burstable.clone(),
            "burst_ru_per_sec" => group.burst_ru_per_sec.clone(),
            "policy" => group.policy.clone(),
            "quota" => group.quota.clone(),
            "max_wait_us" => Span(group.max_wait_us).to_string(),
            _ => String::new(),
        };
        format!("{field}={value}")
    };
    proposal.fields.iter().map(setting).collect::<Vec<_>>().join(", ")
}

/// All proposals.
#[derive(Serialize)]
#[serde(transparent)]
struct Listed(Vec<v1::Proposal>);

impl Shown for Listed {
    fn page(&self) -> Page {
        let mut table = Table::new([
            Column::name("GROUP"),
            Column::word("PROPOSED (UTC)"),
            Column::word("COMPARED SINCE (UTC)").leaves(1),
            Column::number("REVISION").leaves(2),
            Column::number("NOW AT").leaves(2),
            Column::name("SETTINGS"),
        ]);
        for proposal in &self.0 {
            table.row([
                name_of(proposal),
                utc_text(proposal.proposed_unix_s.saturating_mul(1_000)),
                utc_text(proposal.since_unix_s.saturating_mul(1_000)),
                proposal.revision.to_string(),
                proposal.live_revision.to_string(),
                settings_of(proposal),
            ]);
        }
        table.into()
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(name_of).collect()
    }
}

/// A proposal beside what is in force.
#[derive(Serialize)]
#[serde(transparent)]
struct Compared(v1::ProposalReply);

impl Shown for Compared {
    fn page(&self) -> Page {
        let proposal = self.0.proposal.clone().unwrap_or_default();
        let since = utc_text(proposal.since_unix_s.saturating_mul(1_000));
        let said = format!(
            "proposed for group {}: {}; compared since {since}",
            name_of(&proposal),
            settings_of(&proposal)
        );
        let Some(compared) = &self.0.comparison else { return said.into() };
        let mut table = Table::new([
            Column::name("SETTINGS"),
            Column::word("OPERATIONS COME"),
            Column::number("RU/s"),
            Column::number("BURST").leaves(2),
            Column::word("POLICY").leaves(3),
            Column::word("QUOTA").leaves(3),
            Column::number("RU ADMITTED"),
            Column::number("REFUSED"),
            Column::number("OF RU"),
            Column::number("OF THE TIME").leaves(1),
            Column::number("WAIT, P50").leaves(1),
            Column::number("WAIT, P99"),
            Column::number("USE OF THE CAP").leaves(1),
        ]);
        for (name, outcome) in [("live", &compared.current), ("proposed", &compared.proposed)] {
            let Some(outcome) = outcome else {
                let mut row = [const { String::new() }; 13];
                row[0] = format!("{name}: no limit");
                table.row(row);
                continue;
            };
            for (come, figures) in [("even", &outcome.even), ("at once", &outcome.at_once)] {
                let figures = figures.clone().unwrap_or_default();
                table.row([
                    name.to_owned(),
                    come.to_owned(),
                    outcome.ru_per_sec.clone(),
                    outcome.burst.clone(),
                    outcome.policy.clone(),
                    outcome.quota.clone(),
                    figures.admitted_ru.clone(),
                    figures.throttled_ru.clone(),
                    percent(figures.throttled_ppm),
                    percent(figures.throttled_time_ppm),
                    Span(figures.p50_wait_us).to_string(),
                    Span(figures.p99_wait_us).to_string(),
                    percent(figures.use_ppm),
                ]);
            }
        }
        let wanted = format!(
            "{} RU wanted in {} samples, by the {}",
            compared.wanted_ru, compared.samples, compared.resolution
        );
        Page::from(said).then(wanted).then(table)
    }

    fn names(&self) -> Vec<String> {
        self.0.proposal.iter().map(name_of).collect()
    }

    fn notes(&self) -> Vec<String> {
        self.0.notes.iter().map(|text| format!("note: {text}")).collect()
    }
}

fn percent(ppm: u64) -> String {
    format!("{}.{:02} %", ppm / 10_000, ppm % 10_000 / 100)
}
