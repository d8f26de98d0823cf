// SPDX-License-Identifier: GPL-2.0-only

//! Requests with ordering constraints, and predecessors that are moved for their successors.

use kernel::prelude::*;

use super::{PartitionBench, PendingSubmission, RequestFate};
use crate::{
    sched::{
        attr::Priority,
        item::Cost,
        order::{RecordId, Relation},
        partition::{Admission, BATCH},
    },
    sys::node::NodeAccount,
};

/// Returns the relation of a write to block `number`.
fn block(number: u64) -> Option<Relation> {
    Some(Relation::Overlap {
        domain: 0,
        start: number,
        end: number + 1,
        writes: true,
    })
}

impl PartitionBench {
    /// Submits a write of a user to block `number`.
    fn write(
        &self,
        name: u64,
        number: u64,
        priority: Priority,
        must_pass: bool,
    ) -> Result<(RequestFate, Option<RecordId>)> {
        self.bring_after(name, 1, priority, must_pass, block(number))
    }

    /// Ends a request with a record that was dispatched on arrival.
    fn end_recorded(&self, priority: Priority, record: Option<RecordId>) {
        let mut account = NodeAccount::new(priority, 0);
        account.placement.record = record;
        account.placement.admission = Admission::Slot;
        self.give_back(&account);
        let mut kick = PendingSubmission::none();
        self.partition
            .end(&account, Cost::of_bytes(4096), Some(BATCH), &mut kick);
        self.target.kick(kick);
    }

    /// Ends up to `N` requests in order of submission; returns their names.
    fn names<const N: usize>(&self) -> [Option<u64>; N] {
        core::array::from_fn(|index| self.end_submitted(index))
    }

    /// Returns the number of records.
    fn records(&self) -> u32 {
        self.partition.with(|inner| inner.order().live())
    }
}

#[kunit_tests(nrs_order)]
mod life {
    use super::*;

    /// Verifies that requests forced for a successor observe the limit of forced requests: half the
    /// number of slots.
    #[test]
    fn forced_predecessors_observe_the_limit_of_forced_requests() -> Result {
        let bench = PartitionBench::new(4)?;
        for name in 0..4 {
            bench.write(name, 100 + name, Priority::Regular, false)?;
        }
        for name in 4..12 {
            bench.write(name, name, Priority::Regular, false)?;
        }
        let all = Relation::Overlap {
            domain: 0,
            start: 4,
            end: 12,
            writes: true,
        };
        let (came, _) = bench.bring_after(12, 1, Priority::Regular, true, Some(all))?;
        bench.partition.complete_order_work();
        let queued = bench
            .partition
            .with(|inner| inner.head(Priority::Regular).queued());
        let (mut most, mut ended) = (0, [false; 13]);
        for index in 0..9 {
            most = most.max(bench.target.forced());
            let name = bench.end_submitted(index).unwrap_or(0);
            if let Some(ended) = ended.get_mut(name as usize) {
                *ended = true;
            }
        }
        let all = ended.iter().skip(4).all(|ended| *ended);
        assert!(came == RequestFate::Blocked && queued == 0);
        assert!(most == 2 && all && bench.target.forced() == 0);
        Ok(())
    }

    /// Verifies that a request without a record gets one when there may be more records, although
    /// no request ends.
    #[test]
    fn more_records_serve_what_overflowed() -> Result {
        let bench = PartitionBench::new(4)?;
        let (first, record) = bench.write(0, 1, Priority::Regular, false)?;
        // The table is in use, so only its bound changes.
        bench.partition.set_records(1)?;
        let (second, none) = bench.write(1, 2, Priority::Regular, false)?;
        let before = bench.records();
        bench.partition.set_records(256)?;
        // It waits for the first request, whose range it overlaps.
        let after = bench.records();
        bench.end_recorded(Priority::Regular, record);
        let names = bench.names::<1>();
        assert!(first == RequestFate::Passed && record.is_some() && before == 1);
        assert!(second == RequestFate::Blocked && none.is_none());
        assert!(after == 2 && names == [Some(1)] && bench.records() == 0);
        Ok(())
    }

    /// Verifies that drained requests are dispatched however many forced requests are in flight.
    #[test]
    fn what_is_drained_takes_no_turns() -> Result {
        let bench = PartitionBench::new(2)?;
        let metadata = bench.bring(1, 1, Priority::Regular, true)?;
        let waits = bench.bring(2, 1, Priority::Regular, true)?;
        let (_, first) = bench.write(3, 7, Priority::Regular, false)?;
        for name in 4..=6 {
            bench.write(name, 7, Priority::Regular, false)?;
        }
        bench.partition.drain();
        bench.end_recorded(Priority::Regular, first);
        let names: [_; 3] = bench.names();
        bench.end_forced();
        let last = bench.end_submitted(3);
        assert!(metadata == RequestFate::Passed && waits == RequestFate::Queued);
        assert!(names == [4, 5, 6].map(Some) && last == Some(2));
        assert!(bench.target.forced() == 0 && bench.records() == 0);
        Ok(())
    }

    /// Verifies that reclaim of memory also forces the predecessors of its request.
    #[test]
    fn what_frees_memory_takes_along_what_it_waits_for() -> Result {
        let bench = PartitionBench::new(2)?;
        let metadata = bench.bring(1, 1, Priority::Regular, true)?;
        let waits = bench.bring(2, 1, Priority::Regular, true)?;
        for name in 3..=4 {
            bench.write(name, name, Priority::Regular, false)?;
        }
        let (queued, _) = bench.write(5, 7, Priority::Regular, false)?;
        let must = (true, true);
        let (reclaim, _) = bench.bring_as(6, 1, Priority::Regular, must, block(7))?;
        let names: [_; 2] = bench.names();
        bench.end_forced();
        let last = bench.end_submitted(2);
        assert!(metadata == RequestFate::Passed && waits == RequestFate::Queued);
        assert!(queued == RequestFate::Queued && reclaim == RequestFate::Blocked);
        assert!(names == [5, 6].map(Some) && last == Some(2));
        Ok(())
    }
}
