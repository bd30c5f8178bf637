//! Two lists side by side: which write of ours is which of the recording's.
//! Must not know what a difference means.

use serde_json::Value;

use super::pairs::masked;
use super::recording::Write;

/// How much a write of ours is like a recorded one; 0: not the same request.
pub(super) fn likeness(ours: &Write, theirs: &Write) -> u32 {
    let verbs = ours.verb == theirs.verb || (ours.verb == "patch" && theirs.verb == "update");
    if !verbs || ours.class() != theirs.class() || ours.code.is_some() != theirs.code.is_some() {
        return 0;
    }
    let text = |name: &Option<String>| masked(name.as_deref().unwrap_or_default());
    if ours.verb != "deletecollection" && text(&ours.name) != text(&theirs.name) {
        return 0;
    }
    let (mut equal, mut all) = (0, 0);
    sameness(&ours.body, &theirs.body, &mut equal, &mut all);
    // One more than the best likeness of a part: it is better to leave none out.
    1000 + 500 * equal / all.max(1)
}

/// How many of two values' leaves are equal but for names, and how many there are.
fn sameness(ours: &Value, theirs: &Value, equal: &mut u32, all: &mut u32) {
    match (ours, theirs) {
        (Value::Object(own), Value::Object(there)) => {
            for key in own.keys().chain(there.keys().filter(|key| !own.contains_key(*key))) {
                sameness(own.get(key).unwrap_or(&Value::Null), there.get(key).unwrap_or(&Value::Null), equal, all);
            }
        }
        (Value::Array(own), Value::Array(there)) => {
            for number in 0..own.len().max(there.len()) {
                let item = |list: &[Value]| list.get(number).cloned().unwrap_or_default();
                sameness(&item(own), &item(there), equal, all);
            }
        }
        (own, there) => {
            *all += 1;
            *equal += u32::from(own == there || masked(&own.to_string()) == masked(&there.to_string()));
        }
    }
}

/// Single deletions, where the other side has one of many. What such a deletion took shows in the rounds that follow: each
/// pod that goes is one.
pub(super) fn collected(ours: Vec<Write>, theirs: &[(usize, &Write)]) -> Vec<Write> {
    let many = |resource: &str| theirs.iter().any(|(_, w)| w.verb == "deletecollection" && w.resource == resource);
    let single = |resource: &str| theirs.iter().any(|(_, w)| w.verb == "delete" && w.resource == resource);
    let several = theirs.iter().filter(|(_, w)| w.verb == "deletecollection").count() > 1;
    let mut out: Vec<Write> = Vec::new();
    for mut write in ours {
        if write.verb == "delete" && many(&write.resource) && !single(&write.resource) {
            // Where there are two, they are of the head and of the workers.
            let part = write.name.take().filter(|name| several && name.contains("-head-")).map(|_| "head".to_owned());
            let goes_on = |last: &Write| {
                last.verb == "deletecollection" && last.resource == write.resource && last.label_selector == part
            };
            if out.last().is_some_and(goes_on) {
                continue;
            }
            "deletecollection".clone_into(&mut write.verb);
            write.label_selector = part;
            write.body = Value::Null;
        }
        out.push(write);
    }
    out
}

/// The best way to put two lists side by side: most likeness, order kept.
pub(super) fn align<A, B>(
    ours: &[A],
    theirs: &[B],
    likeness: impl Fn(&A, &B) -> u32,
) -> Vec<(Option<usize>, Option<usize>)> {
    let (m, n) = (ours.len(), theirs.len());
    let mut best = vec![vec![0_u32; n + 1]; m + 1];
    let mut like = vec![vec![0_u32; n]; m];
    for i in (0..m).rev() {
        for j in (0..n).rev() {
            like[i][j] = likeness(&ours[i], &theirs[j]);
            let together = if like[i][j] > 0 { like[i][j] + best[i + 1][j + 1] } else { 0 };
            best[i][j] = together.max(best[i + 1][j]).max(best[i][j + 1]);
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::new();
    while i < m || j < n {
        if i < m && j < n && like[i][j] > 0 && best[i][j] == like[i][j] + best[i + 1][j + 1] {
            steps.push((Some(i), Some(j)));
            (i, j) = (i + 1, j + 1);
        } else if i < m && (j == n || best[i][j] == best[i + 1][j]) {
            steps.push((Some(i), None));
            i += 1;
        } else {
            steps.push((None, Some(j)));
            j += 1;
        }
    }
    steps
}
