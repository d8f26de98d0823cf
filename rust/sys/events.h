/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fields of the tracepoints, which Documentation/tracing.md describes. A row is a field of an event
 * and of the structure with which Rust emits it. Rows are in order of alignment.
 *
 *   FIELD(TYPE, NAME)
 *   TEXT(NAME, SIZE)  truncated, padded with NULs, of which there is at least one
 */
#ifndef NRS_EVENTS_H
#define NRS_EVENTS_H

#include <linux/types.h>

/* Arrival of a request. */
#define nrs_fields_enqueue(FIELD, TEXT) \
	FIELD(u64, id) \
	FIELD(u64, bytes) \
	FIELD(u64, offset) \
	TEXT(service, 32) \
	TEXT(policy, 16) \
	TEXT(jobid, 32) \
	TEXT(nid, 64) \
	FIELD(u32, uid) \
	FIELD(u32, gid) \
	FIELD(u32, opcode) \
	FIELD(u16, cpt) \
	FIELD(u8, high) \
	FIELD(u8, queued)

/* Dispatch of a request. */
#define nrs_fields_dispatch(FIELD, TEXT) \
	FIELD(u64, id) \
	FIELD(u64, bytes) \
	FIELD(u64, waited_ns) \
	TEXT(service, 32) \
	TEXT(policy, 16) \
	FIELD(u32, slots) \
	FIELD(u32, limit) \
	FIELD(u16, cpt) \
	FIELD(u8, high) \
	FIELD(u8, queued) \
	FIELD(u8, slot)

/* End of a request. */
#define nrs_fields_complete(FIELD, TEXT) \
	FIELD(u64, id) \
	FIELD(u64, bytes) \
	FIELD(u64, service_ns) \
	TEXT(service, 32) \
	FIELD(s32, error) \
	FIELD(u16, cpt) \
	FIELD(u8, high)

/* Throttling of all requests of a head by its policy. */
#define nrs_fields_throttle(FIELD, TEXT) \
	FIELD(u64, until_ns) \
	FIELD(u64, delay_ns) \
	TEXT(service, 32) \
	TEXT(policy, 16) \
	FIELD(u32, queued) \
	FIELD(u16, cpt) \
	FIELD(u8, high)

/* Change of the policy of a head, or of the parameters of the policy. */
#define nrs_fields_policy(FIELD, TEXT) \
	TEXT(service, 32) \
	TEXT(old, 16) \
	TEXT(new, 16) \
	TEXT(argument, 64) \
	FIELD(u8, high)

/* Computation of shares, which are in effect. */
#define nrs_fields_shares(FIELD, TEXT) \
	FIELD(u64, entities) \
	FIELD(u64, generation) \
	FIELD(u64, delta_ms) \
	FIELD(u64, took_ns) \
	TEXT(service, 32) \
	FIELD(u8, high)

/* Factors of an agent are set, or have moved one step towards 1. */
#define nrs_fields_factors(FIELD, TEXT) \
	FIELD(u64, instance) \
	FIELD(u64, factors) \
	FIELD(u64, lease_ms) \
	TEXT(service, 32) \
	FIELD(u32, step)

#define NRS_MEMBER(type, name) type name;
#define NRS_MEMBER_TEXT(name, size) char name[size];
#define NRS_EVENT_STRUCT(event) \
	struct nrs_event_##event { \
		nrs_fields_##event(NRS_MEMBER, NRS_MEMBER_TEXT) \
	}

NRS_EVENT_STRUCT(enqueue);
NRS_EVENT_STRUCT(dispatch);
NRS_EVENT_STRUCT(complete);
NRS_EVENT_STRUCT(throttle);
NRS_EVENT_STRUCT(policy);
NRS_EVENT_STRUCT(shares);
NRS_EVENT_STRUCT(factors);

#endif
