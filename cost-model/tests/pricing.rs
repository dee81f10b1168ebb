//! Pricing against a slow oracle: long division on decimal digits of any length, written to be obvious.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may stop at what it did not expect"
)]

use proptest::prelude::*;
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts, Usage};
use tidegate_cost_model::{Charge, Coefficient, CostTable, Field, Part};

/// An unsigned number of any size, least significant digit first, base 2^32.
#[derive(Clone, PartialEq, Eq)]
struct Big(Vec<u32>);

impl Big {
    fn from(value: u128) -> Self {
        Self((0..4).map(|index| (value >> (32 * index)) as u32).collect())
    }

    fn digit(&self, index: usize) -> u64 {
        u64::from(self.0.get(index).copied().unwrap_or(0))
    }

    fn times(&self, other: &Self) -> Self {
        let mut digits = vec![0_u32; self.0.len() + other.0.len() + 1];
        for i in 0..self.0.len() {
            let mut carry = 0;
            for j in 0..=other.0.len() {
                let sum = u64::from(digits[i + j]) + self.digit(i) * other.digit(j) + carry;
                digits[i + j] = sum as u32;
                carry = sum >> 32;
            }
        }
        Self(digits)
    }

    fn plus(&self, other: &Self) -> Self {
        let mut carry = 0;
        let mut digits = Vec::new();
        for index in 0..=self.0.len().max(other.0.len()) {
            let sum = self.digit(index) + other.digit(index) + carry;
            digits.push(sum as u32);
            carry = sum >> 32;
        }
        Self(digits)
    }

    fn at_least(&self, other: &Self) -> bool {
        for index in (0..self.0.len().max(other.0.len())).rev() {
            if self.digit(index) != other.digit(index) {
                return self.digit(index) > other.digit(index);
            }
        }
        true
    }
}

/// How often a part is charged: once for each replica that is written.
fn copies(table: &CostTable, part: Part) -> u32 {
    if part == Part::Write { table.replicas() } else { 1 }
}

/// The least micro-RU that is not below the exact cost of `part`, found by bisection.
fn oracle(table: &CostTable, usage: &Usage, part: Part) -> Ru {
    let fields: Vec<_> = table.coefficients().filter(|(field, _)| field.part() == part).collect();
    let copies = copies(table, part);
    // Cost in micro-RU = upper / lower, over one common denominator.
    let mut lower = Big::from(1);
    for (_, price) in &fields {
        lower = lower.times(&Big::from(u128::from(price.denominator())));
    }
    let mut upper = Big::from(0);
    for (index, (field, price)) in fields.iter().enumerate() {
        let mut term = Big::from(u128::from(field.of(usage)) * u128::from(price.numerator()))
            .times(&Big::from(u128::from(copies) * 1_000_000));
        for (other, (_, price)) in fields.iter().enumerate() {
            if other != index {
                term = term.times(&Big::from(u128::from(price.denominator())));
            }
        }
        upper = upper.plus(&term);
    }
    let covers = |micro: i64| Big::from(u128::try_from(micro).unwrap()).times(&lower).at_least(&upper);
    let (mut low, mut high) = (0, Ru::MAX.0);
    while low < high {
        let middle = low + (high - low) / 2;
        if covers(middle) { high = middle } else { low = middle + 1 }
    }
    Ru(low)
}

fn coefficients() -> impl Strategy<Value = Coefficient> {
    prop_oneof![
        1 => Just(Coefficient::ZERO),
        3 => (0..=Coefficient::MAX_NUMERATOR, 1..=Coefficient::MAX_DENOMINATOR)
            .prop_map(|(upper, lower)| Coefficient::ratio(upper, lower).unwrap()),
        3 => (0_u64..100, 1_u64..100_000).prop_map(|(upper, lower)| Coefficient::ratio(upper, lower).unwrap()),
    ]
}

fn tables() -> impl Strategy<Value = CostTable> {
    (proptest::array::uniform10(coefficients()), 1..=CostTable::MAX_REPLICAS).prop_map(
        |(prices, replicas)| {
            let table = CostTable::new("any", 1, replicas).unwrap();
            Field::ALL.into_iter().zip(prices).fold(table, |table, (field, price)| table.with(field, price))
        },
    )
}

