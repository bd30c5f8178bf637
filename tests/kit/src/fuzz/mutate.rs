//! From samples to inputs: a few changes of bytes, or of parts of a value, drawn from a seeded generator.
//! Must not know decoders.

use fastrand::Rng;
use serde_json::{Value, json};

use super::corpus::Sample;

/// Bytes of an input at most; a few inputs are made longer on purpose.
const BYTES_MAX: usize = 64 << 10;
/// Bytes of those.
const LONG_BYTES_MAX: usize = 1 << 20;
/// How deep a nest is made: past every limit that a parser should have.
const DEPTHS: &[usize] = &[10, 127, 129, 1_000, 20_000];

/// Words that parsers stumble over.
const WORDS: &[&str] = &[
    "null",
    "true",
    "-0",
    "0",
    "1e999",
    "-1e999",
    "1e-999",
    "99999999999999999999",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "2147483648",
    "-2147483649",
    "0.1",
    "1.0",
    "{}",
    "[]",
    "\"\"",
    "\\u0000",
    "\\ud800",
    "\\udc00\\ud800",
    "\u{feff}",
    "\u{202e}",
    "é",
    "\u{10ffff}",
    "\0",
    "\n",
    "\r\n",
    "\t",
    "---\n",
    "...",
    "&a",
    "*a",
    "<<: *a",
    "!!binary",
    "? ",
    "| ",
    ">-\n",
    "%",
    "%25",
    "%00",
    "../",
    "//",
    "?",
    "&",
    "=",
    ",",
    ":",
    ";",
    "-",
    "*/0",
    "0-59/61",
    "@every 0s",
    "1h1h1h",
    "NaN",
    "Infinity",
    "0x10",
    "1_000",
    "0o7",
    "m",
    "Ei",
    "e-9999",
    "2026-13-45T99:99:99Z",
    "0000-00-00",
    "9999-12-31T23:59:59.999999999Z",
    "\"\\\"",
    "{\"",
    "\":",
];

/// Bytes that are no UTF-8, or only half of it.
const HALVES: &[&[u8]] =
    &[b"\xff", b"\xfe\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe2\x82"];

