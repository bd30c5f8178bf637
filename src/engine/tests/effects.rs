//! What is done around every plan (`docs/WALK.md` section 2).

use super::*;
use crate::plan::{Dashboard, Fetch, JobAnswer, Note, Question, SubmitOutcome};

#[test]
fn a_key_is_not_looked_at_while_its_request_is_unanswered() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.looks();
    story.see(&eu_cluster(), mirror(121));
    assert!(!story.looked(Which::RayJob));
    story.tell(Input::Done(ticket, Outcome::Exists));
    story.later(1_000);
    assert!(story.looked(Which::RayJob));
}

#[test]
fn after_a_write_its_table_must_have_reached_the_version() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.looks();
    story.tell(Input::Done(ticket, ok(200)));
    story.see(&eu_cluster(), mirror(201));
    assert!(!story.looked(Which::RayJob), "versions of another kind say nothing");
    story.tell(Input::Rows(eu_cluster(), Kind::Pod, TableChange::Progress(Version(199))));
    assert!(!story.looked(Which::RayJob));
    story.tell(Input::Rows(eu_cluster(), Kind::Pod, TableChange::Progress(Version(200))));
    assert!(story.looked(Which::RayJob));
}

#[test]
fn an_expectation_ends_with_a_consistent_list_whatever_it_shows() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.tell(Input::Done(ticket, ok(9_000)));
    story.looks();
    let mut asked = Vec::new();
    for _ in 0..20 {
        asked.extend(relists(&story.later(1_000)));
    }
    assert_eq!(asked, [(eu_cluster(), [Kind::Pod].into())], "a wait is never without end");
    assert!(!story.looked(Which::RayJob));
    // The server was restored: its versions are low again.
    story.list(&eu_cluster(), &[Kind::Pod], vec![]);
    assert!(story.looked(Which::RayJob));
}

#[test]
fn after_a_deletion_that_incarnation_must_be_on_its_way() {
    let mut story = running();
    let victim = pod("p", "u-train-abcde", 130);
    story.see(&eu_cluster(), victim.clone());
    story.once(Which::RayJob, does(vec![delete(&victim)]));
    story.list(&eu_cluster(), &[Kind::RayJob], vec![mirror(5)]);
    let effects = story.see(&eu_cluster(), mirror(131));
    let (ticket, _) = only_write(&effects);
    story.looks();
    story.tell(Input::Done(ticket, ok(0)));
    story.see(&eu_cluster(), pod("p", "u-train-abcde", 132));
    assert!(!story.looked(Which::RayJob));
    let mut going = pod("p", "u-train-abcde", 133);
    going.deleting = Some(story.now);
    story.see(&eu_cluster(), going);
    assert!(story.looked(Which::RayJob));
}

#[test]
fn after_the_last_finalizer_is_let_go_the_object_must_be_gone() {
    let mut story = running();
    let mut going = mirror(120);
    going.deleting = Some(story.now);
    let let_go =
        replace(eu_cluster(), &going, |body| body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    story.once(Which::RayJob, does(vec![let_go]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), going));
    story.looks();
    // The answer bears the version that is in sight already: by it alone the same would be sent once more, to nobody.
    story.tell(Input::Done(ticket, ok(120)));
    assert!(!story.looked(Which::RayJob));
}

#[test]
fn an_unknown_outcome_is_found_out_by_a_read_after_the_time_limit() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.looks();
    let effects = story.tell(Input::Done(ticket, lost()));
    assert!(fetches(&effects).is_empty());
    assert!(fetches(&story.later(4_999)).is_empty(), "it may still be carried out");
    let effects = story.later(1);
    let [(ticket, id)] = &fetches(&effects)[..] else { unreachable!("one read: {effects:?}") };
    assert_eq!(*id, Id::new(Kind::Pod, "n", "a"));
    story.tell(Input::Fetched(*ticket, story.now, Err("no answer".into())));
    assert!(!story.looked(Which::RayJob));
    let effects = story.later(2_000);
    let [(ticket, _)] = fetches(&effects)[..] else { unreachable!("read again: {effects:?}") };
    let object = json!({"metadata": {"uid": "u-a", "resourceVersion": "300"}});
    story.tell(Input::Fetched(ticket, story.now, Ok(Some(Arc::new(object)))));
    assert!(!story.looked(Which::RayJob), "our table must show as much");
    story.plan(Which::RayJob, |seen, _| {
        assert!(seen.me.unknown && seen.me.sent);
        Plan::default()
    });
    story.tell(Input::Rows(eu_cluster(), Kind::Pod, TableChange::Progress(Version(300))));
    assert!(story.looked(Which::RayJob));
}

