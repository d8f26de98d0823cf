// SPDX-License-Identifier: GPL-2.0-only

//! Counters of a session.

use crate::{frontend::chardev::wire, sys::atomic::Counter};

macro_rules! counters {
    ($($name:ident),+ $(,)?) => {
        /// Counters of a session, as [`wire::Stats`] describes them.
        #[derive(Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)+
        }

        impl Counters {
            /// Sets the fields of `stats` that are counters.
            pub(super) fn show(&self, stats: &mut wire::Stats) {
                $(stats.$name = self.$name.get();)+
            }
        }
    };
}

counters! {
    requests,
    passed,
    completed,
    failed,
    bytes,
    refused,
    duplicates,
    unknown,
    reclaimed,
    late,
    forced,
    promoted,
    blocked,
    over,
    room_waits,
    early_sent,
    early_refused,
    early_late,
    expired,
    reconnected,
}
