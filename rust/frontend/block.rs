// SPDX-License-Identifier: GPL-2.0-only

//! Requests of block devices: what both front-ends of the block layer tell a service of them.
//!
//! # Vocabulary
//!
//! - *Naming*: what an administrator says of a client, by which its requests are told apart.
//! - *Member*: a block device in a service.
//! - *Traits*: what a request asks for, and how it may be treated.

use kernel::{
    prelude::*,
    time::{delay::fsleep, Delta},
};

use crate::{
    engine::{
        arrival::Arrival, client::Client, registry::Attachment, service::Service, target::Target,
    },
    sched::{
        attr::{Attrs, Id, Opcode, Priority, Stream},
        item::{Cost, Item},
        jobid::{JobId, Source, Template},
        nid::Nid,
        order::{Level, Relation},
        partition::arrive::Went,
    },
    sys::{
        bio::{View, WriteStream},
        misc,
        node::{Account, Held},
        task::{self, Submitter, Whose},
    },
};

/// How jobs are named unless an administrator says otherwise.
const DEFAULT_TEMPLATE: &str = "%e.%u";

/// How often a device that is to let go of its requests dispatches what is queued, 4 ms apart. Requests that arrive
/// meanwhile pass.
const DRAINS_MAX: u32 = 250;

/// Reads how job identifiers are made. A blank could be given, but not in the text that `dmsetup table` shows and
/// `dmsetup load` takes: libdevmapper escapes backslashes for the kernel, and no blanks.
pub(crate) fn template(text: &str) -> Option<Template> {
    Template::parse(text).ok().filter(|_| !text.contains(' '))
}

/// What an administrator says of a client.
#[derive(Clone, Copy)]
pub(crate) struct Naming {
    /// Network identifier of the client.
    pub(crate) nid: Option<Nid>,
    /// Job identifier of all requests, instead of one made from the submitter.
    pub(crate) jobid: Option<JobId>,
    /// Nodes of the job that the requests are of; 0: not said.
    pub(crate) size: u32,
    /// How job identifiers are made.
    pub(crate) template: Template,
    /// Whether requests may be dispatched at once while no request waits.
    pub(crate) opportunity: bool,
    /// Source of offset streams.
    pub(crate) stream: Stream,
}

impl Naming {
    /// Returns what holds unless an administrator says otherwise.
    ///
    /// # Errors
    ///
    /// None: the default template is one.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            nid: None,
            jobid: None,
            size: 0,
            template: template(DEFAULT_TEMPLATE).ok_or(EINVAL)?,
            opportunity: true,
            stream: Stream::Hint,
        })
    }

    /// Returns the job identifier made from the submitter, which is `whose`. Only the cgroup of a request can name the job of
    /// an anonymous submitter.
    fn jobid(&self, who: &Submitter<'_>, whose: &Whose) -> JobId {
        let template = &self.template;
        let unknown = whose.owner.is_none();
        let (mut cgroup, mut host) = ([0; 64], [0; 65]);
        let cgroup = if template.uses_cgroup() {
            who.cgroup_name(&mut cgroup)
        } else {
            None
        };
        if unknown && cgroup.is_none() {
            return JobId::ABSENT;
        }
        template.expand(&Source {
            comm: &if unknown { [0; 16] } else { whose.comm },
            uid: whose.owner.map(|(uid, _)| uid),
            gid: whose.owner.map(|(_, gid)| gid),
            pid: whose.pid,
            host: if template.uses_host() {
                task::hostname(&mut host)
            } else {
                &[]
            },
            cgroup,
        })
    }
}

/// What a request asks for, and how it may be treated.
pub(crate) struct Traits {
    opcode: Opcode,
    priority: Priority,
    /// First byte, counted from the start of the device.
    offset: u64,
    bytes: u64,
    stream: WriteStream,
    must_pass: bool,
    reclaims: bool,
    may_sleep: bool,
    /// A policy asks which file the request is for.
    pub(crate) wants_file: bool,
    cpu: u16,
}

impl Traits {
    /// Returns what the request costs. A request that names a range transfers nothing.
    pub(crate) fn cost(&self) -> Cost {
        let bytes = if self.is_lengthy() { 0 } else { self.bytes };
        Cost::new(self.opcode.direction(), bytes)
    }

    fn is_lengthy(&self) -> bool {
        self.opcode == Opcode::OST_PUNCH
    }

    /// Returns where the request is accounted.
    pub(crate) fn account(&self) -> Account {
        Account {
            lengthy: self.is_lengthy(),
            ..Account::new(self.priority, self.cpu)
        }
    }

