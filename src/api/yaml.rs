//! YAML as Kubernetes and its clients read it.
//! Must not know what the documents mean.

use serde_json::Value;

/// Documents that are objects or values; empty ones are left out. The error is a sentence with line and column.
///
/// Numbers with a leading zero are octal (`defaultMode: 0755`), as in YAML 1.1, which kubectl speaks.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
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
    fn empty_documents_are_none() {
        assert_eq!(documents("---\n---\na: 1\n---\n# nothing\n").unwrap().len(), 1);
        assert!(documents("a: [").unwrap_err().contains("line"));
    }
}
