// SPDX-License-Identifier: GPL-2.0-only

//! What the clients of a service have of its bandwidth, while `qbm` runs on one of its heads.
//!
//! # Vocabulary
//!
//! - *Regime*: the gates and the manager from when `qbm` starts to when no head has it any more, or to a
//!   change that tells clients apart in another way; parts that are drained then keep its gates.
//! - *Walk*: telling the manager of every class of every part, and every class its seat.
//! - *Tick*: the manager judges what it has seen, after a walk.
//! - *Stage*: what the manager may ask about clients and targets ([`Stage`]).
//!
//! ```text
//!              a head gets qbm              walk, tick, look again      no head has it: regime dropped
//!   no regime ────────────────▶ regime ◀──┐ ──────────────────────▶ ... ───────────────────────────────▶ no regime
//!                                 │       │ parts are told of its gates when they are made
//!                                 └───────┘
//! ```
//!
//! # Context
//!
//! All of this sleeps. The regime's mutex is held over a whole walk, so that no class is given a seat of
//! another regime; a request may wait for that walk, so nothing under the mutex starts I/O.

use core::fmt::Write;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, Mutex,
    },
};

use super::{
    dispatch::{Dispatch, Feed},
    partitions::Partitions,
    roster::Roster,
};
use crate::{
    sched::{
        attr::Priority,
        class::ClassId,
        mem::{Block, Need, Shared},
        policy::{
            qbm::{self, BriefBuf},
            AnyUpdate, Config, Part, ROWS,
        },
        qbm::{
            gate::{Gates, NO_SEAT},
            manager::Manager,
            plan::{By, Plan, Scene},
        },
    },
    sys::misc,
};

/// Clients and targets of a service.
pub(crate) struct Stage {
    roster: Arc<Roster>,
    dispatch: Arc<Dispatch>,
    partitions: Arc<Partitions>,
}

impl Stage {
    /// The clients in `roster`, the targets of `partitions`; `dispatch` says of which kind they are.
    pub(crate) fn new(
        roster: Arc<Roster>,
        dispatch: Arc<Dispatch>,
        partitions: Arc<Partitions>,
    ) -> Self {
        Self {
            roster,
            dispatch,
            partitions,
        }
    }
}

impl Scene for Stage {
    /// The number of a block device; what programs name is a number.
    fn target_number(&self, target: u32) -> u64 {
        if self.dispatch.is_fed_by(Feed::User) {
            return target.into();
        }
        let found = u16::try_from(target).ok();
        let found = found.and_then(|index| self.partitions.of(index));
        found.map_or(u64::MAX, |lanes| lanes.target().number().into())
    }

    fn device_name(&self, device: u32, f: &mut dyn FnMut(&[u8])) {
        self.roster.name_of(device, f);
    }
}

/// How clients are told apart and how many there may be: another one of these takes another regime.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    by: By,
    clients_max: u32,
}

impl Form {
    /// What primaries that were started with `configs` ask for, if one of them is `qbm`.
    fn of(configs: &[Option<Config>]) -> Option<Self> {
        configs.iter().flatten().find_map(|config| match config {
            Config::Qbm(config) => {
                let tunables = config.tunables();
                Some(Self {
                    by: tunables.by,
                    clients_max: tunables.clients_max.get(),
                })
            }
            _ => None,
        })
    }
}

/// What came of a walk.
#[derive(Default)]
struct Walked {
    /// A class got another seat.
    moved: bool,
    /// One may have come back while it lost its seat.
    again: bool,
}

/// The gates, who sets them, and memory for a walk.
pub(crate) struct Regime {
    form: Form,
    plan: Shared<Plan>,
    gates: Shared<Gates>,
    manager: Manager,
    briefs: BriefBuf,
    seats: Block<(ClassId, u32), ROWS>,
}

