//! `tidegate cert`: a private authority, and certificates for controllers and for callers of every role.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tidegate_tls::{
    Authority, Certificate, IssueError, Issued, Material, Name, Purpose, Request, WARN_DAYS, date,
};

use crate::args::Global;
use crate::command::controller::own_folder;
use crate::error::CliError;
use crate::output::{print, unless_unread};
use crate::page::Page;
use crate::table::{Column, Table};

/// The files of an authority in its folder.
const CA: &str = "ca.pem";
const CA_KEY: &str = "ca-key.pem";
/// The list of what it has revoked.
const LIST: &str = "crl.pem";
/// Days of an authority: every machine has to get the next one, so that ten years are usual. With half of it, that work
/// is due twice as often; with twice of it, its key is trusted for longer than anybody remembers who has it.
const CA_DAYS: u32 = 3_650;
/// Days of other certificates: a season, so that a stolen key is of no use after it and renewing stays a habit. Half of
/// it leaves little beside the thirty days of warnings.
const DAYS: u32 = 90;
/// Most days that can be asked for.
const MOST_DAYS: i64 = 36_500;
const DAY: i64 = 86_400;

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Make a private authority: ca.pem, which all trust, and ca-key.pem, which signs and stays secret.
    Init(InitArgs),
    /// Make a certificate and its key: NAME.pem and NAME-key.pem.
    #[command(after_help = "Examples:\n  \
        tidegate cert issue controller rates --dns rates.example --ip 10.0.0.5\n  \
        tidegate cert issue node node-1\n  \
        tidegate cert issue gateway gw-1 --dns db.example    (also for its clients)\n  \
        tidegate cert issue operator ann\n\n\
        Each has the name spiffe://tidegate/ROLE/NAME, too, by which the controller knows its holder: an admin may do\n\
        everything, an operator define, a viewer read, a tenant read what concerns it, a monitoring\n\
        system read metrics; a node is a client called NAME or NAME.anything, and a gateway\n\
        is a node that reports statements. NAME of both has no full stop.")]
    Issue(IssueArgs),
    /// Show what certificates say: names, usage, end, fingerprint.
    Show {
        /// Files of certificates, in PEM.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Sign certificates again, for the same names and keys: processes that use them take them within 10 s.
    #[command(after_help = "Examples:\n  \
        tidegate cert renew certs/rates.pem certs/node-1.pem\n  \
        tidegate cert renew /etc/tidegate/rates.pem --dir /root/certs --days 30")]
    Renew(RenewArgs),
    /// Revoke certificates: adds them to the authority's list, crl.pem, which controllers take within 10 s.
    #[command(after_help = "Examples:\n  \
        tidegate cert revoke certs/till.pem\n  \
        tidegate cert revoke                  (an empty list, or what the list has)\n  \
        tidegate controller --tls-client-ca certs/ca.pem --tls-client-crl certs/crl.pem …\n\n\
        Their connections end, and no handshake accepts them. A certificate that was renewed has the key and the number of\n\
        the one before: both are revoked together. Issue the same name again for a new key.")]
    Revoke(RevokeArgs),
}

/// The authority to be made.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Folder of the authority; made when missing.
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
    /// Its name [default: tidegate authority, and a part of its fingerprint].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long it is valid.
    #[arg(long, value_name = "DAYS", default_value_t = CA_DAYS, value_parser = days())]
    days: u32,
    /// Replace the authority that is there: what it has signed is worth nothing then.
    #[arg(long)]
    force: bool,
}

