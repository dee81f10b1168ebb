//! Handles that follow the bindings, while these change.

use std::sync::Arc;

use shuttle::future::{block_on, yield_now};
use tidegate_proto::v1;

use super::world::work;
use super::{explore, generous};
use crate::group::Group;
use crate::hub::Hub;
use crate::resolved::Resolved;

fn bind(hub: &Hub, group: &str) {
    let binding = v1::Binding { tenant: "t".into(), group: group.into(), ..v1::Binding::default() };
    hub.change_bindings(|bindings| bindings.put(binding).unwrap());
}

/// One who looks while a binding changes may still see the former group, but nobody keeps it.
#[test]
fn nobody_stays_at_the_group_of_before() {
    explore(|| {
        block_on(async {
            let (world, ..) = generous();
            let hub = Arc::clone(&world.hub);
            bind(&hub, "a");
            let (turn, cell) = (hub.turn(), hub.resolve("t", "u").unwrap());
            let followed = Resolved::new(Arc::clone(&hub), "t", "u", turn, Group { cell });
            let look = |followed: Resolved| async move {
                for _ in 0..3 {
                    followed.group();
                    yield_now().await;
                }
            };
            let lookers = [work(look(followed.clone())), work(look(followed.clone()))];
            let changer = work(async move { ["b", "c"].map(|group| bind(&hub, group)) });
            for looker in lookers {
                looker.await.unwrap();
            }
            changer.await.unwrap();
            assert_eq!(&**followed.group().name(), "c");
            world.end().await;
        });
    });
}
