//! Tokens of ServiceAccounts: how long and where they count.

use super::*;

fn token_for(world: &mut World, spec: &Value) -> String {
    let answer = world.make(&format!("{ACCOUNT}/token"), &json!({"spec": spec}));
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn after(seconds: i64) -> Time {
    Time(NOW.0 + seconds * 1000)
}

fn list_at(world: &mut World, token: &str, now: Time) -> u16 {
    world.send_at(&of(token), Method::Get, MAPS, &Value::Null, now).0
}

#[test]
fn a_token_of_a_service_account_counts_until_its_time_is_over() {
    let mut world = World::new();
    let token = token_for(&mut world, &json!({"expirationSeconds": 600}));
    for (seconds, status) in [(-1, 401), (0, 403), (599, 403), (620, 401)] {
        assert_eq!(list_at(&mut world, &token, after(seconds)), status, "after {seconds} s");
    }
}

#[test]
fn a_token_dies_a_moment_after_its_service_account() {
    let mut world = World::new();
    let (used, unused) = (token_for(&mut world, &json!({})), token_for(&mut world, &json!({"expirationSeconds": 700})));
    assert_eq!(list_at(&mut world, &used, NOW), 403);
    let admin = of("admin-token");
    assert_eq!(world.send(&admin, Method::Delete, ACCOUNT, &Value::Null).0, 200);
    // What was looked at a moment ago is not looked at again.
    assert_eq!(list_at(&mut world, &used, after(9)), 403);
    assert_eq!(list_at(&mut world, &used, after(10)), 401);
    assert_eq!(list_at(&mut world, &unused, NOW), 401);
    // Another account of the same name has tokens of its own.
    world.make("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    assert_eq!(list_at(&mut world, &used, after(20)), 401);
}

#[test]
fn a_token_counts_for_its_audiences_and_its_server_only() {
    let mut world = World::new();
    let elsewhere = token_for(&mut world, &json!({"audiences": ["elsewhere"]}));
    assert_eq!(list_at(&mut world, &elsewhere, NOW), 401);
    let review = |audiences: Value| json!({"spec": {"token": elsewhere, "audiences": audiences}});
    const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
    let there = world.make(REVIEWS, &review(json!(["other", "elsewhere"])));
    assert_eq!(there["status"]["audiences"], json!(["elsewhere"]));
    assert_eq!(there["status"]["user"]["username"], "system:serviceaccount:default:default");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(there["status"]["user"]["groups"], json!(groups));
    assert_eq!(world.make(REVIEWS, &review(json!([])))["status"]["error"], "invalid bearer token");

    let users = Users::new("https://here").with("another-token", User::new("eve", &[]));
    let other = ApiServer::new(Options { auth: Some(Arc::new(users)), ..Options::default() });
    let own = token_for(&mut world, &json!({}));
    assert_eq!(list_at(&mut world, &own, NOW), 403);
    // The other one has the same seed, hence the same accounts, and people with other tokens.
    assert_eq!(list_at(&mut World(other), &own, NOW), 401);
}

#[test]
fn the_token_of_a_request_that_is_only_tried_counts_for_nothing() {
    let mut world = World::new();
    let answer = world.make(&format!("{ACCOUNT}/token?dryRun=All"), &json!({"spec": {}}));
    assert_eq!(answer["status"]["token"], "");
}