/// The certificate to be made.
#[derive(Debug, Args)]
pub(crate) struct IssueArgs {
    /// Whose it is: a controller's is for a server, the others' are for clients, a gateway's with --dns or --ip for both.
    #[arg(value_enum)]
    role: Role,
    /// Its name, of which the files have theirs.
    name: String,
    /// A name by which clients reach it; may be repeated [default for a controller: localhost].
    #[arg(long, value_name = "HOST")]
    dns: Vec<String>,
    /// An address by which clients reach it; may be repeated [default for a controller: 127.0.0.1 and ::1].
    #[arg(long, value_name = "ADDR")]
    ip: Vec<IpAddr>,
    /// A further name, such as a SPIFFE id; may be repeated.
    #[arg(long, value_name = "URI")]
    uri: Vec<String>,
    /// How long it is valid, but no longer than its authority.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = days())]
    days: u32,
    /// Folder of the authority.
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
    /// Where to write the files [default: the folder of the authority].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
}

/// The certificates to be signed again.
#[derive(Debug, Args)]
pub(crate) struct RenewArgs {
    /// The certificates; the key of NAME.pem is NAME-key.pem beside it.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder of the authority.
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
    /// How long they are valid from now, but no longer than the authority [default: as long as before].
    #[arg(long, value_name = "DAYS", value_parser = days())]
    days: Option<u32>,
}

/// The certificates to be revoked.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The certificates.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder of the authority.
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
    /// The list [default: crl.pem in the folder of the authority].
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
}

/// Whose certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// A controller.
    Controller,
    /// A service or a SQL node.
    Node,
    /// A SQL gateway.
    Gateway,
    /// A person or a program that may do everything.
    Admin,
    /// A person or a program that defines groups, bindings, prices and watches.
    Operator,
    /// A person or a program that reads.
    Viewer,
    /// A person or a program that reads what concerns the tenant called NAME.
    Tenant,
    /// A program that reads the page of metrics.
    Metrics,
}

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=MOST_DAYS)
}

/// Runs the command.
pub(crate) fn run(command: CertCommand, global: &Global) -> Result<(), CliError> {
    match command {
        CertCommand::Init(args) => init(&args),
        CertCommand::Issue(args) => issue(&args),
        CertCommand::Show { files } => show(&files, global),
        CertCommand::Renew(args) => renew(&args),
        CertCommand::Revoke(args) => revoke(&args),
    }
}

fn init(args: &InitArgs) -> Result<(), CliError> {
    own_folder(&args.dir).map_err(CliError::file("make the folder", &args.dir))?;
    let made = Authority::create(args.name.as_deref(), args.days).map_err(|error| failed(&error))?;
    written((args.dir.join(CA), args.dir.join(CA_KEY)), &made, args.force)
}

fn issue(args: &IssueArgs) -> Result<(), CliError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !args.name.chars().all(is_plain) || args.name.starts_with('.') || args.name == "ca" {
        let message =
            format!("{:?} cannot name files: write letters, digits, '.', '_' and '-'; not ca", args.name);
        return Err(CliError::Usage(message));
    }
    if matches!(args.role, Role::Node | Role::Gateway) && args.name.contains('.') {
        let message = format!(
            "{:?} cannot be a node's name: a full stop ends it in a client id (NAME.anything is NAME's own)",
            args.name
        );
        return Err(CliError::Usage(message));
    }
    let is_server = args.role == Role::Controller
        || args.role == Role::Gateway && !(args.dns.is_empty() && args.ip.is_empty());
    let role = args.role.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut names: Vec<Name> = args.dns.iter().cloned().map(Name::Dns).collect();
    names.extend(args.ip.iter().copied().map(Name::Ip));
    if names.is_empty() && args.role == Role::Controller {
        names.push(Name::Dns("localhost".to_owned()));
        names.extend([[127, 0, 0, 1].into(), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16])].map(Name::Ip));
    }
    names.push(Name::Uri(format!("spiffe://tidegate/{role}/{}", args.name)));
    names.extend(args.uri.iter().cloned().map(Name::Uri));
    let purpose = Purpose { server: is_server, client: args.role != Role::Controller };
    let request = Request { subject: args.name.clone(), names, purpose, days: args.days };
    let made = authority(&args.dir)?.issue(&request).map_err(|error| failed(&error))?;
    let out = args.out.as_deref().unwrap_or(&args.dir);
    own_folder(out).map_err(CliError::file("make the folder", out))?;
    let certificate = out.join(format!("{}.pem", args.name));
    let key = key_of(&certificate);
    written((certificate, key), &made, args.force)
}

