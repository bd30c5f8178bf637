//! Who this process is, so that its successor at the same place can know that it has ended.
//! Must not know what identities are for.

use std::fs;

/// This process and no other: process id, start time, and a random part against copies.
pub fn identity() -> String {
    let pid = std::process::id();
    format!("{pid}-{}-{:08x}", started(pid).unwrap_or_default(), fastrand::u32(..))
}

/// Where process ids mean the same: the pod, or this boot of this host with this process namespace.
pub fn place() -> String {
    if let Ok(pod) = std::env::var("POD_UID")
        && !pod.is_empty()
    {
        return format!("pod/{pod}");
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").map(|p| p.display().to_string()).unwrap_or_default();
    format!("host/{}/{namespace}", boot.trim())
}

/// Whether the process with this identity, which ran at this place, is known to have ended. In a pod it has, for there is
/// one container and it runs us; else its process id is free or belongs to a process that started at another time.
pub fn has_ended(identity: &str) -> bool {
    let mut parts = identity.split('-');
    let (Some(Ok(pid)), Some(then)) = (parts.next().map(str::parse::<u32>), parts.next()) else { return false };
    if place().starts_with("pod/") {
        return true;
    }
    if !fs::exists("/proc/self/stat").unwrap_or(false) {
        return false;
    }
    match started(pid) {
        Some(now) => now != then,
        None => !fs::exists(format!("/proc/{pid}")).unwrap_or(true),
    }
}

/// Start time of a process in clock ticks since boot; a process that has ended and is not yet collected has none.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and parentheses: what comes after its last one has fixed places.
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return Some("ended".to_owned());
    }
    fields.nth(18).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_has_not_ended_and_a_killed_one_has() {
        assert!(!has_ended(&identity()));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let name = format!("{pid}-{}-1", started(pid).unwrap());
        assert!(!has_ended(&name));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&name));
        assert!(has_ended(&format!("{}-1-1", std::process::id())), "the number was used again");
        assert!(!has_ended("what?"));
    }
}
