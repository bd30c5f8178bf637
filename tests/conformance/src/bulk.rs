//! Bodies that are too big to be kept in the recordings, made anew from what is said of them.
//! Must not know what is answered.

use serde_json::{Value, json};

/// A body from its note, such as `Widget with a string of 1,400,000 bytes`; none for a note of another form. The name of
/// the object is the one that the recorded answer shows.
pub(crate) fn body(note: &str, answer: &Value) -> Option<String> {
    let shown = [&answer["metadata"]["name"], &answer["details"]["name"]].into_iter().find_map(Value::as_str);
    let size: usize = note.split(' ').find_map(|word| word.replace(',', "").parse().ok())?;
    if note.ends_with("nested objects") {
        let head = r#"{"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"n"},"spec":{"size":1,"free":"#;
        return Some(format!("{head}{}1{}}}}}", r#"{"k":"#.repeat(size), "}".repeat(size)));
    }
    if note.starts_with("JSON patch with") {
        let step = json!({"op": "add", "path": "/data/a", "value": "1"});
        return Some(Value::Array(vec![step; size]).to_string());
    }
    let mut object = json!({"metadata": {"name": shown.unwrap_or("unshown")}});
    let text = "x".repeat(size);
    match note.split_once(" with ")? {
        ("ConfigMap", _) => {
            object["apiVersion"] = "v1".into();
            object["kind"] = "ConfigMap".into();
        }
        ("Widget", _) => {
            object["apiVersion"] = "example.dev/v1".into();
            object["kind"] = "Widget".into();
            object["spec"] = json!({"size": 1});
        }
        _ => return None,
    }
    if note.contains("data of") {
        object["data"] = json!({"k": text});
    } else if note.contains("a string of") {
        object["spec"]["free"] = json!({"k": text});
    } else if note.contains("an annotation of") {
        object["metadata"]["annotations"] = json!({"k": text});
    } else {
        return None;
    }
    Some(object.to_string())
}

/// Whether `found` is a text of which the recording keeps the beginning and the length; none where it keeps the whole.
pub(crate) fn cut(recorded: &str, found: &str) -> Option<bool> {
    let (beginning, rest) = recorded.split_once("…<cut: ")?;
    let length: usize = rest.strip_suffix(" bytes in all>")?.parse().ok()?;
    Some(found.len() == length && found.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_as_large_as_its_note_says() {
        let made = body("ConfigMap with data of 1,100 bytes", &json!({"details": {"name": "a"}})).unwrap();
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!((made["metadata"]["name"].as_str(), made["data"]["k"].as_str().unwrap().len()), (Some("a"), 1100));
        assert!(body("12,000 things", &Value::Null).is_none());
    }

    #[test]
    fn a_cut_text_has_its_beginning_and_its_length() {
        assert_eq!(cut("xx…<cut: 4 bytes in all>", "xxyy"), Some(true));
        assert_eq!(cut("xx…<cut: 4 bytes in all>", "xxy"), Some(false));
        assert_eq!(cut("xx…<cut: 4 bytes in all>", "zxyy"), Some(false));
        assert_eq!(cut("xx", "xx"), None);
    }
}