/// Found by the simulator: such a write landed late, after a mirror had been made in spite of it. Explanations, and the last
/// step of a withdrawal, are writes to `Waiting` too, and change nothing.
#[test]
fn only_a_reservation_given_back_without_an_answer_makes_its_generation_unclean() {
    let cases = [
        ("Reserving", Which::Reserve, true),
        ("Withdrawing", Which::Withdraw, false),
        ("Waiting", Which::Place, false),
    ];
    for (stage, which, unclean) in cases {
        let stored = placement(stage, 4);
        let mut story = Story::ready_with(vec![root(3), stored.clone()], vec![]);
        story.once(which, does(vec![replace(Cluster::Hub, &stored, |b| b["spec"]["stage"] = json!("Waiting"))]));
        let (ticket, _) = only_write(&story.see(&Cluster::Hub, root(121)));
        story.tell(Input::Done(ticket, lost()));
        let effects = story.later(5_000);
        let [(ticket, _)] = fetches(&effects)[..] else { unreachable!("{stage}: it is read: {effects:?}") };
        story.plan(which, move |seen, _| {
            assert_eq!(seen.me.unknown, unclean, "{stage}");
            Plan::default()
        });
        story.looks();
        let unchanged = json!({"metadata": {"uid": &*stored.uid.0, "resourceVersion": "4"}});
        story.tell(Input::Fetched(ticket, story.now, Ok(Some(Arc::new(unchanged)))));
        story.later(10_000);
        assert!(story.looked(which), "{stage}: it is planned again");
    }
}

#[test]
fn a_server_that_answers_with_nothing_but_errors_is_asked_ever_later_and_its_words_are_kept() {
    for reads_work in [true, false] {
        let mut story = running();
        story.plan(Which::RayJob, |_, _| does(vec![create_pod("a")]));
        let mut effects = story.see(&eu_cluster(), mirror(120));
        let (begun, mut requests) = (story.now, Vec::new());
        while story.now.0 < begun.0 + 600_000 {
            for (ticket, _) in writes(&effects) {
                requests.push(story.now);
                effects = story.tell(Input::Done(ticket, Outcome::Unknown(Some(500), "etcd is slow".into())));
            }
            let wake = story.see(&eu_cluster(), pod("other", "u-mirror", story.version + 1));
            effects.extend(wake);
            for (ticket, _) in fetches(&effects) {
                requests.push(story.now);
                let read = if reads_work { Ok(None) } else { Err("500 etcd is slow".to_owned()) };
                story.tell(Input::Fetched(ticket, story.now, read));
            }
            effects = story.later(50);
        }
        let in_last_minutes = requests.iter().filter(|at| at.0 > begun.0 + 400_000).count();
        assert!(in_last_minutes <= 30, "{in_last_minutes} requests in 200 s, of {}", requests.len());
        let entry = story.engine.why(&Key { cluster: eu_cluster(), id: mirror(1).id }).unwrap().clone();
        assert!(entry.failures > 10 && entry.trouble.as_ref().is_some_and(|t| t.contains("etcd is slow")), "{entry:?}");
    }
}

#[test]
fn a_write_that_was_carried_out_though_its_answer_was_lost_is_no_trouble() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.tell(Input::Done(ticket, lost()));
    let key = Key { cluster: eu_cluster(), id: mirror(1).id };
    let trouble = |story: &Story| story.engine.why(&key).unwrap().trouble.clone();
    assert!(trouble(&story).is_some_and(|t| t.contains("Pod n/a on eu") && t.contains("cut off")));
    let effects = story.later(5_000);
    let [(read, _)] = fetches(&effects)[..] else { unreachable!("one read: {effects:?}") };
    let object = json!({"metadata": {"uid": "u-a", "resourceVersion": "300"}});
    story.tell(Input::Fetched(read, story.now, Ok(Some(Arc::new(object)))));
    assert_eq!(trouble(&story), None);
}

#[test]
fn an_answer_that_never_comes_is_an_unknown_outcome() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    only_write(&story.see(&eu_cluster(), mirror(120)));
    let effects = story.later(60_000);
    assert_eq!(fetches(&effects).len(), 1);
}

