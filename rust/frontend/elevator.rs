// SPDX-License-Identifier: GPL-2.0-only

//! The I/O scheduler `nrs` of blk-mq: the requests of one disk.
//!
//! # Terms
//!
//! - *Disk*: a queue whose scheduler is nrs; a client of its service, and the target of that
//!   client.
//! - *Frozen* queue: accepts no requests, and waits for the end of existing ones, which are not
//!   throttled then.
//!
//! A disk has a service of its own, named after the disk, unless `iosched/service` names another.
//! When a disk changes its service, existing requests end in the old service, because the queue is
//! frozen meanwhile.

use kernel::{prelude::*, str::CString, sync::Arc};

mod tags;

use self::tags::Tags;
use super::block::{template, BlockClient, ClientNaming, MergeCharge};
use crate::{
    engine::{
        registry,
        service::{is_name, is_name_byte, major_minor, NAME_MAX},
        target::{LowerDevice, PullNotifier},
    },
    sched::{
        attr::Stream, item::Cost, parameters::service::Level, partition::admit::AdmissionOutcome,
        report::Report,
    },
    sys::{
        bio::{BioView, SECTOR},
        elevator::{self, Request, RequestQueue, Scheduler, SchedulerFile, SubmittedBio},
        hotplug, layout,
        node::{Held, NodeAccount},
        series::ELOOP,
        task::{self, RecordedParts},
    },
};

/// Settings of the files in `queue/iosched/`.
#[derive(Clone)]
pub(crate) struct QueueSettings {
    service: Arc<CString>,
    naming: ClientNaming,
}

impl QueueSettings {
    /// Records a change of the naming, so that no class is found by names of before.
    fn change_naming(&mut self) {
        self.naming.generation = self.naming.generation.wrapping_add(1);
    }
}

/// A disk in a service.
pub(crate) struct ScheduledDisk {
    settings: QueueSettings,
    queue: Arc<RequestQueue>,
    member: Arc<BlockClient>,
    tags: Tags,
}

/// The registered scheduler, and the handling of CPUs that go offline.
///
/// The block layer waits for the requests of a hardware queue whose last CPU goes offline, so these
/// requests are drained.
pub(crate) struct ElevatorRegistration {
    _scheduler: elevator::SchedulerRegistration<ScheduledDisk>,
    _hotplug: hotplug::HotplugRegistration<ScheduledDisk>,
}

impl ElevatorRegistration {
    /// Registers the scheduler with the block layer. Returns `None` without memory, or if the
    /// private structures of the kernel differ from those the module was compiled for. The reason
    /// is logged.
    pub(crate) fn new(module: &'static ThisModule) -> Option<Self> {
        if let Err(reason) = layout::check() {
            pr_warn!("no I/O scheduler: {reason}\n");
            return None;
        }
        let register = || -> Result<Self> {
            let hotplug = hotplug::HotplugRegistration::new(c"nrs:leaving")?;
            Ok(Self {
                _scheduler: elevator::SchedulerRegistration::new(module)?,
                _hotplug: hotplug,
            })
        };
        register()
            .inspect_err(|error| pr_warn!("no I/O scheduler: {error:?}\n"))
            .ok()
    }
}

impl hotplug::CpuOffline for ScheduledDisk {
    fn leaving() {
        // Without memory there is no drain, and the requests stay queued by their policies.
        for service in registry::services().iter().flatten() {
            service.drain_pulled();
        }
    }
}

/// Notifier that makes a disk pull its requests.
struct QueueRunner(Arc<RequestQueue>);

impl PullNotifier for QueueRunner {
    fn run(&self) {
        self.0.run();
    }
}

/// Returns the default service of a disk: the name of the disk, with `-` in place of invalid
/// characters.
fn default_service(disk: &CStr) -> Result<CString> {
    let mut name = [0; NAME_MAX];
    let mut len = 0;
    for (to, from) in name.iter_mut().zip(disk.to_bytes()) {
        // No service name begins with a dot.
        let fits = is_name_byte(*from) && (len, *from) != (0, b'.');
        *to = if fits { *from } else { b'-' };
        len += 1;
    }
    let name = name
        .get(..len)
        .and_then(|name| core::str::from_utf8(name).ok());
    CString::try_from_fmt(fmt!("{}", name.unwrap_or("")))
}

