// SPDX-License-Identifier: GPL-2.0-only

//! CPUs that go offline.

use core::marker::PhantomData;

use kernel::{
    bindings,
    ffi::{c_int, c_uint},
    prelude::*,
};

/// Learns that a CPU is about to go offline.
pub(crate) trait Leaving: Send + Sync + 'static {
    /// A CPU goes offline after this; tasks run elsewhere already. May sleep.
    fn leaving();
}

/// A registered [`Leaving`]; dropping it unregisters it.
///
/// # Invariants
///
/// `state` is a hotplug state that this one set up.
pub(crate) struct Registration<T: Leaving> {
    state: bindings::cpuhp_state,
    _learns: PhantomData<T>,
}

impl<T: Leaving> Registration<T> {
    /// Has `T` learn of CPUs that go.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the kernel has no state left.
    pub(crate) fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: The name is static, and the callback stays until the state is removed.
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

    /// A CPU goes.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn teardown(_cpu: c_uint) -> c_int {
        T::leaving();
        0
    }
}

impl<T: Leaving> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::__cpuhp_remove_state(self.state, false) };
    }
}
