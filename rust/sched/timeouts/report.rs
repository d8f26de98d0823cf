// SPDX-License-Identifier: GPL-2.0-only

//! Text of `timeouts`, in Lustre's layout.
//!
//! A service, a line for each partition, or one line if timeouts do not adapt:
//!
//! ```text
//!    service : cur  33  worst  34 (at 1193427052, 1600s ago)   1   1  33   2
//! adaptive timeouts off, using obd_timeout 100
//! ```
//!
//! A client:
//!
//! ```text
//! last reply : 1193428639, 0s ago
//! network    : cur   1  worst   2 (at 1193427053, 1599s ago)   1   1   1   1
//! portal 0   : cur  33  worst  34 (at 1193427052, 1600s ago)   1   1  33   2
//! ```
//!
//! Times are seconds, rounded up; instants are seconds of the wall clock; bins are newest first.

use super::{
    estimator::Seen,
    terms::{Mode, Terms},
};
use crate::sched::units::MSEC_PER_SEC;
use core::fmt::{self, Write};

/// What it takes to show instants.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The present, ms.
    pub now: u64,
    /// The wall clock, ms, when the instants' clock was 0.
    pub offset: u64,
}

impl Clock {
    /// Seconds of the wall clock at `instant`, and how long ago that was, s.
    fn show(self, instant: u64) -> (u64, u64) {
        let wall = instant.saturating_add(self.offset);
        let ago = self.now.saturating_sub(instant);
        (wall / MSEC_PER_SEC, ago / MSEC_PER_SEC)
    }

    /// What is the same in all lines with an estimate.
    fn write_seen<W: Write + ?Sized>(self, out: &mut W, seen: &Seen) -> fmt::Result {
        let (worst, (at, ago)) = match seen.worst {
            Some((worst, at)) => (worst, self.show(at)),
            None => (0, (0, 0)),
        };
        let (current, worst) = (
            seen.current.div_ceil(MSEC_PER_SEC as u32),
            worst.div_ceil(MSEC_PER_SEC as u32),
        );
        write!(
            out,
            " : cur {current:>3}  worst {worst:>3} (at {at}, {ago}s ago) "
        )?;
        for bin in seen.bins {
            write!(out, "{:>3} ", bin.div_ceil(MSEC_PER_SEC as u32))?;
        }
        out.write_char('\n')
    }

    /// Writes the lines of a service, one for each of its `partitions`.
    ///
    /// # Errors
    ///
    /// What `out` answers.
    pub fn write_service<W: Write + ?Sized>(
        self,
        out: &mut W,
        terms: &Terms,
        partitions: impl IntoIterator<Item = Seen>,
    ) -> fmt::Result {
        if terms.mode() != Mode::Adaptive {
            return write_off(out, terms);
        }
        for seen in partitions {
            write!(out, "{:>10}", "service")?;
            self.write_seen(out, &seen)?;
        }
        Ok(())
    }

    /// Writes the lines of a client: its last reply, the network, and each of its `portals` with its number.
    ///
    /// # Errors
    ///
    /// What `out` answers.
    pub fn write_client<W: Write + ?Sized>(
        self,
        out: &mut W,
        terms: &Terms,
        last_reply: Option<u64>,
        network: &Seen,
        portals: impl IntoIterator<Item = (u32, Seen)>,
    ) -> fmt::Result {
        if terms.mode() != Mode::Adaptive {
            return write_off(out, terms);
        }
        let (at, ago) = last_reply.map_or((0, 0), |at| self.show(at));
        writeln!(out, "{:<10} : {at}, {ago}s ago", "last reply")?;
        write!(out, "{:<10}", "network")?;
        self.write_seen(out, network)?;
        for (number, seen) in portals {
            write!(out, "portal {number:<3}")?;
            self.write_seen(out, &seen)?;
        }
        Ok(())
    }
}

/// Writes that timeouts do not adapt.
fn write_off<W: Write + ?Sized>(out: &mut W, terms: &Terms) -> fmt::Result {
    let fixed = terms.fixed;
    writeln!(out, "adaptive timeouts off, using obd_timeout {fixed}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::timeouts::{
        estimator::Estimator,
        portal::Portal,
        terms::{AtMax, ObdTimeout},
    };

    /// The clock started at 1193420000 s of the wall clock.
    fn clock(now: u64) -> Clock {
        Clock {
            now,
            offset: 1_193_420_000_000,
        }
    }

    fn service(clock: Clock, terms: &Terms, seen: &[Seen]) -> String {
        let mut text = String::new();
        let written = clock.write_service(&mut text, terms, seen.iter().copied());
        written.expect("strings have room");
        text
    }

    #[test]
    fn lines_of_a_service() {
        let terms = Terms::default();
        let now = 8_652_999;
        let seen = Seen {
            current: 32_001,
            worst: Some((34_000, 7_052_000)),
            bins: [1, 1000, 33_000, 1001],
        };
        let nothing = Estimator::new().seen(0, &terms);
        let long = Seen {
            current: 600_000,
            worst: Some((u32::MAX, now + 5000)),
            bins: [u32::MAX, 600_000, 0, 0],
        };
        assert_eq!(
            service(clock(now), &terms, &[seen, nothing, long]),
            "   service : cur  33  worst  34 (at 1193427052, 1600s ago)   1   1  33   2 \n   \
             service : cur  10  worst   0 (at 0, 0s ago)   0   0   0   0 \n   \
             service : cur 600  worst 4294968 (at 1193428657, 0s ago) 4294968 600   0   0 \n"
        );
        assert_eq!(service(clock(now), &terms, &[]), "");
    }

    #[test]
    fn lines_of_a_client() {
        let terms = Terms::default();
        let mut portal = Portal::new();
        portal.replied(7_052_000, 34_900, 34_000, 0, &terms);
        let now = 7_053_000;
        let mut text = String::new();
        let network = portal.network(now, &terms);
        let seen = portal.service(now, &terms);
        let out: &mut dyn Write = &mut text;
        let portals = [(0, seen), (28, seen)];
        let last = portal.last_reply();
        let written = clock(now).write_client(out, &terms, last, &network, portals);
        written.expect("strings have room");
        assert_eq!(
            text,
            "last reply : 1193427052, 1s ago\n\
             network    : cur   1  worst   1 (at 1193427052, 1s ago)   1   0   0   0 \n\
             portal 0   : cur  34  worst  34 (at 1193427052, 1s ago)  34   0   0   0 \n\
             portal 28  : cur  34  worst  34 (at 1193427052, 1s ago)  34   0   0   0 \n"
        );
    }

    #[test]
    fn without_adaptive_timeouts() {
        for fixed in [0, 100] {
            let terms = Terms {
                max: AtMax::new(0).unwrap(),
                fixed: ObdTimeout::new(fixed).unwrap(),
                ..Terms::default()
            };
            let want = format!("adaptive timeouts off, using obd_timeout {fixed}\n");
            let seen = Estimator::new().seen(0, &terms);
            assert_eq!(service(clock(5), &terms, &[seen, seen]), want);
            let mut text = String::new();
            let written = clock(5).write_client(&mut text, &terms, None, &seen, [(0, seen)]);
            assert_eq!((written, text), (Ok(()), want));
        }
    }

    #[test]
    fn strange_instants() {
        let terms = Terms::default();
        let seen = Seen {
            current: 1,
            worst: Some((1, u64::MAX)),
            bins: [0; 4],
        };
        let text = service(clock(0), &terms, &[seen]);
        assert!(text.contains("(at 18446744073709551, 0s ago)"), "{text}");
    }
}