impl ScheduledDisk {
    /// Returns true if requests may be deferred: they need not keep the order of arrival.
    fn may_defer(&self) -> bool {
        self.member.service().dispatch().level() != Level::Overlap
    }

    /// Returns what policies may need of a submitter.
    fn recorded_parts(&self) -> RecordedParts {
        RecordedParts {
            names: self.settings.naming.uses_names(),
            path: self.member.service().dispatch().cgroup_use().is_any(),
        }
    }

    /// Joins the service that `settings` name.
    fn attach(queue: &Arc<RequestQueue>, settings: &QueueSettings) -> Result<Arc<BlockClient>> {
        let number = queue.number();
        let (major, minor) = major_minor(number);
        let device = CString::try_from_fmt(fmt!("{major}:{minor}"))?;
        let lower = LowerDevice {
            name: &device,
            number,
            whole: number,
            depth: queue.depth(),
            runner: Some(Arc::new(QueueRunner(queue.clone()), GFP_KERNEL)?),
        };
        let attachment = registry::attach(&settings.service, queue.name(), &device, lower)?;
        if let Some(deadlines) = attachment.client().deadlines() {
            deadlines.open(queue.disk().clone(), false);
        }
        Ok(Arc::new(BlockClient::new(attachment), GFP_KERNEL)?)
    }
}

