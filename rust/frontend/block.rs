// SPDX-License-Identifier: GPL-2.0-only

//! Requests of block devices, as both front-ends of the block layer pass them to a service.
//!
//! # Terms
//!
//! - *Naming*: the administrator's settings for a client, which identify its requests.
//! - *Client*: a block device in a service ([`BlockClient`]).
//! - *Traits*: operation and range of a request, and permissions for its treatment.

use core::net::IpAddr;

use kernel::time::{delay::fsleep, Delta};

use crate::{
    engine::{
        arrival::Arrival, client::Client, registry::Attachment, service::Service, target::Target,
    },
    sched::{
        attr::{cgroup::CgroupOwner, Attrs, CgroupPath, Id, IoPriority, Opcode, Priority, Stream},
        item::{Cost, Item},
        jobid::{JobId, Source, Template},
        nid::{Net, Nid},
        order::Relation,
        owners::OwnerIds,
        parameters::service::Level,
        partition::admit::AdmissionOutcome,
        timeouts::in_flight::Submitted,
    },
    sys::{
        bio::{BioView, WriteStream},
        misc,
        node::{Held, NodeAccount},
        task::{Submitter, SubmitterId},
    },
};

/// Maximum number of drains of a device whose requests must end, 4 ms apart. Requests that arrive
/// meanwhile bypass the queue.
const DRAINS_MAX: u32 = 250;

/// Parses the format of job identifiers. Blanks are rejected, because the text that `dmsetup table`
/// shows and `dmsetup load` reads cannot have any. libdevmapper escapes backslashes for the kernel,
/// and no blanks.
pub(crate) fn template(text: &str) -> Option<Template> {
    Template::parse(text).ok().filter(|_| !text.contains(' '))
}

/// Settings of the administrator for a client.
#[derive(Clone, Copy)]
pub(crate) struct ClientNaming {
    /// Network identifier of the client.
    pub(crate) nid: Option<Nid>,
    /// Job identifier of all requests, instead of one made from the submitter.
    pub(crate) jobid: Option<JobId>,
    /// Number of nodes of the job of the requests; 0: unknown.
    pub(crate) size: u32,
    /// Format of job identifiers.
    pub(crate) template: Template,
    /// True if requests may be dispatched immediately while no request is queued.
    pub(crate) opportunity: bool,
    /// Source of offset streams.
    pub(crate) stream: Stream,
    /// Number of changes so far, for the cache of classes.
    pub(crate) generation: u32,
}

impl Default for ClientNaming {
    fn default() -> Self {
        Self {
            nid: None,
            jobid: None,
            size: 0,
            template: Template::default(),
            opportunity: true,
            stream: Stream::Hint,
            generation: 0,
        }
    }
}

impl ClientNaming {
    /// Returns true if job identifiers contain the name of the cgroup or of the host.
    #[cfg(feature = "elevator")]
    pub(crate) fn uses_names(&self) -> bool {
        self.template.uses_cgroup() || self.template.uses_host()
    }

    /// Returns the job identifier of the submitter with the identity `whose`, for the user `uid`
    /// and the group `gid`. For an anonymous submitter, only the cgroup of the request can name the
    /// job and the user.
    fn jobid(&self, who: &Submitter<'_>, whose: &SubmitterId, uid: Id, gid: Id) -> JobId {
        let template = &self.template;
        let unknown = whose.owner.is_none();
        let (mut cgroup, mut host) = ([0; 64], [0; 65]);
        let cgroup = if template.uses_cgroup() {
            who.cgroup_name(&mut cgroup)
        } else {
            None
        };
        if uid == Id::ABSENT && cgroup.is_none() {
            return JobId::ABSENT;
        }
        template.expand(&Source {
            comm: &if unknown { [0; 16] } else { whose.comm },
            uid: uid.get(),
            gid: gid.get(),
            pid: (!unknown).then_some(whose.pid),
            host: if template.uses_host() && !unknown {
                who.hostname(&mut host)
            } else {
                &[]
            },
            cgroup,
        })
    }
}

/// Operation and range of a request, and permissions for its treatment.
pub(crate) struct RequestTraits {
    opcode: Opcode,
    /// `bi_ioprio`.
    ioprio: u16,
    priority: Priority,
    /// First byte, counted from the start of the device.
    offset: u64,
    bytes: u64,
    stream: WriteStream,
    must_pass: bool,
    reclaims: bool,
    may_sleep: bool,
    /// True if a policy needs the file of the request.
    pub(crate) wants_file: bool,
    cpu: u16,
}

