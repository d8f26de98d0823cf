// SPDX-License-Identifier: GPL-2.0-only

//! Settings of a service.

use super::{
    change::{reap, ServiceChange, SharedStates},
    draft::ServiceDraft,
    of_head, text, HeadAccess, Primaries, ServiceHost,
};
use crate::sched::{
    attr::Priority,
    error::{Code, Error, Result},
    item::Item,
    mem::Owned,
    parameters::{ValueAccessors, Values},
    policy::{
        control::{addresses, Parameters},
        params::BufferMax,
        Config, Kind, PoliciesData,
    },
    text::PolicyCommand,
};
use core::fmt::Write;

/// Error for another policy of a service whose policies a framework drives.
const DRIVEN: Error = Error::new(
    Code::Busy,
    "a framework drives the policies of this service",
);

/// Parameters and policies of a service.
#[derive(Clone)]
pub(super) struct Stored {
    /// Parameters that can be set whichever policies run, and that apply to a policy when it starts
    /// again.
    pub(super) parameters: Parameters,
    pub(super) primaries: Primaries,
    /// Shared states of the parts of the primaries.
    pub(super) shared: SharedStates,
}

impl Stored {
    /// Returns the configuration of the primary of the heads of `priority`.
    pub(super) fn primary(&self, priority: Priority) -> Option<&Config> {
        self.primaries.get(priority as usize)?.as_ref()
    }

    /// Selects the policy `kind` as `command` says.
    pub(super) fn start(&mut self, kind: Kind, command: &PolicyCommand<'_>) -> Result {
        let policies = &self.parameters.values.policies;
        let config = Config::parse(kind, command.argument, policies)?;
        // The fallback always runs: selecting it removes the primary.
        let chosen = (kind != Kind::FALLBACK).then_some(config);
        let mut primaries = self.primaries;
        for (primary, priority) in primaries.iter_mut().zip(Priority::ALL) {
            if addresses(command.heads, priority) {
                *primary = chosen.map(|config| config.on(priority));
            }
        }
        self.select(primaries)
    }

    /// Changes the primaries to `primaries`, with the values of the parameters.
    pub(super) fn select(&mut self, primaries: Primaries) -> Result {
        let old = core::mem::replace(&mut self.primaries, primaries);
        self.configure();
        if self.primaries != old {
            self.parameters.kept.sync(&old, &self.primaries)?;
        }
        Ok(())
    }

    /// Gives the configurations of the primaries the values of the parameters.
    pub(super) fn configure(&mut self) {
        for config in self.primaries.iter_mut().flatten() {
            *config = config.with(&self.parameters.values.policies);
        }
    }

    /// Returns the number of ordered requests that the parameters allow.
    const fn buffer_max(&self) -> BufferMax {
        self.parameters.values.service.buffer_max
    }
}

/// Settings made by the administrator, and by an agent.
///
/// # Examples
///
/// ```
/// use nrs_sched::service_world::ServiceWorld;
///
/// let (one, other) = (ServiceWorld::new(1, 1), ServiceWorld::new(1, 1));
/// one.set("nrs_policies", "fairshare uid_fair")?;
/// other.set("slots", "7")?;
/// // A configuration is complete: parameters that it does not list get their defaults.
/// other.set("config", &one.text())?;
/// assert_eq!(other.text(), one.text());
/// assert_eq!(other.get("slots")?, "64\n");
/// // A configuration with a refused line changes nothing.
/// let error = other.set("config", "slots 9\nslots none\n").unwrap_err();
/// assert!(error.to_string().starts_with("line 2: "));
/// assert_eq!(other.text(), one.text());
/// # Ok::<(), nrs_sched::error::Error>(())
/// ```
pub struct ServiceSettings {
    stored: Owned<Stored>,
    /// Values of the service when it was new.
    defaults: Values,
    /// True if another service has taken over the parameters.
    replaced: bool,
}