impl Scheduler for ScheduledDisk {
    const NAME: &'static CStr = c"nrs";
    const FILES: &'static [SchedulerFile<Self>] = &[
        SchedulerFile {
            name: c"service",
            show: |disk, out| out.write_str(disk.member.service().name()),
            store: Some(|settings, text| {
                if !is_name(text) {
                    return Err(EINVAL);
                }
                settings.service = Arc::new(CString::try_from_fmt(fmt!("{text}"))?, GFP_KERNEL)?;
                Ok(())
            }),
        },
        SchedulerFile {
            name: c"policy",
            show: |disk, out| disk.member.service().write_policy(out),
            store: None,
        },
        SchedulerFile {
            name: c"jobid_name",
            show: |disk, out| write!(out, "{}", disk.settings.naming.template),
            store: Some(|settings, text| {
                settings.naming.template = template(text).ok_or(EINVAL)?;
                settings.change_naming();
                Ok(())
            }),
        },
        SchedulerFile {
            name: c"stream",
            show: |disk, out| out.write_str(disk.settings.naming.stream.word()),
            store: Some(|settings, text| {
                settings.naming.stream = Stream::from_word(text).ok_or(EINVAL)?;
                settings.change_naming();
                Ok(())
            }),
        },
        SchedulerFile {
            name: c"status",
            show: |disk, out| {
                let concurrency = disk.member.service().concurrency();
                let mut line = Report::line(out);
                disk.member.client().report(concurrency, &mut line)?;
                line.field("deferred", disk.tags.deferred())
            },
            store: None,
        },
    ];
    type Settings = QueueSettings;
    type Growth = MergeCharge;

    fn defaults(queue: &RequestQueue) -> Result<QueueSettings> {
        Ok(QueueSettings {
            service: Arc::new(default_service(queue.name())?, GFP_KERNEL)?,
            naming: ClientNaming::default(),
        })
    }

    fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    fn create(
        queue: &Arc<RequestQueue>,
        settings: QueueSettings,
        before: Option<&Self>,
    ) -> Result<Arc<Self>> {
        let stays =
            before.filter(|before| before.member.service().name_cstr() == &**settings.service);
        let member = match stays {
            Some(before) => before.member.clone(),
            None => Self::attach(queue, &settings).inspect_err(|error| {
                let (disk, service): (&CStr, &CStr) = (queue.name(), &settings.service);
                let reason = match *error {
                    ELOOP => "a device-mapper device on the disk is a client of the service",
                    ENOSPC => "too many services, or clients or targets of the service",
                    EBUSY => "the service serves programs or kernel modules",
                    ENOMEM => "out of memory",
                    _ => "unexpected error",
                };
                pr_warn!("{disk} cannot join service {service}: {reason} ({error:?})\n");
            })?,
        };
        let queue = queue.clone();
        let tags = Tags::new(queue.clone(), member.target().clone())?;
        Ok(Arc::new(
            Self {
                settings,
                queue,
                member,
                tags,
            },
            GFP_KERNEL,
        )?)
    }

    fn follow_depth(&self) {
        let (service, target) = (self.member.service(), self.member.target());
        service.set_depth(target, self.queue.depth());
    }

    #[inline]
    fn defer(&self, bio: SubmittedBio) -> Result<(), SubmittedBio> {
        self.tags
            .defer_bio(bio, || self.recorded_parts(), || self.may_defer())
    }

    #[inline]
    fn insert(&self, request: Request<'_>, may_sleep: bool) {
        let view = request.view();
        let who = task::submitter().of_bio(view);
        let (offset, bytes) = (request.offset(), request.bytes());
        let mut traits = self.member.traits(view, &who, offset, bytes);
        traits.restrict_sleep(may_sleep);
        traits.force(request.is_in_flush());
        let (cpu, target) = (request.cpu(), self.member.target());
        let (cost, mut account) = (traits.cost(request.is_piece()), traits.account());
        let naming = &self.settings.naming;
        let mut request = request;
        // The counts only matter while requests are queued.
        if !target.slot_pool().is_uncontended() {
            let may_defer = self.may_defer() && !request.is_in_flush();
            let entered = (self.tags).enter(request, &who, || self.recorded_parts(), may_defer);
            let Some((entered, share)) = entered else {
                return;
            };
            request = entered;
            account.tag_share = share;
        }
        let held = request.into_held(cost, target.index(), traits.wants_file, account);
        // Called with the partition locked. A drain makes both conditions visible before it takes
        // the lock, so the drain finds every request that is queued here.
        let draining = || cpu.is_going_offline() || self.queue.is_dying();
        match self.member.arrive(held, &traits, naming, &who, &draining) {
            AdmissionOutcome::Passed(held) => target.offer(held),
            // Requests that may overflow are never refused.
            AdmissionOutcome::Queued | AdmissionOutcome::Blocked | AdmissionOutcome::Refused(_) => {
            }
        }
    }

    #[inline]
    fn may_grow(&self) -> bool {
        self.member.may_grow(&self.settings.naming)
    }

    fn growth(&self, bio: BioView<'_>) -> Self::Growth {
        let who = task::submitter().of_bio(bio);
        let offset = bio.sector().wrapping_mul(SECTOR);
        let traits = self.member.traits(bio, &who, offset, bio.bytes());
        self.member.growth(&traits, &self.settings.naming, &who)
    }

    fn charge(&self, growth: &Self::Growth) {
        self.member.charge(growth);
    }

    #[inline]
    fn pull(&self) -> Option<Held> {
        self.member.service().pull(self.member.target())
    }

    #[inline]
    fn has_work(&self) -> bool {
        self.member.target().has_ready()
    }

    #[inline]
    fn holds(&self) -> bool {
        self.member.client().load().held() != 0
    }

    fn drain(&self) {
        self.member.drain();
    }

    #[inline]
    fn dispatching(&self, account: &mut NodeAccount, queued: bool) {
        if account.tag_share != NodeAccount::NO_SHARE {
            self.tags.leave(account.tag_share);
        }
        if queued {
            // Requests of a lost disk stay queued, so none is refused.
            let _ = self.member.submitting(account);
        } else if let Some(deadlines) = self.member.client().deadlines() {
            deadlines.enter(account);
        }
    }

    #[inline]
    fn ended(&self, account: &mut NodeAccount, cost: Cost, is_started: bool) {
        // Only the owner of a request knows its result. A driver that did not start a request has
        // refused it.
        let error = if is_started { 0 } else { ENODEV.to_errno() };
        self.member.ended(account, cost, error);
    }
}
