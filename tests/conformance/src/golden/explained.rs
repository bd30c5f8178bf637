//! Differences that are meant to be, one entry each: of which kind, where, what makes ours the operator's, and why.
//! Must not know cases.

use std::collections::BTreeMap;

use serde_json::Value;

use super::recording::Write;
use super::rewrites;

/// A difference, as entries see it.
pub(super) enum Differs<'a> {
    /// A value in a body, an object or an Event.
    Value {
        /// Kind of the object.
        kind: &'a str,
        /// Pointer in it, with `-` for every number.
        pointer: &'a str,
        /// Ours.
        ours: Option<&'a Value>,
        /// The recorded one.
        theirs: Option<&'a Value>,
    },
    /// A write that only one side has.
    Write {
        /// It is ours.
        is_extra: bool,
        /// Its place among the writes of its controller in this round.
        at: usize,
        /// These writes.
        side: &'a [&'a Write],
        /// The other side's.
        others: &'a [&'a Write],
    },
    /// The same write by another verb.
    Verb {
        /// Ours.
        ours: &'a Write,
        /// The recorded one.
        theirs: &'a Write,
    },
    /// A question or order to Ray that only one side has.
    Ask {
        /// It is ours.
        is_extra: bool,
        /// The request.
        ask: &'a Value,
    },
}

/// One entry.
pub struct Entry {
    /// Kind of object.
    pub kind: &'static str,
    /// JSON pointer (`-` for every number) or class of write.
    pub at: &'static str,
    /// Why a maintainer of the operator would take it as right.
    pub reason: &'static str,
    /// Makes ours what is recorded. `true`: it does.
    rewrite: fn(&Differs<'_>) -> bool,
}

/// All entries: at most fifteen.
pub const ENTRIES: &[Entry] = &[
    Entry {
        kind: "*",
        at: "/**/{rayStartParams,metadata,scaleStrategy,resources,loadBalancer,rayJobInfo,head,failed,succeeded}",
        reason: "Go writes a map, a struct or a number that is not behind a pointer also where nobody set it; to the API \
                 server it is the same as none",
        rewrite: rewrites::go_writes_zero,
    },
    Entry {
        kind: "*",
        at: "/**/{ttlSecondsAfterFinished,ttlSeconds,suspend,hostNetwork,jobId,finalizers,minMember}",
        reason: "Go leaves out a zero; where the server had filled it in, it does so again",
        rewrite: rewrites::go_leaves_zero_out,
    },
    Entry {
        kind: "RayJob, RayCluster",
        at: "/{metadata/generation,status/observedGeneration}",
        reason: "the operator's first update adds what Go writes unasked, a change of the spec that means nothing; ours \
                 changes the finalizer alone",
        rewrite: rewrites::generation,
    },
    Entry {
        kind: "Delete",
        at: "/{preconditions,propagationPolicy}",
        reason: "every deletion names the incarnation that was seen (report R01); Background is what the server does \
                 unasked for these kinds",
        rewrite: rewrites::delete_options,
    },
    Entry {
        kind: "Event",
        at: "/note",
        reason: "the note is a sentence for people; type, reason, action, controller and object are compared",
        rewrite: rewrites::note,
    },
    Entry {
        kind: "RayCluster, RayJob",
        at: "/status/**/conditions/-/message",
        reason: "the message of a condition is a sentence for people; its type, status and reason are compared",
        rewrite: rewrites::condition_message,
    },
    Entry {
        kind: "RayJob",
        at: "/status/message",
        reason: "of what the controller decides the message is a sentence for people, and the reason is compared; what Ray \
                 says is passed on as it is",
        rewrite: rewrites::job_message,
    },
    Entry {
        kind: "Pod, Job",
        at: "/spec/**/args/-",
        reason: "scripts that wait are our own: they ask the same address as long, and what follows is the operator's; so is \
                 the one that clears Redis, by the same means and what the same variables say",
        rewrite: rewrites::waiting_script,
    },
    Entry {
        kind: "PodGroup, Service",
        at: "update",
        reason: "what changes is patched under the version that was seen: the same change, without sending what others own",
        rewrite: rewrites::patched,
    },
    Entry {
        kind: "Pod, Job",
        at: "/**/metadata/generateName",
        reason: "beside a name that the user's template fixes a prefix has no effect, nor has one for the pods of a Job",
        rewrite: rewrites::useless_prefix,
    },
    Entry {
        kind: "Service",
        at: "/spec/ports",
        reason: "to the ports of a user's own head Service the operator appends the rest in the random order of a Go map",
        rewrite: rewrites::ports_in_any_order,
    },
    Entry {
        kind: "RayCluster",
        at: "update, create, delete",
        reason: "by an old view, or looking for a name that it cut, the operator repeats an update that changes nothing any \
                 more, or a creation or deletion, which the server refuses",
        rewrite: rewrites::repeated,
    },
    Entry {
        kind: "Ray",
        at: "POST /api/jobs/stop",
        reason: "a job that nobody has submitted has no id: there is nothing to stop, and Ray answers 404",
        rewrite: rewrites::stop_of_nothing,
    },
    Entry {
        kind: "RayCluster, RayJob",
        at: "update of /status",
        reason: "an object that has lost a child is read before anything is made for it, and its status says so meanwhile; \
                 the recordings tell the same of an operator whose view is old",
        rewrite: rewrites::status_in_between,
    },
];

/// How often each entry was used.
#[derive(Clone, Debug, Default)]
pub struct Explanations {
    /// By the entry's place.
    pub uses: BTreeMap<usize, usize>,
}

impl Explanations {
    /// Counts the uses of another in.
    pub(super) fn add(&mut self, other: &Explanations) {
        other.uses.iter().for_each(|(at, uses)| *self.uses.entry(*at).or_default() += uses);
    }

