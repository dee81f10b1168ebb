//! Prints what pricing, fingerprinting and estimating cost on this machine.
//!
//! Run with `cargo run --release -p tidegate-cost-model --example timing`. Best of many rounds, single thread.

use std::hint::black_box;
use std::time::Instant;

use tidegate_core::units::Ru;
use tidegate_core::usage::Usage;
use tidegate_cost_model::{Aim, CostTable, Estimator, Fingerprinter, SqlDialect, Template};

/// Rounds of which the best counts.
const ROUNDS: u32 = 200;

#[expect(clippy::disallowed_methods, reason = "an example that measures real time; nothing decides by it")]
fn best_ns(mut run: impl FnMut(), runs: u32) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..runs {
            run();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(runs));
    }
    best
}

fn main() {
    let statements = [
        ("point", "SELECT abalance FROM pgbench_accounts WHERE aid = 4711"),
        (
            "update",
            "UPDATE stock SET s_quantity = 42, s_ytd = s_ytd + 7, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + 0 WHERE s_i_id = 1234 AND s_w_id = 5",
        ),
        (
            "join",
            "SELECT c.c_discount, c.c_last, c.c_credit, w.w_tax FROM customer AS c JOIN warehouse AS w ON w.w_id = c.c_w_id WHERE w.w_id = 12 AND c.c_d_id = 3 AND c.c_id = 2999 AND c.c_since > '2024-01-01'",
        ),
        (
            "insert",
            "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES (3001, 5, 1, 1, 76012, 1, 5, 327.55, 'abcdefghijklmnopqrstuvwx'), (3001, 5, 1, 2, 76013, 1, 5, 12.00, 'abcdefghijklmnopqrstuvwx')",
        ),
    ];
    for (name, sql) in statements {
        let fingerprinter = Fingerprinter::new(SqlDialect::PostgreSql);
        let hit = best_ns(|| drop(black_box(fingerprinter.fingerprint(black_box(sql)))), 1_000);
        let miss = best_ns(|| drop(black_box(Template::new(SqlDialect::PostgreSql, black_box(sql)))), 20);
        println!("{name:<7} {:>4} bytes: hit {hit:>6.0} ns, miss {miss:>7.0} ns", sql.len());
    }

    let table = CostTable::tidb_v1();
    let usage = Usage {
        cpu_ns: 123_457,
        read_requests: 1,
        read_batches: 1,
        read_bytes: 1_025,
        write_requests: 1,
        write_batches: 1,
        write_bytes: 511,
        net_in_bytes: 120,
        net_out_bytes: 1_100,
        cross_zone_bytes: 0,
    };
    println!(
        "price: {:.0} ns",
        best_ns(
            || {
                black_box(black_box(&table).price(black_box(&usage)));
            },
            1_000
        )
    );
    let estimator = Estimator::new(&table, Aim::P95);
    let template = Template::new(SqlDialect::PostgreSql, "SELECT 1");
    let (fingerprint, kind) = (template.fingerprint(), template.kind());
    let observe = best_ns(|| estimator.observe("shop", fingerprint, kind, black_box(Ru::whole(3))), 1_000);
    let estimate = best_ns(
        || {
            black_box(estimator.estimate("shop", black_box(fingerprint), kind));
        },
        1_000,
    );
    println!("observe: {observe:.0} ns, estimate: {estimate:.0} ns");
}