    /// Says that the submitter may not sleep, unless it `may`.
    #[cfg(feature = "elevator")]
    pub(crate) fn restrict_sleep(&mut self, may: bool) {
        self.may_sleep &= may;
    }

    /// Returns whether its submitter may be held back.
    pub(crate) fn can_wait(&self) -> bool {
        self.may_sleep && !self.must_pass
    }
}

/// What a queued request has grown by.
#[cfg(feature = "elevator")]
pub(crate) struct Growth {
    attrs: Attrs,
    cost: Cost,
    cpu: u16,
}

/// A block device in a service.
pub(crate) struct Member {
    attachment: Attachment,
}

impl Member {
    /// Returns the member with its place in a service.
    pub(crate) fn new(attachment: Attachment) -> Self {
        Self { attachment }
    }

    /// Returns the service.
    pub(crate) fn service(&self) -> &Service {
        self.attachment.service()
    }

    /// Returns the client of the service.
    pub(crate) fn client(&self) -> &Client {
        self.attachment.client()
    }

    /// Returns the backing device.
    pub(crate) fn target(&self) -> &kernel::sync::Arc<Target> {
        self.attachment.target()
    }

    /// Returns what the request of `bio` by `who` asks for; it is `bytes` long and begins at `offset` of the device.
    #[inline(always)]
    pub(crate) fn traits(
        &self,
        bio: View<'_>,
        who: &Submitter<'_>,
        offset: u64,
        bytes: u64,
    ) -> Traits {
        let dispatch = self.service().dispatch();
        let cpu = misc::cpu();
        let urgent = bio.is_urgent();
        let preferred = urgent || bio.is_realtime();
        let priority = if preferred && dispatch.sources().has(bio.reasons()) {
            Priority::High
        } else {
            Priority::Regular
        };
        // xfsaild writes back metadata as if it reclaimed memory.
        let reclaims = bio.is_swap() || (who.reclaims() && !urgent);
        let opcode = if bio.is_read() {
            Opcode::OST_READ
        } else if bio.is_punch() {
            Opcode::OST_PUNCH
        } else {
            Opcode::OST_WRITE
        };
        Traits {
            opcode,
            priority,
            offset,
            bytes,
            stream: bio.stream(),
            must_pass: urgent || reclaims,
            reclaims,
            may_sleep: !bio.is_nowait() && !who.reclaims(),
            wants_file: dispatch.wants_file(),
            cpu,
        }
    }

    /// Brings a request to the service, as [`Service::arrive`] does. `draining` says whether requests are to pass.
    #[inline(always)]
    pub(crate) fn arrive(
        &self,
        held: Held,
        traits: &Traits,
        naming: &Naming,
        who: &Submitter<'_>,
        draining: &dyn Fn() -> bool,
    ) -> Went<Held> {
        self.client().count_operation(traits.cpu, traits.opcode);
        if who.is_anonymous() {
            self.client().count_anonymous(traits.cpu);
        }
        let dispatch = self.service().dispatch();
        let target = self.target();
        let spot = held.spot();
        // All clients of a backing device share one ordering domain.
        let domain = (dispatch.level() == Level::Overlap).then_some(target.index().into());
        let direction = held.cost().direction;
        let relation = domain.map(|domain| Relation::overlap(domain, &spot, direction));
        // Which file it is for does not fit, and a host name neither, which may change at any time.
        let fits = !traits.wants_file && !naming.template.uses_host();
        let arrival = Arrival {
            ident: (dispatch.wants_class() && fits).then(|| self.ident(traits, naming, who)),
            client: self.client(),
            target,
            must_pass: traits.must_pass,
            reclaims: traits.reclaims,
            may_sleep: traits.may_sleep,
            may_pass: naming.opportunity,
            draining: Some(draining),
            relation: relation.as_ref(),
            may_overflow: true,
            domain,
        };
        let attrs = || self.attrs(traits, naming, who, spot.object);
        self.service().arrive(held, &arrival, attrs).went
    }

    /// Returns whether requests that are queued may grow. The order of requests goes by the ranges that they came with; which
    /// file a request is for, and the name of the host, nobody compares.
    #[cfg(feature = "elevator")]
    #[inline]
    pub(crate) fn may_grow(&self, naming: &Naming) -> bool {
        let dispatch = self.service().dispatch();
        self.client().held() != 0
            && dispatch.level() != Level::Overlap
            && !dispatch.wants_file()
            && !naming.template.uses_host()
    }

