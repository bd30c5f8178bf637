//! The subresource `serviceaccounts/token`: a token for a ServiceAccount.
//! Must not know how tokens are made.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::sandbox::apiserver::body;
use crate::sandbox::apiserver::cause::Cause;
use crate::sandbox::apiserver::registry::ResourceType;
use crate::sandbox::apiserver::server::{ApiServer, Call, Outcome};
use crate::sandbox::apiserver::status_reply::{Refused, invalid_object, not_built, not_found};
use crate::sandbox::apiserver::write::write_options;

const GROUP: &str = "authentication.k8s.io";
/// Seconds that a token is good for where nobody says so.
const DEFAULT_S: i64 = 3600;
const LEAST_S: i64 = 600;
const MOST_S: i64 = 1 << 32;

impl ApiServer {
    /// POST of a `TokenRequest`.
    pub(in crate::sandbox::apiserver) fn request_token(&mut self, call: &Call) -> Result<Outcome, Refused> {
        let Some(users) = self.options.auth.clone() else {
            return Err(not_built("the subresource serviceaccounts/token"));
        };
        let ty =
            ResourceType { group: GROUP.to_owned(), kind: "TokenRequest".to_owned(), ..ResourceType::clone(call.ty()) };
        let place = crate::sandbox::apiserver::route::Place { ty: Arc::new(ty), ..call.place.clone() };
        let inner = Call { place: &place, applied: None, ..*call };
        let checks = write_options(call, "CreateOptions")?;
        let body = body::object(call.request, &place.ty)?;
        let request = self.take_in(&inner, body, checks)?;
        let name = &call.place.name;
        let account = self.account(&call.place.namespace, name).ok_or_else(|| not_found(call.ty(), name))?;
        let spec = &request["spec"];
        let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_S);
        let why = match seconds {
            ..LEAST_S => Some("may not specify a duration less than 10 minutes"),
            LEAST_S..=MOST_S => None,
            _ => Some("may not specify a duration larger than 2^32 seconds"),
        };
        if let Some(why) = why {
            let cause = Cause::invalid("spec.expirationSeconds", &seconds.into(), why);
            return Err(invalid_object(GROUP, "TokenRequest", "", &[cause]));
        }
        if !spec["boundObjectRef"].is_null() {
            return Err(not_built("a token that is bound to an object"));
        }
        let audiences = match spec["audiences"].as_array() {
            Some(list) if !list.is_empty() => Value::Array(list.clone()),
            _ => json!([users.issuer]),
        };
        let until = crate::api::Time(call.now.0 + seconds * 1000);
        let mut status = json!({"token": "", "expirationTimestamp": until.seconds_text()});
        if !call.dry_run()
            && let Some(token) = self.sign_for(&account, &audiences, seconds, call.now)
        {
            status["token"] = token.into();
        }
        let metadata = json!({
            "name": name, "namespace": call.place.namespace, "uid": account.meta_text("uid"),
            "creationTimestamp": call.now.seconds_text(),
        });
        let spec = json!({"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null});
        Ok(Outcome::Value(
            201,
            json!({"kind": "TokenRequest", "apiVersion": format!("{GROUP}/v1"), "metadata": metadata, "spec": spec,
                "status": status}),
        ))
    }
}
