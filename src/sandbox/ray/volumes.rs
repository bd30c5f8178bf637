//! Volumes of a pod: their contents as directories of the machine, and what is mounted where in each container.
//! Must not know processes. Writes only below the directory of the pod.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use data_encoding::BASE64;
use serde_json::Value;

use super::order::Mount;
use super::pod::{PodStart, Refusal, containers};
use super::text;

/// Ray's folder in the image; a volume there is the pod's own Ray folder, so it needs no mount to work.
const RAY_TEMP: &str = "/tmp/ray";
/// Shared by the whole machine: object stores of all nodes are bounded instead.
const SHARED_MEMORY: &str = "/dev/shm";
/// Where admission mounts the ServiceAccount's token into every pod. The sandbox issues no tokens, and a mount there
/// would refuse every pod where the machine allows no mounts: pods run as if `automountServiceAccountToken` were off.
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The volume that admission adds to every pod, for clients of the API: no process of a sandbox's pod is one. Left out,
/// so that such a client finds no token rather than a wrong one.
const API_ACCESS: &str = "kube-api-access-";
const API_ACCESS_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A volume of a pod.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    /// Where it is on this machine.
    at: PathBuf,
    /// Everything but an emptyDir, whatever the mount says.
    read_only: bool,
}

/// Writes every volume below `dir`; by name, where it is. `ray_temp` is where the pod's Ray keeps its files.
pub(super) fn write(start: &PodStart, dir: &Path, ray_temp: &Path) -> Result<BTreeMap<String, Volume>, Refusal> {
    let mut written = BTreeMap::new();
    for volume in start.pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let name = text(&volume["name"]);
        if name.starts_with(API_ACCESS) && volume.get("projected").is_some() {
            continue;
        }
        let at = dir.join(name);
        if is_admitted_token(&start.pod, volume) {
            continue;
        }
        if volume.get("emptyDir").is_some() && is_ray_temp(&start.pod, name) {
            written.insert(name.to_owned(), Volume { at: ray_temp.to_owned(), read_only: false });
            continue;
        }
        let failed = |e: std::io::Error| Refusal::Io(format!("volume {name}: {e}"));
        fs::create_dir_all(&at).map_err(failed)?;
        let files = files(start, name, volume)?;
        // A pod's user is the sandbox's user: modes beyond the owner's mean nothing here, but scripts must be runnable.
        for (path, file) in &files {
            let to = at.join(safe(path).ok_or_else(|| Refusal::Unsupported(format!("volume {name}: path {path}")))?);
            put(&to, file).map_err(failed)?;
        }
        written.insert(name.to_owned(), Volume { at, read_only: volume.get("emptyDir").is_none() });
    }
    Ok(written)
}

fn is_ray_temp(pod: &Value, volume: &str) -> bool {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut mounts = containers.filter_map(|c| c["volumeMounts"].as_array()).flatten();
    mounts.any(|m| m["name"] == volume && m["mountPath"] == RAY_TEMP && m["subPath"].is_null())
}

/// The token volume that admission adds, which nothing mounts elsewhere. A token that a user asks for is still refused.
fn is_admitted_token(pod: &Value, volume: &Value) -> bool {
    let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
    let elsewhere = |mount: &Value| mount["name"] == volume["name"] && mount["mountPath"] != TOKEN_FOLDER;
    sources.any(|source| source.get("serviceAccountToken").is_some())
        && !containers(pod).any(|(c, _)| c["volumeMounts"].as_array().into_iter().flatten().any(elsewhere))
}

#[derive(Debug)]
struct File {
    bytes: Vec<u8>,
    mode: u32,
}

type Files = BTreeMap<String, File>;

fn files(start: &PodStart, name: &str, volume: &Value) -> Result<Files, Refusal> {
    if volume.get("emptyDir").is_some() {
        return Ok(Files::new());
    }
    if let Some(map) = volume.get("configMap") {
        return from_object(start, "ConfigMap", text(&map["name"]), map);
    }
    if let Some(secret) = volume.get("secret") {
        return from_object(start, "Secret", text(&secret["secretName"]), secret);
    }
    if let Some(downward) = volume.get("downwardAPI") {
        return from_fields(start, downward);
    }
    let Some(projected) = volume.get("projected") else {
        let kind = volume.as_object().and_then(|v| v.keys().find(|k| *k != "name"));
        let kind = kind.map_or("without a source", String::as_str);
        return Err(Refusal::Unsupported(format!("volume {name}: {kind} volumes are not supported in the sandbox")));
    };
    let mut all = Files::new();
    for source in projected["sources"].as_array().into_iter().flatten() {
        all.extend(if let Some(map) = source.get("configMap") {
            from_object(start, "ConfigMap", text(&map["name"]), map)?
        } else if let Some(secret) = source.get("secret") {
            from_object(start, "Secret", text(&secret["name"]), secret)?
        } else if let Some(downward) = source.get("downwardAPI") {
            from_fields(start, downward)?
        } else {
            let message = format!("volume {name}: tokens and bundles are not supported in the sandbox");
            return Err(Refusal::Unsupported(message));
        });
    }
    Ok(all)
}

