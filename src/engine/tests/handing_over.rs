//! What goes along when a root object passes to another owner, and what that one waits for.

use super::*;

#[test]
fn handing_over_stores_what_the_next_owner_must_have_seen() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    let withdraw = |b: &mut Value| b["spec"]["stage"] = json!("Withdrawing");
    let plan = replace(Cluster::Hub, &placement("Running", 4), withdraw);
    story.plan(Which::Bound, move |_, _| does(vec![plan.clone()]));
    assert!(writes(&story.see(&Cluster::Hub, root(121))).is_empty(), "a write to the member is open");
    let effects = story.tell(Input::Done(ticket, ok(200)));
    let (_, action) = only_write(&effects);
    assert_eq!(body(&action)["spec"]["stage"], "Withdrawing");
    assert_eq!(body(&action)["spec"]["writtenUpTo"], json!({"Pod": 200}));
    assert_eq!(body(&action)["spec"]["root"]["version"], 121);
    assert_eq!(body(&action)["spec"].get("unclean"), None);
}

#[test]
fn handing_over_after_an_unknown_outcome_leaves_the_generation_unclean() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.tell(Input::Done(ticket, lost()));
    let withdraw = |b: &mut Value| b["spec"]["stage"] = json!("Withdrawing");
    let plan = replace(Cluster::Hub, &placement("Running", 4), withdraw);
    story.plan(Which::Bound, move |_, _| does(vec![plan.clone()]));
    assert!(writes(&story.see(&Cluster::Hub, root(121))).is_empty());
    let effects = story.later(5_000);
    let [(read, _)] = fetches(&effects)[..] else { unreachable!("one read: {effects:?}") };
    let (_, action) = only_write(&story.tell(Input::Fetched(read, story.now, Ok(None))));
    assert_eq!(body(&action)["spec"]["unclean"], true);
}

#[test]
fn the_next_owner_waits_until_it_has_seen_what_the_former_one_wrote() {
    let mut story = Story::ready_with(vec![root(3)], vec![mirror(5)]);
    story.looks();
    story.see(&Cluster::Hub, placement_with("Withdrawing", 120, json!({"writtenUpTo": {"Pod": 150, "Secret": 900}})));
    assert!(!story.looked(Which::Withdraw));
    story.see(&eu_cluster(), pod("x", "y", 149));
    assert!(!story.looked(Which::Withdraw));
    story.see(&eu_cluster(), pod("x", "y", 150));
    assert!(story.looked(Which::Withdraw));
}

#[test]
fn a_decision_is_not_judged_by_a_root_object_older_than_the_one_it_was_made_on() {
    for (stage, which) in [
        ("Waiting", Which::Place),
        ("Reserving", Which::Reserve),
        ("Admitted", Which::Bound),
        ("Running", Which::Bound),
        ("Withdrawing", Which::Withdraw),
    ] {
        let mut story = Story::ready_with(vec![root(3)], vec![mirror(5)]);
        story.looks();
        let decided = json!({"kind": "RayJob", "name": "train", "uid": "u-train", "rootId": "r-1", "version": 130});
        story.see(&Cluster::Hub, placement_with(stage, 140, json!({"root": decided})));
        assert!(!story.looked(which), "{stage}: the root object is seen as of version 3");
        story.see(&Cluster::Hub, root(129));
        assert!(!story.looked(which), "{stage}: the root object is seen as of version 129");
        story.see(&Cluster::Hub, root(130));
        assert!(story.looked(which), "{stage}");
    }
}

#[test]
fn a_hub_that_was_restored_to_before_a_decision_is_believed_once_it_was_listed() {
    let mut story = Story::ready_with(vec![root(3)], vec![mirror(5)]);
    story.looks();
    let decided = json!({"kind": "RayJob", "name": "train", "uid": "u-train", "rootId": "r-1", "version": 900});
    story.see(&Cluster::Hub, placement_with("Admitted", 140, json!({"root": decided})));
    assert!(!story.looked(Which::Bound));
    story.later(5_000);
    story.list(&Cluster::Hub, &[Kind::RayJob], vec![root(3)]);
    assert!(story.looked(Which::Bound));
}
