//! What the demo's users do: order entry (small indexed reads and writes), reports (scans, joins, aggregates),
//! dashboards, a mail campaign, and a nightly price change.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rusqlite::types::Value;
use serde::{Deserialize, Serialize};

use super::database::{LINES_PER_ORDER, ORDERS_PER_DAY, Scale};
use crate::node::Operation;
use crate::sql::Statement;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Job {
    /// Orders and looks at orders.
    OrderEntry,
    /// Aggregates over a month.
    Report,
    /// Small aggregates over a day.
    Dashboard,
    /// Picks customers and writes them messages.
    Campaign,
    /// Changes many prices at once.
    Reprice,
}

/// Days that a report covers.
const REPORT_DAYS: u32 = 20;
/// Customers of one round of the campaign.
const CAMPAIGN_SIZE: u32 = 20;
/// Orders whose lines one operation prices again.
const REPRICED_ORDERS: u32 = 60;

impl Job {
    /// All jobs.
    pub(crate) const ALL: [Self; 5] =
        [Self::OrderEntry, Self::Report, Self::Dashboard, Self::Campaign, Self::Reprice];

    /// One operation: a statement or a transaction.
    pub(crate) fn operation(self, scale: Scale, random: &mut StdRng) -> Operation {
        match self {
            Self::OrderEntry if random.random_ratio(1, 3) => order_status(scale, random),
            Self::OrderEntry => order(scale, random),
            Self::Report => report(scale, random),
            Self::Dashboard => dashboard(scale, random),
            Self::Campaign => campaign(scale, random),
            Self::Reprice => reprice(scale, random),
        }
    }
}

fn one_of(random: &mut StdRng, count: u32) -> u32 {
    random.random_range(1..=count.max(1))
}

fn number(value: u32) -> Value {
    Value::Integer(value.into())
}

/// `statements` as one transaction. It takes the write lock at once, so that it cannot fail half way for want of it.
fn transaction(statements: Vec<Statement>) -> Operation {
    let begin = Statement::new("BEGIN IMMEDIATE", []);
    let commit = Statement::new("COMMIT", []);
    std::iter::once(begin).chain(statements).chain(std::iter::once(commit)).collect()
}

fn order(scale: Scale, random: &mut StdRng) -> Operation {
    let customer = one_of(random, scale.customers);
    let day = scale.days();
    let mut statements = vec![
        Statement::new("SELECT name, region, balance FROM customer WHERE id = ?1", [number(customer)]),
        Statement::new(
            "INSERT INTO orders (customer_id, day, status, note) VALUES (?1, ?2, 'open', ?3)",
            [number(customer), number(day), Value::Text("as agreed, to the front door".into())],
        ),
    ];
    for line in 1..=LINES_PER_ORDER {
        let item = one_of(random, scale.items);
        statements.push(Statement::new(
            "INSERT INTO order_line SELECT (SELECT max(id) FROM orders), ?1, id, 1, price FROM item WHERE id = ?2",
            [number(line), number(item)],
        ));
        statements.push(Statement::new("UPDATE item SET stock = stock - 1 WHERE id = ?1", [number(item)]));
    }
    transaction(statements)
}

fn order_status(scale: Scale, random: &mut StdRng) -> Operation {
    vec![Statement::new(
        "SELECT o.id, o.status, l.line, i.name, l.quantity, l.price FROM orders o \
         JOIN order_line l ON l.order_id = o.id JOIN item i ON i.id = l.item_id WHERE o.customer_id = ?1",
        [number(one_of(random, scale.customers))],
    )]
}

fn report(scale: Scale, random: &mut StdRng) -> Operation {
    let first = one_of(random, scale.days().saturating_sub(REPORT_DAYS));
    let range = [number(first), number(first.saturating_add(REPORT_DAYS))];
    if random.random_ratio(1, 2) {
        vec![Statement::new(
            "SELECT c.region, count(*), sum(l.quantity * l.price) FROM orders o \
             JOIN customer c ON c.id = o.customer_id JOIN order_line l ON l.order_id = o.id \
             WHERE o.day BETWEEN ?1 AND ?2 GROUP BY c.region ORDER BY 3 DESC",
            range,
        )]
    } else {
        vec![Statement::new(
            "SELECT l.item_id, sum(l.quantity) FROM orders o JOIN order_line l ON l.order_id = o.id \
             WHERE o.day BETWEEN ?1 AND ?2 GROUP BY l.item_id ORDER BY 2 DESC LIMIT 100",
            range,
        )]
    }
}

fn dashboard(scale: Scale, random: &mut StdRng) -> Operation {
    let day = one_of(random, scale.days());
    vec![Statement::new(
        "SELECT status, count(*), max(id) FROM orders WHERE day = ?1 GROUP BY status",
        [number(day)],
    )]
}

fn campaign(scale: Scale, random: &mut StdRng) -> Operation {
    let first = one_of(random, scale.customers.saturating_sub(CAMPAIGN_SIZE));
    let range = [number(first), number(first.saturating_add(CAMPAIGN_SIZE - 1))];
    transaction(vec![
        Statement::new("SELECT id, name, balance FROM customer WHERE id BETWEEN ?1 AND ?2", range.clone()),
        Statement::new(
            "INSERT INTO campaign_hit (customer_id, message) \
             SELECT id, 'dear ' || name || ', we have news' FROM customer WHERE id BETWEEN ?1 AND ?2",
            range,
        ),
    ])
}

fn reprice(scale: Scale, random: &mut StdRng) -> Operation {
    let old = scale.orders.saturating_sub(ORDERS_PER_DAY);
    let first = one_of(random, old.saturating_sub(REPRICED_ORDERS));
    vec![Statement::new(
        "UPDATE order_line SET price = price + 1 - 2 * (price % 2) WHERE order_id BETWEEN ?1 AND ?2",
        [number(first), number(first.saturating_add(REPRICED_ORDERS - 1))],
    )]
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::super::database::{build, open};
    use super::*;
    use crate::sql::run;

    #[test]
    fn every_operation_runs_and_does_something() {
        let dir = tempfile::tempdir().unwrap();
        let (path, scale) = (dir.path().join("shop.db"), Scale::of(2_000));
        build(&path, scale, |_| {}).unwrap();
        let connection = open(&path).unwrap();
        let mut random = StdRng::seed_from_u64(1);
        for job in Job::ALL {
            for _ in 0..20 {
                let mut touched = 0;
                for statement in job.operation(scale, &mut random) {
                    let (done, measured) = run(&connection, &statement);
                    done.unwrap_or_else(|error| panic!("{job:?}: {statement:?}: {error}"));
                    touched += measured.rows + measured.changed;
                }
                assert!(touched > 0 && connection.is_autocommit(), "{job:?}");
            }
        }
    }
}
