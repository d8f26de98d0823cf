// SPDX-License-Identifier: GPL-2.0-only

//! Text of `timeouts`, in Lustre's layout.
//!
//! A service has a line per partition, or one line if timeouts do not adapt:
//!
//! ```text
//!    service : cur  33  worst  34 (at 1193427052, 1600s ago)   1   1  33   2
//! adaptive timeouts off, using obd_timeout 100
//! ```
//!
//! A client has these lines:
//!
//! ```text
//! last reply : 1193428639, 0s ago
//! network    : cur   1  worst   2 (at 1193427053, 1599s ago)   1   1   1   1
//! portal 0   : cur  33  worst  34 (at 1193427052, 1600s ago)   1   1  33   2
//! ```
//!
//! Times are seconds, rounded up; instants are seconds of the wall clock; bins are newest first.

use super::{
    estimator::EstimatorView,
    terms::{TimeoutMode, TimeoutTerms},
};
use crate::sched::units::MSEC_PER_SEC;
use core::fmt::{self, Write};

/// Conversion of instants to the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct ReportClock {
    /// Present time, ms.
    pub now: u64,
    /// Wall-clock time at 0 of the clock of the instants, ms.
    pub offset: u64,
}

impl ReportClock {
    /// Returns the wall-clock time of `instant`, s, and the time since then, s.
    fn show(self, instant: u64) -> (u64, u64) {
        let wall = instant.saturating_add(self.offset);
        let ago = self.now.saturating_sub(instant);
        (wall / MSEC_PER_SEC, ago / MSEC_PER_SEC)
    }

    /// Writes the common part of all lines with an estimate.
    fn write_seen<W: Write + ?Sized>(self, out: &mut W, seen: &EstimatorView) -> fmt::Result {
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
    pub fn write_service<W: Write + ?Sized>(
        self,
        out: &mut W,
        terms: &TimeoutTerms,
        partitions: impl IntoIterator<Item = EstimatorView>,
    ) -> fmt::Result {
        if terms.mode() != TimeoutMode::Adaptive {
            return write_off(out, terms);
        }
        for seen in partitions {
            write!(out, "{:>10}", "service")?;
            self.write_seen(out, &seen)?;
        }
        Ok(())
    }

    /// Writes the lines of a client: the last reply, the network, and the estimate of its service.
    ///
    /// The client is a block device, so the network line has only zeros.
    pub fn write_client<W: Write + ?Sized>(
        self,
        out: &mut W,
        terms: &TimeoutTerms,
        last_reply: Option<u64>,
        seen: &EstimatorView,
    ) -> fmt::Result {
        if terms.mode() != TimeoutMode::Adaptive {
            return write_off(out, terms);
        }
        let (at, ago) = last_reply.map_or((0, 0), |at| self.show(at));
        write!(out, "last reply : {at}, {ago}s ago\nnetwork   ")?;
        self.write_seen(out, &EstimatorView::default())?;
        out.write_str("portal 0  ")?;
        self.write_seen(out, seen)
    }
}

/// Writes the line that states that timeouts do not adapt.
fn write_off<W: Write + ?Sized>(out: &mut W, terms: &TimeoutTerms) -> fmt::Result {
    let fixed = terms.fixed;
    writeln!(out, "adaptive timeouts off, using obd_timeout {fixed}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::timeouts::terms::{AtMax, ObdTimeout};

    const NOW: u64 = 8_652_999;

    /// Returns the texts of a service with partitions `seen` and of a client of the first one. The
    /// clock started at 1193420000 s of the wall clock.
    fn shown(terms: &TimeoutTerms, now: u64, seen: &[EstimatorView]) -> [String; 2] {
        let offset = 1_193_420_000_000;
        let clock = ReportClock { now, offset };
        let mut texts = [String::new(), String::new()];
        let [service, client] = &mut texts;
        let written = clock.write_service(service, terms, seen.iter().copied());
        assert_eq!(written, Ok(()));
        let written = clock.write_client(client, terms, Some(7_052_000), &seen[0]);
        assert_eq!(written, Ok(()));
        texts
    }

    #[test]
    fn lines() {
        let partitions = [
            EstimatorView {
                current: 32_001,
                worst: Some((34_000, 7_052_000)),
                bins: [1, 1000, 33_000, 1001],
            },
            EstimatorView::default(),
            EstimatorView {
                current: 600_000,
                worst: Some((u32::MAX, NOW + 5000)),
                bins: [u32::MAX, 600_000, 0, 0],
            },
            EstimatorView {
                worst: Some((1, u64::MAX)),
                ..EstimatorView::default()
            },
        ];
        let [service, client] = shown(&TimeoutTerms::default(), NOW, &partitions);
        assert_eq!(
            service,
            "   service : cur  33  worst  34 (at 1193427052, 1600s ago)   1   1  33   2 \n   \
             service : cur   0  worst   0 (at 0, 0s ago)   0   0   0   0 \n   \
             service : cur 600  worst 4294968 (at 1193428657, 0s ago) 4294968 600   0   0 \n   \
             service : cur   0  worst   1 (at 18446744073709551, 0s ago)   0   0   0   0 \n"
        );
        assert_eq!(
            client,
            "last reply : 1193427052, 1600s ago\n\
             network    : cur   0  worst   0 (at 0, 0s ago)   0   0   0   0 \n\
             portal 0   : cur  33  worst  34 (at 1193427052, 1600s ago)   1   1  33   2 \n"
        );
        let [service, _] = shown(&TimeoutTerms::default(), 0, &partitions[..1]);
        assert!(service.contains("(at 1193427052, 0s ago)"), "{service}");
    }

    #[test]
    fn without_adaptive_timeouts() {
        for fixed in [0, 100] {
            let terms = TimeoutTerms {
                max: AtMax::new(0).unwrap(),
                fixed: ObdTimeout::new(fixed).unwrap(),
                ..TimeoutTerms::default()
            };
            let line = format!("adaptive timeouts off, using obd_timeout {fixed}\n");
            let texts = shown(&terms, NOW, &[EstimatorView::default(); 2]);
            assert_eq!(texts, [line.clone(), line]);
        }
    }
}