    /// Whether an entry makes the two sides equal. It is counted.
    pub(super) fn explain(&mut self, differs: &Differs<'_>) -> bool {
        let Some(at) = ENTRIES.iter().position(|entry| (entry.rewrite)(differs)) else { return false };
        *self.uses.entry(at).or_default() += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(pointer: &str, ours: Option<&Value>, theirs: Option<&Value>) -> bool {
        Explanations::default().explain(&Differs::Value { kind: "RayJob", pointer, ours, theirs })
    }

    #[test]
    fn there_are_at_most_fifteen_and_each_says_why() {
        assert!(ENTRIES.len() <= 15, "{}", ENTRIES.len());
        assert!(ENTRIES.iter().all(|entry| entry.reason.len() > 20 && !entry.at.is_empty()));
    }

    #[test]
    fn a_zero_that_nobody_set_is_explained_and_one_that_says_something_is_not() {
        assert!(value("/status/failed", None, Some(&json!(0))));
        assert!(!value("/status/failed", None, Some(&json!(1))));
        assert!(value("/spec/headGroupSpec/rayStartParams", None, Some(&json!({}))));
        assert!(!value("/spec/headGroupSpec/rayStartParams", None, Some(&json!({ "port": "1" }))));
        assert!(!value("/spec/template/spec/volumes/-/emptyDir", None, Some(&json!({}))));
        assert!(!value("/spec/backoffLimit", None, Some(&json!(0))));
        assert!(value("/spec/suspend", Some(&json!(false)), None));
        assert!(!value("/spec/suspend", Some(&json!(true)), None));
    }

    #[test]
    fn uses_are_counted() {
        let mut explanations = Explanations::default();
        let (ours, theirs) = (json!("a"), json!("b"));
        let differs = Differs::Value { kind: "Event", pointer: "/note", ours: Some(&ours), theirs: Some(&theirs) };
        assert!(explanations.explain(&differs) && explanations.explain(&differs));
        assert_eq!(explanations.uses.values().copied().collect::<Vec<_>>(), [2]);
    }

    fn status(stage: &str, reason: &str) -> Write {
        let conditions = json!([{ "type": "HeadPodReady", "reason": reason, "message": reason }]);
        Write {
            by: "rayjob".into(),
            verb: "update".into(),
            resource: "ray.io/v1/rayjobs".into(),
            subresource: Some("status".into()),
            name: Some("a".into()),
            body: json!({ "status": { "jobDeploymentStatus": stage, "conditions": conditions } }),
            ..Write::default()
        }
    }

    #[test]
    fn a_status_in_between_is_explained_only_where_the_job_stays_what_it_is() {
        let differs = |side: &[&Write]| {
            Explanations::default().explain(&Differs::Write { is_extra: true, at: 0, side, others: &[] })
        };
        let (early, later, other) = (status("Running", "A"), status("Running", "B"), status("Failed", "B"));
        assert!(differs(&[&early, &later]));
        assert!(!differs(&[&early, &other]));
        assert!(!differs(&[&early]), "the last one of a round says how it ends");
    }

    #[test]
    fn a_script_that_waits_for_another_address_is_not_explained() {
        let script =
            |wait: &str, rest: &str| json!(format!("until x.urlopen('http://{wait}/z') ; do sleep 2 ; done ; {rest}"));
        let at = "/spec/template/spec/containers/-/args/-";
        let told = |ours: &Value, theirs: &Value| value(at, Some(ours), Some(theirs));
        assert!(told(
            &script("a", "ray job submit"),
            &json!("until other.urlopen('http://a/z') ; done ; ray job submit")
        ));
        assert!(!told(&script("b", "ray job submit"), &script("a", "ray job submit")));
        assert!(!told(&script("a", "ray job submit --x"), &script("a", "ray job submit")));
    }

    #[test]
    fn a_script_that_clears_redis_is_explained_where_it_reads_the_same_variables() {
        let at = "/spec/template/spec/containers/-/args/-";
        let script = |variables: &str| json!(format!("python -c \"cleanup_redis_storage({variables}, 'rediss')\""));
        let all = "'RAY_REDIS_ADDRESS' 'REDIS_USERNAME' 'REDIS_PASSWORD' 'RAY_external_storage_namespace'";
        assert!(value(at, Some(&script(all)), Some(&script(&format!("x {all}")))));
        assert!(!value(at, Some(&script("'RAY_REDIS_ADDRESS'")), Some(&script(all))));
        assert!(!value(at, Some(&json!("true")), Some(&script(all))));
    }

    #[test]
    fn what_ray_says_is_not_explained() {
        let (ours, theirs) = (json!("it took too long"), json!("The RayJob has passed its deadline"));
        assert!(value("/status/message", Some(&ours), Some(&theirs)));
        assert!(!value(
            "/status/message",
            Some(&json!("Job finished successfully.")),
            Some(&json!("Job is currently running."))
        ));
    }
}
