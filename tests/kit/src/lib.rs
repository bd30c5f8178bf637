//! The simulated world: hub, members, replicas, links with faults, and the recorder that watches it.
//! The real cores run here, in one thread, on virtual time: the same seed gives the same run, bit for bit.
//!
//! * [`job`], [`fleet`]: what stories are made of.
//! * [`site`]: one cluster; [`replica`]: one controller process, [`wish`] what it wants; [`link`]: what lies between them.
//! * [`world`]: all of it, and the queue of events.
//! * [`chaos`]: what happens to replicas.
//! * [`check`], [`life`]: who judges.
//! * [`crash_points`], [`simulate`], [`dangers`]: the programs, and [`say`](mod@say) what they print.
//!
//! * [`fuzz`]: hostile input for every decoder.
//!
//! Apart from all that: [`planes`], real API servers as processes, on the machine's own time, [`real_fleet`], a fleet
//! on them, and [`recorder`], which watches it; [`skipped`] counts the tests that there is no server for.

#![expect(clippy::panic, reason = "a broken world ends the run with a sentence: it is a test")]

pub mod chaos;
pub mod check;
pub mod crash_points;
pub mod dangers;
pub mod fleet;
pub mod fuzz;
pub mod job;
pub mod life;
pub mod link;
pub mod planes;
pub mod real_fleet;
pub mod recorder;
pub mod replica;
pub mod say;
pub mod simulate;
pub mod site;
pub mod skipped;
pub mod wish;
pub mod world;
