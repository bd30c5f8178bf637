//! Which placeholder of ours stands for which of the recording: the first meeting decides, and each has one partner.
//! Must not know where the texts stand.

use std::collections::BTreeMap;

/// The pairs so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    theirs_of: BTreeMap<String, String>,
    ours_of: BTreeMap<String, String>,
}

impl Pairs {
    /// Whether two texts are the same but for placeholders that are partners, or become partners by this.
    pub(super) fn same(&mut self, ours: &str, theirs: &str) -> bool {
        if ours == theirs && !ours.contains('<') {
            return true;
        }
        let (mine, yours) = (parts(ours), parts(theirs));
        if mine.len() != yours.len() || !mine.iter().zip(&yours).all(|(a, b)| alike(a, b)) {
            return false;
        }
        let before = self.clone();
        for (a, b) in mine.iter().zip(&yours).filter(|(a, _)| named(a).is_some()) {
            let theirs = self.theirs_of.entry((*a).to_owned()).or_insert_with(|| (*b).to_owned());
            let ours = self.ours_of.entry((*b).to_owned()).or_insert_with(|| (*a).to_owned());
            if theirs != b || ours != a {
                *self = before;
                return false;
            }
        }
        true
    }

    /// The text as the recording would have it, as far as its placeholders have partners.
    pub(super) fn translated(&self, ours: &str) -> String {
        parts(ours).into_iter().map(|part| self.theirs_of.get(part).map_or(part, String::as_str)).collect()
    }
}

/// A text with all placeholders of a kind alike.
pub(super) fn masked(text: &str) -> String {
    let masked = parts(text).into_iter().map(|part| named(part).map_or(part.to_owned(), |kind| format!("<{kind}>")));
    masked.collect()
}

fn alike(ours: &str, theirs: &str) -> bool {
    match (named(ours), named(theirs)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => ours == theirs,
        _ => false,
    }
}

/// Kind of a placeholder that has a name of its own: `<uid:7>`.
fn named(part: &str) -> Option<&'static str> {
    ["uid", "rand", "hash"].into_iter().find(|kind| {
        part.strip_prefix('<').and_then(|rest| rest.strip_prefix(kind)).is_some_and(|rest| rest.starts_with(':'))
    })
}

/// Text and placeholders in turn.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').map(|end| at + end + 1);
        let Some(end) = end.filter(|end| named(&rest[at..*end]).is_some()) else {
            // No placeholder: it stays within the text.
            let next = rest[at + 1..].find('<').map_or(rest.len(), |next| at + 1 + next);
            parts.push(&rest[..next]);
            rest = &rest[next..];
            continue;
        };
        if at > 0 {
            parts.push(&rest[..at]);
        }
        parts.push(&rest[at..end]);
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_has_one_partner() {
        let mut pairs = Pairs::default();
        assert!(pairs.same("c-<rand:aaaaa>-head-<rand:bbbbb>", "c-<rand:1>-head-<rand:2>"));
        assert!(pairs.same("<rand:bbbbb>", "<rand:2>"));
        assert!(!pairs.same("<rand:bbbbb>", "<rand:3>"), "it has another partner already");
        assert!(!pairs.same("<rand:ccccc>", "<rand:2>"), "that is another's partner");
        assert_eq!(pairs.translated("c-<rand:aaaaa>-x"), "c-<rand:1>-x");
    }

    #[test]
    fn text_around_placeholders_counts_and_kinds_do_too() {
        let mut pairs = Pairs::default();
        assert!(!pairs.same("a-<rand:aaaaa>", "b-<rand:1>"));
        assert!(!pairs.same("<uid:x>", "<rand:1>"));
        assert!(pairs.same("1 < 2 <time>", "1 < 2 <time>"));
        assert_eq!(masked("x-<rand:1> of <uid:7>"), "x-<rand> of <uid>");
    }
}
