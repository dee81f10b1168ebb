//! Cumulative consumption: RU by cause, operations, waiting, and the resources behind it.

use serde::Serialize;
use tidegate_core::units::Ru;
use tidegate_proto::v1;

/// Consumption. The parts add up to `total_micro_ru`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ConsumptionView {
    pub(crate) total_micro_ru: i64,
    pub(crate) cpu_micro_ru: i64,
    pub(crate) read_micro_ru: i64,
    pub(crate) write_micro_ru: i64,
    pub(crate) network_micro_ru: i64,
    pub(crate) flat_micro_ru: i64,
    pub(crate) shadow_micro_ru: i64,
    pub(crate) operations: u64,
    pub(crate) throttled: u64,
    pub(crate) waited_us: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) read_requests: u64,
    pub(crate) read_batches: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_requests: u64,
    pub(crate) write_batches: u64,
    pub(crate) write_bytes: u64,
    pub(crate) net_in_bytes: u64,
    pub(crate) net_out_bytes: u64,
    pub(crate) cross_zone_bytes: u64,
}

impl From<v1::Consumption> for ConsumptionView {
    fn from(total: v1::Consumption) -> Self {
        let parts = [
            total.cpu_micro_ru,
            total.read_micro_ru,
            total.write_micro_ru,
            total.network_micro_ru,
            total.flat_micro_ru,
        ];
        let usage = total.usage.unwrap_or_default();
        Self {
            total_micro_ru: parts.into_iter().fold(0, i64::saturating_add),
            cpu_micro_ru: total.cpu_micro_ru,
            read_micro_ru: total.read_micro_ru,
            write_micro_ru: total.write_micro_ru,
            network_micro_ru: total.network_micro_ru,
            flat_micro_ru: total.flat_micro_ru,
            shadow_micro_ru: total.shadow_micro_ru,
            operations: total.operations,
            throttled: total.throttled,
            waited_us: total.waited_us,
            cpu_ns: usage.cpu_ns,
            read_requests: usage.read_requests,
            read_batches: usage.read_batches,
            read_bytes: usage.read_bytes,
            write_requests: usage.write_requests,
            write_batches: usage.write_batches,
            write_bytes: usage.write_bytes,
            net_in_bytes: usage.net_in_bytes,
            net_out_bytes: usage.net_out_bytes,
            cross_zone_bytes: usage.cross_zone_bytes,
        }
    }
}

impl From<Option<v1::Consumption>> for ConsumptionView {
    fn from(total: Option<v1::Consumption>) -> Self {
        total.unwrap_or_default().into()
    }
}

/// Micro-RU as decimal RU without the unit.
pub(crate) fn ru_text(micro_ru: i64) -> String {
    Ru(micro_ru).number().to_string()
}