/// The input of a target with this number.
pub(super) fn input(target: &str, samples: &[Sample], seed: u64, number: u64) -> Vec<u8> {
    // One generator per input: the next one does not depend on what this one drew.
    let name = target.bytes().fold(seed, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    let mut rng = Rng::with_seed(name ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let sample = &samples[rng.usize(..samples.len())];
    let mut bytes = match sample {
        // Every so often what was recorded as it is: it must pass too.
        _ if rng.u8(..) < 4 => return sample.bytes(),
        Sample::Json(value) if rng.u8(..) < 180 => {
            let mut value = value.clone();
            for _ in 0..=rng.usize(..4) {
                change_part(&mut value, samples, &mut rng);
            }
            let bytes = value.to_string().into_bytes();
            if rng.u8(..) < 200 {
                return bytes;
            }
            bytes
        }
        other => other.bytes(),
    };
    for _ in 0..=rng.usize(..5) {
        change_bytes(&mut bytes, samples, &mut rng);
    }
    let most = if rng.u8(..) < 4 { LONG_BYTES_MAX } else { BYTES_MAX };
    bytes.truncate(most);
    bytes
}

/// A range within `length`, mostly short.
fn range(length: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.usize(..=length);
    let most = if rng.u8(..) < 200 { 16 } else { length };
    start..(start + rng.usize(..=most)).min(length)
}

fn change_bytes(bytes: &mut Vec<u8>, samples: &[Sample], rng: &mut Rng) {
    let place = rng.usize(..=bytes.len());
    match rng.u8(..12) {
        0 if !bytes.is_empty() => {
            let place = rng.usize(..bytes.len());
            bytes[place] ^= 1 << rng.u8(..8);
        }
        1 if !bytes.is_empty() => {
            let place = rng.usize(..bytes.len());
            bytes[place] = rng.u8(..);
        }
        2 => bytes.truncate(place),
        3 => drop(bytes.drain(range(bytes.len(), rng))),
        4 => {
            let piece = bytes[range(bytes.len(), rng)].to_vec();
            let most = (LONG_BYTES_MAX / piece.len().max(1)).min(1 << rng.u8(..14));
            bytes.splice(place..place, piece.repeat(rng.usize(1..=most.max(1))));
        }
        5 => {
            let other = samples[rng.usize(..samples.len())].bytes();
            let piece = range(other.len(), rng);
            bytes.splice(place.., other[piece.start..].iter().copied());
        }
        6 => {
            let other = samples[rng.usize(..samples.len())].bytes();
            bytes.splice(place..place, other[range(other.len(), rng)].iter().copied());
        }
        7 => drop(bytes.splice(place..place, WORDS[rng.usize(..WORDS.len())].bytes())),
        8 => {
            let gone = range(bytes.len(), rng);
            bytes.splice(gone, WORDS[rng.usize(..WORDS.len())].bytes());
        }
        9 => drop(bytes.splice(place..place, HALVES[rng.usize(..HALVES.len())].iter().copied())),
        10 => nest(bytes, rng),
        _ => number(bytes, rng),
    }
}

/// Puts a piece into many brackets, closed or not.
fn nest(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let (open, close): (&[u8], &[u8]) = match rng.u8(..5) {
        0 => (b"[", b"]"),
        1 => (b"{\"a\":", b"}"),
        2 => (b"- ", b""),
        3 => (b"(", b")"),
        _ => (b"{a: ", b"}"),
    };
    let depth = DEPTHS[rng.usize(..DEPTHS.len())];
    let piece = range(bytes.len(), rng);
    let inner = bytes[piece.clone()].to_vec();
    let closing = if rng.bool() { close.repeat(depth) } else { Vec::new() };
    bytes.splice(piece, [open.repeat(depth), inner, closing].concat());
}

/// Makes one of the numbers in the text huge, or puts one there.
fn number(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let digits: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()).collect();
    let place = if digits.is_empty() { rng.usize(..=bytes.len()) } else { digits[rng.usize(..digits.len())] };
    let count = [1, 9, 19, 40, 400, 20_000][rng.usize(..6)];
    let huge: Vec<u8> = (0..count).map(|_| rng.u8(b'0'..=b'9')).collect();
    bytes.splice(place..place, huge);
}

/// Changes one part of a value.
fn change_part(value: &mut Value, samples: &[Sample], rng: &mut Rng) {
    let parts = count(value);
    let mut wanted = rng.usize(..parts);
    let Some(part) = part_mut(value, &mut wanted) else { return };
    match rng.u8(..8) {
        0 => *part = odd(rng),
        1 => {
            let others: Vec<&Value> = samples.iter().filter_map(json_of).collect();
            if !others.is_empty() {
                let other = others[rng.usize(..others.len())];
                let mut wanted = rng.usize(..count(other));
                *part = part_of(other, &mut wanted).cloned().unwrap_or_default();
            }
        }
        2 => match part {
            Value::Object(map) if !map.is_empty() => {
                let key = map.keys().nth(rng.usize(..map.len())).cloned().unwrap_or_default();
                map.remove(&key);
            }
            Value::Array(list) if !list.is_empty() => drop(list.swap_remove(rng.usize(..list.len()))),
            other => *other = Value::Null,
        },
        3 => match part {
            Value::Object(map) => drop(map.insert(word(rng), odd(rng))),
            Value::Array(list) => list.push(odd(rng)),
            other => *other = json!([other.take()]),
        },
        4 => match part {
            Value::Array(list) if !list.is_empty() => {
                let one = list[rng.usize(..list.len())].clone();
                let most = if one.to_string().len() < 200 { 1_000 } else { 5 };
                list.extend(vec![one; rng.usize(1..=most)]);
            }
            Value::String(text) => *text = text.repeat([0, 2, 100][rng.usize(..3)]),
            other => *other = odd(rng),
        },
        5 => {
            let depth = DEPTHS[rng.usize(..3)];
            let mut inner = part.take();
            for _ in 0..depth {
                inner = if rng.bool() { json!([inner]) } else { json!({"a": inner}) };
            }
            *part = inner;
        }
        6 => {
            let text = match &*part {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let mut bytes = text.into_bytes();
            change_bytes(&mut bytes, samples, rng);
            bytes.truncate(BYTES_MAX);
            *part = Value::from(String::from_utf8_lossy(&bytes).into_owned());
        }
        _ => *part = word(rng).into(),
    }
}

fn json_of(sample: &Sample) -> Option<&Value> {
    match sample {
        Sample::Json(value) => Some(value),
        Sample::Text(_) => None,
    }
}

fn word(rng: &mut Rng) -> String {
    WORDS[rng.usize(..WORDS.len())].to_owned()
}

/// A value where none such is expected.
fn odd(rng: &mut Rng) -> Value {
    match rng.u8(..14) {
        0 => Value::Null,
        1 => true.into(),
        2 => 0.into(),
        3 => (-1).into(),
        4 => i64::MAX.into(),
        5 => i64::MIN.into(),
        6 => u64::MAX.into(),
        7 => json!(1e300),
        8 => json!(0.5),
        9 => "".into(),
        10 => json!([]),
        11 => json!({}),
        12 => i32::MAX.into(),
        _ => word(rng).into(),
    }
}

/// How many parts a value has, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// The part of this number, in the order in which they stand.
fn part_of<'a>(value: &'a Value, wanted: &mut usize) -> Option<&'a Value> {
    if *wanted == 0 {
        return Some(value);
    }
    *wanted -= 1;
    match value {
        Value::Array(list) => list.iter().find_map(|inner| part_of(inner, wanted)),
        Value::Object(map) => map.values().find_map(|inner| part_of(inner, wanted)),
        _ => None,
    }
}

fn part_mut<'a>(value: &'a mut Value, wanted: &mut usize) -> Option<&'a mut Value> {
    if *wanted == 0 {
        return Some(value);
    }
    *wanted -= 1;
    match value {
        Value::Array(list) => list.iter_mut().find_map(|inner| part_mut(inner, wanted)),
        Value::Object(map) => map.values_mut().find_map(|inner| part_mut(inner, wanted)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_depends_on_target_seed_and_number_alone() {
        let samples = [Sample::Json(json!({"a": [1, "b"]})), Sample::Text(b"text".to_vec())];
        let all = |target, seed| (0..200).map(|n| input(target, &samples, seed, n)).collect::<Vec<_>>();
        assert_eq!(all("x", 1), all("x", 1));
        assert_ne!(all("x", 1), all("x", 2));
        assert_ne!(all("x", 1), all("y", 1));
        let distinct: std::collections::BTreeSet<_> = all("x", 1).into_iter().collect();
        assert!(distinct.len() > 150, "{}", distinct.len());
    }

    #[test]
    fn each_part_of_a_value_is_reached() {
        let value = json!({"a": [1, {"b": 2}], "c": 3});
        assert_eq!(count(&value), 6);
        let parts: Vec<Value> = (0..6).map(|mut n| part_of(&value, &mut n).cloned().unwrap()).collect();
        assert_eq!(parts[3..], [json!({"b": 2}), json!(2), json!(3)]);
    }
}
