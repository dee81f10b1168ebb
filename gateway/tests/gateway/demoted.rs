//! Statements over a limit of their group that go on in the group to which it demotes, which pays for them.

use crate::common::eventually;
use crate::scene::Scene;

/// Of which no statement is refused: each is admitted in one group or the other.
const STATEMENTS: u32 = 6;
/// Requests that the group's quota is good for.
const QUOTA: u32 = 2;

/// A number of the tables, of ann's group, of its target, or of both.
async fn number(scene: &Scene, what: &str, table: &str, group: &str) -> f64 {
    let of_all = if table == "usage" { " and client is null" } else { "" };
    let groups = if group.is_empty() { "'anns', 'spill'".to_owned() } else { format!("'{group}'") };
    let sql = format!(
        "select coalesce(sum({what}), 0) from tidegate.{table} where resource_group in ({groups}){of_all}"
    );
    scene.admin(&sql).await.unwrap().parse().unwrap()
}

/// Ann's statements under this limit of her group, RU/s and what is beside; returns how many of them her group paid for,
/// and how many its target.
async fn paid_by(scene: &Scene, limit: &str) -> [f64; 2] {
    assert_eq!(scene.says("create table t (n int)").trim(), scene.pick("CREATE TABLE", ""));
    scene.admin("create resource group spill ru_per_sec = 1000000 priority = low").await;
    // With the limit from the beginning, so that her node hears of the group and of both at once.
    scene.group(&format!("{limit} demote_to = spill")).await;
    for n in 0..STATEMENTS {
        let said = scene.says(&format!("insert into t values ({n})"));
        assert_eq!(said.trim(), scene.pick("INSERT 0 1", ""), "{}", scene.name());
    }
    assert_eq!(scene.says("select current_resource_group()").trim(), "anns", "she stays in her group");
    eventually("all are counted", async || {
        number(scene, "operations", "usage", "").await >= f64::from(STATEMENTS)
    })
    .await;
    // What is charged and what statements cost come by different messages.
    eventually("each RU is in one group", async || {
        let costs = number(scene, "ru", "statements", "").await;
        (number(scene, "ru", "usage", "").await - costs).abs() < 0.000_1
    })
    .await;
    let calls = number(scene, "calls", "statements", "").await;
    assert_eq!(number(scene, "operations", "usage", "").await, calls, "{}", scene.name());
    let [own, other] = [
        number(scene, "operations", "usage", "anns").await,
        number(scene, "operations", "usage", "spill").await,
    ];
    assert_eq!(own + other, f64::from(STATEMENTS), "{}: {own} and {other}", scene.name());
    assert!(number(scene, "ru", "usage", "spill").await > 0.0, "{}", scene.name());
    [own, other]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_quota_holds_back_goes_on_in_the_target_and_each_ru_has_one_payer() {
    for scene in Scene::both(|_| {}).await {
        // Of a rolling month, which ends in no test.
        let limit = format!("1000000 quota = '{QUOTA} requests per rolling month'");
        let [own, other] = paid_by(&scene, &limit).await;
        assert!(own <= f64::from(QUOTA), "{}: {own} of {QUOTA}, {other} beside", scene.name());
        assert!(scene.settles().await, "the controller has it all");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rate_holds_back_goes_on_in_the_target_and_each_ru_has_one_payer() {
    for scene in Scene::both(|_| {}).await {
        // One statement is more than a day of it.
        let [own, other] = paid_by(&scene, "0.000001 burst = 0.000001").await;
        assert!(other > 0.0, "{}: {own} in its own group", scene.name());
        assert!(scene.settles().await, "the controller has it all");
    }
}
