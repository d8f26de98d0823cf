// SPDX-License-Identifier: GPL-2.0-only

//! What differs between the supported series of the kernel.
//!
//! Everything that uses such a thing imports it from here: from the kernel crate where that has it, otherwise from
//! [`before_7_3`].

#[cfg(feature = "before_7_3")]
mod before_7_3;
#[cfg(feature = "before_7_3")]
pub(crate) use before_7_3::{
    new_spinlock_irq, rcu_barrier, synchronize_rcu, PollCondVarBox, SpinLockIrq, EALREADY, ELOOP,
    ENAMETOOLONG, ENOTCONN, EPROTONOSUPPORT, ESTALE, NO_RESTART, THIS_MODULE,
};

#[cfg(not(feature = "before_7_3"))]
mod since_7_3 {
    use kernel::{bindings, module::this_module, ThisModule};

    pub(crate) use kernel::{
        error::code::{EALREADY, ELOOP, ENAMETOOLONG, ENOTCONN, EPROTONOSUPPORT, ESTALE},
        new_spinlock_irq,
        sync::{
            poll::PollCondVarBox,
            rcu::{rcu_barrier, synchronize_rcu},
            SpinLockIrq,
        },
    };

    /// Answer of a timer's callback: the timer is not started again.
    pub(crate) const NO_RESTART: bindings::hrtimer_restart =
        bindings::hrtimer_restart::HRTIMER_NORESTART;

    /// This module.
    pub(crate) const THIS_MODULE: &ThisModule = this_module::<crate::LocalModule>();
}
#[cfg(not(feature = "before_7_3"))]
pub(crate) use since_7_3::*;

/// Makes the attributes of a directory, as [`kernel::configfs_attrs`], whose expansion names `THIS_MODULE` before 7.3.
macro_rules! configfs_attributes {
    ($($body:tt)*) => {{
        #[cfg(feature = "before_7_3")]
        use crate::THIS_MODULE;
        ::kernel::configfs_attrs! { $($body)* }
    }};
}
pub(crate) use configfs_attributes;
