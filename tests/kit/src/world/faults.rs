//! What goes wrong in the simulated fleet: replicas that die, freeze, lose an API server, leave and come back.
//! Must not know what the product does about it.

use std::collections::BTreeMap;
use std::time::Duration;

use rayfleet::api::fleet::MemberClusterSpec;
use rayfleet::api::{Cluster, Time, member_unit};
use shards::hash::queue_units;

use super::{Event, World, process_name};
use crate::link::Fate;
use crate::replica::Replica;
use crate::wish::Outgoing;

/// How the controller dies at one of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Death {
    /// Right before the write is sent.
    NotSent,
    /// The write is carried out, its answer never arrives.
    AnswerLost,
    /// The write is carried out only after the first write of the successor.
    CarriedOutLate,
}

/// All variants.
pub const DEATHS: [Death; 3] = [Death::NotSent, Death::AnswerLost, Death::CarriedOutLate];

impl World {
    /// A replica dies at the write number `at` (counted from 0 over the whole run); with one replica it comes back a second
    /// later.
    pub fn die_at(&mut self, at: usize, death: Death) {
        self.death = Some((at, death));
    }

    /// Whether the death that was ordered has happened.
    pub fn has_died(&self) -> bool {
        self.death.is_none()
    }

    /// The replica whose write has this number (counted from 0 over the whole run) freezes right before it is sent, with
    /// its check of authority behind it: the write leaves when it thaws.
    pub fn freeze_at(&mut self, at: usize, length: Duration) {
        self.freezes.insert(at, length);
    }

    /// A member that can no longer be reached by anybody, or can again.
    pub fn cut(&mut self, member: &str, down: bool) {
        let cluster = Cluster::Member(member.into());
        if down {
            self.down.insert(cluster.clone());
            self.cut_streams(|key, _| key.0 == cluster);
        } else {
            self.down.remove(&cluster);
        }
    }

    /// One replica's link to a cluster (`hub` or a member) carries nothing any more, or does again.
    pub fn part(&mut self, replica: usize, cluster: &str, parted: bool) {
        let cluster = super::cluster_of(cluster);
        if parted {
            self.parted.insert((replica, cluster.clone()));
            self.cut_streams(|key, stream| key.0 == cluster && stream.replica == replica);
        } else {
            self.parted.remove(&(replica, cluster));
        }
    }

    pub(super) fn is_down(&self, replica: usize, cluster: &Cluster) -> bool {
        self.down.contains(cluster) || (!self.parted.is_empty() && self.parted.contains(&(replica, cluster.clone())))
    }

    /// Nothing reaches the replica and nothing leaves it for this long; its clock goes on.
    pub fn freeze(&mut self, replica: usize, length: Duration) {
        self.recorder.late_children = true;
        let thaw = self.now + length;
        let until = &mut self.processes[replica].frozen_until;
        *until = Some(until.map_or(thaw, |before| before.max(thaw)));
    }

    /// The replica's machine stands still for this long, with its clock: it wakes up and believes that no time has passed.
    pub fn pause_machine(&mut self, replica: usize, length: Duration) {
        self.freeze(replica, length);
        if let Some(running) = self.processes[replica].replica.as_mut() {
            running.stand_still(length);
            self.wrong_clocks.insert(replica);
        }
    }

    /// Whether a replica's clock stood still and it does not know it yet.
    pub fn has_wrong_clock(&self, replica: usize) -> bool {
        self.wrong_clocks.contains(&replica)
    }

    /// When an event may happen whose replica is frozen; `None` when it may happen now.
    pub(super) fn thaw(&mut self, event: &Event) -> Option<Time> {
        let replica = match event {
            Event::Send { replica, .. }
            | Event::Answer { replica, .. }
            | Event::Opened { replica, .. }
            | Event::Line { replica, .. }
            | Event::Ended { replica, .. }
            | Event::Wake { replica, .. } => *replica,
            Event::Arrive { .. } | Event::Site | Event::Start { .. } | Event::CarryOutLate => return None,
        };
        let until = &mut self.processes[replica].frozen_until;
        *until = until.filter(|thaw| *thaw > self.now);
        *until
    }

    /// Kills the first replica now; it comes back after `pause`.
    pub fn restart(&mut self, pause: Duration) {
        self.restart_replica(0, pause);
    }

    /// Kills a replica now; it comes back after `pause` under the same seat.
    pub fn restart_replica(&mut self, replica: usize, pause: Duration) {
        self.kill(replica);
        let at = self.now + pause;
        self.push(at, Event::Start { replica });
    }

    /// SIGTERM: the replica gives up what it holds in order, and ends.
    pub fn leave(&mut self, replica: usize) {
        let life = self.processes[replica].life;
        self.tell(replica, life, Replica::leave);
        self.settle();
    }

    /// A replica that has left or was killed comes back now.
    pub fn start_replica(&mut self, replica: usize) {
        if self.processes[replica].replica.is_none() {
            self.push(self.now, Event::Start { replica });
        }
    }