#[test]
fn while_a_write_to_the_hub_is_open_nothing_is_sent_to_the_member_for_that_root_object() {
    let mut story = running();
    story.once(Which::Bound, does(vec![replace(Cluster::Hub, &root(3), |_| {})]));
    story.plan(Which::RayJob, |_, _| does(vec![create_pod("a")]));
    let effects = story.see(&Cluster::Hub, root(120));
    let (ticket, _) = only_write(&effects);
    assert!(writes(&story.see(&eu_cluster(), mirror(121))).is_empty());
    story.tell(Input::Done(ticket, lost()));
    assert!(writes(&story.later(3_000)).is_empty());
    let effects = story.later(2_000);
    let [(read, _)] = fetches(&effects)[..] else { unreachable!("one read: {effects:?}") };
    let effects = story.tell(Input::Fetched(read, story.now, Ok(None)));
    assert_eq!(only_write(&effects).1.cluster(), eu_cluster());
}

#[test]
fn nobody_writes_to_a_member_without_a_claim_of_this_epoch() {
    let old = placement_with("Running", 4, json!({"claims": {bucket_unit(): 3}}));
    let mut story = Story::ready_with(vec![root(3), old], vec![mirror(5)]);
    story.plan(Which::RayJob, |_, _| does(vec![create_pod("a")]));
    let (_, claim) = only_write(&story.see(&eu_cluster(), mirror(120)));
    assert_eq!(claim.cluster(), Cluster::Hub);
    assert_eq!(body(&claim)["spec"]["claims"], json!({bucket_unit(): 5}));
    assert_eq!((&body(&claim)["spec"]["unclean"], &body(&claim)["spec"]["stage"]), (&json!(true), &json!("Running")));
    assert_eq!(body(&claim)["metadata"]["resourceVersion"], "4");
    assert_eq!(stamps(&claim), json!({bucket_unit(): 5}));
}

