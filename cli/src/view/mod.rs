//! What commands show: messages of the API as they are, and types for what is shown in another way.
//!
//! `*_micro_ru` is millionths of a request unit, exact; rates and amounts in text are decimal RU/s and RU.

mod answer;
mod audit;
mod consumption;
mod cost_table;
mod group;
mod restored;
mod runaway;
mod statement;
mod store;
mod watch;

pub(crate) use answer::AnswerView;
pub(crate) use audit::AuditView;
pub(crate) use consumption::{ConsumptionView, millis, ru_text, total_text};
pub(crate) use cost_table::CostTableView;
pub(crate) use group::{group, groups};
pub(crate) use restored::RestoredView;
pub(crate) use runaway::RunawayView;
pub(crate) use statement::StatementView;
pub(crate) use store::StoreView;
pub(crate) use watch::{until, watches};
