//! `tidegate lab what-if`: what recorded consumption would have met under other settings.

mod access_log;
mod csv;
mod date;
mod live;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tidegate_controller::accounts::what_if::Asked;
use tidegate_controller::error::AdminError;
use tidegate_controller::quantity::{parse_amount, parse_span};
use tidegate_core::replay::{Counted, Record};
use tidegate_core::units::{Ru, Span};
use tidegate_lab::command::Answer;
use tidegate_lab::what_if::Question;
use tidegate_proto::v1;

use crate::args::Global;
use crate::error::CliError;
use crate::output::{note, print};

/// Largest file: 200,000 samples of 300 bytes each. Half would refuse logs of a busy day; twice as much takes twice as
/// long to say that there are too many.
const LARGEST: u64 = 64 << 20;
/// Longest line: those of logs have long addresses. A file without lines must not fill the memory.
const LONGEST_LINE: u64 = 64 << 10;

/// What to replay, and under which settings.
#[derive(Debug, Args)]
#[command(
    after_help = "The history of a live controller has the RU charged and the operations refused, by the second \
    for ten minutes, by the minute and the hour for 90 days. A CSV file has a line of names first: time (seconds since \
    1970, or 2026-01-31T23:59:58Z) and ru, and, if they are known, operations, refused and length_s; other columns are \
    ignored. Each line of an access log in the combined or common format is an operation, refused if its status is 429 \
    or 503.\n\n\
    Examples:\n  \
    tidegate lab what-if --group shop --set rate=500 --last 24h\n  \
    tidegate lab what-if --group shop --set policy=paced --resolution second --out ./lab\n  \
    tidegate lab what-if --from usage.csv --set rate=500 --set burst=2000 --patience 250ms\n  \
    tidegate lab what-if --from access.log --set rate=20 --p99-wait 50ms -o json"
)]
pub(crate) struct WhatIfArgs {
    /// Where consumption was recorded: "controller", or a CSV file or an access log.
    #[arg(long, value_name = "SOURCE", default_value = "controller")]
    from: PathBuf,
    /// Whose consumption it is, together with that of groups below; a controller needs it.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// A proposed setting: rate=RU/s, burst=RU or burst=default, policy=token_bucket or policy=paced, quota="1000 per
    /// day" of RU or quota=none. What is not proposed stays.
    #[arg(long, value_name = "SETTING=VALUE", required = true)]
    set: Vec<String>,
    /// Of a file: a setting in force while it was recorded, which is replayed beside the proposed one.
    #[arg(long, value_name = "SETTING=VALUE")]
    recorded: Vec<String>,
    /// How long operations wait before they are refused; the group's longest wait, or 1s, if left out.
    #[arg(long, value_name = "TIME")]
    patience: Option<String>,
    /// The wait that 99 of 100 parts of the RU may have under the cheapest rate.
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    p99_wait: String,
    /// Of a controller: how long the samples are; a minute if left out.
    #[arg(long, value_name = "STEP", value_enum)]
    resolution: Option<Resolution>,
    /// Of a controller: how far back to look, up to ten minutes by the second and 90 days else; if left out, ten minutes,
    /// a day or 90 days, by the resolution.
    #[arg(long, value_name = "TIME")]
    last: Option<String>,
    /// Of a CSV file: how long its samples are; the shortest distance of two lines if left out.
    #[arg(long, value_name = "TIME")]
    every: Option<String>,
    /// Of an access log: what an operation costs, in RU; 1 if left out.
    #[arg(long, value_name = "RU")]
    request_cost: Option<String>,
    /// Writes a report into this directory, too: one HTML page with its picture, which opens without a network.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Where consumption was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Controller,
    Csv,
    AccessLog,
}

impl Source {
    const fn word(self) -> &'static str {
        match self {
            Self::Controller => "a controller",
            Self::Csv => "a CSV file",
            Self::AccessLog => "an access log",
        }
    }
}

impl WhatIfArgs {
    /// Refuses options that mean nothing for the source: left unread, they would seem to be heeded.
    fn check(&self, source: Source) -> Result<(), CliError> {
        use Source::{AccessLog, Controller, Csv};
        let options: [(_, bool, &[Source]); 5] = [
            ("--last", self.last.is_some(), &[Controller]),
            ("--resolution", self.resolution.is_some(), &[Controller]),
            ("--recorded", !self.recorded.is_empty(), &[Csv, AccessLog]),
            ("--every", self.every.is_some(), &[Csv]),
            ("--request-cost", self.request_cost.is_some(), &[AccessLog]),
        ];
        match options.into_iter().find(|(_, is_given, of)| *is_given && !of.contains(&source)) {
            None => Ok(()),
            Some((option, _, of)) => {
                let of: Vec<_> = of.iter().map(|source| source.word()).collect();
                Err(CliError::Usage(format!(
                    "{option} is of {}, and {:?} is {}; leave it out, or give another --from",
                    of.join(" or "),
                    self.from.display().to_string(),
                    source.word()
                )))
            }
        }
    }
}

