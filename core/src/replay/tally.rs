//! What became of a record, counted.

use super::windows::yields;
use super::{Part, Record, Settings, Span};
use crate::units::MICRO;

/// Bits of a wait that are kept: one in 64, rounded up. A list of all waits would be as long as the record.
const BITS: u32 = 6;

/// What a record would have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In micro-RU: all that was wanted.
    pub offered: u128,
    /// What of it was refused.
    pub refused: u128,
    /// What of it started after a wait.
    pub delayed: u128,
    /// Length of the samples in which something was refused.
    pub refusing: Span,
    /// From the first sample to the end of the last.
    pub span: Span,
    /// Half of what started waited no longer.
    pub p50: Span,
    /// Of what started, 99 of 100 parts waited no longer.
    pub p99: Span,
    /// What the limit would have admitted in the time, in micro-RU.
    pub capacity: u128,
}

impl Outcome {
    /// What started, in micro-RU.
    pub fn admitted(&self) -> u128 {
        self.offered - self.refused
    }

    /// What was refused, in millionths of what was wanted.
    pub fn refused_ppm(&self) -> u64 {
        ppm(self.refused, self.offered)
    }

    /// What started after a wait, in millionths of what was wanted.
    pub fn delayed_ppm(&self) -> u64 {
        ppm(self.delayed, self.offered)
    }

    /// Time in which something was refused, in millionths of all.
    pub fn refusing_ppm(&self) -> u64 {
        ppm(self.refusing.0.into(), self.span.0.into())
    }

    /// What started, in millionths of what the limit would have admitted.
    pub fn use_ppm(&self) -> u64 {
        ppm(self.admitted(), self.capacity)
    }
}

/// A part in millionths of a whole, rounded to the nearest.
fn ppm(part: u128, whole: u128) -> u64 {
    if whole == 0 {
        return 0;
    }
    u64::try_from((part.saturating_mul(MICRO.unsigned_abs().into()) + whole / 2) / whole).unwrap_or(u64::MAX)
}

/// The count, while it goes on.
#[derive(Debug, Default)]
pub(super) struct Tally {
    outcome: Outcome,
    /// Micro-RU by the step of the wait.
    waits: Vec<u128>,
    /// Micro-RU that did not wait.
    prompt: u128,
}

impl Tally {
    pub(super) fn add(&mut self, part: Part) {
        match part {
            Part::Started(amount, Span(0)) => self.prompt += u128::from(amount.0.unsigned_abs()),
            Part::Started(amount, wait) => {
                let amount = u128::from(amount.0.unsigned_abs());
                self.outcome.delayed += amount;
                let step = step_of(wait.0);
                if step >= self.waits.len() {
                    self.waits.resize(step + 1, 0);
                }
                if let Some(waited) = self.waits.get_mut(step) {
                    *waited += amount;
                }
            }
            Part::Refused(amount) => self.outcome.refused += u128::from(amount.0.unsigned_abs()),
        }
    }

    /// The outcome, of what of each sample was refused.
    pub(super) fn outcome(self, record: &Record, settings: &Settings, refused: &[u64]) -> Outcome {
        let (span, rate) = (record.span(), settings.rate);
        let refusing = record.samples().iter().zip(refused).filter(|(_, refused)| **refused > 0);
        let refusing = refusing.map(|(sample, _)| sample.length.0).fold(0, u64::saturating_add);
        let capacity = match &settings.quota {
            None => yields(rate, span.0),
            Some(windows) => {
                let from = record.samples().first().map(|sample| sample.start).unwrap_or_default();
                windows.capacity(rate, from, from.after(span))
            }
        };
        let within = |percent: u128| {
            let wanted = ((self.prompt + self.outcome.delayed) * percent).div_ceil(100);
            let mut sum = self.prompt;
            let steps = self.waits.iter().enumerate().filter(|(_, amount)| **amount > 0);
            let wait = steps.take_while(|(_, amount)| {
                let reached = sum >= wanted;
                sum += **amount;
                !reached
            });
            Span(wait.last().map_or(0, |(step, _)| wait_of(step)))
        };
        Outcome {
            offered: record.amount(),
            refusing: Span(refusing),
            span,
            p50: within(50),
            p99: within(99),
            capacity,
            ..self.outcome
        }
    }
}

/// The step of a wait: its highest bits, rounded up, and how many there are below them.
fn step_of(wait: u64) -> usize {
    let dropped = (u64::BITS - wait.leading_zeros()).saturating_sub(BITS + 1);
    let kept = wait.div_ceil(1 << dropped) + (u64::from(dropped) << BITS);
    usize::try_from(kept).unwrap_or(usize::MAX)
}

/// The longest wait that is counted as a shorter one than this is.
pub(super) fn shorter(wait: u64) -> u64 {
    wait_of(step_of(wait).saturating_sub(1))
}

/// The longest wait of a step.
fn wait_of(step: usize) -> u64 {
    let dropped = (step >> BITS).saturating_sub(1);
    let kept = (step - (dropped << BITS)) as u64;
    u64::try_from(u128::from(kept) << dropped).unwrap_or(u64::MAX)
}