    /// Whether this replica runs (frozen counts).
    pub fn runs(&self, replica: usize) -> bool {
        self.processes[replica].replica.is_some()
    }

    pub(super) fn die(&mut self, replica: usize, life: u64, out: Outgoing, death: Death) {
        match death {
            Death::NotSent => {}
            Death::AnswerLost => {
                let arrives = self.now + Duration::from_millis(2);
                let fate = Fate::AnswerLost(Duration::ZERO);
                self.push(arrives, Event::Arrive { replica, life, out, fate });
            }
            Death::CarriedOutLate => self.hold_back(out, replica, life),
        }
        self.restart_replica(replica, self.away);
    }

    pub(super) fn kill(&mut self, replica: usize) {
        let process = &mut self.processes[replica];
        process.dead.insert(process_name(&process.seat, process.life));
        process.replica = None;
        process.frozen_until = None;
        self.wrong_clocks.remove(&replica);
        let process = &mut self.processes[replica];
        let life = process.life;
        process.life += 1;
        self.close_streams(|stream| stream.replica == replica && stream.life == life);
    }

    /// I1: at no time two processes may act for one unit. Looked at whenever a process was told something.
    pub(super) fn one_authority(&mut self, index: usize) {
        if self.processes.len() < 2 {
            return;
        }
        let now = self.now;
        // Authority rests on clocks that go on: what comes of one that stood still, the rules for effects catch.
        if !self.wrong_clocks.is_empty() {
            return;
        }
        // Time alone only takes units away.
        if !self.processes[index].replica.as_mut().is_some_and(Replica::take_gained) {
            return;
        }
        let Some(mine) = self.processes[index].replica.as_ref() else { return };
        let mine: BTreeMap<&str, u64> = mine.authorities(now).collect();
        let mut found = Vec::new();
        for (other, process) in self.processes.iter().enumerate().filter(|(other, _)| *other != index) {
            let Some(replica) = process.replica.as_ref() else { continue };
            for (unit, epoch) in replica.authorities(now) {
                if let Some(own) = mine.get(unit) {
                    let seats = [&self.processes[index].seat, &self.processes[other].seat];
                    found.push(format!(
                        "I1: {unit} is with {} (epoch {own}) and with {} (epoch {epoch})",
                        seats[0], seats[1]
                    ));
                }
            }
        }
        self.recorder.violations.append(&mut found);
    }

    /// Units without exactly one process that may act for them, in words: queue units and those of all members.
    pub fn unowned_units(&self) -> Vec<String> {
        let mut owners: BTreeMap<String, u32> = queue_units().map(|unit| (unit, 0)).collect();
        for site in self.members() {
            let name = site.cluster.to_string();
            owners.extend(
                (0..MemberClusterSpec::default().unit_count()).map(|index| (member_unit(&name, index).to_string(), 0)),
            );
        }
        for replica in self.processes.iter().filter_map(|p| p.replica.as_ref()) {
            for (unit, _) in replica.authorities(self.now) {
                *owners.entry(unit.to_owned()).or_default() += 1;
            }
        }
        let wrong = owners.into_iter().filter(|(_, count)| *count != 1);
        wrong.map(|(unit, count)| format!("at the end {count} replicas hold {unit}")).collect()
    }

    /// A unit is now with a process that did not have it before: counted where that meets an unfinished handshake.
    pub(super) fn taken_over(&mut self, replica: usize, unit: &str) {
        self.recorder.overlaps.extend(self.directed.under_way(replica, unit, self.now));
        if self.is_inside_handshake(unit) {
            self.recorder.counts.takeovers_inside_handshake += 1;
        }
    }

    fn is_inside_handshake(&self, unit: &str) -> bool {
        let mut placements = self.site("hub").server.objects().filter(|object| object["kind"] == "Placement");
        placements.any(|placement| {
            let spec = &placement["spec"];
            let member = spec["member"].as_str().unwrap_or_default();
            match spec["stage"].as_str() {
                Some("Reserving" | "Withdrawing") => *unit == *member_unit(member, 0),
                Some("Admitted") => {
                    unit.strip_prefix("m-").and_then(|u| u.rsplit_once('-')).is_some_and(|(m, _)| m == member)
                }
                _ => false,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::MemberPlan;

    #[test]
    fn a_replica_that_is_killed_twice_before_it_is_back_comes_back_once() {
        let mut world = World::new(11, &[MemberPlan::new("eu", 1, 8)]);
        world.run_for(Duration::from_secs(5));
        world.restart_replica(0, Duration::from_secs(4));
        world.restart_replica(0, Duration::from_secs(2));
        world.start_replica(0);
        world.run_for(Duration::from_secs(20));
        let mut calls: Vec<(usize, u64, u64)> = world.streams.values().map(|s| (s.replica, s.life, s.call)).collect();
        let all = calls.len();
        calls.sort_unstable();
        calls.dedup();
        assert!(all > 10, "{all} streams");
        assert_eq!(calls.len(), all, "one call has several streams");
    }
}