fn renew(args: &RenewArgs) -> Result<(), CliError> {
    let authority = authority(&args.dir)?;
    for path in &args.files {
        let old = read(path)?.into_iter().next();
        let old = old.ok_or_else(|| CliError::Refused(format!("{} holds no certificate", path.display())))?;
        let days = args.days.unwrap_or_else(|| lifetime(&old));
        let renewed = authority.renew(&old, &key_of(path), days).map_err(|error| failed(&error))?;
        tidegate_tls::write(path, &renewed, false, true)
            .map_err(|error| CliError::Refused(error.to_string()))?;
        let until = read(path)?.first().map(|new| date(new.not_after)).unwrap_or_default();
        unless_unread(print(&format!("{} is valid until {until}", path.display())))?;
    }
    Ok(())
}

/// Days from the begin of a certificate to its end, whatever is left of them.
fn lifetime(certificate: &Certificate) -> u32 {
    let days = certificate.not_after.saturating_sub(certificate.not_before) / DAY;
    u32::try_from(days).unwrap_or(DAYS).max(1)
}

fn revoke(args: &RevokeArgs) -> Result<(), CliError> {
    let authority = authority(&args.dir)?;
    let mut revoked = Vec::new();
    for path in &args.files {
        // Of a chain, the first is its holder's.
        revoked.extend(read(path)?.into_iter().next());
    }
    let list = args.list.clone().unwrap_or_else(|| args.dir.join(LIST));
    let (text, count) = authority.revoke(&list, &revoked).map_err(|error| failed(&error))?;
    tidegate_tls::write(&list, &text, false, true).map_err(|error| CliError::Refused(error.to_string()))?;
    print(&format!("{} has {count} certificates", list.display()))
}

fn authority(dir: &Path) -> Result<Authority, CliError> {
    Authority::read(&dir.join(CA), &dir.join(CA_KEY)).map_err(|error| match error {
        IssueError::Files(error) => CliError::Refused(format!(
            "no authority in {}: {error} (make one with `tidegate cert init`, or name its folder with --dir)",
            dir.display()
        )),
        other => failed(&other),
    })
}

/// Where the key of a certificate is.
fn key_of(certificate: &Path) -> PathBuf {
    let stem = certificate.file_stem().unwrap_or_default().to_string_lossy();
    certificate.with_file_name(format!("{stem}-key.pem"))
}

/// Writes a certificate and its key, both or none where one of them is there.
fn written((certificate, key): (PathBuf, PathBuf), made: &Issued, force: bool) -> Result<(), CliError> {
    if let Some(path) = [&certificate, &key].into_iter().find(|path| !force && path.exists()) {
        let message = format!("{} exists; choose another name, or replace it with --force", path.display());
        return Err(CliError::Refused(message));
    }
    let refused = |error: tidegate_tls::Unwritable| CliError::Refused(error.to_string());
    tidegate_tls::write(&key, &made.key, true, force).map_err(refused)?;
    tidegate_tls::write(&certificate, &made.certificate, false, force).map_err(refused)?;
    print(&format!("{}\n{}", certificate.display(), key.display()))
}

fn read(path: &Path) -> Result<Vec<Certificate>, CliError> {
    let read = Material::read(path).and_then(|file| file.certificates());
    read.map_err(|error| CliError::Refused(error.to_string()))
}

fn failed(error: &IssueError) -> CliError {
    CliError::Refused(error.to_string())
}

/// A certificate as it is printed.
#[derive(Serialize)]
struct CertView {
    file: String,
    subject: String,
    issuer: String,
    names: Vec<String>,
    usage: Vec<&'static str>,
    not_before: String,
    not_after: String,
    days_left: i64,
    sha256: String,
}

