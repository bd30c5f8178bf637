//! Takes out of an answer what no two servers have in common: UIDs, versions, times, random suffixes, addresses.
//! Must not know requests, nor which server answered: both go through the same.

use std::collections::BTreeMap;

use rayfleet::api::wire::Reply;
use regex_lite::{Captures, Regex};
use serde_json::{Map, Value, json};

/// Headers that clients look at.
const HEADERS: &[&str] = &["content-type", "warning", "retry-after", "allow", "location", "etag"];

/// What one server's values of one story stand for so far. The same value is the same placeholder.
pub(crate) struct Normal {
    /// Text that the client sent: what it made up itself stays as it is.
    sent: String,
    managers: bool,
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
    names: BTreeMap<String, String>,
    addresses: BTreeMap<String, usize>,
    /// What generated names begin with.
    prefixes: Vec<String>,
    highest: u64,
    patterns: Patterns,
}

struct Patterns {
    uid: Regex,
    time: Regex,
    token_volume: Regex,
    age: Regex,
    current: Regex,
    in_brackets: Regex,
    port: Regex,
    etag: Regex,
    server: Regex,
}

impl Normal {
    /// `sent` is all that the story sends; `managers` whether `managedFields` count.
    pub(crate) fn new(sent: String, managers: bool) -> Self {
        let pattern = |text: &str| Regex::new(text).expect("written here");
        let prefixes = pattern(r#""generateName":"([^"]+)""#).captures_iter(&sent).map(|c| c[1].to_owned()).collect();
        Self {
            sent,
            managers,
            uids: BTreeMap::new(),
            versions: BTreeMap::new(),
            names: BTreeMap::new(),
            addresses: BTreeMap::new(),
            prefixes,
            highest: 0,
            patterns: Patterns {
                uid: pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
                time: pattern(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]+)?Z"),
                token_volume: pattern("kube-api-access-[a-z0-9]{5}"),
                age: pattern("^([0-9]+[smhdy])+$"),
                current: pattern("current: [0-9]+"),
                in_brackets: pattern(r"\(([0-9]+)\)"),
                port: pattern(":3[0-9]{4}/"),
                etag: pattern("^\"[0-9A-F]{64,128}\"$|hash=[0-9A-F]{64,128}"),
                server: pattern("^127.0.0.1:[0-9]+$"),
            },
        }
    }

