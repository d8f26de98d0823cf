// SPDX-License-Identifier: GPL-2.0-only

//! The device-mapper target `nrs`: block I/O of one client.
//!
//! # Vocabulary
//!
//! - *Device*: one line of a dm table; a client of its service.
//! - *Running*: requests pass or queue as the service decides.
//! - *Draining*: requests pass, whatever the service's state, so that a suspend can finish.
//!
//! ```text
//!              presuspend: what is queued goes down
//!   Running ─────────────────────────────────────────▶ Draining
//!      ▲                                                   │
//!      └──────────── resume, or the suspend was undone ────┘
//! ```
//!
//! A suspend without flush is served the same way: what is queued goes down, so nothing has to be pushed
//! back. Several devices may share a service, and a backing device.
//!
//! A device that is lost ([`crate::engine::client::deadlines`]) waits for its backing device, or, if its table says
//! so, ends what is not at that with a timeout, so that who has another path can take that.

use core::fmt;

use kernel::{
    prelude::*,
    time::{delay::fsleep, Delta},
};

use crate::{
    engine::{
        arrival::Arrival,
        parameters,
        registry::{self, Attachment},
    },
    sched::{
        attr::{Attrs, Id, Opcode, Priority, Stream},
        item::{Cost, Item},
        jobid::{JobId, Source},
        order::{Level, Relation},
        partition::arrive::Went,
        sources::Sources,
    },
    sys::{
        atomic::Word,
        dm::{Args, Bio, Lower, Map, Plan, Refusal, Target, WriteStream},
        misc,
        node::{Account, Held},
        task::{self, Submitter},
    },
};

mod args;

/// How often a device that is to be suspended sends down what is queued, 4 ms apart: what comes meanwhile goes by itself.
const DRAINS_MAX: u32 = 250;

/// A client of a service, made by one line of a dm table.
pub(crate) struct Device {
    config: args::Config,
    attachment: Attachment,
    draining: Word,
}

impl Device {
    /// What a request looks like to the policies.
    fn attrs(&self, bio: &About, who: &Submitter) -> Attrs {
        let known = |id| match who.is_kthread() {
            true => Id::ABSENT,
            false => Id::new(id),
        };
        let (uid, gid) = who.ids();
        let (uid, gid) = (known(uid), known(gid));
        Attrs {
            nid: self.config.nid,
            jobid: self
                .config
                .jobid
                .unwrap_or_else(|| self.jobid(who, uid, gid)),
            uid,
            gid,
            // The low half tells cgroups apart.
            cgroup: known(task::cgroup() as u32),
            opcode: bio.opcode,
            client: self.attachment.client().serial(),
            target: self.attachment.target().number(),
            stream: self.stream(bio, who),
            object: bio.object,
            offset: bio.offset,
            length: bio.bytes,
            size: self.config.size,
            priority: bio.priority,
            ..Attrs::UNKNOWN
        }
    }

    /// The job identifier made from the submitter; absent for kernel threads, which work for others.
    fn jobid(&self, who: &Submitter, uid: Id, gid: Id) -> JobId {
        if who.is_kthread() {
            return JobId::ABSENT;
        }
        let template = &self.config.template;
        let (mut cgroup, mut host) = ([0; 64], [0; 65]);
        template.expand(&Source {
            comm: &who.comm(),
            uid: uid.get(),
            gid: gid.get(),
            pid: who.pid(),
            host: if template.uses_host() {
                task::hostname(&mut host)
            } else {
                &[]
            },
            cgroup: if template.uses_cgroup() {
                task::cgroup_name(&mut cgroup)
            } else {
                None
            },
        })
    }

    /// The offset stream of a request.
    fn stream(&self, bio: &About, who: &Submitter) -> u64 {
        let cgroup = || (!who.is_kthread()).then(task::cgroup);
        self.config.stream.of(bio.stream.number(), cgroup)
    }

    /// Everything of the submitter that a class may depend on, for the cache of classes.
    fn ident(&self, bio: &About, who: &Submitter) -> [u64; 5] {
        let comm = u128::from_le_bytes(who.comm());
        let (uid, gid) = who.ids();
        let template = &self.config.template;
        let dispatch = self.attachment.service().dispatch();
        let detail = if template.uses_cgroup() || dispatch.wants_cgroup() {
            task::cgroup()
        } else {
            0
        };
        let pid = if template.uses_pid() { who.pid() } else { 0 };
        let stream = self.stream(bio, who);
        let detail = match self.config.stream {
            // The cgroup of the submitter as well.
            Stream::Cgroup if !who.is_kthread() => stream,
            _ => detail ^ stream << 40,
        };
        [
            u64::from(self.attachment.client().serial()) << 32 | u64::from(pid),
            u64::from(uid) << 32 | u64::from(gid),
            comm as u64,
            (comm >> 64) as u64,
            // Numbers of operations are below 2048.
            detail << 12 | u64::from(bio.opcode.number()) << 1 | u64::from(who.is_kthread()),
        ]
    }
}

