//! The model keeps the rules of the store that it stands for.

mod contract;

use tidegate_consensus::model::Model;

#[test]
fn the_model_keeps_every_rule() {
    for (rule, holds) in contract::RULES {
        println!("{rule}");
        holds(&Model::new());
    }
}
