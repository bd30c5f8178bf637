//! JSON in which no object names a key twice.
//! Must not know what the values mean.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The one value of a text. An error where it is no JSON, or an object in it repeats a key: of its two values one would be
/// lost without a word.
pub fn distinct(json: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<Distinct>(json).map(|value| value.0)
}

/// The values of a text that is nothing but JSON values one after the other, each as in [`distinct`].
pub fn stream(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    serde_json::Deserializer::from_str(text).into_iter::<Distinct>().map(|value| value.map(|value| value.0)).collect()
}

struct Distinct(Value);

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Whole;
        impl<'de> Visitor<'de> for Whole {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E: Error>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E: Error>(self, v: bool) -> Result<Value, E> {
                Ok(v.into())
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Value, E> {
                Ok(v.into())
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Value, E> {
                Ok(v.into())
            }
            fn visit_f64<E: Error>(self, v: f64) -> Result<Value, E> {
                Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
                Ok(v.into())
            }
            fn visit_string<E: Error>(self, v: String) -> Result<Value, E> {
                Ok(v.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(Distinct(value)) = seq.next_element()? {
                    list.push(value);
                }
                Ok(Value::Array(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
                let mut map = Map::new();
                while let Some((key, Distinct(value))) = entries.next_entry::<String, Distinct>()? {
                    if map.insert(key, value).is_some() {
                        return Err(A::Error::custom("a key stands twice in one object"));
                    }
                }
                Ok(Value::Object(map))
            }
        }
        d.deserialize_any(Whole).map(Distinct)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_what_serde_json_makes_of_it_unless_a_key_stands_twice() {
        let text = r#"{"a": [1, -2, 0.5, null, true, "\ud83d\ude00", {"a": {}}], "b": 18446744073709551615}"#;
        assert_eq!(distinct(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        for twice in [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"a": 1, "c": 2, "a": 3}}]"#] {
            assert!(distinct(twice.as_bytes()).unwrap_err().to_string().contains("stands twice"));
        }
    }

    #[test]
    fn a_stream_is_values_and_nothing_else() {
        assert_eq!(stream("{\"a\":1}\n{\"a\":2} [3]").unwrap(), [json!({"a": 1}), json!({"a": 2}), json!([3])]);
        assert!(stream("{\"a\":1}\n---\n{\"a\":2}").is_err() && stream("{a: 1}").is_err());
    }
}
