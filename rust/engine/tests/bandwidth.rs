// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth classes on a whole service with two partitions, and with real worker, ticker and
//! locks: changes and drains. The resulting shares are tested on the host and on devices.

use core::cell::Cell;

use kernel::{prelude::*, str::CString, sync::Arc};

use crate::{
    engine::{
        arrival::Arrival, client::Client, parameters, service::Service, target::Target,
        target_parameters::ClientKind,
    },
    sched::{
        attr::{Attrs, Id, Priority},
        item::{Cost, Direction},
        partition::admit::AdmissionOutcome,
        units::NSEC_PER_MSEC as MS,
    },
    sys::{
        misc,
        node::test_request::{self, SubmitProbe},
    },
};

/// Size of each request, bytes.
const BYTES: u64 = 64 << 10;

/// Cost of each request.
const COST: Cost = Cost::new(Direction::Read, BYTES);

/// Number of users; user ids are smaller.
const USERS: usize = 4;

/// Number of requests served during an interval, by user.
type ServedByUser = [u64; USERS];

/// A service with one infinitely fast device.
struct ServiceFixture {
    service: Arc<Service>,
    client: Arc<Client>,
    target: Arc<Target>,
    probe: Arc<SubmitProbe>,
    /// Number of requests that have ended, in order of submission.
    ended: Cell<usize>,
    brought: Cell<u64>,
}

impl ServiceFixture {
    /// Creates a service with `qbm` on both heads and this plan.
    fn new(plan: &str) -> Result<Self> {
        let service = Service::new(c"kunit", Some(kernel::cpu::nr_cpu_ids().min(2)))?;
        service.use_begin(ClientKind::Block)?;
        let (name, device) = (CString::try_from(c"one")?, CString::try_from(c"254:0")?);
        let (client, target) = service.join(name, device, super::lower(c"8:0", 8 << 20, 0))?;
        let fixture = Self {
            service,
            client,
            target,
            probe: SubmitProbe::new()?,
            ended: Cell::new(0),
            brought: Cell::new(0),
        };
        fixture.set("slots", "64")?;
        fixture.set("nrs_qbm_config", plan)?;
        fixture.set("nrs_policies", "qbm")?;
        Ok(fixture)
    }

    fn set(&self, name: &str, value: &str) -> Result {
        Ok(parameters::set(&self.service, name, value)?)
    }

    /// Submits a request of user `uid` to partition `part`; returns true if it was dispatched on
    /// arrival.
    fn bring(&self, uid: u32, part: u64, priority: Priority, must_pass: bool) -> Result<bool> {
        let brought = self.brought.get();
        self.brought.set(brought + 1);
        let name = u64::from(uid) << 32 | part << 16 | brought;
        let held = test_request::request(&self.probe, name, BYTES, priority)?;
        let arrival = Arrival {
            ident: Some([uid.into(), 0, 0, 0, 0]),
            load: self.client.load(),
            target: &self.target,
            must_pass,
            reclaims: false,
            may_pass: true,
            draining: None,
            relation: None,
            may_sleep: true,
            may_overflow: true,
            domain: Some(part),
        };
        let attrs = || Attrs {
            uid: Id::new(uid),
            client: self.client.serial(),
            target: 0,
            priority,
            ..Attrs::UNKNOWN
        };
        match self.service.arrive(held, &arrival, attrs).went {
            AdmissionOutcome::Passed(held) => {
                let account = held.account();
                test_request::discard(held);
                self.service.complete(&account, COST, &self.target, 0, 0);
                Ok(true)
            }
            AdmissionOutcome::Queued => Ok(false),
            AdmissionOutcome::Blocked => Err(EAGAIN),
            AdmissionOutcome::Refused(held) => {
                test_request::discard(held);
                Err(EAGAIN)
            }
        }
    }

    /// Submits `count` requests of user `uid` to each of two partitions.
    fn queue(&self, uid: u32, count: u32) -> Result {
        for index in 0..2 * count {
            self.bring(uid, u64::from(index) % 2, Priority::Regular, false)?;
        }
        Ok(())
    }

    /// Ends the submitted requests, and counts them.
    fn end(&self, served: &mut ServedByUser) {
        while let Some((name, account)) = self.probe.seen(self.ended.get()) {
            self.ended.set(self.ended.get() + 1);
            self.client.load().count_submitted();
            self.service.complete(&account, COST, &self.target, 0, 0);
            if let Some(count) = served.get_mut((name >> 32) as usize) {
                *count += 1;
            }
        }
    }

    /// Serves for `ms`; returns the requests served during that time.
    fn serve(&self, ms: u64) -> ServedByUser {
        // Earlier requests do not count.
        self.end(&mut ServedByUser::default());
        let until = misc::now() + ms * MS;
        let mut served = ServedByUser::default();
        while misc::now() < until {
            kernel::time::delay::fsleep(kernel::time::Delta::from_micros(500));
            self.end(&mut served);
        }
        served
    }

    /// Returns the number of queued requests.
    fn held(&self) -> u64 {
        self.client.load().held()
    }

    /// Returns the value of a parameter.
    fn text(&self, name: &str) -> Result<KVVec<u8>> {
        let mut text = LongText(KVVec::new());
        parameters::show(&self.service, name, &mut text)?;
        Ok(text.0)
    }