impl Regime {
    #[inline(never)]
    fn new(form: Form, plan: &Shared<Plan>, seed: u64) -> Result<KBox<Self>> {
        let make = || {
            let gates = Shared::new(Gates::new(form.clients_max as usize)?)?;
            Ok(Self {
                form,
                plan: plan.clone(),
                manager: Manager::new(plan.clone(), gates.clone(), seed)?,
                gates,
                briefs: BriefBuf::new()?,
                seats: Block::new()?,
            })
        };
        let regime = make().map_err(|_: crate::sched::mem::NoMemory| ENOMEM)?;
        Ok(KBox::new(regime, GFP_KERNEL)?)
    }

    /// Goes on with `plan`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing changed then.
    fn follow(&mut self, plan: &Shared<Plan>, stage: &Stage) -> Result {
        if self.plan.ptr_eq(plan) {
            return Ok(());
        }
        self.manager
            .configure(plan.clone(), stage, misc::now())
            .map_err(|_| ENOMEM)?;
        self.plan = plan.clone();
        Ok(())
    }

    /// Tells the manager of all classes, and each its seat.
    ///
    /// Parts that are drained are left out: what they have goes without asking.
    fn walk(&mut self, partitions: &Partitions, stage: &Stage) -> Result<Walked> {
        let mut walked = Walked::default();
        let Self {
            manager,
            briefs,
            seats,
            ..
        } = self;
        for partition in partitions.iter() {
            for priority in Priority::ALL {
                partition.walk(
                    briefs,
                    |briefs, inner, from| {
                        briefs.clear();
                        let part = inner.head(priority).primary_mut()?.qbm_mut()?;
                        part.seat_briefs(from, misc::now(), briefs)
                    },
                    |briefs| {
                        seats.clear();
                        let now = misc::now();
                        for brief in briefs.iter() {
                            let seat = manager.meet(brief, stage, now);
                            if seat != brief.seat {
                                // There are as many places as in the other one.
                                let _ = seats.push((brief.id, seat));
                            }
                        }
                        if seats.as_slice().is_empty() {
                            return Ok(());
                        }
                        walked.moved = true;
                        partition.with(|inner| {
                            let primary = inner.head(priority).primary_mut();
                            if let Some(part) = primary.and_then(|part| part.qbm_mut()) {
                                let now = misc::now();
                                let mut left = false;
                                for (id, seat) in seats.iter() {
                                    part.seat(*id, *seat, now);
                                    left |= *seat == NO_SEAT;
                                }
                                walked.again |= left && !part.need().is_empty();
                            }
                        });
                        Ok(())
                    },
                )?;
            }
        }
        Ok(walked)
    }
}

/// What becomes of the regime when policies change.
pub(crate) enum Change {
    /// It stays; its gates.
    Keep(Shared<Gates>),
    /// A new one.
    Start(KBox<Regime>),
    /// No head needs it.
    End,
}

impl Change {
    /// What parts of `qbm` are told when they are made.
    pub(crate) fn update(&self) -> Option<AnyUpdate> {
        let gates = match self {
            Self::Keep(gates) => gates,
            Self::Start(regime) => &regime.gates,
            Self::End => return None,
        };
        Some(AnyUpdate::Qbm(qbm::Update::new(gates.clone())))
    }
}

/// Who looks after the bandwidth of a service's clients.
#[pin_data]
pub(crate) struct Bandwidth {
    partitions: Arc<Partitions>,
    stage: Stage,
    seed: u64,
    /// There is a regime.
    running: Atomic<bool>,
    #[pin]
    regime: Mutex<Option<KBox<Regime>>>,
}

