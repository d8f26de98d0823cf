// SPDX-License-Identifier: GPL-2.0-only

//! Settings that are being written line by line, without partitions.
//!
//! A draft is a [`Host`] of the texts of policies, so each line is executed by the code that
//! executes a write to the parameter. Nothing runs with a draft; it becomes the settings of a
//! service as a whole ([`super::ServiceSettings::apply`]), or is dropped.

use super::{change::SharedStates, settings::Stored};
#[cfg(not(MODULE))]
use super::{text, Primaries};
use crate::sched::{
    attr::Priority,
    error::{Code, Error, Result},
    item::Item,
    mem::Owned,
    parameters::{settable, Values, UNSETTABLE},
    policy::{
        control::{Host, OverseerContext, Parameters, Parts, RunningPart, TextParameter},
        AnyOverseer, AnyPart, Kind, Nothing, PoliciesData,
    },
    text::{for_each_setting, PolicyCommand},
};
use core::{
    cell::{BorrowMutError, RefCell},
    marker::PhantomData,
};

/// Settings that are being written, for a service with requests `I`.
pub struct ServiceDraft<I> {
    /// Borrowed for one change at a time, so that borrowing does not fail.
    stored: RefCell<Owned<Stored>>,
    /// Parameters before the first line.
    initial: Parameters,
    requests: PhantomData<fn() -> I>,
}

impl<I: Item + 'static> ServiceDraft<I> {
    /// Creates a draft with `values`, whose heads run the fallback.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(values: Values) -> Result<Self> {
        let stored = Owned::new(Stored {
            parameters: Parameters::new(values)?,
            primaries: [None; 2],
            shared: SharedStates::new(),
        })?;
        Ok(Self {
            initial: stored.parameters.clone(),
            stored: RefCell::new(stored),
            requests: PhantomData,
        })
    }

    /// Executes all lines of `text`; see [`for_each_setting`].
    ///
    /// # Errors
    ///
    /// The error of the first line that is refused, with its position.
    pub fn write(&self, text: &str) -> Result {
        for_each_setting(text, |name, value| self.execute(name, value))
    }

    /// Returns the finished settings.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the values contradict each other.
    pub(super) fn finish(self) -> Result<Owned<Stored>> {
        let mut stored = self.stored.into_inner();
        stored.parameters.values.check()?;
        let max = stored.parameters.values.service.buffer_max;
        stored.parameters.values.set_buffer_max(max);
        stored.configure();
        stored.parameters.check()?;
        Ok(stored)
    }

    /// Returns parameters and primaries of the finished draft.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the values contradict each other.
    #[cfg(not(MODULE))]
    pub fn into_settings(self) -> Result<(Parameters, Primaries)> {
        let stored = self.finish()?;
        Ok((stored.parameters.clone(), stored.primaries))
    }

    /// Returns the text that the policy of the parameter `name` shows.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no policy has a text of this name. The errors of the parameter.
    #[cfg(not(MODULE))]
    pub fn show(&self, name: &str) -> Result<String> {
        let mut out = String::new();
        let mut texts = PoliciesData::texts::<Self>();
        let text = texts.find(|text: &&TextParameter<Self>| text.name == name);
        text.ok_or(UNSETTABLE)?.show(self, &mut out)?;
        Ok(out)
    }

    /// Returns the settings as text: the lines that differ from the first values.
    #[cfg(not(MODULE))]
    pub fn text(&self) -> String {
        let (stored, mut out) = (self.stored.borrow(), String::new());
        let written = text::write(&stored, &self.initial.values, &mut out);
        bug!(written.is_err());
        out
    }

    /// Sets the parameter `name` to `value`.
    ///
    /// # Errors
    ///
    /// The errors of [`settable`] and of the parameter.
    pub fn execute(&self, name: &str, value: &str) -> Result {
        let parameter = settable(name)?;
        if name == "nrs_policies" {
            let command = PolicyCommand::parse(value)?;
            let mut stored = self.stored.try_borrow_mut().map_err(in_use)?;
            return stored.start(Kind::from_name(command.policy)?, &command);
        }
        match &parameter.value {
            // Values may contradict each other until the last line.
            Some(stored) => self.change(|parameters| (stored.set)(&mut parameters.values, value)),
            None => {
                let mut texts = PoliciesData::texts::<Self>();
                let text = texts.find(|text: &&TextParameter<Self>| text.name == name);
                text.and_then(|text| text.store).ok_or(UNSETTABLE)?(self, value)
            }
        }
    }
}

/// Returns the error of a change within a change, which does not happen.
fn in_use(_: BorrowMutError) -> Error {
    bug!();
    Error::new(Code::Busy, "the draft is in use")
}

/// No part: a draft has none.
impl<I: Item> RunningPart for PhantomData<I> {
    type Item = I;

    fn cpt(&self) -> u16 {
        0
    }

    fn priority(&self) -> Priority {
        Priority::Regular
    }

    fn with<R>(&self, _f: impl FnOnce(&mut AnyPart<I>) -> Option<R>) -> Option<R> {
        None
    }
}

impl<I: Item + 'static> Parts for ServiceDraft<I> {
    type Item = I;

    fn now(&self) -> u64 {
        0
    }

    fn running(&self) -> impl Iterator<Item = impl RunningPart<Item = I>> {
        core::iter::empty::<PhantomData<I>>()
    }
}

impl<I: Item + 'static> Host for ServiceDraft<I> {
    type Refusal = Error;

    fn parameters(&self) -> Parameters {
        match self.stored.try_borrow() {
            Ok(stored) => stored.parameters.clone(),
            Err(_) => {
                bug!();
                self.initial.clone()
            }
        }
    }

    fn update_policy_data(&self, f: impl FnOnce(&mut PoliciesData)) {
        match self.stored.try_borrow_mut() {
            Ok(mut stored) => f(&mut stored.parameters.kept),
            Err(_) => bug!(),
        }
    }

    fn change(&self, f: impl FnOnce(&mut Parameters) -> Result) -> Result {
        // A draft is dropped after an error, so the change needs no copy.
        let mut stored = self.stored.try_borrow_mut().map_err(in_use)?;
        f(&mut stored.parameters)?;
        let primaries = stored.primaries;
        stored.select(primaries)
    }

    fn can_restart(&self, _kind: Kind) -> bool {
        true
    }

    fn cpts(&self) -> u16 {
        1
    }

    fn oversee<R>(&self, f: impl FnOnce(Option<&mut AnyOverseer>, &dyn OverseerContext) -> R) -> R {
        f(None, &Nothing)
    }

    fn reset(&self, _kind: Kind) {}
}
