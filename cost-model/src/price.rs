//! Pricing: a usage vector in, request units out, exactly.
//!
//! In: `Usage` (nanoseconds, counts, bytes). Out: `RuParts` in micro-RU. Each part is the exact sum of amount *
//! coefficient (writes also * replicas) over its fields, rounded up once to a micro-RU and capped at `Ru::MAX`;
//! a part that used nothing is zero. Integers only.
//!
//! Why `i128` holds: a product is at most 2^64 * 10^9 (numerator) * 10^3 (replicas) * 10^6 (micro) < 2^127, and a
//! part has at most three fields, whose denominators of at most 10^12 multiply to at most 10^36 < 2^127.

use tidegate_core::units::{MICRO, Ru};
use tidegate_core::usage::{Consumption, RuParts, Usage};

use crate::coefficient::Coefficient;
use crate::field::{Field, Part};
use crate::table::CostTable;

/// The charge for one field of a usage vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// The field.
    pub field: Field,
    /// How much was used, in the field's unit.
    pub amount: u64,
    /// RU per unit.
    pub coefficient: Coefficient,
    /// Replicas for a write, one for anything else. The exact cost is amount * coefficient * copies.
    pub copies: u32,
    /// By how much the field raised its part: within one micro-RU of the exact cost, and the components of a part
    /// add up to the part exactly.
    pub ru: Ru,
}

impl CostTable {
    /// What `usage` costs, by part.
    pub fn price(&self, usage: &Usage) -> RuParts {
        let write = [Field::WriteRequests, Field::WriteBatches, Field::WriteBytes];
        RuParts {
            cpu: self.part(usage, 1, [Field::CpuNs]),
            read: self.part(usage, 1, [Field::ReadRequests, Field::ReadBatches, Field::ReadBytes]),
            write: self.part(usage, self.replicas(), write),
            network: self.part(usage, 1, [Field::NetInBytes, Field::NetOutBytes, Field::CrossZoneBytes]),
            flat: Ru::ZERO,
        }
    }

    /// The cost of these fields together. The caller names them, so that the compiler sees which they are.
    #[inline]
    fn part<const N: usize>(&self, usage: &Usage, copies: u32, fields: [Field; N]) -> Ru {
        let mut sum = Sum::default();
        for field in fields {
            sum.add(field.of(usage), self.coefficient(field), copies);
        }
        sum.rounded_up()
    }

    /// What each field of `usage` costs, in the order of the usage vector. Fields not used are listed at zero.
    ///
    /// Rounding: a part is summed field by field without rounding, and a component is the growth of the rounded-up
    /// sum. So a component may be a micro-RU off its own exact cost, while their sum is the part.
    pub fn breakdown(&self, usage: &Usage) -> Vec<Component> {
        let mut components = Vec::with_capacity(Field::COUNT);
        let mut part = None;
        let mut sum = Sum::default();
        for (field, coefficient) in self.coefficients() {
            // The fields of a part are neighbours; a test holds `Field::ALL` to that.
            if part.replace(field.part()) != Some(field.part()) {
                sum = Sum::default();
            }
            let amount = field.of(usage);
            let copies = if field.part() == Part::Write { self.replicas() } else { 1 };
            let before = sum.rounded_up();
            sum.add(amount, coefficient, copies);
            components.push(Component { field, amount, coefficient, copies, ru: sum.rounded_up() - before });
        }
        components
    }
}

/// The charge of an operation, by the active and by the shadow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// The charge by the table in force.
    pub parts: RuParts,
    /// The sum of the parts.
    pub total: Ru,
    /// The charge by the shadow table; zero without one.
    pub shadow: Ru,
}

impl Charge {
    /// Prices one operation with the table in force and, for comparison only, with a second one.
    ///
    /// The shadow price is recorded and never charged, so that a new table can be judged on real traffic first.
    pub fn new(active: &CostTable, shadow: Option<&CostTable>, usage: &Usage) -> Self {
        let parts = active.price(usage);
        let shadow = shadow.map_or(Ru::ZERO, |table| table.price(usage).total());
        Self { parts, total: parts.total(), shadow }
    }

    /// The consumption of one operation with this usage.
    pub fn of_one_operation(&self, usage: &Usage) -> Consumption {
        Consumption { operations: 1, ..self.of_a_part(usage) }
    }

    /// The consumption of a part of an operation with this usage; the operation is counted at its end.
    pub fn of_a_part(&self, usage: &Usage) -> Consumption {
        let (charged, shadow, usage) = (self.parts, self.shadow, *usage);
        Consumption { charged, shadow, usage, ..Consumption::default() }
    }
}