fn usages() -> impl Strategy<Value = Usage> {
    let amount = prop_oneof![Just(0), 0..100_u64, 0..1_u64 << 32, any::<u64>()];
    proptest::array::uniform10(amount).prop_map(|amounts| {
        let mut usage = Usage::default();
        for (field, amount) in Field::ALL.into_iter().zip(amounts) {
            *field.of_mut(&mut usage) = amount;
        }
        usage
    })
}

/// So that two of them can be added up.
fn halved(mut usage: Usage) -> Usage {
    for field in Field::ALL {
        *field.of_mut(&mut usage) /= 2;
    }
    usage
}

fn parts(priced: &RuParts) -> [(Part, Ru); 4] {
    [
        (Part::Cpu, priced.cpu),
        (Part::Read, priced.read),
        (Part::Write, priced.write),
        (Part::Network, priced.network),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_part_is_the_exact_cost_rounded_up(table in tables(), usage in usages()) {
        let priced = table.price(&usage);
        for (part, ru) in parts(&priced) {
            prop_assert_eq!(ru, oracle(&table, &usage, part), "{:?}", part);
        }
        prop_assert_eq!(priced.flat, Ru::ZERO);
    }

    #[test]
    fn the_breakdown_adds_up_to_the_parts(table in tables(), usage in usages()) {
        let breakdown = table.breakdown(&usage);
        prop_assert_eq!(breakdown.len(), Field::COUNT);
        for (part, ru) in parts(&table.price(&usage)) {
            let shown: Ru = breakdown.iter().filter(|item| item.field.part() == part).map(|item| item.ru).sum();
            prop_assert_eq!(shown, ru);
        }
        for item in breakdown {
            let copies = copies(&table, item.field.part());
            prop_assert_eq!((item.coefficient, item.copies), (table.coefficient(item.field), copies));
            let mut alone = Usage::default();
            *item.field.of_mut(&mut alone) = item.amount;
            let own = table.price(&alone).total();
            prop_assert!(item.ru <= own, "{:?} alone {}", item, own);
            // A capped part has no room for its last components.
            let capped = parts(&table.price(&usage)).iter().any(|(_, ru)| *ru == Ru::MAX);
            prop_assert!(capped || item.ru >= own - Ru(1), "{:?} alone {}", item, own);
        }
    }

    #[test]
    fn more_used_never_costs_less(table in tables(), usage in usages(), which in 0..Field::COUNT, more: u64) {
        let mut larger = usage;
        let amount = Field::ALL[which].of_mut(&mut larger);
        *amount = amount.saturating_add(more);
        for ((_, less), (_, more)) in parts(&table.price(&usage)).into_iter().zip(parts(&table.price(&larger))) {
            prop_assert!(more >= less);
        }
    }

    #[test]
    fn splitting_a_usage_costs_at_most_a_micro_ru_per_part(table in tables(), a in usages(), b in usages()) {
        let (a, b) = (halved(a), halved(b));
        let (once, twice) = (table.price(&a.plus(&b)), table.price(&a).plus(&table.price(&b)));
        for ((part, once), (_, twice)) in parts(&once).into_iter().zip(parts(&twice)) {
            prop_assert!(once <= twice, "{:?}", part);
            prop_assert!(once == Ru::MAX || twice <= once + Ru(1), "{:?}: {} and {}", part, once, twice);
        }
    }

    #[test]
    fn a_consumption_has_the_price_and_the_shadow_price(active in tables(), shadow in tables(), usage in usages()) {
        let priced = Charge::new(&active, Some(&shadow), &usage).of_one_operation(&usage);
        prop_assert_eq!(priced.charged, active.price(&usage));
        prop_assert_eq!(Charge::new(&active, None, &usage).total, priced.charged.total());
        prop_assert_eq!(priced.shadow, shadow.price(&usage).total());
        prop_assert_eq!((priced.operations, priced.throttled, priced.waited_us), (1, 0, 0));
        prop_assert_eq!(priced.usage, usage);
        // What is charged by parts is compared, too; only its operation counts at the end.
        let part = Charge::new(&active, Some(&shadow), &usage).of_a_part(&usage);
        prop_assert_eq!(part, Consumption { operations: 0, ..priced });
        let alone = Charge::new(&active, None, &usage).of_a_part(&usage);
        prop_assert_eq!(alone, Consumption { shadow: Ru::ZERO, ..part });
    }
}
