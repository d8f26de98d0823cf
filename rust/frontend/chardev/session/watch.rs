// SPDX-License-Identifier: GPL-2.0-only

//! State of the deadline of a request, in its row ([`super::early`]).

/// Queue of the watch of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchQueue {
    /// No queue: there is no deadline, or it has passed.
    None,
    /// Queue of looks, with the time of the look.
    Waiting(u64),
    /// Queue of early replies to be read.
    Reported,
}

/// State of the deadline of a request.
#[derive(Clone, Copy)]
pub(super) struct DeadlineWatch {
    pub(super) place: WatchQueue,
    /// Time at which the client gives up, as far as the server knows.
    pub(super) deadline: u64,
    /// Deadline of the unread early reply; 0: none.
    pub(super) granted: u64,
    /// Time until which the server reported to be busy with the request; 0: none.
    pub(super) busy: u64,
    /// Flags of the early reply: `EARLY_*`.
    pub(super) flags: u32,
    /// True if there will be no further early reply.
    pub(super) last: bool,
}

impl DeadlineWatch {
    /// State without a deadline.
    pub(super) const NONE: Self = Self {
        place: WatchQueue::None,
        deadline: 0,
        granted: 0,
        busy: 0,
        flags: 0,
        last: false,
    };
}
