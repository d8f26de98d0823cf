// SPDX-License-Identifier: GPL-2.0-only

//! Differences between the supported kernel series.
//!
//! Code that needs such a name imports it from here: the kernel crate's definition if there is one,
//! otherwise that of [`before_7_3`].

#[cfg(feature = "before_7_3")]
mod before_7_3;
#[cfg(feature = "before_7_3")]
pub(crate) use before_7_3::{
    new_spinlock_irq, rcu_barrier, synchronize_rcu, PollCondVarBox, SpinLockIrq, EALREADY, ELOOP,
    ENAMETOOLONG, ENOLINK, ENOTCONN, EPROTONOSUPPORT, ESTALE, NO_RESTART, THIS_MODULE,
};

#[cfg(not(feature = "before_7_3"))]
mod since_7_3 {
    use kernel::{bindings, module::this_module, ThisModule};

    pub(crate) use kernel::{
        error::code::{EALREADY, ELOOP, ENAMETOOLONG, ENOLINK, ENOTCONN, EPROTONOSUPPORT, ESTALE},
        new_spinlock_irq,
        sync::{
            poll::PollCondVarBox,
            rcu::{rcu_barrier, synchronize_rcu},
            SpinLockIrq,
        },
    };

    /// Return value of a timer callback that does not restart the timer.
    pub(crate) const NO_RESTART: bindings::hrtimer_restart =
        bindings::hrtimer_restart::HRTIMER_NORESTART;

    /// Handle of this module.
    pub(crate) const THIS_MODULE: &ThisModule = this_module::<crate::LocalModule>();
}
#[cfg(not(feature = "before_7_3"))]
pub(crate) use since_7_3::*;

/// Creates the attributes of a directory, like [`kernel::configfs_attrs`], whose expansion uses
/// `THIS_MODULE` before 7.3.
macro_rules! configfs_attributes {
    ($($body:tt)*) => {{
        #[cfg(feature = "before_7_3")]
        use crate::THIS_MODULE;
        ::kernel::configfs_attrs! { $($body)* }
    }};
}
pub(crate) use configfs_attributes;
