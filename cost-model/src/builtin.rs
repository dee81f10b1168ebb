//! Tables that ship with tidegate.
//!
//! `tidb-v1` version 1 holds the prices that TiDB documents for its request unit: 8 read requests, 2 read batches,
//! 64 KiB read, 1 write request, 1 write batch, 1 KiB written or 3 ms of CPU are one RU, and writes count once per
//! replica (three). *Source*: the defaults of PD's `controller.request-unit`.
//!
//! How it differs. TiDB counts network bytes and does not charge them; here a byte sent to the caller and a byte
//! across zones cost what a byte read costs (1/65536 RU), and received bytes are free: they are charged as the
//! write they ask for. Set both to 0 to be as TiDB is. TiDB's client does not count batches but assumes 0.7 per
//! request; here batches are counted. TiDB bills the wall time of storage requests; here CPU time is billed.

use crate::coefficient::Coefficient;
use crate::field::Field;
use crate::table::CostTable;

/// Copies of each write in a TiDB cluster by default.
const TIDB_REPLICAS: u32 = 3;
/// Read requests that one RU buys.
const READ_REQUESTS: u32 = 8;
/// Read batches that one RU buys.
const READ_BATCHES: u32 = 2;
/// Bytes read, sent to the caller or carried across zones that one RU buys: 64 KiB.
const READ_BYTES: u32 = 65_536;
/// Bytes written that one RU buys: 1 KiB.
const WRITE_BYTES: u32 = 1_024;
/// Nanoseconds of CPU time that one RU buys: 3 ms.
const CPU_NS: u32 = 3_000_000;

impl CostTable {
    /// TiDB's documented prices, three replicas, and a price for egress and cross-zone bytes that TiDB lacks.
    pub fn tidb_v1() -> Self {
        Self::sound("tidb-v1".to_owned(), 1, TIDB_REPLICAS)
            .with(Field::CpuNs, Coefficient::one_per(CPU_NS))
            .with(Field::ReadRequests, Coefficient::one_per(READ_REQUESTS))
            .with(Field::ReadBatches, Coefficient::one_per(READ_BATCHES))
            .with(Field::ReadBytes, Coefficient::one_per(READ_BYTES))
            .with(Field::WriteRequests, Coefficient::ONE)
            .with(Field::WriteBatches, Coefficient::ONE)
            .with(Field::WriteBytes, Coefficient::one_per(WRITE_BYTES))
            .with(Field::NetInBytes, Coefficient::ZERO)
            .with(Field::NetOutBytes, Coefficient::one_per(READ_BYTES))
            .with(Field::CrossZoneBytes, Coefficient::one_per(READ_BYTES))
    }

    /// Every table that ships, newest version last.
    pub fn builtin() -> Vec<Self> {
        vec![Self::tidb_v1()]
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Ru;
    use tidegate_core::usage::{RuParts, Usage};

    use super::*;
    use crate::text::TableText;

    const KIB: u64 = 1_024;

    #[test]
    fn it_is_a_table_that_text_can_carry() {
        assert!(CostTable::builtin().contains(&CostTable::tidb_v1()));
        for table in CostTable::builtin() {
            assert_eq!(CostTable::try_from(TableText::from(table.clone())).unwrap(), table);
        }
        let text = TableText::from(CostTable::tidb_v1());
        assert_eq!(text.coefficients["cpu_ns"], "1/3000000");
        assert_eq!(text.coefficients["read_requests"], "0.125");
        assert_eq!(text.coefficients["write_bytes"], "1/1024");
    }

    /// Ten of each operation, since TiDB's 0.7 batches per request are seven batches in ten requests.
    #[test]
    fn worked_examples_of_tidb() {
        let none = Usage::default();
        let reads = |read_requests, read_batches, read_bytes| Usage {
            read_requests,
            read_batches,
            read_bytes,
            ..none
        };
        let writes = |write_requests, write_batches, write_bytes| Usage {
            write_requests,
            write_batches,
            write_bytes,
            ..none
        };
        for (what, usage, read, write) in [
            ("ten point gets of 1 KiB, 0.490625 RU each", reads(10, 7, 10 * KIB), 4_906_250, 0),
            ("ten prewrites of 1 KiB on 3 replicas, 8.1 RU each", writes(10, 7, 10 * KIB), 0, 81_000_000),
            ("ten commits of 34 bytes, 5.2 RU each", writes(10, 7, 340), 0, 51_996_094),
            ("ten rows inserted by TiDB, 10.6 RU each", writes(20, 14, 1_300), 0, 105_808_594),
            ("a row alone with PostgreSQL", writes(1, 1, 8 * KIB), 0, 30_000_000),
            ("a row alone with MariaDB", writes(1, 1, 4 * KIB), 0, 18_000_000),
            ("a row alone with MySQL", writes(1, 1, KIB / 2), 0, 7_500_000),
            ("a scan that answers 4 MiB, without its request", reads(0, 0, 4 * KIB * KIB), 64_000_000, 0),
        ] {
            let parts = CostTable::tidb_v1().price(&usage);
            assert_eq!(parts, RuParts { read: Ru(read), write: Ru(write), ..RuParts::default() }, "{what}");
        }
    }

    #[test]
    fn cpu_and_network() {
        let usage = Usage {
            cpu_ns: 3_000_000,
            net_in_bytes: u64::MAX,
            net_out_bytes: 65_536,
            cross_zone_bytes: 131_072,
            ..Usage::default()
        };
        let parts = CostTable::tidb_v1().price(&usage);
        assert_eq!((parts.cpu, parts.network), (Ru::whole(1), Ru::whole(3)));
    }
}
