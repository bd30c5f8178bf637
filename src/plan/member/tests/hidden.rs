//! Facts about objects on a member that do not decode: a stranger's, and one that may be ours.

use super::*;

/// A Pod that does not decode, with these metadata.
fn broken_pod(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": 7}})
}

#[test]
fn what_a_stranger_broke_does_not_hold_up_a_withdrawal_or_a_tombstone() {
    let (mut world, root) = admitted();
    let broken = |kind: &str, api: &str, more: Value| {
        let mut object =
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": "theirs", "namespace": "default"}});
        for (field, value) in more.as_object().unwrap() {
            object[field] = value.clone();
        }
        object
    };
    world.put(&eu(), broken("Pod", "v1", json!({"spec": {"nodeName": 7}})));
    world.put(&eu(), broken("Service", "v1", json!({"spec": {"selector": 7}})));
    world.put(&eu(), broken("Job", "batch/v1", json!({"status": {"active": "many"}})));
    world.put(&eu(), broken("PodGroup", "scheduling.volcano.sh/v1beta1", json!({"spec": {"minMember": "all"}})));
    let of_others = json!({"name": "others", "namespace": "default", "labels": {"rayfleet.io/root-id": "another"}});
    world.put(&eu(), broken_pod(of_others));
    world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
    until(&mut world, &root, Stage::Withdrawing);
    until(&mut world, &root, Stage::Waiting);
    world.publish(&["eu"]);
    assert!(world.get(&eu(), &root).is_none(), "its tombstone is released");
}

#[test]
fn what_cannot_be_read_and_may_be_ours_holds_up_withdrawal_and_tombstone() {
    let pod = |more: Value| {
        let mut metadata = json!({"name": "p", "namespace": "default"});
        for (field, value) in more.as_object().unwrap() {
            metadata[field] = value.clone();
        }
        broken_pod(metadata)
    };
    for case in ["root id", "fleet", "owned", "unknown"] {
        let (mut world, root) = admitted();
        let mirror = world.get(&eu(), &root).unwrap()["metadata"]["uid"].clone();
        let between = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata":
            {"name": "train-x", "namespace": "default", "uid": "u-between", "ownerReferences": [{"uid": mirror}]}});
        world.put(&eu(), between);
        let hidden = world.put(
            &eu(),
            pod(match case {
                "root id" => {
                    json!({"labels": {"rayfleet.io/root-id": world.placement_of(&root).unwrap().spec.root.root_id}})
                }
                "fleet" => json!({"annotations": {"rayfleet.io/fleet-id": "fleet"}}),
                "owned" => json!({"ownerReferences": [{"uid": "u-between"}]}),
                _ => json!({"labels": 7}),
            }),
        );
        world.edit(&Cluster::Hub, &root, |body| body["spec"]["suspend"] = true.into());
        until(&mut world, &root, Stage::Withdrawing);
        let mut why = world.step(&root).why;
        for _ in 0..12 {
            why = world.step(&root).why;
        }
        assert_eq!(stage(&world, &root), Stage::Withdrawing, "{case}");
        assert!(why.0.contains("cannot be read") && why.0.contains("Pod default/p"), "{case}: {}", why.0);
        world.remove(&eu(), &hidden);
        until(&mut world, &root, Stage::Waiting);
        // The same holds for the release of its name.
        world.put(&eu(), pod(json!({"labels": 7})));
        world.publish(&["eu"]);
        assert!(world.get(&eu(), &root).is_some(), "{case}");
        world.remove(&eu(), &hidden);
        world.publish(&["eu"]);
        assert!(world.get(&eu(), &root).is_none(), "{case}");
    }
}
