//! What happens to replicas on a bad day, drawn from dice: one crashes, freezes between check and sending, loses the hub
//! or a member, or leaves and comes back. The last one standing is not asked to leave.
//! Must not know jobs.

use std::time::Duration;

use fastrand::Rng;
use rayfleet::api::Time;

use crate::world::World;

/// Faults of replicas, and when they end.
pub struct Chaos {
    dice: Rng,
    replicas: usize,
    members: Vec<String>,
    ends: Vec<(Time, End)>,
    /// How many of each there were.
    pub counts: ChaosCounts,
}

/// How many faults there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChaosCounts {
    /// Killed without warning.
    pub crashes: u64,
    /// Frozen with a write in hand.
    pub freezes: u64,
    /// Cut off from the hub, or from a member.
    pub partitions: u64,
    /// Asked to leave.
    pub leaves: u64,
}

#[derive(Clone, Debug)]
enum End {
    Joined(usize, String),
    Started(usize),
}

impl Chaos {
    /// Faults for this many replicas and these members.
    pub fn new(seed: u64, replicas: usize, members: &[&str]) -> Self {
        let members = members.iter().map(|&m| m.to_owned()).collect();
        let dice = Rng::with_seed(seed ^ 0x0063_6861_6f73);
        Self { dice, replicas, members, ends: Vec::new(), counts: ChaosCounts::default() }
    }

    /// Ends what has lasted long enough, and perhaps begins something.
    pub fn step(&mut self, world: &mut World) {
        let now = world.now;
        self.end(world, |at| at <= now);
        if self.dice.u32(0..6) > 0 {
            return;
        }
        let replica = self.dice.usize(0..self.replicas);
        let seconds = |dice: &mut Rng, most: u64| Duration::from_millis(dice.u64(200..most * 1_000));
        match self.dice.u32(0..4) {
            0 => {
                self.counts.crashes += 1;
                let pause = seconds(&mut self.dice, 30);
                world.restart_replica(replica, pause);
            }
            1 => {
                self.counts.freezes += 1;
                let (at, length) = (world.writes.len() + self.dice.usize(0..40), seconds(&mut self.dice, 40));
                world.freeze_at(at, length);
            }
            2 => {
                self.counts.partitions += 1;
                let index = self.dice.usize(0..=self.members.len());
                let cluster = self.members.get(index).map_or("hub", String::as_str).to_owned();
                world.part(replica, &cluster, true);
                let until = world.now + seconds(&mut self.dice, 40);
                self.ends.push((until, End::Joined(replica, cluster)));
            }
            _ => {
                let others = (0..self.replicas).filter(|r| *r != replica && world.runs(*r)).count();
                if others > 0 && world.runs(replica) {
                    self.counts.leaves += 1;
                    world.leave(replica);
                    let until = world.now + seconds(&mut self.dice, 60);
                    self.ends.push((until, End::Started(replica)));
                }
            }
        }
    }

    /// The bad day is over: whatever lasts ends now.
    pub fn stop(&mut self, world: &mut World) {
        self.end(world, |_| true);
    }

    fn end(&mut self, world: &mut World, over: impl Fn(Time) -> bool) {
        let (now, later) = std::mem::take(&mut self.ends).into_iter().partition(|(at, _)| over(*at));
        self.ends = later;
        let now: Vec<(Time, End)> = now;
        for (_, end) in now {
            match end {
                End::Joined(replica, cluster) => world.part(replica, &cluster, false),
                End::Started(replica) => world.start_replica(replica),
            }
        }
    }
}