impl ServiceSettings {
    /// Creates settings with `values`, and without primaries and rules.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(values: Values) -> Result<Self> {
        Ok(Self {
            stored: Owned::new(Stored {
                parameters: Parameters::new(values)?,
                primaries: [None; 2],
                shared: SharedStates::new(),
            })?,
            defaults: values,
            replaced: false,
        })
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.stored.parameters
    }

    /// Returns the configurations of the primaries.
    pub fn primaries(&self) -> &Primaries {
        &self.stored.primaries
    }

    /// Returns the configuration of the primary of the heads of `priority`.
    pub fn primary(&self, priority: Priority) -> Option<&Config> {
        self.stored.primary(priority)
    }

    /// Calls `f` to record data in the kept state of which parts need no update.
    pub fn update_policy_data(&mut self, f: impl FnOnce(&mut PoliciesData)) {
        f(&mut self.stored.parameters.kept);
    }

    /// Sets the parameter `stored`. Running policies that depend on the parameter restart or are
    /// updated.
    ///
    /// # Errors
    ///
    /// Nothing is changed on error.
    ///
    /// - Errors of [`Values::set`].
    /// - `ENODEV`: the service was replaced.
    /// - `EBUSY`: `buffer_max` is to be raised while ordered requests exist.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub fn set(&mut self, host: &impl ServiceHost, stored: &ValueAccessors, text: &str) -> Result {
        let before = self.parameters().values.policies;
        self.republish(host, |parameters| parameters.values.set(stored, text))?;
        if self.parameters().values.policies != before {
            host.retry_decisions();
        }
        Ok(())
    }

    /// Applies `f` to a copy of the parameters, and updates the policies to the result, atomically.
    /// Then reconsiders all queued requests.
    ///
    /// # Errors
    ///
    /// As [`Self::republish`].
    pub fn change(
        &mut self,
        host: &impl ServiceHost,
        f: impl FnOnce(&mut Parameters) -> Result,
    ) -> Result {
        self.republish(host, f)?;
        host.retry_decisions();
        Ok(())
    }

    /// Applies a change that makes no throttled request eligible, as [`Self::change`] does.
    ///
    /// # Errors
    ///
    /// Nothing is changed on error.
    ///
    /// - Errors of `f`, and of [`Parameters::check`] on the result.
    /// - `ENODEV`: the service was replaced.
    /// - `EBUSY`: `buffer_max` is to be raised while ordered requests exist.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub fn republish(
        &mut self,
        host: &impl ServiceHost,
        f: impl FnOnce(&mut Parameters) -> Result,
    ) -> Result {
        let mut new = self.copy()?;
        f(&mut new.parameters)?;
        let primaries = new.primaries;
        new.select(primaries)?;
        self.carry_out(host, new)
    }

    /// Returns a draft of a new service, for [`Self::apply`].
    ///
    /// # Errors
    ///
    /// `ENODEV`: the service was replaced. `ENOMEM`.
    pub fn draft<I: Item + 'static>(&self) -> Result<ServiceDraft<I>> {
        self.check_current()?;
        ServiceDraft::new(self.defaults)
    }

    /// Changes the service to what `draft` says, or nothing.
    ///
    /// # Errors
    ///
    /// Nothing is changed on error.
    ///
    /// - `EINVAL`: the values contradict each other.
    /// - `ENODEV`: the service was replaced.
    /// - `EBUSY`: more `buffer_max` while ordered requests exist; another policy while a framework
    ///   drives the policies.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub fn apply<S: ServiceHost>(&mut self, host: &S, draft: ServiceDraft<S::Item>) -> Result
    where
        S::Item: 'static,
    {
        self.check_current()?;
        let mut new = draft.finish()?;
        let old = &*self.stored;
        if host.is_driven() && !text::are_same(&old.primaries, &new.primaries) {
            return Err(DRIVEN);
        }
        new.shared.clone_from(&old.shared);
        let Stored {
            parameters,
            primaries,
            ..
        } = &mut *new;
        let kept = &mut parameters.kept;
        kept.resume(&old.parameters.kept, &old.primaries, primaries)?;
        self.carry_out(host, new)?;
        host.retry_decisions();
        Ok(())
    }

    /// Writes the text of the service; see [`super::text`].
    ///
    /// # Errors
    ///
    /// `ENOSPC`: `out` is full.
    pub fn write_text(&self, out: &mut dyn Write) -> Result {
        Ok(text::write(&self.stored, &self.defaults, out)?)
    }

    /// Starts the policy that `command` names, for an administrator or for the `framework` that
    /// drives the policies. A policy that runs as `command` says is not started again.
    ///
    /// # Errors
    ///
    /// Nothing is changed on error.
    ///
    /// - `EINVAL`: an argument that the policy rejects.
    /// - `ENOENT`: no policy of that name.
    /// - `ENODEV`: the service was replaced.
    /// - `EBUSY`: an administrator starts a policy, but a framework drives the policies.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub fn start_policy(
        &mut self,
        host: &impl ServiceHost,
        command: &PolicyCommand<'_>,
        framework: bool,
    ) -> Result {
        let kind = Kind::from_name(command.policy)?;
        let mut new = self.copy()?;
        if !framework && host.is_driven() {
            return Err(DRIVEN);
        }
        new.start(kind, command)?;
        self.carry_out(host, new)?;
        host.retry_decisions();
        Ok(())
    }

    /// Returns true if all heads that run `kind` could restart it now.
    pub fn can_restart(&self, host: &impl ServiceHost, kind: Kind) -> bool {
        let runs = |priority| self.primary(priority).is_some_and(|one| one.kind() == kind);
        let mut heads = host.heads().filter(|head| runs(head.priority()));
        heads.all(|head| {
            reap(&head);
            head.with(|head| head.can_install().is_ok())
        })
    }

    /// Starts the primaries on `heads`, the heads of a new target. On error, the caller drops the
    /// target.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn install_parts<S: ServiceHost>(
        &mut self,
        host: &S,
        heads: impl Iterator<Item = impl HeadAccess<Item = S::Item>>,
    ) -> Result {
        let overseer = host.overseer(|overseer, _| overseer.as_ref()?.update());
        let Stored {
            parameters,
            primaries,
            shared,
        } = &mut *self.stored;
        let mut updates = [None, None];
        let configs = Priority::ALL.into_iter().zip(&*primaries);
        for (update, (priority, config)) in updates.iter_mut().zip(configs) {
            if let Some(config) = config {
                *update = parameters.update(config, priority)?.or(overseer.clone());
            }
        }
        for head in heads {
            let priority = head.priority();
            let Some(config) = *of_head(primaries, priority) else {
                continue;
            };
            let update = of_head(&mut updates, priority).as_ref();
            let part = shared.part(host, &config, &head, update)?;
            let refused = head.with(|head| head.install(part, config).err());
            bug!(refused.is_some());
        }
        Ok(())
    }

    /// Returns the parameters for the service that replaces this one, and its values when it was
    /// new; it refuses changes from now on.
    pub fn give_up(&mut self) -> (Parameters, Values) {
        self.replaced = true;
        let mut parameters = self.parameters().clone();
        // No policy runs in the other service yet.
        let synced = parameters.kept.sync(self.primaries(), &[None; 2]);
        bug!(synced.is_err());
        (parameters, self.defaults)
    }

    /// Takes over what another service has given up; this one must not be in use yet.
    pub fn adopt(
        &mut self,
        host: &impl ServiceHost,
        (mut parameters, defaults): (Parameters, Values),
    ) {
        let own = self.stored.buffer_max();
        let max = parameters.values.service.buffer_max;
        if host.set_records(max.get()).is_err() {
            // Without memory, `buffer_max` stays as it is.
            bug!(host.set_records(own.get()).is_err());
            parameters.values.set_buffer_max(own);
        }
        if parameters.values != self.parameters().values {
            host.values_changed(&self.parameters().values, &parameters.values);
        }
        host.owners_changed(&parameters.owners);
        self.stored.parameters = parameters;
        self.defaults = defaults;
    }

    /// Checks that the settings may be changed.
    ///
    /// # Errors
    ///
    /// `ENODEV`: another service has taken over the parameters.
    fn check_current(&self) -> Result {
        if self.replaced {
            return Err(Error::new(Code::NoDevice, "the service was replaced"));
        }
        Ok(())
    }

    /// Returns a copy of the settings, for a change.
    ///
    /// # Errors
    ///
    /// `ENODEV`: another service has taken over the parameters. `ENOMEM`.
    #[inline(never)]
    fn copy(&self) -> Result<Owned<Stored>> {
        self.check_current()?;
        Ok(Owned::new(Stored::clone(&self.stored))?)
    }

    /// Changes the settings to `new`, or nothing.
    fn carry_out(&mut self, host: &impl ServiceHost, mut new: Owned<Stored>) -> Result {
        // Tables grow first, because this may fail, and shrink last, because this cannot fail.
        let room = self.stored.buffer_max().get();
        let more = new.buffer_max().get();
        let back = || {
            if more > room {
                bug!(host.set_records(room).is_err());
            }
        };
        if more > room {
            host.set_records(more).inspect_err(|_| back())?;
        }
        let change = ServiceChange::prepare(host, (&self.stored, &mut new));
        let done = change.and_then(|change| change.commit(host, (&self.stored, &new)));
        done.inspect_err(|_| back())?;
        let old = core::mem::replace(&mut self.stored, new);
        let Stored {
            parameters,
            primaries,
            ..
        } = &*self.stored;
        if !parameters.owners.ptr_eq(&old.parameters.owners) {
            host.owners_changed(&parameters.owners);
        }
        if *primaries != old.primaries {
            // Removed parts have no factors, and neither has the remaining part of their policy
            // on the other head.
            host.agent(|agent| agent.retain(parameters.kept.lease()));
            host.primaries_changed(&old.primaries, primaries);
        }
        if parameters.values != old.parameters.values {
            host.values_changed(&old.parameters.values, &parameters.values);
        }
        if more < room {
            bug!(host.set_records(more).is_err());
        }
        Ok(())
    }
}