/// What a bio asks for.
struct About {
    opcode: Opcode,
    priority: Priority,
    offset: u64,
    bytes: u64,
    stream: WriteStream,
    /// What its range is in.
    object: u64,
}

/// Why `bio` might have high priority.
fn reasons<T: Target>(bio: &Bio<'_, T>) -> Sources {
    let mut reasons = Sources::from_bits(0);
    for (is, reason) in [
        (bio.is_realtime(), Sources::REALTIME),
        (bio.is_meta(), Sources::META),
        (bio.is_prio(), Sources::PRIO),
    ] {
        if is {
            reasons = reasons.and(reason);
        }
    }
    reasons
}

impl Target for Device {
    const NAME: &'static CStr = c"nrs";
    const VERSION: [u32; 3] = [1, 0, 0];
    type Config = args::Config;

    fn parse(args: &Args<'_>) -> Result<Plan<args::Config>, Refusal> {
        args::parse(args)
    }

    fn create(config: args::Config, lower: Lower<'_>) -> Result<Self, Refusal> {
        let attachment = registry::attach(
            &config.service,
            lower.label,
            lower.mapped,
            lower.name,
            lower.number,
            lower.depth,
        )
        .map_err(|error| Refusal {
            error,
            reason: match error {
                ELOOP => c"DEVICE: is a client of the same service",
                ENOSPC => c"SERVICE: has as many targets as it can take",
                EBUSY => c"SERVICE: serves programs in user space",
                _ => c"SERVICE: cannot be made",
            },
        })?;
        if let Some(deadlines) = attachment.client().deadlines() {
            deadlines.open(lower.disk, config.fails);
        }
        Ok(Self {
            config,
            attachment,
            draining: Word::new(0),
        })
    }

    #[inline]
    fn map(&self, bio: Bio<'_, Self>) -> Map {
        let client = self.attachment.client();
        let deadlines = client.deadlines();
        let is_failing = || deadlines.is_some_and(|deadlines| deadlines.is_failing());
        if is_failing() {
            client.count_refused();
            return bio.time_out();
        }
        // Where flushes do not go past the target: callers wait for them, so there is no order to keep; they carry
        // nothing to charge.
        if bio.is_empty_flush() {
            client.count_operation(misc::cpu(), Opcode::OST_SYNC);
            return bio.bypass();
        }
        let who = task::submitter();
        let service = self.attachment.service();
        let dispatch = service.dispatch();
        let wants_file = dispatch.wants_file();
        let cpu = misc::cpu();
        let urgent = bio.is_urgent();
        let preferred = urgent || bio.is_realtime();
        let priority = if preferred && dispatch.sources().has(reasons(&bio)) {
            Priority::High
        } else {
            Priority::Regular
        };
        // xfsaild writes back metadata as if it reclaimed memory.
        let reclaims = bio.is_swap() || (who.reclaims() && !urgent);
        let must_pass = urgent || reclaims;
        let may_sleep = !bio.is_nowait() && !who.reclaims();
        if who.is_kthread() {
            client.count_anonymous(cpu);
        }
        let go_on = || self.draining.get() != 0 || is_failing();
        let waited = may_sleep && !must_pass && client.hold_back(go_on);
        // The device may have been lost meanwhile.
        if waited && is_failing() {
            client.count_refused();
            client.hand_on();
            return bio.time_out();
        }
        let bytes = bio.bytes();
        let begin = |opcode: Opcode, bytes| {
            client.count_operation(cpu, opcode);
            (opcode, Cost::new(opcode.direction(), bytes))
        };
        let (opcode, cost) = if bio.is_read() {
            begin(Opcode::OST_READ, bytes)
        } else if bio.is_punch() {
            // It names a range; nothing is transferred.
            begin(Opcode::OST_PUNCH, 0)
        } else {
            begin(Opcode::OST_WRITE, bytes)
        };
        let target = self.attachment.target().index();
        let account = Account {
            lengthy: opcode == Opcode::OST_PUNCH,
            ..Account::new(priority, cpu)
        };
        let (offset, stream) = (bio.offset(), bio.stream());
        let held = bio.into_held(cost, target, wants_file, account);
        let about = About {
            opcode,
            priority,
            offset,
            bytes,
            stream,
            object: held.spot().object,
        };
        // Those of a backing device meet, whoever brings them.
        let domain = (dispatch.level() == Level::Overlap).then_some(target.into());
        let relation = domain.map(|domain| Relation::overlap(domain, &held.spot(), cost.direction));
        let arrived = service.arrive(
            held,
            &Arrival {
                // Which file it is for does not fit, and a host name neither, which may change at any time.
                ident: (dispatch.wants_class() && !wants_file && !self.config.template.uses_host())
                    .then(|| self.ident(&about, &who)),
                client,
                target: self.attachment.target(),
                must_pass,
                reclaims,
                may_sleep,
                may_pass: self.config.opportunity,
                draining: Some(&self.draining),
                relation: relation.as_ref(),
                may_overflow: true,
                domain,
            },
            || self.attrs(&about, &who),
        );
        if waited {
            client.hand_on();
        }
        match arrived.went {
            Went::Passed(mut held) => {
                if let Some(deadlines) = deadlines {
                    deadlines.enter(held.account_mut());
                }
                Map::passed(held)
            }
            // With leave to overflow nothing is refused.
            Went::Queued | Went::Blocked | Went::Refused(_) => Map::submitted(),
        }
    }

