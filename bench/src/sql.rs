//! SQL text to a template: the fingerprint of a statement seen before, and of one that is new, beside what sqlparser
//! takes to parse the same text.
//!
//! The statements are those of an order-entry and a reporting load, 60 to 330 bytes. For a miss every text is made a
//! new template by an identifier that was not there before; the cache is as large as it ships.

use std::hint::black_box;
use std::time::Duration;

use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use tidegate_cost_model::{Fingerprinter, SqlDialect};

use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, Row, US};
use super::setting::Setting;

/// What is run.
pub const STATEMENTS: [&str; 6] = [
    "SELECT c_balance, c_first, c_middle FROM customer WHERE c_id = 2041 AND c_d_id = 3 AND c_w_id = 17",
    "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_quantity, ol_amount, ol_dist_info) \
     VALUES (3001, 4, 17, 1, 56017, 5, 342.19, 'kXoPqRsTuVwXyZaBcDeFgHiJ')",
    "UPDATE stock SET s_quantity = 48, s_ytd = s_ytd + 5, s_order_cnt = s_order_cnt + 1 WHERE s_i_id = 56017 AND \
     s_w_id = 17",
    "SELECT i_id, i_price, i_name FROM item WHERE i_id IN (4, 18, 77, 1023, 99817, 31337)",
    "SELECT o.o_carrier_id, count(*) AS orders, sum(ol.ol_amount) AS amount FROM orders o JOIN order_line ol ON \
     ol.ol_o_id = o.o_id AND ol.ol_w_id = o.o_w_id WHERE o.o_entry_d BETWEEN '2024-01-01' AND '2024-03-31' AND \
     ol.ol_amount > 10.5 GROUP BY o.o_carrier_id HAVING count(*) > 100 ORDER BY amount DESC LIMIT 20",
    "DELETE FROM new_order WHERE no_o_id = 2101 AND no_d_id = 7 AND no_w_id = 17",
];

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let (hits, misses) = (Fingerprinter::new(SqlDialect::Generic), Fingerprinter::new(SqlDialect::Generic));
    STATEMENTS.iter().for_each(|statement| drop(hits.fingerprint(statement)));
    let mut fresh = Fresh::default();
    let mut parsed = Fresh::default();
    let mut contenders: [Work<'_>; 4] = [
        Box::new(|count| {
            timed(&mut STATEMENTS.iter().cycle(), count, |text| {
                black_box(hits.fingerprint(black_box(text)));
                Ok(())
            })
        }),
        Box::new(|count| timed(&mut STATEMENTS.iter().cycle(), count, parse)),
        Box::new(|count| {
            in_batches(&mut fresh, count, |text| {
                black_box(misses.fingerprint(black_box(text)));
                Ok(())
            })
        }),
        Box::new(|count| in_batches(&mut parsed, count, parse)),
    ];
    let samples = contest(setting, &mut contenders)?;
    let [hit, parse_known, miss, parse_new] = samples.as_slice() else { return Ok(Vec::new()) };
    let us = |ns: f64| ns / 1e3;
    let stats = misses.stats();
    Ok(vec![
        Row::new("sql/fingerprint, hit", US, hit.map(us)).mark(Mark::AtMost(0.6)).beside(
            Kind::Peer,
            "sqlparser parse",
            parse_known.map(us),
            None,
        ),
        Row::new("sql/fingerprint, miss", US, miss.map(us))
            .beside(Kind::Peer, "sqlparser parse", parse_new.map(us), Some(Mark::AtMost(1.0)))
            .note(format!("{} misses, {} hits while missing was measured", stats.misses, stats.hits)),
    ])
}

fn parse(text: &str) -> Result<(), BenchError> {
    let parsed = Parser::parse_sql(&GenericDialect {}, black_box(text));
    black_box(parsed.map_err(failed("parse"))?);
    Ok(())
}

fn timed<'a>(
    texts: &mut dyn Iterator<Item = &'a &'a str>,
    count: u64,
    mut operation: impl FnMut(&str) -> Result<(), BenchError>,
) -> Result<Duration, BenchError> {
    let watch = Stopwatch::start();
    for _ in 0..count {
        operation(texts.next().copied().unwrap_or_default())?;
    }
    Ok(watch.elapsed())
}

/// Texts that were never there before.
#[derive(Default)]
struct Fresh {
    made: u64,
    batch: Vec<String>,
}

impl Fresh {
    fn refill(&mut self, count: usize) {
        self.batch.clear();
        for (number, statement) in (self.made..).zip(STATEMENTS.iter().cycle()).take(count) {
            let mut text = (*statement).to_owned();
            // A comment would be dropped, and a literal stands for any other; a name is part of the template.
            text = text.replacen(" WHERE ", &format!(" WHERE n{number} = 1 AND "), 1);
            if text.len() == statement.len() {
                text = text.replacen("INTO order_line", &format!("INTO order_line_{number}"), 1);
            }
            self.batch.push(text);
        }
        self.made += u64::try_from(count).unwrap_or(0);
    }
}

/// Texts are made a thousand at a time, outside of what is timed.
fn in_batches(
    fresh: &mut Fresh,
    count: u64,
    mut operation: impl FnMut(&str) -> Result<(), BenchError>,
) -> Result<Duration, BenchError> {
    let (mut left, mut total) = (usize::try_from(count).unwrap_or(usize::MAX), Duration::ZERO);
    while left > 0 {
        let batch = left.min(1_000);
        fresh.refill(batch);
        let watch = Stopwatch::start();
        for text in &fresh.batch {
            operation(text)?;
        }
        total += watch.elapsed();
        left -= batch;
    }
    Ok(total)
}