#[test]
fn a_claim_that_has_come_back_lets_the_writes_through() {
    let old = placement_with("Running", 4, json!({"claims": {}}));
    let mut story = Story::ready_with(vec![root(3), old], vec![mirror(5)]);
    story.plan(Which::RayJob, |_, _| does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    assert!(writes(&story.tell(Input::Done(ticket, ok(121)))).is_empty());
    let effects = story.see(&Cluster::Hub, placement_with("Running", 121, json!({"unclean": true})));
    assert_eq!(only_write(&effects).1.cluster(), eu_cluster());
}

#[test]
fn reading_a_ray_dashboard_needs_no_claim_but_submitting_does() {
    let old = placement_with("Running", 4, json!({"claims": {}}));
    let mut story = Story::ready_with(vec![root(3), old], vec![mirror(5)]);
    story.once(Which::RayJob, does(vec![ask(Question::Job { job: "j".into() })]));
    assert!(matches!(only_write(&story.see(&eu_cluster(), mirror(120))).1, Action::Ask { .. }));
    let old = placement_with("Running", 4, json!({"claims": {}}));
    let mut story = Story::ready_with(vec![root(3), old], vec![mirror(5)]);
    story.once(Which::RayJob, does(vec![ask(Question::Submit { job: "j".into(), body: json!({}) })]));
    assert!(matches!(only_write(&story.see(&eu_cluster(), mirror(120))).1, Action::Replace { .. }));
}

fn dashboard() -> Dashboard {
    Dashboard { namespace: "n".into(), service: "head".into(), port: "dashboard".into() }
}

fn ask(question: Question) -> Action {
    Action::Ask { member: eu(), dashboard: dashboard(), question }
}

#[test]
fn a_higher_stamp_of_our_unit_stops_us_until_the_record_was_read() {
    let mut story = running();
    let stamp = json!({"rayfleet.io/root": "RayJob/n/train", "rayfleet.io/placement-generation": "1",
        "rayfleet.io/stamps": json!({bucket_unit(): 6}).to_string()});
    let stamped = mirror_with(120, stamp);
    let seen = stamped.clone();
    story.plan(Which::RayJob, move |_, _| does(vec![replace(eu_cluster(), &seen, |_| {})]));
    let effects = story.see(&eu_cluster(), stamped.clone());
    assert!(writes(&effects).is_empty());
    assert!(effects.contains(&Effect::Doubt(bucket_unit().into(), 6)));
    story.looks();
    story.see(&Cluster::Hub, root(121));
    assert!(story.looks().iter().all(|(which, _)| *which == Which::Member), "nothing of the unit goes on");
    // Still ours, with an epoch above it: after new lists it goes on.
    story.tell(Input::Unit(bucket_unit().into(), Standing::Held(7)));
    story.later(1);
    let (hub, eu) = (story.rows_of(&Cluster::Hub), story.rows_of(&eu_cluster()));
    story.list(&Cluster::Hub, HUB_KINDS, hub);
    let effects = story.list(&eu_cluster(), MEMBER_KINDS, eu);
    let all = writes(&effects);
    assert!(all.iter().any(|(_, a)| a.cluster() == Cluster::Hub && body(a)["spec"]["claims"][bucket_unit()] == 7));
}

#[test]
fn stamps_of_other_units_are_kept_and_never_compared() {
    let stamp = json!({"rayfleet.io/root": "RayJob/n/train", "rayfleet.io/placement-generation": "1",
        "rayfleet.io/stamps": "{\"m-eu-9\": 77}"});
    let mut story = running();
    let stamped = mirror_with(120, stamp);
    story.once(Which::RayJob, does(vec![replace(eu_cluster(), &stamped, |_| {})]));
    let (_, action) = only_write(&story.see(&eu_cluster(), stamped));
    assert_eq!(stamps(&action), json!({"m-eu-9": 77, bucket_unit(): 5}));
    assert_eq!(body(&action)["metadata"]["uid"], "u-mirror");
    assert_eq!(body(&action)["metadata"]["resourceVersion"], "120");
}

#[test]
fn what_is_created_on_a_member_carries_root_id_fleet_id_and_stamp() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, action) = only_write(&story.see(&eu_cluster(), mirror(120)));
    let metadata = &body(&action)["metadata"];
    assert_eq!(metadata["labels"]["rayfleet.io/root-id"], "r-1");
    assert_eq!(metadata["annotations"]["rayfleet.io/fleet-id"], "fleet");
    assert_eq!(stamps(&action), json!({bucket_unit(): 5}));
    // Pods of a Job are made by others, and are ours all the same.
    let id = Id::new(Kind::Job, "n", "job");
    let job = Action::Create { cluster: eu_cluster(), id, body: json!({"spec": {"template": {"spec": {}}}}) };
    story.once(Which::RayJob, does(vec![job]));
    story.tell(Input::Done(ticket, ok(121)));
    let (_, action) = only_write(&story.see(&eu_cluster(), pod("a", "u-mirror", 121)));
    assert_eq!(
        body(&action)["spec"]["template"]["metadata"],
        json!({"annotations": {"rayfleet.io/fleet-id": "fleet"}})
    );
    // What was applied straight to the member looks as KubeRay would have made it, but for the stamp.
    let own = row(Kind::RayJob, json!({"metadata": {"name": "own"}}), 130);
    story.once(Which::RayJob, does(vec![create_pod("b")]));
    let (_, action) = only_write(&story.see(&eu_cluster(), own));
    let metadata = &body(&action)["metadata"];
    assert_eq!(metadata.get("labels"), None);
    assert_eq!(metadata["annotations"].as_object().unwrap().len(), 1);
}

#[test]
fn in_a_new_epoch_the_object_is_stamped_before_a_status_that_decides() {
    let status = |row: &Row| Action::Status {
        cluster: eu_cluster(),
        id: row.id.clone(),
        body: json!({"metadata": {"name": "train"}, "status": {"jobId": "j"}}),
        seen: Precondition::from(row),
        decision: true,
    };
    let mut story = running();
    let bare = mirror(120);
    story.once(Which::RayJob, does(vec![status(&bare)]));
    let (_, action) = only_write(&story.see(&eu_cluster(), bare));
    assert!(matches!(action, Action::Replace { .. }));
    assert_eq!(stamps(&action), json!({bucket_unit(): 5}));

    let mut story = running();
    let stamp = json!({"rayfleet.io/root": "RayJob/n/train", "rayfleet.io/placement-generation": "1",
        "rayfleet.io/stamps": json!({bucket_unit(): 5}).to_string()});
    let stamped = mirror_with(120, stamp);
    story.once(Which::RayJob, does(vec![status(&stamped)]));
    let (_, action) = only_write(&story.see(&eu_cluster(), stamped));
    assert!(matches!(&action, Action::Status { .. }));
    assert_eq!(body(&action)["metadata"]["resourceVersion"], "120");
}

