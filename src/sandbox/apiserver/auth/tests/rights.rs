//! Who may ask in another name, and who may give rights.

use super::*;

#[test]
fn a_right_to_ask_for_somebody_is_checked_part_by_part() {
    let people = |groups: &[&str], verb: &str| {
        [
            json!({"verbs": [verb], "apiGroups": groups, "resources": ["users"], "resourceNames": ["alice"]}),
            json!({"verbs": [verb], "apiGroups": groups, "resources": ["groups"], "resourceNames": ["ops", "system:masters"]}),
        ]
    };
    let narrow = people(&["authentication.k8s.io"], "impersonate:user-info");
    let on = rule(&["impersonate-on:user-info:list"], &[""], &["configmaps"], &[]);
    let wide = people(&[""], "impersonate");
    let all = |parts: &[&Value]| parts.iter().map(|v| (*v).clone()).collect::<Vec<_>>();
    let refused = "impersonate-on:user-info:list resource \"configmaps\"";
    for (rules, user, groups, named) in [
        (all(&[]), "alice", vec![], Some(refused)),
        (all(&[&wide[0]]), "alice", vec![], None),
        (all(&[&wide[0]]), "carol", vec![], Some(refused)),
        (all(&[&wide[0]]), "alice", vec!["ops"], Some(refused)),
        (all(&[&wide[0], &wide[1]]), "alice", vec!["ops"], None),
        (all(&[&narrow[0]]), "alice", vec![], Some(refused)),
        (all(&[&on]), "alice", vec![], Some("impersonate:user-info resource \"users\"")),
        (all(&[&on, &narrow[0]]), "alice", vec![], None),
        (all(&[&on, &narrow[0]]), "alice", vec!["ops"], Some("impersonate:user-info resource \"groups\"")),
        (all(&[&on, &narrow[0], &narrow[1]]), "alice", vec!["ops"], None),
        (
            all(&[&on, &narrow[0], &narrow[1]]),
            "alice",
            vec!["system:masters"],
            Some("system:masters group is not allowed"),
        ),
        (all(&[&wide[0], &wide[1]]), "alice", vec!["system:masters"], None),
    ] {
        let mut world = World::new();
        let metadata = json!({"name": "r"});
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        world.make(&format!("{RBAC}/clusterroles"), &json!({"metadata": metadata, "rules": rules}));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"});
        let subjects = json!([{"kind": "User", "name": "bob"}]);
        let binding = json!({"metadata": metadata, "roleRef": role, "subjects": subjects});
        world.make(&format!("{RBAC}/clusterrolebindings"), &binding);
        let mut headers = vec![("authorization", "Bearer bob-token"), ("impersonate-user", user)];
        headers.extend(groups.iter().map(|g| ("impersonate-group", *g)));
        let sender = Credentials::from_headers(headers.into_iter());
        let (status, answer) = world.send(&sender, Method::Get, MAPS, &Value::Null);
        let message = answer["message"].as_str().unwrap_or_default();
        match named {
            // Nobody but the administrators may list: who gets so far is forbidden under the other name.
            None if groups == ["system:masters"] => assert_eq!(status, 200, "{message}"),
            None => assert!(message.contains(&format!("User {user:?} cannot list")), "{rules:?} {groups:?}: {message}"),
            Some(text) => assert!(message.contains("\"bob\"") && message.contains(text), "{rules:?}: {message}"),
        }
    }
}

#[test]
fn to_impersonate_nobody_in_a_group_is_a_mistake() {
    let mut world = World::new();
    let sender =
        Credentials::from_headers([("authorization", "Bearer admin-token"), ("impersonate-group", "g")].into_iter());
    assert_eq!(world.send(&sender, Method::Get, MAPS, &Value::Null).0, 400);
}

#[test]
fn nobody_gives_rights_that_he_does_not_have() {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let roles = rule(&["create", "update"], &["rbac.authorization.k8s.io"], &["roles", "rolebindings"], &[]);
    let read = rule(&["get"], &[""], &["configmaps"], &[]);
    let escalate = rule(&["escalate"], &["rbac.authorization.k8s.io"], &["roles"], &[]);
    let bind = rule(&["bind"], &["rbac.authorization.k8s.io"], &["roles"], &["mighty"]);
    let bob = of("bob-token");
    for (own, given, may) in [
        (vec![&roles], json!([read]), false),
        (vec![&roles, &read], json!([read]), true),
        (vec![&roles, &read], json!([rule(&["get", "list"], &[""], &["configmaps"], &[])]), false),
        (vec![&roles, &read], json!([rule(&["get"], &[""], &["configmaps"], &["a"])]), true),
        (vec![&roles, &escalate], json!([read]), true),
        (vec![&roles, &bind], json!([read]), false),
        (vec![&roles], json!([]), true),
    ] {
        let mut world = World::new();
        world.bind("own", &json!(own), &json!({"kind": "User", "name": "bob"}));
        let role = json!({"metadata": {"name": "new"}, "rules": given});
        let (status, answer) = world.send(&bob, Method::Post, &format!("{RBAC}/roles"), &role);
        assert_eq!(status, if may { 201 } else { 403 }, "{own:?} {answer}");
        // The same by changing one that is there.
        world.make(&format!("{RBAC}/roles"), &json!({"metadata": {"name": "old"}, "rules": []}));
        let changed = json!({"metadata": {"name": "old"}, "rules": given});
        let (status, answer) = world.send(&bob, Method::Put, &format!("{RBAC}/roles/old"), &changed);
        assert_eq!(status, if may { 200 } else { 403 }, "{own:?} {answer}");
        // And by binding one that has these rules.
        world.make(&format!("{RBAC}/roles"), &json!({"metadata": {"name": "mighty"}, "rules": given}));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mighty"});
        let binding =
            json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": [{"kind": "User", "name": "eve"}]});
        let (status, answer) = world.send(&bob, Method::Post, &format!("{RBAC}/rolebindings"), &binding);
        let may = (may && !own.contains(&&escalate)) || own.contains(&&bind);
        assert_eq!(status, if may { 201 } else { 403 }, "{own:?} {answer}");
    }
    let mut world = World::new();
    world.bind("own", &json!([roles]), &json!({"kind": "User", "name": "bob"}));
    let role = json!({"metadata": {"name": "esc"}, "rules": [rule(&["get"], &[""], &["pods"], &["p"])]});
    let (_, answer) = world.send(&bob, Method::Post, &format!("{RBAC}/roles"), &role);
    let text = "roles.rbac.authorization.k8s.io \"esc\" is forbidden: user \"bob\" (groups=[\"dev\" \"system:authenticated\"]) \
                is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], \
                ResourceNames:[\"p\"], Verbs:[\"get\"]}";
    assert_eq!(answer["message"], text);
}

#[test]
fn a_write_that_turns_out_to_create_needs_the_right_to() {
    let mut world = World::new();
    let update = rule(&["update", "patch"], &["", "coordination.k8s.io"], &["leases"], &[]);
    world.bind("r", &json!([update]), &json!({"kind": "User", "name": "bob"}));
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let (status, answer) = world.send(&of("bob-token"), Method::Put, lease, &json!({"metadata": {"name": "l"}}));
    assert_eq!(status, 403);
    assert!(answer["message"].as_str().unwrap().contains("User \"bob\" cannot create resource \"leases\""), "{answer}");
}
