//! Settings of a member's Volcano scheduler, read from its ConfigMap (specs/volcano.md 0).
//! Must not know what is counted with them.

use std::time::Duration;

use serde_json::Value;

use crate::api::fleet::SchedulerPicture;
use crate::plan::Fetched;

/// Namespace of Volcano.
pub const NAMESPACE: &str = "volcano-system";
/// Where Helm puts the settings.
pub const CONFIG_MAP: &str = "volcano-scheduler-configmap";
/// Key in its data.
const KEY: &str = "volcano-scheduler.conf";
/// The settings are read this often: Volcano reloads them live.
pub const READ_EVERY: Duration = Duration::from_mins(1);

/// What the settings say; Volcano's defaults (proportion, overcommit 1.2) where they cannot be read, and that it is so.
pub fn settings(read: Option<&Fetched>) -> SchedulerPicture {
    let assumed = |why: String| SchedulerPicture {
        queue_plugin: "proportion".to_owned(),
        overcommit_factor: "1.2".to_owned(),
        settings_source: format!("Volcano's defaults are assumed: {why}"),
        ..SchedulerPicture::default()
    };
    let Some(read) = read else { return assumed("its settings were not read".to_owned()) };
    if let Some(error) = &read.error {
        return assumed(format!("ConfigMap {NAMESPACE}/{CONFIG_MAP} cannot be read: {error}"));
    }
    let Some(body) = &read.body else { return assumed(format!("there is no ConfigMap {NAMESPACE}/{CONFIG_MAP}")) };
    let Some(text) = body["data"][KEY].as_str() else { return assumed(format!("{CONFIG_MAP} has no key {KEY}")) };
    match serde_saphyr::from_str::<Value>(text) {
        Ok(settings) => parse(&settings),
        Err(_) => assumed(format!("{KEY} is not YAML")),
    }
}

fn parse(settings: &Value) -> SchedulerPicture {
    let mut picture = SchedulerPicture {
        settings_source: format!("ConfigMap {NAMESPACE}/{CONFIG_MAP}"),
        ..SchedulerPicture::default()
    };
    let mut tiers = (None, None);
    for (tier, plugins) in settings["tiers"].as_array().into_iter().flatten().map(|t| &t["plugins"]).enumerate() {
        for plugin in plugins.as_array().into_iter().flatten() {
            match plugin["name"].as_str().unwrap_or_default() {
                name @ ("capacity" | "proportion") => {
                    name.clone_into(&mut picture.queue_plugin);
                    picture.hierarchy = name == "capacity" && is_true(&plugin["enableHierarchy"]);
                    tiers.0 = Some(tier);
                }
                "overcommit" => {
                    let factor = &plugin["arguments"]["overcommit-factor"];
                    picture.overcommit_factor = factor
                        .as_str()
                        .map_or_else(|| factor.as_f64().map_or("1.2".to_owned(), |f| f.to_string()), str::to_owned);
                    tiers.1 = Some(tier);
                }
                _ => {}
            }
        }
    }
    if let (Some(queue), Some(overcommit)) = tiers
        && overcommit < queue
    {
        picture.settings_source += "; overcommit stands before the queue plugin: Inqueue says nothing of the queue";
    }
    if !settings["actions"].as_str().is_none_or(|actions| actions.split(',').any(|a| a.trim() == "enqueue")) {
        picture.settings_source += "; no enqueue action: Inqueue says nothing";
    }
    picture
}

fn is_true(value: &Value) -> bool {
    value == &Value::Bool(true) || value.as_str() == Some("true")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::Time;

    fn read(text: &str) -> SchedulerPicture {
        let body = Arc::new(json!({"data": {KEY: text}}));
        settings(Some(&Fetched { begun: Time(0), body: Some(body), error: None, failures: 0 }))
    }

    #[test]
    fn plugins_and_factor_are_read_and_traps_are_named() {
        let text = "actions: \"enqueue, allocate\"\ntiers:\n- plugins:\n  - name: gang\n- plugins:\n  - name: overcommit\n    arguments:\n      overcommit-factor: 1.0\n  - name: capacity\n    enableHierarchy: true\n";
        let picture = read(text);
        assert_eq!((&*picture.queue_plugin, &*picture.overcommit_factor, picture.hierarchy), ("capacity", "1", true));
        let trap =
            read("actions: \"allocate\"\ntiers:\n- plugins:\n  - name: overcommit\n- plugins:\n  - name: proportion\n");
        assert!(
            trap.settings_source.contains("no enqueue action")
                && trap.settings_source.contains("before the queue plugin")
        );
        assert_eq!(trap.overcommit_factor, "1.2");
    }

    #[test]
    fn without_settings_the_defaults_are_assumed_and_it_says_so() {
        let picture = settings(Some(&Fetched { begun: Time(0), body: None, error: None, failures: 0 }));
        assert_eq!((&*picture.queue_plugin, &*picture.overcommit_factor), ("proportion", "1.2"));
        assert!(picture.settings_source.contains("assumed"));
    }
}
