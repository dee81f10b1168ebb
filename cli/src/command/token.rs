//! `tidegate token`: secrets that prove who calls, where a certificate is too much.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_controller::quantity::parse_span;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::clock::utc_text;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::output::unless_unread;
use crate::page::Page;
use crate::table::{Column, Table};

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and write it to a file or print it, once: the controller keeps a hash only.
    #[command(after_help = "Examples:\n  \
        tidegate token create ann --role operator --ttl 720h --out ann.token\n  \
        tidegate status --token-file ann.token\n  \
        tidegate token create till --role node --groups shop,reports --out till.token\n  \
        tidegate node --token-file till.token --identity till.pod-7 --sql work.sql\n\n\
        A command shows the token in --token-file (TIDEGATE_TOKEN_FILE) or in TIDEGATE_TOKEN, and REST takes it as\n\
        `authorization: Bearer TOKEN`. A node or a gateway called NAME is the client NAME, or NAME. and anything.")]
    Create(CreateArgs),
    /// List tokens, without their texts.
    List {
        #[command(flatten)]
        follow: Follow,
    },
    /// End tokens at once: calls and streams under them end within a second.
    #[command(after_help = "Examples:\n  tidegate token revoke 7\n  tidegate token revoke 1 --force")]
    Revoke {
        /// The tokens, as `tidegate token list` numbers them.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<u64>,
        /// Revoke the last token of an admin, too.
        #[arg(long)]
        force: bool,
    },
}

/// The token to be made.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Whose it is: the name in the audit log.
    name: String,
    /// What it may do: admin, operator, viewer, tenant, node, gateway or metrics.
    #[arg(long, value_name = "ROLE")]
    role: String,
    /// The only groups of a node or a gateway, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_name = "GROUP")]
    groups: Vec<String>,
    /// In the role tenant: the tenant whose groups it sees, and nothing else.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// When it ends [default: never].
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    ttl: Option<u64>,
    /// Write it to this new file, for its owner only, in place of printing it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn ttl(text: &str) -> Result<u64, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    if span.0 == 0 {
        Err("a token that ends at once is none; leave it out for one without an end".to_owned())
    } else {
        Ok(span.0)
    }
}

/// Runs the command.
pub(crate) async fn run(command: TokenCommand, global: &Global) -> Result<(), CliError> {
    match command {
        TokenCommand::Create(args) => create(args, global).await,
        TokenCommand::List { follow } => follow::show(global, follow, list).await,
        TokenCommand::Revoke { ids, force } => revoke(ids, force, global).await,
    }
}

/// A new token.
#[derive(Serialize)]
struct Created {
    #[serde(flatten)]
    token: v1::Token,
    /// Left out when it was written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

async fn create(args: CreateArgs, global: &Global) -> Result<(), CliError> {
    if let Some(path) = args.out.as_ref().filter(|path| path.exists()) {
        return Err(CliError::Refused(format!("{} exists; name another file", path.display())));
    }
    let admin = global.admin().await?;
    let ttl_us = args.ttl.unwrap_or_default();
    let request = v1::CreateTokenRequest {
        name: args.name,
        role: args.role,
        ttl_us,
        groups: args.groups,
        tenant: args.tenant.unwrap_or_default(),
    };
    let reply = admin.calls().create_token(request).await.map_err(admin.failed_in_flags())?;
    let reply = reply.into_inner();
    let token = admin.part(reply.token, "the token")?;
    let secret = match &args.out {
        None => Some(reply.secret),
        Some(path) => {
            let written = tidegate_tls::write(path, &format!("{}\n", reply.secret), true, false);
            written.map_err(|error| {
                let id = token.id;
                CliError::Refused(format!("{error}; the token is lost: run tidegate token revoke {id}"))
            })?;
            None
        }
    };
    let line = match (&secret, &args.out) {
        (Some(secret), _) => secret.clone(),
        (None, path) => path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
    };
    global.output.show(&Created { token, secret }, || format!("{line}\n"))
}

async fn list(admin: &Admin) -> Result<Vec<v1::Token>, CliError> {
    let (mut tokens, mut after) = (Vec::new(), 0);
    loop {
        let request = v1::ListTokensRequest { after, limit: 0 };
        let page = admin.calls().list_tokens(request).await.map_err(admin.failed())?.into_inner();
        tokens.extend(page.tokens);
        // A page that does not go on would be asked for without an end.
        if page.next_after <= after {
            return Ok(tokens);
        }
        after = page.next_after;
    }
}

impl Shown for Vec<v1::Token> {
    fn page(&self) -> Page {
        let mut table = Table::new([
            Column::number("ID"),
            Column::name("NAME"),
            Column::word("ROLE"),
            Column::name("GROUPS").leaves(2),
            Column::name("TENANT").leaves(2),
            Column::word("MADE (UTC)").leaves(1),
            Column::word("ENDS (UTC)"),
        ]);
        for token in self {
            let ends = match token.expires_unix_ms {
                0 => "never".to_owned(),
                at => utc_text(at),
            };
            let made = utc_text(token.created_unix_ms);
            let groups = token.groups.join(",");
            let (id, name, role) = (token.id.to_string(), token.name.clone(), token.role.clone());
            table.row([id, name, role, groups, token.tenant.clone(), made, ends]);
        }
        table.into()
    }

    fn names(&self) -> Vec<String> {
        self.iter().map(|token| token.id.to_string()).collect()
    }
}

async fn revoke(ids: Vec<u64>, force: bool, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let mut revoked = Vec::new();
    let mut failed = Ok(());
    for id in ids {
        match revoke_one(&admin, id, force).await {
            Ok(token) => revoked.push(token),
            Err(error) => {
                failed = Err(error);
                break;
            }
        }
    }
    if revoked.is_empty() {
        return failed;
    }
    // Those before the one that failed are revoked.
    let line = |token: &v1::Token| format!("token {} of {} revoked\n", token.id, token.name);
    unless_unread(global.output.show(&revoked, || revoked.iter().map(line).collect::<String>()))?;
    failed
}

async fn revoke_one(admin: &Admin, id: u64, force: bool) -> Result<v1::Token, CliError> {
    let reply = admin.calls().revoke_token(v1::RevokeTokenRequest { id, force }).await;
    admin.part(reply.map_err(admin.failed())?.into_inner().token, "the token")
}