impl Bandwidth {
    /// Nobody is looked after yet. `seed` must not be known to those who name clients.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(partitions: Arc<Partitions>, stage: Stage, seed: u64) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                partitions,
                stage,
                seed,
                running: Atomic::new(false),
                regime <- new_mutex!(None, "nrs_bandwidth"),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether there is a regime.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(ordering::Relaxed)
    }

    /// What a change to primaries started with `configs`, under `plan`, makes of the regime. To be carried
    /// out by [`Self::change`], with no other change in between.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn prepare(
        &self,
        configs: &[Option<Config>],
        plan: &Shared<Plan>,
    ) -> Result<Change> {
        let Some(form) = Form::of(configs) else {
            return Ok(Change::End);
        };
        let kept = self.with(|regime| {
            let regime = regime.as_ref().filter(|regime| regime.form == form)?;
            Some(regime.gates.clone())
        });
        match kept {
            Some(gates) => Ok(Change::Keep(gates)),
            None => Ok(Change::Start(Regime::new(form, plan, self.seed)?)),
        }
    }

    /// Carries out a change: `install` starts and stops parts, and must not fail.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing was changed then, and `install` not called.
    pub(crate) fn change(
        &self,
        change: Change,
        plan: &Shared<Plan>,
        install: impl FnOnce(),
    ) -> Result {
        let old = self.with(|regime| {
            if let (Change::Keep(_), Some(regime)) = (&change, &mut *regime) {
                regime.follow(plan, &self.stage)?;
            }
            install();
            let new = match change {
                Change::Keep(_) => return Ok(None),
                Change::Start(regime) => Some(regime),
                Change::End => None,
            };
            self.running.store(new.is_some(), ordering::Relaxed);
            Ok::<_, Error>(core::mem::replace(regime, new))
        })?;
        // Dropped without the mutex.
        drop(old);
        Ok(())
    }

    /// Seats who has none; with `due`, it is time to judge, too. Whoever may be served then is.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn run(&self, due: bool) -> Result {
        if !self.is_running() {
            return Ok(());
        }
        let changed = self.with(|regime| {
            let Some(regime) = regime else {
                return Ok::<_, Error>(false);
            };
            let walked = regime.walk(&self.partitions, &self.stage)?;
            if walked.again {
                regime.walk(&self.partitions, &self.stage)?;
            }
            if due {
                regime.manager.tick(misc::now());
            }
            let changed = regime.manager.has_changed();
            if changed {
                self.refresh();
            }
            Ok(walked.moved || changed)
        })?;
        if changed {
            self.partitions.run_all();
        }
        Ok(())
    }

    /// Has parts look at gates that have changed.
    fn refresh(&self) {
        self.partitions
            .each_part(|part, from| match part.qbm_mut() {
                Some(part) => part.refresh(from, ROWS as u32, misc::now()),
                None => None,
            });
    }

    /// Writes who has what, YAML.
    ///
    /// # Errors
    ///
    /// `ENODEV`: `qbm` is started on no head. `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_status(&self, out: &mut dyn Write) -> Result {
        self.show(|manager| manager.write_status(&mut &mut *out, &self.stage, misc::now()))
    }

    /// Writes what the clients did and what was asked for them, YAML.
    ///
    /// # Errors
    ///
    /// `ENODEV`: `qbm` is started on no head. `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_stats(&self, out: &mut dyn Write) -> Result {
        self.show(|manager| manager.write_stats(&mut &mut *out, &self.stage))
    }

    fn show(&self, write: impl FnOnce(&Manager) -> core::fmt::Result) -> Result {
        self.with(|regime| {
            let regime = regime.as_ref().ok_or(ENODEV)?;
            write(&regime.manager).map_err(|_| ENOSPC)
        })
    }

    /// Sets the counters to zero.
    pub(crate) fn reset_stats(&self) {
        self.with(|regime| {
            if let Some(regime) = regime {
                regime.manager.reset_stats();
            }
        });
    }

    /// Runs `f` with the mutex held. Allocations in it start no I/O: that might be a request that waits for a
    /// seat.
    fn with<R>(&self, f: impl FnOnce(&mut Option<KBox<Regime>>) -> R) -> R {
        misc::without_io(|| f(&mut self.regime.lock()))
    }
}