    /// Returns what a queued request has grown by, which `traits` describe, for [`Self::charge`].
    #[cfg(feature = "elevator")]
    pub(crate) fn growth(&self, traits: &Traits, naming: &Naming, who: &Submitter<'_>) -> Growth {
        let object = self.target().index().into();
        Growth {
            attrs: self.attrs(traits, naming, who, object),
            cost: traits.cost(),
            cpu: traits.cpu,
        }
    }

    /// Charges what a queued request has grown by.
    #[cfg(feature = "elevator")]
    pub(crate) fn charge(&self, growth: &Growth) {
        let Growth { attrs, cost, cpu } = growth;
        self.service().merge(self.target(), *cpu, attrs, *cost);
    }

    /// Returns what a request looks like to the policies; its range is in `object`.
    fn attrs(&self, traits: &Traits, naming: &Naming, who: &Submitter<'_>, object: u64) -> Attrs {
        let whose = who.whose(true, true);
        let (uid, gid) = match whose.owner {
            Some((uid, gid)) => (Id::new(uid), Id::new(gid)),
            None => (Id::ABSENT, Id::ABSENT),
        };
        Attrs {
            nid: naming.nid,
            jobid: naming.jobid.unwrap_or_else(|| naming.jobid(who, &whose)),
            uid,
            gid,
            // The low half tells cgroups apart.
            cgroup: whose.cgroup.map_or(Id::ABSENT, |id| Id::new(id as u32)),
            opcode: traits.opcode,
            client: self.client().serial(),
            target: self.target().number(),
            stream: (naming.stream).of(traits.stream.number(), || whose.cgroup),
            object,
            offset: traits.offset,
            length: traits.bytes,
            size: naming.size,
            priority: traits.priority,
            ..Attrs::UNKNOWN
        }
    }

    /// Returns everything of the submitter that a class may depend on, for the cache of classes.
    fn ident(&self, traits: &Traits, naming: &Naming, who: &Submitter<'_>) -> [u64; 5] {
        let template = &naming.template;
        let by_stream = naming.stream == Stream::Cgroup;
        let by_cgroup =
            by_stream || template.uses_cgroup() || self.service().dispatch().wants_cgroup();
        let Whose {
            comm,
            owner,
            pid,
            cgroup,
        } = who.whose(template.uses_pid(), by_cgroup);
        let comm = u128::from_le_bytes(comm);
        let (uid, gid) = owner.unwrap_or_default();
        let detail = match cgroup {
            // It names the stream as well.
            Some(cgroup) if by_stream => cgroup,
            _ => cgroup.unwrap_or(0) ^ naming.stream.of(traits.stream.number(), || None) << 40,
        };
        [
            u64::from(self.client().serial()) << 32 | u64::from(pid),
            u64::from(uid) << 32 | u64::from(gid),
            comm as u64,
            (comm >> 64) as u64,
            // Numbers of operations are below 2048.
            detail << 12 | u64::from(traits.opcode.number()) << 1 | u64::from(owner.is_none()),
        ]
    }

    /// Counts the end of a request, which `error` says how it failed, 0 if it did not, and decides what its slot is used
    /// for next. Any context.
    #[inline(always)]
    pub(crate) fn ended(&self, account: &Account, cost: Cost, error: i32) {
        let client = self.client();
        let cpu = misc::cpu();
        client.count_ended(cpu, cost, error != 0);
        if let Some(deadlines) = client.deadlines() {
            deadlines.leave(account);
        }
        self.service()
            .complete(account, cost, self.target(), error, cpu);
    }

    /// Counts a queued request that is about to be submitted; returns whether it is to be.
    pub(crate) fn submitting(&self, account: &mut Account) -> bool {
        let client = self.client();
        client.count_submitted();
        match client.deadlines() {
            Some(deadlines) => deadlines.submits(account),
            None => true,
        }
    }

    /// Dispatches what is queued, whether or not slots are free. May sleep.
    ///
    /// A drain dispatches as many requests as were queued, in the order of the policy: requests of other clients that
    /// arrive meanwhile may go before. What is left when nothing is queued waits for the end of other requests.
    pub(crate) fn drain(&self) {
        for _ in 0..DRAINS_MAX {
            if !self.service().drain_target(self.target()) || self.client().held() == 0 {
                break;
            }
            // What was dispatched gets to the device meanwhile.
            fsleep(Delta::from_millis(4));
        }
    }
}