#[test]
fn nothing_is_deleted_on_old_sight() {
    let mut story = running();
    story.later(16_000);
    let victim = pod("p", "u-train-abcde", 7);
    let plan = delete(&victim);
    story.plan(Which::RayJob, move |_, _| does(vec![plan.clone()]));
    let effects = story.see(&eu_cluster(), mirror(120));
    assert!(writes(&effects).is_empty());
    assert_eq!(relists(&effects), [(eu_cluster(), [Kind::Pod].into())]);
    story.later(5);
    let effects = story.list(&eu_cluster(), &[Kind::Pod], vec![victim]);
    assert!(matches!(only_write(&effects).1, Action::Delete { .. }));
}

#[test]
fn a_list_that_a_plan_asks_for_comes_before_the_next_look() {
    let mut story = running();
    let since = story.now;
    story.plan(Which::Bound, move |_, _| Plan { relist: vec![(Kind::Pod, since)], ..Plan::default() });
    let effects = story.see(&Cluster::Hub, root(120));
    assert_eq!(relists(&effects), [(eu_cluster(), [Kind::Pod].into())]);
    story.looks();
    story.see(&Cluster::Hub, root(121));
    assert!(!story.looked(Which::Bound));
    story.list(&eu_cluster(), &[Kind::Pod], vec![]);
    assert!(story.looked(Which::Bound));
    // The wish is met: it is not asked for again.
    assert!(relists(&story.see(&Cluster::Hub, root(122))).is_empty());
    assert!(story.looked(Which::Bound));
}

#[test]
fn a_read_that_plans_ask_for_is_made_once_and_kept() {
    let mut story = running();
    let secret = Id::new(Kind::Secret, "n", "token");
    let wanted = Fetch { cluster: Cluster::Hub, id: secret.clone(), not_before: story.now };
    story.plan(Which::Bound, move |_, _| Plan { fetch: vec![wanted.clone()], ..Plan::default() });
    let effects = story.see(&Cluster::Hub, root(120));
    let [(ticket, _)] = fetches(&effects)[..] else { unreachable!("one read") };
    story.looks();
    let begun = story.now;
    let effects = story.tell(Input::Fetched(ticket, begun, Ok(Some(Arc::new(json!({"data": {}}))))));
    assert!(fetches(&effects).is_empty() && story.looked(Which::Bound));
    let kept = &story.engine.fetched[&(Cluster::Hub, secret.clone())];
    assert!(kept.body.is_some() && kept.begun == begun);
    story.later(700_000);
    assert!(!story.engine.fetched.contains_key(&(Cluster::Hub, secret)), "nobody uses it any more");
}

#[test]
fn a_read_that_failed_is_shown_and_tried_again_after_a_while() {
    let mut story = running();
    let secret = Id::new(Kind::Secret, "n", "token");
    let wanted = Fetch { cluster: Cluster::Hub, id: secret.clone(), not_before: story.now };
    story.plan(Which::Bound, move |_, _| Plan { fetch: vec![wanted.clone()], ..Plan::default() });
    let effects = story.see(&Cluster::Hub, root(120));
    let [(ticket, _)] = fetches(&effects)[..] else { unreachable!("one read") };
    let effects = story.tell(Input::Fetched(ticket, story.now, Err("403".into())));
    assert!(fetches(&effects).is_empty());
    assert_eq!(story.engine.fetched[&(Cluster::Hub, secret)].error.as_deref(), Some("403"));
    assert!(fetches(&story.later(4_000)).is_empty());
    assert_eq!(fetches(&story.later(1_000)).len(), 1);
}

#[test]
fn a_dashboards_answers_stand_in_the_table_until_nobody_asks_any_more() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![ask(Question::Job { job: "j".into() })]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.looks();
    story.tell(Input::Ray(ticket, RayOutcome::Job(JobAnswer::NotFound)));
    assert!(story.looked(Which::RayJob));
    let job = (eu(), dashboard(), Arc::from("j"));
    assert_eq!(story.engine.rays.jobs[&job].answer, Some((story.now, JobAnswer::NotFound)));
    story.later(700_000);
    assert!(!story.engine.rays.jobs.contains_key(&job));
}