impl RequestTraits {
    /// Returns the cost of the request; `is_piece` as in [`Cost`]. A request that only names a
    /// range transfers nothing.
    pub(crate) fn cost(&self, is_piece: bool) -> Cost {
        let bytes = if self.is_lengthy() { 0 } else { self.bytes };
        Cost {
            is_piece,
            ..Cost::new(self.opcode.direction(), bytes)
        }
    }

    fn is_lengthy(&self) -> bool {
        self.opcode == Opcode::OST_PUNCH
    }

    /// Creates the account of the request.
    pub(crate) fn account(&self) -> NodeAccount {
        NodeAccount {
            lengthy: self.is_lengthy(),
            ..NodeAccount::new(self.priority, self.cpu)
        }
    }

    /// Removes the permission to sleep, unless `may` is true.
    #[cfg(feature = "elevator")]
    pub(crate) fn restrict_sleep(&mut self, may: bool) {
        self.may_sleep &= may;
    }

    /// Makes the request dispatch at once if `must`.
    #[cfg(feature = "elevator")]
    pub(crate) fn force(&mut self, must: bool) {
        self.must_pass |= must;
    }

    /// Returns true if the submitter may be blocked.
    pub(crate) fn can_wait(&self) -> bool {
        self.may_sleep && !self.must_pass
    }
}

/// Charge for the growth of a queued request.
#[cfg(feature = "elevator")]
pub(crate) struct MergeCharge {
    attrs: Attrs,
    cost: Cost,
    cpu: u16,
}

/// A block device in a service.
pub(crate) struct BlockClient {
    attachment: Attachment,
}

impl BlockClient {
    /// Creates the client with its place in a service.
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