/// Length of the samples of a controller.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Resolution {
    /// About a second, of the last ten minutes.
    Second,
    /// 60 seconds.
    #[default]
    Minute,
    /// 3600 seconds.
    Hour,
}

impl Resolution {
    const fn word(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }
}

/// What was recorded.
struct Recorded {
    source: String,
    counted: Vec<Counted>,
    waited_us: Option<u128>,
    /// The group as it is, or what is known of it.
    group: v1::Group,
}

/// Runs the command.
pub(crate) async fn run(args: WhatIfArgs, global: &Global) -> Result<(), CliError> {
    let mut wish = v1::WhatIfRequest {
        patience_us: args.patience.as_deref().map_or(Ok(0), |text| time("patience", text))?,
        p99_wait_us: time("p99-wait", &args.p99_wait)?,
        ..v1::WhatIfRequest::default()
    };
    for setting in &args.set {
        set("set", setting, &mut wish)?;
    }
    let recorded = if args.from.as_os_str() == "controller" {
        live::read(&args, global).await?
    } else {
        from_file(&args)?
    };
    let wrong = |error: AdminError| CliError::Usage(error.to_string());
    let asked = Asked::of(&recorded.group, &wish).map_err(wrong)?;
    let counted = asked.wanted(recorded.counted);
    // Without a record the lab says what is wrong with it.
    let asked = match Record::of(&counted) {
        Ok(record) => asked.over(&record).map_err(wrong)?,
        Err(_) => asked,
    };
    let question = Question {
        group: recorded.group.name,
        source: recorded.source,
        counted,
        waited_us: recorded.waited_us,
        current: asked.current,
        proposed: asked.proposed,
        bearable: asked.bearable,
    };
    let answer = Answer::what_if(&question, args.out.as_deref(), &mut |said| note(&format!("lab: {said}")))?;
    if global.output.is_for_people() {
        return print(&answer.text());
    }
    global.output.show(&answer.json(), || answer.text())
}

/// A time of more than nothing, in microseconds.
fn time(option: &str, text: &str) -> Result<u64, CliError> {
    let wrong = |reason: String| CliError::Usage(format!("--{option}: {reason}"));
    match parse_span(text).map_err(|error| wrong(error.to_string()))? {
        Span(0) => Err(wrong(format!("{text:?} is no time; give 1us or more"))),
        span => Ok(span.0),
    }
}

/// A setting and its value.
fn set(option: &str, text: &str, wish: &mut v1::WhatIfRequest) -> Result<(), CliError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let field = match name {
        "rate" => &mut wish.ru_per_sec,
        "burst" => &mut wish.burst,
        "policy" => &mut wish.policy,
        "quota" => &mut wish.quota,
        _ => {
            let remedy = "write rate=RU/s, burst=RU, policy=token_bucket, paced or 'warm_up(10s, 3)', or quota='RU per day'";
            return Err(CliError::Usage(format!("--{option} {text:?}: {name:?} is no setting; {remedy}")));
        }
    };
    if value.is_empty() {
        return Err(CliError::Usage(format!("--{option} {text:?}: {name} has no value; write {name}=VALUE")));
    }
    if !field.is_empty() {
        return Err(CliError::Usage(format!("--{option} {text:?}: {name} is given twice; give it once")));
    }
    value.clone_into(field);
    Ok(())
}

fn from_file(args: &WhatIfArgs) -> Result<Recorded, CliError> {
    let path = args.from.as_path();
    let lines = lines(path)?;
    let is_log = lines.first().is_some_and(|first| access_log::is_one(first));
    args.check(if is_log { Source::AccessLog } else { Source::Csv })?;
    let mut was = v1::WhatIfRequest::default();
    for setting in &args.recorded {
        set("recorded", setting, &mut was)?;
    }
    let group = v1::Group {
        name: args.group.clone().unwrap_or_else(|| "file".to_owned()),
        ru_per_sec: if was.ru_per_sec.is_empty() { "unlimited".to_owned() } else { was.ru_per_sec },
        burst: was.burst,
        policy: was.policy,
        quota: was.quota,
        ..v1::Group::default()
    };
    let every = args.every.as_deref().map(|text| time("every", text)).transpose()?.map(Span);
    let wrong = |reason: String| CliError::Usage(format!("{}: {reason}", path.display()));
    let counted = if is_log {
        let text = args.request_cost.as_deref().unwrap_or("1");
        let cost = parse_amount(text).ok().filter(|cost: &Ru| cost.is_positive());
        let cost = cost
            .ok_or_else(|| CliError::Usage(format!("--request-cost {text:?}: give an amount such as 1")))?;
        access_log::read(&lines, cost).map_err(wrong)?
    } else {
        let (counted, ignored) = csv::read(&lines, every).map_err(wrong)?;
        if !ignored.is_empty() {
            note(&format!("lab: {} has columns that are ignored: {}", path.display(), ignored.join(", ")));
        }
        counted
    };
    Ok(Recorded { source: path.display().to_string(), counted, waited_us: None, group })
}

