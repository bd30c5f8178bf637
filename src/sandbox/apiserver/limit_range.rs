//! LimitRanges: what they put into the containers of a Pod, and which amounts they refuse (the admission plugin
//! `LimitRanger`; recorded in `wire/limit-range`).
//! Must not know the store.

use serde_json::{Map, Value, json};

use super::pod_resources::{Amounts, amounts, of_pod};

/// Where a Pod tells what was put into it.
const SAID: &str = "kubernetes.io/limit-ranger";

/// The limits of a LimitRange for things of this kind.
fn limits<'a>(ranges: &'a [&Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = ranges.iter().flat_map(|range| range["spec"]["limits"].as_array().into_iter().flatten());
    all.filter(move |limit| limit["type"] == kind)
}

/// What a server fills into a LimitRange: for containers a maximum is the default limit, which is the default request.
pub(super) fn fill_range(range: &mut Value) {
    let limits = range["spec"]["limits"].as_array_mut().into_iter().flatten();
    for limit in limits.filter(|limit| limit["type"] == "Container") {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(from) = limit[from].as_object().cloned() else { continue };
            if !limit[to].is_object() {
                limit[to] = json!({});
            }
            for (name, amount) in from {
                if limit[to].get(&name).is_none() {
                    limit[to][name] = amount;
                }
            }
        }
    }
}

/// Fills requests and limits that containers do not have, and says so in an annotation.
pub(super) fn fill_pod(ranges: &[&Value], pod: &mut Value) {
    let mut requests = Map::new();
    let mut most = Map::new();
    for limit in limits(ranges, "Container") {
        for (from, to) in [("defaultRequest", &mut requests), ("default", &mut most)] {
            for (name, amount) in limit[from].as_object().into_iter().flatten() {
                to.entry(name.clone()).or_insert_with(|| amount.clone());
            }
        }
    }
    let mut said = Vec::new();
    for (field, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"].get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            // A limit without a request is the request too: that comes before any default.
            copy_missing(&container["resources"]["limits"].clone(), &mut container["resources"], "requests");
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (from, to, word) in [(&requests, "requests", "request"), (&most, "limits", "limit")] {
                let put = copy_missing(&Value::Object(from.clone()), &mut container["resources"], to);
                if !put.is_empty() {
                    said.push(format!("{} {word} for {what} {name}", put.join(", ")));
                }
            }
        }
    }
    if !said.is_empty() {
        pod["metadata"]["annotations"][SAID] = format!("LimitRanger plugin set: {}", said.join("; ")).into();
    }
}

/// Puts amounts where there are none; names what it put.
fn copy_missing(from: &Value, resources: &mut Value, to: &str) -> Vec<String> {
    let mut put = Vec::new();
    for (name, amount) in from.as_object().into_iter().flatten() {
        if resources[to].get(name).is_none() {
            resources[to][name.as_str()] = amount.clone();
            put.push(name.clone());
        }
    }
    put
}

/// Every amount that a LimitRange refuses, in words.
pub(super) fn refusals(ranges: &[&Value], kind: &str, object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    match kind {
        "Pod" => {
            let list = |field: &str| object["spec"][field].as_array().into_iter().flatten();
            let of = |container: &Value| {
                (amounts(&container["resources"]["requests"]), amounts(&container["resources"]["limits"]))
            };
            for limit in limits(ranges, "Container") {
                for container in list("containers").chain(list("initContainers")) {
                    let (requests, most) = of(container);
                    check(limit, "Container", &requests, Some(&most), &mut out);
                }
            }
            for limit in limits(ranges, "Pod") {
                let [requests, most] = ["requests", "limits"].map(|field| of_pod(object, field));
                check(limit, "Pod", &requests, Some(&most), &mut out);
            }
        }
        "PersistentVolumeClaim" => {
            let requests = amounts(&object["spec"]["resources"]["requests"]);
            for limit in limits(ranges, kind) {
                check(limit, kind, &requests, None, &mut out);
            }
        }
        _ => {}
    }
    out
}

