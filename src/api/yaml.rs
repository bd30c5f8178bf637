//! YAML as Kubernetes and its clients read it.
//! Must not know what the documents mean.

use serde_json::Value;

use super::json;

/// Documents that are objects or values; empty ones are left out. The error is a sentence with line and column.
///
/// A text that is JSON is read as such, by kubectl too: YAML is no more than nearly its superset (keys end after 1024
/// characters, and there are no surrogate pairs). Numbers with a leading zero are octal (`defaultMode: 0755`), as in YAML 1.1, which kubectl speaks.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    if text.trim_start().starts_with('{')
        && let Ok(values) = json::stream(text)
    {
        return Ok(values);
    }
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let read = serde_saphyr::from_multiple_with_options::<Value>(text, options);
    let values = read.map_err(|error| error.to_string().trim_start_matches("error: ").to_owned())?;
    Ok(values.into_iter().filter(|value| !value.is_null()).collect())
}

/// The one document of a text.
pub fn document(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_kubectl_reads_them() {
        let value = document("mode: 0777\nzero: 0\nplain: 777\ntext: \"0777\"\nfloat: 0.5\n").unwrap();
        assert_eq!(value, serde_json::json!({"mode": 511, "zero": 0, "plain": 777, "text": "0777", "float": 0.5}));
    }

    #[test]
    fn json_is_read_by_its_own_rules() {
        let key = "k".repeat(2_000);
        let text = format!("\n{{\"{key}\": \"\\ud83d\\ude00\"}}\n{{\"b\": 010}}");
        assert!(documents(&text).is_err(), "a number with a leading zero is no JSON");
        let values = documents(&text.replace("010", "10")).unwrap();
        assert_eq!((&values[0][&key], &values[1]["b"], values.len()), (&"\u{1f600}".into(), &10.into(), 2));
        assert!(documents(r#"{"a": 1, "a": 2}"#).is_err(), "of a repeated key one value would be lost");
        assert_eq!(documents("{a: 010}").unwrap()[0]["a"], 8, "YAML's own brackets");
    }

    #[test]
    fn empty_documents_are_none() {
        assert_eq!(documents("---\n---\na: 1\n---\n# nothing\n").unwrap().len(), 1);
        assert!(documents("a: [").unwrap_err().contains("line"));
    }
}
