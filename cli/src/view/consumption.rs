//! Cumulative consumption: RU by cause, operations, waiting, and the resources behind it.

use serde::Serialize;
use tidegate_controller::quantity::Count;
use tidegate_core::units::{Ru, RuTotal};
use tidegate_core::usage::Total;
use tidegate_proto::v1;

/// Consumption. The parts add up to `total_micro_ru`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ConsumptionView {
    pub(crate) total_micro_ru: Count,
    pub(crate) cpu_micro_ru: Count,
    pub(crate) read_micro_ru: Count,
    pub(crate) write_micro_ru: Count,
    pub(crate) network_micro_ru: Count,
    pub(crate) flat_micro_ru: Count,
    pub(crate) shadow_micro_ru: Count,
    pub(crate) operations: Count,
    pub(crate) throttled: Count,
    pub(crate) waited_us: Count,
    pub(crate) cpu_ns: Count,
    pub(crate) read_requests: Count,
    pub(crate) read_batches: Count,
    pub(crate) read_bytes: Count,
    pub(crate) write_requests: Count,
    pub(crate) write_batches: Count,
    pub(crate) write_bytes: Count,
    pub(crate) net_in_bytes: Count,
    pub(crate) net_out_bytes: Count,
    pub(crate) cross_zone_bytes: Count,
}

impl From<v1::Consumption> for ConsumptionView {
    fn from(total: v1::Consumption) -> Self {
        // A controller sends none that is out of range.
        let total = Total::from_words(total.to_words().unwrap_or_default());
        let Total { charged, shadow, operations, throttled, waited_us, usage } = total;
        Self {
            total_micro_ru: Count(total.ru().0),
            cpu_micro_ru: Count(charged.cpu.0),
            read_micro_ru: Count(charged.read.0),
            write_micro_ru: Count(charged.write.0),
            network_micro_ru: Count(charged.network.0),
            flat_micro_ru: Count(charged.flat.0),
            shadow_micro_ru: Count(shadow.0),
            operations: Count(operations),
            throttled: Count(throttled),
            waited_us: Count(waited_us),
            cpu_ns: Count(usage.cpu_ns),
            read_requests: Count(usage.read_requests),
            read_batches: Count(usage.read_batches),
            read_bytes: Count(usage.read_bytes),
            write_requests: Count(usage.write_requests),
            write_batches: Count(usage.write_batches),
            write_bytes: Count(usage.write_bytes),
            net_in_bytes: Count(usage.net_in_bytes),
            net_out_bytes: Count(usage.net_out_bytes),
            cross_zone_bytes: Count(usage.cross_zone_bytes),
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

/// A total of micro-RU as decimal RU without the unit.
pub(crate) fn total_text(micro_ru: Count) -> String {
    RuTotal(micro_ru.0).number().to_string()
}

/// Microseconds as milliseconds, to a tenth where that matters: a wait of half a millisecond is not 0.
pub(crate) fn millis(us: u128) -> String {
    if us >= 100_000 || us.is_multiple_of(1_000) {
        return (us / 1_000).to_string();
    }
    if us < 100 {
        return "<0.1".to_owned();
    }
    format!("{}.{}", us / 1_000, us % 1_000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_shown_under_its_name() {
        let usage = v1::Usage {
            cpu_ns: 10,
            read_requests: 11,
            read_batches: 12,
            read_bytes: 13,
            write_requests: 14,
            write_batches: 15,
            write_bytes: 16,
            net_in_bytes: 17,
            net_out_bytes: 18,
            cross_zone_bytes: 19,
        };
        let total = v1::Consumption {
            cpu_micro_ru: 1,
            read_micro_ru: 2,
            write_micro_ru: 3,
            network_micro_ru: 4,
            flat_micro_ru: 5,
            shadow_micro_ru: 6,
            operations: 7,
            throttled: 8,
            waited_us: 9,
            usage: Some(usage),
            exact: None,
        };
        let json = serde_json::to_value(ConsumptionView::from(total)).unwrap();
        let expected = serde_json::json!({
            "total_micro_ru": 15, "cpu_micro_ru": 1, "read_micro_ru": 2, "write_micro_ru": 3, "network_micro_ru": 4,
            "flat_micro_ru": 5, "shadow_micro_ru": 6, "operations": 7, "throttled": 8, "waited_us": 9, "cpu_ns": 10,
            "read_requests": 11, "read_batches": 12, "read_bytes": 13, "write_requests": 14, "write_batches": 15,
            "write_bytes": 16, "net_in_bytes": 17, "net_out_bytes": 18, "cross_zone_bytes": 19,
        });
        assert_eq!(json, expected);
        assert_eq!(ConsumptionView::from(None), ConsumptionView::default());
    }

    #[test]
    fn short_times_keep_a_tenth() {
        for (us, text) in [
            (0, "0"),
            (9, "<0.1"),
            (640, "0.6"),
            (7_123, "7.1"),
            (31_000, "31"),
            (99_999, "99.9"),
            (123_456, "123"),
        ] {
            assert_eq!(millis(us), text);
        }
    }
}