/// `most`: limits; `None` for a claim, which has none: there the request counts alone.
fn check(limit: &Value, of: &str, requests: &Amounts, most: Option<&Amounts>, out: &mut Vec<String>) {
    let limit_of = |name: &str| most.and_then(|most| most.get(name));
    for (name, least) in amounts(&limit["min"]) {
        let rule = format!("minimum {name} usage per {of} is {least}");
        match (requests.get(&name), limit_of(&name)) {
            (None, _) => out.push(format!("{rule}.  No request is specified")),
            (Some(request), _) if *request < least => out.push(format!("{rule}, but request is {request}")),
            (_, Some(limit)) if *limit < least => out.push(format!("{rule}, but limit is {limit}")),
            _ => {}
        }
    }
    for (name, bound) in amounts(&limit["max"]) {
        let rule = format!("maximum {name} usage per {of} is {bound}");
        match (requests.get(&name), limit_of(&name)) {
            (_, None) if most.is_some() => out.push(format!("{rule}.  No limit is specified")),
            (_, Some(limit)) if *limit > bound => out.push(format!("{rule}, but limit is {limit}")),
            (Some(request), _) if *request > bound => out.push(format!("{rule}, but request is {request}")),
            _ => {}
        }
    }
    for (name, ratio) in amounts(&limit["maxLimitRequestRatio"]) {
        let rule = format!("{name} max limit to request ratio per {of} is {ratio}");
        match (requests.get(&name).filter(|request| !request.is_zero()), limit_of(&name)) {
            (None, _) => out.push(format!("{rule}, but no request is specified or request is 0")),
            (_, None) => out.push(format!("{rule}, but no limit is specified or limit is 0")),
            // Compared as products: nothing is rounded.
            (Some(request), Some(limit)) => {
                let allowed = ratio.nanos().saturating_mul(request.nanos());
                if limit.nanos().saturating_mul(1_000_000_000) > allowed {
                    let provided = limit.nanos() as f64 / request.nanos() as f64;
                    out.push(format!("{rule}, but provided ratio is {provided:.6}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limits: Value) -> Value {
        json!({ "spec": { "limits": [limits] } })
    }

    fn pod(resources: Value) -> Value {
        json!({ "metadata": {}, "spec": { "containers": [{ "name": "c", "resources": resources }] } })
    }

    #[test]
    fn a_maximum_is_the_default_limit_and_that_the_default_request() {
        let mut range = range(json!({ "type": "Container", "max": { "cpu": "2" }, "min": { "memory": "1Gi" } }));
        fill_range(&mut range);
        let limit = &range["spec"]["limits"][0];
        assert_eq!(limit["default"], json!({ "cpu": "2" }));
        assert_eq!(limit["defaultRequest"], json!({ "cpu": "2", "memory": "1Gi" }));
    }

    #[test]
    fn a_container_keeps_what_it_says_and_its_limit_is_its_request() {
        let range = range(json!({ "type": "Container", "default": { "cpu": "2", "memory": "1Gi" },
                                  "defaultRequest": { "cpu": "1" } }));
        let mut pod = pod(json!({ "limits": { "cpu": "3" } }));
        fill_pod(&[&range], &mut pod);
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(resources["limits"], json!({ "cpu": "3", "memory": "1Gi" }));
        assert_eq!(resources["requests"], json!({ "cpu": "3" }));
        assert_eq!(pod["metadata"]["annotations"][SAID], "LimitRanger plugin set: memory limit for container c");
    }

    #[test]
    fn amounts_beyond_a_limit_are_refused_in_words() {
        let cases = [
            (
                json!({ "max": { "cpu": "1" } }),
                json!({}),
                "maximum cpu usage per Container is 1.  No limit is specified",
            ),
            (
                json!({ "max": { "cpu": "1" } }),
                json!({ "limits": { "cpu": "1500m" } }),
                "maximum cpu usage per Container is 1, but limit is 1500m",
            ),
            (
                json!({ "min": { "cpu": "1" } }),
                json!({ "requests": { "cpu": "10m" } }),
                "minimum cpu usage per Container is 1, but request is 10m",
            ),
            (
                json!({ "min": { "cpu": "1" } }),
                json!({}),
                "minimum cpu usage per Container is 1.  No request is specified",
            ),
            (
                json!({ "maxLimitRequestRatio": { "cpu": "2" } }),
                json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "5" } }),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 5.000000",
            ),
        ];
        for (mut limit, resources, says) in cases {
            limit["type"] = json!("Container");
            assert_eq!(refusals(&[&range(limit)], "Pod", &pod(resources)), [says]);
        }
        let within =
            range(json!({ "type": "Container", "max": { "cpu": "1" }, "maxLimitRequestRatio": { "cpu": "2" } }));
        let fits = pod(json!({ "requests": { "cpu": "500m" }, "limits": { "cpu": "1" } }));
        assert_eq!(refusals(&[&within], "Pod", &fits), Vec::<String>::new());
    }

    #[test]
    fn the_containers_of_a_pod_count_together_and_init_containers_by_the_largest() {
        let range = range(json!({ "type": "Pod", "max": { "cpu": "2" } }));
        let container = |cpu: &str| json!({ "name": "c", "resources": { "limits": { "cpu": cpu } } });
        let pod = |init: &str| {
            json!({ "spec": { "containers": [container("1"), container("1")],
                                                 "initContainers": [container(init)] } })
        };
        assert_eq!(refusals(&[&range], "Pod", &pod("2")), Vec::<String>::new());
        assert_eq!(refusals(&[&range], "Pod", &pod("3")), ["maximum cpu usage per Pod is 2, but limit is 3"]);
    }
}