#[test]
fn a_submission_without_an_answer_is_unknown_and_one_not_sent_is_not() {
    for (outcome, wanted) in [
        (lost(), SubmitOutcome::Unknown("cut off".into())),
        (Outcome::NotSent("no authority".into()), SubmitOutcome::Refused("not sent: no authority".into())),
    ] {
        let unknown = matches!(wanted, SubmitOutcome::Unknown(_));
        let mut story = running();
        story.once(Which::RayJob, does(vec![ask(Question::Submit { job: "j".into(), body: json!({}) })]));
        let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
        story.tell(Input::Done(ticket, outcome));
        let view = &story.engine.rays.jobs[&(eu(), dashboard(), Arc::from("j"))];
        assert_eq!(view.submitted, Some((story.now, wanted)));
        // A submission that may still arrive starts work: the generation is clean no more.
        let withdraw = |b: &mut Value| b["spec"]["stage"] = json!("Withdrawing");
        let plan = replace(Cluster::Hub, &placement("Running", 4), withdraw);
        story.plan(Which::Bound, move |seen, _| {
            assert_eq!(seen.me.unknown, unknown);
            does(vec![plan.clone()])
        });
        let (_, action) = only_write(&story.see(&Cluster::Hub, root(121)));
        assert_eq!(body(&action)["spec"].get("unclean"), unknown.then_some(&json!(true)));
    }
}

#[test]
fn a_submission_whose_answer_is_lost_time_and_again_is_repeated_ever_later() {
    let mut story = running();
    story.plan(Which::RayJob, |_, _| does(vec![ask(Question::Submit { job: "j".into(), body: json!({}) })]));
    let (mut ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let begun = story.now;
        story.tell(Input::Ray(ticket, RayOutcome::Submit(SubmitOutcome::Unknown("503: EOF".into()))));
        ticket = loop {
            if let Some((again, _)) = writes(&story.later(10)).first() {
                break *again;
            }
        };
        pauses.push(story.now.0 - begun.0);
    }
    assert!(pauses[7] >= 6_400, "{pauses:?}");
    let entry = story.engine.why(&Key { cluster: eu_cluster(), id: mirror(1).id }).unwrap();
    assert!(entry.trouble.as_ref().is_some_and(|t| t.contains("503: EOF")), "{entry:?}");
    story.tell(Input::Ray(ticket, RayOutcome::Submit(SubmitOutcome::Exists)));
    let entry = story.engine.why(&Key { cluster: eu_cluster(), id: mirror(1).id }).unwrap();
    assert_eq!((entry.failures, &entry.trouble), (0, &None));
}

#[test]
fn a_lost_stop_is_repeated_and_leaves_the_generation_clean() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![ask(Question::Stop { job: "j".into() })]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.tell(Input::Done(ticket, lost()));
    let looked = Arc::new(Mutex::new(false));
    let seen_clean = looked.clone();
    story.plan(Which::RayJob, move |seen, _| {
        *seen_clean.lock().unwrap() = !seen.me.unknown;
        Plan::default()
    });
    story.later(3_000);
    assert!(*looked.lock().unwrap());
}

#[test]
fn a_refused_write_is_told_and_tried_again_ever_later() {
    let mut story = running();
    story.plan(Which::RayJob, |_, _| does(vec![create_pod("a")]));
    let (mut ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let effects = story.tell(Input::Done(ticket, Outcome::Refused(403, "quota".into())));
        let note = effects.iter().find_map(|e| if let Effect::Record(note) = e { Some(note) } else { None });
        assert!(note.is_some_and(|n| n.warning && n.note.contains("quota")), "{effects:?}");
        assert!(writes(&story.see(&eu_cluster(), pod("other", "u-mirror", story.version + 1))).is_empty());
        let begun = story.now;
        let retried = loop {
            let effects = story.later(10);
            if let Some((retried, _)) = writes(&effects).first() {
                break *retried;
            }
        };
        pauses.push(story.now.0 - begun.0);
        ticket = retried;
    }
    assert!(pauses[0] <= 120 && pauses[5] >= 1_600, "{pauses:?}");
    let key = Key { cluster: eu_cluster(), id: mirror(1).id };
    assert_eq!(story.engine.why(&key).unwrap().failures, 6);
}

