//! Names of children: functions of what is stored, never random (`sharding.md` E5), within KubeRay's forms.
//! Must not know what the children hold.

use sha2::{Digest, Sha256};

/// Kubernetes' alphabet of made-up suffixes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five characters from a hash of these parts, in KubeRay's alphabet.
pub fn suffix(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    digest.iter().take(5).map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect()
}

/// Name of a RayJob's RayCluster or submission (`what`): the same for the same attempt of the same generation.
pub fn of_attempt(job: &str, what: &str, root_id: &str, generation: &str, failed: i32, started: &str) -> String {
    format!("{job}-{}", suffix(&[what, root_id, generation, &failed.to_string(), started]))
}

/// Name of a pod: KubeRay's prefix, and five characters from RayCluster, group and slot. `taken` are names that must
/// not be used; on a collision the hash is taken again.
pub fn pod(prefix: &str, cluster_uid: &str, group: &str, slot: i32, taken: impl Fn(&str) -> bool) -> String {
    let mut round = 0_u32;
    loop {
        let name = format!("{prefix}{}", suffix(&[cluster_uid, group, &slot.to_string(), &round.to_string()]));
        if !taken(&name) {
            return name;
        }
        round += 1;
    }
}

/// `<cluster>-head-`, cut as KubeRay does (specs/raycluster.md 3.1).
pub fn head_prefix(cluster: &str) -> String {
    format!("{}-head-", first(cluster, 50).to_lowercase())
}

/// `<cluster>-<group>-worker-`, cut as KubeRay does (specs/raycluster.md 3.1).
pub fn worker_prefix(cluster: &str, group: &str) -> String {
    format!("{}-worker-", first(&format!("{cluster}-{group}"), 50).to_lowercase())
}

/// A value for label `ray.io/identifier`: the last 63 characters, not beginning with punctuation.
pub fn label_value(text: &str) -> String {
    no_punctuation(last(text, 63))
}

/// A name for an object that KubeRay names after its RayCluster: the last 50 characters, beginning neither with a digit
/// nor with punctuation (specs/raycluster.md 3.1).
pub fn object(text: &str) -> String {
    let text = last(text, 50);
    let text = match text.chars().next() {
        Some(c) if c.is_ascii_digit() => format!("r{}", &text[1..]),
        _ => text.to_owned(),
    };
    no_punctuation(&text)
}

/// Name of a replica of several hosts: the group's, and five characters from RayCluster and number. `taken` as in [`pod`].
pub fn replica(cluster_uid: &str, group: &str, number: i32, taken: impl Fn(&str) -> bool) -> String {
    pod(&format!("{group}-"), cluster_uid, &format!("{group}/replica"), number, taken)
}

/// Name of a Job: this one, unless it is `taken`; then cut, and made its owner's own as in [`pod`].
pub fn job(name: &str, owner_uid: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.to_owned();
    }
    pod(&format!("{}-", first(name, 57)), owner_uid, name, 0, taken)
}

/// PodGroup of a RayJob or RayCluster (specs/volcano.md 5.2).
pub fn pod_group(owner: &str) -> String {
    format!("ray-{owner}-pg")
}

fn first(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(at, _)| &text[..at])
}

fn last(text: &str, count: usize) -> &str {
    let skip = text.chars().count().saturating_sub(count);
    text.char_indices().nth(skip).map_or("", |(at, _)| &text[at..])
}

fn no_punctuation(text: &str) -> String {
    match text.chars().next() {
        Some(c) if c.is_ascii_punctuation() => format!("r{}", &text[1..]),
        _ => text.to_owned(),
    }
}

/// Whether the text is a DNS-1035 label: small letters, digits and dashes, a letter first, no dash last, at most 63.
pub fn is_dns_1035(text: &str) -> bool {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.len() <= 63
        && text.bytes().all(ok)
        && text.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_for_the_same_attempt_and_differ_for_the_next() {
        let name = |failed, started| of_attempt("train", "cluster", "root-1", "1", failed, started);
        assert_eq!(name(0, "t"), name(0, "t"));
        assert_ne!(name(0, "t"), name(1, "t"));
        assert_ne!(name(0, "t"), name(0, "u"));
        assert_ne!(name(0, "t"), of_attempt("train", "job", "root-1", "1", 0, "t"));
        assert_eq!(name(0, "t").len(), "train-".len() + 5);
    }

    #[test]
    fn a_name_in_sight_is_not_taken_again() {
        let first = pod("c-head-", "uid", "headgroup", 0, |_| false);
        let second = pod("c-head-", "uid", "headgroup", 0, |n| n == first);
        assert_ne!(first, second);
    }

    #[test]
    fn long_names_are_cut_as_kuberay_does() {
        let long = "a".repeat(60);
        assert_eq!(head_prefix(&long), format!("{}-head-", "a".repeat(50)));
        assert_eq!(worker_prefix("short", "group"), "short-group-worker-");
        assert_eq!(label_value(&format!("x-{}", "b".repeat(62))), format!("r{}", "b".repeat(62)));
        assert!(is_dns_1035("a-1") && !is_dns_1035("1a") && !is_dns_1035("a-") && !is_dns_1035("A"));
    }
}
