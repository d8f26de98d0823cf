// SPDX-License-Identifier: GPL-2.0-only

//! CPUs that go offline.

use core::marker::PhantomData;

use kernel::{
    bindings,
    ffi::{c_int, c_uint},
    prelude::*,
};

/// Callback for CPUs that go offline.
pub(crate) trait CpuOffline: Send + Sync + 'static {
    /// Handles a CPU that is about to go offline; tasks already run on other CPUs. May sleep.
    fn leaving();
}

/// A registered [`CpuOffline`]; dropping the registration unregisters it.
///
/// # Invariants
///
/// `state` is a hotplug state set up by this registration.
pub(crate) struct HotplugRegistration<T: CpuOffline> {
    state: bindings::cpuhp_state,
    _learns: PhantomData<T>,
}

impl<T: CpuOffline> HotplugRegistration<T> {
    /// Registers `T` for CPUs that go offline.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the kernel has no free state.
    pub(crate) fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: The name is static, and the callback exists until the state is removed.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                name.as_char_ptr(),
                false,
                None,
                Some(Self::teardown),
                false,
            )
        };
        if state < 0 {
            return Err(Error::from_errno(state));
        }
        // INVARIANT: Set up above.
        Ok(Self {
            state,
            _learns: PhantomData,
        })
    }

    /// Calls [`CpuOffline::leaving`].
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn teardown(_cpu: c_uint) -> c_int {
        T::leaving();
        0
    }
}

impl<T: CpuOffline> Drop for HotplugRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::__cpuhp_remove_state(self.state, false) };
    }
}