#[test]
fn values_of_secrets_are_not_repeated_from_refusals() {
    let mut story = running();
    let id = Id::new(Kind::Secret, "n", "token");
    let body = json!({"metadata": {"name": "token"}});
    for outcome in [Outcome::Refused, |code, words| Outcome::Unknown(Some(code), words)] {
        let create = Action::Create { cluster: eu_cluster(), id: id.clone(), body: body.clone() };
        story.once(Which::RayJob, does(vec![create]));
        let mut effects = story.see(&eu_cluster(), mirror(story.version + 1));
        effects.extend(story.later(1_000));
        let (ticket, _) = only_write(&effects);
        let effects = story.tell(Input::Done(ticket, outcome(500, "data: hunter2 is no base64".into())));
        let told = format!("{effects:?} {:?}", story.engine.journal().collect::<Vec<_>>());
        assert!(!told.contains("hunter2") && told.contains("500"), "{told}");
    }
}

#[test]
fn events_are_told_once_what_they_tell_of_has_happened() {
    let event = |about: &Row| Note {
        cluster: eu_cluster(),
        about: about.id.clone(),
        uid: about.uid.clone(),
        warning: false,
        reason: "Created".into(),
        action: "Create".into(),
        note: "made a pod".into(),
    };
    let told = |effects: &[Effect]| effects.iter().any(|e| matches!(e, Effect::Record(n) if n.note == "made a pod"));
    for (outcome, wanted) in [(ok(0), true), (Outcome::Exists, false), (lost(), false)] {
        let mut story = running();
        story.once(Which::RayJob, Plan { events: vec![event(&mirror(1))], ..does(vec![create_pod("a")]) });
        let effects = story.see(&eu_cluster(), mirror(120));
        assert!(!told(&effects));
        let (ticket, _) = only_write(&effects);
        assert_eq!(told(&story.tell(Input::Done(ticket, outcome.clone()))), wanted, "{outcome:?}");
    }
}

#[test]
fn a_new_generation_begins_with_a_clean_memory() {
    let mut story = running();
    story.once(Which::RayJob, does(vec![create_pod("a")]));
    let (ticket, _) = only_write(&story.see(&eu_cluster(), mirror(120)));
    story.tell(Input::Done(ticket, ok(0)));
    story.plan(Which::Reserve, |seen, _| {
        assert!(!seen.me.sent && !seen.me.unknown);
        Plan { why: Why::new("fresh"), ..Plan::default() }
    });
    story.looks();
    story.see(&Cluster::Hub, placement_with("Reserving", 130, json!({"generation": 2})));
    assert!(story.looked(Which::Reserve));
}

#[test]
fn a_queue_binds_one_object_and_sees_it_before_it_binds_the_next() {
    let object = |name: &str, version| {
        row(Kind::RayJob, json!({"metadata": {"name": name, "labels": {"volcano.sh/queue-name": "ml"}}}), version)
    };
    let waiting = |name: &str, stage: &str, version| {
        let spec = json!({"root": {"kind": "RayJob", "name": name, "uid": format!("u-{name}"), "rootId": name},
            "queue": "ml", "stage": stage, "generation": 0, "member": "eu"});
        row(Kind::Placement, json!({"metadata": {"name": format!("rayjob-{name}")}, "spec": spec}), version)
    };
    let hub = vec![object("a", 2), object("b", 3), waiting("a", "Waiting", 4), waiting("b", "Waiting", 5)];
    let mut story = Story::ready_with(hub, vec![]);
    story.plan(Which::Place, |seen, id| {
        let placement = seen.hub.get(&Id::new(Kind::Placement, "n", format!("rayjob-{}", id.name).as_str())).unwrap();
        does(vec![replace(Cluster::Hub, placement, |body| body["spec"]["stage"] = json!("Reserving"))])
    });
    let (ticket, first) = only_write(&story.see(&Cluster::Hub, object("a", 110)));
    assert!(writes(&story.see(&Cluster::Hub, object("b", 111))).is_empty(), "the first one is under way");
    story.tell(Input::Done(ticket, ok(120)));
    assert!(writes(&story.later(100)).is_empty(), "the first one is not in sight");
    let mut then = story.see(&Cluster::Hub, waiting("a", "Reserving", 120));
    then.extend(story.later(100));
    let (_, second) = only_write(&then);
    assert_eq!(body(&first)["metadata"]["name"], "rayjob-a");
    assert_eq!(body(&second)["metadata"]["name"], "rayjob-b");
}
