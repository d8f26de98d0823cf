// SPDX-License-Identifier: GPL-2.0-only

//! Reading of the running state.

use nrs_sched::parameters::service::CONFIG;

use super::state::ServiceState;
use crate::failure::{failure, Result};
use crate::kernel::Kernel;

/// Reads the state of `service`.
///
/// # Errors
///
/// - `Other`: the module's text is malformed.
/// - Errors of [`Kernel::get`].
pub fn read(kernel: &dyn Kernel, service: &str) -> Result<ServiceState> {
    let text = kernel.get(service, CONFIG)?;
    let mut state = ServiceState::parse(&text).map_err(|error| {
        failure!(Other: "{service}: cannot parse {CONFIG}: {error}";
            "compare nrsctl --version and modinfo nrs")
    })?;
    if state.slots.is_none() {
        state.slots = Some(kernel.get(service, "slots")?.trim_end().to_owned());
    }
    if kernel.is_made(service)? {
        state.cpts = Some(kernel.cpts(service)?);
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Mock;

    #[test]
    fn texts_of_another_version() {
        let kernel = Mock::with(&[("san", &[(CONFIG, "slots 5\nnrs_new 7\n")])]);
        let failure = read(&kernel, "san").unwrap_err();
        let why = "san: cannot parse config: line 2: no parameter of this name can be set";
        assert_eq!(failure.message, why);
        // What an older module lacks has its default.
        let kernel = Mock::with(&[("san", &[(CONFIG, "stall_ms 700\n"), ("slots", "7\n")])]);
        let state = read(&kernel, "san").unwrap();
        assert_eq!(state.text(), "slots 7\nstall_ms 700\n");
    }
}