    /// Serves until no request is queued; returns true if that took less than ten seconds.
    fn serve_all(&self) -> bool {
        let until = misc::now() + 10_000 * MS;
        while self.held() != 0 && misc::now() < until {
            self.serve(1);
        }
        self.held() == 0
    }

    /// Dispatches all requests, and removes the device.
    fn close(self) -> Result<bool> {
        self.set("nrs_policies", "fifo")?;
        self.service.drain();
        let empty = self.serve_all();
        if !empty {
            pr_info!("{} held, {} ended\n", self.held(), self.ended.get());
        }
        self.service.leave(&self.client, &self.target);
        self.service.use_end();
        self.service.stop();
        Ok(empty)
    }
}

/// A text of any length.
struct LongText(KVVec<u8>);

impl core::fmt::Write for LongText {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let done = self.0.extend_from_slice(text.as_bytes(), GFP_KERNEL);
        done.map_err(|_| core::fmt::Error)
    }
}

/// Returns true if `text` contains `part`.
fn has(text: &[u8], part: &str) -> bool {
    text.windows(part.len())
        .any(|window| window == part.as_bytes())
}

#[kunit_tests(nrs_bandwidth)]
mod life {
    use super::*;

    #[test]
    fn a_refused_plan_changes_nothing() -> Result {
        const PLAN: &str = "by uid; group all capacity=8Mi; default class=fs min=1Mi max=1Mi";
        let fixture = ServiceFixture::new(PLAN)?;
        fixture.queue(1, 40)?;
        fixture.serve(100);
        let before = fixture.text("nrs_qbm_config")?;
        let mut refused = true;
        for wrong in [
            "group",
            "by uid; group all capacity=1Gi; client 1 class=none min=1Mi",
            "by uid\ngroup all capacity=8Mi\ndefault min=9Mi max=8Mi",
        ] {
            refused &= fixture.set("nrs_qbm_config", wrong) == Err(EINVAL);
            refused &= fixture.text("nrs_qbm_config")?[..] == before[..];
        }
        let error = fixture.text("nrs_qbm_config_error")?;
        let [_, served, ..] = fixture.serve(1_000);
        fixture.set("nrs_qbm_config", PLAN)?;
        let fine = fixture.text("nrs_qbm_config_error")?;
        let status = fixture.text("nrs_qbm_status")?;
        let empty = fixture.close()?;
        assert!(refused && has(&error, "line ") && fine.is_empty());
        assert!(served > 0 && empty);
        assert!(has(&status, "all") && has(&status, "fair_share"));
        Ok(())
    }

    #[test]
    fn what_waits_for_tokens_goes_when_the_policy_does() -> Result {
        let fixture = ServiceFixture::new(
            "by uid; group all capacity=1Mi; default class=fs min=64Ki max=64Ki",
        )?;
        let mut gone = 0;
        // Stopped, restarted or replaced, each time with requests queued.
        for policy in [
            "fifo",
            "qbm",
            "fairshare",
            "qbm",
            "qbm hp",
            "tbf uid",
            "qbm",
        ] {
            fixture.queue(1, 5)?;
            fixture.queue(2, 5)?;
            gone += fixture.serve(100).iter().sum::<u64>();
            fixture.set("nrs_policies", policy)?;
        }
        let status = fixture.text("nrs_qbm_status");
        let empty = fixture.close()?;
        assert!(empty && gone <= 140 && status.is_ok());
        Ok(())
    }

    #[test]
    fn forced_requests_and_drained_ones_go() -> Result {
        let fixture = ServiceFixture::new(
            "by uid; group all capacity=1Mi; default class=fs min=64Ki max=64Ki",
        )?;
        fixture.queue(1, 20)?;
        fixture.serve(300);
        let mut passed = 0;
        for index in 0..20 {
            passed += u64::from(fixture.bring(1, index % 2, Priority::Regular, true)?);
        }
        let held = fixture.held();
        fixture.service.drain();
        fixture.serve(50);
        let left = fixture.held();
        // Forced and drained requests are charged.
        fixture.bring(1, 0, Priority::Regular, false)?;
        let [_, owed, ..] = fixture.serve(300);
        let empty = fixture.close()?;
        assert!(passed == 20 && held >= 37 && left == 0);
        assert!(owed == 0 && empty);
        Ok(())
    }

    #[test]
    fn parts_restart_with_another_number_of_clients() -> Result {
        let fixture = ServiceFixture::new(
            "by uid; group all capacity=8Mi; default class=fs min=1Mi max=1Mi",
        )?;
        fixture.queue(1, 60)?;
        fixture.serve(200);
        let (held, ended) = (fixture.held(), fixture.ended.get());
        fixture.set("nrs_qbm_clients_max", "16")?;
        // Parts restart immediately, but the machine may be busy.
        fixture.serve_all();
        let rest = fixture.ended.get() - ended;
        fixture.queue(2, 20)?;
        fixture.serve(200);
        let [_, _, served, _] = fixture.serve(1_000);
        let wrong = fixture.set("nrs_qbm_clients_max", "15");
        let empty = fixture.close()?;
        assert!(held > 20 && rest as u64 == held && wrong == Err(EINVAL));
        assert!(served > 0 && empty);
        Ok(())
    }
}