/// A sum of micro-RU as a whole number and a fraction below one, both exact.
#[derive(Clone, Copy)]
struct Sum {
    whole: i128,
    numerator: i128,
    denominator: i128,
}

impl Default for Sum {
    fn default() -> Self {
        Self { whole: 0, numerator: 0, denominator: 1 }
    }
}

impl Sum {
    #[inline]
    fn add(&mut self, amount: u64, coefficient: Coefficient, copies: u32) {
        if amount == 0 || coefficient.is_zero() {
            return;
        }
        let product =
            i128::from(amount) * i128::from(coefficient.numerator()) * i128::from(copies) * i128::from(MICRO);
        let (whole, rest) = divide(product, coefficient.denominator());
        self.whole += whole;
        if rest == 0 {
            return;
        }
        let denominator = i128::from(coefficient.denominator());
        if denominator == self.denominator {
            self.numerator += rest;
        } else {
            self.numerator = self.numerator * denominator + rest * self.denominator;
            self.denominator *= denominator;
        }
        if self.numerator >= self.denominator {
            self.numerator -= self.denominator;
            self.whole += 1;
        }
    }

    fn rounded_up(&self) -> Ru {
        let micro = self.whole + i128::from(self.numerator > 0);
        Ru(i64::try_from(micro).unwrap_or(Ru::MAX.0)).min(Ru::MAX)
    }
}

/// Quotient and remainder. Everyday products fit `u64`, whose division is several times as fast.
fn divide(product: i128, by: u64) -> (i128, i128) {
    match u64::try_from(product) {
        Ok(small) => match (small.checked_div(by), small.checked_rem(by)) {
            (Some(whole), Some(rest)) => (i128::from(whole), i128::from(rest)),
            _ => (0, 0),
        },
        Err(_) => {
            let by = i128::from(by);
            (product.checked_div(by).unwrap_or_default(), product.checked_rem(by).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_part_are_neighbours() {
        let mut parts: Vec<_> = Field::ALL.map(Field::part).to_vec();
        parts.dedup();
        assert_eq!(parts, [Part::Cpu, Part::Read, Part::Write, Part::Network]);
    }

    #[test]
    fn a_part_is_rounded_up_once_and_nothing_used_is_nothing_charged() {
        let third = Coefficient::ratio(1, 3_000_000).unwrap();
        let table = CostTable::new("thirds", 1, 1)
            .unwrap()
            .with(Field::ReadRequests, third)
            .with(Field::ReadBatches, third)
            .with(Field::ReadBytes, third);
        let usage = |requests, batches, bytes| Usage {
            read_requests: requests,
            read_batches: batches,
            read_bytes: bytes,
            ..Usage::default()
        };
        for (used, micro) in
            [(usage(0, 0, 0), 0), (usage(1, 0, 0), 1), (usage(1, 1, 1), 1), (usage(1, 1, 2), 2)]
        {
            assert_eq!(table.price(&used).read, Ru(micro), "{used:?}");
        }
        let shown: Vec<_> = table.breakdown(&usage(1, 1, 2)).iter().map(|component| component.ru.0).collect();
        assert_eq!(shown, [0, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_largest_price_is_capped_without_overflow() {
        let mut table = CostTable::new("dear", 1, CostTable::MAX_REPLICAS).unwrap();
        let mut usage = Usage::default();
        for (field, less) in Field::ALL.into_iter().zip(0..) {
            let dear =
                Coefficient::ratio(Coefficient::MAX_NUMERATOR - 1 - less, Coefficient::MAX_DENOMINATOR - 1);
            table = table.with(field, dear.unwrap());
            *field.of_mut(&mut usage) = u64::MAX;
        }
        let parts = table.price(&usage);
        assert_eq!(parts.write, Ru::MAX);
        assert!(parts.total() <= Ru(i64::MAX));
    }

    #[test]
    fn the_shadow_table_is_priced_and_not_charged() {
        let active = CostTable::new("a", 1, 3).unwrap().with(Field::WriteRequests, Coefficient::ONE);
        let shadow = CostTable::new("a", 2, 1).unwrap().with(Field::WriteRequests, Coefficient::ONE);
        let usage = Usage { write_requests: 2, ..Usage::default() };
        let priced = Charge::new(&active, Some(&shadow), &usage).of_one_operation(&usage);
        assert_eq!((priced.ru(), priced.shadow), (Ru::whole(6), Ru::whole(2)));
        assert_eq!((priced.operations, priced.usage), (1, usage));
        assert_eq!(Charge::new(&active, None, &usage).shadow, Ru::ZERO);
    }
}