    /// Status, headers and body of a reply as one value.
    pub(crate) fn reply(&mut self, reply: &Reply) -> Value {
        let mut headers = Map::new();
        for name in HEADERS {
            let mut found: Vec<String> =
                reply.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| self.text(v)).collect();
            found.sort();
            if !found.is_empty() {
                headers.insert((*name).to_owned(), json!(found));
            }
        }
        let body = match serde_json::from_slice::<Value>(&reply.body) {
            Ok(mut body) => {
                self.value(&mut body);
                body
            }
            Err(_) => self.no_json(&String::from_utf8_lossy(&reply.body), &headers),
        };
        json!({"status": reply.status, "headers": headers, "body": body})
    }

    /// YAML says the same in several ways.
    fn no_json(&mut self, text: &str, headers: &Map<String, Value>) -> Value {
        if headers.get("content-type") == Some(&json!(["application/yaml"]))
            && let Ok(mut body) = serde_saphyr::from_str::<Value>(text)
        {
            self.value(&mut body);
            return body;
        }
        Value::String(self.text(text))
    }

    /// One event of a watch.
    pub(crate) fn event(&mut self, event: &Value) -> Value {
        let mut event = event.clone();
        self.value(&mut event);
        event
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => self.object(map),
            Value::Array(list) => list.iter_mut().for_each(|v| self.value(v)),
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    fn object(&mut self, map: &mut Map<String, Value>) {
        let list = map.get("items").or(map.get("rows")).is_some_and(|v| v.is_array() || v.is_null());
        if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
            if list {
                self.list_metadata(metadata);
            } else {
                self.metadata(metadata);
            }
        }
        if let Some(Value::Array(rows)) = map.get_mut("rows") {
            for cell in rows.iter_mut().filter_map(|r| r["cells"].as_array_mut()).flatten() {
                if cell.as_str().is_some_and(|c| self.patterns.age.is_match(c)) {
                    *cell = "<age>".into();
                }
            }
        }
        // Several causes come in any order, and so does the text that is made of them.
        if let Some(causes) = map.get_mut("causes").and_then(Value::as_array_mut)
            && causes.len() > 1
        {
            causes.sort_by_key(Value::to_string);
        }
        if map.get("kind").is_some_and(|k| k == "Status")
            && let Some(Value::String(message)) = map.get_mut("message")
        {
            *message = sorted_causes(message);
        }
        for (key, value) in map.iter_mut() {
            match (key.as_str(), &value) {
                ("nodePort", Value::Number(port)) if !self.sent.contains(&port.to_string()) => {
                    *value = "<port>".into();
                }
                _ => self.value(value),
            }
        }
    }

    fn metadata(&mut self, metadata: &mut Map<String, Value>) {
        if !self.managers {
            metadata.remove("managedFields");
        }
        // Their order is that of their seconds: whether two writes fall into one is chance.
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            entries.sort_by_cached_key(|entry| {
                ["operation", "manager", "subresource", "apiVersion"].map(|field| text(entry, field))
            });
        }
        if let Some(Value::String(prefix)) = metadata.get("generateName")
            && let Some(Value::String(name)) = metadata.get("name")
            && let Some(suffix) = name.strip_prefix(prefix.as_str())
            && suffix.len() == 5
        {
            self.names.insert(name.clone(), format!("{prefix}<rand>"));
        }
        if let Some(Value::String(version)) = metadata.get_mut("resourceVersion") {
            self.highest = self.highest.max(version.parse().unwrap_or(0));
            let next = self.versions.len() + 1;
            let number = *self.versions.entry(version.clone()).or_insert(next);
            *version = format!("<rv:{number}>");
        }
    }

    /// The version of a list may be any one between the last write to the kind and the last write at all.
    fn list_metadata(&mut self, metadata: &mut Map<String, Value>) {
        if let Some(Value::String(version)) = metadata.get_mut("resourceVersion") {
            let number: u64 = version.parse().unwrap_or(0);
            let known = self.versions.get(version.as_str());
            *version = match known {
                // A page of an older state, or a list asked for exactly so.
                Some(known) if number < self.highest => format!("<rv:{known}>"),
                _ if number < self.highest => "<rv:of an older list>".to_owned(),
                _ => "<rv:newest>".to_owned(),
            };
        }
        if let Some(Value::String(next)) = metadata.get_mut("continue")
            && !next.is_empty()
        {
            "<continue>".clone_into(next);
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, placeholder) in &self.names {
            text = text.replace(name.as_str(), placeholder);
        }
        for prefix in &self.prefixes {
            if let Some(at) = text.find(prefix.as_str())
                && let Some(suffix) = text[at + prefix.len()..].get(..5)
                && suffix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            {
                text = text.replace(&format!("{prefix}{suffix}"), &format!("{prefix}<rand>"));
            }
        }
        if text.len() < 8 {
            return text;
        }
        let Self { sent, uids, addresses, patterns, .. } = self;
        let uid = |found: &Captures| {
            let found = &found[0];
            if sent.contains(found) {
                return found.to_owned();
            }
            let next = uids.len() + 1;
            format!("<uid:{}>", uids.entry(found.to_owned()).or_insert(next))
        };
        text = replaced(&patterns.uid, &text, uid);
        let time = |found: &Captures| match (sent.contains(&found[0]), found.get(1)) {
            (true, _) => found[0].to_owned(),
            (false, None) => "<time>".to_owned(),
            (false, Some(fraction)) => format!("<time, {} digits>", fraction.len() - 1),
        };
        text = replaced(&patterns.time, &text, time);
        let versions = &self.versions;
        let version = |found: &Captures| match versions.get(&found[1]) {
            Some(number) => format!("(<rv:{number}>)"),
            None => found[0].to_owned(),
        };
        text = replaced(&patterns.in_brackets, &text, version);
        if text.starts_with("10.") && !sent.contains(text.as_str()) && text.parse::<std::net::Ipv4Addr>().is_ok() {
            let next = addresses.len() + 1;
            text = format!("<ip:{}>", addresses.entry(text.clone()).or_insert(next));
        }
        text = patterns.token_volume.replace_all(&text, "kube-api-access-<rand>").into_owned();
        for (pattern, with) in [
            (&patterns.port, ":<port>/"),
            (&patterns.etag, "<hash>"),
            (&patterns.server, "127.0.0.1"),
            (&patterns.current, "current: <rv>"),
        ] {
            text = replaced(pattern, &text, |_| with.to_owned());
        }
        text
    }
}

fn replaced(pattern: &Regex, text: &str, with: impl FnMut(&Captures) -> String) -> String {
    if pattern.is_match(text) { pattern.replace_all(text, with).into_owned() } else { text.to_owned() }
}

/// `[b, a]` at the end of a message as `[a, b]`.
fn sorted_causes(message: &str) -> String {
    let Some((before, list)) = message.split_once(": [").filter(|(_, list)| list.ends_with(']')) else {
        return message.to_owned();
    };
    let mut parts: Vec<&str> = list.trim_end_matches(']').split(", ").collect();
    parts.sort_unstable();
    format!("{before}: [{}]", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_come_in_one_order_whether_or_not_their_writes_fell_into_one_second() {
        let answer = |managers: [(&str, &str); 2]| {
            let entry = |(manager, time): (&str, &str)| serde_json::json!({ "manager": manager, "operation": "Apply", "time": time, "fieldsV1": {} });
            let object = serde_json::json!({ "metadata": { "managedFields": managers.map(entry) } });
            let body = object.to_string().into_bytes().into();
            Normal::new(String::new(), true).reply(&Reply { status: 200, headers: Vec::new(), body })
        };
        let one_second = answer([("alice", "2026-11-29T00:00:01Z"), ("bob", "2026-11-29T00:00:01Z")]);
        let two_seconds = answer([("bob", "2026-11-29T00:00:01Z"), ("alice", "2026-11-29T00:00:02Z")]);
        assert_eq!(one_second, two_seconds);
    }
}
