// SPDX-License-Identifier: GPL-2.0-only

//! What users set.

use crate::sched::{
    policy::params::{number, ClassesMax},
    qbm::plan::By,
};

number! {
    /// Clients of one service that have bandwidth of their own, at most, over all groups.
    ClientsMax, 16..=16_384 = 1_024, "clients_max is not a number from 16 to 16384"
}

/// What users can set; it survives stops and starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tunables {
    /// What makes a client; the plan says it.
    pub by: By,
    /// Bound of the class table.
    pub classes_max: ClassesMax,
    /// Number of gates.
    pub clients_max: ClientsMax,
}
