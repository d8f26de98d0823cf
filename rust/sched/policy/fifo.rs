// SPDX-License-Identifier: GPL-2.0-only

//! First in, first out: one class, one queue.
//!
//! The default policy of a head, and the fallback for requests that another policy declines. The
//! policy has no argument and no parameters.

use crate::sched::{
    attr::Attrs,
    class::ClassId,
    item::{Cost, Fifo, Item},
    mem::{self, NoMemory},
    parameters::Parameter,
    policy::{
        BypassOutcome, BypassReason, Decision, Grant, NoArgument, Part, PartView, Simple, Tuning,
    },
};

/// Empty set of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunables;

impl Tuning for Tunables {}

/// Empty list, because the policy has no parameters.
pub const PARAMETERS: &[Parameter] = &[];

impl Simple for Tunables {
    type Update = Update;
}

/// Configuration of a part.
pub type Config = NoArgument<Tunables>;

pub use crate::sched::policy::{
    Nothing as Counts, Nothing as PolicyData, Nothing as Overseer, Nothing as Shared,
    Nothing as Update,
};

/// The only class.
const CLASS: ClassId = ClassId::new(0, 1);

/// Queue of one head.
pub struct State<I: Item> {
    fifo: I::Fifo,
}

impl<I: Item> State<I> {
    /// Creates an empty queue.
    pub fn new(
        _config: &Config,
        _seed: u64,
        _shared: &mem::Shared<Shared>,
    ) -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            fifo: I::Fifo::new(),
        })
    }
}

impl<I: Item> Part<I> for State<I> {
    type Need = ();
    type Spare = ();
    type Shared = Shared;
    type Update = Update;

    const ONLY_CLASS: Option<ClassId> = Some(CLASS);

    fn classify(&mut self, _attrs: &Attrs, _now: u64) -> ClassId {
        CLASS
    }

    fn is_live(&self, class: ClassId) -> bool {
        class == CLASS
    }

    fn enqueue(&mut self, item: I, _class: ClassId, _now: u64) -> core::result::Result<(), I> {
        self.fifo.push(item);
        Ok(())
    }

    fn dequeue(&mut self, _class: ClassId, handle: &I::Handle, _now: u64) -> Option<I> {
        self.fifo.remove(handle)
    }

    fn get(&mut self, _view: &PartView<'_>) -> Decision<(I, Grant)> {
        match self.fifo.pop() {
            Some(item) => Decision::Item((item, Grant::of(CLASS))),
            None => Decision::Empty,
        }
    }

    fn pass(
        &mut self,
        class: ClassId,
        _cost: Cost,
        _way: BypassReason,
        _now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        if class == CLASS {
            BypassOutcome::Counted
        } else {
            BypassOutcome::Stale
        }
    }

    fn passes_freely(&self) -> bool {
        true
    }

    fn stop(&mut self, _grant: &Grant, _cost: Cost, _now: u64) -> bool {
        false
    }

    fn len(&self) -> u32 {
        self.fifo.len()
    }

    fn need(&self) {}

    fn grow(&mut self, (): ()) {}

    fn update(&mut self, update: Update, _now: u64) -> Update {
        update
    }
}
