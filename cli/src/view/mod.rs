//! What commands show: one serialisable type per thing, with the field names that programs rely on.
//!
//! `*_micro_ru` is millionths of a request unit, exact; rates and amounts in text are decimal RU/s and RU.

mod answer;
mod audit;
mod consumption;
mod cost_table;
mod group;
mod lease;
mod node;
mod runaway;
mod statement;
mod store;
mod watch;

pub(crate) use answer::AnswerView;
pub(crate) use audit::AuditView;
pub(crate) use consumption::{ConsumptionView, millis, ru_text, total_text};
pub(crate) use cost_table::CostTableView;
pub(crate) use group::GroupView;
pub(crate) use lease::{GroupStateView, LeaseView};
pub(crate) use node::{ForgottenView, NodeView};
pub(crate) use runaway::RunawayView;
pub(crate) use statement::StatementView;
pub(crate) use store::StoreView;
pub(crate) use watch::WatchView;