fn from_object(start: &PodStart, kind: &'static str, name: &str, source: &Value) -> Result<Files, Refusal> {
    let objects = if kind == "Secret" { &start.secrets } else { &start.config_maps };
    let optional = source["optional"] == true;
    let Some(object) = objects.get(name) else {
        let missing = Refusal::Missing { kind, name: name.to_owned() };
        return if optional { Ok(Files::new()) } else { Err(missing) };
    };
    let data = object_data(object);
    let default = mode(&source["defaultMode"]).unwrap_or(0o644);
    let Some(items) = source["items"].as_array() else {
        return Ok(data.into_iter().map(|(key, bytes)| (key, File { bytes, mode: default })).collect());
    };
    let mut files = Files::new();
    for item in items {
        let key = text(&item["key"]);
        match data.get(key) {
            Some(bytes) => {
                let file = File { bytes: bytes.clone(), mode: mode(&item["mode"]).unwrap_or(default) };
                files.insert(text(&item["path"]).to_owned(), file);
            }
            None if optional => {}
            None => return Err(Refusal::Missing { kind, name: format!("{name} (key {key})") }),
        }
    }
    Ok(files)
}

/// What a ConfigMap or Secret holds, decoded.
pub(super) fn object_data(object: &Value) -> BTreeMap<String, Vec<u8>> {
    let secret = object["kind"] == "Secret" || object.get("type").is_some();
    let mut data = BTreeMap::new();
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        let plain = text(value).as_bytes();
        let bytes = if secret { BASE64.decode(plain).unwrap_or_default() } else { plain.to_vec() };
        data.insert(key.clone(), bytes);
    }
    for (key, value) in object["stringData"].as_object().into_iter().flatten() {
        data.insert(key.clone(), text(value).as_bytes().to_vec());
    }
    for (key, value) in object["binaryData"].as_object().into_iter().flatten() {
        data.insert(key.clone(), BASE64.decode(text(value).as_bytes()).unwrap_or_default());
    }
    data
}

fn from_fields(start: &PodStart, source: &Value) -> Result<Files, Refusal> {
    let default = mode(&source["defaultMode"]).unwrap_or(0o644);
    let mut files = Files::new();
    for item in source["items"].as_array().into_iter().flatten() {
        let path = text(&item["fieldRef"]["fieldPath"]);
        let value = start.field(path).ok_or_else(|| {
            Refusal::Unsupported(format!(
                "the downward API in the sandbox has no {path:?} (resource fields are missing too)"
            ))
        })?;
        let file = File { bytes: value.into_bytes(), mode: mode(&item["mode"]).unwrap_or(default) };
        files.insert(text(&item["path"]).to_owned(), file);
    }
    Ok(files)
}

fn mode(value: &Value) -> Option<u32> {
    value.as_u64().map(|m| m as u32 & 0o777)
}

/// A relative path without a way out.
fn safe(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    let inside = path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    (inside && !path.as_os_str().is_empty()).then_some(path)
}

fn put(to: &Path, file: &File) -> std::io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut open = fs::OpenOptions::new();
    let mut out = open.create(true).write(true).truncate(true).mode(0o600).open(to)?;
    std::io::Write::write_all(&mut out, &file.bytes)?;
    // Nobody else of this machine reads a pod's secrets.
    fs::set_permissions(to, fs::Permissions::from_mode(file.mode & 0o700 | 0o400))
}

/// What of a container needs a mount: volumes at absolute paths, but for the two that the sandbox provides otherwise.
/// With `namespaces` also Ray's folder is mounted, so that people find their logs under `/tmp/ray`.
pub(super) fn mounts(
    container: &Value,
    volumes: &BTreeMap<String, Volume>,
    env: &BTreeMap<String, String>,
    namespaces: bool,
) -> Result<Vec<Mount>, Refusal> {
    let mut mounts = Vec::new();
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let (name, path) = (text(&mount["name"]), text(&mount["mountPath"]));
        let api_access = path == API_ACCESS_PATH && name.starts_with(API_ACCESS) && !volumes.contains_key(name);
        if path == SHARED_MEMORY || (path == RAY_TEMP && !namespaces) || api_access {
            continue;
        }
        let volume = volumes.get(name);
        if volume.is_none() && path == TOKEN_FOLDER {
            continue;
        }
        let volume = volume.ok_or_else(|| Refusal::Unsupported(format!("volumeMount {name}: no such volume")))?;
        let sub = match (mount["subPath"].as_str(), mount["subPathExpr"].as_str()) {
            (Some(sub), _) => sub.to_owned(),
            (None, Some(expression)) => super::pod::expand(expression, env),
            (None, None) => String::new(),
        };
        let source = if sub.is_empty() {
            volume.at.clone()
        } else {
            let sub = safe(&sub).ok_or_else(|| Refusal::Unsupported(format!("volumeMount {name}: subPath {sub}")))?;
            volume.at.join(sub)
        };
        if !source.exists() {
            fs::create_dir_all(&source).map_err(|e| Refusal::Io(format!("volume {name}: {e}")))?;
        }
        mounts.push(Mount { source, target: path.into(), read_only: volume.read_only || mount["readOnly"] == true });
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_token_that_admission_mounts_is_left_out_and_one_that_a_user_mounts_is_not() {
        let volume = json!({"name": "kube-api-access-1", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}});
        let pod = |at: &str| json!({"spec": {"containers": [{"volumeMounts": [{"name": "kube-api-access-1", "mountPath": at}]}]}});
        let admitted = pod(TOKEN_FOLDER);
        assert!(is_admitted_token(&admitted, &volume));
        let container = &admitted["spec"]["containers"][0];
        assert!(mounts(container, &BTreeMap::new(), &BTreeMap::new(), true).unwrap().is_empty());
        assert!(!is_admitted_token(&pod("/mine"), &volume));
        let script = json!({"name": "kube-api-access-1", "configMap": {"name": "script"}});
        assert!(!is_admitted_token(&admitted, &script));
    }
}
