//! Questions about users and rights, which are answered and not kept: reviews of access, of rules, of tokens, of oneself.
//! Must not know how a decision is made.

use serde_json::{Map, Value, json};

use super::attributes::{Attributes, Object, Resource};
use super::{User, rbac};
use crate::sandbox::apiserver::body;
use crate::sandbox::apiserver::cause::Cause;
use crate::sandbox::apiserver::server::{ApiServer, Call, Outcome};
use crate::sandbox::apiserver::status_reply::{Refused, bad_request, invalid_object, not_built};
use crate::sandbox::apiserver::write::write_options;

impl ApiServer {
    /// POST of a review.
    pub(in crate::sandbox::apiserver) fn review(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let ty = call.ty();
        if !self.authenticates() {
            return Err(not_built(&format!("the call {}", ty.qualified())));
        }
        let checks = write_options(call, "CreateOptions")?;
        let body = body::object(call.request, ty)?;
        let mut review = self.take_in(call, body, checks)?;
        Self::place_namespace(call, &mut review)?;
        let user = self.asker();
        review["status"] = match ty.kind.as_str() {
            "SelfSubjectReview" => {
                review["metadata"]["creationTimestamp"] = call.now.seconds_text().into();
                json!({"userInfo": shown(&user)})
            }
            "SelfSubjectRulesReview" => {
                let status = self.rules_status(&user, &review)?;
                // The real server does not say the question again.
                review["spec"] = json!({});
                status
            }
            "TokenReview" => self.token_status(call, &review)?,
            "SelfSubjectAccessReview" => {
                check_access(call, &review, false)?;
                self.access_status(&user, &review["spec"])
            }
            "SubjectAccessReview" | "LocalSubjectAccessReview" => {
                check_access(call, &review, true)?;
                self.access_status(&subject(&review["spec"]), &review["spec"])
            }
            _ => return Err(not_built(&format!("the call {}", ty.qualified()))),
        };
        Ok(Outcome::Value(201, review))
    }

    fn access_status(&self, user: &User, spec: &Value) -> Value {
        let decision = self.decide(user, &asked(spec));
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = decision.reason.into();
        }
        status
    }

    fn rules_status(&self, user: &User, review: &Value) -> Result<Value, Refused> {
        let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
        if namespace.is_empty() {
            return Err(bad_request("no namespace on request"));
        }
        let (rules, missing) = self.rules_of(user, namespace);
        let of = |field: &str, fields: &[&str]| -> Vec<Value> {
            let wanted = rules.iter().filter(|r| rbac::texts(r, field).next().is_some());
            wanted.map(|r| part(r, fields)).collect()
        };
        let mut status = json!({
            "resourceRules": of("resources", &["verbs", "apiGroups", "resources", "resourceNames"]),
            "nonResourceRules": of("nonResourceURLs", &["verbs", "nonResourceURLs"]),
            "incomplete": !missing.is_empty(),
        });
        if !missing.is_empty() {
            status["evaluationError"] = missing.join(", ").into();
        }
        Ok(status)
    }

    fn token_status(&mut self, call: &Call, review: &Value) -> Result<Value, Refused> {
        let spec = &review["spec"];
        let token = spec["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            return Err(bad_request("token is required for TokenReview in authentication"));
        }
        let audiences: Vec<String> = rbac::texts(spec, "audiences").map(str::to_owned).collect();
        Ok(match self.bearing(token, &audiences, call.now) {
            Some(bearing) => {
                json!({"authenticated": true, "user": shown(&bearing.user), "audiences": bearing.audiences})
            }
            None => json!({"user": {}, "error": "invalid bearer token"}),
        })
    }
}

/// Some fields of an object, those that are there and not empty.
fn part(of: &Value, fields: &[&str]) -> Value {
    let there = |v: &&Value| v.as_array().is_none_or(|list| !list.is_empty());
    let found = fields.iter().filter_map(|f| of.get(*f).filter(there).map(|v| ((*f).to_owned(), v.clone())));
    Value::Object(found.collect::<Map<_, _>>())
}

/// A user as answers show him.
fn shown(user: &User) -> Value {
    let mut out = json!({"username": user.name});
    if !user.uid.is_empty() {
        out["uid"] = user.uid.clone().into();
    }
    if !user.groups.is_empty() {
        out["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        out["extra"] = json!(user.extra);
    }
    out
}

/// Whom a SubjectAccessReview asks about.
fn subject(spec: &Value) -> User {
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text("user"),
        uid: text("uid"),
        groups: rbac::texts(spec, "groups").map(str::to_owned).collect(),
        extra: extra.map(|(k, _)| (k.clone(), rbac::texts(&spec["extra"], k).map(str::to_owned).collect())).collect(),
    }
}

/// What an access review asks about; it has been checked.
fn asked(spec: &Value) -> Attributes {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    if resource.is_null() {
        return Attributes { verb: text(path, "verb"), object: Object::Path(text(path, "path")) };
    }
    Attributes {
        verb: text(resource, "verb"),
        object: Object::Resource(Resource {
            group: text(resource, "group"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
        }),
    }
}

/// Checks an access review; one of a subject must name him.
fn check_access(call: &Call, review: &Value, of_subject: bool) -> Result<(), Refused> {
    let (spec, metadata) = (&review["spec"], &review["metadata"]);
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut causes = Vec::new();
    match (resource.is_null(), path.is_null()) {
        (false, false) => {
            let why = "cannot be specified in combination with resourceAttributes";
            causes.push(Cause::invalid("spec.nonResourceAttributes", path, why));
        }
        (true, true) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            causes.push(Cause::invalid("spec.resourceAttributes", &Value::Null, why));
        }
        _ => {}
    }
    let nobody = spec["user"].as_str().is_none_or(str::is_empty) && rbac::texts(spec, "groups").next().is_none();
    if of_subject && nobody {
        causes.push(Cause::invalid("spec.user", &"".into(), "at least one of user or group must be specified"));
    }
    let local = call.ty().namespaced;
    let mut fields = metadata.as_object().into_iter().flatten();
    if fields.any(|(field, _)| field != "managedFields" && !(local && field == "namespace")) {
        let why = if local { "must be empty except for namespace" } else { "must be empty" };
        causes.push(Cause::invalid("metadata", metadata, why));
    }
    if local {
        let inner = resource["namespace"].as_str().unwrap_or_default();
        if !resource.is_null() && inner != call.place.namespace {
            let why = "must match metadata.namespace";
            causes.push(Cause::invalid("spec.resourceAttributes.namespace", &inner.into(), why));
        }
        if !path.is_null() {
            let why = "disallowed on this kind of request";
            causes.push(Cause::invalid("spec.nonResourceAttributes", path, why));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(invalid_object(&call.ty().group, "", "", &causes)) }
}
