//! Go's texts for durations: `90m`, `1h30m`, `1.5h`.
//! Must not know what they are for.

/// Nanoseconds; `None` where Go reads none, or more than it can hold.
pub(super) fn nanos(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "0" {
        return Some(0);
    }
    let (mut rest, mut total) = (unsigned, 0_f64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let size: f64 = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        // Go takes `1.` and `.5`, not `.` alone.
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return None;
        }
        let padded = format!("0{number}0");
        let value: f64 = if number.contains('.') { padded.parse().ok()? } else { number.parse().ok()? };
        total += value * size;
        rest = next;
    }
    if total > i64::MAX as f64 {
        return None;
    }
    let nanos = total as i64;
    Some(if text.starts_with('-') { -nanos } else { nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("5m", Some(300_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("-2ms", Some(-2_000_000)),
            ("10µs", Some(10_000)),
            ("", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("1d", None),
            ("1h 2m", None),
            ("1..5s", None),
            ("99999999999999h", None),
        ] {
            assert_eq!(nanos(text), wanted, "{text:?}");
        }
    }
}
