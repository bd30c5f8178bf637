//! A server and its surroundings in step, without delays: for tests, and for what is to be set up before time runs.
//! Must not know a transport or a clock.

use super::surroundings::Surroundings;
use crate::api::Time;
use crate::sandbox::apiserver::{ApiServer, Line, WatchId};

/// Lets a server and its surroundings act on each other at one time, without delays, until nothing is left to do at that
/// time. Lines of others' watches are given to `others`.
pub fn settle(server: &mut ApiServer, world: &mut Surroundings, now: Time, others: &mut dyn FnMut(WatchId, Line)) {
    loop {
        let lines = server.take_lines();
        let due = world.due(now);
        if lines.is_empty() && due.is_empty() {
            return;
        }
        for sent in due {
            let answer = server.handle(&sent.request, now);
            world.answered(sent.id, &answer, now);
        }
        for (watch, line) in lines {
            if world.owns(watch) {
                world.line(watch, &line, now);
            } else {
                others(watch, line);
            }
        }
    }
}
