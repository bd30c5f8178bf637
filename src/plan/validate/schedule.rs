//! What KubeRay's cron parser takes (specs/raycronjob.md 6): five fields or a descriptor.
//! Must not know when anything is due.

use super::go_duration;

/// A field's name, bounds, and words for its numbers, counted from the lower bound.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    words: &'static [&'static str],
}

const FIELDS: &[Field] = &[
    Field { name: "minute", first: 0, last: 59, words: &[] },
    Field { name: "hour", first: 0, last: 23, words: &[] },
    Field { name: "day of month", first: 1, last: 31, words: &[] },
    Field {
        name: "month",
        first: 1,
        last: 12,
        words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { name: "day of week", first: 0, last: 6, words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const DESCRIPTORS: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Why a schedule is none, in words.
pub(super) fn mistake(schedule: &str) -> Option<String> {
    if let Some(duration) = schedule.strip_prefix("@every ") {
        let wrong = go_duration::nanos(duration).is_none();
        return wrong.then(|| format!("{duration:?} is no duration such as 90m or 1h30m"));
    }
    if schedule.starts_with('@') {
        let known = DESCRIPTORS.contains(&schedule);
        return (!known).then(|| format!("{schedule:?} is none of {}, @every <duration>", DESCRIPTORS.join(", ")));
    }
    let parts: Vec<&str> = schedule.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Some(format!("has {} fields, five are needed: minute, hour, day, month, weekday", parts.len()));
    }
    FIELDS.iter().zip(parts).find_map(|(field, text)| {
        let wrong = text.split(',').filter(|part| !part.is_empty()).find_map(|part| range(field, part));
        wrong.map(|what| format!("{} {text:?}: {what}", field.name))
    })
}

/// `*`, `a`, `a-b`, each perhaps with `/step`.
fn range(field: &Field, text: &str) -> Option<String> {
    let (span, step) = text.split_once('/').map_or((text, None), |(span, step)| (span, Some(step)));
    if step.is_some_and(|step| step.contains('/')) {
        return Some("has more than one '/'".into());
    }
    match step.map(number) {
        None => {}
        Some(Some(0)) => return Some("a step of 0 goes nowhere".into()),
        Some(Some(_)) => {}
        Some(None) => return Some("its step is no number".into()),
    }
    let (low, high) = span.split_once('-').map_or((span, None), |(low, high)| (low, Some(high)));
    if high.is_some_and(|high| high.contains('-')) {
        return Some("has more than one '-'".into());
    }
    if matches!(low, "*" | "?") {
        return None;
    }
    let value = |text: &str| {
        let word = text.to_lowercase();
        let index = field.words.iter().position(|name| *name == word);
        index.map(|i| field.first + i as u32).or_else(|| number(text))
    };
    let Some(start) = value(low) else { return Some(format!("{low:?} is no number")) };
    let end = match high {
        Some(high) => match value(high) {
            Some(end) => end,
            None => return Some(format!("{high:?} is no number")),
        },
        // `a/n` counts from a to the end.
        None if step.is_some() => field.last,
        None => start,
    };
    if start < field.first || end > field.last {
        return Some(format!("must be within {} to {}", field.first, field.last));
    }
    (start > end).then(|| format!("begins with {start} after its end {end}"))
}

/// As Go reads a number: a sign is taken, a negative one is none here.
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_taken_as_robfigs_parser_takes_them() {
        for good in [
            "* * * * *",
            "*/5 * * * *",
            "0 0 1 1 0",
            "0 9-17 * * mon-FRI",
            "5/15 ? 1,15 JAN *",
            "1,,2 * * * *",
            "  0   0 * * *  ",
            "@hourly",
            "@every 90s",
            "@every 1h30m",
            "+5 * * * *",
            "*-3 * * * *",
        ] {
            assert_eq!(mistake(good), None, "{good}");
        }
        for bad in [
            "",
            "*",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "a * * * *",
            "-5 * * * *",
            "1-2-3 * * * *",
            "1/2/3 * * * *",
            "* * L * *",
            "@reboot",
            "@Hourly",
            "@every",
            "@every 5",
            "@every x",
            "99999999999999999999 * * * *",
            "1- * * * *",
        ] {
            assert!(mistake(bad).is_some(), "{bad}");
        }
        assert!(mistake("* 24 * * *").unwrap().contains("hour \"24\": must be within 0 to 23"));
    }
}