fn show(files: &[PathBuf], global: &Global) -> Result<(), CliError> {
    let mut views = Vec::new();
    for path in files {
        views.extend(read(path)?.into_iter().map(|certificate| CertView::of(path, certificate)));
    }
    global.output.show(&views, || views.iter().fold(Page::default(), |page, view| page.then(view.table())))
}

impl CertView {
    fn of(path: &Path, certificate: Certificate) -> Self {
        Self {
            file: path.display().to_string(),
            days_left: certificate.days_left(),
            not_before: date(certificate.not_before),
            not_after: date(certificate.not_after),
            subject: certificate.subject,
            issuer: certificate.issuer,
            names: certificate.names,
            usage: certificate.usages,
            sha256: certificate.fingerprint,
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new([Column::word("CERTIFICATE"), Column::prose(&self.file)]);
        let mut line = |what: &str, value: String| table.row([what.to_owned(), value]);
        line("subject", self.subject.clone());
        line("issuer", self.issuer.clone());
        line("names", if self.names.is_empty() { "none".to_owned() } else { self.names.join(", ") });
        line("usage", if self.usage.is_empty() { "any".to_owned() } else { self.usage.join(", ") });
        line("from", self.not_before.clone());
        line("until", self.not_after.clone());
        line(
            "days left",
            match self.days_left {
                ..0 => "expired: renew it".to_owned(),
                days @ 0..WARN_DAYS => format!("{days}: renew it"),
                days => days.to_string(),
            },
        );
        line("sha256", self.sha256.clone());
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that began so many days ago, and ends after so many more.
    fn certificate(ago: i64, more: i64) -> Certificate {
        let now = i64::try_from(crate::clock::unix_ms() / 1_000).unwrap();
        Certificate {
            subject: "CN=till".to_owned(),
            issuer: "CN=authority".to_owned(),
            serial: vec![1],
            names: vec!["DNS:a.example".to_owned(), "IP:10.0.0.7".to_owned()],
            usages: vec!["server", "client"],
            not_before: now - ago * DAY,
            not_after: now + more * DAY,
            fingerprint: "AB:CD".to_owned(),
        }
    }

    #[test]
    fn a_certificate_is_renewed_for_as_long_as_it_was_whatever_is_left_of_it() {
        for (ago, more, days) in
            [(80, 10, 90), (0, 90, 90), (90, 0, 90), (120, -30, 90), (1, 0, 1), (0, 0, 1)]
        {
            assert_eq!(lifetime(&certificate(ago, more)), days, "{ago} {more}");
        }
    }

    #[test]
    fn a_certificate_is_shown_with_all_that_it_says_and_when_it_is_to_be_renewed() {
        let certificate = Certificate { not_before: 0, not_after: DAY, ..certificate(0, 0) };
        let nameless = Certificate { names: Vec::new(), usages: Vec::new(), ..certificate.clone() };
        let lines = |view: &CertView| Page::from(view.table()).words();
        let mut view = CertView::of(Path::new("a.pem"), certificate);
        let expected = [
            "CERTIFICATE a.pem",
            "subject CN=till",
            "issuer CN=authority",
            "names DNS:a.example, IP:10.0.0.7",
            "usage server, client",
            "from 1970-01-01 00:00:00 UTC",
            "until 1970-01-02 00:00:00 UTC",
            "days left expired: renew it",
            "sha256 AB:CD",
        ];
        assert_eq!(lines(&view), expected);
        for (days, shown) in [
            (-1, "expired: renew it".to_owned()),
            (0, "0: renew it".to_owned()),
            (WARN_DAYS - 1, format!("{}: renew it", WARN_DAYS - 1)),
            (WARN_DAYS, WARN_DAYS.to_string()),
        ] {
            view.days_left = days;
            assert_eq!(lines(&view)[7], format!("days left {shown}"));
        }
        let lines = lines(&CertView::of(Path::new("a.pem"), nameless));
        assert_eq!(lines[3..5], ["names none", "usage any"]);
    }
}