    /// Returns the traits of the request of `bio` by `who`; the request is `bytes` long and begins
    /// at `offset` of the device.
    #[inline(always)]
    pub(crate) fn traits(
        &self,
        bio: BioView<'_>,
        who: &Submitter<'_>,
        offset: u64,
        bytes: u64,
    ) -> RequestTraits {
        let dispatch = self.service().dispatch();
        let cpu = misc::cpu();
        let urgent = bio.is_urgent();
        let preferred = urgent || bio.is_realtime();
        let priority = if preferred && dispatch.sources().has(bio.reasons()) {
            Priority::High
        } else {
            Priority::Regular
        };
        // xfsaild writes back metadata with the flag of tasks that reclaim memory.
        let reclaims = bio.is_swap() || (who.reclaims() && !urgent);
        let opcode = if bio.is_read() {
            Opcode::OST_READ
        } else if bio.is_punch() {
            Opcode::OST_PUNCH
        } else {
            Opcode::OST_WRITE
        };
        RequestTraits {
            opcode,
            ioprio: bio.ioprio(),
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

    /// Passes a request to the service, as [`Service::arrive`] does. `draining` returns true if
    /// requests must bypass the queue.
    #[inline(always)]
    pub(crate) fn arrive(
        &self,
        held: Held,
        traits: &RequestTraits,
        naming: &ClientNaming,
        who: &Submitter<'_>,
        draining: &dyn Fn() -> bool,
    ) -> AdmissionOutcome<Held> {
        self.client()
            .load()
            .count_operation(traits.cpu, traits.opcode);
        let dispatch = self.service().dispatch();
        let wants_class = dispatch.wants_class();
        let mapped = match wants_class {
            true => self.mapped(traits, who),
            false => None,
        };
        if mapped.is_none() && who.is_anonymous() {
            match who.cgroup() {
                Some(_) => self.client().load().count_by_cgroup(traits.cpu),
                None => self.client().load().count_anonymous(traits.cpu),
            }
        }
        let target = self.target();
        let range = held.byte_range();
        // All clients of a backing device share one ordering domain.
        let domain = (dispatch.level() == Level::Overlap).then_some(target.index().into());
        let direction = held.cost().direction;
        let relation = domain.map(|domain| Relation::overlap(domain, &range, direction));
        // The file does not fit, and neither does the host name, which may change at any time.
        let fits = !traits.wants_file && !naming.template.uses_host();
        let arrival = Arrival {
            ident: (wants_class && fits).then(|| self.ident(traits, naming, who, mapped)),
            load: self.client().load(),
            target,
            must_pass: traits.must_pass,
            reclaims: traits.reclaims,
            may_sleep: traits.may_sleep,
            // The end of a request that is not queued returns nothing to its class.
            may_pass: naming.opportunity && !target.is_refusing(),
            draining: Some(draining),
            relation: relation.as_ref(),
            may_overflow: true,
            domain,
        };
        let attrs = || self.attrs(traits, naming, who, mapped, range.object);
        self.service().arrive(held, &arrival, attrs).went
    }

    /// Returns true if queued requests may grow. The order of requests uses their original ranges,
    /// and merges compare neither the file nor the host name.
    #[cfg(feature = "elevator")]
    #[inline]
    pub(crate) fn may_grow(&self, naming: &ClientNaming) -> bool {
        let dispatch = self.service().dispatch();
        self.client().load().held() != 0
            && dispatch.level() != Level::Overlap
            && !dispatch.wants_file()
            && !naming.template.uses_host()
    }

    /// Returns the growth of a queued request by `traits`, for [`Self::charge`].
    #[cfg(feature = "elevator")]
    pub(crate) fn growth(
        &self,
        traits: &RequestTraits,
        naming: &ClientNaming,
        who: &Submitter<'_>,
    ) -> MergeCharge {
        let object = self.target().index().into();
        MergeCharge {
            attrs: self.attrs(traits, naming, who, self.owner(who), object),
            cost: traits.cost(false),
            cpu: traits.cpu,
        }
    }

    /// Charges the growth of a queued request.
    #[cfg(feature = "elevator")]
    pub(crate) fn charge(&self, growth: &MergeCharge) {
        let MergeCharge { attrs, cost, cpu } = growth;
        self.service().merge(self.target(), *cpu, attrs, *cost);
    }

    /// Returns the owner of the submitter's cgroup by the administrator's map, and counts the
    /// request if there is one.
    #[inline(always)]
    fn mapped(&self, traits: &RequestTraits, who: &Submitter<'_>) -> Option<OwnerIds> {
        if !self.service().dispatch().cgroup_use().has_owners() {
            return None;
        }
        let owner = self.owner(who)?;
        self.client().load().count_by_map(traits.cpu);
        Some(owner)
    }

    /// Returns the owner of the submitter's cgroup by the administrator's map.
    #[cold]
    fn owner(&self, who: &Submitter<'_>) -> Option<OwnerIds> {
        let cgroup_use = self.service().dispatch().cgroup_use();
        if !cgroup_use.has_owners() {
            return None;
        }
        let id = who.cgroup().filter(|id| *id != 0)?;
        let path = || who.names_of(id).map(|(path, _)| path);
        self.service().dispatch().owner(cgroup_use, id, path)
    }

    /// Returns the attributes of a request, which belongs to `mapped` if there is one; its range is
    /// in `object`.
    fn attrs(
        &self,
        traits: &RequestTraits,
        naming: &ClientNaming,
        who: &Submitter<'_>,
        mapped: Option<OwnerIds>,
        object: u64,
    ) -> Attrs {
        let whose = who.whose(true, true);
        let known = mapped.map(OwnerIds::get).or(whose.owner);
        let by_policy = self.service().dispatch().cgroup_use().is_by_policy();
        let names = if known.is_none() || by_policy {
            who.cgroup_names()
        } else {
            None
        };
        let (cgroup, of_cgroup) = names.unwrap_or((CgroupPath::ABSENT, None));
        let (uid, gid, owner) = match (known, of_cgroup) {
            (Some((uid, gid)), _) => (Id::new(uid), Id::new(gid), CgroupPath::ABSENT),
            // The group and the job of a user's slice are not known. The slice stands for them, as
            // the user may make cgroups below it.
            (None, Some(CgroupOwner::User(uid))) => {
                (Id::new(uid), Id::ABSENT, CgroupPath::user_slice(uid))
            }
            (None, Some(CgroupOwner::Cgroup(owner))) => (Id::ABSENT, Id::ABSENT, owner),
            (None, None) => (Id::ABSENT, Id::ABSENT, CgroupPath::ABSENT),
        };
        let jobid = || naming.jobid(who, &whose, uid, gid);
        let nid_of = |client: IpAddr| Nid::new(Net::Tcp, 0, client.into()).ok();
        Attrs {
            nid: naming.nid.or_else(|| whose.client.and_then(nid_of)),
            jobid: naming.jobid.unwrap_or_else(jobid),
            uid,
            gid,
            cgroup,
            owner,
            opcode: traits.opcode,
            io_priority: IoPriority::from_kernel(traits.ioprio),
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

    /// Returns all properties of the submitter that a class may depend on, for the cache of
    /// classes.
    fn ident(
        &self,
        traits: &RequestTraits,
        naming: &ClientNaming,
        who: &Submitter<'_>,
        mapped: Option<OwnerIds>,
    ) -> [u64; 5] {
        let template = &naming.template;
        let by_stream = naming.stream == Stream::Cgroup;
        let by_policy = || self.service().dispatch().cgroup_use().is_by_policy();
        let by_cgroup = by_stream || template.uses_cgroup() || by_policy();
        let SubmitterId {
            comm,
            owner,
            client,
            pid,
            cgroup,
        } = who.whose(template.uses_pid(), by_cgroup);
        let (uid, gid) = match mapped {
            Some(ids) => ids.get(),
            None => owner.unwrap_or_default(),
        };
        // Process ids have 22 bits.
        let pid = naming.generation << 22 ^ pid;
        let detail = match cgroup {
            // The cgroup identifies the stream as well.
            Some(cgroup) if by_stream => cgroup,
            _ => cgroup.unwrap_or(0) ^ naming.stream.of(traits.stream.number(), || None) << 40,
        };
        // The last byte of a name is NUL.
        let (comm, detail) = match client {
            None => (u128::from_le_bytes(comm), detail),
            Some(address) => {
                let address = match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
                    IpAddr::V6(v6) => v6.to_bits(),
                };
                (
                    address | 0xff << 120,
                    detail ^ (address >> 120 << 32) as u64,
                )
            }
        };
        [
            u64::from(self.client().serial()) << 32 | u64::from(pid),
            u64::from(uid) << 32 | u64::from(gid),
            comm as u64,
            (comm >> 64) as u64,
            // Numbers of operations of block devices are below 32.
            detail << 13
                | u64::from(mapped.is_some()) << 12
                | u64::from(traits.ioprio >> 13 << 3 | traits.ioprio & 7) << 6
                | u64::from(traits.opcode.number()) << 1
                | u64::from(owner.is_none()),
        ]
    }

    /// Counts the end of a request, and decides the next use of its slot. `error` is the errno of a
    /// failed request, or 0; `ENODEV`: the device is gone. Any context.
    #[inline(always)]
    pub(crate) fn ended(&self, account: &mut NodeAccount, cost: Cost, error: i32) {
        let (client, target) = (self.client(), self.target());
        let cpu = misc::cpu();
        client.load().count_ended(cpu, cost, error != 0);
        if let Some(deadlines) = client.deadlines() {
            deadlines.leave(account);
        }
        // A request of a lost client was not submitted.
        if !account.placement.refused {
            let service_ms = || match account.submitted {
                Submitted::NONE => u32::MAX,
                submitted => submitted.elapsed(misc::millis()),
            };
            account.placement.refused = target.note_result(error, service_ms);
        }
        self.service().complete(account, cost, target, error, cpu);
    }

    /// Counts a queued request that is about to be submitted; returns true if it is to be
    /// submitted.
    pub(crate) fn submitting(&self, account: &mut NodeAccount) -> bool {
        let client = self.client();
        client.load().count_submitted();
        match client.deadlines() {
            Some(deadlines) => deadlines.begin_queued(account),
            None => true,
        }
    }

    /// Dispatches all queued requests without taking slots. May sleep.
    ///
    /// A drain dispatches as many requests as were queued, in the order of the policy, so requests
    /// of other clients that arrive meanwhile may precede. Requests left when nothing is queued
    /// have predecessors that have not ended.
    pub(crate) fn drain(&self) {
        for _ in 0..DRAINS_MAX {
            if !self.service().drain_target(self.target()) || self.client().load().held() == 0 {
                break;
            }
            // Dispatched requests reach the device meanwhile.
            fsleep(Delta::from_millis(4));
        }
    }
}
