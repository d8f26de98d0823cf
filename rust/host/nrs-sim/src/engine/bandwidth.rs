// SPDX-License-Identifier: GPL-2.0-only

//! What the clients of a server have of its bandwidth, while `qbm` runs: what `rust/sched/policy/qbm/overseer.rs` does
//! in the kernel.
//!
//! * A *walk* tells the manager of every class of every part, and every class its seat; then the manager judges
//!   what it has seen.

use super::{lane::Lane, policy::Place as Nobody};
use nrs_sched::{
    policy::qbm::BriefBuf,
    qbm::{gate::NO_SEAT, manager::Manager},
};

/// Who looks after the bandwidth of a server's clients.
pub struct Bandwidth {
    manager: Manager,
    briefs: BriefBuf,
}

impl Bandwidth {
    /// With a manager that has met nobody.
    ///
    /// # Panics
    ///
    /// There is no memory.
    pub fn new(manager: Manager) -> Self {
        Self {
            manager,
            briefs: BriefBuf::new().expect("memory"),
        }
    }

    /// Seats who has none; with `due` it is time to judge, too.
    pub fn run(&mut self, lanes: &mut [Lane], due: bool, now: u64) {
        if self.walk(lanes, now) {
            self.walk(lanes, now);
        }
        if due {
            self.manager.tick(now);
        }
        if self.manager.has_changed() {
            for lane in lanes.iter_mut() {
                lane.refresh(now);
            }
        }
    }

    /// A walk; whether somebody may have come back who lost a seat in it.
    fn walk(&mut self, lanes: &mut [Lane], now: u64) -> bool {
        let mut again = false;
        for lane in lanes.iter_mut() {
            let mut left = false;
            let mut from = Some(0);
            while let Some(slot) = from {
                let Some(part) = lane.part().qbm_mut() else {
                    break;
                };
                self.briefs.clear();
                from = part.seat_briefs(slot, now, &mut self.briefs);
                for brief in self.briefs.iter() {
                    let seat = self.manager.meet(brief, &Nobody, now);
                    if seat != brief.seat {
                        part.seat(brief.id, seat, now);
                        left |= seat == NO_SEAT;
                    }
                }
            }
            again |= left && lane.is_hungry();
        }
        again
    }
}
