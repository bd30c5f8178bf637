//! Metrics of ownership: how often units came and went, why, and which nobody owns.
//! Must not know what a unit stands for.

use shards::{Gain, Loss, Mono, Shards, Tally};

/// Units that nobody owns are looked for at most this often: all units are gone through.
const LOOK_EVERY_MS: u64 = 1_000;

/// What was told last.
#[derive(Default)]
pub(super) struct Meters {
    told: Option<Tally>,
    looked: Option<Mono>,
}

impl Meters {
    /// Tells what has changed since.
    pub(super) fn look(&mut self, core: &mut Shards, now: Mono) {
        if self.told.as_ref() != Some(core.tally()) {
            for why in Gain::ALL {
                metrics::counter!("rayfleet_units_gained_total", "reason" => why.label())
                    .absolute(core.tally().gained(why));
            }
            for why in Loss::ALL {
                metrics::counter!("rayfleet_units_lost_total", "reason" => why.label())
                    .absolute(core.tally().lost(why));
            }
            self.told = Some(core.tally().clone());
        }
        if self.looked.is_none_or(|at| now.0.saturating_sub(at.0) >= LOOK_EVERY_MS) {
            self.looked = Some(now);
            let unowned = core.unowned(now);
            metrics::gauge!("rayfleet_units_unowned").set(unowned.count as f64);
            metrics::gauge!("rayfleet_units_unowned_oldest_seconds").set(unowned.oldest_ms as f64 / 1000.0);
        }
    }
}
