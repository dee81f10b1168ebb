//! What a start makes of the watches and records in the store.

use crate::statements::testing::{Stage, conviction, similar};
use crate::store::records::{put_json, u64_key, u64_of};
use crate::store::{Table, each};
use tidegate_proto::v1;

fn ids(stage: &Stage) -> Vec<u64> {
    stage.calls().watches("").unwrap().iter().map(|watch| watch.id).collect()
}

fn stored(stage: &Stage, table: Table) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut note = |key: &[u8], _: &[u8]| {
        ids.push(u64_of(table, key)?);
        Ok(())
    };
    each(&*stage.store, table, &mut note).unwrap();
    ids
}

fn write(stage: &Stage, key: u64, watch: &v1::Watch) {
    stage.store.commit(&[put_json(Table::Watches, u64_key(key), watch).unwrap()]).unwrap();
}

#[test]
fn what_gateways_convicted_is_there_after_a_crash_and_its_ids_are_never_used_again() {
    let stage = Stage::new();
    stage.ruled("web", "similar", 10_000);
    assert_eq!(stage.calls().convict(&conviction("web", 1)).unwrap(), Some(1));
    stage.service.upkeep().flush().unwrap();
    let stage = stage.crash();
    assert_eq!((ids(&stage), stage.calls().runaways("web", 0).unwrap().len()), (vec![1], 1));
    stage.pass_ms(10_000);
    stage.service.leasing().expire();
    stage.service.upkeep().flush().unwrap();
    assert_eq!((stored(&stage, Table::Watches), stored(&stage, Table::Runaways).len()), (vec![], 1));
    let stage = stage.crash();
    assert_eq!(stage.calls().convict(&conviction("web", 2)).unwrap(), Some(2));
    assert_eq!(stage.calls().runaways("web", 0).unwrap().len(), 2);
}

#[test]
fn watches_that_can_cover_nothing_go_at_the_start_from_the_store_as_well() {
    let stage = Stage::new();
    stage.ruled("web", "", 0);
    let switch = |statement, to: &str| {
        let (action, switch_group) = ("switch_group".into(), to.into());
        v1::Watch { action, switch_group, ..similar("web", statement) }
    };
    let rows = [
        similar("gone", 1),
        switch(2, "gone"),
        v1::Watch { digest: "cbf29ce484222325".into(), ..similar("web", 3) },
        similar("web", 4),
        switch(5, "default"),
    ];
    for (id, watch) in (1..).zip(rows) {
        write(&stage, id, &v1::Watch { id, ..watch });
    }
    let stage = stage.crash();
    assert_eq!(ids(&stage), [4, 5]);
    stage.service.upkeep().flush().unwrap();
    assert_eq!(stored(&stage, Table::Watches), [4, 5]);
}

#[test]
fn a_watch_under_the_key_of_another_starts_no_controller() {
    let stage = Stage::new();
    stage.ruled("web", "", 0);
    write(&stage, 9, &v1::Watch { id: 8, ..similar("web", 1) });
    let refused = stage.refused();
    assert!(refused.contains("watch 9 has the id 8"), "{refused}");
}