    fn submitting(&self, account: &mut Account) -> bool {
        let client = self.attachment.client();
        client.count_submitted();
        match client.deadlines() {
            Some(deadlines) => deadlines.submits(account),
            None => true,
        }
    }

    #[inline]
    fn defers(&self, account: &Account) -> bool {
        let target = self.attachment.target();
        target.defers(account.placement.admission)
    }

    fn defer(&self, held: Held) {
        self.attachment.target().defer(held);
    }

    #[inline]
    fn ended(&self, account: &Account, cost: Cost, error: i32) {
        let client = self.attachment.client();
        let cpu = misc::cpu();
        client.count_ended(cpu, cost, error != 0);
        if let Some(deadlines) = client.deadlines() {
            deadlines.leave(account);
        }
        let target = self.attachment.target();
        self.attachment
            .service()
            .complete(account, cost, target, error, cpu);
    }

    fn presuspend(&self) {
        self.draining.set(1);
        self.attachment.client().let_go();
        // A drain sends out as many as were queued, in the order of the policy: others' that arrive meanwhile may go
        // before what is queued here. What is left when nothing is queued waits for the end of other requests.
        let target = self.attachment.target();
        for _ in 0..DRAINS_MAX {
            if !self.attachment.service().drain_target(target)
                || self.attachment.client().held() == 0
            {
                break;
            }
            // What was sent out gets to the device meanwhile.
            fsleep(Delta::from_millis(4));
        }
    }

    fn resume(&self) {
        self.draining.set(0);
    }

    fn status(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let concurrency = self.attachment.service().concurrency();
        self.attachment.client().write(concurrency, out)
    }

    fn table(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        args::write(&self.config, out)
    }

    /// `drain`; `timeouts`; `service NAME [VALUE…]` with the names of the debugfs files.
    fn message(&self, args: &Args<'_>, out: &mut dyn fmt::Write) -> Result {
        match (args.get(0), args.get(1)) {
            (Some("drain"), None) if args.len() == 1 => {
                self.attachment.service().drain();
                Ok(())
            }
            (Some("timeouts"), None) if args.len() == 1 => {
                match self.attachment.client().deadlines() {
                    Some(deadlines) => deadlines.write_timeouts(out).map_err(|_| ENOSPC),
                    None => Ok(()),
                }
            }
            (Some("service"), Some(name)) => {
                let service = self.attachment.service();
                if args.len() == 2 {
                    return parameters::show(service, name, out);
                }
                let mut value = KVec::new();
                for index in 2..args.len() {
                    let word = args.get(index).ok_or(EINVAL)?;
                    if index > 2 {
                        value.push(b' ', GFP_KERNEL)?;
                    }
                    value.extend_from_slice(word.as_bytes(), GFP_KERNEL)?;
                }
                let value = core::str::from_utf8(&value).map_err(|_| EINVAL)?;
                let set = parameters::set(service, name, value);
                set.map_err(|refused| refused.report(service.name()))
            }
            _ => Err(EINVAL),
        }
    }
}
