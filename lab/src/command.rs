//! The command `tidegate lab`: what it can be asked, and what it answers. How it is printed is the program's.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tidegate_core::units::Span;

use crate::arrangements;
use crate::policies::traffic::Traffic;
use crate::policies::{LabError, Section, accuracy, facts, report, warm_up};
use crate::what_if::{self, Question};

/// A question to the lab.
#[derive(Debug, Subcommand)]
pub enum Part {
    /// What windows, logs and buckets admit around boundaries, at random, of a queue, and after a stall.
    Policies(Form),
    /// How often the two-window counter decides otherwise than an exact count would, over very many keys.
    ///
    /// 400 million requests take some minutes; --requests makes fewer. Fewer requests of as many keys are lighter keys,
    /// of which fewer come near a limit.
    Accuracy {
        /// About how many requests.
        #[arg(long, default_value_t = 400_000_000)]
        requests: u64,
        /// From how many keys.
        #[arg(long, default_value_t = 270_000)]
        keys: u64,
        /// In how many hours of virtual time.
        #[arg(long, default_value_t = 6)]
        hours: u32,
        /// Requests a minute that a key may have; 100, 1000, 10000 and 100000 are judged, too.
        #[arg(long, default_value_t = 1_000)]
        limit: u32,
        /// The report and the seed.
        #[command(flatten)]
        form: Form,
    },
    /// One limit that many nodes share, in ten arrangements under one workload: what each admits too much, leaves unused,
    /// costs in time and messages, and does while its centre is away.
    ///
    /// An even split, sticky nodes, counters that nodes broadcast, stream or synchronise, counters in a shared store, a
    /// call for each operation, PD's slots, and tidegate's leases, which are the code that ships. All see the same
    /// operations with the same delays in a simulated world; no server is needed. Takes some seconds.
    Arrangements {
        /// How many nodes share the limit.
        #[arg(long, default_value_t = 8)]
        nodes: usize,
        /// The limit, in RU/s; the burst is one second of it.
        #[arg(long, default_value_t = 10_000)]
        rate: u32,
        /// Seconds for which the centre is away.
        #[arg(long, value_name = "SECONDS", default_value_t = 15)]
        away: u32,
        /// Milliseconds of a round trip to the centre.
        #[arg(long, value_name = "MS", default_value_t = 2)]
        round_trip: u32,
        /// Milliseconds between two messages of a node about its counter.
        #[arg(long, value_name = "MS", default_value_t = 200)]
        period: u32,
        /// Milliseconds by which sums read from the log are old.
        #[arg(long, value_name = "MS", default_value_t = 500)]
        stale: u32,
        /// The report and the seed.
        #[command(flatten)]
        form: Form,
    },
    /// The curve by which a cold key reaches its rate, beside the formula.
    Warmup {
        /// Operations per second, once warm.
        #[arg(long, default_value_t = 200)]
        rate: u32,
        /// Seconds of full use until then.
        #[arg(long, default_value_t = 10)]
        seconds: u32,
        /// How many times slower it begins.
        #[arg(long, default_value_t = 3)]
        factor: u32,
        /// The report and the seed.
        #[command(flatten)]
        form: Form,
    },
}

/// What every question has: a report, and a seed.
#[derive(Args, Debug)]
pub struct Form {
    /// Writes a report into this directory, too: one HTML page with its pictures, which opens without a network.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Answer {
    sections: Vec<Section>,
    /// `None`: nothing is random.
    seed: Option<u64>,
}

impl Answer {
    /// The answer about a record, whose report is written into a directory if one is named.
    ///
    /// # Errors
    /// A record or settings that make no replay, or a report that cannot be written.
    pub fn what_if(
        question: &Question,
        out: Option<&Path>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, LabError> {
        let sections = vec![what_if::section(question)?];
        if let Some(directory) = out {
            let path = report::write(directory, "what-if", "What if", &sections)?;
            progress(&format!("wrote {}", path.display()));
        }
        Ok(Self { sections, seed: None })
    }

    /// What a person reads on a terminal.
    pub fn text(&self) -> String {
        report::text(&self.sections)
    }

    /// What a program reads.
    pub fn json(&self) -> serde_json::Value {
        report::json(&self.sections, self.seed)
    }
}

/// Answers, and writes the report where one is wanted; `progress` hears what goes on meanwhile.
///
/// # Errors
/// Settings that make no run, or a report that cannot be written.
pub fn run(part: Part, progress: &mut dyn FnMut(&str)) -> Result<Answer, LabError> {
    let (name, title, sections, form) = match part {
        Part::Policies(form) => ("policies", "Limiter policies", facts(form.seed)?, form),
        Part::Accuracy { requests, keys, hours, limit, form } => {
            let length = u64::from(hours) * 3_600_000_000;
            let traffic = Traffic { requests, keys, length, seed: form.seed };
            let settings = accuracy::Settings { traffic, limit };
            let section = accuracy::run(&settings, &mut |done| {
                progress(&format!("{} of about {} million requests", done / 1_000_000, requests / 1_000_000));
            })?;
            ("accuracy", "Accuracy of the two-window counter", vec![section], form)
        }
        Part::Arrangements { nodes, rate, away, round_trip, period, stale, form } => {
            let ms = |number: u32| Span::millis(number.into());
            let settings = arrangements::Settings {
                nodes,
                rate,
                away: Span::secs(away.into()),
                round_trip: ms(round_trip),
                period: ms(period),
                stale: ms(stale),
                seed: form.seed,
            };
            let section = arrangements::run(&settings, progress)?;
            ("arrangements", "Arrangements of one limit", vec![section], form)
        }
        Part::Warmup { rate, seconds, factor, form } => {
            let section = warm_up::curve(&warm_up::Settings { rate, warm_up: seconds, factor })?;
            ("warmup", "Warm-up", vec![section], form)
        }
    };
    if let Some(directory) = &form.out {
        let path = report::write(directory, name, title, &sections)?;
        progress(&format!("wrote {}", path.display()));
    }
    Ok(Answer { sections, seed: Some(form.seed) })
}