/// The lines of a file.
fn lines(path: &Path) -> Result<Vec<String>, CliError> {
    let file = File::open(path).map_err(CliError::file("read", path))?;
    let mut reader = BufReader::new(file.take(LARGEST + 1));
    let (mut lines, mut read) = (Vec::new(), 0);
    loop {
        let mut line = Vec::new();
        let length = reader
            .by_ref()
            .take(LONGEST_LINE + 1)
            .read_until(b'\n', &mut line)
            .map_err(CliError::file("read", path))? as u64;
        read += length;
        let number = lines.len() + 1;
        if length == 0 {
            return Ok(lines);
        }
        if length > LONGEST_LINE || read > LARGEST {
            return Err(CliError::Usage(format!(
                "{}: line {number} is longer than {LONGEST_LINE} bytes, or the file than {LARGEST}; is it a CSV file or \
                 an access log? give a part of it",
                path.display()
            )));
        }
        let line = String::from_utf8(line).map_err(|_| {
            CliError::Usage(format!("{}: line {number} is not UTF-8; convert the file", path.display()))
        })?;
        lines.push(line.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']).to_owned());
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: WhatIfArgs,
    }

    #[test]
    fn each_setting_goes_into_its_own_field() {
        let (mut wish, mut expected) = (v1::WhatIfRequest::default(), v1::WhatIfRequest::default());
        for text in ["rate=1", "burst=2", "policy=warm_up(3s, 4)", "quota=5 per day=6"] {
            set("set", text, &mut wish).unwrap();
        }
        expected.ru_per_sec = "1".to_owned();
        expected.burst = "2".to_owned();
        expected.policy = "warm_up(3s, 4)".to_owned();
        expected.quota = "5 per day=6".to_owned();
        assert_eq!(wish, expected);
    }

    #[test]
    fn what_was_in_force_while_a_file_was_recorded_is_the_group_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("usage.csv");
        std::fs::write(&file, "time,ru\n0,1\n60,2\n").unwrap();
        let of = |more: &[&str]| {
            let begin = ["what-if", "--set", "rate=9", "--from", file.to_str().unwrap()];
            from_file(&Line::try_parse_from(begin.iter().chain(more)).unwrap().args).unwrap()
        };
        let plain = of(&[]);
        let group = |name: &str, rate: &str| v1::Group {
            name: name.to_owned(),
            ru_per_sec: rate.to_owned(),
            ..v1::Group::default()
        };
        assert_eq!(plain.group, group("file", "unlimited"));
        assert_eq!((plain.source, plain.waited_us), (file.display().to_string(), None));
        assert_eq!(plain.counted.iter().map(|sample| sample.length).collect::<Vec<_>>(), [Span::secs(60); 2]);
        let settings = ["rate=1", "burst=2", "policy=paced", "quota=3 per day"];
        let recorded: Vec<&str> = settings.iter().flat_map(|setting| ["--recorded", setting]).collect();
        let known = of(&[&["--group", "shop", "--every", "30s"][..], &recorded].concat());
        let expected = v1::Group {
            burst: "2".to_owned(),
            policy: "paced".to_owned(),
            quota: "3 per day".to_owned(),
            ..group("shop", "1")
        };
        assert_eq!(known.group, expected);
        assert_eq!(known.counted[0].length, Span::secs(30));
    }

    #[test]
    fn a_file_is_read_by_its_lines_up_to_their_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines");
        let read = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            lines(&file).map_err(|error| error.to_string())
        };
        assert_eq!(read(b"").unwrap(), Vec::<String>::new());
        assert_eq!(read("\u{feff}a\r\n\r\nb \nc".as_bytes()).unwrap(), ["a", "", "b ", "c"]);
        let longest = usize::try_from(LONGEST_LINE).unwrap();
        let line = |length: usize| format!("a\n{}\nb\n", "x".repeat(length - 1));
        assert_eq!(read(line(longest).as_bytes()).unwrap().len(), 3);
        let said = read(line(longest + 1).as_bytes()).unwrap_err();
        assert!(said.contains("lines: line 2 is longer than 65536 bytes"), "{said}");
        let said = read(b"a\nb\xff\n").unwrap_err();
        assert!(said.contains("lines: line 2 is not UTF-8"), "{said}");
        let none = lines(&folder.path().join("none")).unwrap_err().to_string();
        assert!(none.contains("none"), "{none}");
    }
}
