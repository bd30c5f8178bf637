//! Facts about members whose identity is not settled: nothing is planned on them.

use super::*;

const OTHER: &str = "fleet/us/u-us";

fn at_home(uid: &str, mark: &str, version: u64) -> Row {
    let metadata = json!({"name": "kube-system", "uid": uid, "annotations": {names::REGISTERED_BY: mark}});
    row(Kind::Namespace, json!({ "metadata": metadata }), version)
}

#[test]
fn nothing_on_a_member_is_planned_while_it_is_not_what_was_registered() {
    for (uid, mark) in [("u-other", "fleet/eu/u-eu"), ("u-kube-system", OTHER), ("u-kube-system", "")] {
        let mut story = running();
        story.see(&eu_cluster(), at_home(uid, mark, 200));
        story.looks();
        // What happens there meanwhile moves nobody: not the root object, not what stands on the member.
        story.gone(&eu_cluster(), &mirror(5), 201);
        story.see(&eu_cluster(), ray_cluster("train-abcde", Some("u-mirror"), 202));
        story.later(60_000);
        let looks = story.looks();
        assert!(looks.iter().all(|(which, _)| *which == Which::Member), "{uid} {mark}: {looks:?}");
        let key = Key { cluster: Cluster::Hub, id: root(3).id };
        let why = story.engine.why(&key).expect("it says why").why.0.to_string();
        assert!(why.starts_with("member eu "), "{why}");

        story.see(&eu_cluster(), at_home("u-kube-system", "fleet/eu/u-eu", 203));
        let looks = story.looks();
        assert!(looks.iter().any(|(which, _)| *which == Which::Bound), "{uid} {mark}: {looks:?}");
    }
}

#[test]
fn a_member_whose_identity_is_not_recorded_is_planned_as_a_whole_only() {
    let mut story = running();
    let object = json!({"metadata": {"name": "eu"}, "status": {"kubernetesVersion": "1"}});
    story.see(&Cluster::Hub, row(Kind::MemberCluster, object, 200));
    story.looks();
    story.see(&eu_cluster(), pod("q", "u-train-abcde", 201));
    story.later(1_000);
    let looks = story.looks();
    assert!(!looks.is_empty() && looks.iter().all(|(which, _)| *which == Which::Member), "{looks:?}");
    let object = json!({"metadata": {"name": "eu"}, "status": {"clusterId": "u-kube-system"}});
    story.see(&Cluster::Hub, row(Kind::MemberCluster, object, 202));
    assert!(story.looked(Which::Bound));
}

#[test]
fn another_address_of_a_member_forgets_what_the_former_one_showed() {
    let mut story = running();
    story.tell(Input::Cluster(eu_cluster(), Presence::Refused("its kubeconfig names another address".into())));
    story.tell(Input::Cluster(eu_cluster(), Presence::Added));
    story.looks();
    let rows = vec![at_home("u-other", "", 300)];
    story.list(&eu_cluster(), MEMBER_KINDS, rows);
    story.later(20_000);
    let looks = story.looks();
    assert!(looks.iter().all(|(which, _)| *which == Which::Member), "{looks:?}");
}
