/* SPDX-License-Identifier: GPL-2.0-only */
/* Data of the tracepoints; the core fills the structures, trace.h copies them. */
#ifndef NRS_EVENTS_H
#define NRS_EVENTS_H

#include <linux/types.h>

/* Text without a terminating NUL. */
struct nrs_text {
	const char *start;
	unsigned int length;
};

/* Head to which an event belongs. */
struct nrs_event_head {
	struct nrs_text service;
	struct nrs_text policy;
	u16 cpt;
	u8 high;
};

struct nrs_event_enqueue {
	struct nrs_event_head head;
	struct nrs_text jobid;
	struct nrs_text nid;
	u64 id;
	u64 bytes;
	u64 offset;
	u32 uid;
	u32 gid;
	u32 opcode;
	u8 queued;
};

struct nrs_event_dispatch {
	struct nrs_event_head head;
	u64 id;
	u64 bytes;
	u64 waited_ns;
	u32 slots;
	u32 limit;
	u8 queued;
	u8 slot;
};

struct nrs_event_complete {
	struct nrs_event_head head;
	u64 id;
	u64 bytes;
	u64 service_ns;
	s32 error;
};

struct nrs_event_throttle {
	struct nrs_event_head head;
	u64 until_ns;
	u64 delay_ns;
	u32 queued;
};

struct nrs_event_policy {
	struct nrs_text service;
	struct nrs_text old;
	struct nrs_text new_;
	struct nrs_text argument;
	u8 high;
};

struct nrs_event_shares {
	struct nrs_text service;
	u64 entities;
	u64 generation;
	u64 delta_ms;
	u64 took_ns;
	u8 high;
};

struct nrs_event_factors {
	struct nrs_text service;
	u64 instance;
	u64 factors;
	u64 lease_ms;
	u32 step;
};

#endif
